//! A program of the user's that answers questions: started once for each, with the question as JSON on its stdin, and one
//! command as its whole answer. Owns these processes until they are reaped; no shell, no waiting. Anything but a proper
//! answer and exit code 0 is no answer. Called by `control_socket`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Stdio};

use cofferdam_wire::QuestionId;
use cofferdam_wire::protocol::{Command, MOST_COMMAND_BYTES, command};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions};

use crate::user_program;

/// Most that run at the same time; further questions wait for their turn.
const MOST_RUNNING: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A hook wrote something or ended.
    Question(QuestionId),
    /// One that the supervisor does not wait for any more ended.
    Ended,
}

pub(super) struct Hooks {
    argv: Vec<String>,
    running: Vec<Hook>,
    queue: VecDeque<(QuestionId, Vec<u8>)>,
    /// Killed, to be reaped.
    ending: Vec<Process>,
}

struct Hook {
    id: QuestionId,
    process: Process,
    /// Until its end.
    output: Option<OwnedFd>,
    said: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
}

struct Process {
    child: Child,
    pidfd: OwnedFd,
}

impl Hooks {
    /// The program is an absolute path or a name to be found in PATH: what a relative one means depends on the project.
    pub(super) fn new(argv: &[String]) -> Result<Self, Errno> {
        let program = argv.first().filter(|program| program.starts_with('/') || !program.contains('/'));
        if program.is_none_or(String::is_empty) {
            return Err(Errno::INVAL);
        }
        Ok(Hooks { argv: argv.to_vec(), running: Vec::new(), queue: VecDeque::new(), ending: Vec::new() })
    }

    pub(super) fn wanted(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Ready)> {
        let running = self.running.iter().flat_map(|hook| {
            let ready = Ready::Question(hook.id);
            let output = hook.output.as_ref().map(|output| (output.as_fd(), ready));
            output.into_iter().chain([(hook.process.pidfd.as_fd(), ready)])
        });
        running.chain(self.ending.iter().map(|process| (process.pidfd.as_fd(), Ready::Ended)))
    }

    pub(super) fn ask(&mut self, id: QuestionId, question: Vec<u8>) {
        self.queue.push_back((id, question));
        self.start_next();
    }

    /// The supervisor does not need the answer any more.
    pub(super) fn over(&mut self, id: QuestionId) {
        self.queue.retain(|(queued, _)| *queued != id);
        if let Some(at) = self.running.iter().position(|hook| hook.id == id) {
            self.end(at);
        }
    }

    /// The answer of a hook that has ended, if it gave one.
    pub(super) fn turn(&mut self, ready: Ready) -> Result<Option<Command>, Errno> {
        self.ending.retain_mut(|process| !matches!(process.child.try_wait(), Ok(Some(_))));
        let Ready::Question(id) = ready else { return Ok(None) };
        let Some(at) = self.running.iter().position(|hook| hook.id == id) else { return Ok(None) };
        let hook = &mut self.running[at];
        let ended = hook.process.look()?;
        // After the look at its end: what it wrote before is there now.
        hook.listen();
        let is_too_long = hook.said.len() > MOST_COMMAND_BYTES;
        if ended.is_none() && !is_too_long {
            return Ok(None);
        }
        let answer = hook.answer().filter(|_| ended == Some(Ended::Well) && !is_too_long);
        self.end(at);
        Ok(answer)
    }

    fn end(&mut self, at: usize) {
        let mut hook = self.running.swap_remove(at);
        user_program::kill_group(&hook.process.child);
        if !matches!(hook.process.child.try_wait(), Ok(Some(_))) {
            self.ending.push(hook.process);
        }
        self.start_next();
    }

    fn start_next(&mut self) {
        while self.running.len() < MOST_RUNNING {
            let Some((id, question)) = self.queue.pop_front() else { return };
            // One that does not start does not answer.
            if let Ok(hook) = Hook::start(&self.argv, id, &question) {
                self.running.push(hook);
            }
        }
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.queue.clear();
        while !self.running.is_empty() {
            self.end(self.running.len() - 1);
        }
    }
}

impl Hook {
    fn start(argv: &[String], id: QuestionId, question: &[u8]) -> Result<Hook, std::io::Error> {
        let mut child = user_program::command(argv, question)?.stdout(Stdio::piped()).spawn()?;
        let pid = user_program::pid_of(&child).ok_or(Errno::SRCH)?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let output = child.stdout.take().map(OwnedFd::from);
        if let Some(output) = &output {
            rustix::fs::fcntl_setfl(output, OFlags::NONBLOCK)?;
        }
        Ok(Hook { id, process: Process { child, pidfd }, output, said: Vec::new() })
    }

    fn listen(&mut self) {
        let mut buffer = [0u8; 4096];
        while let Some(output) = self.output.as_ref().filter(|_| self.said.len() <= MOST_COMMAND_BYTES) {
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => self.output = None,
                Ok(count) => self.said.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.output = None,
            }
        }
    }

    /// One line, an answer to this question.
    fn answer(&self) -> Option<Command> {
        let line = self.said.strip_suffix(b"\n").unwrap_or(&self.said);
        let answer = command(line).ok().filter(|_| !line.contains(&b'\n'))?;
        answer.verdict().is_some_and(|(id, _)| id == self.id).then_some(answer)
    }
}

impl Process {
    /// Whether it has ended. It is not reaped: until then its number, and that of its group, are no other process's.
    fn look(&self) -> Result<Option<Ended>, Errno> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Err(Errno::INTR) => None,
            other => other?,
        };
        Ok(status.map(|status| if status.exit_status() == Some(0) { Ended::Well } else { Ended::Badly }))
    }
}
