//! Why a launch failed, with the object that it failed on. Returned by `launch`, rendered by `cli`.

use std::path::PathBuf;

use cofferdam_plan::Step;
use cofferdam_wire::Denied;
use rustix::io::Errno;
use thiserror::Error;

use crate::network::credentials::{GatherError, SecretError};

#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("cannot publish on port {port} of this host")]
    Publish {
        port: u16,
        origin: Box<cofferdam_policy::Origin>,
        #[source]
        errno: Errno,
    },
    #[error("{stream} is {is}, which would lead out of the sandbox")]
    Stream { stream: &'static str, is: &'static str },
    #[error("cannot hold the name `{path}`")]
    Hold {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("cannot watch for changes that take covers off")]
    Keeper {
        /// The directory; none where there is no instance to be had.
        path: Option<PathBuf>,
        #[source]
        errno: Errno,
    },
    #[error("cannot read the secret for `{variable}`")]
    Secret {
        variable: String,
        #[source]
        cause: SecretError,
    },
    #[error("cannot read whom this host believes in TLS from `{path}`")]
    Trusted {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("cannot execute `{path}`, which carries connections")]
    EgressProgram {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("`{path}` is of another version: it says {said}, this command is {expected}")]
    EgressVersion { path: PathBuf, said: String, expected: &'static str },
    #[error("`{path}`, which would be executed, belongs to another user, or other users can write to it")]
    EgressOwner { path: PathBuf },
    #[error("cannot start `{path}`, which carries connections: {why}")]
    Egress { path: PathBuf, why: String },
    #[error("cannot make the session's directory in `{path}`")]
    SessionDirectory {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("cannot copy `{path}` for the transaction")]
    Copy {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("cannot limit the session: {what}")]
    Cgroup {
        what: String,
        #[source]
        errno: Errno,
    },
    #[error("cannot create the namespaces")]
    Namespaces {
        #[source]
        errno: Errno,
    },
    #[error("cannot set up {what}")]
    Step {
        step: Option<Box<Step>>,
        what: String,
        #[source]
        errno: Errno,
    },
    #[error("cannot enter the working directory `{path}` inside")]
    Directory {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("cannot execute `{program}`")]
    Execute {
        program: String,
        /// What was refused last before that.
        denied: Option<Denied>,
        #[source]
        errno: Errno,
    },
    #[error("{why}")]
    Exec { why: String, code: u8 },
    #[error("commands of a session that is ordered join it, and {why}")]
    NothingToJoin { why: String },
    #[error("the sandbox ended before the command started")]
    Vanished,
    #[error("cannot supervise the session")]
    Supervise(#[source] Errno),
}

impl LaunchError {
    /// What a caller sees of it.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Execute { errno: Errno::NOENT, .. } => 127,
            LaunchError::Execute { .. } => 126,
            LaunchError::Exec { code, .. } => *code,
            _ => 125,
        }
    }
}

impl From<GatherError> for LaunchError {
    fn from(error: GatherError) -> Self {
        match error {
            GatherError::Trusted { path, cause } => LaunchError::Trusted { path, cause },
            GatherError::Secret { variable, cause } => LaunchError::Secret { variable, cause },
            GatherError::Kernel(errno) => LaunchError::Supervise(errno),
        }
    }
}
