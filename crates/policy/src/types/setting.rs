//! One thing a policy layer says, in the form that every source shares. Owns the list of settings and how a person
//! would write each; does not decide whether a setting counts (`layers`) or what it changes (`merge`).
//! Made by `file`, `by_hand` and the build script.

use std::borrow::Cow;
use std::fmt;

use crate::language::path::PathExpr;
use crate::types::files::Access;
use crate::types::network_part::NetworkPart;
use crate::types::scalar::Scalar;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// One value: the later wins.
    Scalar(Scalar),
    Preset(String),
    File {
        access: Access,
        path: PathExpr,
        optional: bool,
        reason: Cow<'static, str>,
    },
    Hook(Vec<String>),
    AlertHook(Vec<String>),
    Executables(Vec<String>),
    NetworkPart(NetworkPart),
    SyscallAllow(String),
    SyscallDeny(String),
    EnvPass(String),
    EnvBlock(String),
    EnvSet(String, String),
}

impl From<Scalar> for Setting {
    fn from(scalar: Scalar) -> Self {
        Setting::Scalar(scalar)
    }
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
            Setting::Scalar(scalar) => write!(f, "{scalar}"),
            Setting::Preset(name) => write!(f, "preset = {name:?}"),
            Setting::File { access, path, .. } => write!(f, "files.{access} = {:?}", path.as_str()),
            Setting::Hook(argv) => write!(f, "unknown.hook = {argv:?}"),
            Setting::AlertHook(argv) => write!(f, "response.hook = {argv:?}"),
            Setting::Executables(names) => write!(f, "process.executables = {names:?}"),
            Setting::NetworkPart(part) => write!(f, "{part}"),
            Setting::SyscallAllow(name) => write!(f, "syscalls.allow = {name:?}"),
            Setting::SyscallDeny(name) => write!(f, "syscalls.deny = {name:?}"),
            Setting::EnvPass(name) => write!(f, "env.pass = {name:?}"),
            Setting::EnvBlock(name) => write!(f, "env.block = {name:?}"),
            // The value may be a secret, and this text is printed.
            Setting::EnvSet(name, _) => write!(f, "env.set.{name} = ..."),
        }
    }
}
