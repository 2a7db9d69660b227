//! One launch from beginning to end: hold names, clone, supervise, clean up. Reads as a checklist.
//! Owns the order of the outside half; the inside half is `launcher::init`. Called by `cli` and the tests.

pub(crate) mod finish;
mod overlays;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_gate::{Gate, RulesInHome};
use cofferdam_host::Shown;
use cofferdam_host::git::changes::GitNames;
use cofferdam_host::git::links::GitLinks;
use cofferdam_host::git::root::GitRoot;
use cofferdam_host::obeyed::{Start, direct_project};
use cofferdam_kernel::process::{Side, namespace};
use cofferdam_kernel::shared::SharedEnd;
use cofferdam_kernel::signal::{self, SignalFd};
use cofferdam_kernel::timing::Marks;
use cofferdam_kernel::{process, socket};
use cofferdam_launcher::marks;
use cofferdam_launcher::report::{EGRESS_READY, HOLDS_READY, JOINED};
use cofferdam_launcher::streams::{self, Kind, Kinds, Refused};
use cofferdam_launcher::terminal::Outer;
use cofferdam_launcher::{inheritance::Inheritance, init};
use cofferdam_plan::{
    LaunchPlan, Mount, MountKind, Namespaces, Step, TrustFormat, gate_rules, gate_rules_in_home, own_areas,
};
use cofferdam_policy::Isolation;
use cofferdam_reach::start::Terminates;
use cofferdam_workspace::beginnings::Recording;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::attach;
use crate::covers::Keeper;
use crate::covers::arrivals::Arrivals;
use crate::error::LaunchError;
use crate::event_loop::{Ends, RECORDING, Running};
use crate::first_process::FirstProcess;
use crate::launch::finish::{Begun, Outcome};
use crate::launch::overlays::make_overlays;
use crate::limits::cgroup::{self, SessionCgroup};
use crate::limits::project_quota::Quota;
use crate::network::credentials::Credentials;
use crate::network::egress_process::{self, Authorities, Egress, Reach, Starting};
use crate::network::refuser::Refuser;
use crate::options::Options;
use crate::store::held_names::Holds;
use crate::store::session_dir::{self, SessionDir};
use crate::terminal::output;

/// Looking through the trees of a transaction takes so long while the child sets itself up; the rest is for idle moments.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// Runs a plan until its command has ended.
pub fn run(plan: &LaunchPlan, options: &Options) -> Result<Outcome, LaunchError> {
    let marks = if options.timing { Marks::shared().map_err(LaunchError::Supervise)? } else { Marks::off() };
    let began = Instant::now();
    marks.mark(marks::START);
    let kinds = look_at_streams(plan, options)?;
    let mut way_out = open_way_out(plan, options)?;
    let mut refuser = Refuser::of(plan, options.egress_program.as_deref()).map_err(LaunchError::Supervise)?;
    let catcher = way_out.as_mut().and_then(egress_process::Ends::catcher);
    let catcher = catcher.or_else(|| refuser.as_mut().and_then(Refuser::catcher));
    let starting = start_to_read_tls(plan, &mut way_out)?;
    let mut credentials = Credentials::gather(plan)?;
    let exposed = credentials.as_mut().map(|gathered| std::mem::take(&mut gathered.exposed)).unwrap_or_default();
    let session = session_dir::new_id();
    let overlays = make_overlays(plan, options, &session)?;
    let quota = put_quota(plan, overlays.as_ref())?;
    let outer = Outer::look(plan.terminal).map_err(LaunchError::Supervise)?;
    let mut keeper = take_keeper(plan, options, overlays.as_ref())?;
    let cgroup = make_cgroup(plan, &session)?;
    let (early, filled) = give_secrets(plan, starting, credentials)?;
    let plan = filled.as_ref().unwrap_or(plan);
    // The child waits for the names that are held. Where there are none, nothing keeps the command from changing first what
    // is looked at.
    let early_look = plan.holds.is_empty().then(|| Before::look(plan, options));
    let overlay_dir = overlays.as_ref().map(|o| o.path.as_path());
    let ends = start(plan, options, kinds, outer, cgroup, overlay_dir, catcher, marks)?;
    marks.mark(marks::CLONED);
    let starting = way_out.map(|ends| ends.start(Reach::Hosts)).transpose()?;
    let Before { since, git, links, root, shown } = early_look.unwrap_or_else(|| Before::look(plan, options));
    if let Some(keeper) = &mut keeper {
        keeper.look_through(FIRST_LOOK);
    }
    let mut holds = take_holds(plan, &ends, options, &session)?;
    (holds.links, holds.root) = (links, root);
    marks.mark(marks::HOLDS);
    let egress = await_egress(plan, &ends, starting)?;
    // From here on no other process may look into this one; before, the child could not have written its own id maps.
    process::forbid_tracing().map_err(LaunchError::Supervise)?;

    if let Some(plan) = &plan.limits.cgroup {
        cgroup::sweep(plan);
    }
    let gate = make_gate(plan, options)?;
    let recording = overlays.as_ref().filter(|_| plan.transaction.is_on());
    let recording = recording.map(|one| Recording::new(one.path.clone(), !plan.limits.limits_disks()));
    let mut running = Running::new(plan, ends, holds, gate, (session.clone(), overlays), options);
    running.network.egress = early.or(egress);
    running.network.refuser = refuser;
    running.keeper = keeper;
    running.recording = recording;
    // The child builds its walls: of most projects all is known before the command starts.
    running.record(RECORDING);
    for text in &exposed {
        running.log().warned(text);
    }
    let ended = running.until_end().map_err(LaunchError::Supervise);
    marks.mark(marks::ENDED);
    Begun { plan, options, session, began, since, git, shown, exposed, quota, marks }.finish(running, ended)
}

