//! Everybody who can answer a question, put together: the desk and the user's terminal. Owns nothing: the desk is the
//! session's, the terminal the relay's. The one place where the loop in `supervisor`, the faces and the gate meet.

use std::os::fd::AsFd;
use std::path::Path;

use cofferdam_gate::protocol::{PolicyScope, SessionStatus};
use cofferdam_gate::{Cause, Keep, Question, QuestionId, Settled, Verdict};
use cofferdam_plan::Trigger;
use rustix::io::Errno;

use crate::attach::{Attached, MOST_ATTACHED};
use crate::desk::{self, ClientId, Desk, Said, Wish};
use crate::supervisor::{End, Running};

/// What is kept in mind of a session to be saved on request.
const MOST_GRANTED: usize = 1000;

impl Running<'_> {
    /// From now on there is somebody to ask. To be called before the first output.
    pub(crate) fn open_faces(&mut self, directory: &Path, hook: Option<&[String]>) -> Result<(), Errno> {
        self.open_desk(directory, hook)?;
        self.relay.as_mut().map_or(Ok(()), crate::relay::Relay::answer_here)
    }

    /// Where somebody outside can see to the session.
    pub(crate) fn open_desk(&mut self, directory: &Path, hook: Option<&[String]>) -> Result<(), Errno> {
        self.desk = Some(Desk::open(directory, self.log.session(), hook)?);
        Ok(())
    }

    /// Everybody is told of a question, new or changed, unless this process has an answer itself.
    pub(crate) fn ask(&mut self, question: &Question) -> Result<(), Errno> {
        if let Some(verdict) = self.options.decider.as_ref().and_then(|decider| (decider.0)(question)) {
            return self.answered(question.id, verdict, Cause::Person);
        }
        if let Some(desk) = &mut self.desk {
            desk.ask(question);
        }
        let session = self.log.session().to_owned();
        self.relay.as_mut().map_or(Ok(()), |relay| relay.ask(&session, question))
    }

    /// Everybody is told how a question ended.
    pub(crate) fn settled(&mut self, settled: &Settled) -> Result<(), Errno> {
        self.keep(settled);
        if let Some(desk) = &mut self.desk {
            desk.settled(settled);
        }
        self.relay.as_mut().map_or(Ok(()), |relay| relay.settled(settled.question.id))
    }

    /// An answer that is to outlive the session goes to the policy of its scope.
    fn keep(&mut self, settled: &Settled) {
        let is_answer = matches!(settled.cause, Cause::Person | Cause::Hook);
        let (Verdict::Allow { keep, .. } | Verdict::Deny { keep, .. }) = settled.verdict;
        if is_answer && keep >= Keep::Project {
            self.keep_answer(settled);
        } else if is_answer && keep == Keep::Session && settled.verdict.is_allow() && self.granted.len() < MOST_GRANTED
        {
            self.granted.push(settled.clone());
        }
    }

    /// Writes what was granted for this session so far to a policy.
    fn save(&mut self, client: ClientId, scope: PolicyScope) {
        let keep = match scope {
            PolicyScope::User => Keep::User,
            PolicyScope::Project => Keep::Project,
            PolicyScope::Org => Keep::Org,
        };
        let answers: Vec<Settled> = std::mem::take(&mut self.granted)
            .into_iter()
            .map(|settled| {
                let (Verdict::Allow { reach, .. } | Verdict::Deny { reach, .. }) = settled.verdict;
                Settled { verdict: Verdict::Allow { reach, keep }, ..settled }
            })
            .collect();
        if answers.is_empty() {
            if let Some(desk) = &mut self.desk {
                desk.refuse(client, "nothing was granted for this session");
            }
            return;
        }
        self.keep_all(answers, Some(client));
    }

    pub(crate) fn hear(&mut self, ready: desk::Ready) -> Result<(), Errno> {
        let said = self.desk.as_mut().map_or(Ok(Vec::new()), |desk| desk.turn(ready))?;
        said.into_iter().try_for_each(|said| self.obey(said))
    }

    /// What was answered on the terminal.
    pub(crate) fn take_answers(&mut self) -> Result<(), Errno> {
        let answers = self.relay.as_mut().map(crate::relay::Relay::answers).unwrap_or_default();
        answers.into_iter().try_for_each(|(id, verdict)| self.answered(id, verdict, Cause::Person))
    }

    fn obey(&mut self, said: Said) -> Result<(), Errno> {
        let status = match said {
            Said::Status(_) => Some(self.status()),
            _ => None,
        };
        match (said, &mut self.desk) {
            (Said::Answer { id, verdict, cause }, _) => self.answered(id, verdict, cause)?,
            (Said::Kill, _) => self.end(End::Killed { signal: rustix::process::Signal::KILL.as_raw() })?,
            (Said::Save(client, scope), _) => self.save(client, scope),
            (Said::Attach(client), Some(_)) => self.take_in(client),
            (Said::Status(client), Some(desk)) => desk.status(client, status.unwrap_or_default()),
            (Said::Status(_) | Said::Attach(_), None) => {}
        }
        Ok(())
    }

    /// A further command of the session, for somebody who came with streams for it.
    fn take_in(&mut self, client: ClientId) {
        let Some(wish) = self.desk.as_mut().and_then(|desk| desk.take_wish(client)) else { return };
        let started = self.attach(&wish);
        let Some(desk) = &mut self.desk else { return };
        match started {
            Ok(()) => desk.ok(client, ""),
            Err(why) => desk.refuse(client, &why),
        }
    }

    fn attach(&mut self, wish: &Wish) -> Result<(), String> {
        if self.plan.gate.as_ref().is_some_and(|gate| gate.trigger == Trigger::Notify) {
            return Err(
                "a session that asks by reported system calls cannot be attached to: /dev/fuse is missing".to_owned()
            );
        }
        if self.attached.len() >= MOST_ATTACHED {
            return Err("too many commands are attached already".to_owned());
        }
        let namespaces = self.namespaces.as_ref().ok_or("the session is not set up, or has no sandbox")?;
        let attached = Attached::start(self.plan, namespaces, self.cgroup.as_ref().map(AsFd::as_fd), wish);
        self.was_joined = true;
        self.attached.push(attached.map_err(|errno| format!("cannot start a process ({errno})"))?);
        self.log().attached(&wish.argv);
        Ok(())
    }

    /// The gate's to settle; an answer that comes too late meets nothing there.
    fn answered(&mut self, id: QuestionId, verdict: Verdict, cause: Cause) -> Result<(), Errno> {
        if self.answer_about_host(id, verdict, cause)? {
            return Ok(());
        }
        self.gate.as_mut().map_or(Ok(false), |gate| gate.answer(id, verdict, cause)).map(drop)
    }

    fn status(&self) -> SessionStatus {
        let seen = self.watch.last;
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
            open_questions: self.desk.as_ref().map_or(0, Desk::open_questions),
        }
    }
}
