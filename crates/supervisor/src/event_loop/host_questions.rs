//! Questions about hosts and keys, in the loop: asked of the same clients as those about files, answered to the egress process.

use std::path::PathBuf;
use std::time::Instant;

use cofferdam_gate::News;
use cofferdam_kernel::timing::seconds_now;
use cofferdam_reach::message::Told;
use cofferdam_wire::{Cause, Group, Keep, Op, Question, QuestionId, Reach, Settled, Subject, Verdict};
use rustix::io::Errno;

use crate::approvals::host_questions::{Asked, Open, Who};
use crate::event_loop::Running;

impl Running<'_> {
    /// The operator is asked, or the connection waits with those that asked before.
    pub(crate) fn ask_about_host(&mut self, asked: Asked) -> Result<(), Errno> {
        let now = Instant::now();
        let same = |open: &&mut Open| open.question.subject == asked.subject;
        if let Some(open) = self.approvals.hosts.open.iter_mut().find(same) {
            open.waiting.push(asked.id);
            open.question.waiting = u32::try_from(open.waiting.len()).unwrap_or(u32::MAX);
            let question = open.question.clone();
            return self.ask(&question);
        }
        let (Some(gate), Some(planned)) = (&mut self.gate, &self.plan.gate) else {
            return self.tell_answer(&[asked.id], None, Cause::OnUnknown);
        };
        let Some(id) = gate.number() else { return self.tell_answer(&[asked.id], None, Cause::Budget) };
        let timeout = planned.timeout;
        let first = self.first.pid.cast_unsigned();
        let looked = match (&self.gate, asked.who) {
            (Some(gate), Who::Client(Some(client))) => Some(gate.connected_from(client.port(), first)),
            (Some(gate), Who::Process(Some(process))) => Some(gate.known_as(process)),
            _ => None,
        };
        let (asker, package) = looked.unwrap_or_default();
        let package = package.map(|package| format!("it says that it works for the package {package}"));
        let question = Question {
            id,
            op: if matches!(asked.subject, Subject::Key(_)) { Op::Sign } else { Op::Connect },
            subject: asked.subject,
            is_dir: false,
            size: 0,
            flags: 0,
            asker,
            toolchain: None,
            group: asked.group,
            by: None,
            also: Vec::new(),
            is_alone: false,
            hint: [asked.hint, package].into_iter().flatten().reduce(|one, other| format!("{one}; {other}")),
            waiting: 1,
            asked: seconds_now(),
            until: Some(seconds_now() + timeout.as_secs_f64()),
        };
        let open = Open { question: question.clone(), waiting: vec![asked.id], since: now, until: now + timeout };
        self.approvals.hosts.open.push(open);
        let news = News::Asked(Box::new(question.clone()));
        self.summary.news(&news);
        self.log().news(&news);
        self.ask(&question)
    }

    /// Whether this was a question about a host.
    pub(crate) fn answer_about_host(&mut self, id: QuestionId, verdict: Verdict, cause: Cause) -> Result<bool, Errno> {
        let Some(open) = self.approvals.hosts.take(id) else { return Ok(false) };
        self.settle(open, verdict, cause)?;
        Ok(true)
    }

    /// The connection that asked is gone.
    pub(crate) fn withdraw_host(&mut self, id: u64) -> Result<(), Errno> {
        let Some(at) = self.approvals.hosts.open.iter().position(|open| open.waiting.contains(&id)) else {
            return Ok(());
        };
        self.approvals.hosts.open[at].waiting.retain(|waiting| *waiting != id);
        if !self.approvals.hosts.open[at].waiting.is_empty() {
            return Ok(());
        }
        let open = self.approvals.hosts.open.remove(at);
        self.settle(open, Verdict::DENY_ONCE, Cause::Gone)
    }

    pub(crate) fn check_hosts(&mut self, now: Instant) -> Result<(), Errno> {
        while let Some(at) = self.approvals.hosts.open.iter().position(|open| now >= open.until) {
            let open = self.approvals.hosts.open.remove(at);
            self.settle(open, Verdict::DENY_ONCE, Cause::Timeout)?;
        }
        Ok(())
    }

    /// No connection is left that waits.
    pub(crate) fn end_hosts(&mut self) -> Result<(), Errno> {
        while let Some(open) = self.approvals.hosts.open.pop() {
            self.settle(open, Verdict::DENY_ONCE, Cause::Gone)?;
        }
        Ok(())
    }

    fn settle(&mut self, mut open: Open, verdict: Verdict, cause: Cause) -> Result<(), Errno> {
        let verdict = open.question.meant(verdict);
        if let Some(Group::Hosts { hosts, .. }) = &mut open.question.group {
            // Denied after this was asked: that answer stands.
            let own = open.question.subject.text();
            hosts.retain(|host| *host == own || !self.approvals.hosts.denied.contains(host));
        }
        let places = places(&open.question, verdict);
        if matches!(verdict, Verdict::Deny { keep, .. } if keep > Keep::Once) {
            self.approvals.hosts.denied.extend(places.clone());
        }
        let granted = if verdict.is_allow() { places.iter().map(PathBuf::from).collect() } else { Vec::new() };
        let waited = open.since.elapsed();
        let settled = Settled { question: open.question, verdict, cause, granted, waited };
        self.tell_answer(&open.waiting, Some(&settled), cause)?;
        let news = News::Settled(Box::new(settled));
        self.summary.news(&news);
        self.log().news(&news);
        if let News::Settled(settled) = &news {
            self.settled(settled)?;
            self.settle_covered(settled, &places)?;
        }
        Ok(())
    }

    /// Open questions about hosts that the answer gave as a group.
    fn settle_covered(&mut self, settled: &Settled, places: &[String]) -> Result<(), Errno> {
        if !matches!(settled.verdict, Verdict::Allow { reach: Reach::Group, .. }) {
            return Ok(());
        }
        for id in self.approvals.hosts.in_group(places) {
            let Some(mut open) = self.approvals.hosts.take(id) else { continue };
            open.question.by = Some(settled.question.id);
            let verdict = Verdict::Allow { reach: Reach::File, keep: Keep::Session };
            self.settle(open, verdict, Cause::Grant)?;
        }
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands among calls that fail")]
    fn tell_answer(&mut self, waiting: &[u64], settled: Option<&Settled>, cause: Cause) -> Result<(), Errno> {
        let Some(egress) = &mut self.network.egress else { return Ok(()) };
        let verdict = settled.map_or(Verdict::DENY_ONCE, |settled| settled.verdict);
        let (Verdict::Allow { keep, .. } | Verdict::Deny { keep, .. }) = verdict;
        let kept = settled.filter(|_| keep > Keep::Once);
        let kept = kept.map(|settled| places(&settled.question, verdict)).unwrap_or_default();
        let origin = match settled.map(|settled| (&settled.question, settled.verdict)) {
            Some((Question { id, group: Some(group), .. }, Verdict::Allow { reach: Reach::Group, .. })) => {
                format!("the answer to question {id}, about {} ({})", group.name(), cause.word())
            }
            Some((Question { by: Some(by), .. }, _)) => format!("the answer to question {by}, about a group"),
            _ => by(cause, verdict.is_allow()),
        };
        for id in waiting {
            egress.tell(&Told::Answer {
                id: *id,
                allowed: verdict.is_allow(),
                keep: kept.clone(),
                origin: origin.clone(),
            });
        }
        Ok(())
    }
}

/// What an answer is about, as policy writes it.
fn places(question: &Question, verdict: Verdict) -> Vec<String> {
    match (verdict, &question.group) {
        (Verdict::Allow { reach: Reach::Group, .. }, Some(Group::Hosts { hosts, .. })) => hosts.clone(),
        _ => vec![question.subject.text().into_owned()],
    }
}

/// What decided, as the workload is told.
fn by(cause: Cause, allowed: bool) -> String {
    match cause {
        Cause::Person | Cause::Hook if !allowed => "denied when it was asked".to_owned(),
        Cause::Gone => "the program that asked has ended".to_owned(),
        Cause::Timeout => "no answer came in time".to_owned(),
        Cause::Budget => "more questions in a minute than the policy lets be asked".to_owned(),
        cause => format!("an answer ({})", cause.word()),
    }
}
