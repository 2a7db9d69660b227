//! The plan itself: which namespaces, which steps in which order, and what posture they reach.
//! Owns the order of a launch, which reads as a checklist; the details of files and system calls live in `files` and `seccomp`.
//! Called by `cli`; the result is executed by `launcher`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_policy::{
    Access, Isolation, KeeperMode, Layer, NetworkMode, OnUnknown, Origin, Policy, Transaction, TransactionMode,
};
use serde::Serialize;

use crate::facts::host::{HostFacts, Terminal};
use crate::facts::path::PathFact;
use crate::files::absent::{absent, absent_in_overlays};
use crate::files::cover::{self, Cover, Covered};
use crate::files::decision::{Decision, decide};
use crate::files::mounts::list::FileMounts;
use crate::files::rules::decisions;
use crate::files::{mounts, rules, system};
use crate::gate::GatePlan;
use crate::limits::choice::{self, ChosenLimits};
use crate::limits::plan::LimitsPlan;
use crate::network::egress::{EgressPlan, tell_of_credentials};
use crate::network::terminates::{TerminatesPlan, refuse_writable_secrets};
use crate::posture::Posture;
use crate::response::ResponsePlan;
use crate::seccomp::{self, Filter};
use crate::step::{Hold, LandlockStep, Mount, MountKind, Namespaces, OVERLAY_OPTIONS, Step, Trigger};
use crate::{PlanError, environment};

/// Landlock ABI from which abstract sockets and signals can be scoped.
const LANDLOCK_SCOPES: u32 = 6;
/// Of the 128 that the kernel gives a user by default.
const INOTIFY_INSTANCES: u64 = 8;
/// They cost a kilobyte each.
const INOTIFY_WATCHES: u64 = 1 << 17;
/// The part of this user's that a session may have: the rest is left to its keeper, to other sessions and to host programs.
const INOTIFY_PART: u64 = 4;
const HOSTNAME: &str = "sandbox";

impl CommandSpec {
    /// Where programs are looked for inside.
    pub fn search(&self) -> &str {
        self.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value)
    }
}

