//! Execs and the order in the loop: starts what clients ask for, tells them what they wait for, and ends the session when its order
//! says so.

use std::os::fd::AsFd;

use cofferdam_audit as audit;
use cofferdam_kernel::{best_effort, socket};
use cofferdam_wire::End;
use cofferdam_wire::exec::{ExecEnd, ExecId, ExecRequest};
use cofferdam_wire::order::Lifetime;
use cofferdam_wire::protocol::{Event, SessionStatus, line};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::approvals::control_socket::ClientId;
use crate::event_loop::Running;
use crate::execs::linger::Lingering;
use crate::execs::{self, NotStarted};

impl Running<'_> {
    /// The walls stand: the first exec starts, and the client is told.
    pub(super) fn begin_order(&mut self) -> Result<(), Errno> {
        let Some(ordered) = &self.options.ordered else { return Ok(()) };
        self.finish_startup()?;
        if self.approvals.control.is_none() {
            let why = "no client could reach the session: its directory or its socket cannot be made".to_owned();
            return self.refuse_order(NotStarted { why, code: execs::NOT_STARTED });
        }
        match ordered.exec.as_ref().map(|request| self.exec(request)) {
            Some(Ok(exec)) => self.execs.first = Some(exec),
            Some(Err(why)) => return self.refuse_order(NotStarted { why, code: execs::NOT_STARTED }),
            None => self.tell_started(),
        }
        Ok(())
    }

    fn refuse_order(&mut self, failed: NotStarted) -> Result<(), Errno> {
        let end = End::Exited { code: i32::from(failed.code) };
        self.execs.failed = Some(failed);
        self.end(end)
    }

    fn tell_started(&mut self) {
        let Some(ordered) = &self.options.ordered else { return };
        let directory = self.startup.directory.as_ref().map(|directory| directory.path.clone()).unwrap_or_default();
        let event = Event::Started { session: self.log.session().to_owned(), directory };
        best_effort(socket::send_now(ordered.client.as_fd(), &line(&event)), "who is gone needs no word");
    }

    /// A command became a program, or could not.
    pub(super) fn executed(&mut self, exec: ExecId) -> Result<(), Errno> {
        if self.execs.is_program(exec)? && self.execs.first == Some(exec) {
            self.tell_started();
        }
        Ok(())
    }

    pub(super) fn exec_for(&mut self, client: ClientId, request: &ExecRequest) {
        let event = match self.exec(request) {
            Ok(exec) => Event::Exec { exec },
            Err(message) => Event::Refused { message },
        };
        if let Some(control) = &mut self.approvals.control {
            control.tell(client, &event);
        }
    }

    fn exec(&mut self, request: &ExecRequest) -> Result<ExecId, String> {
        if self.options.ordered.is_none() {
            return Err(
                "this session belongs to its terminal: `sandbox attach` starts a further command in it".to_owned()
            );
        }
        if self.ending.reason.is_some() {
            return Err("the session is ending".to_owned());
        }
        if self.is_putting_back() {
            return Err("a step of the session is being taken back: try again".to_owned());
        }
        request.check()?;
        let (made, join) = self.execs.make(request).map_err(|errno| format!("no streams for it: {errno}"))?;
        let subject = self.checked_subject(&join)?;
        let cgroup = self.first.cgroup.as_ref().map(AsFd::as_fd);
        self.attached.start(self.plan, cgroup, &join, (Some(made.id()), subject))?;
        self.log().exec_started(&request.argv, made.id());
        Ok(self.execs.add(made))
    }

    /// Once in each turn.
    pub(super) fn see_to_execs(&mut self) -> Result<(), Errno> {
        if let Some(control) = &mut self.approvals.control {
            self.execs.take_told().into_iter().for_each(|(client, event)| control.tell(client, &event));
            self.execs.forget_clients(|client| control.has(client));
        }
        let Some(ordered) = &self.options.ordered else { return Ok(()) };
        if self.execs.is_over_limit() && self.ending.reason.is_none() {
            let limit = self.plan.limits.output.unwrap_or(0);
            self.log().named_limit(audit::Event::ResourceLimitExceeded, "output", limit);
            self.end(End::OutputLimit)?;
        }
        match (ordered.lifetime, self.execs.first.and_then(|first| self.execs.end_of(first))) {
            (_, Some(ExecEnd::NotStarted { why, code })) if self.execs.failed.is_none() => {
                let failed = NotStarted { why: why.clone(), code: *code };
                self.refuse_order(failed)?;
            }
            (Lifetime::WithFirstExec { .. }, Some(ExecEnd::TimedOut)) => self.end(End::TimedOut)?,
            (Lifetime::WithFirstExec { .. }, Some(end)) => {
                self.end(End::Exited { code: i32::from(end.exit_code()) })?;
            }
            _ => {}
        }
        // It was told to end, and what ran had its time.
        if self.ending.reason.is_some() && !self.execs.is_any_running() {
            self.first.kill()?;
        }
        Ok(())
    }

    /// Whether a signal that asks this process to end is for the execs, which then end before the session does.
    pub(super) fn end_order(&mut self, signal: Signal) -> bool {
        if self.options.ordered.is_none() {
            return false;
        }
        self.ending.reason.get_or_insert(End::Killed { signal: signal.as_raw() });
        self.execs.end_all(signal);
        true
    }

    /// The client whose order it is says nothing more; when it is gone the session ends, where the order says so.
    pub(super) fn hear_order_client(&mut self) {
        let Some(ordered) = &self.options.ordered else { return };
        match socket::receive_now(&ordered.client) {
            Ok((bytes, _)) if !bytes.is_empty() => {}
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => {
                self.is_client_gone = true;
                if self.ending.reason.is_none() {
                    self.execs.end_all(Signal::HUP);
                }
                self.ending.reason.get_or_insert(End::ClientGone);
            }
        }
    }

    /// What is left to be done for readers, once everything else is let go.
    pub(crate) fn lingering(mut self, session: &str) -> Option<Lingering> {
        if let Some(reason) = self.ending.reason {
            self.execs.session_ends(reason);
        }
        let lifetime = self.options.ordered.as_ref()?.lifetime;
        let status = SessionStatus { session: session.to_owned(), processes: None, ..self.status() };
        let was_told = matches!(self.ending.reason, Some(End::Killed { .. } | End::ClientGone));
        let was_ended = was_told || self.execs.failed.is_some();
        let control = self.approvals.control?;
        Some(Lingering { control, execs: self.execs, signals: self.signals, status, lifetime, was_ended })
    }
}
