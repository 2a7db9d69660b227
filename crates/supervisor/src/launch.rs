//! One launch from beginning to end: hold names, clone, supervise, clean up. Reads as a checklist.
//! Owns the order of the outside half; the inside half is `launcher::init`. Called by `cli` and the tests.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_egress::Terminates;
use cofferdam_gate::{Gate, RulesInHome};
use cofferdam_host::Shown;
use cofferdam_host::git::changes::GitNames;
use cofferdam_host::git::links::GitLinks;
use cofferdam_host::git::root::GitRoot;
use cofferdam_host::obeyed::{self, Obeyed, Start};
use cofferdam_host::state::{make_all, sessions_in};
use cofferdam_kernel::best_effort;
use cofferdam_kernel::process::{Side, namespace};
use cofferdam_kernel::shared::SharedEnd;
use cofferdam_kernel::signal::{self, SignalFd};
use cofferdam_kernel::timing::Marks;
use cofferdam_kernel::{process, socket};
use cofferdam_launcher::marks;
use cofferdam_launcher::report::{HOLDS_READY, Message};
use cofferdam_launcher::streams::{self, Kind, Kinds, Refused};
use cofferdam_launcher::terminal::Outer;
use cofferdam_launcher::{inheritance::Inheritance, init};
use cofferdam_plan::{
    LaunchPlan, Mount, MountKind, Namespaces, Step, TrustFormat, decide, gate_rules, gate_rules_in_home, own_areas,
};
use cofferdam_policy::Isolation;
use cofferdam_policy::decide::index::refuses;
use cofferdam_wire::Denied;
use cofferdam_wire::End;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde::Serialize;

use crate::attach;
use crate::covers::{Fallen, Keeper};
use crate::error::LaunchError;
use crate::event_loop::{Ends, Running};
use crate::execs::NotStarted;
use crate::execs::linger::Lingering;
use crate::first_process::FirstProcess;
use crate::limits::cgroup::{self, SessionCgroup};
use crate::limits::project_quota::Quota;
use crate::limits::usage::Usage;
use crate::network::credentials::Credentials;
use crate::network::egress_process::{self, Egress};
use crate::network::no_route::{Counters, Unrouted};
use crate::options::Options;
use crate::records::log::{Allowed, Blocked, Log, Probed, Reached, Record};
use crate::store::held_names::Holds;
use crate::store::overlay_changes::{self, Changed};
use crate::store::session_dir::{self, Kept, SessionDir};
use crate::terminal::output::{self, Output};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimingLine {
    pub step: String,
    pub nanoseconds: u64,
}

/// How a session went.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub session: String,
    pub end: End,
    pub blocked: Vec<Blocked>,
    /// What was refused or tried, recorded, and not counted.
    pub probed: Vec<Probed>,
    /// Paths that neither a rule nor an answer approved, as they were met.
    pub denied: Vec<Denied>,
    /// What became of answers that were to be kept.
    pub answers: Vec<String>,
    /// Paths that were unknown and were given, by a person, a hook or a rule.
    pub allowed: Vec<Allowed>,
    /// Hosts that were to be reached, allowed or not.
    pub hosts: Vec<Reached>,
    /// Secrets of the host that others can read.
    pub exposed: Vec<String>,
    /// Covers that host programs took off while it ran.
    pub fallen: Vec<Fallen>,
    /// What is weaker than it should be.
    pub warnings: Vec<String>,
    /// What programs of the host obey in the project, and was changed or made while it ran.
    pub obeyed: Obeyed,
    /// What a session that learns wrote where no rule lets it.
    pub changed: Vec<Changed>,
    pub violations: u32,
    /// Why output could not be passed on, as an errno; a reader that went away is no such reason.
    pub output_failed: Option<i32>,
    pub log_failed: bool,
    /// No other process can find this session: what says of it could not be written.
    pub is_unlisted: bool,
    /// Host path of each overlay that was written to and kept, with where its changes are.
    pub kept: Vec<(PathBuf, PathBuf)>,
    /// The session's directory, where it could not be removed.
    pub left_behind: Option<PathBuf>,
    /// What went nowhere, where it had a network namespace of its own.
    pub unrouted: Unrouted,
    pub timing: Vec<TimingLine>,
    pub usage: Usage,
}