/// What the user asks to run.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub argv: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Nothing is written for real: what would be goes to overlays, and with it what is unknown.
    pub learns: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandSpec {
    pub argv: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub cwd: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaunchPlan {
    pub isolation: Isolation,
    pub namespaces: Namespaces,
    pub command: CommandSpec,
    pub holds: Vec<Hold>,
    /// What keeps names hidden, unwritable or absent, and what keeps that.
    pub covers: Vec<Cover>,
    pub steps: Vec<Step>,
    pub filter: Filter,
    pub max_violations: u32,
    pub response: ResponsePlan,
    /// A fallen cover ends the session, whatever came of it.
    pub keeper_is_strict: bool,
    pub timeout: Option<Duration>,
    /// The end is told at a multiple of it after the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_quantum: Option<Duration>,
    pub limits: LimitsPlan,
    pub terminal: Terminal,
    /// Number of overlay slots that need an upper directory.
    pub overlays: usize,
    pub decisions: Vec<Decision>,
    /// What becomes of what is written in the project; `off` also where a transaction was asked for and nothing is written there directly.
    pub transaction: Transaction,
    /// Whether it is written to a copy, over which no layer of the host lies.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub copies: bool,
    /// Where the workload says that a step of its work is done, in a transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<PathBuf>,
    /// Where unknown paths ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GatePlan>,
    /// Where connections to named hosts are carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressPlan>,
    pub posture: Posture,
}

impl LaunchPlan {
    /// Whether the supervisor watches a cover, or may have to: once an answer gives a tree for writing, or a hidden name comes into
    /// being below a transaction.
    pub fn watches_covers(&self) -> bool {
        self.gate.is_some() || self.covers.iter().any(Cover::is_watched) || self.transaction_trees().next().is_some()
    }

    /// What becomes of what is written at a path.
    pub fn transaction_at(&self, path: &Path) -> Transaction {
        let is_in_it = decide(&self.decisions, path).is_some_and(Decision::in_transaction);
        if is_in_it { self.transaction } else { Transaction::Off }
    }

    /// Whether a directory of the transaction is copied before the session begins.
    pub fn is_copied(&self, path: &Path) -> bool {
        self.copies && self.transaction_at(path).is_on()
    }

    /// The overlays of which what was written is kept: those of a transaction, and that a flag or a file asked for. In this order the manifest
    /// of a transaction has them, and the set-up child sends how it sees them.
    pub fn kept_overlays(&self) -> Vec<SlotOverlay<'_>> {
        self.overlays().filter(|overlay| self.is_kept(overlay)).collect()
    }

    /// The overlays that go with their session, whatever was written to them: the caches of the shipped lists, and all where it learns.
    pub fn thrown_away_overlays(&self) -> impl Iterator<Item = SlotOverlay<'_>> {
        self.overlays().filter(|overlay| !self.is_kept(overlay))
    }

    fn is_kept(&self, overlay: &SlotOverlay<'_>) -> bool {
        let is_asked = decide(&self.decisions, overlay.lower).is_some_and(Decision::is_kept_overlay);
        is_asked && !self.gate.as_ref().is_some_and(|gate| gate.learns)
    }

    fn overlays(&self) -> impl Iterator<Item = SlotOverlay<'_>> {
        self.steps.iter().filter_map(|step| match step {
            Step::Mount(Mount { target, kind: MountKind::Overlay { lower, slot, .. }, .. }) => {
                Some(SlotOverlay { slot: *slot, lower, target })
            }
            _ => None,
        })
    }

    /// The overlays of the transaction, each with its slot.
    pub fn transaction_trees(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Mount(Mount { target, kind: MountKind::Overlay { slot, .. }, .. })
                if self.transaction_at(target).is_on() =>
            {
                Some((target.as_path(), *slot))
            }
            _ => None,
        })
    }

    /// The trees with watched covers or of a transaction, in the order in which the set-up child sends their descriptors.
    pub fn watched_trees(&self) -> Vec<&Path> {
        let watched = self.covers.iter().filter(|cover| cover.is_watched());
        let covered = watched.filter_map(|cover| cover.tree.as_deref());
        let trees: BTreeSet<&Path> = covered.chain(self.transaction_trees().map(|(tree, _)| tree)).collect();
        trees.into_iter().collect()
    }
}

/// An overlay whose upper layer is a directory of the session's, by its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotOverlay<'a> {
    pub slot: usize,
    /// On the host.
    pub lower: &'a Path,
    /// Inside.
    pub target: &'a Path,
}

/// A wall that was asked for by hand, for this run, or a transaction: no silence may mean that there is none.
fn asked_for(policy: &Policy) -> Option<&Origin> {
    let network = &policy.network;
    let hosts = network.allow.iter().chain(&network.deny).map(|rule| &rule.origin);
    let mode = Some(&network.mode.origin).filter(|_| network.mode.value != NetworkMode::Host);
    let debug = Some(&policy.debug.origin).filter(|_| !policy.debug.value);
    // Where there is none, changes that were to wait for a look would be made at once: in that, any layer's word counts, a preset's too.
    let transaction = &policy.transaction;
    if transaction.value.is_on() {
        return Some(&transaction.origin);
    }
    let unknown = &policy.unknown.verdict;
    let unknown = Some(&unknown.origin).filter(|_| unknown.value != OnUnknown::AllowAndLog);
    let presets = policy.presets.iter().map(|preset| &preset.origin);
    let files = policy.files.iter().map(|rule| &rule.origin);
    let is_by_hand = |origin: &&Origin| matches!(origin.layer, Layer::Flag | Layer::Environment);
    let settings = mode.into_iter().chain(debug).chain(unknown);
    settings.chain(hosts).chain(presets).chain(files).find(is_by_hand)
}

