//! `sandbox questions`, `approve` and `deny`: answers by hand or from a script. Owns how a question is named on the command
//! line and how it reads as text; whether an answer counts is the supervisor's decision.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use cofferdam_gate::shown;
use cofferdam_host::SurveyError;
use cofferdam_wire::protocol::{Command, Decision, Event, FsRequest};
use cofferdam_wire::session::short;
use cofferdam_wire::{Cause, Keep, QuestionId, Reach, Verdict};
use thiserror::Error;

use crate::args::sessions::{AnswerArgs, KeepFor, QuestionsArgs, Scope};
use crate::client::{Connection, Look, look_at_all, sessions, sessions_directory};
use crate::confirm::is_confirmed;
use crate::environment::has_terminal;
use crate::render::output::{print, print_json, say};
use crate::render::question::{path, seconds_left, verb, who};
use crate::session_name::can_mean;

/// Why no question was answered.
#[derive(Debug, Error)]
pub(crate) enum AnswerError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error("no open question is called `{id}`")]
    Unknown { id: String },
    #[error("several sessions ask a question {id}: {sessions}", sessions = sessions.join(", "))]
    Several { id: String, sessions: Vec<String> },
    #[error("the answer was not taken: {message}")]
    NotTaken { message: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Approve,
    Deny,
}

pub(crate) fn list(args: &QuestionsArgs) -> Result<ExitCode, SurveyError> {
    let looks = look_at_all(&sessions_directory()?, "questions");
    let all = looks.iter().flat_map(|look| look.questions.iter().map(|question| (&look.connection.session, question)));
    if args.json {
        let questions: Vec<serde_json::Value> = all
            .filter_map(|(session, question)| {
                let mut value = serde_json::to_value(question).ok()?;
                value.as_object_mut()?.insert("session".to_owned(), session.as_str().into());
                Some(value)
            })
            .collect();
        return Ok(print_json(&serde_json::json!({ "version": 1, "questions": questions })));
    }
    let text: String = all.map(|(session, question)| entry(session, question)).collect();
    if text.is_empty() {
        say!("no open questions");
    }
    Ok(print(&text))
}

fn entry(session: &str, question: &FsRequest) -> String {
    let mut text = format!("{}:{}  {} {}\n", short(session), question.id, verb(question.op), path(question));
    let mut more = |name: &str, value: &str| writeln!(text, "    {name}: {value}").unwrap_or_default();
    more("by", &who(question));
    if let Some(hint) = &question.hint {
        more("hint", &shown(hint.as_bytes()));
    }
    if let Some(group) = &question.group {
        more("--scope group", &shown(group.said(question.op).as_bytes()));
    }
    if let Some(toolchain) = &question.toolchain {
        more("toolchain", &shown(toolchain.as_bytes()));
    }
    if !question.also.is_empty() {
        let also: Vec<String> = question.also.iter().map(|path| shown(path.as_bytes())).collect();
        more("the same answer is for", &also.join(", "));
    }
    if let Some(left) = seconds_left(question) {
        more("denied in", &format!("{left} s"));
    }
    text
}

/// What the user called a question.
#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    session: Option<&'a str>,
    id: QuestionId,
}

impl<'a> Name<'a> {
    fn parse(args: &'a AnswerArgs) -> Option<Self> {
        let (session, id) = match args.id.rsplit_once(':') {
            Some((session, id)) => (Some(session), id),
            None => (args.session.as_deref(), args.id.as_str()),
        };
        Some(Name { session, id: id.parse().ok()? })
    }
}

pub(crate) fn answer(args: &AnswerArgs, answer: Answer) -> Result<ExitCode, AnswerError> {
    let unknown = || AnswerError::Unknown { id: args.id.clone() };
    let name = Name::parse(args).ok_or_else(unknown)?;
    let directory = sessions_directory()?;
    // The session first, among all of them: whether it is meant does not depend on which of them ask something or answer now.
    let all = sessions(&directory);
    let meant: Vec<&String> = all.iter().filter(|id| name.session.is_some_and(|name| can_mean(name, id))).collect();
    let several = |sessions: Vec<&String>| AnswerError::Several {
        id: args.id.clone(),
        sessions: sessions.into_iter().map(|session| short(session).to_owned()).collect(),
    };
    if meant.len() > 1 {
        return Err(several(meant));
    }
    let asks = |look: &Look| look.questions.iter().any(|question| question.id == name.id);
    let is_meant = |look: &Look| name.session.is_none() || meant.contains(&&look.connection.session);
    let mut found: Vec<Look> =
        look_at_all(&directory, "command").into_iter().filter(|look| is_meant(look) && asks(look)).collect();
    if found.len() > 1 {
        return Err(several(found.iter().map(|look| &look.connection.session).collect()));
    }
    let Look { mut connection, questions, .. } = found.pop().ok_or_else(unknown)?;
    // The line that proposed this command stood where the workload writes: this process shows what is approved.
    if answer == Answer::Approve && !args.yes && has_terminal() {
        let question = questions.iter().find(|question| question.id == name.id).ok_or_else(unknown)?;
        let told = entry(&connection.session, question);
        if !is_confirmed(&format!("{told}approve {}?", extent(args, question))) {
            say!("nothing was answered");
            return Ok(ExitCode::FAILURE);
        }
    }
    say_answer(&mut connection, name.id, verdict(args, answer))?;
    Ok(ExitCode::SUCCESS)
}