/// Runs a plan until its command has ended.
pub fn run(plan: &LaunchPlan, options: &Options) -> Result<Outcome, LaunchError> {
    let marks = if options.timing { Marks::shared().map_err(LaunchError::Supervise)? } else { Marks::off() };
    let began = Instant::now();
    let since = Start::now();
    marks.mark(marks::START);
    let kinds = look_at_streams(plan, options)?;
    let mut credentials = Credentials::gather(plan)?;
    let exposed = credentials.as_mut().map(|gathered| std::mem::take(&mut gathered.exposed)).unwrap_or_default();
    let session = session_dir::new_id();
    let overlays = make_overlays(plan, options, &session)?;
    let quota = put_quota(plan, overlays.as_ref())?;
    let outer = Outer::look(plan.terminal).map_err(LaunchError::Supervise)?;
    let keeper = Keeper::take(plan).map_err(|(path, errno)| LaunchError::Keeper {
        path: Some(path).filter(|path| !path.as_os_str().is_empty()),
        errno,
    })?;
    let cgroup = make_cgroup(plan, &session)?;
    let mut way_out = plan.egress.as_ref().map(egress_process::Ends::new).transpose()?;
    let catcher = way_out.as_mut().and_then(egress_process::Ends::catcher);
    let (early, filled) = start_before(plan, &mut way_out, credentials)?;
    let plan = filled.as_ref().unwrap_or(plan);
    // The child waits for the names that are held. Where there are none, nothing keeps the command from changing first what
    // is looked at.
    let early_look = plan.holds.is_empty().then(|| Before::look(plan, options, since));
    let overlay_dir = overlays.as_ref().map(|o| o.path.as_path());
    let ends = start(plan, options, kinds, outer, cgroup, overlay_dir, catcher, marks)?;
    marks.mark(marks::CLONED);
    let egress = way_out.zip(plan.egress.as_ref()).map(|(ends, plan)| ends.start(plan, None));
    let egress = early.or(egress.transpose().map_err(LaunchError::Supervise)?);
    let Before { git, links, root, shown } = early_look.unwrap_or_else(|| Before::look(plan, options, since));
    let mut holds = take_holds(plan, &ends, options, &session)?;
    (holds.links, holds.root) = (links, root);
    marks.mark(marks::HOLDS);
    // From here on no other process may look into this one; before, the child could not have written its own id maps.
    process::forbid_tracing().map_err(LaunchError::Supervise)?;

    if let Some(plan) = &plan.limits.cgroup {
        cgroup::sweep(plan);
    }
    let gate = make_gate(plan, options)?;
    let mut running = Running::new(plan, ends, holds, gate, (session.clone(), overlays), options);
    running.network.egress = egress;
    running.keeper = keeper;
    for text in &exposed {
        running.log().warned(text);
    }
    let ended = running.until_end().map_err(LaunchError::Supervise);
    // One that could not be supervised any more was killed.
    let end = *ended.as_ref().unwrap_or(&End::Killed { signal: Signal::KILL.as_raw() });
    marks.mark(marks::ENDED);
    let unrouted = running.network.counters.take().map(Counters::read).unwrap_or_default();
    let set_up = running.set_up;
    let usage = running.usage(began.elapsed());
    running.end_egress();
    let kept = running.finish_keeping().map_err(LaunchError::Supervise);
    running.log();
    let (directory, is_listed) = (running.directory.take(), running.is_listed);
    let mut log = std::mem::take(&mut running.log);
    let output_failed = running.streams.output.as_ref().and_then(Output::failure).map(Errno::raw_os_error);
    let fallen = running.keeper.as_ref().map(Keeper::fallen).unwrap_or_default();
    let (reports, mut record) = (std::mem::take(&mut running.reports), std::mem::take(&mut running.record));
    let failed = running.execs.failed.clone().map(|NotStarted { why, code }| LaunchError::Exec { why, code });
    let lingering = running.lingering(&session);
    let ran = began.elapsed();
    let obeyed = set_up.then(|| look_back(plan, options, (git, shown, since), &mut log, &mut record));
    marks.mark(marks::LOOKED);
    let vanished = (!set_up && plan.namespaces.pid).then_some(LaunchError::Vanished);
    let reported = reports.into_iter().next().map(|report| failure(plan, report));
    let error = ended.err().or(failed).or(reported).or(vanished).or(kept.err());
    log.repeated(&record.probed);
    log.unrouted(unrouted);
    record_end(&mut log, error.as_ref(), end, ran, &usage);
    best_effort(lingering.map_or(Ok(()), Lingering::serve), "what was not read is gone");
    let changed = learned_changes(plan, directory.as_ref());
    let (kept, left_behind) = finish_directory(plan, directory, options);
    drop(quota);
    log.destroyed(left_behind.as_deref());
    if let Some(error) = error {
        return Err(error);
    }
    Ok(Outcome {
        session,
        end,
        violations: record.total,
        log_failed: log.failed,
        is_unlisted: !is_listed,
        output_failed,
        blocked: record.blocked,
        probed: record.probed,
        denied: record.denied,
        answers: record.answers,
        allowed: record.allowed,
        hosts: record.hosts,
        exposed,
        fallen,
        warnings: record.warnings,
        obeyed: obeyed.unwrap_or_default(),
        changed,
        kept,
        left_behind,
        unrouted,
        timing: timing(plan, marks),
        usage,
    })
}

