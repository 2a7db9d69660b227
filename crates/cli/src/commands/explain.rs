//! `sandbox explain`: a summary, the effective policy with origins, what it means for paths on this host, the steps of the launch,
//! and the posture they reach.

mod summary;

use std::fmt::Write as _;
use std::process::ExitCode;

use cofferdam_host::preparation::{PrepareError, Prepared, prepare};
use cofferdam_plan::{Covered, LayerState, MountKind, Step, Trigger};
use cofferdam_policy::{Isolation, Layer, Mode, OnUnknown, Policy, explain as explain_policy};

use crate::args::run::ExplainArgs;
use crate::environment::typed;
use crate::render::output::{bytes, escaped, print, print_json};

pub(crate) fn explain(args: &ExplainArgs) -> Result<ExitCode, PrepareError> {
    let argv = if args.argv.is_empty() { vec!["sh".to_owned()] } else { args.argv.clone() };
    let prepared = prepare(typed(&args.policy.0, args.chosen.starting_in(args.cwd.as_ref()), &argv), false)?;
    if args.json {
        let report = serde_json::json!({ "version": 1, "policy": prepared.known.policy, "plan": prepared.plan });
        return Ok(print_json(&report));
    }
    Ok(print(&text(&prepared, args.verbose)))
}

fn text(prepared: &Prepared, verbose: bool) -> String {
    let mut out = String::new();
    let mut line = |text: &str| writeln!(out, "{}", escaped(text)).unwrap_or_default();
    line("SUMMARY");
    for text in summary::lines(prepared) {
        line(&text);
    }
    line("");
    line("POLICY");
    for text in explain_policy(&prepared.known.policy, verbose) {
        line(&format!("  {text}"));
    }
    line("");
    line("PATHS ON THIS HOST (the longest path decides)");
    for decision in &prepared.plan.decisions {
        let quiet = !verbose
            && !decision.is_other_name()
            && decision.origin.layer == Layer::BuiltIn
            && decision.access <= cofferdam_policy::Access::Protect;
        if !quiet {
            line(&format!(
                "  {:<9} {}  [{}]",
                format!("{:?}", decision.access).to_lowercase(),
                decision.path.display(),
                decision.origin
            ));
        }
    }
    line(&format!("  {:<9} everything else", rest(&prepared.known.policy)));
    line("");
    line("STEPS");
    for (number, step) in prepared.plan.steps.iter().enumerate() {
        line(&format!("  {:>3}  {}", number + 1, describe(step)));
    }
    for hold in &prepared.plan.holds {
        line(&format!("  hold {} while the session runs: it does not exist and must not appear", hold.path.display()));
    }
    line("");
    line("COVERS");
    for cover in &prepared.plan.covers {
        let what = match cover.what {
            Covered::Hidden => "hidden",
            Covered::Masked => "masked",
            Covered::Protected => "protected",
            Covered::Held => "held",
            Covered::Socket => "socket",
            Covered::Parent => "parent",
        };
        line(&format!("  {what:<9} {}  ({})", cover.path.display(), cover.why()));
    }
    line("  patterns stand for the names that they match now, where their directory is given");
    line(
        "  `./**/NAME` is about every directory of the project but those that tools fill, like node_modules and target",
    );
    if prepared.plan.gate.is_none() {
        line("  names of the home that a rule hides and that do not exist now are not hidden when they appear");
    }
    line("");
    line("POSTURE");
    for entry in &prepared.plan.posture.0 {
        let state = match entry.state {
            LayerState::Enforced => "enforced",
            LayerState::Reduced => "reduced",
            LayerState::Missing => "missing",
        };
        line(&format!("  {state:<9} {:<28} {}", entry.layer, entry.by));
    }
    out
}

/// What becomes of a path that no rule is about.
fn rest(policy: &Policy) -> &'static str {
    match (policy.isolation.value, policy.mode.value, policy.unknown.verdict.value) {
        (Isolation::None, _, _) => "write",
        (_, Mode::Static, _) | (_, Mode::Dynamic, OnUnknown::AllowAndLog) => "read",
        (_, Mode::Dynamic, OnUnknown::Ask) => "ask",
        (_, Mode::Dynamic, OnUnknown::Deny) => "deny",
    }
}