/// What an approval would give, and for how long.
fn extent(args: &AnswerArgs, question: &FsRequest) -> String {
    let Verdict::Allow { reach, keep } = verdict(args, Answer::Approve) else { return String::new() };
    let place = Path::new(&question.path);
    let directory = if question.is_dir { place } else { place.parent().unwrap_or(place) };
    let what = match reach {
        Reach::File => "this".to_owned(),
        Reach::Dir => format!("EVERYTHING below {}", shown(directory.as_os_str().as_encoded_bytes())),
        Reach::Toolchain => "all of this toolchain".to_owned(),
        Reach::Group => "this group".to_owned(),
    };
    let time = match keep {
        Keep::Once => "once",
        Keep::Session => "for this session",
        Keep::Project => "for this project from now on",
        Keep::User => "for all your projects from now on",
        Keep::Org => "for this machine from now on",
    };
    format!("{what}, {time}")
}

fn verdict(args: &AnswerArgs, answer: Answer) -> Verdict {
    let reach = match args.scope {
        Scope::File => Reach::File,
        Scope::Dir => Reach::Dir,
        Scope::Toolchain => Reach::Toolchain,
        Scope::Group => Reach::Group,
    };
    let keep = match args.keep {
        None if args.scope == Scope::Group && answer == Answer::Approve => Keep::Session,
        None | Some(KeepFor::Once) => Keep::Once,
        Some(KeepFor::Session) => Keep::Session,
        Some(KeepFor::Project) => Keep::Project,
        Some(KeepFor::User) => Keep::User,
        Some(KeepFor::Org) => Keep::Org,
    };
    match answer {
        Answer::Approve => Verdict::Allow { reach, keep },
        Answer::Deny => Verdict::Deny { reach, keep },
    }
}

/// Sends the answer and waits for what came of it.
fn say_answer(connection: &mut Connection, question: QuestionId, verdict: Verdict) -> Result<(), AnswerError> {
    let not_taken = |message: String| AnswerError::NotTaken { message };
    connection.say(&Command::of(question, verdict)).map_err(|error| not_taken(error.to_string()))?;
    let taken = connection.hear_until(|event| match event {
        Event::Done { .. } => Some(Ok(())),
        Event::Refused { message } => Some(Err(message)),
        _ => None,
    });
    taken.map_err(|error| not_taken(error.to_string()))?.map_err(not_taken)?;
    let came_of_it = connection.hear_until(|event| match event {
        Event::Audit { id, decision, cause, path, .. } if id == question => Some((decision, cause, path)),
        _ => None,
    });
    // Taken it was; a supervisor that ends right then tells no more.
    let Ok((decision, cause, path)) = came_of_it else { return Ok(()) };
    let path = shown(path.as_bytes());
    if cause == Cause::Failed || (decision == Decision::Allow) != verdict.is_allow() {
        return Err(not_taken(format!("{path} could not be given")));
    }
    say!("{} {path}", if verdict.is_allow() { "allowed" } else { "denied" });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(id: &str, session: Option<&str>) -> AnswerArgs {
        let session = session.map(str::to_owned);
        AnswerArgs { id: id.to_owned(), scope: Scope::File, keep: None, session, yes: false }
    }

    #[test]
    fn a_question_is_named_by_number_or_with_its_session() {
        assert_eq!(Name::parse(&args("3", None)), Some(Name { session: None, id: 3 }));
        assert_eq!(Name::parse(&args("3", Some("0a"))), Some(Name { session: Some("0a"), id: 3 }));
        assert_eq!(Name::parse(&args("0a-1:3", None)), Some(Name { session: Some("0a-1"), id: 3 }));
        for bad in ["", "x", "0a-1:", "0a-1:-3", "3:x", "3 4"] {
            assert_eq!(Name::parse(&args(bad, None)), None, "{bad}");
        }
    }
}
