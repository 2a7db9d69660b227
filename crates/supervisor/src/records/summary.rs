//! What happened to a session, for its end: counted, and bounded, however much the workload does. Owns what counts as the same;
//! the records of the log are `log`'s, the words are `cli`'s. Fed by the supervisor's loop.

use std::path::{Path, PathBuf};

use cofferdam_gate::News;
use cofferdam_host::quarantine::Quarantined;
use cofferdam_kernel::seccomp::Notification;
use cofferdam_plan::seccomp::name_of;
use cofferdam_wire::{Allowed, Asker, Attempt, Blocked, Denial, Denied, Indicators, Probed, Reached, Subject};

use crate::records::indicator::{self, Indicator};
use crate::records::log::{Log, Tried};

/// Different probes that are told apart; the rest only counts.
const MOST_PROBES: usize = 64;

/// Hosts that one session's summary tells apart.
const MOST_HOSTS: usize = 1024;

/// What happened, as the caller is told.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    pub blocked: Vec<Blocked>,
    /// What was refused or tried, recorded, and not counted.
    pub probed: Vec<Probed>,
    /// Refused calls that count.
    pub violations: u32,
    /// All signs of an escape, counted or not.
    pub indicators: Indicators,
    /// The call that ended the session at once.
    pub attempt: Option<Attempt>,
    /// What may not run any more for it.
    pub quarantined: Option<Quarantined>,
    /// Paths that neither a rule nor an answer approved, as they were met.
    pub denied: Vec<Denied>,
    /// What became of answers that were to be kept.
    pub answers: Vec<String>,
    /// Whether one of them was written to the project's policy.
    pub(crate) wrote_project: bool,
    /// Paths that were unknown and were given, by a person, a hook or a rule.
    pub allowed: Vec<Allowed>,
    /// Caches that were not there and were written for the session alone.
    pub(crate) new_caches: Vec<PathBuf>,
    /// Hosts that were to be reached, allowed or not.
    pub hosts: Vec<Reached>,
    /// Those of them that the operator was told of at the first refusal; without a port where only the name was asked for.
    pub told_hosts: Vec<(String, u16)>,
    /// What is weaker than it should be.
    pub warnings: Vec<String>,
}

impl Summary {
    /// A name that policy refuses, so that no process could connect to it.
    pub(crate) fn refused_name(&mut self, host: String, connections: u64) {
        let why = "no rule allows the name".to_owned();
        self.reached(Reached { host, why, connections, ..Reached::default() });
    }

    pub(crate) fn reached(&mut self, reached: Reached) {
        let what = |one: &Reached| (one.port, one.verdict);
        let same = |known: &&mut Reached| {
            what(known) == what(&reached) && known.host == reached.host && known.why == reached.why
        };
        if let Some(known) = self.hosts.iter_mut().find(same) {
            known.connections += reached.connections;
            known.up += reached.up;
            known.down += reached.down;
        } else if self.hosts.len() < MOST_HOSTS {
            self.hosts.push(reached);
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
            News::ThrownAway(path) => return self.new_caches.push(path.clone()),
            News::Asked(_) | News::OverBudget => return,
        };
        if !matches!(news, News::Settled(_)) {
            self.indicators.count(indicator::HIDDEN_PATH.level);
        }
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
        let indicator = indicator::of(name, &notification.arguments);
        self.indicators.count(indicator.level);
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
        let (wall, level, description) = (indicator.wall, indicator.level, indicator.description);
        self.probed.push(Probed { name, path, argument, wall, level, description, count: 1 });
        log.blocked(name, notification, &indicator, Tried { program, caller: None });
    }

    /// A call that ended the session.
    pub(crate) fn attempted(&mut self, notification: &Notification, caller: Asker, log: &mut Log<'_>) {
        let (name, indicator) = self.count(notification);
        log.blocked(name, notification, &indicator, Tried { program: None, caller: Some(&caller) });
        self.attempt = Some(Attempt { name, wall: indicator.wall, description: indicator.description, caller });
    }

    pub(crate) fn add(&mut self, notification: &Notification, log: &mut Log<'_>) {
        let (name, indicator) = self.count(notification);
        log.blocked(name, notification, &indicator, Tried { program: None, caller: None });
    }

    fn count(&mut self, notification: &Notification) -> (&'static str, Indicator) {
        self.violations = self.violations.saturating_add(1);
        let name = name_of(notification.number).unwrap_or("unknown");
        let indicator = indicator::of(name, &notification.arguments);
        self.indicators.count(indicator.level);
        match self.blocked.iter_mut().find(|b| b.number == notification.number) {
            Some(blocked) => blocked.count += 1,
            None => self.blocked.push(Blocked {
                name,
                number: notification.number,
                arguments: notification.arguments,
                count: 1,
            }),
        }
        (name, indicator)
    }
}
