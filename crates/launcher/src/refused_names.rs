//! Hidden names in the top directory of an overlay that do not exist and must not be made inside (decision 0050). Owns the mark
//! for each in the upper layer and the mount on that mark; which names is the plan's. Called by `apply`, before the
//! overlay is mounted over both.
//!
//! A whiteout of the upper layer is no name inside. Whatever makes one under it (open, mkdir, link, rename and the rest) has overlayfs
//! rename over the whiteout, and the kernel refuses to rename over a mount point of the caller's own mount namespace: `EBUSY`.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use cofferdam_kernel::mount::{self, Attributes};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

/// `target` is where the overlay will be mounted, below `root`: what is mounted there before lies under it, out of every reach.
pub(crate) fn refuse(
    upper: BorrowedFd<'_>,
    names: &[&OsStr],
    root: BorrowedFd<'_>,
    target: &Path,
    mut stand_in: impl FnMut() -> Result<OwnedFd, Errno>,
) -> Result<(), Errno> {
    let mut marked = Vec::with_capacity(names.len());
    for name in names {
        match rustix::fs::mknodat(upper, *name, FileType::CharacterDevice, Mode::empty(), 0) {
            // Two rules are about it.
            Err(Errno::EXIST) if marked.contains(name) => {}
            made => made.map(|()| marked.push(*name))?,
        }
    }
    let tree = mount::clone_tree(upper)?;
    mount::restrict_tree(tree.as_fd(), Attributes::READ_ONLY)?;
    mount::attach(tree.as_fd(), mount::open_in_root(root, target)?.as_fd())?;
    for name in marked {
        let mark = mount::open_in_root(root, &target.join(name))?;
        mount::attach(stand_in()?.as_fd(), mark.as_fd())?;
    }
    Ok(())
}
