//! From the policy's rules about paths to mounts: decisions about real paths, their other names, and what covers or gives each.
//! Owns the order of these mounts; knows nothing of how a mount is made, and asks the file system nothing. Called by `plan()`,
//! by the gate's rules and by commands that explain a decision.

pub(crate) mod absent;
pub(crate) mod alias;
pub mod control;
pub(crate) mod cover;
pub(crate) mod decision;
pub(crate) mod mounts;
pub(crate) mod own_areas;
pub(crate) mod rules;
pub(crate) mod system;
