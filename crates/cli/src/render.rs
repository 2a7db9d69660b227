//! What was done or failed, as an operator or a program reads it. Owns wording, hints, escaping and exit codes; takes no
//! decision and starts nothing. Called by `commands`, and by `failure`, which stands above both.

pub(crate) mod changes;
pub(crate) mod checkpoints;
pub(crate) mod denials;
pub(crate) mod end;
pub(crate) mod exit;
pub(crate) mod fallen_covers;
pub(crate) mod hints;
pub(crate) mod host_port;
pub(crate) mod not_passed;
pub(crate) mod obeyed;
pub(crate) mod ocsf;
pub(crate) mod output;
pub(crate) mod patch;
pub(crate) mod question;
pub(crate) mod report;
pub(crate) mod saved;
pub(crate) mod session_end;
pub(crate) mod session_log;
pub(crate) mod show_hidden;
