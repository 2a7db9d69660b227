//! Other names of what is closed: a second mount of the same tree shows a hidden file under another path. Owns the
//! arithmetic on the table of mounts: device, path within the file system, root of each mount. Where that cannot tell what a
//! mount shows it is hidden whole. Called by `rules` for a launch (decision 0030).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::{Access, Layer, Origin};

use crate::facts::host::{HostFacts, is_of_the_system};
use crate::facts::mount_table::{MountFact, Shows};
use crate::facts::path::{FileId, Kind, PathFact};
use crate::files::decision::{Decision, found_out};
use crate::files::own_areas::is_in_own_area;

/// Where a path lies, whatever its name: the mount, and the path within its file system.
struct Place {
    mount: usize,
    within: PathBuf,
}

/// The table, ready for questions.
#[derive(Debug)]
struct Table<'a> {
    mounts: &'a [MountFact],
    children: HashMap<u32, Vec<usize>>,
    top: Option<usize>,
}

impl<'a> Table<'a> {
    fn new(mounts: &'a [MountFact]) -> Self {
        let mut children: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, mount) in mounts.iter().enumerate().filter(|(_, mount)| mount.id != mount.parent) {
            children.entry(mount.parent).or_default().push(index);
        }
        let is_top = |mount: &MountFact| {
            let has_parent = mounts.iter().any(|other| other.id == mount.parent && other.id != mount.id);
            mount.point == Path::new("/") && !has_parent
        };
        Table { mounts, children, top: mounts.iter().position(is_top) }
    }

    /// The mount that a path is found in, as the kernel walks: from mount to mount on the way, the topmost of a stack.
    fn find(&self, path: &Path) -> Option<usize> {
        let mut here = self.top?;
        loop {
            let children = self.children.get(&self.mounts[here].id).into_iter().flatten().copied();
            let on_the_way = children.filter(|child| path.starts_with(&self.mounts[*child].point));
            match on_the_way.min_by_key(|child| self.mounts[*child].point.as_os_str().len()) {
                Some(next) => here = next,
                None => return Some(here),
            }
        }
    }

    fn place(&self, path: &Path) -> Option<Place> {
        let mount = self.find(path)?;
        let MountFact { root, point, .. } = &self.mounts[mount];
        Some(Place { mount, within: joined(root, path.strip_prefix(point).ok()?) })
    }

    /// Where a mount shows what lies at `within` of its file system, if it does and nothing is mounted over it.
    fn shown(&self, mount: usize, within: &Path) -> Option<PathBuf> {
        let MountFact { root, point, .. } = &self.mounts[mount];
        let path = joined(point, within.strip_prefix(root).ok()?);
        (self.find(&path) == Some(mount)).then_some(path)
    }

    /// Every other path of `path`, and every mount that is a part of it.
    fn others(&self, place: &Place) -> Vec<Other> {
        let device = self.mounts[place.mount].device;
        let mut found = Vec::new();
        for (index, mount) in self.mounts.iter().enumerate() {
            if index == place.mount
                || mount.device != device
                || !mount.root.is_absolute()
                || is_in_own_area(&mount.point)
            {
                continue;
            }
            if let Some(path) = self.shown(index, &place.within) {
                found.push(Other::Same { mount: index, path });
            } else if mount.root.starts_with(&place.within) && self.find(&mount.point) == Some(index) {
                found.push(Other::Part { mount: index });
            }
        }
        found
    }

    /// Why a mount cannot be compared with `closed`, if so.
    fn doubt(&self, mount: usize, closed: &[Place]) -> Option<String> {
        match &self.mounts[mount].shows {
            Shows::Tree => None,
            Shows::Unknown { kind } => Some(format!("what {kind} shows cannot be compared with what is closed")),
            Shows::Layers(None) => Some("the layers of this overlay cannot be found".to_owned()),
            Shows::Layers(Some(layers)) => {
                let shows = |layer: &PathBuf| {
                    let Some(layer) = self.place(layer) else { return true };
                    let device = self.mounts[layer.mount].device;
                    closed.iter().any(|place| {
                        let is_near =
                            place.within.starts_with(&layer.within) || layer.within.starts_with(&place.within);
                        place.mount != mount && self.mounts[place.mount].device == device && is_near
                    })
                };
                layers.iter().any(shows).then(|| "a layer of this overlay shows what is closed".to_owned())
            }
            Shows::Subvolumes => {
                let MountFact { device, root, .. } = &self.mounts[mount];
                let is_above = |place: &Place| {
                    let own = &self.mounts[place.mount];
                    place.mount != mount && own.device == *device && own.root.starts_with(root) && own.root != *root
                };
                closed.iter().any(is_above).then(|| "it shows every subvolume, snapshots as well".to_owned())
            }
        }
    }
}

