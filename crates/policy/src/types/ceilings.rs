//! What no layer may ask for more than: the org's requirements, and the maxima of chosen presets. Owns the type; its file is
//! `format::requirements`', and holding a policy to it is `resolve::ceilings`'. Part of what a policy is resolved from.

use crate::language::endpoint::Endpoint;
use crate::language::path::PathExpr;
use crate::types::limit::Limits;
use crate::types::network::NetworkMode;
use crate::types::network_part::HostRule;
use crate::types::origin::Ruled;
use crate::types::policy::{Isolation, Mode, OnUnknown, SyscallMode};

/// Ceilings, each with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ceilings {
    /// At least this.
    pub isolation: Option<Ruled<Isolation>>,
    /// The mode that every run has.
    pub mode: Option<Ruled<Mode>>,
    /// At most this at a path that no rule is about.
    pub unknown: Option<Ruled<OnUnknown>>,
    /// At most this.
    pub network: Option<Ruled<NetworkMode>>,
    /// Hosts that are denied for good.
    pub deny_hosts: Vec<Ruled<HostRule>>,
    /// Where not empty: what is allowed of the network lies within these.
    pub hosts_within: Vec<Ruled<Endpoint>>,
    /// Whether debugging inside may be on.
    pub debug: Option<Ruled<bool>>,
    /// The presets that may be named; `default` always may.
    pub presets: Option<Ruled<Vec<String>>>,
    /// Denied for good.
    pub deny: Vec<Ruled<(PathExpr, String)>>,
    /// Write and overlay grants lie at or below these.
    pub write_within: Vec<Ruled<PathExpr>>,
    pub max_processes: Option<Ruled<u32>>,
    pub limits: Limits,
    pub syscalls: Option<Ruled<SyscallMode>>,
    /// Globs of variables that no `pass` may name.
    pub never_pass: Vec<Ruled<String>>,
}
