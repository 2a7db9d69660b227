//! `sandbox verify`: tries the walls of this host, kernel and policy, each with its negative control, and reports what held.
//! Owns the checks, the trials and the report; enforces nothing itself: sessions are launched by the code that `sandbox run` uses.
//! Its program, `sandbox-verify`, lies beside `sandbox`, which executes it.
#![forbid(unsafe_code)]

pub mod report;