enum Other {
    Same { mount: usize, path: PathBuf },
    Part { mount: usize },
}

fn joined(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_path_buf() } else { base.join(rest) }
}

/// Which mounts can show another name of something: those with a file system that is mounted more than once, and those
/// that cannot be compared by it. On most hosts there is none.
pub fn may_matter(mounts: &[MountFact]) -> Vec<bool> {
    let mut times: HashMap<(u32, u32), u32> = HashMap::with_capacity(mounts.len());
    let seen = |mount: &&MountFact| !is_in_own_area(&mount.point);
    for mount in mounts.iter().filter(seen) {
        *times.entry(mount.device).or_default() += 1;
    }
    let is_twice = |mount: &MountFact| times.get(&mount.device).is_some_and(|times| *times > 1);
    let has_doubt = |mount: &MountFact| mount.shows != Shows::Tree || mount.snapshots.is_some();
    mounts.iter().map(|mount| seen(&mount) && (is_twice(mount) || has_doubt(mount))).collect()
}

/// Decisions about other names of what `decided` closes, and about mounts that may show it.
pub(crate) fn decisions(decided: &[Decision], facts: &HostFacts) -> Vec<Decision> {
    let mounts = &facts.mounts;
    let candidates = may_matter(mounts);
    if !candidates.contains(&true) {
        return Vec::new();
    }
    let table = Table::new(mounts);
    let closes = |decision: &&Decision| refuses(decision.access);
    let closed: Vec<(&Decision, Place)> =
        decided.iter().filter(closes).filter_map(|d| Some((d, table.place(&d.path)?))).collect();
    let mut found = Vec::new();
    for (decision, place) in &closed {
        if candidates[place.mount] {
            found.extend(table.others(place).into_iter().filter_map(|other| under(decision, &other, &table)));
        }
    }
    let hidden: Vec<Place> =
        closed.into_iter().filter(|(decision, _)| decision.access <= Access::Mask).map(|(_, place)| place).collect();
    found.extend(doubtful(decided, facts, &table, &hidden));
    found
}

/// The decision about another name: of the same rule, so that a rule about that very name meets it as any other.
fn under(decision: &Decision, other: &Other, table: &Table<'_>) -> Option<Decision> {
    let same = |path: &Path| format!("the same file as {} under another mount", path.display());
    let (path, fact) = match (other, &decision.fact) {
        (Other::Same { path, .. }, PathFact::Present { kind, id, .. }) => {
            (path, PathFact::Present { canonical: path.clone(), kind: *kind, id: *id })
        }
        (Other::Same { mount, path }, PathFact::Missing { first, .. }) => {
            let first = table.shown(*mount, &table.place(first)?.within)?;
            (path, PathFact::Missing { canonical: path.clone(), first })
        }
        (Other::Part { mount }, _) => {
            let MountFact { point, top: (kind, id), .. } = &table.mounts[*mount];
            (point, PathFact::Present { canonical: point.clone(), kind: *kind, id: *id })
        }
    };
    Some(Decision {
        path: path.clone(),
        reason: same(&decision.path).into(),
        fact,
        is_other_name: true,
        ..decision.clone()
    })
}

/// Mounts that are hidden whole, unless a rule gives that very directory.
fn doubtful(decided: &[Decision], facts: &HostFacts, table: &Table<'_>, closed: &[Place]) -> Vec<Decision> {
    let origin = Origin { layer: Layer::BuiltIn, source: "mounts of the host".into(), line: None };
    let is_given = |path: &Path| decided.iter().any(|d| d.path == path && d.access >= Access::Read);
    let places = facts.places();
    let mut found = Vec::new();
    let mut hide = |path: &Path, (kind, id): (Kind, FileId), reason: &str| {
        if !is_in_own_area(path) && !places.holds_a_home(path) && !is_of_the_system(path) && !is_given(path) {
            let fact = PathFact::Present { canonical: path.to_path_buf(), kind, id };
            let decision = found_out(path.to_path_buf(), Access::Deny, reason, &origin, fact);
            found.push(Decision { is_other_name: true, ..decision });
        }
    };
    for (index, mount) in table.mounts.iter().enumerate() {
        if let Some(why) = table.doubt(index, closed).filter(|_| table.find(&mount.point) == Some(index)) {
            hide(&mount.point, mount.top, &why);
        }
        let holds_closed = closed.iter().any(|place| table.mounts[place.mount].device == mount.device);
        if let Some(snapshots) = mount.snapshots.as_ref().filter(|_| holds_closed) {
            let top = (Kind::Directory, FileId { device: 0, inode: 0 });
            hide(snapshots, top, "snapshots of a tree with hidden files");
        }
    }
    found
}

#[cfg(test)]
mod tests;
