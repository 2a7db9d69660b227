//! What notices a first access: the trait that both triggers share. Owns the words between a trigger and the gate.
//! `fuse` and `notify` implement it, `gate` drives it; the same tests run against both.

pub(crate) mod fuse;
pub(crate) mod notify;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cofferdam_kernel::seccomp::{Listener, Notification};
use cofferdam_wire::Op;
use rustix::io::Errno;

use crate::path_rules::PathRules;
use crate::triggers::fuse::made::MadeFile;

/// A call that waits for an answer, as its trigger numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CallId(pub(crate) u64);

/// An access that its trigger cannot answer by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) call: CallId,
    pub(crate) op: Op,
    /// Real path on the host.
    pub(crate) path: PathBuf,
    /// Mode of the file that is to be made.
    pub(crate) mode: u32,
    pub(crate) flags: u32,
    /// Who waits, as the sandbox numbers it.
    pub(crate) thread: u32,
}

/// Something that was refused at once because it could not be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) thread: u32,
}

/// A change of a name that waits for a verdict. It holds the lock of a directory, so that comes at once: no operator is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) call: CallId,
    /// What is done, as it is told where it is refused.
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) to: Option<NewName>,
    pub(crate) thread: u32,
}

/// What a file or a directory of the session is to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewName {
    pub(crate) path: PathBuf,
    /// The session made what is there, and it is to be replaced.
    pub(crate) replaces: bool,
    /// What gets the name is on the host.
    pub(crate) is_file: bool,
}

#[derive(Debug)]
pub(crate) enum Noticed {
    Access(Access),
    Change(Change),
    /// A thread looks at a directory of the session alone; where it wants to stand in it, that is asked about.
    Entered(Access),
    /// What was written to a file of the session's is to be on the disk.
    Sync(CallId, Rc<MadeFile>),
    Refused(Refused),
    /// A process looked for a name that a rule hides.
    Hidden {
        path: PathBuf,
        thread: u32,
    },
    /// A signal has reached a thread that waits; whether it ends the thread is to be seen.
    Interrupted(CallId),
}

/// What becomes of a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Something new is mounted on the way: the kernel walks the path again.
    Again,
    /// For this call alone, if the file is still the one with this device and inode.
    Serve {
        identity: Option<(u64, u64)>,
    },
    /// Of a directory the names that lead to what rules give, and no others.
    Way,
    /// The change is carried out, or what was looked at is told.
    Go,
    Refuse(Errno),
}

pub(crate) trait Trigger: std::fmt::Debug {
    /// What to poll; a trigger that is told by others has nothing.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Through which reported calls are answered.
    fn listen(&mut self, _listener: Listener) {}

    /// A reported call, for the next turn.
    fn take(&mut self, _notification: Notification) {}

    /// Takes what has come in, but no more requests than `most`, and answers what needs no decision. An error means that no
    /// process can ask any more.
    fn turn(&mut self, rules: &PathRules, most: usize) -> Result<Vec<Noticed>, Errno>;

    /// The thread that waits may be gone by now; that is no error.
    fn answer(&mut self, call: CallId, answer: Answer, rules: &PathRules) -> Result<(), Errno>;

    /// Whether a call still waits, where the trigger is not told of the end of one.
    fn is_waiting(&self, _call: CallId) -> bool {
        true
    }

    /// The outermost directory of the session alone at or above a path.
    fn made_directory(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    /// The directories of the session alone at and below a path, outer ones first, with their modes.
    fn made_in(&self, _tree: &Path) -> Vec<(PathBuf, u32)> {
        Vec::new()
    }

    /// What a waiting open of a file is about by now.
    fn opened(&self, _call: CallId) -> Option<PathBuf> {
        None
    }

    /// Whether a path is a file that the session made and may open again.
    fn is_made(&self, _path: &Path) -> bool {
        false
    }

    /// Makes the file that a call wants, in the directory with this device and inode. It is served from then on; false where
    /// it has to be mounted.
    fn make(&mut self, _access: &Access, _directory: (u64, u64), _is_for_once: bool) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Whether content can go through the trigger itself, for one call and without a mount.
    fn can_serve(&self) -> bool;
}
