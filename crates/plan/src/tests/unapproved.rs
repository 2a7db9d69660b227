//! A project's file that the user has not approved: whatever it says, the plan with it gives nothing that the plan without it does not.

use std::path::Path;

use cofferdam_policy::{Access, Inputs, Layer, LayerInput, Mode, OnUnknown, Policy, resolve};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::fixtures::Laptop;
use super::is_hidden;
use super::properties::seen;
use crate::step::{MountKind, Step};
use crate::{LaunchPlan, Limited, Request, decide, plan};

const EXISTING: &[&str] = &[
    "/home/dev/.ssh/id",
    "/srv/file",
    "/home/dev/notes",
    "/home/dev/tool/bin/tool",
    "/home/dev/tool/lib/private",
    "/home/dev/app/src/",
    "/home/dev/app/.env",
    "/home/dev/app/.vscode/",
    "/home/dev/.cargo/registry/",
    "/opt/data",
    "/usr/bin/make",
];

/// Top level first, then tables; of lines with the same key the first counts.
const LINES: &[&str] = &[
    "isolation = \"process\"",
    "isolation = \"full\"",
    "mode = \"static\"",
    "mode = \"dynamic\"",
    "project = \"read\"",
    "project = \"overlay\"",
    "project = \"write\"",
    "transaction = true",
    "transaction = \"auto\"",
    "transaction = false",
    "files.deny = [\"./\", \"~/tool/lib/private\"]",
    "files.deny = [\"~\", \"./src\"]",
    "files.protect = [\"./\", \"./src\"]",
    "files.read = [\"~/notes\", \"./\"]",
    "files.write = [\"~/notes\", \"./.env\"]",
    "files.overlay = [\"~/.cargo/registry\"]",
    "unknown.verdict = \"deny\"",
    "unknown.verdict = \"ask\"",
    "unknown.verdict = \"allow-and-log\"",
    "process.executables = [\"make\", \"/home/dev/tool/bin/tool\"]",
    "process.executables = [\"make\", \"/srv/file\"]",
    "process.allow_exec = false",
    "process.max = 100",
    "process.max = 100000",
    "limits.cpus = 1",
    "limits.cpu_set = \"0-3\"",
    "limits.memory = \"1G\"",
    "limits.memory = \"900G\"",
    "limits.cpu = \"1h\"",
    "network.mode = \"none\"",
    "network.mode = \"egress\"",
    "network.mode = \"host\"",
    "network.allow = [\"a.example\"]",
    "network.deny = [\"a.example\"]",
    "network.deny = [{ host = \"a.example\", methods = [\"DELETE\"] }]",
    "network.ssh_agent = \"ask\"",
    "network.ssh_agent = \"allow\"",
    "network.publish = [\"8080\"]",
    "network.host_ports = [5432]",
];

fn some_file() -> impl Strategy<Value = String> {
    subsequence(LINES, 0..=LINES.len() / 2).prop_map(|lines| {
        let mut said: Vec<&str> = Vec::new();
        for line in lines {
            let key = |line: &&str| line.split(" = ").next().map(str::to_owned);
            if !said.iter().any(|other| key(other) == key(&line)) {
                said.push(line);
            }
        }
        said.join("\n")
    })
}

fn layer(layer: Layer, text: &str) -> LayerInput {
    LayerInput { layer, source: format!("{layer}.toml"), text: text.to_owned(), trusted: false }
}

fn planned(layers: &[LayerInput], has_fuse: bool) -> Option<(Policy, LaunchPlan)> {
    let policy = resolve(&Inputs { layers, ..Inputs::default() }).ok()?;
    let laptop = Laptop::with(EXISTING);
    let mut facts = laptop.facts(&policy);
    facts.has_fuse = has_fuse;
    let names = policy.process.executables.iter().map(|name| name.value.as_str()).filter(|name| name.starts_with('/'));
    facts.executables.extend(names.map(|name| (name.to_owned(), laptop.look(Path::new(name)))));
    if facts.executables.contains_key("/home/dev/tool/bin/tool")
        && let Some(crate::PathFact::Present { canonical, id, .. }) = Some(laptop.look(Path::new("/home/dev/tool/lib")))
    {
        facts.libraries.push((canonical, id));
    }
    let environment = vec![("SSH_AUTH_SOCK".to_owned(), "/run/user/1000/agent".to_owned())];
    let request = Request { argv: vec!["make".to_owned()], environment, learns: false };
    Some((policy.clone(), plan(&policy, &facts, &request).ok()?))
}

