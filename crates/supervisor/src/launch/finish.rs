//! What comes after the end of a session: looks at what changed, writes the last records, lets go of what was made, and says how
//! it went. Owns that order; what a person reads of it is `cli`'s. Called by `launch::run`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_host::Shown;
use cofferdam_host::git::changes::GitNames;
use cofferdam_host::obeyed::{self, Obeyed, Start};
use cofferdam_kernel::best_effort;
use cofferdam_kernel::timing::Marks;
use cofferdam_launcher::marks;
use cofferdam_launcher::report::Message;
use cofferdam_plan::{LaunchPlan, Step, decide};
use cofferdam_policy::decide::index::refuses;
use cofferdam_wire::{Changed, Denial, Denied, End, TimingLine, Unrouted, Usage};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::covers::{Fallen, Keeper};
use crate::error::LaunchError;
use crate::event_loop::Running;
use crate::execs::NotStarted;
use crate::execs::linger::Lingering;
use crate::launch::overlays::{finish_directory, learned_changes, thrown_away};
use crate::limits::project_quota::Quota;
use crate::network::no_route::Counters;
use crate::options::Options;
use crate::records::log::Log;
use crate::records::summary::Summary;
use crate::response::{self, Past};
use crate::terminal::output::Output;

/// How a session went.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub session: String,
    pub end: End,
    pub summary: Summary,
    /// Secrets of the host that others can read.
    pub exposed: Vec<String>,
    /// Covers that host programs took off while it ran.
    pub fallen: Vec<Fallen>,
    /// What programs of the host obey in the project, and was changed or made while it ran.
    pub obeyed: Obeyed,
    /// What a session that learns wrote where no rule lets it.
    pub changed: Vec<Changed>,
    /// What was written for the session alone, and has gone with it: caches, and overlays of one that learns.
    pub thrown_away: Vec<PathBuf>,
    /// Why output could not be passed on, as an errno; a reader that went away is no such reason.
    pub output_failed: Option<i32>,
    pub log_failed: bool,
    /// No other process can find this session: what says of it could not be written.
    pub is_unlisted: bool,
    /// Host path of each overlay that was written to and kept, with where its changes are.
    pub kept: Vec<(PathBuf, PathBuf)>,
    /// The directory of its transaction, where it changed something.
    pub transaction: Option<PathBuf>,
    /// The session's directory, where it could not be removed.
    pub left_behind: Option<PathBuf>,
    /// What went nowhere, where it had a network namespace of its own.
    pub unrouted: Unrouted,
    pub timing: Vec<TimingLine>,
    pub usage: Usage,
}

/// What the end of a session needs of its beginning.
pub(super) struct Begun<'a> {
    pub(super) plan: &'a LaunchPlan,
    pub(super) options: &'a Options,
    pub(super) session: String,
    pub(super) began: Instant,
    pub(super) since: Start,
    pub(super) git: Option<GitNames>,
    pub(super) shown: Shown,
    pub(super) exposed: Vec<String>,
    pub(super) quota: Option<Quota>,
    pub(super) marks: Marks,
}

