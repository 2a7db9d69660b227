//! Exit codes of `sandbox` itself; a command that ran has its own. Called by everything that ends this process.

/// What was looked at is not there, or not whole.
pub(crate) const NOT_SO: u8 = 1;
/// Nothing of that name, or nothing was changed.
pub(crate) const NOTHING: u8 = 1;
pub(crate) const OUR_FAILURE: u8 = 125;
pub(crate) const REFUSED: u8 = 126;
/// As a shell says it of a program.
pub(crate) const NOT_FOUND: u8 = 127;
