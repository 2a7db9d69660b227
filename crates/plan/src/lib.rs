//! (Policy, HostFacts) -> LaunchPlan: a pure function that yields an ordered, printable list of kernel steps and the posture they reach.
//! Owns every choice that depends on the host; refuses with a typed error what this host cannot enforce. Makes no system call:
//! `launcher::survey` gathers the facts, `launcher` executes the steps. Called by `cli`.
#![forbid(unsafe_code)]

mod absent;
mod alias;
pub mod control;
mod cover;
mod egress;
mod environment;
mod error;
mod facts;
mod gate;
mod launch;
mod limits;
mod mounts;
mod posture;
mod rules;
pub mod seccomp;
mod step;
mod terminates;
#[cfg(test)]
mod tests;

pub use alias::{MountFact, Shows, may_matter, parse_mounts};
pub use cover::{Cover, Covered, KeptBy, StandsOn};
pub use egress::{AgentPlan, EgressPlan};
pub use error::PlanError;
pub use facts::{
    CgroupHome, FileId, GitDir, GitRole, HostFacts, Kind, MaskFact, PathFact, Searched, Terminal, TrackedFile, Unseen,
    is_of_the_system,
};
pub use gate::{GatePlan, GateRule, all_gate_rules, gate_rules, gate_rules_in_home};
pub use launch::{CommandSpec, LaunchPlan, Request, plan};
pub use limits::{Bound, Bytes, CgroupPlan, CgroupSetting, Keeper, Limited, LimitsPlan, QuotaPlan};
pub use mounts::{is_in_own_area, own_areas, system_candidates};
pub use posture::{LayerState, Posture, PostureLine};
pub use rules::{Decision, decide};
pub use step::{
    HiddenName, Hold, HoldKind, LandlockStep, Mount, MountKind, Namespaces, Resource, Step, Trigger, TrustFormat,
};
pub use terminates::{CredentialPlan, SecretPlace, TerminatesPlan};
