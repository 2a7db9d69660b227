//! A session that has ended, and whose output is still to be read: the control socket goes on answering about it, for a bounded time.
//! No process of the session is left. Called by `launch` after the end is recorded.

use std::time::{Duration, Instant};

use cofferdam_kernel::signal::SignalFd;
use cofferdam_kernel::timing::time_until;
use cofferdam_wire::order::Lifetime;
use cofferdam_wire::protocol::SessionStatus;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use crate::approvals::control_socket::{ControlSocket, Ready, Said};
use crate::execs::Execs;
use crate::terminal::drain::asks_to_end;

/// For a client that has begun to read.
const FOR_READERS: Duration = Duration::from_secs(2);

pub(crate) struct Lingering {
    pub(crate) control: ControlSocket,
    pub(crate) execs: Execs,
    pub(crate) signals: SignalFd,
    pub(crate) status: SessionStatus,
    pub(crate) lifetime: Lifetime,
    /// It was told to end, and lingers for those alone that read already.
    pub(crate) was_ended: bool,
}

impl Lingering {
    pub(crate) fn serve(mut self) -> Result<(), Errno> {
        self.execs.finish()?;
        let for_all = match self.lifetime {
            Lifetime::WithFirstExec { linger_seconds } if !self.was_ended => Duration::from_secs(linger_seconds),
            _ => Duration::ZERO,
        };
        let began = Instant::now();
        let until = began + FOR_READERS.max(for_all);
        loop {
            self.tell();
            // Children that were left to the end of this process, as one that closes what takes long.
            while matches!(waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG), Ok(Some(_))) {}
            self.execs.forget_clients(|client| self.control.has(client));
            let is_awaited = self.execs.has_readers() || began.elapsed() < for_all && !self.execs.is_all_read();
            if Instant::now() >= until || !is_awaited && self.control.has_sent_all() {
                return Ok(());
            }
            let (is_asked, ready) = self.wait(until)?;
            if is_asked {
                return Ok(());
            }
            for ready in ready {
                for said in self.control.turn(ready)? {
                    if said == Said::Kill {
                        return Ok(());
                    }
                    self.answer(&said);
                }
            }
            self.control.check_clock(Instant::now());
        }
    }

    fn tell(&mut self) {
        for (client, event) in self.execs.take_told() {
            self.control.tell(client, &event);
        }
    }

    /// Whether this process was asked to end, and what else there is.
    fn wait(&self, until: Instant) -> Result<(bool, Vec<Ready>), Errno> {
        let watched = self.control.wanted();
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(watched.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)));
        let until = self.control.deadline().into_iter().chain([until]).min().unwrap_or(until);
        match poll(&mut fds, Some(&time_until(until))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut is_asked = false;
        while let Some(number) = self.signals.read()? {
            is_asked |= Signal::from_named_raw(number).is_some_and(asks_to_end);
        }
        let ready = fds[1..].iter().zip(&watched).filter(|(fd, _)| !fd.revents().is_empty());
        Ok((is_asked, ready.map(|(_, (_, _, ready))| *ready).collect()))
    }

    fn answer(&mut self, said: &Said) {
        match *said {
            Said::Output { client, exec, stream, from, follow } => self.execs.read(client, exec, stream, from, follow),
            Said::Wait(client, exec) => self.execs.wait(client, exec),
            Said::Status(client) => self.control.status(client, self.status.clone()),
            Said::Exec(client, _)
            | Said::Input { client, .. }
            | Said::Signal { client, .. }
            | Said::Checkpoint { client, .. }
            | Said::PutBack { client, .. }
            | Said::Save(client, _)
            | Said::Attach(client) => self.control.refuse(client, "the session has ended"),
            Said::Kill | Said::Answer { .. } => {}
        }
    }
}
