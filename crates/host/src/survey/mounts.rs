//! The host's table of mounts, with a look at those that may show a file under another name. Owns reading it, with a bound;
//! what follows from it is `plan`'s. Called by `survey`.

use std::path::PathBuf;

use cofferdam_kernel::proc::Proc;
use cofferdam_plan::{FileId, Kind, MountFact, Shows, may_matter, parse_mounts};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

/// Some 100 000 mounts.
const MOST_BYTES: usize = 16 << 20;

/// Every mount that this process could see, or why they are not known.
pub(crate) fn table() -> Result<Vec<MountFact>, String> {
    let read = Proc::open().and_then(|proc| proc.read_whole("self/mountinfo", MOST_BYTES));
    let text = read.map_err(|error| error.to_string())?.ok_or("there are too many")?;
    let mut mounts = parse_mounts(&text);
    let looks = may_matter(&mounts);
    for (mount, _) in mounts.iter_mut().zip(looks).filter(|(_, matters)| *matters) {
        mount.top = top(&mount.point).unwrap_or(mount.top);
        mount.snapshots = mount.snapshots.take().filter(|place| top(place).is_some());
        if let Shows::Layers(Some(layers)) = &mut mount.shows {
            let real: Option<Vec<PathBuf>> = layers.iter().map(|layer| layer.canonicalize().ok()).collect();
            mount.shows = Shows::Layers(real);
        }
    }
    Ok(mounts)
}

/// What stands at a mount point. A server that does not answer is not waited for.
fn top(path: &std::path::Path) -> Option<(Kind, FileId)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::INO).ok()?;
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Socket => Kind::Socket,
        _ => Kind::Other,
    };
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Some((kind, FileId { device, inode: stat.stx_ino }))
}
