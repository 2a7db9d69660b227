//! What a row is and how it is judged. Owns the rule of the negative control: a check that reports "contained" with its
//! control switched off proves nothing and fails.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use cofferdam_plan::LaunchPlan;
use cofferdam_policy::Policy;
use cofferdam_testkit::{Helper, Launched, Place, Scene, Session, leaks, program, run_helper, start_helper};

/// Whether the row's control is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walls {
    Standing,
    Open,
}

impl Walls {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Walls::Standing => "standing",
            Walls::Open => "open",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Walls::Standing, Walls::Open].into_iter().find(|walls| walls.name() == name)
    }
}

/// How the control is switched off for the negative control.
#[derive(Debug, Clone, Copy)]
pub enum Off {
    /// By editing the plan.
    Edit(fn(&mut LaunchPlan, &Place)),
    /// The control is no step of a plan: the probe runs without any sandbox.
    Bare,
}

/// One row of the corpus. The functions besides `run` are called in the process that launches.
#[derive(Debug)]
pub struct Row {
    pub what: &'static str,
    pub control: &'static str,
    /// Runs one trial, outside.
    pub run: fn(&Trial) -> Finding,
    /// Changes the policy before the survey.
    pub policy: fn(&mut Policy, &Place),
    /// Makes it a session that asks: mode, trigger, who answers.
    pub session: fn(&mut Session, &Place),
    /// Prepares the launching process.
    pub before: fn(&Place, Walls) -> Result<(), String>,
    /// Arranges the plan for the trial, in both trials; switches nothing off.
    pub arrange: fn(&mut LaunchPlan),
    /// Happens between survey and run.
    pub swap: fn(&Place),
    pub off: Off,
    /// The negative control runs as root of a user namespace around the sandbox: else capabilities that the set-up keeps
    /// would end when a user other than root executes the probe.
    pub off_as_root: bool,
    /// Calls that the supervisor must have been told about: then the filter refused them, not the kernel for a reason of
    /// its own.
    pub reported: &'static [&'static str],
    pub argv: fn(&Place, &str) -> Vec<String>,
    pub environment: &'static [(&'static str, &'static str)],
}

/// The usual row: a probe in the project, an untouched policy.
pub(crate) const ROW: Row = Row {
    what: "",
    control: "",
    run: Trial::probe,
    policy: |_, _| {},
    session: |_, _| {},
    before: |_, _| Ok(()),
    arrange: |_| {},
    swap: |_| {},
    off: Off::Bare,
    off_as_root: false,
    reported: &[],
    argv: probe_argv,
    environment: &[],
};

/// `probe check scene`, the check named by the row or by the trial's variant.
pub(crate) fn probe_argv(place: &Place, check: &str) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    vec![text(&place.probe()), check.to_owned(), text(place.root())]
}

/// What a trial found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Contained(String),
    Open(String),
    Skipped(String),
    /// The trial itself went wrong; counts as a failure.
    Broken(String),
}

impl Finding {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.to_owned();
        match word {
            "contained" => Some(Finding::Contained(rest)),
            "open" => Some(Finding::Open(rest)),
            "skipped" => Some(Finding::Skipped(rest)),
            "broken" => Some(Finding::Broken(rest)),
            _ => None,
        }
    }

    /// Goes on with `next` while contained.
    pub(crate) fn and_then(self, next: impl FnOnce() -> Finding) -> Finding {
        match self {
            Finding::Contained(first) => match next() {
                Finding::Contained(second) => Finding::Contained(format!("{first}; {second}")),
                other => other,
            },
            other => other,
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (word, detail) = match self {
            Finding::Contained(detail) => ("contained", detail),
            Finding::Open(detail) => ("open", detail),
            Finding::Skipped(detail) => ("skipped", detail),
            Finding::Broken(detail) => ("broken", detail),
        };
        write!(f, "{word} {detail}")
    }
}

/// The judgement of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Contained { how: String, without: String },
    Failed(String),
    Skipped(String),
}

/// One run of a row in a scene of its own.
#[derive(Debug)]
pub struct Trial {
    pub name: &'static str,
    pub row: &'static Row,
    pub walls: Walls,
    pub scene: Scene,
    runner: PathBuf,
}

