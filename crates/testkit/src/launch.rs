//! A launch as the command makes it (look, survey, plan, run), with places to reach in between. Runs in a process of its
//! own, because a launch blocks signals, forbids tracing and must be the only thread. Called by helper programs.

use std::fmt::Write as _;
use std::process::Command;

use cofferdam_launcher::{End, LaunchError, Options, Outcome, Surroundings};
use cofferdam_plan::{LaunchPlan, Request};
use cofferdam_policy::Policy;
use serde_json::{Value, json};

/// What a helper wrote about a launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Why it was refused, with causes; none if the command ran.
    pub error: Option<String>,
    pub code: i32,
    /// Names of the calls that the supervisor was told about.
    pub blocked: Vec<String>,
}

impl Report {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let names = value["blocked"].as_array()?.iter().filter_map(Value::as_str);
        Some(Report {
            error: value["error"].as_str().map(str::to_owned),
            code: i32::try_from(value["code"].as_i64()?).ok()?,
            blocked: names.map(str::to_owned).collect(),
        })
    }

    pub fn to_json(&self) -> String {
        json!({"error": self.error, "code": self.code, "blocked": self.blocked}).to_string()
    }

    fn failed(error: &dyn std::error::Error, code: i32) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            write!(text, ": {error}").unwrap_or_default();
            cause = error.source();
        }
        Report { error: Some(text), code, blocked: Vec::new() }
    }
}

/// One launch in the making, in the present working directory and environment.
#[derive(Debug)]
pub struct Session {
    pub policy: Policy,
    pub argv: Vec<String>,
}

impl Session {
    pub fn of(argv: Vec<String>) -> Self {
        Session { policy: Policy::built_in(), argv }
    }

    /// `swap` runs between the survey and the run, `edit` on the finished plan.
    pub fn run(self, edit: impl FnOnce(&mut LaunchPlan), swap: impl FnOnce()) -> Report {
        let environment: Vec<(String, String)> = std::env::vars().collect();
        let around = match Surroundings::look(&environment) {
            Ok(around) => around,
            Err(error) => return Report::failed(&error, 125),
        };
        let request = Request { argv: self.argv, environment };
        let facts = cofferdam_launcher::survey(&self.policy, &around, &request);
        let mut plan = match cofferdam_plan::plan(&self.policy, &facts, &request) {
            Ok(plan) => plan,
            Err(error) => return Report::failed(&error, 125),
        };
        edit(&mut plan);
        swap();
        match cofferdam_launcher::run(&plan, &Options { state: Some(around.state), ..Options::default() }) {
            Ok(outcome) => ran(&outcome),
            Err(error) => Report::failed(&error, exit_code(&error)),
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

fn ran(outcome: &Outcome) -> Report {
    let code = match outcome.end {
        End::Exited { code } => code,
        End::TimedOut | End::ProcessLimit | End::CpuTimeLimit | End::StorageLimit | End::OutputLimit => 124,
        End::TooManyViolations => 126,
        End::OutOfMemory => 137,
        End::Signalled { signal } | End::Killed { signal } => 128 + signal,
    };
    Report { error: None, code, blocked: outcome.blocked.iter().map(|b| b.name.to_owned()).collect() }
}

fn exit_code(error: &LaunchError) -> i32 {
    match error {
        LaunchError::Execute { errno, .. } if errno.raw_os_error() == 2 => 127,
        LaunchError::Execute { .. } => 126,
        _ => 125,
    }
}