impl Begun<'_> {
    pub(super) fn finish(
        self,
        mut running: Running<'_>,
        ended: Result<End, LaunchError>,
    ) -> Result<Outcome, LaunchError> {
        let Begun { plan, options, session, began, since, git, shown, exposed, quota, marks } = self;
        // One that could not be supervised any more was killed.
        let end = *ended.as_ref().unwrap_or(&End::Killed { signal: Signal::KILL.as_raw() });
        let unrouted = running.network.counters.take().map(Counters::read).unwrap_or_default();
        let set_up = running.set_up.stands;
        let usage = running.usage(began.elapsed());
        running.end_egress();
        let kept = running.finish_keeping().map_err(LaunchError::Supervise);
        running.log();
        let (directory, is_listed) = (running.startup.directory.take(), running.startup.is_listed);
        let mut log = std::mem::take(&mut running.log);
        let output_failed = running.streams.output.as_ref().and_then(Output::failure).map(Errno::raw_os_error);
        let fallen = running.keeper.as_ref().map(Keeper::fallen).unwrap_or_default();
        let (reports, mut summary) =
            (std::mem::take(&mut running.set_up.reports), std::mem::take(&mut running.summary));
        let failed = running.execs.failed.clone().map(|NotStarted { why, code }| LaunchError::Exec { why, code });
        let subject = running.ending.subject.take();
        let lingering = running.lingering(&session);
        let ran = began.elapsed();
        let obeyed = set_up.then(|| look_back(plan, options, (git, shown, since), &mut log, &mut summary));
        marks.mark(marks::LOOKED);
        let vanished = (!set_up && plan.namespaces.pid).then_some(LaunchError::Vanished);
        let reported = reports.into_iter().next().map(|report| failure(plan, report, &summary.denied));
        let error = ended.err().or(failed).or(reported).or(vanished).or(kept.err());
        log.repeated(&summary.probed);
        log.unrouted(unrouted);
        record_end(&mut log, error.as_ref(), end, ran, &usage);
        // Whatever else went wrong, and before clients read what is left, for as long as they like.
        if end.is_for_safety() {
            let (state, transaction) = (options.state.as_deref(), directory.as_ref());
            let transaction = state.and_then(|state| transaction.and_then(|one| one.to_be_kept(state)));
            let (subject, transaction) = (subject.as_deref(), transaction.as_deref());
            response::follow(&Past { plan, end, state, subject, transaction }, &mut summary, &mut log);
        }
        best_effort(lingering.map_or(Ok(()), Lingering::serve), "what was not read is gone");
        let changed = learned_changes(plan, directory.as_ref());
        let mut thrown_away = thrown_away(plan, directory.as_ref());
        thrown_away.append(&mut summary.new_caches);
        let (kept, left_behind) = finish_directory(plan, directory, options);
        drop(quota);
        let transaction = kept.first().and_then(|(_, upper)| upper.ancestors().nth(2)).map(PathBuf::from);
        log.destroyed(left_behind.as_deref());
        if let Some(error) = error {
            return Err(error);
        }
        wait_for_quantum(plan.completion_quantum, began);
        let (log_failed, is_unlisted, obeyed) = (log.failed, !is_listed, obeyed.unwrap_or_default());
        let timing = timing(plan, marks);
        Ok(Outcome {
            session,
            end,
            summary,
            exposed,
            fallen,
            obeyed,
            changed,
            thrown_away,
            output_failed,
            log_failed,
            is_unlisted,
            kept,
            transaction,
            left_behind,
            unrouted,
            timing,
            usage,
        })
    }
}

/// So that the time at which the end is told says no more than its quantum does. All that takes time of its own comes before.
fn wait_for_quantum(quantum: Option<Duration>, began: Instant) {
    let Some(quantum) = quantum.filter(|quantum| !quantum.is_zero()) else { return };
    let over = began.elapsed().as_nanos() % quantum.as_nanos();
    let rest = quantum.as_nanos() - over;
    std::thread::sleep(Duration::from_nanos(u64::try_from(rest).unwrap_or(0)));
}

fn record_end(log: &mut Log<'_>, error: Option<&LaunchError>, end: End, ran: Duration, usage: &Usage) {
    match error {
        Some(error) if !matches!(error, LaunchError::Supervise(_)) => {
            log.failed_to_start(&error.to_string(), error.exit_code(), ran);
        }
        _ => log.exited(end, ran, usage),
    }
}

/// What changed of what git and other programs of the host obey, once nothing inside can change it any more.
fn look_back(
    plan: &LaunchPlan,
    options: &Options,
    (git, shown, since): (Option<GitNames>, Shown, Start),
    log: &mut Log<'_>,
    summary: &mut Summary,
) -> Obeyed {
    for text in git.iter().flat_map(GitNames::differences).chain(shown.differences()) {
        log.warned(&text);
        summary.warnings.push(text);
    }
    let project = options.known.as_ref().and_then(|known| obeyed::direct_project(&known.policy, &known.facts));
    let found = project.map(|project| obeyed::look(project, since, &plan.decisions, options.state.as_deref()));
    let mut found = found.unwrap_or_default();
    found.add(git.iter().flat_map(GitNames::made).collect());
    // Written for the operator, where the session cannot: its cover, fallen, would be told.
    let own = project.map(|project| project.join(".cofferdam")).filter(|_| summary.wrote_project);
    let is_kept = |own: &PathBuf| decide(&plan.decisions, own).is_some_and(|decision| refuses(decision.access));
    if own.as_ref().is_some_and(is_kept) {
        found.files.retain(|file| !file.path.starts_with(".cofferdam"));
    }
    log.obeyed(&found);
    found
}

