//! What happened to a session, for the audit log and for the end: system calls that the filter reported, questions and their
//! answers, limits that came near or were exceeded. Owns what each record says; the chain they go into is `audit`'s. Fed by
//! `launch` and the supervisor's loop; `cli` renders what is told at the end.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_audit::{Actor, Decision, Event, Journal, JournalError, Record as Entry, Severity, to_hex};
use cofferdam_egress::message::{Outcome, Tallied};
use cofferdam_gate::News;
use cofferdam_host::obeyed::{Obeyed, ObeyedFile};
use cofferdam_kernel::seccomp::Notification;
use cofferdam_plan::LaunchPlan;
use cofferdam_plan::seccomp::name_of;
use cofferdam_policy::Isolation;
use cofferdam_wire::{Cause, Denial, Denied, End, Op, Question, Settled, Subject, Verdict};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::covers::Fall;
use crate::limits::monitor::{Finding, FindingKind};
use crate::limits::usage::Usage;
use crate::network::no_route::Unrouted;
use crate::options::Options;
use crate::records::indicator::{self, Level};
use crate::records::redact;

/// Records that what runs inside may cause; then one more says that there are no more.
const MOST_CAUSED: u32 = 20_000;

/// Appends to the audit log, until that fails once.
#[derive(Debug, Default)]
pub(crate) struct Log<'a> {
    session: String,
    state: Option<&'a Path>,
    journal: Option<Journal>,
    caused: u32,
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
        let Some(state) = self.state.filter(|_| !self.failed) else { return };
        if entry.actor == Actor::Workload {
            self.caused += 1;
            if self.caused == MOST_CAUSED {
                self.add(Entry {
                    severity: Severity::Error,
                    ..Entry::new(
                        Event::PolicyViolation,
                        "",
                        json!({ "unrecorded": "too many records of this session" }),
                    )
                });
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
            Isolation::Full if plan.egress.is_some() => "egress",
            Isolation::Full => "own",
        };
        let severity = if network == "host" { Severity::Warning } else { Severity::Info };
        let mut details = json!({
            "action": "run",
            "tool": argv.first(),
            "mode": if plan.gate.is_some() { "dynamic" } else { "static" },
            "isolation": plan.isolation,
            "network": network,
            "command": { "sha256": command_hash(argv), "text": redact::command(argv) },
            "supervisor": rustix::process::getpid().as_raw_nonzero(),
            "uid": rustix::process::getuid().as_raw(),
        });
        if let Some(by) = &options.network_approved {
            details["network_approved_by"] = json!(by);
        }
        put_path(&mut details, "cwd", &plan.command.cwd);
        if let Some(project) = known.and_then(|known| known.facts.project.as_deref()) {
            put_path(&mut details, "project", project);
        }
        self.tell(Event::SandboxCreated, severity, details);
    }

    /// The walls stand.
    pub(crate) fn entered(&mut self, plan: &LaunchPlan) {
        self.tell(Event::SandboxEntered, Severity::Info, json!({ "posture": plan.posture }));
    }

    pub(crate) fn command_started(&mut self, plan: &LaunchPlan) {
        let argv = &plan.command.argv;
        let details = json!({ "command": { "sha256": command_hash(argv), "text": redact::command(argv) } });
        self.tell(Event::CommandStarted, Severity::Info, details);
    }

    /// A client outside started a further command in the session.
    pub(crate) fn attached(&mut self, argv: &[String]) {
        let command = json!({ "sha256": command_hash(argv), "text": redact::command(argv) });
        self.tell(Event::CommandStarted, Severity::Info, json!({ "command": command, "attached": true }));
    }

    /// A command of a session with an order.
    pub(crate) fn exec_started(&mut self, argv: &[String], exec: u64) {
        let command = json!({ "sha256": command_hash(argv), "text": redact::command(argv) });
        self.tell(Event::CommandStarted, Severity::Info, json!({ "command": command, "exec": exec }));
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
        };
        let millis = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        let details = json!({ "end": end, "exitCode": end.exit_code(), "durationMillis": millis, "usage": usage });
        self.tell(Event::SandboxExited, severity, details);
    }

    /// It did not run, and why.
    pub(crate) fn failed_to_start(&mut self, why: &str, code: u8, ran: Duration) {
        let millis = u64::try_from(ran.as_millis()).unwrap_or(u64::MAX);
        let details = json!({ "end": "not-started", "why": why, "exitCode": code, "durationMillis": millis });
        self.tell(Event::SandboxExited, Severity::Error, details);
    }

    /// Nothing of it is left but what is named. Says whether all that happened is in the log.
    pub(crate) fn destroyed(&mut self, left_behind: Option<&Path>) {
        let mut details = json!({});
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
    pub(crate) fn too_many_violations(&mut self, counted: u32, allowed: u32) {
        let details = json!({ "violations": counted, "allowed": allowed, "consequence": "ended" });
        self.tell(Event::PolicyViolation, Severity::Error, details);
    }

    fn blocked(&mut self, name: &str, notification: &Notification, program: Option<&Path>) {
        let indicator = indicator::of(name, &notification.arguments);
        let mut details = json!({
            "pid": notification.pid, "syscall": name, "number": notification.number, "arguments": notification.arguments,
            "indicator": indicator.wall, "level": indicator.level, "description": indicator.description,
        });
        if let Some(program) = program {
            // What it tried is known, what the kernel said is not: the path may have changed since it was read.
            details["attempted"] = json!(true);
            put_path(&mut details, "path", program);
        }
        let (event, severity) = match indicator.level {
            Level::Critical => (Event::EscapeAttempt, Severity::Critical),
            _ => (Event::SyscallBlocked, Severity::Warning),
        };
        self.add(Entry {
            actor: Actor::Workload,
            severity,
            decision: Some(Decision::Deny),
            ..Entry::new(event, "", details)
        });
    }

    /// How often something was tried that is recorded at its first time only.
    pub(crate) fn repeated(&mut self, probes: &[Probed]) {
        for probed in probes.iter().filter(|probed| probed.count > 1) {
            let details = json!({
                "syscall": probed.name, "path": probed.path, "indicator": probed.wall, "level": probed.level,
                "description": probed.description, "count": probed.count,
            });
            self.refused_inside(Event::SyscallBlocked, details);
        }
    }

    /// Connections and packets that went nowhere, as the kernel counted them: it does not say where to.
    pub(crate) fn unrouted(&mut self, unrouted: Unrouted) {
        if unrouted.no_route > 0 {
            let details = json!({
                "outcome": "denied", "unrouted": unrouted.no_route, "indicator": indicator::NETWORK, "level": Level::Low,
                "description": "there is no network inside",
            });
            self.refused_inside(Event::ConnectionAttempt, details);
        }
    }

    fn refused_inside(&mut self, event: Event, details: Value) {
        let decision = Some(Decision::Deny);
        self.add(Entry {
            actor: Actor::Workload,
            severity: Severity::Warning,
            decision,
            ..Entry::new(event, "", details)
        });
    }

    pub(crate) fn news(&mut self, news: &News) {
        match news {
            News::Asked(question) => self.file_requested(question),
            News::Settled(settled) => self.file_decided(settled),
            News::Refused { what, path, asker } => {
                let mut details = json!({ "op": what, "pid": asker.program.pid, "program": asker.program.exe });
                put_path(&mut details, "path", path);
                self.violation(details, None);
            }
            News::Hidden { path, rule, asker } => {
                let mut details = json!({ "op": "find", "pid": asker.program.pid, "program": asker.program.exe });
                put_path(&mut details, "path", path);
                self.violation(details, Some(&rule.origin.to_string()));
            }
            News::OverBudget => self.named_limit(Event::ResourceLimitExceeded, "questions", 0),
        }
    }

    /// Connections to one host that were treated alike, as one record.
    pub(crate) fn connections(&mut self, tallied: &Tallied) {
        let (severity, decision) = match tallied.verdict {
            Outcome::Denied => (Severity::Warning, Some(Decision::Deny)),
            Outcome::Allowed | Outcome::Failed | Outcome::Held => (Severity::Info, Some(Decision::Allow)),
        };
        let details = json!({
            "host": tallied.host, "port": tallied.port, "address": tallied.address, "outcome": tallied.verdict,
            "rule": tallied.rule, "connections": tallied.connections, "up": tallied.up, "down": tallied.down,
        });
        let origin = Some(tallied.origin.as_str()).filter(|origin| !origin.is_empty());
        self.add(Entry {
            actor: Actor::Workload,
            severity,
            decision,
            origin,
            ..Entry::new(Event::ConnectionAttempt, "", details)
        });
    }

    /// Queries for one name that were treated alike.
    pub(crate) fn queries(&mut self, name: &str, kind: &str, verdict: Outcome, count: u64) {
        let denied = verdict == Outcome::Denied;
        let severity = if denied { Severity::Warning } else { Severity::Info };
        let decision = Some(if denied { Decision::Deny } else { Decision::Allow });
        let details = json!({ "query": name, "kind": kind, "outcome": verdict, "count": count });
        self.add(Entry {
            actor: Actor::Workload,
            severity,
            decision,
            ..Entry::new(Event::ConnectionAttempt, "", details)
        });
    }

    /// A key of the user signed something, or did not.
    pub(crate) fn signed(&mut self, key: &str, verdict: Outcome) {
        let denied = verdict == Outcome::Denied;
        let severity = if denied { Severity::Warning } else { Severity::Info };
        let decision = Some(if denied { Decision::Deny } else { Decision::Allow });
        let details = json!({ "op": "sign", "key": key, "outcome": verdict });
        self.add(Entry {
            actor: Actor::Workload,
            severity,
            decision,
            ..Entry::new(Event::ConnectionAttempt, "", details)
        });
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

    fn violation(&mut self, mut details: Value, origin: Option<&str>) {
        details["indicator"] = json!(indicator::FILESYSTEM);
        details["level"] = json!(Level::Low);
        details["description"] = json!("a path that no rule gives, or that one hides");
        self.add(Entry {
            actor: Actor::Workload,
            severity: Severity::Warning,
            decision: Some(Decision::Deny),
            origin,
            ..Entry::new(Event::FileAccessViolation, "", details)
        });
    }

    pub(crate) fn file_requested(&mut self, question: &Question) {
        let event = if question.op.is_about_files() { Event::FileRequested } else { Event::ConnectionAttempt };
        self.add(Entry { actor: Actor::Workload, ..Entry::new(event, "", question_details(question)) });
    }

    /// An answer was written to a policy.
    pub(crate) fn policy_changed(&mut self, settled: &Settled, told: &str) {
        let mut details = question_details(&settled.question);
        if let Some(details) = details.as_object_mut() {
            details.insert("change".to_owned(), json!(told));
        }
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
        if let Some(details) = details.as_object_mut() {
            let granted: Vec<_> = settled.granted.iter().map(|path| path.to_string_lossy()).collect();
            details.insert("cause".to_owned(), json!(settled.cause));
            details.insert("scope".to_owned(), json!(reach));
            details.insert("persist".to_owned(), json!(keep));
            details.insert("granted".to_owned(), json!(granted));
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
        "command": { "sha256": command_hash(argv), "text": redact::command(argv) },
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
    });
    match &question.subject {
        Subject::Path(path) => put_path(&mut details, "path", path),
        Subject::Host(host) => details["host"] = json!(host),
        Subject::Key(key) => details["key"] = json!(key),
    }
    details
}

/// A path as text; where it is none, its bytes in hexadecimal beside it.
fn put_path(details: &mut Value, name: &str, path: &Path) {
    let Some(details) = details.as_object_mut() else { return };
    details.insert(name.to_owned(), json!(path.to_string_lossy()));
    if path.to_str().is_none() {
        details.insert(format!("{name}Bytes"), json!(to_hex(path.as_os_str().as_bytes())));
    }
}

/// Arguments are told apart: `a b` is another command than `a` with the argument `b`.
fn command_hash(argv: &[String]) -> String {
    let mut hash = Sha256::new();
    for argument in argv {
        hash.update(argument);
        hash.update([0]);
    }
    to_hex(&hash.finalize())
}

/// Calls of one number, with the arguments of the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    pub name: &'static str,
    pub number: u32,
    pub arguments: [u64; 6],
    pub count: u32,
}

