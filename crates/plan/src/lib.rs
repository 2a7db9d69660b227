//! (Policy, HostFacts) -> LaunchPlan: a pure function that yields an ordered, printable list of kernel steps and the posture they reach.
//! Owns every choice that depends on the host; refuses with a typed error what this host cannot enforce. Makes no system call:
//! `host::survey` gathers the facts, `launcher` executes the steps. Called by `cli`.
#![forbid(unsafe_code)]

mod environment;
mod error;
mod facts;
mod files;
mod gate;
mod launch;
mod limits;
mod network;
mod posture;
mod response;
pub mod seccomp;
mod step;
#[cfg(test)]
mod tests;

pub use error::PlanError;
pub use facts::cgroup::CgroupHome;
pub use facts::git::{GitDir, GitRole, TrackedFile};
pub use facts::host::{HostFacts, MaskFact, Terminal, is_of_the_system};
pub use facts::mount_table::{MountFact, Shows, parse_mounts};
pub use facts::path::{FileId, Kind, PathFact};
pub use facts::search::{Searched, Unseen};
pub use files::alias::may_matter;
pub use files::control;
pub use files::cover::{Cover, Covered, KeptBy, StandsOn};
pub use files::decision::{Decision, TransactionRole, decide};
pub use files::own_areas::{is_in_own_area, own_areas, system_candidates};
pub use gate::{GatePlan, GateRule, Notices, all_gate_rules, gate_rules, gate_rules_in_home};
pub use launch::{CommandSpec, LaunchPlan, Request, SlotOverlay, plan};
pub use limits::amounts::Bytes;
pub use limits::plan::{Bound, CgroupPlan, CgroupSetting, Keeper, Limited, LimitsPlan, QuotaPlan};
pub use network::egress::{AgentPlan, EgressPlan};
pub use network::terminates::{CredentialPlan, SecretPlace, TerminatesPlan};
pub use posture::{LayerState, Posture, PostureLine};
pub use response::ResponsePlan;
pub use step::{
    HiddenName, Hold, HoldKind, LandlockStep, Mount, MountKind, Namespaces, OVERLAY_OPTIONS, Resource, Step, Trigger,
    TrustFormat,
};