fn failure(plan: &LaunchPlan, report: Message, denied: &[Denied]) -> LaunchError {
    let errno = Errno::from_raw_os_error;
    match report {
        Message::Failed { step, errno: number, text } => LaunchError::Step {
            step: plan.steps.get(usize::from(step)).cloned().map(Box::new),
            what: text,
            errno: errno(number),
        },
        Message::NotExecuted { errno: number } => {
            let program = plan.command.argv.first().cloned().unwrap_or_default();
            // What a rule hides is not to be proposed.
            let is_unapproved = |denied: &&Denied| matches!(denied.denial, Denial::Unapproved { .. });
            LaunchError::Execute { program, denied: denied.last().filter(is_unapproved).cloned(), errno: errno(number) }
        }
        Message::NoDirectory { errno: number } => {
            LaunchError::Directory { path: plan.command.cwd.clone(), errno: errno(number) }
        }
        Message::Listener
        | Message::Terminal
        | Message::Input
        | Message::Processes
        | Message::Segments
        | Message::Gate
        | Message::Mounts
        | Message::Tree
        | Message::View
        | Message::Checkpoints
        | Message::Namespaces => LaunchError::Vanished,
    }
}

/// What each step took. Steps are measured in the child, the rest in the parent; they overlap after the clone.
fn timing(plan: &LaunchPlan, marks: Marks) -> Vec<TimingLine> {
    let mut lines = Vec::new();
    let mut line = |step: &str, from: usize, to: usize| {
        if let (Some(from), Some(to)) = (marks.read(from), marks.read(to)) {
            lines.push(TimingLine { step: step.to_owned(), nanoseconds: to.saturating_sub(from) });
        }
    };
    line("clone3 (as the parent sees it)", marks::START, marks::CLONED);
    line("hold names (while the child works)", marks::CLONED, marks::HOLDS);
    line("clone3 (until the child runs)", marks::START, marks::CHILD);
    let mut before = marks::CHILD;
    for (after, step) in (marks::FIRST_STEP..).zip(&plan.steps) {
        line(&step_name(step), before, after);
        before = after;
    }
    line("fork, until exec", before, marks::EXECUTE);
    line("exec and run", marks::EXECUTE, marks::REAPED);
    line("end of pid 1", marks::REAPED, marks::ENDED);
    line("total", marks::START, marks::ENDED);
    line("after it, look at what the host obeys", marks::ENDED, marks::LOOKED);
    lines
}

fn step_name(step: &Step) -> String {
    match step {
        Step::Mount(mount) => format!("mount {}", mount.target.display()),
        Step::Link { at, .. } => format!("link {}", at.display()),
        Step::MakeDirectory { at, .. } => format!("directory {}", at.display()),
        Step::MapIds { .. } => "id maps".to_owned(),
        Step::ForbidUserNamespaces => "forbid user namespaces".to_owned(),
        Step::CountedLimit { name, .. } => format!("limit {name}"),
        Step::LargestPid { .. } => "largest pid".to_owned(),
        Step::OwnCgroupView => "own view of cgroups".to_owned(),
        Step::EndFirst => "oom_score_adj".to_owned(),
        Step::Pin { .. } => "pin to CPUs".to_owned(),
        Step::AwaitHolds => "wait for held names".to_owned(),
        Step::AwaitEgress => "wait for the egress process".to_owned(),
        Step::CloneRoot { .. } => "clone the host tree".to_owned(),
        Step::GateRoot { .. } => "the root that asks".to_owned(),
        Step::PivotRoot => "pivot_root".to_owned(),
        Step::SetHostname(_) => "hostname".to_owned(),
        Step::CreateNetwork => "start the network namespace".to_owned(),
        Step::JoinNetwork => "join the network namespace".to_owned(),
        Step::OfferAgent { .. } => "offer an ssh-agent".to_owned(),
        Step::OfferCheckpoints { .. } => "offer checkpoints".to_owned(),
        Step::Limit { resource, .. } => format!("limit {resource:?}"),
        Step::DropCapabilities => "drop capabilities".to_owned(),
        Step::NoNewPrivileges => "no_new_privs".to_owned(),
        Step::Landlock(_) => "Landlock".to_owned(),
        Step::Seccomp => "seccomp".to_owned(),
    }
}
