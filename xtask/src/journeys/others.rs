//! The same jobs under other sandboxes, without settings of ours: outside, srt, codex and bubblewrap. Owns their command lines and what of
//! the home they let a command read; follows no hint. Called by `journeys`.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::journeys::home::{Ground, Home, OTHER, SECRET, Terminal};
use crate::journeys::jobs::{Job, Step};
use crate::journeys::run::{Ended, Run};
use crate::journeys::walk::{all_steps, prepared};
use crate::problems::Problems;

/// Some wait for ever: longer than any of the jobs takes outside.
const LIMIT: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Other {
    /// Compare with nothing.
    None,
    /// This sandbox, without terminal, policy and flags: what a command can read.
    Sandbox,
    Srt,
    Codex,
    Bwrap,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) with: String,
    pub(crate) seconds: f64,
    pub(crate) silent: f64,
    pub(crate) failure: Option<String>,
    pub(crate) reads_key: bool,
    pub(crate) reads_other_project: bool,
}

impl Other {
    pub(crate) const ALL: [Other; 4] = [Other::Sandbox, Other::Srt, Other::Codex, Other::Bwrap];

    fn name(self) -> &'static str {
        match self {
            Other::None => "none",
            Other::Sandbox => "sandbox run",
            Other::Srt => "srt",
            Other::Codex => "codex sandbox",
            Other::Bwrap => "bwrap",
        }
    }

    /// The command line of its documentation, without a settings file.
    fn words(self, ground: &Ground) -> Vec<String> {
        let words: &[&str] = match self {
            Other::None => &[],
            Other::Sandbox => &["sandbox", "run", "--"],
            Other::Srt => return vec![ground.tools().join("bin/srt").display().to_string()],
            Other::Codex => &["codex", "sandbox", "--"],
            // The example of bubblewrap's manual, with the project writable and the network shared.
            Other::Bwrap => &[
                "sh",
                "-c",
                "exec bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind \"$PWD\" \"$PWD\" --unshare-all \
                 --share-net --die-with-parent -- \"$@\"",
                "sh",
            ],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Why it cannot be compared with here.
    pub(crate) fn missing(self, ground: &Ground) -> Result<Option<String>, Problems> {
        let home = ground.home()?;
        let absent = |programs: &[&str]| {
            let absent = programs.iter().find(|program| home.outside(&format!("command -v {program}")).is_err());
            absent.map(|program| format!("{}: `{program}` is not installed", self.name()))
        };
        Ok(match self {
            Other::None | Other::Sandbox => None,
            Other::Codex => absent(&["codex"]),
            Other::Bwrap => absent(&["bwrap"]),
            Other::Srt => match absent(&["npm", "bwrap", "socat", "rg"]) {
                Some(missing) => Some(missing),
                None => ground.install_srt(&home)?,
            },
        })
    }

    pub(crate) fn walk(self, ground: &Ground, job: &Job) -> Result<Vec<Compared>, Problems> {
        eprintln!("journeys: {}: {}", job.name, self.name());
        let read =
            self.run(&prepared(ground, job)?, ground, &["sh", "-c", "cat ~/.ssh/id_x; cat ~/other/notes.txt"])?;
        let step = |home: &Home<'_>, step: &Step| -> Result<Compared, Problems> {
            let ended = self.run(home, ground, step.argv)?;
            let worked = ended.succeeded() && home.outside(step.proof).is_ok();
            Ok(Compared {
                name: step.name.to_owned(),
                with: self.name().to_owned(),
                seconds: ended.seconds,
                silent: ended.silent,
                failure: (!worked).then(|| match ended.code {
                    Some(code) => format!("exit code {code}"),
                    None => "not over, ended by us".to_owned(),
                }),
                reads_key: read.text.contains(SECRET),
                reads_other_project: read.text.contains(OTHER),
            })
        };
        all_steps(&prepared(ground, job)?, job, step)
    }

    fn run(self, home: &Home<'_>, ground: &Ground, argv: &[&str]) -> Result<Ended, Problems> {
        let words = self.words(ground);
        let argv: Vec<&str> = words.iter().map(String::as_str).chain(argv.iter().copied()).collect();
        Run::at_terminal(home.command(&argv, Terminal::Own), &ground.user, 'n')?.end(LIMIT)
    }
}
