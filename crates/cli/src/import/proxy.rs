//! The configuration of a tool sandbox with a proxy: the user's `sandbox` table, the proxy's own, and that of a process
//! sandbox. Owns what their keys mean here. Called by `import`.

use cofferdam_policy::{Access, EnvMode, Limit, NetworkMode, Setting};

use super::{EGRESS, Import, is_object};

const IMAGES: &str = "there are no images: the command sees the host's own software";

pub(super) fn read(import: &mut Import) {
    if is_object(import.left.pointer("/sandbox/bash")) {
        bash(import);
    }
    import.no_equal("sandbox.images", IMAGES);
    proxy(import);
    if import.left.get("allowedPaths").is_some() || import.left.get("maxOutputSize").is_some() {
        process(import);
    }
}

/// Its defaults and maxima are those of the preset `tool`.
fn bash(import: &mut Import) {
    import.add(Setting::Preset("tool".to_owned()));
    match import.take("sandbox.bash.defaultNetwork") {
        Some(mode) if mode == "none" => import.add(Setting::Network(NetworkMode::None)),
        Some(mode) => import.remark("sandbox.bash.defaultNetwork", &mode, EGRESS),
        None => {}
    }
    import.network("sandbox.bash.proxyAllowlist");
    import.amount("sandbox.bash.resources.memory", |bytes| Some(Setting::Limit(Limit::Memory(bytes))));
    import.milliseconds("sandbox.bash.resources.timeout", Limit::Timeout);
    if let Some(value) = import.take("sandbox.bash.resources.cpus") {
        match cofferdam_policy::parse_cpus(value.to_string().trim_matches('"')) {
            Some(cpus) => import.add(Setting::Limit(Limit::CpuMillis(cpus))),
            None => import.remark("sandbox.bash.resources.cpus", &value, "is no number of CPUs"),
        }
    }
}

fn proxy(import: &mut Import) {
    for key in ["listenAddr", "allowlist.hosts", "allowlist.ports", "blocklist.hosts", "blocklist.ipRanges"] {
        import.network(key);
    }
    for key in ["logRequests", "logResponses"] {
        import.no_equal(key, EGRESS);
    }
}

fn process(import: &mut Import) {
    import.add(Setting::Preset("process-tool".to_owned()));
    match import.take("env") {
        Some(mode) if mode == "inherit" => import.add(Setting::EnvMode(EnvMode::Inherit)),
        Some(mode) if mode == "explicit" || mode == "clean" => import.add(Setting::EnvMode(EnvMode::Explicit)),
        Some(mode) => import.remark("env", &mode, "is none of inherit, clean, explicit"),
        None => {}
    }
    import.each("allowedEnvVars", |import, name| import.add(Setting::EnvPass(name.to_owned())));
    import.paths("allowedPaths", Access::Write);
    import.paths("blockedPaths", Access::Deny);
    import.milliseconds("timeout", Limit::Timeout);
    import.amount("maxOutputSize", |bytes| Some(Setting::Limit(Limit::Output(bytes))));
    import.no_equal("cwd", "the command starts in the directory that `sandbox run` was called in");
    for key in ["uid", "gid"] {
        import.no_equal(key, "the command runs as whoever calls");
    }
}
