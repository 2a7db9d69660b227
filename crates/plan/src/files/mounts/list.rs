//! The list of mounts while it is made, and what surrounds each of them. Owns the list, its covers and what is asked about its
//! steps; which mount a decision needs is the parent's. Used by `mounts` and `hidden`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cofferdam_policy::Access;
use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::path::is_at_or_below;

use crate::facts::path::{Kind, PathFact};
use crate::files::cover::{Cover, Covered, KeptBy, StandsOn};
use crate::files::decision::Decision;
use crate::files::own_areas::own_areas;
use crate::step::{Hold, MountKind, Step, Trigger};

/// What surrounds a decision's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    ReadOnly,
    Private,
    Denied,
    Overlaid,
    Writable,
    /// Nothing is there until it is granted.
    Unknown,
}

/// The mounts for the policy's decisions, in order, and the names to hold.
pub(crate) struct FileMounts {
    pub(crate) steps: Vec<Step>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) overlays: usize,
    pub(crate) covers: Vec<Cover>,
    /// Directories of the host's tree with hidden names, where that tree is the root; they come before everything else.
    pub(crate) trees: Vec<Step>,
    pub(super) mounted: BTreeSet<PathBuf>,
    pub(super) exec: bool,
    pub(super) trigger: Option<Trigger>,
}

impl FileMounts {
    /// A masked file always has its text; without one it would be hidden. The gate renders it anew at each open.
    pub(super) fn masked(&self, decision: &Decision) -> MountKind {
        // What lies in a private file system of the sandbox is not on the gate's root.
        let is_on_root = !own_areas().any(|area| is_at_or_below(&decision.path, Path::new(area)));
        match &decision.masked {
            None => MountKind::Refused,
            Some(_) if self.trigger == Some(Trigger::Fuse) && !decision.is_other_name && is_on_root => {
                MountKind::Rendered
            }
            Some(text) => MountKind::Text(text.clone()),
        }
    }

    /// Notes what a mount is for, and whose the name is that it stands on.
    pub(super) fn cover(&mut self, path: PathBuf, what: Covered, kind: Kind, around: Around, enclosing: &[&Decision]) {
        let (stands_on, kept_by) = match around {
            Around::Writable => (StandsOn::Host, KeptBy::Keeper),
            Around::ReadOnly => (StandsOn::Host, KeptBy::Nothing),
            Around::Private | Around::Denied | Around::Overlaid | Around::Unknown => (StandsOn::Own, KeptBy::Itself),
        };
        let written = |outer: &&&Decision| outer.access == Access::Write && outer.path != path;
        let tree = match around {
            Around::Writable => enclosing.iter().rev().find(written).map(|outer| outer.path.clone()),
            _ => None,
        };
        self.covers.push(Cover { path, what, kind, stands_on, kept_by, tree });
    }
}

pub(super) fn why(decision: &Decision) -> String {
    match &*decision.reason {
        "" => decision.origin.to_string(),
        reason => format!("{} ({reason})", decision.origin),
    }
}

pub(super) fn is_in(step: &Step, place: &Path) -> bool {
    target_of(step).is_some_and(|target| target.starts_with(place))
}

pub(super) fn target_of(step: &Step) -> Option<&Path> {
    match step {
        Step::Mount(mount) => Some(&mount.target),
        _ => None,
    }
}

/// Mount points that a denied directory must offer, relative to it: for grants with nothing else in between.
pub(super) fn grants_below(denied: &Path, following: &[Decision]) -> Vec<(PathBuf, Kind)> {
    let mut inside: Vec<(PathBuf, Kind)> = Vec::new();
    let mut covered: Option<&Path> = None;
    for decision in following.iter().take_while(|d| is_at_or_below(&d.path, denied)) {
        let PathFact::Present { kind, .. } = decision.fact else { continue };
        let is_grant = !refuses(decision.access);
        if is_grant && !covered.is_some_and(|outer| is_at_or_below(&decision.path, outer)) {
            covered = Some(&decision.path);
            if let Ok(relative) = decision.path.strip_prefix(denied) {
                inside.push((relative.to_path_buf(), kind));
            }
        }
    }
    inside
}