/// Something that was refused or, where it is a program, tried: recorded, and not counted as a violation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probed {
    pub name: &'static str,
    /// The program that was to be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The first argument: of `socket` the family.
    pub argument: u64,
    /// What it goes against, how grave that is, and in words.
    pub wall: &'static str,
    pub level: Level,
    pub description: &'static str,
    pub count: u64,
}

/// Different probes that are told apart; the rest only counts.
const MOST_PROBES: usize = 64;

/// A path that was unknown, and given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowed {
    pub op: Op,
    pub path: PathBuf,
}

/// A host that was to be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reached {
    pub host: String,
    /// 0 for a name that was looked up and not given.
    pub port: u16,
    pub verdict: Outcome,
    /// The rule that decided, or why it failed.
    pub why: String,
    pub origin: String,
    /// The smallest change that would allow what was denied.
    pub remedy: String,
    pub connections: u64,
    pub up: u64,
    pub down: u64,
}

/// Hosts that one session's summary tells apart.
const MOST_HOSTS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) hosts: Vec<Reached>,
    pub(crate) warnings: Vec<String>,
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) denied: Vec<Denied>,
    pub(crate) answers: Vec<String>,
    /// Whether one of them was written to the project's policy.
    pub(crate) wrote_project: bool,
    pub(crate) blocked: Vec<Blocked>,
    pub(crate) probed: Vec<Probed>,
    pub(crate) total: u32,
}

