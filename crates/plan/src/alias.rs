//! Other names of what is closed: a second mount of the same tree shows a hidden file under another path. Owns the table of
//! mounts and the arithmetic on it: device, path within the file system, root of each mount. Where that cannot tell what a
//! mount shows it is hidden whole. Called by `rules` for a launch; reading the table is the survey's (decision 0030).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::{Access, Layer, Origin};
use serde::Serialize;

use crate::facts::{FileId, HostFacts, Kind, PathFact, is_of_the_system};
use crate::mounts::is_in_own_area;
use crate::rules::{Decision, found_out};

/// One line of the kernel's table of mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountFact {
    pub id: u32,
    pub parent: u32,
    /// Of the file system, as the kernel numbers it: one number for all subvolumes.
    pub device: (u32, u32),
    /// The directory or file of the file system that is mounted.
    pub root: PathBuf,
    pub point: PathBuf,
    /// What stands at the mount point. The survey looks where it matters.
    pub top: (Kind, FileId),
    pub shows: Shows,
    /// Where snapshots of the file system can be found in this mount.
    pub snapshots: Option<PathBuf>,
    /// Whether a name that is looked up there may be mounted first.
    pub mounts_on_demand: bool,
}

/// How what a mount shows can be compared with other mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shows {
    /// A part of a file system, by device and root.
    Tree,
    /// The same of a file system with subvolumes: a mount of what lies above them may show snapshots.
    Subvolumes,
    /// These directories, one on top of the other; `None` where they cannot be found.
    Layers(Option<Vec<PathBuf>>),
    /// Something that only its server knows.
    Unknown { kind: String },
}

/// File systems whose files another machine, or the host of a virtual one, keeps.
const REMOTE: &[&str] = &[
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gpfs", "kafs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs",
    "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
];

/// File systems that show the files of others.
const STACKED: &[&str] = &["aufs", "ecryptfs", "shiftfs", "unionfs"];

/// Programs that serve an image or counters, never a directory of the host.
const HARMLESS: &[&str] = &["fuse.lxcfs", "fuse.snapfuse", "fuse.squashfuse"];

/// Names of directories in which snapshots are kept.
const SNAPSHOTS: &[&str] = &[".snapshots", "snapshots", "snapshot", "timeshift-btrfs", "_btrbk_snap"];

/// The table as `/proc/self/mountinfo` has it; a line that says something else is left out.
pub fn parse_mounts(table: &[u8]) -> Vec<MountFact> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /point options optional... - type source options`.
fn parse_line(line: &[u8]) -> Option<MountFact> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = |field: Option<&[u8]>| std::str::from_utf8(field?).ok()?.parse::<u32>().ok();
    let (id, parent) = (number(fields.next())?, number(fields.next())?);
    let mut device = fields.next()?.split(|byte| *byte == b':');
    let device = (number(device.next())?, number(device.next())?);
    let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
    fields.find(|field| *field == b"-")?;
    let name = String::from_utf8_lossy(fields.next()?);
    let source = fields.next()?;
    let options = fields.next().unwrap_or_default();
    let unknown = |kind: &str| Shows::Unknown { kind: kind.to_owned() };
    let shows = match &*name {
        "overlay" => Shows::Layers(layers(options)),
        "btrfs" if is_snapshot(&root) => unknown("a snapshot of btrfs"),
        "zfs" if source.contains(&b'@') => unknown("a snapshot of zfs"),
        "btrfs" | "bcachefs" => Shows::Subvolumes,
        name if HARMLESS.contains(&name) => Shows::Tree,
        name if name == "fuse" || name.starts_with("fuse.") => unknown(name),
        name if REMOTE.contains(&name) || STACKED.contains(&name) => unknown(name),
        _ => Shows::Tree,
    };
    let snapshots = match &*name {
        "btrfs" => Some(point.join(".snapshots")),
        "zfs" => Some(point.join(".zfs")),
        _ => None,
    };
    let top = (Kind::Directory, FileId { device: 0, inode: 0 });
    let mounts_on_demand = name == "autofs";
    Some(MountFact { id, parent, device, root, point, top, shows, snapshots, mounts_on_demand })
}

fn is_snapshot(root: &Path) -> bool {
    root.iter().any(|name| SNAPSHOTS.iter().any(|known| name == OsStr::new(known)))
}

/// A blank, a tab, a line break and a backslash are written as three digits.
fn unescaped(field: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| *byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = digits {
            bytes.push(digits.iter().fold(0u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')));
            rest = &after[3..];
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// The directories of an overlay; none where one of them is not absolute, so that it counts from an unknown place.
fn layers(options: &[u8]) -> Option<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStrExt as _;
    let options = unescaped(options);
    let mut found = Vec::new();
    for option in options.as_os_str().as_bytes().split(|byte| *byte == b',') {
        let value = |name: &[u8]| option.strip_prefix(name);
        let lower = value(b"lowerdir=").or_else(|| value(b"lowerdir+=")).or_else(|| value(b"datadir+="));
        if let Some(value) = lower.or_else(|| value(b"upperdir=")) {
            // With a colon or a comma in a name the list is not read but counts as unknown.
            if value.contains(&b'\\') {
                return None;
            }
            let names = value.split(|byte| *byte == b':').filter(|name| !name.is_empty());
            found.extend(names.map(|name| PathBuf::from(OsStr::from_bytes(name))));
        }
    }
    (!found.is_empty() && found.iter().all(|path| path.is_absolute())).then_some(found)
}

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
    Some(Decision { path: path.clone(), reason: same(&decision.path), fact, is_other_name: true, ..decision.clone() })
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