/// What a program inside gets of a path without asking: nothing, its content, a copy to write to, or the path itself.
fn given((policy, plan): &(Policy, LaunchPlan), path: &Path) -> u8 {
    if is_hidden(plan, &path.to_string_lossy()) {
        return 0;
    }
    match seen(plan, path) {
        Some(MountKind::Bind { write: true, .. }) => 3,
        Some(MountKind::Overlay { .. }) => 2,
        Some(MountKind::Bind { write: false, .. } | MountKind::Filtered { .. }) => 1,
        Some(_) => 0,
        None if policy.mode.value == Mode::Static => 1,
        None if decide(&plan.decisions, path).is_some_and(|decision| decision.access == Access::Deny) => 0,
        None => u8::from(policy.unknown.verdict.value == OnUnknown::AllowAndLog),
    }
}

fn last_pin(plan: &LaunchPlan) -> Option<usize> {
    plan.steps.iter().rev().find_map(|step| match step {
        Step::Pin { cpus } => Some(cpus.len()),
        _ => None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_gives_nothing_more_with_an_unapproved_file(user in some_file(), project in some_file(), has_fuse in any::<bool>()) {
        let user = layer(Layer::User, &user);
        let Some(without) = planned(std::slice::from_ref(&user), has_fuse) else { return Ok(()) };
        let Some(with) = planned(&[user, layer(Layer::Project, &project)], has_fuse) else { return Ok(()) };
        for path in EXISTING.iter().map(Path::new) {
            prop_assert!(given(&with, path) <= given(&without, path), "{}", path.display());
        }
        for planned in [&with, &without] {
            let denies = planned.1.decisions.iter().filter(|decision| decision.access == Access::Deny);
            for decision in denies.filter(|decision| matches!(decision.fact, crate::PathFact::Present { .. })) {
                prop_assert_eq!(given(planned, &decision.path), 0, "{}", decision.path.display());
            }
        }
        let (with, without) = (&with.1, &without.1);
        prop_assert!(with.namespaces.net >= without.namespaces.net);
        // The host's own network reaches everything.
        if without.namespaces.net {
            let network = |plan: &LaunchPlan| plan.egress.as_ref().map(|egress| {
                (egress.network.mode.value, egress.network.allow.len(), egress.network.publish.len(), egress.network.host_ports.len())
            });
            prop_assert!(network(with).is_none() || network(without).is_some());
            if let (Some(with), Some(without)) = (network(with), network(without)) {
                prop_assert!(with.0 <= without.0 && with.1 <= without.1 && with.2 <= without.2 && with.3 <= without.3);
            }
            let unknown = |plan: &LaunchPlan| plan.egress.as_ref().map(|egress| egress.unknown.value);
            prop_assert!(unknown(with) <= unknown(without));
            let terminates = |plan: &LaunchPlan| plan.egress.as_ref().is_some_and(|egress| egress.terminates.is_some());
            prop_assert!(terminates(with) <= terminates(without));
        }
        let agent = |plan: &LaunchPlan| plan.egress.as_ref().and_then(|egress| Some(egress.agent.as_ref()?.usage));
        prop_assert!(agent(with) <= agent(without));
        for bound in without.limits.bounds.iter().filter(|bound| bound.what != Limited::CpuSet) {
            let now = with.limits.bound(bound.what).map(|bound| bound.value);
            prop_assert!(now.is_some_and(|now| now <= bound.value), "{:?}", bound.what);
        }
        prop_assert!(last_pin(without).is_none_or(|count| last_pin(with).is_some_and(|now| now <= count)));
    }
}
