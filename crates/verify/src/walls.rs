//! Walls that a run can leave out of every session, to show that it notices. Owns what each means for a plan; only this program has
//! such a switch, and only on scratch roots. Asked by `launching`.

use clap::ValueEnum;
use cofferdam_plan::LaunchPlan;
use serde::{Deserialize, Serialize};

use crate::edit;
use crate::errand::Errand;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wall {
    /// The system call filter lets everything through
    Filter,
    /// Capabilities are kept
    Capabilities,
    /// The host's network
    Network,
    /// The host's processes
    Processes,
    /// The host's view of files, all of it
    Files,
    /// Hidden and protected names below the project are not covered
    Covers,
    /// The caller's variables, all of them
    Environment,
    /// No limit is kept
    Limits,
    /// /proc and /sys as the kernel makes them
    KernelFiles,
}

impl Wall {
    pub(crate) fn switch_off(self, plan: &mut LaunchPlan, errand: &Errand) {
        match self {
            Wall::Filter => edit::open_filter(plan),
            Wall::Capabilities => edit::keep_capabilities(plan),
            Wall::Network => edit::share_network(plan),
            Wall::Processes => edit::share_processes(plan),
            Wall::Files => edit::share_files(plan),
            Wall::Covers => {
                edit::drop_holds(plan);
                edit::drop_mounts_below(plan, &errand.scratch().project());
            }
            Wall::Environment => plan.command.environment = std::env::vars().collect(),
            Wall::Limits => edit::drop_limits(plan),
            Wall::KernelFiles => edit::drop_mounts(plan, edit::covers_the_kernel),
        }
    }
}
