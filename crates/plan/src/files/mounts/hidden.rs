//! Names that are hidden in read-only trees: in the mount that gives what lies around them, by name (decision 0028). Owns
//! which tree that is and the entries of its list; what is hidden is the parent's decision. Called by `mounts::files` and,
//! for names that do not exist yet, by `plan()`.

use std::path::{Path, PathBuf};

use cofferdam_policy::{Access, Stand};

use crate::facts::path::{Kind, PathFact};
use crate::files::absent::is_below;
use crate::files::cover::Covered;
use crate::files::decision::Decision;
use crate::files::mounts::list::{Around, FileMounts, grants_below, target_of, why};
use crate::step::{HiddenName, Mount, MountKind, Step, if_present, mount};

impl FileMounts {
    /// Hides a name where everything around it is read-only: in the mount that gives it, or in a directory of the root. False
    /// for a name of the root itself.
    fn hide(&mut self, path: &Path, text: Option<String>) -> bool {
        let Some((top, hidden)) = self.filtered_around(path) else { return false };
        let Ok(relative) = path.strip_prefix(top) else { return false };
        hidden.push(HiddenName { path: relative.to_path_buf(), text });
        true
    }

    /// What gives the names around this one, filtered from now on.
    fn filtered_around(&mut self, path: &Path) -> Option<(&Path, &mut Vec<HiddenName>)> {
        let Step::Mount(tree) = self.tree_around(path)? else { return None };
        if let MountKind::Bind { source, id, exec, .. } = &tree.kind {
            let (source, id, exec) = (source.clone(), *id, *exec);
            tree.kind = MountKind::Filtered { source, id, exec, hidden: Vec::new() };
        }
        match &mut tree.kind {
            MountKind::Filtered { hidden, .. } => Some((&tree.target, hidden)),
            _ => None,
        }
    }

    fn tree_around(&mut self, path: &Path) -> Option<&mut Step> {
        if let Some(at) = innermost(&self.steps, path) {
            return self.steps.get_mut(at);
        }
        if self.trigger.is_some() {
            return None;
        }
        if let Some(at) = innermost(&self.trees, path) {
            return self.trees.get_mut(at);
        }
        // All of it, so that a directory on the way that a host program renames takes nothing off.
        let top: PathBuf = path.components().take(2).collect();
        if top == path {
            return None;
        }
        let kind = MountKind::Filtered { source: top.clone(), id: None, exec: self.exec, hidden: Vec::new() };
        self.trees.push(mount(top, kind, "names below it are hidden"));
        self.trees.last_mut()
    }

    /// What is denied in a read-only tree is hidden by name; a directory with grants in it needs mount points for them, and
    /// those stand on the tree's own entries.
    pub(super) fn hide_decided(&mut self, decision: &Decision, following: &[Decision], enclosing: &[&Decision]) {
        let PathFact::Present { kind, .. } = decision.fact else { return };
        let path = &decision.path;
        let points = if kind == Kind::Directory { grants_below(path, following) } else { Vec::new() };
        let text = match (&decision.masked, &decision.stand) {
            (Some(text), _) => Some(text.clone()),
            (None, Stand::Text(text)) if kind != Kind::Directory => Some(text.clone()),
            _ => None,
        };
        let is_in_tree =
            if points.is_empty() { self.hide(path, text.clone()) } else { self.filtered_around(path).is_some() };
        let is_own = is_in_tree && !enclosing.iter().any(|outer| outer.access == Access::Write);
        let around = if is_own { Around::Denied } else { Around::ReadOnly };
        let what = match decision.access {
            Access::Mask => Covered::Masked,
            _ if decision.is_about_socket() => Covered::Socket,
            _ => Covered::Hidden,
        };
        self.cover(path.clone(), what, kind, around, enclosing);
        // What the tree has is a snapshot, and the name to mount on.
        let is_rendered = decision.access == Access::Mask && self.masked(decision) == MountKind::Rendered;
        if is_in_tree && points.is_empty() && !is_rendered {
            return;
        }
        let kind = match (kind, text) {
            (Kind::Directory, _) => MountKind::Empty { inside: points },
            _ if is_rendered => MountKind::Rendered,
            (_, Some(text)) => MountKind::Text(text),
            (_, None) => MountKind::Refused,
        };
        let make = if decision.is_about_socket() { if_present } else { mount };
        self.steps.push(make(path.clone(), kind, &why(decision)));
    }

    /// Names that rules hide and that do not exist yet: what the host makes there later is hidden too, in trees that are
    /// filtered anyway or given by themselves.
    pub(crate) fn hide_absent(&mut self, absent: &[PathBuf]) {
        for path in absent {
            if innermost(&self.steps, path).or_else(|| innermost(&self.trees, path)).is_some() {
                self.hide(path, None);
            }
        }
    }

    /// The same in the overlays of a transaction.
    pub(crate) fn hide_absent_in_overlays(&mut self, absent: &[PathBuf]) {
        for step in &mut self.steps {
            let Step::Mount(Mount { target, kind: MountKind::Overlay { absent: hidden, .. }, .. }) = step else {
                continue;
            };
            let below = absent.iter().filter_map(|path| path.strip_prefix(&*target).ok());
            hidden.extend(below.map(|path| HiddenName { path: path.to_path_buf(), text: None }));
        }
    }

    /// Directories that are given for reading, by which names could be seen that do not exist yet; none where everything is.
    pub(crate) fn given(&self) -> Option<Vec<PathBuf>> {
        self.trigger?;
        let is_tree = |step: &&Step| {
            matches!(
                step,
                Step::Mount(Mount { kind: MountKind::Bind { write: false, .. } | MountKind::Filtered { .. }, .. })
            )
        };
        Some(self.steps.iter().filter(is_tree).filter_map(target_of).map(Path::to_path_buf).collect())
    }
}

/// Of what is given for reading, the step with the longest path above a name.
fn innermost(steps: &[Step], path: &Path) -> Option<usize> {
    let gives = |step: &Step| match step {
        Step::Mount(Mount {
            target, kind: MountKind::Bind { write: false, .. } | MountKind::Filtered { .. }, ..
        }) if is_below(path.as_os_str(), target.as_os_str()) => Some(target.as_os_str().len()),
        _ => None,
    };
    let found = steps.iter().enumerate().filter_map(|(at, step)| Some((gives(step)?, at)));
    found.max().map(|(_, at)| at)
}