fn record_end(log: &mut Log<'_>, error: Option<&LaunchError>, end: End, ran: Duration, usage: &Usage) {
    match error {
        Some(error) if !matches!(error, LaunchError::Supervise(_)) => {
            log.failed_to_start(&error.to_string(), error.exit_code(), ran);
        }
        _ => log.exited(end, ran, usage),
    }
}

/// Before anything is made. Without walls the streams are the command's as they are.
fn look_at_streams(plan: &LaunchPlan, options: &Options) -> Result<Kinds, LaunchError> {
    let cannot_be_joined = if plan.namespaces.pid {
        attach::no_joining(plan).map(str::to_owned)
    } else {
        Some(format!("isolation `{}` has nothing to join", plan.isolation))
    };
    if let (Some(_), Some(why)) = (&options.ordered, cannot_be_joined) {
        return Err(LaunchError::NothingToJoin { why });
    }
    let terminal = [plan.terminal.stdin, plan.terminal.stdout, plan.terminal.stderr];
    if plan.isolation == Isolation::None {
        return Ok(terminal.map(|is_terminal| if is_terminal { Kind::Terminal } else { Kind::Channel }));
    }
    let looked = streams::look().map_err(LaunchError::Supervise)?;
    looked.map_err(|Refused { stream, is }| LaunchError::Stream { stream, is })
}

/// Where TLS is read, the process that does it comes first: it alone gets the secrets and has the authority's key, and the
/// session is made with the certificate. Nothing that is cloned later has seen either.
fn start_before(
    plan: &LaunchPlan,
    ends: &mut Option<egress_process::Ends>,
    credentials: Option<Credentials>,
) -> Result<(Option<Egress>, Option<LaunchPlan>), LaunchError> {
    let (Some(credentials), Some(wanted)) = (credentials, &plan.egress) else { return Ok((None, None)) };
    let Some(ends) = ends.take() else { return Ok((None, None)) };
    let Credentials { trusted, injections, placeholders, .. } = credentials;
    let terminates = Terminates { trusted: trusted.clone(), injections };
    let mut egress = ends.start(wanted, Some(terminates)).map_err(LaunchError::Supervise)?;
    let authority = egress.authority().map_err(|why| LaunchError::Egress { why })?;
    let mut filled = plan.clone();
    for (name, value) in &mut filled.command.environment {
        if let Some((_, placeholder)) = placeholders.iter().find(|(variable, _)| variable == name) {
            value.clone_from(placeholder);
        }
    }
    for step in &mut filled.steps {
        if let Step::Mount(Mount { kind: MountKind::Trust { format, content }, .. }) = step {
            *content = match format {
                TrustFormat::Pem => trusted.bundle(&authority).into_bytes(),
                TrustFormat::Java => trusted.java_store(&authority),
            };
        }
    }
    Ok((Some(egress), Some(filled)))
}

/// Where what is written on the root that asks goes, in a session that learns.
fn upper_of_root(plan: &LaunchPlan, directory: &SessionDir) -> Option<PathBuf> {
    let slot = plan.steps.iter().find_map(|step| match step {
        Step::GateRoot { overlay, .. } => *overlay,
        _ => None,
    });
    slot.map(|slot| directory.path.join(slot.to_string()).join("upper"))
}

/// The directories above the home belong to a user who has no number inside, so the overlay could not copy them when
/// something is written below; they are there from the start.
fn lead_home(plan: &LaunchPlan, directory: &SessionDir) -> Result<(), Errno> {
    let (Some(upper), Some(gate)) = (upper_of_root(plan, directory), &plan.gate) else { return Ok(()) };
    let home = gate.home.strip_prefix("/").unwrap_or(&gate.home);
    make_all(&upper.join(home))
}

