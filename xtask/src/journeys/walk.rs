//! One job, walked in fresh homes: outside, first and again inside, after `sandbox setup`, and without a terminal. Owns the order and
//! following hints; what counts as met is the report's. Called by `journeys`.

use std::time::Duration;

use serde::Serialize;

use crate::journeys::home::{Ground, Home, Terminal};
use crate::journeys::jobs::{Job, Step};
use crate::journeys::run::{Ended, Run, proposed};
use crate::problems::Problems;

pub(crate) const MOST_ATTEMPTS: usize = 4;
pub(crate) const LIMIT: Duration = Duration::from_mins(5);

/// What it took until it worked, or until nothing more was proposed.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) worked: bool,
    pub(crate) attempts: usize,
    /// What each was about.
    pub(crate) questions: Vec<String>,
    /// Of all attempts.
    pub(crate) seconds: f64,
    /// The longest time without a byte of output.
    pub(crate) silent: f64,
    /// What the hints proposed and the next attempt had.
    pub(crate) flags: Vec<String>,
    /// Its last lines, where it did not work.
    pub(crate) failure: Option<String>,
}

/// A run without a terminal and without a policy.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Unattended {
    pub(crate) worked: bool,
    /// From the start to the end.
    pub(crate) seconds: f64,
    /// From the start until a line named a flag that helps.
    pub(crate) help_after: Option<f64>,
    /// Those flags.
    pub(crate) flags: Vec<String>,
    pub(crate) silent: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// The rows of one job are one package manager's, or one agent's.
    pub(crate) job: String,
    pub(crate) name: String,
    pub(crate) outside: Figures,
    pub(crate) first: Figures,
    pub(crate) second: Figures,
    pub(crate) after_setup: Figures,
    pub(crate) unattended: Unattended,
}

/// How questions are answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) answer: char,
}

/// A home with the job's project in it.
pub(crate) fn prepared<'a>(ground: &'a Ground, job: &Job) -> Result<Home<'a>, Problems> {
    let home = ground.home()?;
    if job.needs_rust {
        home.install_rust()?;
    }
    for (name, text) in job.files {
        home.write(&format!("app/{name}"), text.as_bytes())?;
    }
    Ok(home)
}

pub(crate) fn walk(ground: &Ground, job: &Job, manner: Manner) -> Result<Vec<Row>, Problems> {
    eprintln!("journeys: {}: outside", job.name);
    let outside = all_steps(&prepared(ground, job)?, job, bare)?;
    if let Some(failed) = outside.iter().find(|figures| !figures.worked) {
        let why = failed.failure.clone().unwrap_or_default();
        return Err(Problems::one(format!("it does not work outside: {why}")));
    }
    eprintln!("journeys: {}: the first time, and again", job.name);
    let inside = |home: &Home<'_>, step: &Step| attempts(ground, home, step, manner);
    let home = prepared(ground, job)?;
    let first = all_steps(&home, job, inside)?;
    home.outside(job.clean)?;
    let second = all_steps(&home, job, inside)?;
    drop(home);
    eprintln!("journeys: {}: after sandbox setup", job.name);
    let home = prepared(ground, job)?;
    home.outside("sandbox setup --yes")?;
    let after_setup = all_steps(&home, job, inside)?;
    drop(home);
    eprintln!("journeys: {}: without a terminal", job.name);
    let unattended = all_steps(&prepared(ground, job)?, job, alone)?;
    let rows = job.steps.iter().enumerate().map(|(at, step)| Row {
        job: job.name.to_owned(),
        name: step.name.to_owned(),
        outside: outside[at].clone(),
        first: first[at].clone(),
        second: second[at].clone(),
        after_setup: after_setup[at].clone(),
        unattended: unattended[at].clone(),
    });
    Ok(rows.collect())
}

/// Each step in turn; where one did not do its work it is done outside, for the next one.
pub(crate) fn all_steps<T>(
    home: &Home<'_>,
    job: &Job,
    run: impl Fn(&Home<'_>, &Step) -> Result<T, Problems>,
) -> Result<Vec<T>, Problems> {
    let mut all = Vec::new();
    for step in job.steps {
        all.push(run(home, step)?);
        if home.outside(step.proof).is_err() {
            home.outside_argv(step.argv)?;
        }
    }
    Ok(all)
}

fn bare(home: &Home<'_>, step: &Step) -> Result<Figures, Problems> {
    let mut figures = Figures::default();
    let run = Run::at_terminal(home.command(step.argv, Terminal::Own), home.user(), 'n')?;
    figures.add(&run.end(LIMIT)?, home.outside(step.proof).is_ok());
    Ok(figures)
}

/// As an operator does who reads the last lines: the flags that they name are in the next attempt.
fn attempts(ground: &Ground, home: &Home<'_>, step: &Step, manner: Manner) -> Result<Figures, Problems> {
    let mut figures = Figures::default();
    while figures.attempts < MOST_ATTEMPTS {
        let flags: Vec<&str> = figures.flags.iter().map(String::as_str).collect();
        let argv = [&["sandbox", "run"][..], &flags, &["--"], step.argv].concat();
        let run = Run::at_terminal(home.command(&argv, Terminal::Own), &ground.user, manner.answer)?;
        let ended = run.end(LIMIT)?;
        figures.add(&ended, home.outside(step.proof).is_ok());
        let more: Vec<String> =
            proposed(&ended.text).into_iter().filter(|flag| !figures.flags.contains(flag)).collect();
        if figures.worked || more.is_empty() {
            break;
        }
        figures.flags.extend(more);
    }
    Ok(figures)
}

fn alone(home: &Home<'_>, step: &Step) -> Result<Unattended, Problems> {
    let argv = [&["sandbox", "run", "--"][..], step.argv].concat();
    let ended = Run::without_terminal(home.command(&argv, Terminal::None))?.end(LIMIT)?;
    Ok(Unattended::of(&ended, home.outside(step.proof).is_ok()))
}

impl Figures {
    pub(crate) fn add(&mut self, ended: &Ended, is_proved: bool) {
        self.attempts += 1;
        self.worked = ended.succeeded() && is_proved;
        self.questions.extend(ended.questions.iter().cloned());
        self.seconds += ended.seconds;
        self.silent = self.silent.max(ended.silent);
        self.failure = (!self.worked).then(|| match ended.code {
            Some(code) => format!("exit code {code}: {}", ended.last_lines()),
            None => format!("not over after {:.0} s: {}", ended.seconds, ended.last_lines()),
        });
    }
}

impl Unattended {
    pub(crate) fn of(ended: &Ended, is_proved: bool) -> Self {
        Unattended {
            worked: ended.succeeded() && is_proved,
            seconds: ended.seconds,
            help_after: ended.help_after,
            flags: proposed(&ended.text),
            silent: ended.silent,
        }
    }
}
