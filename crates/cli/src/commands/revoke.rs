//! `sandbox policy revoke`: the answers that were kept, and taking one back. Owns their list, with what the audit log tells of each;
//! the files are `host::persist`'s. Called by `commands::policy`, and by the inbox for its history.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_audit::{Entry, Event};
use cofferdam_host::persist::{self, KeptRule, PersistError, Saved};
use cofferdam_host::policy_files::approvals::Approvals;
use cofferdam_host::{Surroundings, SurveyError};
use cofferdam_policy::{NetworkPart, Setting};
use cofferdam_wire::Keep;
use cofferdam_wire::session::short;
use serde_json::{Value, json};
use thiserror::Error;

use crate::args::policy::RevokeArgs;
use crate::environment::environment;
use crate::log::Log;
use crate::render::output::{escaped, print, print_json};
use crate::render::saved::tell_saved;

#[derive(Debug, Error)]
pub(crate) enum RevokeError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error("no kept answer is called `{rule}`")]
    Unknown { rule: String },
    #[error("{count} kept answers are called `{rule}`")]
    Several { rule: String, count: usize },
}

/// A rule that an answer may have become, and how that came to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    pub(crate) rule: KeptRule,
    /// The project whose file it stands in.
    pub(crate) project: Option<PathBuf>,
    /// What the audit log has of it; the operator may have written the rule.
    pub(crate) decided: Option<DecidedThen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecidedThen {
    pub(crate) time: String,
    pub(crate) session: String,
    pub(crate) cause: String,
    pub(crate) program: String,
}

impl KeptAnswer {
    pub(crate) fn scope(&self) -> String {
        match (&self.rule.keep, &self.project) {
            (Keep::Project, Some(project)) => format!("project {}", project.display()),
            (Keep::Project, None) => "project".to_owned(),
            _ => "user".to_owned(),
        }
    }

    /// Where it stands, and what is known of the answer.
    pub(crate) fn details(&self) -> Vec<String> {
        let line = self.rule.line.map_or_else(String::new, |line| format!(":{line}"));
        let mut lines = vec![format!("in: {}{line}", self.rule.file.display())];
        lines.extend(
            Some(self.rule.reason()).filter(|reason| !reason.is_empty()).map(|reason| format!("reason: {reason}")),
        );
        lines.push(match &self.decided {
            Some(DecidedThen { time, session, cause, program }) => {
                let time = time.get(..19).unwrap_or(time).replace('T', " ");
                format!("answered: {time} UTC by {cause}, asked by {program} in session {}", short(session))
            }
            None => "answered: the audit log has no answer that became this rule".to_owned(),
        });
        lines
    }

    fn report(&self, number: usize) -> Value {
        let decided = self
            .decided
            .as_ref()
            .map(|it| json!({ "time": it.time, "session": it.session, "cause": it.cause, "program": it.program }));
        json!({
            "number": number, "rule": self.rule.rule(), "scope": self.scope(), "file": self.rule.file,
            "line": self.rule.line, "reason": self.rule.reason(), "decided": decided,
        })
    }

    /// The path or the host that it is about.
    fn about(&self) -> String {
        match &self.rule.setting {
            Setting::File { path, .. } => path.as_str().to_owned(),
            Setting::NetworkPart(NetworkPart::Allow(rule) | NetworkPart::Deny(rule)) => rule.endpoint.to_string(),
            other => other.to_string(),
        }
    }

    pub(crate) fn revoke(&self) -> Result<Saved, RevokeError> {
        let environment = environment();
        let around = Surroundings::look(&environment)?;
        let around = Surroundings { project: self.project.clone().or(around.project.clone()), ..around };
        Ok(persist::revoke(&around, &environment, &self.rule)?)
    }
}

pub(crate) fn revoke(args: &RevokeArgs) -> Result<ExitCode, RevokeError> {
    let environment = environment();
    let around = Surroundings::look(&environment)?;
    let mut answers = kept_in(&around, &environment)?;
    with_log(&around, &mut answers);
    let Some(rule) = &args.rule else {
        if args.json {
            let listed: Vec<Value> = answers.iter().enumerate().map(|(at, answer)| answer.report(at + 1)).collect();
            return Ok(print_json(&json!({ "version": 1, "answers": listed })));
        }
        return Ok(print(&list(&answers)));
    };
    let by_number = rule.parse::<usize>().ok().and_then(|number| answers.get(number.checked_sub(1)?));
    let named: Vec<&KeptAnswer> = match by_number {
        Some(answer) => vec![answer],
        None => answers.iter().filter(|answer| answer.rule.rule() == *rule || answer.about() == *rule).collect(),
    };
    match named.as_slice() {
        [answer] => Ok(tell_saved(&answer.revoke()?)),
        [] => Err(RevokeError::Unknown { rule: rule.clone() }),
        several => Err(RevokeError::Several { rule: rule.clone(), count: several.len() }),
    }
}

