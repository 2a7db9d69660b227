//! The real `sandbox` command with the programs that people run in it, as whoever runs the tests: root and an ordinary
//! user. One module per subject; each test is named after what it promises. A program that is not installed makes its
//! tests print `skipped: reason`.

mod answers;
mod approvals;
mod attach;
mod audit;
mod command_line;
mod debugging;
mod denials;
mod egress;
mod egress_agent;
mod egress_clients;
mod egress_credentials;
mod egress_names;
mod egress_questions;
mod environment;
mod files;
mod git;
mod guest;
mod internet;
mod invariants;
mod isolation;
mod job_control;
mod learn;
mod leftovers;
mod limits;
mod limits_policy;
mod output;
mod policy;
mod policy_commands;
mod programs;
mod registries;
mod scope;
mod screen;
mod sessions;
mod sharing;
mod sockets;
mod support;
mod terminal;
mod toolchains;