/// What was written on the root that asks, where the session learns.
fn learned_changes(plan: &LaunchPlan, directory: Option<&SessionDir>) -> Vec<Changed> {
    let upper = directory.and_then(|directory| upper_of_root(plan, directory));
    upper.map(|upper| overlay_changes::below(&upper)).unwrap_or_default()
}

/// Made while the child works, which waits for its first answer.
fn make_gate(plan: &LaunchPlan, options: &Options) -> Result<Option<Gate>, LaunchError> {
    let Some(gate) = &plan.gate else { return Ok(None) };
    let known = options.known.as_ref().ok_or(LaunchError::Supervise(Errno::INVAL))?;
    let rules = gate_rules(&known.policy, &known.facts, &plan.decisions);
    let (later, decisions) = (Rc::clone(known), plan.decisions.clone());
    let make = move || gate_rules_in_home(&later.policy, &later.facts, &decisions);
    let homes = known.facts.places().homes().map(PathBuf::from).collect();
    let in_home = RulesInHome { homes, make: Box::new(make) };
    let mounted = plan.steps.iter().filter_map(|step| match step {
        Step::Mount(mount) => Some(mount.target.clone()),
        _ => None,
    });
    let own = own_areas().map(PathBuf::from).collect();
    let (places, mounts) = (known.facts.places(), &known.facts.mounts);
    Ok(Some(Gate::new(gate.clone(), rules, in_home, places, mounted.collect(), own, mounts)))
}

fn put_quota(plan: &LaunchPlan, overlays: Option<&SessionDir>) -> Result<Option<Quota>, LaunchError> {
    let (Some(wanted), Some(overlays)) = (plan.limits.quota, overlays) else { return Ok(None) };
    let put = Quota::put(&overlays.path, wanted);
    put.map(Some).map_err(|errno| LaunchError::SessionDirectory { path: overlays.path.clone(), errno })
}

fn make_cgroup(plan: &LaunchPlan, session: &str) -> Result<Option<SessionCgroup>, LaunchError> {
    let Some(wanted) = &plan.limits.cgroup else { return Ok(None) };
    // A variable that is no text names no bus.
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let made = SessionCgroup::create(wanted, session, &environment);
    made.map(Some).map_err(|error| LaunchError::Cgroup { what: error.what, errno: error.errno })
}

/// What git on the host obeys, before anything inside can change it.
#[derive(Default)]
struct Before {
    git: Option<GitNames>,
    links: Option<GitLinks>,
    root: Option<GitRoot>,
    shown: Shown,
}

impl Before {
    fn look(plan: &LaunchPlan, options: &Options, since: Start) -> Self {
        let Some(known) = &options.known else { return Before::default() };
        let (policy, facts) = (&known.policy, &known.facts);
        Before {
            git: options.state.as_deref().and_then(|state| GitNames::look(policy, facts, state)),
            links: GitLinks::look(policy, facts, since),
            root: GitRoot::look(policy, facts),
            shown: Shown::look(&plan.decisions, facts),
        }
    }
}

/// What changed of what git and other programs of the host obey, once nothing inside can change it any more.
fn look_back(
    plan: &LaunchPlan,
    options: &Options,
    (git, shown, since): (Option<GitNames>, Shown, Start),
    log: &mut Log<'_>,
    record: &mut Record,
) -> Obeyed {
    for text in git.iter().flat_map(GitNames::differences).chain(shown.differences()) {
        log.warned(&text);
        record.warnings.push(text);
    }
    let project = options.known.as_ref().and_then(|known| obeyed::direct_project(&known.policy, &known.facts));
    let found = project.map(|project| obeyed::look(project, since, &plan.decisions, options.state.as_deref()));
    let mut found = found.unwrap_or_default();
    found.add(git.iter().flat_map(GitNames::made).collect());
    // Written for the operator, where the session cannot: its cover, fallen, would be told.
    let own = project.map(|project| project.join(".cofferdam")).filter(|_| record.wrote_project);
    let is_kept = |own: &PathBuf| decide(&plan.decisions, own).is_some_and(|decision| refuses(decision.access));
    if own.as_ref().is_some_and(is_kept) {
        found.files.retain(|file| !file.path.starts_with(".cofferdam"));
    }
    log.obeyed(&found);
    found
}

