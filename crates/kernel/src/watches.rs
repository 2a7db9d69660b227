//! An inotify instance that is quick to let go of. The last close of one with watches waits until the kernel has freed the
//! marks, 5 to 15 ms, which would be half of a short session. Owns the way around that wait.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags};
use rustix::io::Errno;

use crate::{best_effort, raw};

#[derive(Debug)]
pub struct Watches(OwnedFd);

impl Watches {
    pub fn new() -> Result<Watches, Errno> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map(Watches)
    }
}

impl AsFd for Watches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Watches {
    /// A process that has nothing else closes it last, and waits for that. Where there can be no such process, this close is the
    /// last.
    fn drop(&mut self) {
        best_effort(raw::process::hold_in_a_child(self.0.as_fd()), "then the close takes longer");
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::inotify::{WatchFlags, add_watch};
    use rustix::process::{WaitOptions, wait};

    use super::*;

    fn instances() -> usize {
        let fds = std::fs::read_dir("/proc/self/fd").expect("procfs is there").flatten();
        let names = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        names.filter(|name| name.as_os_str() == "anon_inode:inotify").count()
    }

    #[test]
    fn another_process_closes_what_is_dropped_and_ends() {
        let before = instances();
        let watches = Watches::new().expect("there is an instance left");
        add_watch(&watches, std::env::temp_dir(), WatchFlags::CREATE).expect("it can be watched");
        assert_eq!(instances(), before + 1);
        drop(watches);
        assert_eq!(instances(), before);
        let (_, status) = wait(WaitOptions::empty()).expect("there is a child").expect("it ends");
        assert_eq!(status.exit_status(), Some(0));
    }
}
