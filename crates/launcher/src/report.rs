//! What the set-up child tells its parent over their socket: one message, at most one descriptor.
//! Owns the encoding; both ends are this program, so a malformed message is a failed launch. Used by `init`, `join` and `supervisor`.

use cofferdam_kernel::namespace::Joined;
use rustix::io::Errno;

/// What the parent tells the child: the stand-ins are there.
pub const HOLDS_READY: &[u8] = b"held";
/// And the egress process has its rules.
pub const EGRESS_READY: &[u8] = b"egress";

/// The order in which the set-up child sends its namespaces.
pub const JOINED: [Joined; 7] =
    [Joined::User, Joined::Pid, Joined::Mount, Joined::Ipc, Joined::Uts, Joined::Net, Joined::Cgroup];

/// Which of them is the mount namespace.
pub const MOUNTS: usize = 2;

/// A report of the child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Step number `step` failed; `text` says on what.
    Failed { step: u16, errno: i32, text: String },
    /// Carries the seccomp listener.
    Listener,
    /// Carries the master side of the sandbox's terminal.
    Terminal,
    /// Carries what stands for a stdin that did not go in itself.
    Input,
    /// Carries the sandbox's /proc, for a session whose processes the supervisor counts.
    Processes,
    /// Carries the list of the sandbox's shared memory segments, which belong to no process.
    Segments,
    /// Carries the FUSE device of a root that asks.
    Gate,
    /// Carries the sandbox's mount namespace, where grants are mounted.
    Mounts,
    /// Carries the sandbox's view of a tree whose covers are watched, in the order of `LaunchPlan::watched_trees`.
    Tree,
    /// Carries the sandbox's view of a tree under an overlay, in the order of `LaunchPlan::kept_overlays`.
    View,
    /// Carries the pipe in which the workload says that a step of its work is done.
    Checkpoints,
    /// Carries the namespaces, in the order of `JOINED`, and then what an own network counts.
    Namespaces,
    /// The program could not be executed.
    NotExecuted { errno: i32 },
    /// The working directory is not there inside.
    NoDirectory { errno: i32 },
}

impl Message {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Message::Failed { step, errno, text } => {
                let mut bytes = vec![b'F'];
                bytes.extend(step.to_le_bytes());
                bytes.extend(errno.to_le_bytes());
                bytes.extend(text.as_bytes().iter().take(3000));
                bytes
            }
            Message::Listener => vec![b'L'],
            Message::Terminal => vec![b'T'],
            Message::Input => vec![b'I'],
            Message::Processes => vec![b'P'],
            Message::Segments => vec![b'S'],
            Message::Gate => vec![b'G'],
            Message::Mounts => vec![b'M'],
            Message::Tree => vec![b'W'],
            Message::View => vec![b'V'],
            Message::Checkpoints => vec![b'C'],
            Message::Namespaces => vec![b'N'],
            Message::NotExecuted { errno } => [&b"X"[..], &errno.to_le_bytes()].concat(),
            Message::NoDirectory { errno } => [&b"D"[..], &errno.to_le_bytes()].concat(),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let errno = |bytes: &[u8]| bytes.try_into().ok().map(i32::from_le_bytes);
        match bytes.split_first()? {
            (b'F', rest) if rest.len() >= 6 => Some(Message::Failed {
                step: u16::from_le_bytes(rest[..2].try_into().ok()?),
                errno: errno(&rest[2..6])?,
                text: String::from_utf8_lossy(&rest[6..]).into_owned(),
            }),
            (b'L', []) => Some(Message::Listener),
            (b'T', []) => Some(Message::Terminal),
            (b'I', []) => Some(Message::Input),
            (b'P', []) => Some(Message::Processes),
            (b'S', []) => Some(Message::Segments),
            (b'G', []) => Some(Message::Gate),
            (b'M', []) => Some(Message::Mounts),
            (b'W', []) => Some(Message::Tree),
            (b'V', []) => Some(Message::View),
            (b'C', []) => Some(Message::Checkpoints),
            (b'N', []) => Some(Message::Namespaces),
            (b'X', rest) => Some(Message::NotExecuted { errno: errno(rest)? }),
            (b'D', rest) => Some(Message::NoDirectory { errno: errno(rest)? }),
            _ => None,
        }
    }
}

/// What a failed step left behind: the kernel's answer and the object it was about.
#[derive(Debug)]
pub struct StepError {
    pub errno: Errno,
    pub text: String,
}

impl StepError {
    pub fn new(text: impl Into<String>, errno: Errno) -> Self {
        StepError { errno, text: text.into() }
    }
}

/// Attaches an object to a kernel error.
pub trait About<T> {
    fn about(self, text: impl FnOnce() -> String) -> Result<T, StepError>;
}

impl<T> About<T> for Result<T, Errno> {
    fn about(self, text: impl FnOnce() -> String) -> Result<T, StepError> {
        self.map_err(|errno| StepError::new(text(), errno))
    }
}
