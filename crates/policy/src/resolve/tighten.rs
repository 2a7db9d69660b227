//! What a setting of an unapproved project policy would change. Owns that judgement, one setting at a time and against the
//! policy so far; what happens to what is wider (held back, shown) is `layers`'. Called by `layers`.

use std::cmp::Ordering;

use crate::decide::files::{ExpandedRule, covers};
use crate::language::path::{Base, PathExpr};
use crate::types::files::{Access, FileRule};
use crate::types::limit::Within;
use crate::types::network::Network;
use crate::types::network::NetworkMode;
use crate::types::network_part::NetworkPart;
use crate::types::origin::Ruled;
use crate::types::policy::{Policy, SyscallMode};
use crate::types::setting::Setting;

/// What one setting does to a policy, for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Stricter,
    /// Says what is in force already. The origin stays that of the layer that said it first.
    Same,
    Wider,
}

impl Effect {
    /// Of what is stricter the less of it there is.
    fn of<T: Ord>(asked: &T, now: &T) -> Effect {
        match asked.cmp(now) {
            Ordering::Less => Effect::Stricter,
            Ordering::Equal => Effect::Same,
            Ordering::Greater => Effect::Wider,
        }
    }

    /// Of a setting that has no order.
    fn unless_same<T: PartialEq>(asked: &T, now: &T) -> Effect {
        if asked == now { Effect::Same } else { Effect::Wider }
    }

    fn stricter_if(is_stricter: bool) -> Effect {
        if is_stricter { Effect::Stricter } else { Effect::Wider }
    }
}

pub(crate) fn effect(setting: &Setting, policy: &Policy) -> Effect {
    match setting {
        // The layer that chose less than `full` also said what is to be had with it: hosts, an agent, ports. Full isolation would make
        // it come true.
        Setting::Isolation(level) => Effect::unless_same(level, &policy.isolation.value),
        // Neither is the stricter one: static mode shows what nothing names, dynamic mode gives the shipped list of what is
        // known, also below a denied directory, and reaches unknown hosts where unknown is allowed.
        Setting::Mode(mode) => Effect::unless_same(mode, &policy.mode.value),
        Setting::UnknownVerdict(verdict) => Effect::of(verdict, &policy.unknown.verdict.value),
        Setting::UnknownMetadata(metadata) => Effect::of(metadata, &policy.unknown.metadata.value),
        Setting::UnknownTimeout(time) => Effect::of(time, &policy.unknown.timeout.value),
        Setting::QuestionsPerMinute(count) => Effect::of(count, &policy.unknown.per_minute.value),
        Setting::Debug(on) => Effect::of(on, &policy.debug.value),
        Setting::Keeper(mode) => Effect::of(mode, &policy.keeper.value),
        Setting::Project(access) => Effect::of(access, &policy.project.value),
        Setting::File { access, path, .. } => Effect::stricter_if(refuses_more(*access, path, policy)),
        Setting::MaxProcesses(count) => no_more(count, policy.process.max.as_ref()),
        Setting::AllowFork(on) => Effect::of(on, &policy.process.allow_fork.value),
        Setting::AllowExec(on) => Effect::of(on, &policy.process.allow_exec.value),
        // Chosen, it is for good: nothing follows from what else is said.
        Setting::Network(NetworkMode::None) => Effect::Stricter,
        Setting::Network(mode) => Effect::of(mode, &policy.network.mode.value),
        Setting::NetworkPart(part) => effect_on(&policy.network, part),
        Setting::Limit(limit) => no_more(limit, policy.limits.same(limit).as_ref()),
        Setting::SyscallMode(mode) if *mode == policy.syscalls.mode.value => Effect::Same,
        Setting::SyscallMode(mode) => Effect::stricter_if(*mode == SyscallMode::AllowList),
        Setting::MaxViolations(count) => Effect::of(count, &policy.syscalls.max_violations.value),
        Setting::EnvMode(mode) => Effect::of(mode, &policy.env.mode.value),
        Setting::SyscallDeny(_) | Setting::EnvBlock(_) => Effect::Stricter,
        // Executables are narrowed as a list, see `layers`.
        Setting::Preset(_)
        | Setting::Hook(_)
        | Setting::AllowIsolationNone(_)
        | Setting::AllowNetworkHost(_)
        | Setting::Executables(_)
        | Setting::SyscallAllow(_)
        | Setting::EnvPass(_)
        | Setting::EnvSet(..) => Effect::Wider,
    }
}

fn effect_on(network: &Network, part: &NetworkPart) -> Effect {
    match part {
        // To refuse some requests they have to be read, and TLS to that host would end outside.
        NetworkPart::Deny(rule) => Effect::stricter_if(rule.is_whole()),
        NetworkPart::MaxConnections(count) => Effect::of(count, &network.max_connections.value),
        NetworkPart::QueriesPerSecond(count) => Effect::of(count, &network.queries_per_second.value),
        NetworkPart::Bytes(bytes) => no_more(bytes, network.bytes.as_ref()),
        NetworkPart::IdleTimeout(time) => Effect::of(time, &network.idle_timeout.value),
        NetworkPart::HeaderTimeout(time) => Effect::of(time, &network.header_timeout.value),
        NetworkPart::SshAgent(usage) => Effect::of(usage, &network.ssh_agent.value),
        NetworkPart::Allow(_)
        | NetworkPart::Resolver(_)
        | NetworkPart::Publish(_)
        | NetworkPart::HostPort(_)
        | NetworkPart::Credential(_)
        | NetworkPart::Socket(_) => Effect::Wider,
    }
}

fn refuses_more(access: Access, path: &PathExpr, policy: &Policy) -> bool {
    match access {
        Access::Deny => true,
        Access::Protect => stays_inside(path) && !is_denied(path, policy),
        Access::Mask | Access::Read | Access::Overlay | Access::Write => false,
    }
}

/// A project speaks about its own directory; a stand-in for a missing name elsewhere is not its to make.
fn stays_inside(path: &PathExpr) -> bool {
    matches!(path.base, Base::Project | Base::Git)
}

/// Protect means readable. `decide` keeps it from uncovering a denied path; not counting it is the second lock.
fn is_denied(path: &PathExpr, policy: &Policy) -> bool {
    let denies = |rule: &&FileRule| rule.access == Access::Deny && rule.path.base == path.base;
    policy
        .files
        .iter()
        .filter(denies)
        .any(|rule| covers(&ExpandedRule { path: rule.path.rest.to_path_buf(), rule: rule.clone() }, &path.rest))
}

fn no_more<T: Within + PartialEq>(asked: &T, now: Option<&Ruled<T>>) -> Effect {
    match now {
        Some(now) if now.value == *asked => Effect::Same,
        now => Effect::stricter_if(now.is_none_or(|now| asked.is_within(&now.value))),
    }
}
