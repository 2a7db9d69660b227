//! One thing a policy layer says, in the form that every source shares. Owns the list of settings and how a person
//! would write each; does not decide whether a setting counts (`layers`) or what it changes (`merge`).
//! Made by `file`, `by_hand` and the build script.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::language::path::PathExpr;
use crate::types::files::Access;
use crate::types::limit::Limit;
use crate::types::network::NetworkMode;
use crate::types::network_part::NetworkPart;
use crate::types::policy::{EnvMode, Isolation, KeeperMode, Metadata, Mode, OnUnknown, SyscallMode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    Preset(String),
    Isolation(Isolation),
    Mode(Mode),
    Debug(bool),
    Keeper(KeeperMode),
    Project(Access),
    AllowIsolationNone(bool),
    AllowNetworkHost(bool),
    File { access: Access, path: PathExpr, optional: bool, reason: Cow<'static, str> },
    UnknownVerdict(OnUnknown),
    UnknownMetadata(Metadata),
    UnknownTimeout(Duration),
    QuestionsPerMinute(u32),
    Hook(Vec<String>),
    MaxProcesses(u32),
    AllowFork(bool),
    AllowExec(bool),
    Executables(Vec<String>),
    Network(NetworkMode),
    NetworkPart(NetworkPart),
    Limit(Limit),
    SyscallMode(SyscallMode),
    SyscallAllow(String),
    SyscallDeny(String),
    MaxViolations(u32),
    EnvMode(EnvMode),
    EnvPass(String),
    EnvBlock(String),
    EnvSet(String, String),
}

impl From<NetworkPart> for Setting {
    fn from(part: NetworkPart) -> Self {
        Setting::NetworkPart(part)
    }
}

impl fmt::Display for Setting {
    /// As it would stand in a policy file, e.g. `files.write = "/opt"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Preset(name) => write!(f, "preset = {name:?}"),
            Setting::Isolation(level) => write!(f, "isolation = \"{level}\""),
            Setting::Mode(mode) => write!(f, "mode = \"{mode}\""),
            Setting::Debug(on) => write!(f, "debug = {on}"),
            Setting::Keeper(mode) => write!(f, "keeper = \"{mode}\""),
            Setting::Project(access) => write!(f, "project = \"{access}\""),
            Setting::AllowIsolationNone(on) => write!(f, "allow_isolation_none = {on}"),
            Setting::AllowNetworkHost(on) => write!(f, "allow_network_host = {on}"),
            Setting::File { access, path, .. } => write!(f, "files.{access} = {:?}", path.as_str()),
            Setting::UnknownVerdict(verdict) => write!(f, "unknown.verdict = \"{verdict}\""),
            Setting::UnknownMetadata(metadata) => write!(f, "unknown.metadata = \"{metadata}\""),
            Setting::UnknownTimeout(time) => write!(f, "unknown.timeout = \"{}s\"", time.as_secs()),
            Setting::QuestionsPerMinute(count) => write!(f, "unknown.per_minute = {count}"),
            Setting::Hook(argv) => write!(f, "unknown.hook = {argv:?}"),
            Setting::MaxProcesses(count) => write!(f, "process.max = {count}"),
            Setting::AllowFork(on) => write!(f, "process.allow_fork = {on}"),
            Setting::AllowExec(on) => write!(f, "process.allow_exec = {on}"),
            Setting::Executables(names) => write!(f, "process.executables = {names:?}"),
            Setting::Network(mode) => write!(f, "network.mode = \"{mode}\""),
            Setting::NetworkPart(part) => write!(f, "{part}"),
            Setting::Limit(limit) => write!(f, "{limit}"),
            Setting::SyscallMode(mode) => write!(f, "syscalls.mode = \"{mode}\""),
            Setting::SyscallAllow(name) => write!(f, "syscalls.allow = {name:?}"),
            Setting::SyscallDeny(name) => write!(f, "syscalls.deny = {name:?}"),
            Setting::MaxViolations(count) => write!(f, "syscalls.max_violations = {count}"),
            Setting::EnvMode(mode) => write!(f, "env.mode = \"{mode}\""),
            Setting::EnvPass(name) => write!(f, "env.pass = {name:?}"),
            Setting::EnvBlock(name) => write!(f, "env.block = {name:?}"),
            // The value may be a secret, and this text is printed.
            Setting::EnvSet(name, _) => write!(f, "env.set.{name} = ..."),
        }
    }
}
