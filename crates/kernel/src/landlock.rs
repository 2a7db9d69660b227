//! Landlock for what mounts cannot say: signals and abstract sockets stay inside, only named files execute.
//! Owns the translation to the landlock crate; whether it is required is `plan`'s decision. Called by `launcher::apply`.

use std::path::PathBuf;

use ::landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
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