impl Record {
    /// A name that policy refuses, so that no process could connect to it.
    pub(crate) fn refused_name(&mut self, host: String, connections: u64) {
        let tallied = Tallied {
            host,
            port: 0,
            address: None,
            verdict: Outcome::Denied,
            rule: "no rule allows the name".to_owned(),
            origin: String::new(),
            remedy: String::new(),
            connections,
            up: 0,
            down: 0,
        };
        self.reached(tallied);
    }

    pub(crate) fn reached(&mut self, tallied: Tallied) {
        let Tallied { host, port, verdict, rule: why, origin, remedy, connections, up, down, .. } = tallied;
        let same = |known: &&mut Reached| {
            known.host == host && known.port == port && known.verdict == verdict && known.why == why
        };
        if let Some(known) = self.hosts.iter_mut().find(same) {
            known.connections += connections;
            known.up += up;
            known.down += down;
        } else if self.hosts.len() < MOST_HOSTS {
            self.hosts.push(Reached { host, port, verdict, why, origin, remedy, connections, up, down });
        }
    }

    pub(crate) fn news(&mut self, news: &News) {
        let (path, denial) = match news {
            News::Settled(settled) => {
                let question = &settled.question;
                // Hosts are told of by the egress process.
                let Subject::Path(path) = &question.subject else { return };
                if settled.verdict.is_allow() {
                    return self.allowed.push(Allowed { op: question.op, path: path.clone() });
                }
                (path, Denial::Unapproved { op: question.op, cause: settled.cause })
            }
            News::Refused { what, path, .. } => (path, Denial::CannotBeAsked { call: what }),
            News::Hidden { path, rule, .. } => (path, Denial::Hidden { origin: rule.origin.to_string() }),
            News::Asked(_) | News::OverBudget => return,
        };
        self.denied.push(Denied { path: path.to_string_lossy().into_owned(), denial });
    }