/// Made while the child builds its root, which waits for them before it mounts over them.
fn take_holds(plan: &LaunchPlan, ends: &Ends, options: &Options, session: &str) -> Result<Holds, LaunchError> {
    if plan.holds.is_empty() {
        return Ok(Holds::default());
    }
    // A stand-in without a record could not be told from a file of the user's.
    let Some(state) = &options.state else {
        return Err(LaunchError::SessionDirectory { path: PathBuf::from("holds"), errno: Errno::NOENT });
    };
    let holds = Holds::take(&plan.holds, state, session).map_err(|(path, errno)| LaunchError::Hold { path, errno })?;
    socket::send(ends.socket.as_fd(), HOLDS_READY, None).map_err(LaunchError::Supervise)?;
    Ok(holds)
}

/// Clones the child into its namespaces; in the parent returns what it needs to supervise.
#[expect(clippy::too_many_arguments, reason = "each is a thing of its own that the child gets")]
fn start(
    plan: &LaunchPlan,
    options: &Options,
    kinds: Kinds,
    outer: Option<Outer>,
    cgroup: Option<SessionCgroup>,
    overlay_dir: Option<&Path>,
    catcher: Option<OwnedFd>,
    marks: Marks,
) -> Result<Ends, LaunchError> {
    let supervise = LaunchError::Supervise;
    let (ours, theirs) = socket::pair().map_err(supervise)?;
    let told = SharedEnd::new().map_err(supervise)?;
    let (stops, stops_writer): (Option<OwnedFd>, Option<OwnedFd>) = match &outer {
        Some(outer) if outer.is_input() => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(supervise)?;
            (Some(read), Some(write))
        }
        _ => (None, None),
    };
    let (output, writers) = output::open(plan.limits.output, &kinds).map_err(supervise)?;
    signal::block_all().map_err(supervise)?;
    let into = cgroup.as_ref().map(AsFd::as_fd);
    match process::clone_into(flags(plan.namespaces), into).map_err(|errno| LaunchError::Namespaces { errno })? {
        Side::Child => {
            drop(ours);
            drop(stops);
            drop(output);
            init::run(&Inheritance {
                plan,
                has_command: options.ordered.is_none(),
                parent: theirs,
                stops: stops_writer,
                writers,
                kinds,
                told,
                outer,
                overlay_dir,
                catcher,
                marks,
            })
        }
        Side::Parent { pid, pidfd } => {
            drop(theirs);
            drop(stops_writer);
            drop(writers);
            drop(catcher);
            let signals = SignalFd::new().map_err(supervise)?;
            Ok(Ends {
                first: FirstProcess { pid, pidfd, cgroup, is_pid_1: plan.namespaces.pid, told },
                socket: ours,
                stops,
                signals,
                outer,
                output,
            })
        }
    }
}

/// The network namespace is a step of its own: it is made beside the others (docs/decisions/0013).
fn flags(namespaces: Namespaces) -> u64 {
    [
        (namespaces.user, namespace::USER),
        (namespaces.pid, namespace::PID),
        (namespaces.mount, namespace::MOUNT),
        (namespaces.ipc, namespace::IPC),
        (namespaces.uts, namespace::UTS),
        (namespaces.cgroup, namespace::CGROUP),
    ]
    .into_iter()
    .filter_map(|(wanted, flag)| wanted.then_some(flag))
    .sum()
}

