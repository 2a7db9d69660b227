//! What happened to a session, for the audit log: system calls that the filter reported, questions and their answers, limits that
//! came near or were exceeded. Owns what each record says; the chain they go into is `audit`'s. Fed by `launch`, `summary` and the
//! supervisor's loop.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_audit::{Actor, Decision, Event, Journal, JournalError, Record as Entry, Severity, to_hex};
use cofferdam_gate::News;
use cofferdam_host::obeyed::{Obeyed, ObeyedFile};
use cofferdam_kernel::seccomp::Notification;
use cofferdam_kernel::timing::seconds_now;
use cofferdam_plan::{LaunchPlan, Step};
use cofferdam_policy::Isolation;
use cofferdam_wire::session::LifeCycle;
use cofferdam_wire::{
    Asker, Cause, End, Level, NetworkOutcome, Probed, Question, Reach, Reached, Settled, Subject, Unrouted, Usage,
    Verdict,
};
use cofferdam_workspace::checkpoint::By;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::covers::Fall;
use crate::limits::monitor::{Finding, FindingKind};
use crate::options::{NetworkApproval, Options};
use crate::records::indicator::{self, Indicator};
use crate::records::redact;

/// Records that what runs inside may cause; then one more says that there are no more.
const MOST_CAUSED: u32 = 20_000;

/// What is told of a session that was ended for safety.
const LAST_EVENTS: usize = 64;

const REFUSED: (Severity, Decision) = (Severity::Warning, Decision::Deny);

fn came_of(verdict: NetworkOutcome) -> (Severity, Decision) {
    match verdict {
        NetworkOutcome::Denied => REFUSED,
        NetworkOutcome::Allowed | NetworkOutcome::Failed | NetworkOutcome::Held => (Severity::Info, Decision::Allow),
    }
}

/// What a record of a refused call has besides the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tried<'a> {
    /// The program that was to be started.
    pub(super) program: Option<&'a Path>,
    /// Who made a call that ended the session.
    pub(super) caller: Option<&'a Asker>,
}

/// Appends to the audit log, until that fails once.
#[derive(Debug, Default)]
pub(crate) struct Log<'a> {
    session: String,
    state: Option<&'a Path>,
    journal: Option<Journal>,
    caused: u32,
    /// What happened last, also past the bound of records.
    last: VecDeque<Value>,
    pub(crate) failed: bool,
}

