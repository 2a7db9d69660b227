//! Why a plan was refused. One variant per cause, each with the object and, where a rule is at fault, its origin.
//! Rendering with hints is the edge's work.

use std::path::PathBuf;

use cofferdam_policy::{NetworkMode, Origin};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("isolation `none` is not approved by the organisation's policy")]
    NoneNotApproved { origin: Origin },
    #[error("isolation `none` has no walls: what `{}` asks for cannot be kept", origin.source)]
    NoWalls { origin: Origin },
    #[error("nothing can be given at `{path}`")]
    MissingPath { path: PathBuf, origin: Origin },
    #[error("`{path}` cannot be made writable: it is too wide")]
    TooWide { path: PathBuf, origin: Origin },
    #[error("`{path}` cannot be made writable: the organisation's ceiling does not reach it ({ceiling})")]
    OutsideCeiling { path: PathBuf, origin: Origin, ceiling: Box<Origin> },
    #[error("`{path}` is neither a file nor a directory")]
    SpecialFile { path: PathBuf, origin: Origin },
    #[error("`{path}` is not a socket")]
    NotASocket { path: PathBuf, origin: Origin },
    #[error("`{path}` controls this host: {what} listens there, and who speaks to it runs code outside")]
    ControlSocket { path: PathBuf, what: &'static str, origin: Origin },
    #[error("the sockets of this host cannot be kept from the sandbox: {why}")]
    SocketsUnknown { why: String },
    #[error("the mounts of the host are not known, so other names of hidden files are not either: {why}")]
    MountsUnknown { why: String },
    #[error("not everything that has to be hidden could be looked at: {why}")]
    PathsUnknown { why: String },
    #[error("`{path}` cannot be an overlay: it is not a directory")]
    OverlayNeedsDirectory { path: PathBuf, origin: Origin },
    #[error("`{path}` is part of the sandbox's own `/{area}` and cannot be given")]
    OwnArea { path: PathBuf, area: &'static str, origin: Origin },
    #[error("`{directory}` has more names to hide than can be covered one by one")]
    TooManyHidden { directory: PathBuf },
    #[error(
        "`{path}` cannot be written to: its file system finds a name in other spellings too, and covers count for one"
    )]
    FoldsCase { path: PathBuf },
    #[error("overlays need a place for the session's files, and there is no home directory")]
    NoSessionDirectory,
    #[error("questions at first access cannot be asked here: {why}")]
    NoGate { why: String, origin: Origin },
    #[error("network `{mode}` needs `isolation = \"full\"`")]
    NetworkNeedsFull { mode: NetworkMode, origin: Origin },
    #[error("`{path}` cannot hold a credential: sessions can write below `{writable}`")]
    SecretIsWritable { path: PathBuf, writable: PathBuf, origin: Origin },
    #[error("`{name}` is not a system call of Linux")]
    UnknownSyscall { name: String },
    #[error("system call `{name}` is always denied")]
    SyscallAlwaysDenied { name: String, origin: Origin },
    #[error("program `{name}` was not found in PATH")]
    ExecutableNotFound { name: String, origin: Origin },
    #[error("limiting programs needs Landlock, which this kernel does not offer")]
    ExecNeedsLandlock { origin: Origin },
    #[error("`{setting}` cannot be enforced here: it needs {needs}, and {why}")]
    CannotLimit { setting: &'static str, needs: &'static str, why: String, origin: Origin },
    #[error("none of the CPUs `{set}` can be used: there are {have}")]
    NoSuchCpus { set: String, have: usize, origin: Origin },
}

impl PlanError {
    /// The rule at fault, where one is.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            PlanError::NoneNotApproved { origin }
            | PlanError::NoWalls { origin }
            | PlanError::MissingPath { origin, .. }
            | PlanError::TooWide { origin, .. }
            | PlanError::OutsideCeiling { origin, .. }
            | PlanError::SpecialFile { origin, .. }
            | PlanError::NotASocket { origin, .. }
            | PlanError::ControlSocket { origin, .. }
            | PlanError::OverlayNeedsDirectory { origin, .. }
            | PlanError::OwnArea { origin, .. }
            | PlanError::NoGate { origin, .. }
            | PlanError::NetworkNeedsFull { origin, .. }
            | PlanError::SecretIsWritable { origin, .. }
            | PlanError::SyscallAlwaysDenied { origin, .. }
            | PlanError::ExecutableNotFound { origin, .. }
            | PlanError::ExecNeedsLandlock { origin }
            | PlanError::CannotLimit { origin, .. }
            | PlanError::NoSuchCpus { origin, .. } => Some(origin),
            PlanError::SocketsUnknown { .. }
            | PlanError::MountsUnknown { .. }
            | PlanError::PathsUnknown { .. }
            | PlanError::TooManyHidden { .. }
            | PlanError::FoldsCase { .. }
            | PlanError::NoSessionDirectory
            | PlanError::UnknownSyscall { .. } => None,
        }
    }
}
