//! Questions in the loop: each goes to the clients of the control socket and to the user's terminal, and the first answer to
//! the gate. Also what clients ask besides: to save answers, to end the session, to start a further command.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use cofferdam_host::written;
use cofferdam_launcher::join::JoinRequest;
use cofferdam_wire::End;
use cofferdam_wire::protocol::{PolicyScope, SessionStatus};
use cofferdam_wire::session::LifeCycle;
use cofferdam_wire::{Cause, Keep, Question, QuestionId, Reach, Settled, Verdict};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};

use crate::approvals::control_socket::{self, ClientId, ControlSocket, Said};
use crate::approvals::prompt::panel;
use crate::event_loop::Running;
use crate::terminal::relay::Relay;

/// What is kept in mind of a session to be saved on request.
const MOST_GRANTED: usize = 1000;

/// What the workload writes to a pipe can reach the terminal through a program there, past the relay: it could paint another question
/// over the one that is asked.
fn leads_to_programs(stream: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstat(stream).map(|stat| FileType::from_raw_mode(stat.st_mode));
    !matches!(kind, Ok(FileType::RegularFile | FileType::CharacterDevice))
}

impl Running<'_> {
    /// From now on there is a person or a hook to ask. To be called before the first output.
    pub(crate) fn open_approvals(&mut self, directory: &Path, hook: Option<&[String]>) -> Result<(), Errno> {
        self.open_control_socket(directory, hook)?;
        if !self.options.descriptors.is_empty() || [stdout(), stderr()].into_iter().any(leads_to_programs) {
            return Ok(());
        }
        let bell = self.plan.gate.as_ref().is_some_and(|gate| gate.notices.bell);
        self.streams.relay.as_mut().map_or(Ok(()), |relay| relay.answer_here(bell))
    }

    /// Where a client outside can see to the session.
    pub(crate) fn open_control_socket(&mut self, directory: &Path, hook: Option<&[String]>) -> Result<(), Errno> {
        self.approvals.control = Some(ControlSocket::open(directory, self.log.session(), hook)?);
        Ok(())
    }

    /// Clients and terminal are told of a question, new or changed, unless this process has an answer itself.
    pub(crate) fn ask(&mut self, question: &Question) -> Result<(), Errno> {
        if let Some(verdict) = self.options.decider.as_ref().and_then(|decider| (decider.0)(question)) {
            return self.settle_question(question.id, verdict, Cause::Person).map(drop);
        }
        if let Some(control) = &mut self.approvals.control {
            control.ask(question);
        }
        let session = self.log.session().to_owned();
        if self.plan.gate.as_ref().is_some_and(|gate| gate.notices.desktop && gate.hook.is_none()) {
            self.approvals.desktop.tell(question, &panel::notice(&session, question));
        }
        self.tell_waiting(&session, question)?;
        self.streams.relay.as_mut().map_or(Ok(()), |relay| relay.ask(&session, question))
    }

    /// Where errors go to no terminal, one line says that the session waits: it would be silent until the answer. A hook is no
    /// person who has to be told.
    fn tell_waiting(&mut self, session: &str, question: &Question) -> Result<(), Errno> {
        let has_hook = self.plan.gate.as_ref().is_some_and(|gate| gate.hook.is_some());
        let is_told = question.id <= self.approvals.told;
        if is_told || has_hook || self.plan.terminal.stderr || self.options.ordered.is_some() {
            return Ok(());
        }
        self.approvals.told = question.id;
        self.streams.tell(&panel::notice(session, question), self.plan.terminal)
    }

    /// Clients and terminal are told how a question ended.
    pub(crate) fn settled(&mut self, settled: &Settled) -> Result<(), Errno> {
        self.keep(settled);
        let writes_all =
            matches!(settled.verdict, Verdict::Allow { reach: Reach::Dir, .. }) && settled.question.op.is_write();
        if let Some(state) = self.options.state.as_deref().filter(|_| writes_all) {
            written::remember(state, settled.granted.iter().map(PathBuf::as_path));
        }
        if let Some(control) = &mut self.approvals.control {
            control.settled(settled);
        }
        self.streams.relay.as_mut().map_or(Ok(()), |relay| relay.settled(settled.question.id))
    }

    /// An answer that is to outlive the session goes to the policy of its scope.
    fn keep(&mut self, settled: &Settled) {
        let is_answer = matches!(settled.cause, Cause::Person | Cause::Hook);
        let (Verdict::Allow { reach, keep } | Verdict::Deny { reach, keep }) = settled.verdict;
        // A group of files is for the session: there is nothing to be saved later.
        let is_of_files = reach == Reach::Group && settled.question.op.is_about_files();
        if is_answer && keep >= Keep::Project {
            self.keep_answer(settled);
        } else if is_answer
            && keep == Keep::Session
            && settled.verdict.is_allow()
            && !is_of_files
            && self.approvals.granted.len() < MOST_GRANTED
        {
            self.approvals.granted.push(settled.clone());
        }
    }

    /// Writes what was granted for this session so far to a policy.
    fn save(&mut self, client: ClientId, scope: PolicyScope) {
        let keep = match scope {
            PolicyScope::User => Keep::User,
            PolicyScope::Project => Keep::Project,
            PolicyScope::Org => Keep::Org,
        };
        let answers: Vec<Settled> = std::mem::take(&mut self.approvals.granted)
            .into_iter()
            .map(|settled| {
                let (Verdict::Allow { reach, .. } | Verdict::Deny { reach, .. }) = settled.verdict;
                Settled { verdict: Verdict::Allow { reach, keep }, ..settled }
            })
            .collect();
        if answers.is_empty() {
            if let Some(control) = &mut self.approvals.control {
                control.refuse(client, "nothing was granted for this session");
            }
            return;
        }
        self.keep_all(answers, Some(client));
    }

    pub(crate) fn hear(&mut self, ready: control_socket::Ready) -> Result<(), Errno> {
        let said = self.approvals.control.as_mut().map_or(Ok(Vec::new()), |control| control.turn(ready))?;
        said.into_iter().try_for_each(|said| self.obey(said))
    }

    /// What was answered on the terminal.
    pub(crate) fn take_answers(&mut self) -> Result<(), Errno> {
        let answers = self.streams.relay.as_mut().map(Relay::answers).unwrap_or_default();
        answers.into_iter().try_for_each(|(id, verdict)| self.answered(id, verdict, Cause::Person))
    }

    fn obey(&mut self, said: Said) -> Result<(), Errno> {
        if let (Said::Output { client, .. } | Said::Wait(client, _), None, Some(control)) =
            (&said, &self.options.ordered, &mut self.approvals.control)
        {
            control.refuse(*client, "this session was not detached: its output is where it was started");
            return Ok(());
        }
        let status = match said {
            Said::Status(_) => Some(self.status()),
            _ => None,
        };
        match (said, &mut self.approvals.control) {
            (Said::Answer { id, verdict, cause }, _) => self.answered(id, verdict, cause)?,
            (Said::Kill, _) => self.end(End::Killed { signal: rustix::process::Signal::KILL.as_raw() })?,
            (Said::Save(client, scope), _) => self.save(client, scope),
            (Said::Attach(client), Some(_)) => self.take_in(client),
            (Said::Status(client), Some(control)) => control.status(client, status.unwrap_or_default()),
            (Said::Status(_) | Said::Attach(_), None) => {}
            (Said::Checkpoint { client, label }, _) => self.checkpoint_for(client, label),
            (Said::PutBack { client, to, seen }, _) => self.put_back_for(client, to, seen),
            (Said::Exec(client, request), _) => self.exec_for(client, &request),
            (Said::Output { client, exec, stream, from, follow }, _) => {
                self.execs.read(client, exec, stream, from, follow);
            }
            (Said::Wait(client, exec), _) => self.execs.wait(client, exec),
            (Said::Input { client, exec, data, end }, Some(control)) => {
                if let Err(why) = self.execs.give(client, exec, data, end) {
                    control.refuse(client, &why);
                }
            }
            (Said::Signal { client, exec, signal }, Some(control)) => match self.execs.signal(exec, signal) {
                Ok(()) => control.ok(client, ""),
                Err(why) => control.refuse(client, &why),
            },
            (Said::Input { .. } | Said::Signal { .. }, None) => {}
        }
        Ok(())
    }

    /// A further command of the session, for a client that came with streams for it.
    fn take_in(&mut self, client: ClientId) {
        let Some(request) = self.approvals.control.as_mut().and_then(|control| control.take_join_request(client))
        else {
            return;
        };
        let started = self.attach(&request);
        let Some(control) = &mut self.approvals.control else { return };
        match started {
            Ok(()) => control.ok(client, ""),
            Err(why) => control.refuse(client, &why),
        }
    }

    fn attach(&mut self, request: &JoinRequest) -> Result<(), String> {
        if self.is_putting_back() {
            return Err("a step of the session is being taken back: try again".to_owned());
        }
        let subject = self.checked_subject(request)?;
        let cgroup = self.first.cgroup.as_ref().map(AsFd::as_fd);
        self.attached.start(self.plan, cgroup, request, (None, subject))?;
        self.log().attached(&request.argv);
        Ok(())
    }

    /// The gate's to settle; an answer that comes too late meets nothing there.
    fn settle_question(&mut self, id: QuestionId, verdict: Verdict, cause: Cause) -> Result<bool, Errno> {
        Ok(self.answer_about_host(id, verdict, cause)?
            || self.gate.as_mut().map_or(Ok(false), |gate| gate.answer(id, verdict, cause))?)
    }

    /// From outside.
    fn answered(&mut self, id: QuestionId, verdict: Verdict, cause: Cause) -> Result<(), Errno> {
        let is_known = self.settle_question(id, verdict, cause)?;
        if let Some(gate) = self.gate.as_mut().filter(|_| is_known && cause == Cause::Person) {
            gate.answered_by_person();
        }
        Ok(())
    }

    pub(crate) fn status(&self) -> SessionStatus {
        let seen = self.monitor.last;
        let some = |value: u64| Some(value).filter(|value| *value > 0);
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a session fit a float")]
        let cpu_seconds = some(seen.cpu_micros).map(|micros| micros as f64 / 1e6);
        SessionStatus {
            session: self.log.session().to_owned(),
            pid: std::process::id(),
            argv: self.plan.command.argv.clone(),
            cwd: self.plan.command.cwd.display().to_string(),
            started: self.started,
            processes: some(seen.processes),
            memory: some(seen.memory),
            cpu_seconds,
            open_questions: self.approvals.control.as_ref().map_or(0, ControlSocket::open_questions),
            state: Some(self.life_cycle()),
            execs: self.execs.status(),
        }
    }

    fn life_cycle(&self) -> LifeCycle {
        let has_command = self.set_up.socket.is_none() && self.set_up.reports.is_empty();
        match self.ending.reason {
            Some(end) => LifeCycle::after(end),
            None if !self.set_up.is_done(self.plan) => LifeCycle::Created,
            None if !has_command => LifeCycle::Initialized,
            None if !self.startup.is_done() => LifeCycle::Running,
            None => LifeCycle::Monitoring,
        }
    }
}
