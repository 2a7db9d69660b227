//! Decisions about paths become mounts: masks over secrets, binds for grants, stand-ins for names that must not appear.
//! Owns the order (parents before children) and the pinning of parents; knows nothing of how a mount is made.
//! Called by `plan()`.

mod hidden;
pub(crate) mod list;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::path::is_at_or_below;
use cofferdam_policy::{Access, Hold as HoldRule, Stand};

use crate::PlanError;
use crate::facts::path::{Kind, PathFact};
use crate::files::cover::Covered;
use crate::files::decision::Decision;
use crate::files::mounts::list::{Around, FileMounts, grants_below, is_in, target_of, why};
use crate::files::own_areas::{OWN, own_areas};
use crate::step::{Hold, HoldKind, Mount, MountKind, Step, Trigger, if_present, mount};

/// `decisions` are sorted, so what encloses one has come before it and what lies below follows it directly.
pub(crate) fn files(
    decisions: &[Decision],
    exec: bool,
    trigger: Option<Trigger>,
    programs: Vec<Step>,
) -> Result<FileMounts, PlanError> {
    let (steps, holds, mounted) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut out =
        FileMounts { steps, holds, overlays: 0, covers: Vec::new(), trees: Vec::new(), mounted, exec, trigger };
    // Where nothing is given around a program, it comes first: what hides parts of its libraries has to lie on top.
    // In static mode they lie on the root itself, before everything else.
    let is_alone = |step: &Step| trigger.is_none() || !decisions.iter().any(|decision| is_in(step, &decision.path));
    let (alone, mut programs): (Vec<Step>, Vec<Step>) = programs.into_iter().partition(is_alone);
    let mut visible: Vec<PathBuf> = Vec::new();
    out.show(alone, &mut visible);
    let mut enclosing: Vec<&Decision> = Vec::new();
    let mut contents: Vec<Around> = Vec::new();
    for (index, decision) in decisions.iter().enumerate() {
        refuse_own_area(decision)?;
        while enclosing.last().is_some_and(|outer| !is_at_or_below(&decision.path, &outer.path)) {
            enclosing.pop();
            contents.pop();
        }
        let around = contents.last().copied().unwrap_or_else(|| outermost(&decision.path, trigger.is_some()));
        let is_shown = visible.iter().any(|program| is_at_or_below(&decision.path, program));
        // A program and its libraries are seen wherever they lie.
        let seen =
            if is_shown && matches!(around, Around::Unknown | Around::Denied) { Around::ReadOnly } else { around };
        let before = out.steps.len();
        out.add(decision, &decisions[index + 1..], seen, &enclosing);
        let covering: Vec<&Path> = out.steps[before..].iter().filter_map(target_of).collect();
        visible.retain(|program| !covering.iter().any(|target| program.starts_with(target)));
        if around == Around::Unknown {
            // A program that may run lies on top of the place that was just given, below what hides parts of it.
            let (here, elsewhere) = programs.into_iter().partition(|step| is_in(step, &decision.path));
            programs = elsewhere;
            out.show(here, &mut visible);
        }
        if matches!(decision.fact, PathFact::Present { .. }) {
            enclosing.push(decision);
            let asks = decision.access == Access::Protect && !decision.is_given && seen == Around::Unknown;
            contents.push(if asks { Around::Unknown } else { inside(decision.access, seen) });
        }
    }
    out.steps.extend(programs);
    Ok(out)
}

/// What the mount of a decision covers; none where it gives something.
fn covered(decision: &Decision, kind: &MountKind, around: Around) -> Option<Covered> {
    match (decision.access, &decision.fact) {
        (_, PathFact::Missing { .. }) => Some(Covered::Held),
        (Access::Deny, _) if decision.is_about_socket() => Some(Covered::Socket),
        (Access::Deny, _) => Some(Covered::Hidden),
        (Access::Mask, _) => Some(Covered::Masked),
        (Access::Protect, _) if matches!(kind, MountKind::Bind { .. }) => Some(Covered::Protected),
        (Access::Read, _) if around == Around::Writable => Some(Covered::Protected),
        _ => None,
    }
}

/// A stand-in may be of another kind than the name that it holds.
fn kind_of(mount: &MountKind, decision: &Decision) -> Kind {
    match (mount, &decision.fact) {
        (_, PathFact::Present { kind, .. }) => *kind,
        (MountKind::Empty { .. }, _) => Kind::Directory,
        _ => Kind::File,
    }
}

