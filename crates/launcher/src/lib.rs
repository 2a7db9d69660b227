//! Launcher: what runs between clone and exec, inside. Executes a `LaunchPlan` step by step, becomes pid 1, starts the command;
//! and the same for a command that joins later. Makes no choices (those are in `plan`), allocates no policy, outlives nothing:
//! what stays outside is `supervisor`'s, which calls this in the child.
#![forbid(unsafe_code)]

mod apply;
pub mod inheritance;
pub mod init;
pub mod join;
pub mod marks;
mod measure;
mod overlay_options;
mod refused_names;
pub mod report;
pub mod streams;
pub mod terminal;
mod workload;
