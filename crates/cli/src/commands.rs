//! What each command of `sandbox` does, one module for each. Owns the order of steps of a command and the words of its
//! answer; arguments are `args`'s, and how failures and outcomes read is `render`'s. Called by `main`.

pub(crate) mod agent;
pub(crate) mod as_branch;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod checkpoints;
pub(crate) mod clean;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod git;
pub(crate) mod inbox;
pub(crate) mod interactive;
pub(crate) mod kept_commits;
pub(crate) mod learn;
pub(crate) mod live;
pub(crate) mod merge;
pub(crate) mod output;
pub(crate) mod policy;
pub(crate) mod prune;
pub(crate) mod quarantine;
pub(crate) mod questions;
pub(crate) mod review;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod selection;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod shell_prefix;
pub(crate) mod supervise;
pub(crate) mod top;
pub(crate) mod trust;
pub(crate) mod verify;
pub(crate) mod why;