impl<'a> Log<'a> {
    pub(crate) fn new(session: String, state: Option<&'a Path>) -> Self {
        Log { session, state, ..Log::default() }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    fn add(&mut self, entry: Entry<'_>) {
        if entry.actor == Actor::Workload || entry.event == Event::CommandStarted {
            self.remember(&entry);
        }
        let Some(state) = self.state.filter(|_| !self.failed) else { return };
        if entry.actor == Actor::Workload {
            self.caused += 1;
            if self.caused == MOST_CAUSED {
                let details = json!({ "unrecorded": "too many records of this session" });
                self.tell(Event::PolicyViolation, Severity::Error, details);
            }
            if self.caused >= MOST_CAUSED {
                return;
            }
        }
        if self.journal.is_none() {
            self.journal = Journal::open(state).ok();
        }
        let session = if entry.session.is_empty() { &self.session } else { entry.session };
        let entry = Entry { session, ..entry };
        self.failed = self.journal.as_mut().is_none_or(|journal| journal.append(&entry).is_err());
    }

    fn remember(&mut self, entry: &Entry<'_>) {
        if self.last.len() == LAST_EVENTS {
            self.last.pop_front();
        }
        let details = &entry.details;
        self.last.push_back(json!({ "time": seconds_now(), "event": entry.event, "details": details }));
    }

    /// What led to the end of a session that was ended for safety, oldest first.
    pub(crate) fn last_events(&self) -> Vec<Value> {
        self.last.iter().cloned().collect()
    }

    /// What followed from that end: one record, with what led to it.
    pub(crate) fn responded(&mut self, mut alert: Value, told: Option<&str>) {
        alert["op"] = json!("response");
        alert["hook"] = json!(told);
        self.tell(Event::PolicyViolation, Severity::Critical, alert);
    }

    fn tell(&mut self, event: Event, severity: Severity, details: Value) {
        self.add(Entry { severity, ..Entry::new(event, "", details) });
    }

    /// Written while the child sets itself up.
    pub(crate) fn created(&mut self, plan: &LaunchPlan, options: &Options) {
        let argv = &plan.command.argv;
        let known = options.known.as_deref();
        let network = match plan.isolation {
            Isolation::None => "host",
            Isolation::Process => "refused",
            Isolation::Full if !plan.namespaces.net => "host",
            Isolation::Full if plan.egress.as_ref().is_some_and(|egress| !egress.only_refuses) => "egress",
            Isolation::Full => "own",
        };
        let severity = if network == "host" { Severity::Warning } else { Severity::Info };
        let mut details = json!({
            "action": "run",
            "state": LifeCycle::Created,
            "tool": argv.first(),
            "mode": if plan.gate.is_some() { "dynamic" } else { "static" },
            "isolation": plan.isolation,
            "network": network,
            "command": command(argv),
            "supervisor": rustix::process::getpid().as_raw_nonzero(),
            "uid": rustix::process::getuid().as_raw(),
        });
        if let Some(by) = &options.network_approved {
            details["network_approved_by"] = match by {
                NetworkApproval::Organisation(origin) => json!(format!("the organisation ({origin})")),
                NetworkApproval::Operator => json!("the person at the terminal"),
            };
        }
        put_path(&mut details, "cwd", &plan.command.cwd);
        if let Some(project) = known.and_then(|known| known.facts.project.as_deref()) {
            put_path(&mut details, "project", project);
        }
        self.tell(Event::SandboxCreated, severity, details);
    }

    /// The walls stand.
    pub(crate) fn entered(&mut self, plan: &LaunchPlan) {
        self.tell(
            Event::SandboxEntered,
            Severity::Info,
            json!({
                "state": LifeCycle::Initialized, "posture": plan.posture, "measured": measured(plan),
            }),
        );
    }

    pub(crate) fn command_started(&mut self, plan: &LaunchPlan) {
        self.tell(
            Event::CommandStarted,
            Severity::Info,
            json!({ "state": LifeCycle::Running, "command": command(&plan.command.argv) }),
        );
    }

    /// A client outside started a further command in the session.
    pub(crate) fn attached(&mut self, argv: &[String]) {
        self.tell(Event::CommandStarted, Severity::Info, json!({ "command": command(argv), "attached": true }));
    }

    /// A command of a session with an order.
    pub(crate) fn exec_started(&mut self, argv: &[String], exec: u64) {
        self.tell(Event::CommandStarted, Severity::Info, json!({ "command": command(argv), "exec": exec }));
    }

    /// A step of a transaction that can be taken back.
    pub(crate) fn checkpoint(&mut self, number: usize, by: By, label: &str, stopped: Duration) {
        let millis = stopped.as_secs_f64() * 1e3;
        let details = json!({ "checkpoint": number, "by": by, "label": label, "stoppedMillis": millis });
        self.tell(Event::WorkspaceCheckpoint, Severity::Info, details);
    }

    pub(crate) fn put_back(&mut self, to: usize, stayed: &[PathBuf]) {
        self.tell(Event::WorkspaceRestored, Severity::Info, json!({ "checkpoint": to, "stayed": stayed }));
    }

    pub(crate) fn exited(&mut self, end: End, ran: Duration, usage: &Usage) {
        let severity = match end {
            End::Exited { .. } | End::Signalled { .. } | End::Killed { .. } => Severity::Info,
            End::TimedOut
            | End::OutOfMemory
            | End::ProcessLimit
            | End::CpuTimeLimit
            | End::StorageLimit
            | End::InodeLimit
            | End::TooManyViolations
            | End::OutputLimit
            | End::CoverFell
            | End::ClientGone => Severity::Warning,
            End::EscapeAttempt => Severity::Critical,
        };
        let millis = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        let details = json!({ "state": LifeCycle::after(end), "end": end, "exitCode": end.exit_code(), "durationMillis": millis, "usage": usage });
        self.tell(Event::SandboxExited, severity, details);
    }

    /// It did not run, and why.
    pub(crate) fn failed_to_start(&mut self, why: &str, code: u8, ran: Duration) {
        let millis = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        let details = json!({ "state": LifeCycle::Error, "end": "not-started", "why": why, "exitCode": code, "durationMillis": millis });
        self.tell(Event::SandboxExited, Severity::Error, details);
    }

    /// Nothing of it is left but what is named. Says whether all that happened is in the log.
    pub(crate) fn destroyed(&mut self, left_behind: Option<&Path>) {
        let mut details = json!({ "state": LifeCycle::Cleanup });
        if let Some(path) = left_behind {
            put_path(&mut details, "leftBehind", path);
        }
        self.tell(Event::SandboxDestroyed, Severity::Info, details);
        if let Some(journal) = self.journal.as_mut().filter(|_| !self.failed) {
            self.failed = journal.settle().is_err();
        }
    }

    /// Another session's supervisor was killed, and what it left is gone now.
    pub(crate) fn swept(&mut self, session: &Path) {
        let details = json!({ "why": "its supervisor was killed", "by": self.session });
        let session = session.to_string_lossy();
        self.add(Entry { severity: Severity::Warning, ..Entry::new(Event::SandboxDestroyed, &session, details) });
    }

    pub(crate) fn limit(&mut self, finding: Finding) {
        let (event, severity) = match finding.kind {
            FindingKind::Near => (Event::ResourceLimitApproached, Severity::Warning),
            FindingKind::Over => (Event::ResourceLimitExceeded, Severity::Error),
        };
        let details = json!({ "limit": finding.what, "used": finding.used, "allowed": finding.limit });
        self.tell(event, severity, details);
    }

    /// A limit that is not one of the plan's bounds.
    pub(crate) fn named_limit(&mut self, event: Event, name: &str, allowed: u64) {
        let severity = if event == Event::ResourceLimitApproached { Severity::Warning } else { Severity::Error };
        self.tell(event, severity, json!({ "limit": name, "allowed": allowed }));
    }

    /// More was refused than the policy tolerates.
    pub(crate) fn too_many_violations(&mut self, counted: u64, allowed: u32, setting: &str) {
        let details = json!({ "violations": counted, "allowed": allowed, "setting": setting, "consequence": "ended" });
        self.tell(Event::PolicyViolation, Severity::Error, details);
    }

    pub(super) fn blocked(&mut self, name: &str, notification: &Notification, indicator: &Indicator, tried: Tried<'_>) {
        let mut details = json!({
            "pid": notification.pid, "syscall": name, "number": notification.number, "arguments": notification.arguments,
        });
        put_indicator(&mut details, indicator);
        if let Some(caller) = tried.caller {
            let parents: Vec<&str> = caller.parents.iter().map(|parent| parent.exe.as_str()).collect();
            details["program"] = json!(caller.program.exe);
            details["command"] = command(&caller.program.argv);
            details["parents"] = json!(parents);
            details["consequence"] = json!("ended");
        }
        if let Some(program) = tried.program {
            // What it tried is known, what the kernel said is not: the path may have changed since it was read.
            details["attempted"] = json!(true);
            put_path(&mut details, "path", program);
        }
        let (event, severity) = match indicator.level {
            Level::Critical => (Event::EscapeAttempt, Severity::Critical),
            _ => (Event::SyscallBlocked, Severity::Warning),
        };
        self.decided_inside(event, (severity, Decision::Deny), None, details);
    }

    /// How often something was tried that is recorded at its first time only.
    pub(crate) fn repeated(&mut self, probes: &[Probed]) {
        for probed in probes.iter().filter(|probed| probed.count > 1) {
            let details = json!({
                "syscall": probed.name, "path": probed.path, "indicator": probed.wall, "level": probed.level,
                "description": probed.description, "count": probed.count,
            });
            self.decided_inside(Event::SyscallBlocked, REFUSED, None, details);
        }
    }

    /// Connections and packets that went nowhere, as the kernel counted them: it does not say where to.
    pub(crate) fn unrouted(&mut self, unrouted: Unrouted) {
        if unrouted.no_route > 0 {
            let mut details = json!({ "outcome": "denied", "unrouted": unrouted.no_route });
            put_indicator(&mut details, &indicator::NO_ROUTE);
            self.decided_inside(Event::ConnectionAttempt, REFUSED, None, details);
        }
    }

    /// Something that the workload tried, and what was decided about it.
    fn decided_inside(
        &mut self,
        event: Event,
        (severity, decision): (Severity, Decision),
        origin: Option<&str>,
        details: Value,
    ) {
        let (actor, decision) = (Actor::Workload, Some(decision));
        self.add(Entry { actor, severity, decision, origin, ..Entry::new(event, "", details) });
    }

    pub(crate) fn news(&mut self, news: &News) {
        match news {
            News::Asked(question) => self.file_requested(question),
            News::Settled(settled) => self.file_decided(settled),
            News::Refused { what, path, asker } => self.violation(what, path, asker, None),
            News::Hidden { path, rule, asker } => self.violation("find", path, asker, Some(&rule.origin.to_string())),
            // The verdict of its rule is written down when it is settled.
            News::ThrownAway(_) => {}
            News::OverBudget => self.named_limit(Event::ResourceLimitExceeded, "questions", 0),
        }
    }

    /// Connections to one host that were treated alike, as one record.
    pub(crate) fn connections(&mut self, address: Option<IpAddr>, reached: &Reached, has_network: bool) {
        let mut details = json!({
            "host": reached.host, "port": reached.port, "address": address, "outcome": reached.verdict,
            "rule": reached.why, "connections": reached.connections, "up": reached.up, "down": reached.down,
        });
        if !has_network {
            put_indicator(&mut details, &indicator::NO_ROUTE);
        }
        let origin = Some(reached.origin.as_str()).filter(|origin| !origin.is_empty());
        self.decided_inside(Event::ConnectionAttempt, came_of(reached.verdict), origin, details);
    }

    /// Queries for one name that were treated alike.
    pub(crate) fn queries(&mut self, name: &str, kind: &str, verdict: NetworkOutcome, count: u64) {
        let details = json!({ "query": name, "kind": kind, "outcome": verdict, "count": count });
        self.decided_inside(Event::ConnectionAttempt, came_of(verdict), None, details);
    }

    /// A key of the user signed something, or did not.
    pub(crate) fn signed(&mut self, key: &str, verdict: NetworkOutcome) {
        let details = json!({ "op": "sign", "key": key, "outcome": verdict });
        self.decided_inside(Event::ConnectionAttempt, came_of(verdict), None, details);
    }

    /// Something is weaker than it should be.
    pub(crate) fn warned(&mut self, text: &str) {
        self.tell(Event::PolicyViolation, Severity::Warning, json!({ "warning": text }));
    }

    /// What programs of the host obey was changed or made, or could not all be looked at.
    pub(crate) fn obeyed(&mut self, obeyed: &Obeyed) {
        if obeyed.is_empty() {
            return;
        }
        let file = |file: &ObeyedFile| {
            let mut details = json!({ "class": file.class, "why": file.why });
            put_path(&mut details, "path", &file.path);
            details
        };
        let files: Vec<Value> = obeyed.files.iter().map(file).collect();
        let details = json!({ "op": "obeyed-files", "files": files, "more": obeyed.more, "unseen": obeyed.unseen });
        self.tell(Event::PolicyViolation, Severity::Warning, details);
    }

    /// A host program took a cover off.
    pub(crate) fn fell(&mut self, fall: &Fall) {
        let micros = u64::try_from(fall.window.as_micros()).unwrap_or(u64::MAX);
        let mut details = json!({
            "op": "cover-fell", "covered": fall.covered, "may": fall.may, "times": fall.times,
            "windowMicros": micros, "ended": fall.ended,
        });
        put_path(&mut details, "path", &fall.path);
        let severity = if fall.ended.is_some() { Severity::Critical } else { Severity::Error };
        self.add(Entry { actor: Actor::Supervisor, severity, ..Entry::new(Event::FileAccessViolation, "", details) });
    }

    fn violation(&mut self, op: &str, path: &Path, asker: &Asker, origin: Option<&str>) {
        let mut details = json!({ "op": op, "pid": asker.program.pid, "program": asker.program.exe });
        put_indicator(&mut details, &indicator::HIDDEN_PATH);
        put_path(&mut details, "path", path);
        self.decided_inside(Event::FileAccessViolation, REFUSED, origin, details);
    }

    pub(crate) fn file_requested(&mut self, question: &Question) {
        let event = if question.op.is_about_files() { Event::FileRequested } else { Event::ConnectionAttempt };
        self.add(Entry { actor: Actor::Workload, ..Entry::new(event, "", question_details(question)) });
    }

    /// An answer was written to a policy.
    pub(crate) fn policy_changed(&mut self, settled: &Settled, told: &str) {
        let mut details = question_details(&settled.question);
        details["change"] = json!(told);
        let severity = Severity::Warning;
        self.add(Entry { actor: Actor::Person, severity, ..Entry::new(Event::PolicyChanged, "", details) });
    }

    pub(crate) fn file_decided(&mut self, settled: &Settled) {
        let actor = match settled.cause {
            Cause::Person => Actor::Person,
            Cause::Hook => Actor::Hook,
            _ => Actor::Supervisor,
        };
        let (decision, severity, reach, keep) = match settled.verdict {
            Verdict::Allow { reach, keep } => (Decision::Allow, Severity::Info, reach, keep),
            Verdict::Deny { reach, keep } => (Decision::Deny, Severity::Warning, reach, keep),
        };
        let mut details = question_details(&settled.question);
        let granted: Vec<_> = settled.granted.iter().map(|path| path.to_string_lossy()).collect();
        details["cause"] = json!(settled.cause);
        details["scope"] = json!(reach);
        details["persist"] = json!(keep);
        details["granted"] = json!(granted);
        if reach == Reach::Group {
            details["group"] = json!(settled.question.group);
        }
        if let Some(by) = settled.question.by {
            details["byGroupOfQuestion"] = json!(by);
        }
        let is_file = settled.question.op.is_about_files();
        let event = if is_file { Event::FileDecided } else { Event::ConnectionAttempt };
        self.add(Entry {
            actor,
            severity,
            decision: Some(decision),
            latency: Some(settled.waited),
            ..Entry::new(event, "", details)
        });
    }
}

/// Why policy refused a launch.
#[derive(Debug, Clone)]
pub struct Refusal<'a> {
    /// The rule that refused, and where it stands.
    pub origin: Option<String>,
    pub why: String,
    pub exit_code: u8,
    pub argv: &'a [String],
}