    /// A call that harmless programs make as well.
    pub(crate) fn probed(&mut self, notification: &Notification, log: &mut Log<'_>) {
        self.probe(notification, None, log);
    }

    /// A program that no rule lets run was to be started.
    pub(crate) fn started(&mut self, notification: &Notification, program: &Path, log: &mut Log<'_>) {
        self.probe(notification, Some(program), log);
    }

    /// The first of a kind is recorded, the others are counted: a workload may make as many as it likes.
    fn probe(&mut self, notification: &Notification, program: Option<&Path>, log: &mut Log<'_>) {
        let name = name_of(notification.number).unwrap_or("unknown");
        let path = program.map(|program| program.to_string_lossy().into_owned());
        let argument = if name.starts_with("socket") { notification.arguments[0] } else { 0 };
        let same = |probed: &&mut Probed| (probed.name, &probed.path, probed.argument) == (name, &path, argument);
        if let Some(known) = self.probed.iter_mut().find(same) {
            known.count += 1;
            return;
        }
        if self.probed.len() >= MOST_PROBES {
            if let Some(rest) = self.probed.last_mut() {
                rest.count += 1;
            }
            return;
        }
        let indicator = indicator::of(name, &notification.arguments);
        let (wall, level, description) = (indicator.wall, indicator.level, indicator.description);
        self.probed.push(Probed { name, path, argument, wall, level, description, count: 1 });
        log.blocked(name, notification, program);
    }

    pub(crate) fn add(&mut self, notification: &Notification, log: &mut Log<'_>) {
        self.total += 1;
        let name = name_of(notification.number).unwrap_or("unknown");
        match self.blocked.iter_mut().find(|b| b.number == notification.number) {
            Some(blocked) => blocked.count += 1,
            None => self.blocked.push(Blocked {
                name,
                number: notification.number,
                arguments: notification.arguments,
                count: 1,
            }),
        }
        log.blocked(name, notification, None);
    }
}

#[cfg(test)]
mod tests;