fn list(answers: &[KeptAnswer]) -> String {
    if answers.is_empty() {
        return "no answer is kept here\n".to_owned();
    }
    let mut out = String::new();
    for (at, answer) in answers.iter().enumerate() {
        writeln!(out, "{:>3}  {}  ({})", at + 1, escaped(&answer.rule.rule()), escaped(&answer.scope()))
            .unwrap_or_default();
        for line in answer.details() {
            writeln!(out, "       {}", escaped(&line)).unwrap_or_default();
        }
    }
    out + "`sandbox policy revoke NUMBER` takes one back\n"
}

/// Those of the user and of the project here.
fn kept_in(around: &Surroundings, environment: &[(String, String)]) -> Result<Vec<KeptAnswer>, RevokeError> {
    let project = |keep| around.project.clone().filter(|_| keep == Keep::Project);
    let rules = persist::kept(around, environment)?;
    Ok(rules.into_iter().map(|rule| KeptAnswer { project: project(rule.keep), rule, decided: None }).collect())
}

/// Those of the user and of every project whose file was approved. A file that cannot be read is left out.
pub(crate) fn kept_everywhere() -> Vec<KeptAnswer> {
    let environment = environment();
    let Ok(around) = Surroundings::look(&environment) else { return Vec::new() };
    let mut projects: Vec<PathBuf> = around.project.clone().into_iter().collect();
    let approvals = Approvals::load(&around.state).unwrap_or_default();
    for project in approvals.files().filter_map(|file| file.parent()?.parent()) {
        if project.is_dir() && !projects.iter().any(|known| known == project) {
            projects.push(project.to_path_buf());
        }
    }
    let nowhere = Surroundings { project: None, ..around.clone() };
    let mut answers = kept_in(&nowhere, &environment).unwrap_or_default();
    for project in projects {
        let there = Surroundings { project: Some(project), ..around.clone() };
        let of_project = kept_in(&there, &environment).unwrap_or_default();
        answers.extend(of_project.into_iter().filter(|answer| answer.rule.keep == Keep::Project));
    }
    with_log(&around, &mut answers);
    answers
}

/// Adds what the log has of answers that were kept: the last one about the same thing.
fn with_log(around: &Surroundings, answers: &mut [KeptAnswer]) {
    let Ok(mut log) = Log::open(&around.state) else { return };
    let places = around.places();
    let paths: Vec<Vec<PathBuf>> = answers
        .iter()
        .map(|answer| match &answer.rule.setting {
            Setting::File { path, .. } => {
                let project = answer.project.clone();
                path.expand(&cofferdam_policy::Places { project, ..places.clone() })
            }
            _ => Vec::new(),
        })
        .collect();
    while let Ok(Some(entry)) = log.try_next() {
        let is_decision =
            [Event::FileDecided, Event::ConnectionAttempt].iter().any(|event| event.name() == entry.event);
        if !is_decision || !matches!(entry.details["persist"].as_str(), Some("user" | "project")) {
            continue;
        }
        for (answer, paths) in answers.iter_mut().zip(&paths) {
            if is_about(&entry, answer, paths) {
                answer.decided = Some(decided(&entry));
            }
        }
    }
}

fn is_about(entry: &Entry, answer: &KeptAnswer, paths: &[PathBuf]) -> bool {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let keep = if answer.rule.keep == Keep::User { "user" } else { "project" };
    if entry.details["persist"] != keep {
        return false;
    }
    let granted = || entry.details["granted"].as_array().into_iter().flatten().filter_map(text);
    match &answer.rule.setting {
        Setting::File { .. } => {
            let mut asked = text(&entry.details["path"]).into_iter().chain(granted());
            asked.any(|path| paths.iter().any(|known| known == Path::new(&path)))
        }
        // Of a group, all its hosts.
        _ => text(&entry.details["host"]).into_iter().chain(granted()).any(|host| answer.about() == host),
    }
}

fn decided(entry: &Entry) -> DecidedThen {
    let text = |name: &str| entry.details[name].as_str().unwrap_or("?").to_owned();
    DecidedThen {
        time: entry.time.clone(),
        session: entry.session.clone(),
        cause: text("cause"),
        program: text("program"),
    }
}
