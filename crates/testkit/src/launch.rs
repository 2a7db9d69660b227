//! A launch as the command makes it (look, survey, plan, run), with places to reach in between. Runs in a process of its
//! own, because a launch blocks signals, forbids tracing and must be the only thread. Called by helper programs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use cofferdam_host::Surroundings;
use cofferdam_host::preparation::Known;
use cofferdam_plan::{CgroupHome, Keeper, LaunchPlan, Limited, Request};
use cofferdam_policy::layers::{Inputs, resolve};
use cofferdam_policy::{BY_HAND, Policy};
use cofferdam_supervisor::{Decider, Options, Outcome};
use cofferdam_wire::End;
use serde::Serialize;
use serde_json::{Value, json};

use crate::programs::program;

/// What a helper wrote about a launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Why it was refused, with causes; none if the command ran.
    pub error: Option<String>,
    pub code: i32,
    /// Names of the calls that the supervisor was told about.
    pub blocked: Vec<String>,
    /// How the session ended, if there was one.
    pub end: Option<End>,
    pub usage: Used,
    /// Who kept which limit of the session.
    pub keepers: Vec<(Limited, Keeper)>,
    /// Covers that fell: how often, and the median and the longest of their windows in microseconds.
    pub fallen: Vec<(PathBuf, u32, u64, u64)>,
    /// What programs of the host obey and was changed or made.
    pub obeyed: Vec<PathBuf>,
    /// Where the session's cgroup was.
    pub cgroup: Option<PathBuf>,
}

/// Those figures of a session that tests compare; absent is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub cpu_micros: u64,
    pub memory_peak: u64,
    pub processes_peak: u64,
}

impl Report {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let names = value["blocked"].as_array()?.iter().filter_map(Value::as_str);
        Some(Report {
            error: value["error"].as_str().map(str::to_owned),
            code: i32::try_from(value["code"].as_i64()?).ok()?,
            blocked: names.map(str::to_owned).collect(),
            end: serde_json::from_value(value["end"].clone()).ok(),
            usage: Used::parse(&value["usage"]),
            keepers: value["keepers"].as_array().into_iter().flatten().filter_map(keeper_of).collect(),
            fallen: value["fallen"].as_array().into_iter().flatten().filter_map(fallen_of).collect(),
            obeyed: value["obeyed"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(PathBuf::from)
                .collect(),
            cgroup: value["cgroup"].as_str().map(PathBuf::from),
        })
    }

    pub fn to_json(&self) -> String {
        let usage = [self.usage.cpu_micros, self.usage.memory_peak, self.usage.processes_peak];
        let report = json!({
            "error": self.error, "code": self.code, "blocked": self.blocked, "end": self.end, "usage": usage,
            "keepers": self.keepers, "fallen": self.fallen, "obeyed": self.obeyed, "cgroup": self.cgroup,
        });
        report.to_string()
    }

    pub fn keeper(&self, what: Limited) -> Option<Keeper> {
        self.keepers.iter().find(|(limited, _)| *limited == what).map(|(_, keeper)| *keeper)
    }

    fn failed(error: &dyn std::error::Error, code: i32) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            write!(text, ": {error}").unwrap_or_default();
            cause = error.source();
        }
        Report { error: Some(text), code, ..Report::default() }
    }
}

/// One launch in the making, in the present working directory and environment.
#[derive(Debug)]
pub struct Session {
    pub policy: Policy,
    pub argv: Vec<String>,
    /// As on a machine without FUSE.
    pub without_fuse: bool,
    /// Answers questions at first access.
    pub decider: Option<Decider>,
}

/// The built-in policy with these flags.
///
/// # Panics
///
/// If one of them is no flag, or its value none.
pub fn policy_with(flags: &[(&str, &str)]) -> Policy {
    let by_hand = |flag: &str| BY_HAND.iter().find(|by_hand| by_hand.flag == flag);
    let setting = |(flag, value): &(&str, &str)| by_hand(flag).and_then(|flag| flag.of_flag(value.as_ref()).ok());
    let flags: Vec<_> = flags.iter().map(|flag| setting(flag).expect("flags of a test are right")).collect();
    resolve(&Inputs { flags: &flags, ..Inputs::default() }).expect("flags of a test make a policy")
}

impl Session {
    pub fn of(argv: Vec<String>) -> Self {
        // Where everything is decided at the start, a wall that is taken away shows.
        Session { policy: policy_with(&[("--mode", "static")]), argv, without_fuse: false, decider: None }
    }

