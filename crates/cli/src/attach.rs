//! `sandbox attach`: a further command in a session that runs. Owns the request and what is told about its end; joining is
//! `launcher`'s, on both sides.

use std::process::ExitCode;

use cofferdam_gate::protocol::{Command, Event};
use cofferdam_launcher::Visit;

use crate::args::AttachArgs;
use crate::client::Connection;
use crate::output::{escaped, say};
use crate::render::Failure;
use crate::sessions::{one, own_state};

/// The session ended, and the command with it.
const KILLED: u8 = 137;

pub(crate) fn attach(args: &AttachArgs) -> Result<ExitCode, Failure> {
    let state = own_state()?;
    let session = one(&state, &args.session)?.id;
    let argv = if args.argv.is_empty() { vec![shell()] } else { args.argv.clone() };
    let failed = |source: std::io::Error| Failure::Attach { id: session.clone(), source };
    let visit = Visit::new().map_err(|error| failed(std::io::Error::other(error)))?;
    let mut connection = Connection::open(&state.join("sessions"), &session, "attach").map_err(failed)?;
    let command = Command::Attach { argv, terminal: visit.terminal() };
    let said = connection.say_with(&command, &visit.descriptors());
    // Who was refused at the door cannot say anything any more, but may have been told why.
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