impl Trial {
    /// `a01` of `escape_a01_leaked_fds_are_closed`.
    pub(crate) fn check(&self) -> &'static str {
        self.name.split('_').nth(1).unwrap_or("")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.scene.project()
    }

    /// Launches in the project and reads the probe's answer.
    pub(crate) fn probe(&self) -> Finding {
        self.answer(&self.launch(self.check()))
    }

    /// Launches; `check` tells the probe what to do.
    pub(crate) fn launch(&self, check: &str) -> Launched {
        self.launch_in(check, &self.project(), &[])
    }

    pub(crate) fn launch_in(&self, check: &str, directory: &Path, more: &[(&str, &str)]) -> Launched {
        let environment = [self.row.environment, more].concat();
        let launched = run_helper(&self.runner, &self.arguments(check), &self.scene, directory, &environment);
        launched.unwrap_or_else(|error| panic!("cannot start the launching process: {error}"))
    }

    /// Launches behind these words, which lead elsewhere: into a world of its own.
    pub(crate) fn launch_behind(&self, words: &[String], check: &str, more: &[(&str, &str)]) -> Launched {
        let environment = [self.row.environment, more].concat();
        let runner = self.runner.to_string_lossy();
        let all: Vec<&str> = words.iter().map(String::as_str).chain([&*runner]).chain(self.arguments(check)).collect();
        let (program, arguments) = all.split_first().unwrap_or((&"", &[]));
        let launched = run_helper(Path::new(program), arguments, &self.scene, &self.project(), &environment);
        launched.unwrap_or_else(|error| panic!("cannot start the launching process: {error}"))
    }

    pub(crate) fn start(&self, check: &str, stdin: Stdio) -> Helper {
        self.start_with(check, &[], stdin)
    }

    pub(crate) fn start_with(&self, check: &str, more: &[(&str, &str)], stdin: Stdio) -> Helper {
        let environment = [self.row.environment, more].concat();
        let started =
            start_helper(&self.runner, &self.arguments(check), &self.scene, &self.project(), &environment, stdin);
        started.unwrap_or_else(|error| panic!("cannot start the launching process: {error}"))
    }

    fn arguments<'a>(&'a self, check: &'a str) -> [&'a str; 5] {
        self.arguments_in(&self.scene, check)
    }

    fn arguments_in<'a>(&'a self, scene: &'a Scene, check: &'a str) -> [&'a str; 5] {
        ["launch", self.name, self.walls.name(), check, scene.root().to_str().unwrap_or("")]
    }

    /// Another session of the same user, in a scene of its own: how long it took from its start to its end.
    pub(crate) fn neighbour(&self) -> Result<Duration, String> {
        let scene = Scene::new().map_err(|error| error.to_string())?;
        std::fs::copy(self.scene.probe(), scene.probe()).map_err(|error| error.to_string())?;
        let began = Instant::now();
        let launched = run_helper(&self.runner, &self.arguments_in(&scene, "ran"), &scene, &scene.project(), &[]);
        let took = began.elapsed();
        let launched = launched.map_err(|error| error.to_string())?;
        let ran = scene.project().join("ran").exists();
        scene.remove().map_err(|error| error.to_string())?;
        if ran { Ok(took) } else { Err(format!("{:?} {}", launched.report, launched.stderr.trim())) }
    }

    /// The finding that a launch ended with.
    pub(crate) fn answer(&self, launched: &Launched) -> Finding {
        let last = launched.stdout.lines().last().and_then(Finding::parse);
        match last {
            _ if launched.hung => Finding::Broken("the launch did not end".to_owned()),
            Some(Finding::Contained(how)) => match self.unreported(launched) {
                Some(call) => Finding::Open(format!("{call} reached the kernel ({how})")),
                None => Finding::Contained(how),
            },
            Some(finding) => finding,
            None => Finding::Broken(format!(
                "no answer in `{}`: {:?}, code {}, end {:?}, stderr `{}`",
                launched.stdout.trim(),
                launched.report.error,
                launched.report.code,
                launched.report.end,
                launched.stderr.trim()
            )),
        }
    }

    fn unreported(&self, launched: &Launched) -> Option<&'static str> {
        self.row.reported.iter().copied().find(|call| !launched.report.blocked.iter().any(|b| b == call))
    }

    /// For rows about launches that must not happen: contained if refused for a reason that contains `why`, open if
    /// the command ran.
    pub(crate) fn refusal(&self, launched: &Launched, why: &[&str]) -> Finding {
        match &launched.report.error {
            _ if launched.hung => Finding::Broken("the launch did not end".to_owned()),
            Some(error) if self.ran() => Finding::Open(format!("refused ({error}), but the command ran")),
            Some(error) if why.iter().any(|why| error.contains(why)) => Finding::Contained(error.clone()),
            Some(error) => Finding::Broken(format!("refused for another reason: {error}")),
            None => Finding::Open("the command ran".to_owned()),
        }
    }

    /// Whether the probe `ran` has left its mark in the project.
    pub(crate) fn ran(&self) -> bool {
        self.project().join("ran").exists()
    }
}

/// Both trials of a row, and whether they left something behind.
pub fn judge(name: &'static str, row: &'static Row) -> Verdict {
    let how = match trial(name, row, Walls::Standing) {
        Finding::Contained(how) => how,
        Finding::Skipped(why) => return Verdict::Skipped(why),
        other => return Verdict::Failed(other.to_string()),
    };
    match trial(name, row, Walls::Open) {
        Finding::Open(without) => Verdict::Contained { how, without },
        Finding::Skipped(why) => Verdict::Skipped(format!("negative control: {why}")),
        Finding::Contained(still) => {
            Verdict::Failed(format!("negative control did not fail: contained {still} with the control off"))
        }
        Finding::Broken(why) => Verdict::Failed(format!("negative control: {why}")),
    }
}

fn trial(name: &'static str, row: &'static Row, walls: Walls) -> Finding {
    let (Some(runner), Some(probe)) = (program("escape-runner"), program("escape-probe")) else {
        return Finding::Broken("escape-runner and escape-probe were not built".to_owned());
    };
    let scene = match Scene::new() {
        Ok(scene) => scene,
        Err(error) => return Finding::Broken(format!("no scene: {error}")),
    };
    if let Err(error) = std::fs::copy(&probe, scene.probe()) {
        return Finding::Broken(format!("cannot copy the probe: {error}"));
    }
    let trial = Trial { name, row, walls, scene, runner };
    let finding = (row.run)(&trial);
    let left = leaks::find(&trial.scene);
    if !left.is_empty() {
        return Finding::Broken(format!("left behind: {}", left.join(", ")));
    }
    match trial.scene.remove() {
        Ok(()) => finding,
        Err(error) => Finding::Broken(format!("the scene cannot be removed: {error}")),
    }
}
