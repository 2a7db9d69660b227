//! `sandbox attach`: a further command in a session that runs. Owns the request and what is told about its end; joining is
//! `supervisor`'s, on both sides.

use std::process::ExitCode;

use cofferdam_host::state::sessions_in;
use cofferdam_supervisor::Visit;
use cofferdam_wire::protocol::{Command, Event};
use cofferdam_wire::session::Session;
use thiserror::Error;

use crate::args::sessions::AttachArgs;
use crate::client::Connection;
use crate::commands::sessions::{SessionError, own_session};
use crate::render::output::{escaped, say};

/// Why no further command was started.
#[derive(Debug, Error)]
pub(crate) enum AttachError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("cannot start a command in session {id}")]
    Start {
        id: String,
        #[source]
        source: std::io::Error,
    },
}

/// The session ended, and the command with it.
const KILLED: u8 = 137;

pub(crate) fn attach(args: &AttachArgs) -> Result<ExitCode, AttachError> {
    let (state, Session { id: session, .. }) = own_session(&args.session)?;
    let argv = if args.argv.is_empty() { vec![shell()] } else { args.argv.clone() };
    let failed = |source: std::io::Error| AttachError::Start { id: session.clone(), source };
    let visit = Visit::new().map_err(|error| failed(std::io::Error::other(error)))?;
    let mut connection = Connection::wait_for(&sessions_in(&state), &session, "attach").map_err(failed)?;
    let command = Command::Attach { argv, terminal: visit.terminal() };
    let said = connection.say_with(&command, &visit.descriptors());
    // A client that was refused when it connected cannot send any more, but may have been told why.
    let taken = connection.hear_until(|event| match event {
        Event::Done { .. } => Some(Ok(())),
        Event::Refused { message } => Some(Err(std::io::Error::other(message))),
        Event::End {} => Some(Err(std::io::ErrorKind::UnexpectedEof.into())),
        _ => None,
    });
    match (taken, said) {
        (Ok(taken), _) => taken.map_err(failed)?,
        (Err(error), said) => return Err(failed(said.err().unwrap_or(error))),
    }
    drop(connection);
    let end = visit.stay().map_err(|errno| failed(errno.into()))?;
    if let Some(failure) = &end.failure {
        say!("sandbox: {}", escaped(failure));
    }
    if end.code.is_none() {
        say!("sandbox: session {} has ended", escaped(&session));
    }
    Ok(ExitCode::from(end.code.unwrap_or(KILLED)))
}

fn shell() -> String {
    std::env::var("SHELL").ok().filter(|shell| shell.starts_with('/')).unwrap_or_else(|| "/bin/sh".to_owned())
}