/// Everything a launch will do, or why it cannot be done.
pub fn plan(policy: &Policy, facts: &HostFacts, request: &Request) -> Result<LaunchPlan, PlanError> {
    let isolation = policy.isolation.value;
    if isolation == Isolation::None && policy.none_approved.is_none() {
        return Err(PlanError::NoneNotApproved { origin: policy.isolation.origin.clone() });
    }
    if let Some(origin) = asked_for(policy).filter(|_| isolation == Isolation::None) {
        return Err(PlanError::NoWalls { origin: origin.clone() });
    }
    let mut decided = Decided::of(policy, facts, request)?;
    let steps = if isolation == Isolation::None { Vec::new() } else { decided.steps(facts) };
    let Decided { full, own_network, egress, gate, decisions, files, limits, filter, landlock, checkpoints, .. } =
        decided;
    let mut posture = posture(policy, facts, &filter, &landlock, &limits, gate.as_ref());
    tell_of_covers(isolation, &files.covers, &decisions, &mut posture);
    let transaction = in_force(policy.transaction.value, &decisions);
    let copies = transaction.is_on() && policy.transaction_mode.value == TransactionMode::Copy;
    tell_of_transaction(transaction, copies, &mut posture);
    tell_of_search(facts, &mut posture);
    tell_of_credentials(&policy.network, egress.as_ref(), &mut posture);
    let on = isolation != Isolation::None;
    // Made together with the process it would begin at the supervisor's cgroup.
    let cgroup = full && limits.plan.cgroup.is_none();
    let namespaces = Namespaces { user: on, pid: on, mount: on, ipc: on, net: own_network, uts: full, cgroup };
    Ok(LaunchPlan {
        isolation,
        namespaces,
        posture,
        command: CommandSpec {
            argv: request.argv.clone(),
            environment: environment::build(
                policy,
                &request.environment,
                facts.uid,
                &facts.home,
                egress.as_ref(),
                checkpoints.as_deref(),
                if on { &files.holds } else { &[] },
            ),
            cwd: facts.cwd.clone(),
        },
        holds: if on { files.holds } else { Vec::new() },
        covers: if on { files.covers } else { Vec::new() },
        steps,
        filter,
        keeper_is_strict: policy.keeper.value == KeeperMode::Strict,
        max_violations: policy.syscalls.max_violations.value,
        response: ResponsePlan::of(policy),
        completion_quantum: policy.completion_quantum.as_ref().map(|quantum| Duration::from_millis(quantum.value.0)),
        timeout: policy.limits.timeout.as_ref().map(|t| t.value),
        limits: limits.plan,
        terminal: facts.terminal,
        overlays: files.overlays,
        decisions,
        transaction,
        copies,
        checkpoints,
        gate,
        egress,
    })
}

fn in_force(asked: Transaction, decisions: &[Decision]) -> Transaction {
    if decisions.iter().any(Decision::in_transaction) { asked } else { Transaction::Off }
}

fn tell_of_transaction(transaction: Transaction, copies: bool, posture: &mut Posture) {
    let end = match transaction {
        Transaction::Off => return,
        Transaction::Review => "what was written waits for review",
        Transaction::Auto => "what was written is applied at the end",
    };
    let option =
        |(name, value): &(&str, &str)| if value.is_empty() { (*name).to_owned() } else { format!("{name}={value}") };
    let options: Vec<String> = OVERLAY_OPTIONS.iter().map(option).collect();
    let place = if copies { "a copy of it, in an overlay" } else { "an overlay" };
    posture.enforced("transaction", format!("the project is written to {place} ({}); {end}", options.join(",")));
}

/// What was decided, before it becomes steps: the same could be written as another runtime's configuration.
struct Decided {
    full: bool,
    own_network: bool,
    egress: Option<EgressPlan>,
    exec: Option<ExecRules>,
    gate: Option<GatePlan>,
    decisions: Vec<Decision>,
    files: FileMounts,
    /// Slot of the overlay that takes what a session writes that learns.
    overlay: Option<usize>,
    limits: ChosenLimits,
    filter: Filter,
    landlock: LandlockStep,
    checkpoints: Option<PathBuf>,
}

