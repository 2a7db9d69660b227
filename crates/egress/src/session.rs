//! What one session has, whatever is carried: its rules with the answers given meanwhile, its limits, and the link to the
//! supervisor. Owns no socket but that link, and knows no protocol. Used by everything above it in this crate.

pub(crate) mod limits;
pub(crate) mod rules;
pub(crate) mod supervisor_link;