impl FileMounts {
    /// Programs that may run, and their libraries.
    fn show(&mut self, programs: Vec<Step>, visible: &mut Vec<PathBuf>) {
        visible.extend(programs.iter().filter_map(target_of).map(Path::to_path_buf));
        self.steps.extend(programs);
    }

    fn add(&mut self, decision: &Decision, following: &[Decision], around: Around, enclosing: &[&Decision]) {
        if decision.access <= Access::Mask && around == Around::ReadOnly {
            return self.hide_decided(decision, following, enclosing);
        }
        // The entry of a worktree in its repository: one overlay takes what is written to both.
        let is_in_it = around == Around::Overlaid && enclosing.last().is_some_and(|outer| outer.in_transaction());
        if decision.in_transaction() && is_in_it {
            return;
        }
        let Some((target, kind)) = self.mount_for(decision, following, around) else { return };
        let is_socket_cover = decision.access == Access::Deny && decision.is_about_socket();
        // Under another name of its directory the next session would find what is hidden from this one, and the host obey a copy
        // of what was given for reading.
        let takes = refuses(decision.access) || decision.access == Access::Read;
        if takes && around == Around::Writable {
            self.pin_parents(&target, enclosing, is_socket_cover || decision.is_other_name);
        }
        // Two missing names below one missing directory are held by one stand-in.
        if !self.mounted.insert(target.clone()) {
            return;
        }
        let has_no_point =
            around == Around::Private || (around == Around::Unknown && self.trigger == Some(Trigger::Notify));
        let create = has_no_point.then_some(match decision.fact {
            PathFact::Present { kind, .. } => kind,
            PathFact::Missing { .. } => Kind::Directory,
        });
        // It may be gone by now: the process that listened there has ended.
        // Another name may lie where this user cannot go.
        let if_present = is_socket_cover || decision.is_other_name;
        if let Some(what) = covered(decision, &kind, around) {
            self.cover(target.clone(), what, kind_of(&kind, decision), around, enclosing);
        }
        let why = why(decision);
        self.steps.push(Step::Mount(Mount { target, kind, create, if_present, why }));
    }

    /// The mount that a decision needs where it stands, or none where its surroundings already give the answer.
    fn mount_for(
        &mut self,
        decision: &Decision,
        following: &[Decision],
        around: Around,
    ) -> Option<(PathBuf, MountKind)> {
        let path = decision.path.clone();
        let (kind, id) = match &decision.fact {
            PathFact::Missing { first, .. } => return self.hold(decision, first, around),
            PathFact::Present { kind, id, .. } => (*kind, *id),
        };
        let exec = self.exec;
        let bind = |write| MountKind::Bind { source: path.clone(), id: Some(id), write, exec };
        match (decision.access, around) {
            // What the workload cannot see needs no cover.
            (Access::Deny, Around::Denied | Around::Private | Around::Unknown) => None,
            // No process listens at an overlay's copy.
            (Access::Deny, Around::Overlaid) if kind == Kind::Socket => None,
            (Access::Deny, _) if kind == Kind::Directory => {
                Some((path.clone(), MountKind::Empty { inside: grants_below(&path, following) }))
            }
            (Access::Deny, _) => match &decision.stand {
                Stand::Refuse => Some((path, MountKind::Refused)),
                Stand::Text(text) => Some((path, MountKind::Text(text.clone()))),
            },
            // The gate shows it, or nothing around it can be seen.
            (Access::Mask, Around::Denied | Around::Private) => None,
            (Access::Mask, Around::Unknown) if self.trigger == Some(Trigger::Fuse) || decision.is_other_name => None,
            (Access::Mask, _) => Some((path, self.masked(decision))),
            // A socket is itself only on a mount of its own: seen through an overlay it is another one.
            (Access::Read, Around::ReadOnly) if kind == Kind::Socket => Some((path.clone(), bind(false))),
            // Protecting is about writes: it never uncovers what is hidden.
            (Access::Protect, Around::Unknown) if !decision.is_given => None,
            (Access::Protect, Around::Denied | Around::Private)
            | (Access::Read | Access::Protect, Around::ReadOnly) => None,
            (Access::Read | Access::Protect, _) => Some((path.clone(), bind(false))),
            (Access::Write, Around::Writable) => None,
            (Access::Write, _) => Some((path.clone(), bind(true))),
            (Access::Overlay, _) => {
                let slot = self.overlays;
                self.overlays += 1;
                Some((path.clone(), MountKind::Overlay { lower: path, id, slot, absent: Vec::new() }))
            }
        }
    }

