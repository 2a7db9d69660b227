//! Questions about hosts: a connection to a place that no rule is about waits in the egress process until somebody decides.
//! Owns which connections wait for which answer, their budget and their clock; whoever answers is the same as for files.
//! Called by `supervisor` and `egress`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_egress::message::Told;
use cofferdam_gate::{Cause, Gate, Keep, News, Op, Question, QuestionId, Settled, Verdict};
use rustix::io::Errno;

use crate::events::seconds_now;
use crate::supervisor::Running;

const MINUTE: Duration = Duration::from_mins(1);

/// A question, and who waits for it.
#[derive(Debug)]
struct Open {
    question: Question,
    /// As the egress process numbers them.
    waiting: Vec<u64>,
    since: Instant,
    until: Instant,
}

/// The open questions of a session about hosts.
#[derive(Debug, Default)]
pub(crate) struct HostQuestions {
    open: Vec<Open>,
    recent: VecDeque<Instant>,
    is_over: bool,
}

/// What is known of whoever asks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// The program's end of its connection.
    Client(Option<SocketAddr>),
    /// Its number as seen from outside.
    Process(Option<u32>),
}

/// One thing that the egress process asks.
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) op: Op,
    /// What is asked about, as it is shown and kept.
    pub(crate) subject: String,
    pub(crate) who: Who,
    pub(crate) hint: Option<String>,
}

impl HostQuestions {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.until).min()
    }

    /// Whether one more may be asked now; the first of a series that may not is told about.
    fn spend(&mut self, now: Instant, per_minute: u32) -> Result<(), bool> {
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= MINUTE) {
            self.recent.pop_front();
        }
        if self.recent.len() >= usize::try_from(per_minute).unwrap_or(usize::MAX) {
            return Err(!std::mem::replace(&mut self.is_over, true));
        }
        self.is_over = false;
        self.recent.push_back(now);
        Ok(())
    }

    fn take(&mut self, id: QuestionId) -> Option<Open> {
        let at = self.open.iter().position(|open| open.question.id == id)?;
        Some(self.open.remove(at))
    }
}

impl Running<'_> {
    /// Somebody is asked, or waits with those who asked before.
    pub(crate) fn ask_about_host(&mut self, asked: Asked) -> Result<(), Errno> {
        let now = Instant::now();
        let path = PathBuf::from(&asked.subject);
        let same = |open: &&mut Open| open.question.path == path && open.question.op == asked.op;
        if let Some(open) = self.hosts.open.iter_mut().find(same) {
            open.waiting.push(asked.id);
            open.question.waiting = u32::try_from(open.waiting.len()).unwrap_or(u32::MAX);
            let question = open.question.clone();
            return self.ask(&question);
        }
        let Some(gate) = &self.plan.gate else { return self.tell_answer(&[asked.id], None, Cause::OnUnknown) };
        if let Err(is_first) = self.hosts.spend(now, gate.per_minute) {
            if is_first {
                self.log().news(&News::OverBudget);
            }
            return self.tell_answer(&[asked.id], None, Cause::Budget);
        }
        let timeout = gate.timeout;
        let first = self.pid.cast_unsigned();
        let looked = match (&self.gate, asked.who) {
            (Some(gate), Who::Client(Some(client))) => Some(gate.connected_from(client.port(), first)),
            (Some(gate), Who::Process(Some(process))) => Some(gate.known_as(process)),
            _ => None,
        };
        let (asker, package) = looked.unwrap_or_default();
        let package = package.map(|package| format!("it says that it works for the package {package}"));
        let question = Question {
            id: self.gate.as_mut().map_or(1, Gate::number),
            op: asked.op,
            path,
            is_dir: false,
            size: 0,
            flags: 0,
            asker,
            toolchain: None,
            also: Vec::new(),
            hint: [asked.hint, package].into_iter().flatten().reduce(|one, other| format!("{one}; {other}")),
            waiting: 1,
            asked: seconds_now(),
            until: Some(seconds_now() + timeout.as_secs_f64()),
        };
        let open = Open { question: question.clone(), waiting: vec![asked.id], since: now, until: now + timeout };
        self.hosts.open.push(open);
        let news = News::Asked(question.clone());
        self.record.news(&news);
        self.log().news(&news);
        self.ask(&question)
    }

    /// Whether this was a question about a host.
    pub(crate) fn answer_about_host(&mut self, id: QuestionId, verdict: Verdict, cause: Cause) -> Result<bool, Errno> {
        let Some(open) = self.hosts.take(id) else { return Ok(false) };
        self.settle(open, verdict, cause)?;
        Ok(true)
    }

    /// Whoever asked is gone.
    pub(crate) fn withdraw_host(&mut self, id: u64) -> Result<(), Errno> {
        let Some(at) = self.hosts.open.iter().position(|open| open.waiting.contains(&id)) else { return Ok(()) };
        self.hosts.open[at].waiting.retain(|waiting| *waiting != id);
        if !self.hosts.open[at].waiting.is_empty() {
            return Ok(());
        }
        let open = self.hosts.open.remove(at);
        self.settle(open, Verdict::DENY_ONCE, Cause::Gone)
    }

    pub(crate) fn check_hosts(&mut self, now: Instant) -> Result<(), Errno> {
        while let Some(at) = self.hosts.open.iter().position(|open| now >= open.until) {
            let open = self.hosts.open.remove(at);
            self.settle(open, Verdict::DENY_ONCE, Cause::Timeout)?;
        }
        Ok(())
    }

    /// Nobody is left to wait.
    pub(crate) fn end_hosts(&mut self) -> Result<(), Errno> {
        while let Some(open) = self.hosts.open.pop() {
            self.settle(open, Verdict::DENY_ONCE, Cause::Gone)?;
        }
        Ok(())
    }

    fn settle(&mut self, open: Open, verdict: Verdict, cause: Cause) -> Result<(), Errno> {
        let granted = if verdict.is_allow() { vec![open.question.path.clone()] } else { Vec::new() };
        let waited = open.since.elapsed();
        let settled = Settled { question: open.question, verdict, cause, granted, waited };
        self.tell_answer(&open.waiting, Some(&settled), cause)?;
        let news = News::Settled(Box::new(settled));
        self.record.news(&news);
        self.log().news(&news);
        if let News::Settled(settled) = &news {
            self.settled(settled)?;
        }
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands among calls that fail")]
    fn tell_answer(&mut self, waiting: &[u64], settled: Option<&Settled>, cause: Cause) -> Result<(), Errno> {
        let Some(egress) = &self.egress else { return Ok(()) };
        let verdict = settled.map_or(Verdict::DENY_ONCE, |settled| settled.verdict);
        let (Verdict::Allow { keep, .. } | Verdict::Deny { keep, .. }) = verdict;
        let subject = settled.map(|settled| settled.question.path.to_string_lossy().into_owned());
        for id in waiting {
            egress.tell(&Told::Answer {
                id: *id,
                allowed: verdict.is_allow(),
                keep: subject.clone().filter(|_| keep > Keep::Once),
                origin: by(cause, verdict.is_allow()),
            });
        }
        Ok(())
    }
}

/// What decided, in the words that whoever asked is told.
fn by(cause: Cause, allowed: bool) -> String {
    match cause {
        Cause::Person | Cause::Hook if !allowed => "denied when it was asked".to_owned(),
        Cause::Gone => "who asked is gone".to_owned(),
        Cause::Timeout => "no answer came in time".to_owned(),
        Cause::Budget => "more questions in a minute than the policy lets be asked".to_owned(),
        cause => format!("an answer ({})", crate::events::word(&cause)),
    }
}