impl Decided {
    fn of(policy: &Policy, facts: &HostFacts, request: &Request) -> Result<Decided, PlanError> {
        let full = policy.isolation.value == Isolation::Full;
        let egress = EgressPlan::of(policy, facts, &request.environment)?;
        let own_network = full && policy.network.mode.value != NetworkMode::Host;
        let exec = exec_rules(policy, facts, request)?;
        let gate = GatePlan::of(policy, facts, request.learns, exec.is_none());
        let decisions = decisions(policy, facts)?;
        let decisions = if request.learns { rules::without_writes(decisions) } else { decisions };
        refuse_writable_secrets(&decisions)?;
        let trigger = gate.as_ref().map(|gate| gate.trigger);
        let programs = exec.as_ref().map(|exec| exec.mounts.clone()).unwrap_or_default();
        let mut files = mounts::files(&decisions, exec.is_none(), trigger, programs)?;
        files.hide_absent(&absent(policy, facts, &decisions, files.given().as_deref()));
        let kept_apart = decisions.iter().filter(|decision| decision.in_transaction());
        let kept_apart: Vec<PathBuf> = kept_apart.map(|decision| decision.path.clone()).collect();
        files.hide_absent_in_overlays(&absent_in_overlays(policy, facts, &decisions, &kept_apart));
        let overlay = (request.learns && trigger == Some(Trigger::Fuse)).then_some(files.overlays);
        files.overlays += usize::from(overlay.is_some());
        if files.overlays > 0 && facts.session_dir.is_none() {
            return Err(PlanError::NoSessionDirectory);
        }
        let limits = choice::decide(policy, facts, writable(&files, facts))?;
        if policy.isolation.value == Isolation::None {
            limits.refuse_without_sandbox(policy)?;
        }
        let filter = seccomp::filter(policy, full, limits.pinned, trigger)?;
        let landlock = landlock(facts, exec.as_ref());
        let is_transaction = full && in_force(policy.transaction.value, &decisions).is_on();
        let has_place = facts.system.iter().any(|path| path == Path::new("/run"));
        // A checkpoint would begin with all that was copied.
        let has_steps = is_transaction && policy.transaction_mode.value != TransactionMode::Copy;
        let checkpoints = (has_steps && has_place).then(|| format!("/run/user/{}/checkpoint", facts.uid).into());
        Ok(Decided {
            full,
            own_network,
            egress,
            exec,
            gate,
            decisions,
            files,
            overlay,
            limits,
            filter,
            landlock,
            checkpoints,
        })
    }

    /// As a launch carries them out. Takes the mounts with it.
    fn steps(&mut self, facts: &HostFacts) -> Vec<Step> {
        let may_execute = self.exec.is_none();
        let trigger = self.gate.as_ref().map(|gate| gate.trigger);
        let mut steps =
            vec![Step::MapIds { uid: facts.uid, gid: facts.gid }, Step::ForbidUserNamespaces, Step::EndFirst];
        steps.extend(counted_limits(facts));
        steps.extend(self.limits.largest_pid.map(|value| Step::LargestPid { value }));
        if self.full && self.limits.plan.cgroup.is_some() {
            steps.push(Step::OwnCgroupView);
        }
        if self.own_network {
            steps.push(Step::CreateNetwork);
        }
        steps.push(match trigger {
            Some(trigger) => Step::GateRoot { trigger, uid: facts.uid, gid: facts.gid, overlay: self.overlay },
            None => Step::CloneRoot { exec: may_execute },
        });
        steps.extend(std::mem::take(&mut self.files.trees));
        steps.extend(system::system(facts, self.limits.room, may_execute, trigger));
        let terminates = self.egress.as_ref().and_then(|egress| egress.terminates.as_ref());
        steps.extend(terminates.map(TerminatesPlan::steps).unwrap_or_default());
        if !self.files.holds.is_empty() {
            steps.push(Step::AwaitHolds);
        }
        steps.extend(std::mem::take(&mut self.files.steps));
        steps.push(Step::PivotRoot);
        if self.full {
            steps.push(Step::SetHostname(HOSTNAME.to_owned()));
        }
        if self.own_network {
            steps.push(Step::JoinNetwork);
        }
        if let Some(agent) = self.egress.as_ref().and_then(|egress| egress.agent.as_ref()) {
            steps.push(Step::OfferAgent { at: agent.inside.clone() });
        }
        if let Some(at) = &self.checkpoints {
            steps.push(Step::OfferCheckpoints { at: at.clone() });
        }
        if self.egress.as_ref().is_some_and(|egress| !egress.only_refuses) {
            steps.push(Step::AwaitEgress);
        }
        steps.extend(self.limits.steps.iter().cloned());
        // Privilege ends here: nothing below may need a capability.
        steps.push(Step::DropCapabilities);
        steps.push(Step::NoNewPrivileges);
        if self.landlock != LandlockStep::default() {
            steps.push(Step::Landlock(self.landlock.clone()));
        }
        steps.push(Step::Seccomp); // last, so that the set-up needs no allowances
        steps
    }
}

