//! `sandbox verify`: tries the walls of this host, kernel and policy, each with its negative control, and reports what held.
//! Owns the checks, the trials and the report; enforces nothing itself: sessions are launched by the code that `sandbox run` uses.
//! Its program, `sandbox-verify`, lies beside `sandbox`, which executes it.
#![forbid(unsafe_code)]

mod answer;
mod canaries;
mod checklists;
mod checks;
pub mod edit;
mod errand;
pub mod html;
mod judge;
mod launching;
mod markdown;
mod options;
mod probe;
mod progress;
pub mod report;
mod run_directory;
mod scratch;
mod signing;
mod spec;
mod text;
mod trial;
mod verification;
mod walls;

pub use options::run;