fn take_keeper(
    plan: &LaunchPlan,
    options: &Options,
    overlays: Option<&SessionDir>,
) -> Result<Option<Keeper>, LaunchError> {
    let arrivals = match (overlays, options.known.as_deref()) {
        (Some(overlays), Some(known)) => Arrivals::of(plan, known, &overlays.path),
        _ => Ok(None),
    };
    arrivals.and_then(|arrivals| Keeper::take(plan, arrivals)).map_err(|(path, errno)| LaunchError::Keeper {
        path: Some(path).filter(|path| !path.as_os_str().is_empty()),
        errno,
    })
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

fn open_way_out(plan: &LaunchPlan, options: &Options) -> Result<Option<egress_process::Ends>, LaunchError> {
    let program = options.egress_program.as_deref();
    let hosts = plan.egress.as_ref().filter(|egress| !egress.only_refuses);
    hosts.map(|egress| egress_process::Ends::new(egress, program)).transpose()
}

/// Where TLS is read, the process that does it comes first, while there is no secret in this process yet.
fn start_to_read_tls(
    plan: &LaunchPlan,
    ends: &mut Option<egress_process::Ends>,
) -> Result<Option<Starting>, LaunchError> {
    let reads_tls = plan.egress.as_ref().is_some_and(|egress| egress.terminates.is_some());
    ends.take_if(|_| reads_tls).map(|ends| ends.start(Reach::Hosts)).transpose()
}

/// It alone gets the secrets and has the authority's key, and the session is made with the certificate. Nothing that is cloned
/// later has seen either.
fn give_secrets(
    plan: &LaunchPlan,
    starting: Option<Starting>,
    credentials: Option<Credentials>,
) -> Result<(Option<Egress>, Option<LaunchPlan>), LaunchError> {
    let (Some(credentials), Some(wanted)) = (credentials, &plan.egress) else { return Ok((None, None)) };
    let Some(starting) = starting else { return Ok((None, None)) };
    let Credentials { trusted, injections, placeholders, .. } = credentials;
    let mut egress = starting.give(wanted, Some(Terminates { trusted, injections }))?;
    let Authorities { pem, java } = egress.authorities()?;
    let mut filled = plan.clone();
    for (name, value) in &mut filled.command.environment {
        if let Some((_, placeholder)) = placeholders.iter().find(|(variable, _)| variable == name) {
            value.clone_from(placeholder);
        }
    }
    for step in &mut filled.steps {
        if let Step::Mount(Mount { kind: MountKind::Trust { format, content }, .. }) = step {
            *content = match format {
                TrustFormat::Pem => pem.clone(),
                TrustFormat::Java => java.clone(),
            };
        }
    }
    Ok((Some(egress), Some(filled)))
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
struct Before {
    since: Start,
    git: Option<GitNames>,
    links: Option<GitLinks>,
    root: Option<GitRoot>,
    shown: Shown,
}

impl Before {
    fn look(plan: &LaunchPlan, options: &Options) -> Self {
        let Some(known) = &options.known else {
            return Before { since: Start::now(None), git: None, links: None, root: None, shown: Shown::default() };
        };
        let (policy, facts) = (&known.policy, &known.facts);
        let since = Start::now(direct_project(policy, facts));
        Before {
            since,
            git: options.state.as_deref().and_then(|state| GitNames::look(policy, facts, state)),
            links: GitLinks::look(policy, facts, since),
            root: GitRoot::look(policy, facts),
            shown: Shown::look(&plan.decisions, facts),
        }
    }
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

/// Gives the egress process its start, and lets the child go on, which waits for that before it may start the command.
fn await_egress(plan: &LaunchPlan, ends: &Ends, starting: Option<Starting>) -> Result<Option<Egress>, LaunchError> {
    let Some(wanted) = plan.egress.as_ref().filter(|egress| !egress.only_refuses) else { return Ok(None) };
    let egress = starting.map(|starting| starting.give(wanted, None)).transpose()?;
    if plan.steps.contains(&Step::AwaitEgress) {
        socket::send(ends.socket.as_fd(), EGRESS_READY, None).map_err(LaunchError::Supervise)?;
    }
    Ok(egress)
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
    let outside = own_namespaces(plan).map_err(supervise)?;
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
                descriptors: &options.descriptors,
                catcher,
                outside,
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

/// By which the child sees that its own are others. Without walls it has none.
fn own_namespaces(plan: &LaunchPlan) -> Result<[u64; JOINED.len()], Errno> {
    let mut numbers = [0; JOINED.len()];
    if plan.namespaces.pid {
        for (number, kind) in numbers.iter_mut().zip(JOINED) {
            *number = kind.own_number()?;
        }
    }
    Ok(numbers)
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