/// The host's counts for this user stay the upper bound; a session cannot use all of them up.
fn counted_limits(facts: &HostFacts) -> impl Iterator<Item = Step> {
    let limits = [
        ("max_inotify_instances", INOTIFY_INSTANCES, facts.inotify_instances),
        ("max_inotify_watches", INOTIFY_WATCHES, facts.inotify_watches),
    ];
    limits.into_iter().map(|(name, most, of_user)| {
        let value = of_user.map_or(most, |all| most.min(all / INOTIFY_PART));
        Step::CountedLimit { name, value }
    })
}

/// Where only some programs may run: those, and the mounts that make everything else not executable.
struct ExecRules {
    programs: Vec<PathBuf>,
    mounts: Vec<Step>,
}

fn exec_rules(policy: &Policy, facts: &HostFacts, request: &Request) -> Result<Option<ExecRules>, PlanError> {
    let process = &policy.process;
    if process.allow_exec.value && process.executables.is_empty() {
        return Ok(None);
    }
    if facts.landlock_abi == 0 {
        return Err(PlanError::ExecNeedsLandlock { origin: process.allow_exec.origin.clone() });
    }
    let mut rules = ExecRules { programs: Vec::new(), mounts: Vec::new() };
    let mut bind = |source: &Path, id, why: String| {
        let kind = MountKind::Bind { source: source.to_path_buf(), id: Some(id), write: false, exec: true };
        rules.mounts.push(Step::Mount(Mount {
            target: source.to_path_buf(),
            kind,
            create: None,
            if_present: false,
            why,
        }));
    };
    for (path, id) in &facts.libraries {
        bind(path, *id, "shared libraries".to_owned());
    }
    let command = request.argv.first().map(|name| (name.clone(), Origin::default_value()));
    let listed = process.executables.iter().map(|e| (e.value.clone(), e.origin.clone()));
    // With execution off the command itself still starts, and nothing after it.
    let listed: Vec<_> = if process.allow_exec.value { listed.collect() } else { command.into_iter().collect() };
    for (name, origin) in listed {
        match facts.executables.get(&name) {
            Some(PathFact::Present { canonical, id, .. }) => {
                if !facts.libraries.iter().any(|(library, _)| canonical.starts_with(library)) {
                    bind(canonical, *id, format!("may be executed: {origin}"));
                }
                rules.programs.push(canonical.clone());
            }
            _ => return Err(PlanError::ExecutableNotFound { name, origin }),
        }
    }
    rules.programs.extend(facts.loaders.iter().cloned());
    Ok(Some(rules))
}

fn landlock(facts: &HostFacts, exec: Option<&ExecRules>) -> LandlockStep {
    LandlockStep {
        scopes: facts.landlock_abi >= LANDLOCK_SCOPES,
        executables: exec.map(|e| e.programs.clone()).unwrap_or_default(),
    }
}

/// Directories of the host whose file systems grow with what the session writes.
fn writable(files: &FileMounts, facts: &HostFacts) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for step in &files.steps {
        if let Step::Mount(Mount { kind: MountKind::Bind { source, write: true, .. }, .. }) = step
            && !found.iter().any(|above| source.starts_with(above))
        {
            found.push(source.clone());
        }
    }
    if files.overlays > 0 {
        found.extend(facts.session_dir.clone());
    }
    found
}

fn tell_of_covers(isolation: Isolation, covers: &[Cover], decisions: &[Decision], posture: &mut Posture) {
    if isolation == Isolation::None {
        return;
    }
    cover::tell(covers, posture);
    let covered = covers.iter().filter(|cover| cover.what == Covered::Socket).count();
    let is_given = |decision: &&Decision| decision.access == Access::Read && decision.is_about_socket();
    let given: Vec<String> = decisions.iter().filter(is_given).map(|one| one.path.display().to_string()).collect();
    let given = if given.is_empty() { String::new() } else { format!("; given: {}", given.join(", ")) };
    posture.reduced(
        "sockets of the host",
        format!("{covered} covered{given}; one that is bound later where the session looks can be connected to"),
    );
}

