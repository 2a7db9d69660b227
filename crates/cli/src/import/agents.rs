//! Settings of coding agents: Claude Code with its sandbox runtime (`srt`), Codex, Cursor. Owns what their keys mean here. Called by `import`.

use std::borrow::Cow;

use cofferdam_policy::{
    Access, EnvMode, Isolation, Mode, NetworkMode, NetworkPart, PathExpr, Scalar, Setting, SocketGrant,
};
use serde_json::Value;

use super::configuration::{Import, object};
use super::hosts::Keys;

const COMMANDS: &str = "commands are not judged by their text: the kernel enforces what they may do";

/// `settings.json` of Claude Code.
pub(super) fn claude(import: &mut Import) {
    import.each("permissions.allow", |import, rule| permission(import, "permissions.allow", rule));
    import.each("permissions.deny", |import, rule| permission(import, "permissions.deny", rule));
    import.no_equal("permissions.ask", "in dynamic mode every unknown path is asked about");
    import.each("permissions.additionalDirectories", |import, path| {
        import.path("permissions.additionalDirectories", &project_path(path), Access::Write);
    });
    runtime(import, "sandbox.");
    import.no_equal("sandbox.enabled", "`sandbox run -- claude` is the sandbox");
    import.no_equal("sandbox.excludedCommands", "no command inside is outside of the sandbox");
    for (name, value) in object(import.take("env")) {
        match value.as_str() {
            Some(text) => import.add(Setting::EnvSet(name, text.to_owned())),
            None => import.remark(&format!("env.{name}"), &value, "is no text"),
        }
    }
}

/// The settings of `srt`, which Claude Code has below `sandbox`.
pub(super) fn srt(import: &mut Import) {
    let writes_here = import
        .left
        .pointer("/filesystem/allowWrite")
        .and_then(Value::as_array)
        .is_none_or(|list| list.iter().any(|path| matches!(path.as_str(), Some("." | "./"))));
    if !writes_here {
        import.add(Scalar::Project(Access::Read));
    }
    runtime(import, "");
    import.no_equal("allowPty", "a session has terminals of its own");
    import.no_equal("ignoreViolations", "what was denied is always recorded");
    import.no_equal("mandatoryDenySearchDepth", "names that hold secrets are looked for at any depth");
    for key in ["enableWeakerNestedSandbox", "enableWeakerNetworkIsolation", "allowAppleEvents"] {
        import.no_equal(key, "walls that cannot be built end the start");
    }
    for key in ["ripgrep", "seccomp"] {
        import.no_equal(key, "no further program is needed");
    }
}

fn runtime(import: &mut Import, prefix: &str) {
    for (key, access) in [
        ("allowWrite", Access::Write),
        ("denyWrite", Access::Protect),
        ("denyRead", Access::Deny),
        ("allowRead", Access::Read),
    ] {
        let key = format!("{prefix}filesystem.{key}");
        import.each(&key, |import, path| import.path(&key, &relative_path(&absolute_path(path)), access));
    }
    import.network(&Keys {
        allow: &[&format!("{prefix}network.allowedDomains")],
        deny: &[&format!("{prefix}network.deniedDomains")],
        ..Keys::default()
    });
    let key = format!("{prefix}network.allowUnixSockets");
    import.each(&key, |import, path| match PathExpr::parse(path) {
        Ok(path) => {
            let reason = Cow::Owned(key.clone());
            import.add(NetworkPart::Socket(SocketGrant { path, optional: true, reason }));
        }
        Err(error) => import.remark(&key, &Value::from(path), &error.to_string()),
    });
    let key = format!("{prefix}network.allowAllUnixSockets");
    import.no_equal(&key, "sockets are named one by one in network.sockets");
    let key = format!("{prefix}network.allowLocalBinding");
    import.no_equal(&key, "a session always listens on its own loopback");
    for key in ["httpProxyPort", "socksProxyPort", "mitmProxy", "parentProxy"] {
        import.no_equal(&format!("{prefix}network.{key}"), "the proxy of a session is its own");
    }
}

/// There, a relative path lies where the command starts; here, in the project.
fn relative_path(path: &str) -> String {
    match path {
        "." | "./" => "./".to_owned(),
        path if path.starts_with(['/', '~', '$']) || path.starts_with("./") || path.starts_with("../") => {
            path.to_owned()
        }
        path => format!("./{path}"),
    }
}

/// `Tool(argument)`.
fn permission(import: &mut Import, key: &str, rule: &str) {
    let value = Value::from(rule);
    let allow = key.ends_with("allow");
    let Some((tool, argument)) = rule.strip_suffix(')').and_then(|rule| rule.split_once('(')) else {
        return import.remark(key, &value, "is about a tool of the agent as a whole");
    };
    let access = match (tool, allow) {
        ("Read", true) => Access::Read,
        ("Read", false) => Access::Deny,
        ("Edit" | "Write" | "MultiEdit" | "NotebookEdit", true) => Access::Write,
        ("Edit" | "Write" | "MultiEdit" | "NotebookEdit", false) => Access::Protect,
        ("WebFetch", allow) => return web_fetch(import, key, argument, allow),
        ("WebSearch", _) => return import.remark(key, &value, "the agent's provider searches, not the session"),
        ("Bash", _) => return import.remark(key, &value, COMMANDS),
        _ => return import.remark(key, &value, "is about a tool of the agent"),
    };
    import.path(key, &project_path(argument), access);
}

