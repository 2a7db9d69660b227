//! `sandbox output`: what a command wrote whose output its supervisor keeps. Owns the reading and where the bytes go; what is kept is
//! `supervisor::execs`'s.

use std::io::{Error, ErrorKind, Write as _};
use std::process::ExitCode;

use cofferdam_host::state::sessions_in;
use cofferdam_wire::exec::{ExecEnd, ExecId, OutputStream};
use cofferdam_wire::protocol::{Command, Event};
use cofferdam_wire::session::Session;
use rustix::event::{PollFd, PollFlags, poll};
use thiserror::Error;

use crate::args::sessions::OutputArgs;
use crate::client::Connection;
use crate::commands::sessions::{SessionError, own_session};
use crate::render::output::say;

/// Why nothing more is printed.
#[derive(Debug, Error)]
pub(crate) enum OutputError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("cannot read the output of session {id}")]
    Read {
        id: String,
        #[source]
        source: Error,
    },
}

pub(crate) fn output(args: &OutputArgs) -> Result<ExitCode, OutputError> {
    let (state, Session { id: session, .. }) = own_session(&args.session)?;
    let failed = |source: Error| OutputError::Read { id: session.clone(), source };
    let mut connection = Connection::open(&sessions_in(&state), &session, "output").map_err(failed)?;
    let from = args.from.unwrap_or(0);
    let mut reading =
        Reading { exec: args.exec, follow: args.follow, next: [from; 2], gone: [0; 2], open: 0, end: None };
    let printed = reading.print(&mut connection);
    for (stream, gone) in OutputStream::BOTH.into_iter().zip(reading.gone).filter(|(_, gone)| *gone > 0) {
        say!(
            "sandbox: {gone} bytes of {} were not kept; to have all of them, let the command write to a file",
            name(stream)
        );
    }
    match printed {
        // Its own reader went away, which is no error.
        Err(error) if error.kind() == ErrorKind::BrokenPipe && reading.open > 0 => Ok(ExitCode::SUCCESS),
        Err(error) => Err(failed(error)),
        Ok(()) => Ok(reading.end.map_or(ExitCode::SUCCESS, |end| ExitCode::from(end.exit_code()))),
    }
}

struct Reading {
    exec: ExecId,
    follow: bool,
    /// Where each stream goes on, and how much of it was not kept.
    next: [u64; 2],
    gone: [u64; 2],
    /// Streams that are not printed to their end.
    open: usize,
    /// Of a command that is followed.
    end: Option<ExecEnd>,
}

impl Reading {
    fn print(&mut self, connection: &mut Connection) -> Result<(), Error> {
        if self.follow {
            connection.say(&Command::Wait { exec: self.exec })?;
        }
        for stream in OutputStream::BOTH {
            self.open += 1;
            self.ask(connection, stream)?;
        }
        loop {
            for event in connection.hear()? {
                self.take(connection, event)?;
                if self.is_done() {
                    return Ok(());
                }
            }
            let mut fds = [PollFd::new(&*connection, PollFlags::IN)];
            poll(&mut fds, None)?;
        }
    }

    fn is_done(&self) -> bool {
        self.open == 0 && (self.end.is_some() || !self.follow)
    }

    fn ask(&self, connection: &mut Connection, stream: OutputStream) -> Result<(), Error> {
        let from = self.next[stream as usize];
        connection.say(&Command::Output { exec: self.exec, stream, from, follow: self.follow })
    }

    fn take(&mut self, connection: &mut Connection, event: Event) -> Result<(), Error> {
        match event {
            Event::Output { stream, data, ended, .. } => {
                match stream {
                    OutputStream::Stdout => {
                        std::io::stdout().write_all(&data).and_then(|()| std::io::stdout().flush())?;
                    }
                    OutputStream::Stderr => std::io::stderr().write_all(&data)?,
                }
                self.next[stream as usize] += data.len() as u64;
                if ended || data.is_empty() && !self.follow {
                    self.open -= 1;
                    return Ok(());
                }
                self.ask(connection, stream)
            }
            Event::Gone { stream, first_kept, .. } => {
                let next = &mut self.next[stream as usize];
                self.gone[stream as usize] += first_kept.saturating_sub(*next);
                *next = first_kept;
                self.ask(connection, stream)
            }
            Event::ExecEnd { end, .. } => {
                if let ExecEnd::WithSession { end } = &end {
                    let why = serde_json::to_value(end).ok().and_then(|why| why.as_str().map(str::to_owned));
                    let why = why.unwrap_or_else(|| "a limit".to_owned());
                    say!("sandbox: it was ended with its session ({why}); `sandbox logs` says more");
                }
                self.end = Some(end);
                Ok(())
            }
            Event::Refused { message } => Err(Error::other(message)),
            Event::End {} => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    }
}
