//! What is told of a session: records in the audit log, the first of them while the child sets itself up, and the summary at
//! the end. The chain that records go into is `audit`'s, their words for a person are `cli`'s.

pub(crate) mod indicator;
pub(crate) mod log;
pub(crate) mod redact;
pub(crate) mod retention;
pub(crate) mod startup;
pub(crate) mod summary;