    /// A missing protected name inside a writable directory: the supervisor makes a stand-in, and an empty read-only mount
    /// covers it.
    fn hold(&mut self, decision: &Decision, first: &Path, around: Around) -> Option<(PathBuf, MountKind)> {
        if around != Around::Writable {
            return None;
        }
        // A file can stand in only for the name itself, not for a directory on the way to it.
        let (kind, mount) = match &decision.hold {
            HoldRule::Nothing => return None,
            HoldRule::File(text) if first == decision.path => {
                (HoldKind::File(text.to_string()), MountKind::Text(text.to_string()))
            }
            HoldRule::Socket if first == decision.path => {
                let bind = MountKind::Bind { source: first.to_path_buf(), id: None, write: false, exec: false };
                (HoldKind::Socket, bind)
            }
            HoldRule::Directory | HoldRule::File(_) | HoldRule::Socket => {
                (HoldKind::Directory, MountKind::Empty { inside: Vec::new() })
            }
        };
        if !self.holds.iter().any(|h| h.path == first) {
            self.holds.push(Hold { path: first.to_path_buf(), kind });
        }
        Some((first.to_path_buf(), mount))
    }

    /// A directory that holds a protected name can be renamed away and replaced, unless it is a mount point itself. It comes
    /// before whatever is mounted in it already, or it would hide that.
    fn pin_parents(&mut self, target: &Path, enclosing: &[&Decision], may_be_gone: bool) {
        // What is given in a tree that is given has no mount of its own: the way through it can be renamed as well.
        let outwards = enclosing.iter().rev().skip_while(|d| d.access != Access::Write || d.path == target);
        let Some(root) = outwards.take_while(|d| d.access == Access::Write).last() else { return };
        let inside = |p: &&Path| *p != root.path && is_at_or_below(p, &root.path);
        let mut parents: Vec<&Path> = target.ancestors().skip(1).take_while(inside).collect();
        parents.reverse();
        for parent in parents {
            if self.mounted.insert(parent.to_path_buf()) {
                let bind = MountKind::Bind { source: parent.to_path_buf(), id: None, write: true, exec: self.exec };
                let make = if may_be_gone { if_present } else { mount };
                let step = make(parent.to_path_buf(), bind, "cannot be renamed: something protected lies below");
                let first = self.steps.iter().position(|step| is_in(step, parent)).unwrap_or(self.steps.len());
                self.steps.insert(first, step);
                self.cover(parent.to_path_buf(), Covered::Parent, Kind::Directory, Around::Writable, enclosing);
            }
        }
    }
}

fn refuse_own_area(decision: &Decision) -> Result<(), PlanError> {
    let own = OWN.iter().find(|area| is_at_or_below(&decision.path, Path::new(area)));
    match own {
        // Neither denying nor protecting gives anything: a link in the project may well lead to `/dev/null`.
        Some(area) if !refuses(decision.access) => Err(PlanError::OwnArea {
            path: decision.path.clone(),
            area: area.trim_start_matches('/'),
            origin: decision.origin.clone(),
        }),
        _ => Ok(()),
    }
}

fn outermost(path: &Path, gated: bool) -> Around {
    if own_areas().any(|area| is_at_or_below(path, Path::new(area))) {
        Around::Private
    } else if gated {
        Around::Unknown
    } else {
        Around::ReadOnly
    }
}

/// What surrounds whatever lies in a directory with this access that is itself surrounded by `around`.
fn inside(access: Access, around: Around) -> Around {
    match (access, around) {
        // What the gate hides or asks about has no mount of its own.
        (Access::Deny, Around::Unknown) => Around::Unknown,
        (Access::Deny, _) => Around::Denied,
        (Access::Mask | Access::Protect | Access::Read, _) => Around::ReadOnly,
        (Access::Overlay, _) => Around::Overlaid,
        (Access::Write, _) => Around::Writable,
    }
}
