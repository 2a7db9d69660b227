//! `sandbox checkpoint`, `undo` and `rollback --to`: the steps of a transaction, while its session runs and afterwards. Owns which
//! step is meant and the question before; taking and putting back is `workspace`'s, and the supervisor's while the session
//! runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_supervisor::finish_killed;
use cofferdam_wire::protocol::{Command, Event, WENT_ON};
use cofferdam_workspace::checkpoint::before_commit;
use cofferdam_workspace::{Changes, Checkpoints, OpenError, State, Transaction};
use serde_json::json;

use crate::args::changes::{RollbackArgs, WhichArgs};
use crate::args::checkpoints::{CheckpointArgs, PutBackArgs, UndoArgs};
use crate::client::Connection;
use crate::commands::changes::{ChangesError, in_use, last_committed, meant, undo_commit};
use crate::commands::sessions::keeps_output;
use crate::confirm::is_confirmed;
use crate::environment::{has_terminal, own_state};
use crate::render::checkpoints as lines;
use crate::render::exit::NOT_SO;
use crate::render::output::{print, print_json};
use crate::waiting::Found;

/// What was written since the last checkpoint is copied meanwhile.
const LONGEST_COPY: Duration = Duration::from_mins(2);

/// Which step is meant.
enum To {
    Steps(usize),
    Number(usize),
}

pub(crate) fn checkpoint(args: &CheckpointArgs) -> Result<ExitCode, ChangesError> {
    let found = with_steps(meant(&args.which)?)?;
    let id = found.manifest.session.clone();
    if args.list {
        let all = Checkpoints::open(&found.path).map_err(|source| ChangesError::Read { id: id.clone(), source })?;
        return Ok(if args.json {
            print_json(&json!({ "session": id, "checkpoints": all.records() }))
        } else {
            print(&lines::list(all.records()))
        });
    }
    let Some(mut session) = live(&found) else { return Err(ChangesError::NotRunning { id }) };
    let number = session.call(&Command::Checkpoint { label: args.label.clone().unwrap_or_default() })?;
    let number = number.parse::<usize>().ok();
    Ok(if args.json {
        print_json(&json!({ "session": id, "checkpoint": number }))
    } else {
        let last = || Checkpoints::open(&found.path).map_or(0, |all| all.last());
        print(&number.map_or_else(
            || lines::nothing_new(last(), args.label.as_deref()),
            |number| format!("checkpoint {number}\n"),
        ))
    })
}

pub(crate) fn undo(args: &UndoArgs) -> Result<ExitCode, ChangesError> {
    match put_back(&args.which, &To::Steps(usize::from(args.steps)), &args.how) {
        // Nothing waits in a layer: the last step was the commit.
        Err(ChangesError::Nothing { .. } | ChangesError::Open { source: OpenError::Committed, .. })
            if args.steps == 1 =>
        {
            let found = last_committed(&args.which)?;
            let undone = before_commit(&found.path, &found.manifest)
                .map_err(|source| ChangesError::Read { id: found.manifest.session.clone(), source })?;
            print(&lines::before_commit(&found.manifest, &undone, &here()));
            if args.how.preview {
                return Ok(ExitCode::SUCCESS);
            }
            if !(args.how.yes || has_terminal() && is_wanted(&args.how)) {
                print("nothing was changed; `sandbox undo --yes` does it\n");
                return Ok(ExitCode::from(NOT_SO));
            }
            undo_commit(&found, false)
        }
        other => other,
    }
}

/// A copy is compared with what was copied, and put back by its rollback alone.
fn with_steps(found: Found) -> Result<Found, ChangesError> {
    if found.manifest.trees.iter().any(|tree| tree.is_copy) {
        return Err(ChangesError::OfCopy { id: found.manifest.session });
    }
    Ok(found)
}

/// Asks at a terminal.
fn is_wanted(how: &PutBackArgs) -> bool {
    how.yes || !has_terminal() || is_confirmed("put this back?")
}

pub(crate) fn rollback(args: &RollbackArgs, to: usize) -> Result<ExitCode, ChangesError> {
    put_back(&args.which, &To::Number(to), &PutBackArgs { preview: args.preview, yes: args.yes })
}

