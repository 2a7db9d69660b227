//! Checks that one setting must pass whatever its source. Owns what a value may be; notation is the sources' work and
//! precedence that of `layers`. Called by `file` for files and by `layers` for variables and flags.

use crate::types::always_denied::is_always_denied;
use crate::types::error::PolicyError;
use crate::types::files::Access;
use crate::types::origin::Ruled;
use crate::types::setting::Setting;

pub(crate) fn check(setting: &Ruled<Setting>) -> Result<(), PolicyError> {
    let origin = || setting.origin.clone();
    let fails = |key: &str, value: &str, expected: &str| {
        Err(PolicyError::Value {
            setting: key.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
            origin: origin(),
        })
    };
    match &setting.value {
        Setting::Scalar(scalar) => match scalar.mistake() {
            Some(expected) => fails(&scalar.name(), &scalar.amount(), expected),
            None => Ok(()),
        },
        Setting::File { access, path, .. } if path.is_deep() && *access != Access::Deny => {
            fails(&format!("files.{access}"), path.as_str(), "a path without `**`")
        }
        Setting::File { access, path, .. } if path.is_glob() && *access > Access::Protect => {
            fails(&format!("files.{access}"), path.as_str(), "a path without `*`")
        }
        Setting::NetworkPart(part) => match part.mistake() {
            Some(expected) => fails(&format!("network.{}", part.key()), &part.value(str::to_owned), expected),
            None => Ok(()),
        },
        // An empty list would read as "none" and mean "all".
        Setting::Executables(names) if names.is_empty() => {
            fails("process.executables", "[]", "names of programs, or `allow_exec = false`")
        }
        Setting::Executables(names) => match names.iter().find(|name| name.is_empty() || name.contains('\0')) {
            Some(bad) => fails("process.executables", bad, "names of programs"),
            None => Ok(()),
        },
        Setting::SyscallAllow(call) if is_always_denied(call) => {
            Err(PolicyError::AlwaysDenied { call: call.clone(), origin: origin() })
        }
        Setting::Hook(argv) if !argv.first().is_some_and(|program| program.starts_with('/')) => {
            fails("unknown.hook", &argv.join(" "), "the absolute path of a program, and its arguments")
        }
        Setting::AlertHook(argv) if !argv.first().is_some_and(|program| program.starts_with('/')) => {
            fails("response.hook", &argv.join(" "), "the absolute path of a program, and its arguments")
        }
        Setting::EnvPass(name) if !is_variable_name(name) => fails("env.pass", name, "the name of a variable"),
        Setting::EnvBlock(name) if !is_variable_name(name) => fails("env.block", name, "the name of a variable"),
        Setting::EnvSet(name, _) if !is_variable_name(name) => fails("env.set", name, "the name of a variable"),
        Setting::EnvSet(name, value) if value.contains('\0') => {
            fails("env.set", name, "a variable whose value has no NUL byte")
        }
        _ => Ok(()),
    }
}

/// What `execve` can carry as a name; `*` is a glob where globs are allowed.
pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}
