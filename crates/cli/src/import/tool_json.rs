//! The JSON policy that a tool declares: `isolationLevel`, `filesystem`, `process`, `network`, `resources`, `syscalls`.
//! Owns what its keys mean here. Called by `import`.

use cofferdam_plan::seccomp::{Verdict, number_of, verdict_of};
use cofferdam_policy::{Access, Isolation, Origin, Policy, Ruled, Scalar, Setting, SyscallMode, is_always_denied};
use serde_json::Value;

use super::configuration::{Import, cpu_seconds, small};
use super::hosts::Keys;

pub(super) fn read(import: &mut Import) {
    isolation(import);
    import
        .no_equal("filesystem.rootPath", "the command sees the host's tree in its usual places, not a root of its own");
    import.paths("filesystem.readOnlyPaths", Access::Read);
    import.paths("filesystem.readWritePaths", Access::Write);
    import.paths("filesystem.deniedPaths", Access::Deny);
    import.scalar("filesystem.maxFileSize", Scalar::FileSize);
    import.scalar("filesystem.maxTotalSize", Scalar::Storage);
    import.amount("process.maxProcesses", |count| small(count).map(Scalar::MaxProcesses));
    import.flag("process.allowFork", Scalar::AllowFork);
    import.flag("process.allowExec", Scalar::AllowExec);
    executables(import, "process.allowedExecutables");
    import.network(&Keys {
        enabled: Some("network.allowNetwork"),
        allow: &["network.allowedHosts"],
        ports: Some("network.allowedPorts"),
        connections: Some("network.maxConnections"),
        ..Keys::default()
    });
    import.milliseconds("resources.maxCPU", cpu_seconds);
    import.scalar("resources.maxMemory", Scalar::Memory);
    import.scalar("resources.maxFileDescriptors", Scalar::OpenFiles);
    import.no_equal("resources.maxThreads", "threads count in process.max, too; they have no limit of their own");
    syscalls(import);
}

fn isolation(import: &mut Import) {
    let Some(value) = import.take("isolationLevel") else { return };
    match value.as_str() {
        Some("LEVEL_0") => import.add(Scalar::Isolation(Isolation::None)),
        Some("LEVEL_1") => import.add(Scalar::Isolation(Isolation::Process)),
        Some("LEVEL_2") => import.add(Scalar::Isolation(Isolation::Full)),
        _ => import.remark("isolationLevel", &value, "is none of LEVEL_0, LEVEL_1, LEVEL_2"),
    }
}

/// An empty list allows all, here as there.
pub(super) fn executables(import: &mut Import, key: &str) {
    let mut names = Vec::new();
    import.each(key, |_, name| names.push(name.to_owned()));
    if !names.is_empty() {
        import.add(Setting::Executables(names));
    }
}

fn syscalls(import: &mut Import) {
    let Some(mode) = import.take("syscalls.mode") else { return };
    match mode.as_str() {
        Some("WHITELIST") => {
            import.add(Scalar::SyscallMode(SyscallMode::AllowList));
            import.each("syscalls.syscalls", allow);
            let why = "calls are added to the built-in table; to take some of it away, list them in syscalls.deny";
            import.remark("syscalls.mode", &mode, why);
        }
        Some("BLACKLIST") => {
            import.add(Scalar::SyscallMode(SyscallMode::DenyList));
            import.each("syscalls.syscalls", deny);
        }
        _ => import.remark("syscalls.mode", &mode, "is neither WHITELIST nor BLACKLIST"),
    }
}

/// Adds a call that the built-in table does not have. One that it has needs no rule.
fn allow(import: &mut Import, name: &str) {
    let value = Value::from(name);
    let verdict_with = |policy: &Policy| verdict_of(policy, true, name).ok().flatten();
    let mut policy = Policy::built_in();
    match verdict_with(&policy) {
        None => return import.remark("syscalls.syscalls", &value, "is no call of this machine"),
        Some(Verdict::Errno(_) | Verdict::Notify) => {}
        Some(_) => return,
    }
    policy.syscalls.allow.push(Ruled::new(name.to_owned(), Origin::default_value()));
    if is_always_denied(name) || verdict_with(&policy).is_none() {
        return import.remark("syscalls.syscalls", &value, "is always denied");
    }
    import.add(Setting::SyscallAllow(name.to_owned()));
}

fn deny(import: &mut Import, name: &str) {
    if number_of(name).is_some() {
        import.add(Setting::SyscallDeny(name.to_owned()));
    } else {
        import.remark("syscalls.syscalls", &Value::from(name), "is no call of this machine");
    }
}
