//! When checkpoints of a session's transaction are taken: at the end of an exec, when the workload says so over its pipe, when a child
//! of the session's command has ended, and when an operator asks. Owns what waits for one and the process that copies while the
//! session runs; what a checkpoint is, is `workspace`'s, stopping the session `halt`'s. Part of the supervisor's loop.
//!
//! A checkpoint that cannot be taken is told once and changes nothing else: the transaction can still be reviewed and dropped.

mod children;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::process::{self, Side};
use cofferdam_workspace::Checkpoints;
use cofferdam_workspace::checkpoint::{By, Interrupted, Restored};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::approvals::control_socket::ClientId;
use crate::checkpoints::children::{ChildUse, used_by_children};
use crate::halt::{Halted, RAN, Session};

/// Between two looks whether a child of the command has ended.
const LOOK: Duration = Duration::from_millis(500);
/// A session with more processes than this is looked at less often.
const FEW: usize = 256;
const SELDOM: Duration = Duration::from_secs(5);
/// After a checkpoint that no process asked for, the next such one waits.
const APART: Duration = Duration::from_secs(2);
/// Requests that wait; a workload may write any number of labels.
const MOST_WAITING: usize = 16;
/// Bytes of labels that are taken at once.
const MOST_LABELS: usize = 4096;
/// Between two that the workload asks for; and after one that took long, so many times as long: a workload that asks without end
/// uses a part of one processor.
const BETWEEN: Duration = Duration::from_millis(100);
const TIMES_AS_LONG: u32 = 4;
/// What the process that copies says when nothing has changed.
const NOTHING: i32 = 3;
/// Bytes that are copied while the session stands still: one that writes faster has no checkpoint of that moment.
const MOST_STOPPED: u64 = 256 << 20;
/// A session does not stand still for longer.
const LONGEST: Duration = Duration::from_mins(1);

/// What `poll` has to say about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The workload wrote a label.
    Pipe,
    /// What could be copied while the session runs is copied.
    Copied,
    /// An earlier one is in place.
    PutBack,
}

/// One that is to be taken.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) by: By,
    pub(crate) label: String,
    /// Waits for the answer.
    pub(crate) client: Option<ClientId>,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) request: Request,
    /// `None` where nothing had changed.
    pub(crate) number: Result<Option<usize>, Errno>,
    /// How long the session stood still for it.
    pub(crate) stopped: Duration,
}

/// The process that copies.
#[derive(Debug)]
struct Copier {
    process: OwnedFd,
    request: Request,
    began: Instant,
}

/// The process that puts one back while the session stands still.
struct Putting {
    process: OwnedFd,
    halted: Halted,
    until: Instant,
    to: usize,
    client: ClientId,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct PutBack {
    pub(crate) to: usize,
    pub(crate) client: ClientId,
    /// Names that could not be put back.
    pub(crate) stayed: Result<Vec<PathBuf>, Errno>,
    /// It was begun, and the session goes on with a part of it.
    pub(crate) half: Option<Interrupted>,
}

pub(crate) struct SessionCheckpoints {
    /// Of the transaction.
    directory: PathBuf,
    /// Once the first was asked for.
    all: Option<Checkpoints>,
    /// How the session sees the trees, in the order of the manifest.
    pub(crate) views: Vec<OwnedFd>,
    /// The sandbox's /proc.
    pub(crate) processes: Option<OwnedFd>,
    pub(crate) pipe: Option<OwnedFd>,
    copier: Option<Copier>,
    putting: Option<Putting>,
    waiting: VecDeque<Request>,
    /// What the last look at the session's commands saw of their children.
    seen: Option<Vec<ChildUse>>,
    next_look: Instant,
    /// No checkpoint that no process asked for is taken before.
    not_before: Instant,
    /// None but an operator's.
    rests_until: Instant,
    began: Instant,
    /// That one could not be taken was told.
    pub(crate) has_told: bool,
}

impl SessionCheckpoints {
    pub(crate) fn new(directory: PathBuf) -> Self {
        let now = Instant::now();
        SessionCheckpoints {
            directory,
            all: None,
            views: Vec::new(),
            processes: None,
            pipe: None,
            copier: None,
            putting: None,
            waiting: VecDeque::new(),
            seen: None,
            next_look: now + LOOK,
            not_before: now,
            rests_until: now,
            began: now,
            has_told: false,
        }
    }

    pub(crate) fn wanted(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Ready)> {
        let pipe = self.pipe.iter().map(|pipe| (pipe.as_fd(), Ready::Pipe));
        let copied = self.copier.iter().map(|copier| (copier.process.as_fd(), Ready::Copied));
        pipe.chain(copied).chain(self.putting.iter().map(|putting| (putting.process.as_fd(), Ready::PutBack)))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if let Some(putting) = &self.putting {
            return Some(putting.until);
        }
        let next = self.waiting.front().filter(|_| self.copier.is_none());
        let next = next.map(|request| self.ready_at(request));
        next.into_iter().chain(self.processes.is_some().then_some(self.next_look)).min()
    }

