//! The limits of a session: which mechanism enforces each on this host, and what the supervisor gets for it. Owns that choice;
//! amounts that may be asked for are policy's. Called by `plan()`.

pub(crate) mod amounts;
pub(crate) mod choice;
pub(crate) mod plan;