    /// `swap` runs between the survey and the run, `edit` on the finished plan.
    pub fn run(self, edit: impl FnOnce(&mut LaunchPlan), swap: impl FnOnce()) -> Report {
        let environment: Vec<(String, String)> = std::env::vars().collect();
        let around = match Surroundings::look(&environment) {
            Ok(around) => around,
            Err(error) => return Report::failed(&error, 125),
        };
        let request = Request { argv: self.argv, environment, ..Request::default() };
        let mut facts = cofferdam_host::survey(&self.policy, &around, &request);
        facts.has_fuse &= !self.without_fuse;
        let mut plan = match cofferdam_plan::plan(&self.policy, &facts, &request) {
            Ok(plan) => plan,
            Err(error) => return Report::failed(&error, 125),
        };
        edit(&mut plan);
        swap();
        let known = Rc::new(Known { policy: self.policy, facts });
        match cofferdam_supervisor::run(
            &plan,
            &Options {
                state: Some(around.state),
                known: Some(known),
                decider: self.decider,
                egress_program: program("sandbox-egress"),
                ..Options::default()
            },
        ) {
            Ok(outcome) => ran(&plan, &outcome),
            Err(error) => Report::failed(&error, i32::from(error.exit_code())),
        }
    }

    /// The command without any sandbox.
    pub fn run_bare(self) -> Report {
        let Some((program, arguments)) = self.argv.split_first() else { return Report::default() };
        match Command::new(program).args(arguments).status() {
            Ok(status) => Report { code: status.code().unwrap_or(-1), ..Report::default() },
            Err(error) => Report::failed(&error, 127),
        }
    }
}

fn ran(plan: &LaunchPlan, outcome: &Outcome) -> Report {
    let home = plan.limits.cgroup.as_ref().and_then(|cgroup| match &cgroup.home {
        CgroupHome::Delegated { path, .. } => Some(path),
        CgroupHome::Scope { .. } | CgroupHome::None { .. } => None,
    });
    let usage = &outcome.usage;
    Report {
        error: None,
        code: i32::from(outcome.end.exit_code()),
        blocked: outcome.summary.blocked.iter().map(|b| b.name.to_owned()).collect(),
        end: Some(outcome.end),
        usage: Used {
            cpu_micros: usage.cpu_user_micros.unwrap_or(0) + usage.cpu_system_micros.unwrap_or(0),
            memory_peak: usage.memory_peak.unwrap_or(0),
            processes_peak: usage.processes_peak.unwrap_or(0),
        },
        keepers: plan.limits.bounds.iter().map(|bound| (bound.what, bound.by)).collect(),
        fallen: outcome
            .fallen
            .iter()
            .map(|fallen| {
                let micros =
                    |millis: f64| Duration::from_secs_f64(millis / 1000.0).as_micros().try_into().unwrap_or(u64::MAX);
                (fallen.path.clone(), fallen.times, micros(fallen.median_millis), micros(fallen.worst_millis))
            })
            .collect(),
        obeyed: outcome.obeyed.files.iter().map(|file| file.path.clone()).collect(),
        cgroup: home.map(|home| home.join(format!("cofferdam-{}", outcome.session))),
    }
}

impl Used {
    fn parse(value: &Value) -> Self {
        let number = |index: usize| value[index].as_u64().unwrap_or(0);
        Used { cpu_micros: number(0), memory_peak: number(1), processes_peak: number(2) }
    }
}

fn fallen_of(value: &Value) -> Option<(PathBuf, u32, u64, u64)> {
    let times = u32::try_from(value[1].as_u64()?).ok()?;
    Some((PathBuf::from(value[0].as_str()?), times, value[2].as_u64()?, value[3].as_u64()?))
}

fn keeper_of(value: &Value) -> Option<(Limited, Keeper)> {
    const LIMITED: [Limited; 9] = [
        Limited::Memory,
        Limited::MemoryHigh,
        Limited::Processes,
        Limited::Cpus,
        Limited::CpuSet,
        Limited::CpuTime,
        Limited::Io,
        Limited::Storage,
        Limited::Inodes,
    ];
    const KEEPERS: [Keeper; 4] = [Keeper::Cgroup, Keeper::Rlimit, Keeper::Affinity, Keeper::Watched];
    Some((named(&value[0], &LIMITED)?, named(&value[1], &KEEPERS)?))
}

/// The one that is written so.
fn named<T: Serialize + Copy>(value: &Value, all: &[T]) -> Option<T> {
    all.iter().copied().find(|one| json!(one) == *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_file() {
        for end in [End::OutOfMemory, End::Exited { code: 3 }, End::Signalled { signal: 9 }, End::Killed { signal: 9 }]
        {
            let report = Report {
                error: None,
                code: 137,
                blocked: vec!["add_key".to_owned()],
                end: Some(end),
                usage: Used { cpu_micros: 1, memory_peak: 2, processes_peak: 3 },
                keepers: vec![(Limited::Processes, Keeper::Rlimit), (Limited::CpuTime, Keeper::Watched)],
                fallen: vec![("/p/.env".into(), 2, 300, 4000)],
                obeyed: vec!["sub/.vscode".into()],
                cgroup: Some(PathBuf::from("/sys/fs/cgroup/cofferdam-1")),
            };
            assert_eq!(Report::parse(&report.to_json()), Some(report));
        }
    }
}