    fn ready_at(&self, request: &Request) -> Instant {
        match request.by {
            By::Child => self.not_before.max(self.rests_until),
            // An operator does not wait.
            By::Operator => self.began,
            _ => self.rests_until,
        }
    }

    /// Whether the session stands still, and must not be let go.
    pub(crate) fn is_putting_back(&self) -> bool {
        self.putting.is_some()
    }

    pub(crate) fn ask(&mut self, request: Request) {
        match request.by {
            By::Child if !self.waiting.is_empty() => {}
            By::Operator => self.waiting.push_front(request),
            _ if self.waiting.len() < MOST_WAITING => self.waiting.push_back(request),
            _ => {}
        }
    }

    /// What the workload wrote: a label on each line.
    pub(crate) fn read_labels(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut buffer = [0u8; MOST_LABELS];
        let length = match rustix::io::read(pipe, &mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok(length) if length > 0 => length,
            // Nothing can be heard there any more.
            _ => return self.pipe = None,
        };
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        for label in text.lines() {
            self.ask(Request { by: By::Workload, label: label.to_owned(), client: None });
        }
    }

    /// What could not even be begun.
    pub(crate) fn check_clock(&mut self, now: Instant) -> Option<Taken> {
        if self.putting.is_some() {
            return None;
        }
        if self.processes.is_some() && now >= self.next_look {
            self.look(now);
        }
        if self.copier.is_some() || self.waiting.front().is_none_or(|request| now < self.ready_at(request)) {
            return None;
        }
        let request = self.waiting.pop_front()?;
        match self.start() {
            Ok(process) => {
                self.copier = Some(Copier { process, request, began: now });
                None
            }
            Err(errno) => {
                self.rests_until = now + APART;
                Some(Taken { request, number: Err(errno), stopped: Duration::ZERO })
            }
        }
    }

    /// Whether a child of one of the session's commands has ended since the last look.
    fn look(&mut self, now: Instant) {
        let Some(processes) = &self.processes else { return };
        // Nothing that can be read of a session that ends says anything.
        let Ok((used, count)) = used_by_children(processes.as_fd()) else {
            self.next_look = now + LOOK;
            return;
        };
        self.next_look = now + if count > FEW { SELDOM } else { LOOK };
        // Before the first look a child may have come and gone.
        let has_children = || used.iter().any(|(_, used)| *used != [0; 4]);
        // A command that came or went is none of its own children.
        let has_lost_one = |seen: &Vec<ChildUse>| {
            let before = |pid: u32| seen.iter().find(|(known, _)| *known == pid);
            used.iter().any(|(pid, now)| before(*pid).is_some_and(|(_, before)| before != now))
        };
        let is_other = self.seen.as_ref().map_or_else(has_children, has_lost_one);
        self.seen = Some(used);
        if is_other {
            self.ask(Request { by: By::Child, label: String::new(), client: None });
        }
    }

    fn start(&mut self) -> Result<OwnedFd, Errno> {
        let all = self.opened()?;
        match process::clone_into(0, None)? {
            Side::Child => {
                let prepared = process::die_with_parent()
                    .and_then(|()| process::keep_only(&all.descriptors()))
                    .and_then(|()| all.prepare());
                process::exit_now(match prepared {
                    Ok(true) => 0,
                    Ok(false) => NOTHING,
                    Err(errno) => 128 | errno.raw_os_error(),
                })
            }
            Side::Parent { pidfd, .. } => Ok(pidfd),
        }
    }

    fn opened(&mut self) -> Result<&mut Checkpoints, Errno> {
        if self.all.is_none() {
            self.all = Some(Checkpoints::open(&self.directory)?);
        }
        self.all.as_mut().ok_or(Errno::NOENT)
    }

    /// The copying process has ended: the rest is copied while the session stands still.
    pub(crate) fn complete(&mut self, session: &Session<'_>) -> Option<Taken> {
        let Copier { process, request, began } = self.copier.take()?;
        if request.by != By::Child {
            // Children that ended before it are in it: one that is noticed later must not lead to another, in the middle of what
            // comes next.
            self.waiting.retain(|waiting| waiting.by != By::Child);
            self.seen = used_by_children(session.processes).ok().map(|(used, _)| used).or(self.seen.take());
        }
        let before = self.not_before;
        let (number, stopped) = match ended_with(process.as_fd()) {
            0 => self.finish(session, &request),
            NOTHING => (Ok(None), Duration::ZERO),
            code => (Err(Errno::from_raw_os_error(code & 127)), Duration::ZERO),
        };
        let number = match number {
            Ok(None) if before > Instant::now() => self.claim_last(&request).map(|()| None),
            other => other,
        };
        if matches!(number, Ok(Some(_))) {
            self.not_before = Instant::now() + APART;
        }
        let took = began.elapsed();
        self.rests_until = Instant::now() + BETWEEN.max(took * TIMES_AS_LONG);
        Some(Taken { request, number, stopped })
    }

