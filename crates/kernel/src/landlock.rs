//! Landlock for what mounts cannot say: signals and abstract sockets stay inside, only named files execute.
//! Owns the translation to the landlock crate; whether it is required is `plan`'s decision. Called by `launcher::apply`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ::landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

use crate::raw;

#[derive(Debug, Error)]
pub enum LandlockError {
    #[error("Landlock refused the rules")]
    Ruleset(#[from] ::landlock::RulesetError),
    #[error("cannot open `{path}` for a Landlock rule")]
    Path {
        path: PathBuf,
        #[source]
        source: ::landlock::PathFdError,
    },
    #[error("the kernel enforced only part of the Landlock rules")]
    Partial,
}

/// Landlock ABI of this kernel, 0 where there is none.
pub fn abi() -> u32 {
    raw::privilege::landlock_abi()
}

/// Takes every file away from this thread: only what is open can be used. Says whether the kernel can do that.
pub fn forbid_files() -> Result<bool, LandlockError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let status = ruleset.handle_access(AccessFs::from_all(ABI::V5))?.create()?.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// A socket from before the rules, by which it shows whether the scopes stand: a process under them reaches none from outside. The
/// kernel has no question for it.
#[derive(Debug)]
pub struct ScopeProbe {
    /// Kept, so that its name is.
    _outside: OwnedFd,
    name: SocketAddrAny,
}

impl ScopeProbe {
    /// To be made before [`restrict`].
    pub fn new() -> Result<Self, Errno> {
        let outside = datagram()?;
        // The kernel gives it an abstract name.
        rustix::net::bind(&outside, &SocketAddrUnix::new_unnamed())?;
        let name = rustix::net::getsockname(&outside)?;
        Ok(ScopeProbe { _outside: outside, name })
    }

    /// Whether this thread cannot reach it any more.
    pub fn is_out_of_reach(&self) -> Result<bool, Errno> {
        match rustix::net::connect(datagram()?, &self.name) {
            Ok(()) => Ok(false),
            Err(Errno::PERM) => Ok(true),
            Err(errno) => Err(errno),
        }
    }
}

fn datagram() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// Restricts this thread and everything it starts.
pub fn restrict(scopes: bool, executables: &[PathBuf]) -> Result<(), LandlockError> {
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if scopes {
        ruleset = ruleset.scope(Scope::from_all(ABI::V6))?;
    }
    if !executables.is_empty() {
        ruleset = ruleset.handle_access(AccessFs::Execute)?;
    }
    let mut created = ruleset.create()?;
    for path in executables {
        let fd = PathFd::new(path).map_err(|source| LandlockError::Path { path: path.clone(), source })?;
        created = created.add_rule(PathBeneath::new(fd, AccessFs::Execute))?;
    }
    match created.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Err(LandlockError::Partial),
    }
}