/// Records a launch that policy refused. There was no session, so the record is of none.
pub fn launch_refused(state: &Path, refusal: &Refusal<'_>) -> Result<(), JournalError> {
    let argv = refusal.argv;
    let mut details = json!({
        "action": "run",
        "tool": argv.first(),
        "command": command(argv),
        "why": refusal.why,
        "exitCode": refusal.exit_code,
        "uid": rustix::process::getuid().as_raw(),
    });
    if let Ok(cwd) = std::env::current_dir() {
        put_path(&mut details, "cwd", &cwd);
    }
    let entry = Entry {
        severity: Severity::Warning,
        decision: Some(Decision::Deny),
        origin: refusal.origin.as_deref(),
        ..Entry::new(Event::LaunchRefused, "", details)
    };
    Journal::open(state)?.append(&entry).map(|_| ())
}

fn question_details(question: &Question) -> Value {
    let program = &question.asker.program;
    let mut details = json!({
        "question": question.id,
        "op": question.op,
        "pid": program.pid,
        "program": program.exe,
        "parents": question.asker.parents.iter().map(|parent| parent.exe.as_str()).collect::<Vec<_>>(),
        "isDirectory": question.is_dir,
        "waiting": question.waiting,
        "also": question.also.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
    });
    match &question.subject {
        Subject::Path(path) => put_path(&mut details, "path", path),
        Subject::Host(host) => details["host"] = json!(host),
        Subject::Key(key) => details["key"] = json!(key),
    }
    details
}