fn describe(step: &Step) -> String {
    match step {
        Step::MapIds { uid, gid } => format!("map user {uid} and group {gid} to themselves"),
        Step::ForbidUserNamespaces => "forbid further user namespaces".to_owned(),
        Step::CountedLimit { name, value } => format!("limit {name} to {value}"),
        Step::LargestPid { value } => format!("give out pids up to {value} only"),
        Step::OwnCgroupView => "let the view of cgroups begin at the session's own".to_owned(),
        Step::EndFirst => "when memory runs out, let the kernel end this before others".to_owned(),
        Step::Pin { cpus } => format!("run on the CPUs {cpus:?} only"),
        Step::GateRoot { trigger, .. } => match trigger {
            Trigger::Fuse => "a FUSE root that the supervisor serves: unknown paths ask".to_owned(),
            Trigger::Notify => "an empty root; opening calls are reported, unknown paths ask".to_owned(),
        },
        Step::CloneRoot { exec } => {
            format!("clone the host tree: private, read-only, nosuid, nodev{}", if *exec { "" } else { ", noexec" })
        }
        Step::AwaitHolds => "wait until the names to hold are held".to_owned(),
        Step::AwaitEgress => "wait until the egress process has its rules".to_owned(),
        Step::Mount(mount) => {
            format!("mount {} at {}  ({})", describe_kind(&mount.kind), mount.target.display(), mount.why)
        }
        Step::MakeDirectory { at, mode } => format!("make directory {} with mode {mode:o}", at.display()),
        Step::Link { at, to } => format!("link {} -> {}", at.display(), to.display()),
        Step::PivotRoot => "make it the root and let go of the old one".to_owned(),
        Step::SetHostname(name) => format!("set the host name to `{name}`"),
        Step::CreateNetwork => "start making a network namespace with loopback, beside what follows".to_owned(),
        Step::JoinNetwork => "move into the network namespace".to_owned(),
        Step::OfferCheckpoints { at } => {
            format!("take what the workload writes to {} for the end of a step", at.display())
        }
        Step::OfferAgent { at } => format!("listen for uses of the ssh-agent at {}", at.display()),
        Step::Limit { resource, value } => format!("limit {resource:?} to {value}"),
        Step::DropCapabilities => "empty all capability sets, lock securebits".to_owned(),
        Step::NoNewPrivileges => "set no_new_privs".to_owned(),
        Step::Landlock(step) => {
            let programs = if step.executables.is_empty() {
                String::new()
            } else {
                format!(", {} programs may run", step.executables.len())
            };
            format!("Landlock: signals and abstract sockets stay inside{programs}")
        }
        Step::Seccomp => "install the system-call filter".to_owned(),
    }
}

fn describe_kind(kind: &MountKind) -> String {
    match kind {
        MountKind::Bind { source, write, .. } => {
            format!("{} {}", source.display(), if *write { "writable" } else { "read-only" })
        }
        MountKind::Filtered { source, hidden, .. } => {
            format!("{} read-only, without {} names below it", source.display(), hidden.len())
        }
        MountKind::Empty { .. } => "an empty directory".to_owned(),
        MountKind::Refused => "a node that cannot be opened".to_owned(),
        MountKind::Trust { .. } => "the authorities that programs believe in TLS".to_owned(),
        MountKind::Text(_) => "a stand-in file".to_owned(),
        MountKind::Rendered => "itself as the gate renders it, without the values of secret names".to_owned(),
        MountKind::Tmpfs { size: 0, .. } => "a private tmpfs".to_owned(),
        MountKind::Tmpfs { size, .. } => format!("a private tmpfs of {}", bytes(*size)),
        MountKind::Proc => "a private proc".to_owned(),
        MountKind::Seal => "itself, read-only".to_owned(),
        MountKind::Devpts => "private terminals".to_owned(),
        MountKind::Device { major, minor } => format!("device {major}:{minor}"),
        MountKind::Overlay { lower, .. } => format!("an overlay over {}", lower.display()),
    }
}