/// `domain:HOST`.
fn web_fetch(import: &mut Import, key: &str, argument: &str, allow: bool) {
    match argument.strip_prefix("domain:") {
        Some(host) if allow => {
            import.allowed(key, host, &[]);
            import.add(Scalar::Network(NetworkMode::Egress));
        }
        Some(host) => import.denied(key, host),
        None => import.remark(key, &Value::from(argument), "is about a tool of the agent"),
    }
}

/// There, `//x` is absolute and `/x` lies in the project.
fn project_path(path: &str) -> String {
    match (path.strip_prefix("//"), path.strip_prefix('/')) {
        (Some(rest), _) => format!("/{rest}"),
        (None, Some(rest)) => format!("./{rest}"),
        (None, None) => path.to_owned(),
    }
}

fn absolute_path(path: &str) -> String {
    path.strip_prefix("//").map_or_else(|| path.to_owned(), |rest| format!("/{rest}"))
}

/// `config.toml` of Codex.
pub(super) fn codex(import: &mut Import) {
    match import.take("sandbox_mode") {
        Some(mode) if mode == "read-only" => import.add(Scalar::Project(Access::Read)),
        Some(mode) if mode == "workspace-write" => import.add(Scalar::Project(Access::Write)),
        Some(mode) if mode == "danger-full-access" => {
            import.remark("sandbox_mode", &mode, "isolation `none` needs the organisation's approval; left at full");
        }
        Some(mode) => import.remark("sandbox_mode", &mode, "is not known"),
        None => {}
    }
    match import.take("approval_policy") {
        Some(policy) if policy == "never" => import.add(Scalar::Mode(Mode::Static)),
        Some(policy) => {
            import.add(Scalar::Mode(Mode::Dynamic));
            import.remark(
                "approval_policy",
                &policy,
                "became dynamic mode, which asks about paths, not about commands",
            );
        }
        None => {}
    }
    import.paths("sandbox_workspace_write.writable_roots", Access::Write);
    match import.take("sandbox_workspace_write.network_access") {
        Some(Value::Bool(false)) => import.add(Scalar::Network(NetworkMode::None)),
        Some(value @ Value::Bool(true)) => {
            // There it opens everything; here what is not listed is asked about.
            import.add(Scalar::Network(NetworkMode::Egress));
            let why =
                "became egress: hosts are asked about, or listed in network.allow; `host` would be the whole network";
            import.remark("sandbox_workspace_write.network_access", &value, why);
        }
        Some(value) => import.remark("sandbox_workspace_write.network_access", &value, "is neither true nor false"),
        None => {}
    }
    for key in ["exclude_tmpdir_env_var", "exclude_slash_tmp"] {
        import.no_equal(&format!("sandbox_workspace_write.{key}"), "/tmp is private and ends with the session");
    }
    codex_environment(import);
}

fn codex_environment(import: &mut Import) {
    match import.take("shell_environment_policy.inherit") {
        Some(mode) if mode == "all" => import.add(Scalar::EnvMode(EnvMode::Inherit)),
        Some(mode) if mode == "core" => import.add(Scalar::EnvMode(EnvMode::Clean)),
        Some(mode) if mode == "none" => import.add(Scalar::EnvMode(EnvMode::Explicit)),
        Some(mode) => import.remark("shell_environment_policy.inherit", &mode, "is not known"),
        None => {}
    }
    import.each("shell_environment_policy.exclude", |import, name| import.add(Setting::EnvBlock(name.to_owned())));
    import.each("shell_environment_policy.include_only", |import, name| import.add(Setting::EnvPass(name.to_owned())));
    for (name, value) in object(import.take("shell_environment_policy.set")) {
        match value.as_str() {
            Some(text) => import.add(Setting::EnvSet(name, text.to_owned())),
            None => import.remark(&format!("shell_environment_policy.set.{name}"), &value, "is no text"),
        }
    }
}

/// `.cursor/sandbox.json`.
pub(super) fn cursor(import: &mut Import) {
    match import.take("type") {
        Some(kind) if kind == "workspace_readwrite" => {
            import.add(Scalar::Isolation(Isolation::Full));
            import.add(Scalar::Project(Access::Write));
        }
        Some(kind) if kind == "workspace_readonly" => {
            import.add(Scalar::Isolation(Isolation::Full));
            import.add(Scalar::Project(Access::Read));
        }
        Some(kind) => import.remark("type", &kind, "isolation `none` needs the organisation's approval; left at full"),
        None => {}
    }
    import.paths("additionalReadwritePaths", Access::Write);
    import.paths("additionalReadonlyPaths", Access::Read);
    match import.take("networkPolicy.default") {
        Some(default) if default == "deny" => {}
        Some(default) => {
            let why = "became egress: what is not listed is asked about";
            import.add(Scalar::Network(NetworkMode::Egress));
            import.remark("networkPolicy.default", &default, why);
        }
        None => {}
    }
    import.network(&Keys { allow: &["networkPolicy.allow"], deny: &["networkPolicy.deny"], ..Keys::default() });
    import.no_equal("disableTmpWrite", "/tmp is private and ends with the session");
    import.no_equal("enableSharedBuildCache", "caches look writable; a preset makes them so for real");
}
