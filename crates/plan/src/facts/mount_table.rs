//! The kernel's table of mounts. Owns reading it and what each kind of file system says about where its files come from; what
//! follows for paths is `files::alias`'s. Called by `host::survey`; part of `HostFacts` (decision 0030).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::facts::path::{FileId, Kind};

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