fn tell_of_search(facts: &HostFacts, posture: &mut Posture) {
    if let Some(directory) = facts.unlisted.first() {
        let (layer, shown) = ("patterns and links in protected directories", directory.display());
        posture.reduced(layer, format!("{} not looked through to the end: {shown}", facts.unlisted.len()));
    }
    if let Some(file) = facts.unfollowed.first() {
        let (layer, shown) = ("files that git's configuration includes", file.display());
        posture.reduced(layer, format!("{} include more than was followed: {shown}", facts.unfollowed.len()));
    }
    let Some(searched) = &facts.searched else { return };
    let layer = "names hidden at any depth";
    match searched.tell_unseen() {
        Some(unseen) => posture.reduced(layer, unseen),
        None => posture.enforced(layer, format!("{} directories of the project searched", searched.directories)),
    }
}

fn posture(
    policy: &Policy,
    facts: &HostFacts,
    filter: &Filter,
    landlock: &LandlockStep,
    limits: &ChosenLimits,
    gate: Option<&GatePlan>,
) -> Posture {
    let mut posture = Posture::default();
    if policy.isolation.value == Isolation::None {
        posture.missing("isolation", "approved by the organisation's policy; nothing is enforced");
        return posture;
    }
    let full = policy.isolation.value == Isolation::Full;
    match gate {
        Some(_) => posture.enforced(
            "files",
            "known places bound read-only on a root that asks, masks and binds in an own mount namespace",
        ),
        None => {
            posture.enforced("files", "read-only clone of the host tree, masks and binds in an own mount namespace");
        }
    }
    posture.enforced("processes", "own pid namespace; pid 1 is ours and cannot be traced");
    if full {
        match policy.network.mode.value {
            NetworkMode::None if policy.network.is_unchosen() => {
                posture.enforced(
                    "network",
                    "own network namespace with loopback only; what is asked for is refused by name",
                );
            }
            NetworkMode::None => posture.enforced("network", "own network namespace with loopback only"),
            NetworkMode::Egress if facts.landlock_abi == 0 => posture.reduced(
                "network",
                "own network namespace; who carries connections outside keeps its files, because there is no Landlock",
            ),
            NetworkMode::Egress => posture.enforced(
                "network",
                "own network namespace; connections are carried outside to the hosts that policy names",
            ),
            NetworkMode::Host => posture.missing("network", format!("the host's own [{}]", policy.network.mode.origin)),
        }
        posture.enforced("ipc, hostname, cgroup view", "own namespaces");
    } else {
        posture.reduced("network", "no own namespace: internet socket families refused by seccomp");
        posture.enforced("ipc", "own namespace");
        posture.missing("hostname, cgroup view", "isolation = process leaves them out");
    }
    posture.enforced(
        "privileges",
        "no capabilities in any set, securebits locked, no_new_privs, no nested user namespaces",
    );
    posture.enforced(
        "system calls",
        format!(
            "seccomp {:?}: {} allowed, {} reported, {} instructions",
            filter.mode,
            filter.allowed,
            filter.notified,
            filter.program.len()
        ),
    );
    if landlock.scopes {
        posture.enforced(
            "signals and abstract sockets",
            format!("Landlock ABI {} scopes, beside the namespaces", facts.landlock_abi),
        );
    } else if full && policy.network.mode.value != NetworkMode::Host {
        posture.reduced(
            "signals and abstract sockets",
            format!("namespaces only; Landlock ABI {} has no scopes", facts.landlock_abi),
        );
    } else {
        posture.missing(
            "abstract sockets",
            format!("Landlock ABI {} has no scopes and the network namespace is shared", facts.landlock_abi),
        );
    }
    if !landlock.executables.is_empty() {
        posture
            .enforced("programs", format!("{} executable, by noexec mounts and Landlock", landlock.executables.len()));
    }
    limits.tell(&mut posture);
    match gate {
        Some(gate) => posture.enforced("questions at first access", gate.tell()),
        None => posture.missing(
            "questions at first access",
            "static mode: decided at start; what is hidden is refused, not recorded",
        ),
    }
    posture
}