fn failure(plan: &LaunchPlan, report: Message) -> LaunchError {
    let errno = Errno::from_raw_os_error;
    match report {
        Message::Failed { step, errno: number, text } => LaunchError::Step {
            step: plan.steps.get(usize::from(step)).cloned().map(Box::new),
            what: text,
            errno: errno(number),
        },
        Message::NotExecuted { errno: number } => {
            let program = plan.command.argv.first().cloned().unwrap_or_default();
            LaunchError::Execute { program, errno: errno(number) }
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
        | Message::Namespaces => LaunchError::Vanished,
    }
}

/// Overlay steps, by slot: the host path and whether a flag or a file of the user asked for it (then its changes are kept).
fn overlay_slots(plan: &LaunchPlan) -> Vec<(usize, PathBuf, bool)> {
    let mounts = plan.steps.iter().filter_map(|step| match step {
        Step::Mount(mount) => Some(mount),
        _ => None,
    });
    mounts
        .filter_map(|mount| match &mount.kind {
            MountKind::Overlay { lower, slot, .. } => {
                let asked = cofferdam_plan::decide(&plan.decisions, lower)
                    .is_some_and(|d| d.origin.layer != cofferdam_policy::Layer::BuiltIn);
                Some((*slot, lower.clone(), asked))
            }
            _ => None,
        })
        .collect()
}

fn make_overlays(plan: &LaunchPlan, options: &Options, session: &str) -> Result<Option<SessionDir>, LaunchError> {
    if plan.overlays == 0 {
        return Ok(None);
    }
    // Without a place of its own nothing is made: a relative path would land in the project.
    let Some(state) = &options.state else {
        return Err(LaunchError::SessionDirectory { path: PathBuf::from("sessions"), errno: Errno::NOENT });
    };
    let slots = overlay_slots(plan);
    let learns = plan.gate.as_ref().is_some_and(|gate| gate.learns);
    let asked = slots.iter().filter(|(_, _, asked)| *asked && !learns);
    let keep: Vec<Kept<'_>> = asked.map(|(slot, lower, _)| Kept { slot: *slot, lower }).collect();
    let made = SessionDir::create(state, session, plan.overlays, &keep).and_then(|directory| {
        lead_home(plan, &directory)?;
        Ok(directory)
    });
    match made {
        Ok(dirs) => Ok(Some(dirs)),
        Err(errno) => Err(LaunchError::SessionDirectory { path: sessions_in(state), errno }),
    }
}

/// The overlays that are kept, and the directory that could not be removed.
fn finish_directory(
    plan: &LaunchPlan,
    directory: Option<SessionDir>,
    options: &Options,
) -> (Vec<(PathBuf, PathBuf)>, Option<PathBuf>) {
    let (Some(directory), Some(state)) = (directory, &options.state) else { return (Vec::new(), None) };
    let finished = directory.finish(state);
    let slots = overlay_slots(plan);
    let lower_of = |slot: usize| slots.iter().find(|(s, _, _)| *s == slot).map(|(_, lower, _)| lower.clone());
    let kept = finished.kept.into_iter().filter_map(|(slot, upper)| Some((lower_of(slot)?, upper)));
    (kept.collect(), finished.left_behind)
}

/// What each step took. Steps are measured in the child, the rest in the parent; they overlap after the clone.
fn timing(plan: &LaunchPlan, marks: Marks) -> Vec<TimingLine> {
    let mut lines = Vec::new();
    let mut line = |step: String, from: Option<u64>, to: Option<u64>| {
        if let (Some(from), Some(to)) = (from, to) {
            lines.push(TimingLine { step, nanoseconds: to.saturating_sub(from) });
        }
    };
    line("clone3 (as the parent sees it)".to_owned(), marks.read(marks::START), marks.read(marks::CLONED));
    line("hold names (while the child works)".to_owned(), marks.read(marks::CLONED), marks.read(marks::HOLDS));
    line("clone3 (until the child runs)".to_owned(), marks.read(marks::START), marks.read(marks::CHILD));
    let mut before = marks.read(marks::CHILD);
    for (index, step) in plan.steps.iter().enumerate() {
        let after = marks.read(marks::FIRST_STEP + index);
        line(step_name(step), before, after);
        before = after;
    }
    line("fork, until exec".to_owned(), before, marks.read(marks::EXECUTE));
    line("exec and run".to_owned(), marks.read(marks::EXECUTE), marks.read(marks::REAPED));
    line("end of pid 1".to_owned(), marks.read(marks::REAPED), marks.read(marks::ENDED));
    line("total".to_owned(), marks.read(marks::START), marks.read(marks::ENDED));
    line("after it, look at what the host obeys".to_owned(), marks.read(marks::ENDED), marks.read(marks::LOOKED));
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
        Step::CloneRoot { .. } => "clone the host tree".to_owned(),
        Step::GateRoot { .. } => "the root that asks".to_owned(),
        Step::PivotRoot => "pivot_root".to_owned(),
        Step::SetHostname(_) => "hostname".to_owned(),
        Step::CreateNetwork => "start the network namespace".to_owned(),
        Step::JoinNetwork => "join the network namespace".to_owned(),
        Step::OfferAgent { .. } => "offer an ssh-agent".to_owned(),
        Step::Limit { resource, .. } => format!("limit {resource:?}"),
        Step::DropCapabilities => "drop capabilities".to_owned(),
        Step::NoNewPrivileges => "no_new_privs".to_owned(),
        Step::Landlock(_) => "Landlock".to_owned(),
        Step::Seccomp => "seccomp".to_owned(),
    }
}
