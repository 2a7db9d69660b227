//! Checkpoints in the loop: what asks for one, and what clients and the log are told of it.

use std::os::fd::AsFd as _;
use std::time::Instant;

use cofferdam_wire::exec::ExecId;
use cofferdam_wire::protocol::WENT_ON;
use cofferdam_workspace::checkpoint::By;
use rustix::io::Errno;

use crate::approvals::control_socket::ClientId;
use crate::checkpoints::{PutBack, Ready, Request, SessionCheckpoints, Taken};
use crate::event_loop::Running;
use crate::halt::{RAN, Session};
use crate::records::redact;

const NO_TRANSACTION: &str = "the session has no transaction: it was not started with `--transaction`";

impl Running<'_> {
    pub(crate) fn hear_checkpoints(&mut self, ready: Ready) -> Result<(), Errno> {
        match ready {
            Ready::Pipe => {
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.read_labels();
                }
                Ok(())
            }
            Ready::Copied => {
                let taken = self.with_session(SessionCheckpoints::complete).flatten();
                if let Some(taken) = taken {
                    self.tell_of_checkpoint(taken);
                }
                Ok(())
            }
            Ready::PutBack => self.end_put_back(),
        }
    }

    /// With what is needed to stop the session.
    fn with_session<T>(&mut self, act: impl FnOnce(&mut SessionCheckpoints, &Session<'_>) -> T) -> Option<T> {
        let mut checkpoints = self.checkpoints.take()?;
        // Without it the session cannot be stopped, and there are none.
        let processes = checkpoints.processes.take()?;
        let session = Session {
            processes: processes.as_fd(),
            first: self.first.as_fd(),
            cgroup: self.first.cgroup.as_ref(),
            has_question: self.gate.as_ref().is_some_and(|gate| gate.open_questions().next().is_some()),
        };
        let done = act(&mut checkpoints, &session);
        checkpoints.processes = Some(processes);
        self.checkpoints = Some(checkpoints);
        Some(done)
    }

    fn tell_of_checkpoint(&mut self, Taken { request, number, stopped }: Taken) {
        match number {
            Ok(Some(number)) => self.log().checkpoint(number, request.by, &request.label, stopped),
            Ok(None) => {}
            Err(errno) => {
                let has_told = self.checkpoints.as_mut().is_none_or(|all| std::mem::replace(&mut all.has_told, true));
                if !has_told && self.ending.reason.is_none() {
                    self.warn(format!(
                        "a checkpoint could not be taken ({}): `sandbox undo` cannot go back to it",
                        why(errno)
                    ));
                }
            }
        }
        let (Some(client), Some(control)) = (request.client, &mut self.approvals.control) else { return };
        match number {
            Ok(number) => control.ok(client, &number.map(|number| number.to_string()).unwrap_or_default()),
            Err(errno) => control.refuse(client, &format!("no checkpoint could be taken: {}", why(errno))),
        }
    }

    pub(super) fn checkpoint_for(&mut self, client: ClientId, label: String) {
        match (&mut self.checkpoints, &mut self.approvals.control) {
            (Some(checkpoints), _) => checkpoints.ask(Request { by: By::Operator, label, client: Some(client) }),
            (None, Some(control)) => control.refuse(client, NO_TRANSACTION),
            (None, None) => {}
        }
    }

    pub(super) fn put_back_for(&mut self, client: ClientId, to: usize, seen: Option<usize>) {
        let begun = self.with_session(|checkpoints, session| checkpoints.put_back(session, to, seen, client));
        let Some(control) = &mut self.approvals.control else { return };
        match begun {
            None => control.refuse(client, NO_TRANSACTION),
            Some(Err(Errno::NOENT)) => control.refuse(client, &format!("there is no checkpoint {to}")),
            Some(Err(errno)) => control.refuse(client, &format!("checkpoint {to} cannot be put back: {errno}")),
            Some(Ok(())) => {}
        }
    }

    pub(super) fn check_checkpoints(&mut self, now: Instant) -> Result<(), Errno> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        if let Some(failed) = checkpoints.check_clock(now) {
            self.tell_of_checkpoint(failed);
        }
        match &self.checkpoints {
            Some(checkpoints) if checkpoints.is_put_back_late(now) => self.end_put_back(),
            _ => Ok(()),
        }
    }

    /// While one is put back the session stands still, and what keeps its covers waits: it would let it go on.
    pub(super) fn is_putting_back(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(SessionCheckpoints::is_putting_back)
    }

    fn end_put_back(&mut self) -> Result<(), Errno> {
        let done = self.with_session(SessionCheckpoints::end_put_back).flatten();
        if let Some(done) = done {
            self.tell_of_put_back(done);
        }
        self.keep_covers()
    }

    fn tell_of_put_back(&mut self, PutBack { to, client, stayed, half }: PutBack) {
        if let Ok(stayed) = &stayed {
            self.log().put_back(to, stayed);
        }
        let left = half.map(|half| {
            format!(
                "checkpoint {0} was put back in part only: `sandbox rollback --to {0}` goes on with it, `sandbox rollback --to {1}` \
                 takes it back",
                half.to, half.before
            )
        });
        if let Some(left) = &left {
            self.warn(left.clone());
        }
        let Some(control) = &mut self.approvals.control else { return };
        match stayed {
            Ok(stayed) if stayed.is_empty() => control.ok(client, ""),
            Ok(stayed) => {
                let stayed: Vec<String> = stayed.iter().map(|path| path.display().to_string()).collect();
                control.ok(client, &format!("left as they are, covered or closed: {}", stayed.join(", ")));
            }
            // What a client knows by this word.
            Err(Errno::AGAIN) => control.refuse(client, WENT_ON),
            Err(RAN) => control.refuse(
                client,
                &format!(
                    "checkpoint {to} was put back, and processes of the session went on meanwhile: what they wrote may be left. \
                     `sandbox undo --preview` tells; undo again, or end the session first"
                ),
            ),
            Err(errno) => {
                let left = left.map(|left| format!("; {left}")).unwrap_or_default();
                control.refuse(client, &format!("checkpoint {to} cannot be put back: {}{left}", why(errno)));
            }
        }
    }

    /// Commands of an order that have ended since the last turn.
    pub(super) fn save_after_execs(&mut self) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        for (exec, argv) in self.execs.take_ended() {
            let label = label(exec, &argv);
            checkpoints.ask(Request { by: By::Exec, label, client: None });
        }
    }
}

/// In words, where the errno is one of ours.
fn why(errno: Errno) -> String {
    match errno {
        RAN => "processes of the session went on while it was stopped".to_owned(),
        other => other.to_string(),
    }
}

fn label(exec: ExecId, argv: &[String]) -> String {
    format!("exec {exec}: {}", redact::command(argv))
}