/// The session of a transaction, where it runs.
struct Live {
    id: String,
    connection: Connection,
}

fn live(found: &Found) -> Option<Live> {
    let (directory, session) = (found.path.parent()?, found.path.file_name()?.to_str()?);
    let connection = (found.state == State::Open).then(|| Connection::wait_for(directory, session, "undo"))?.ok()?;
    Some(Live { id: found.manifest.session.clone(), connection })
}

impl Live {
    /// What it says to a command that is carried out.
    fn call(&mut self, command: &Command) -> Result<String, ChangesError> {
        let said = self.connection.say(command).and_then(|()| {
            self.connection.hear_for(LONGEST_COPY, |event| match event {
                Event::Done { message } => Some(Ok(message)),
                Event::Refused { message } => Some(Err(message)),
                Event::End {} => Some(Err("the session has ended".to_owned())),
                _ => None,
            })
        });
        let refused = |why: String| {
            let id = self.id.clone();
            if keeps_output(&id) { ChangesError::KeepsOutput { id } } else { ChangesError::Session { id, why } }
        };
        said.map_err(|error| refused(error.to_string()))?.map_err(refused)
    }
}

/// The checkpoints of a transaction of which what is there now is the last, so that what follows can be taken back, too.
fn saved(found: Found) -> Result<(Option<Live>, Checkpoints), ChangesError> {
    let id = found.manifest.session.clone();
    let read = |source| ChangesError::Read { id: id.clone(), source };
    if let Some(mut session) = live(&found) {
        session.call(&Command::Checkpoint { label: "before undo".to_owned() })?;
        return Ok((Some(session), Checkpoints::open(&found.path).map_err(read)?));
    }
    let mut all = match Checkpoints::open_sealed(&sealed(found)?) {
        Err(OpenError::Locked) => return Err(in_use(id)),
        opened => opened.map_err(|source| ChangesError::Open { id: id.clone(), source })?,
    };
    all.take_end().map_err(read)?;
    Ok((None, all))
}

fn put_back(which: &WhichArgs, to: &To, how: &PutBackArgs) -> Result<ExitCode, ChangesError> {
    loop {
        let found = with_steps(meant(which)?)?;
        let id = found.manifest.session.clone();
        let read = |source| ChangesError::Read { id: id.clone(), source };
        let (session, mut all) = saved(found)?;
        let number = match *to {
            To::Steps(steps) => all.before(steps).ok_or(ChangesError::NoStep { steps })?,
            To::Number(number) if all.has(number) => number,
            To::Number(number) => return Err(ChangesError::NoCheckpoint { number }),
        };
        let differences = all.preview(number).map_err(read)?;
        print(&lines::preview(number, &differences, &here()));
        if how.preview || differences.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        if !is_wanted(how) {
            print("nothing was changed\n");
            return Ok(ExitCode::from(NOT_SO));
        }
        let before = all.last();
        let is_running = session.is_some();
        let put_back = match session {
            Some(mut session) => session.call(&Command::PutBack { to: number, seen: Some(before) }),
            None => all.put_back_sealed(number).map(|_| String::new()).map_err(read),
        };
        match put_back {
            // Shown again with what was written meanwhile.
            Err(ChangesError::Session { why, .. }) if why == WENT_ON => print(&format!("{WENT_ON}\n")),
            other => {
                let shown = print(&lines::put_back(&id, before, &other?));
                if !is_running && has_nothing_left(&id) {
                    print(&lines::nothing_left(&id));
                }
                return Ok(shown);
            }
        };
    }
}

fn has_nothing_left(session: &str) -> bool {
    let found = meant(&WhichArgs { session: Some(session.to_owned()) }).ok();
    let changes = found.and_then(|found| Transaction::look(&found.path).ok()?.changes().ok());
    changes.is_some_and(|all: Vec<Changes>| all.iter().all(|found| found.changes.is_empty()))
}

fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_path_buf())
}

/// Where the layers of a session that has ended lie, once what a killed one left was finished.
fn sealed(found: Found) -> Result<PathBuf, ChangesError> {
    if found.state != State::Open {
        return Ok(found.path);
    }
    finish_killed(&own_state()?);
    Ok(meant(&WhichArgs { session: Some(found.manifest.session) })?.path)
}