    /// Nothing has changed since a moment ago, when a child that ended led to a checkpoint: it is that of what names it now.
    fn claim_last(&mut self, request: &Request) -> Result<(), Errno> {
        match (&mut self.all, request.by) {
            (Some(all), By::Workload | By::Exec) => all.claim_last(request.by, &request.label),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, session: &Session<'_>, request: &Request) -> (Result<Option<usize>, Errno>, Duration) {
        let mut stopped = Duration::ZERO;
        let mut take = || {
            let all = self.opened()?;
            let mut pending = all.prepared()?;
            let halted = session.stop()?;
            let began = Instant::now();
            let copied = all.catch_up_within(&mut pending, MOST_STOPPED);
            let has_held = session.has_held(&halted);
            session.resume(&halted);
            stopped = began.elapsed();
            copied?;
            if !has_held? {
                return Err(RAN);
            }
            all.write_down(pending, request.by, &request.label)
        };
        (take(), stopped)
    }

    /// What is there now becomes a checkpoint, and an earlier one takes its place, by a process of its own: what it touches may be
    /// served by this one. The session stands still until that has ended.
    pub(crate) fn put_back(
        &mut self,
        session: &Session<'_>,
        to: usize,
        seen: Option<usize>,
        client: ClientId,
    ) -> Result<(), Errno> {
        if self.putting.is_some() {
            return Err(Errno::BUSY);
        }
        // What it copies is of no use any more.
        if let Some(copier) = self.copier.take() {
            end(copier.process.as_fd());
            self.waiting.push_front(copier.request);
        }
        if !self.opened()?.has(to) {
            return Err(Errno::NOENT);
        }
        let halted = session.stop()?;
        let started = process::clone_into(0, None);
        match started {
            Ok(Side::Child) => {
                let done = self.put_back_now(to, seen);
                process::exit_now(done.map_or_else(|errno| 128 | errno.raw_os_error(), |_| 0))
            }
            Ok(Side::Parent { pidfd, .. }) => {
                let until = Instant::now() + LONGEST;
                self.putting = Some(Putting { process: pidfd, halted, until, to, client });
                Ok(())
            }
            Err(errno) => {
                session.resume(&halted);
                Err(errno)
            }
        }
    }

    /// In the child.
    fn put_back_now(&mut self, to: usize, seen: Option<usize>) -> Result<Restored, Errno> {
        process::die_with_parent()?;
        let views = std::mem::take(&mut self.views);
        let all = self.opened()?;
        let kept: Vec<BorrowedFd<'_>> = all.descriptors().into_iter().chain(views.iter().map(OwnedFd::as_fd)).collect();
        process::keep_only(&kept)?;
        let pending = all.begin()?;
        all.finish(pending, By::Undo, "before undo")?;
        if seen.is_some_and(|seen| seen != all.last()) {
            return Err(Errno::AGAIN);
        }
        all.put_back_live(to, &views)
    }

    /// That process has ended, or takes too long: the session goes on.
    pub(crate) fn end_put_back(&mut self, session: &Session<'_>) -> Option<PutBack> {
        let Putting { process, halted, until, to, client } = self.putting.take()?;
        if Instant::now() >= until {
            best_effort(pidfd_send_signal(&process, Signal::KILL), "it may have ended");
        }
        let code = ended_with(process.as_fd());
        let has_held = session.has_held(&halted).unwrap_or(false);
        // It has written further records.
        self.all = None;
        let half = if code == 0 { Ok(None) } else { self.opened().and_then(|all| all.go_on()) };
        session.resume(&halted);
        let stayed = match code {
            0 if !has_held => Err(RAN),
            0 => self.opened().map(|all| all.records().last().map(|last| last.stayed.clone()).unwrap_or_default()),
            code => Err(Errno::from_raw_os_error(code & 127)),
        };
        Some(PutBack { to, client, stayed, half: half.ok().flatten() })
    }

    pub(crate) fn is_put_back_late(&self, now: Instant) -> bool {
        self.putting.as_ref().is_some_and(|putting| now >= putting.until)
    }
}

/// A process of our own.
fn end(process: BorrowedFd<'_>) {
    best_effort(pidfd_send_signal(process, Signal::KILL), "it may have ended");
    ended_with(process);
}

impl Drop for SessionCheckpoints {
    fn drop(&mut self) {
        let processes = [self.copier.as_ref().map(|one| &one.process), self.putting.as_ref().map(|one| &one.process)];
        processes.into_iter().flatten().for_each(|process| end(process.as_fd()));
    }
}

fn ended_with(process: BorrowedFd<'_>) -> i32 {
    loop {
        match waitid(WaitId::PidFd(process), WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            Ok(Some(status)) => return status.exit_status().map_or(128 | Errno::IO.raw_os_error(), |code| code),
            _ => return 128 | Errno::CHILD.raw_os_error(),
        }
    }
}
