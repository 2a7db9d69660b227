//! What no layer may ask for more than: the org's requirements, and the maxima of chosen presets. Owns the type; its file is
//! `format::requirements`', and holding a policy to it is `resolve::ceilings`'. Part of what a policy is resolved from.

use crate::language::endpoint::Endpoint;
use crate::language::path::PathExpr;
use crate::types::network_part::HostRule;
use crate::types::origin::Ruled;
use crate::types::scalar::Scalar;

/// Ceilings, each with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ceilings {
    /// The least strict value of settings that have one; isolation is at least this, and the mode is this one.
    pub most: Vec<Ruled<Scalar>>,
    /// Hosts that are denied for good.
    pub deny_hosts: Vec<Ruled<HostRule>>,
    /// Where not empty: what is allowed of the network lies within these.
    pub hosts_within: Vec<Ruled<Endpoint>>,
    /// The presets that may be named; `default` always may.
    pub presets: Option<Ruled<Vec<String>>>,
    /// Denied for good.
    pub deny: Vec<Ruled<(PathExpr, String)>>,
    /// Write and overlay grants lie at or below these.
    pub write_within: Vec<Ruled<PathExpr>>,
    /// Globs of variables that no `pass` may name.
    pub never_pass: Vec<Ruled<String>>,
}
