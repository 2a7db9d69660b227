//! Whether a setting of an unapproved project policy only tightens. Owns that judgement, one setting at a time and
//! against the policy so far; what happens to the rest (held back, shown) is `layers`'. Called by `layers`.

use crate::decide::covers;
use crate::limit::Within;
use crate::origin::Ruled;
use crate::path::{Base, PathExpr};
use crate::setting::Setting;
use crate::types::{Access, FileRule, Policy, SyscallMode};

/// A setting that leaves the policy as strict as it was, or stricter, for every command.
pub(crate) fn tightens(setting: &Setting, policy: &Policy) -> bool {
    match setting {
        Setting::Isolation(level) => *level >= policy.isolation.value,
        // Neither is the stricter one: static mode shows what nothing names, dynamic mode gives the shipped list of what is
        // known, also below a denied directory, and reaches unknown hosts where unknown is allowed.
        Setting::Mode(mode) => *mode == policy.mode.value,
        Setting::UnknownVerdict(verdict) => *verdict <= policy.unknown.verdict.value,
        Setting::UnknownMetadata(metadata) => *metadata <= policy.unknown.metadata.value,
        Setting::UnknownTimeout(time) => *time <= policy.unknown.timeout.value,
        Setting::QuestionsPerMinute(count) => *count <= policy.unknown.per_minute.value,
        Setting::Debug(on) => no_wider(*on, policy.debug.value),
        Setting::Project(access) => *access <= policy.project.value,
        Setting::File { access, path, .. } => refuses_more(*access, path, policy),
        Setting::MaxProcesses(count) => no_more(count, policy.process.max.as_ref()),
        Setting::AllowFork(on) => no_wider(*on, policy.process.allow_fork.value),
        Setting::AllowExec(on) => no_wider(*on, policy.process.allow_exec.value),
        Setting::Network(mode) => *mode <= policy.network.mode.value,
        Setting::NetworkPart(part) => policy.network.is_tightened_by(part),
        Setting::Limit(limit) => no_more(limit, policy.limits.same(limit).as_ref()),
        Setting::SyscallMode(mode) => *mode == SyscallMode::AllowList || *mode == policy.syscalls.mode.value,
        Setting::MaxViolations(count) => *count <= policy.syscalls.max_violations.value,
        Setting::EnvMode(mode) => *mode <= policy.env.mode.value,
        Setting::SyscallDeny(_) | Setting::EnvBlock(_) => true,
        // Executables are narrowed as a list, see `layers`.
        Setting::Preset(_)
        | Setting::Hook(_)
        | Setting::AllowIsolationNone(_)
        | Setting::Executables(_)
        | Setting::SyscallAllow(_)
        | Setting::EnvPass(_)
        | Setting::EnvSet(..) => false,
    }
}

fn refuses_more(access: Access, path: &PathExpr, policy: &Policy) -> bool {
    match access {
        Access::Deny => true,
        Access::Protect => stays_inside(path) && !is_denied(path, policy),
        Access::Read | Access::Overlay | Access::Write => false,
    }
}

/// A project speaks about its own directory; a stand-in for a missing name elsewhere is not its to make.
fn stays_inside(path: &PathExpr) -> bool {
    matches!(path.base, Base::Project | Base::Git)
}

/// Protect means readable. `decide` keeps it from uncovering a denied path; not counting it is the second lock.
fn is_denied(path: &PathExpr, policy: &Policy) -> bool {
    let denies = |rule: &&FileRule| rule.access == Access::Deny && rule.path.base == path.base;
    policy.files.iter().filter(denies).any(|rule| covers(rule, &rule.path.rest, &path.rest))
}

fn no_wider(asked: bool, now: bool) -> bool {
    !asked || now
}

fn no_more<T: Within>(asked: &T, now: Option<&Ruled<T>>) -> bool {
    now.is_none_or(|now| asked.is_within(&now.value))
}
