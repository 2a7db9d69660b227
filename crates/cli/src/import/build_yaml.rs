//! The YAML configuration of a build-tool sandbox: `sandbox_config` and its longer forms. Owns what their keys mean here.
//! Called by `import`.

use cofferdam_policy::{Access, Scalar};
use serde_json::Value;

use super::configuration::{Import, cpu_seconds, object, small};
use super::hosts::Keys;
use super::tool_json::executables;

/// The system's own software: it can be read and never written, and without it nothing runs.
const SYSTEM: &[&str] = &["/etc", "/usr", "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/lib", "/lib64"];

const MEBIBYTE: u64 = 1 << 20;

pub(super) fn read(import: &mut Import) {
    short_form(import);
    long_form(import);
    network(import);
    import.each("blocked_paths", blocked_path);
    executables(import, "execution_policy.allowed_executables");
    let why = "only listed programs run, where any are listed; a list of refused ones is not needed";
    import.no_equal("execution_policy.blocked_executables", why);
    import
        .no_equal("execution_policy.command_validation", "commands are not judged by their text: the kernel enforces");
    for key in ["monitored_events", "log_levels"] {
        import.no_equal(key, "what is logged is not chosen by a policy");
    }
}

fn short_form(import: &mut Import) {
    let key = |name: &str| format!("sandbox_config.{name}");
    megabytes(import, &key("resource_limits.memory_mb"), Scalar::Memory);
    import.time(&key("resource_limits.cpu_seconds"), cpu_seconds);
    import.time(&key("resource_limits.wall_seconds"), Scalar::Timeout);
    tasks(import, &key("resource_limits"));
    import.scalar(&key("resource_limits.files"), Scalar::OpenFiles);
    megabytes(import, &key("file_system.workspace_size_mb"), Scalar::Storage);
    import.no_equal(
        &key("file_system.target_size_mb"),
        "limits.storage counts what is added to a disk, wherever it lies",
    );
    megabytes(import, &key("file_system.log_size_mb"), Scalar::Output);
    megabytes(import, &key("file_system.temp_size_mb"), Scalar::TmpSize);
    import.no_equal(&key("security.strict_mode"), "a wall that cannot be built always ends the launch");
    import.no_equal(&key("security.audit_logging"), "every session is logged");
    import.no_equal(&key("security.block_shell_access"), "list the programs that may run in process.executables");
}

fn long_form(import: &mut Import) {
    import.time("process_limits.cpu_time", cpu_seconds);
    import.time("process_limits.wall_time", Scalar::Timeout);
    import.scalar("process_limits.memory", Scalar::Memory);
    tasks(import, "process_limits");
    import.scalar("process_limits.file_descriptors", Scalar::OpenFiles);
    import.scalar("size_limits.total_workspace", Scalar::Storage);
    import.no_equal("size_limits.target_directory", "limits.storage counts what is added to a disk, wherever it lies");
    import.scalar("size_limits.log_files", Scalar::Output);
    import.scalar("size_limits.temp_files", Scalar::TmpSize);
    match import.take("directory_permissions.workspace") {
        Some(mode) if mode == "ro" => import.add(Scalar::Project(Access::Read)),
        Some(mode) if mode == "rw" => import.add(Scalar::Project(Access::Write)),
        Some(mode) => import.remark("directory_permissions.workspace", &mode, "is neither ro nor rw"),
        None => {}
    }
    for (name, mode) in object(import.take("directory_permissions")) {
        let why = "names no path; give it with files.write or files.read";
        import.remark(&format!("directory_permissions.{name}"), &mode, why);
    }
}

fn tasks(import: &mut Import, table: &str) {
    import.amount(&format!("{table}.processes"), |count| small(count).map(Scalar::MaxProcesses));
    let why = "threads count in process.max, too; they have no limit of their own";
    import.no_equal(&format!("{table}.threads"), why);
}

fn megabytes(import: &mut Import, key: &str, scalar: fn(u64) -> Scalar) {
    import.amount(key, |count| count.checked_mul(MEBIBYTE).map(scalar));
}

fn network(import: &mut Import) {
    import.network(&Keys {
        enabled: Some("sandbox_config.network.enabled"),
        allow: &["sandbox_config.network.allowlist"],
        ports: Some("sandbox_config.network.ports"),
        ..Keys::default()
    });
    import.network(&Keys {
        allow: &["network_allowlist"],
        ports: Some("port_restrictions.allowed_ports"),
        ..Keys::default()
    });
    import.no_equal("blocked_protocols", "only what is listed in network.allow is carried, and only TCP");
    import.no_equal("port_restrictions.blocked_ranges", "a port that no rule names is refused");
}

fn blocked_path(import: &mut Import, path: &str) {
    let value = Value::from(path);
    if SYSTEM.contains(&path) {
        import.remark("blocked_paths", &value, "can be read and never written here; without it no program runs");
    } else if path.as_bytes().get(1) == Some(&b':') {
        import.remark("blocked_paths", &value, "is a path of another system");
    } else {
        import.path("blocked_paths", path, Access::Deny);
    }
}