/// What noticed it, what it goes against, how grave that is, and in words.
fn put_indicator(details: &mut Value, indicator: &Indicator) {
    details["source"] = json!(indicator.source);
    details["indicator"] = json!(indicator.wall);
    details["level"] = json!(indicator.level);
    details["description"] = json!(indicator.description);
}

/// What the child asked the kernel about before it said that its walls stand: a difference would have ended the launch.
fn measured(plan: &LaunchPlan) -> Vec<&'static str> {
    let mut measured = vec!["capabilities", "securebits", "no_new_privs", "seccomp", "namespaces", "mounts"];
    let has_scopes = |step: &Step| matches!(step, Step::Landlock(step) if step.scopes);
    measured.extend(plan.gate.is_none().then_some("root"));
    measured.extend(plan.steps.iter().any(has_scopes).then_some("landlock-scopes"));
    measured
}

/// A path as text; where it is none, its bytes in hexadecimal beside it.
fn put_path(details: &mut Value, name: &str, path: &Path) {
    details[name] = json!(path.to_string_lossy());
    if path.to_str().is_none() {
        details[format!("{name}Bytes")] = json!(to_hex(path.as_os_str().as_bytes()));
    }
}

/// Without its secrets, and as a hash. Arguments are told apart: `a b` is another command than `a` with the argument `b`.
fn command(argv: &[String]) -> Value {
    let mut hash = Sha256::new();
    for argument in argv {
        hash.update(argument);
        hash.update([0]);
    }
    json!({ "sha256": to_hex(&hash.finalize()), "text": redact::command(argv) })
}

#[cfg(test)]
mod tests;
