//! The configuration of a tool sandbox with a proxy: the user's `sandbox` table, the proxy's own, and that of a process
//! sandbox. Owns what their keys mean here. Called by `import`.

use cofferdam_policy::{Access, EnvMode, NetworkMode, Scalar, Setting};

use super::configuration::{Import, is_object};
use super::hosts::Keys;

const HOST: &str = "is no mode that a file should choose: network.mode = \"host\" is the whole network, unfiltered";
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
        Some(mode) if mode == "none" => import.add(Scalar::Network(NetworkMode::None)),
        Some(mode) if mode == "proxy" => import.add(Scalar::Network(NetworkMode::Egress)),
        Some(mode) => import.remark("sandbox.bash.defaultNetwork", &mode, HOST),
        None => {}
    }
    allowed_by_default(import);
    import.scalar("sandbox.bash.resources.memory", Scalar::Memory);
    import.milliseconds("sandbox.bash.resources.timeout", Scalar::Timeout);
    if let Some(value) = import.take("sandbox.bash.resources.cpus") {
        match cofferdam_policy::parse_cpus(value.to_string().trim_matches('"')) {
            Some(cpus) => import.add(Scalar::CpuMillis(cpus)),
            None => import.remark("sandbox.bash.resources.cpus", &value, "is no number of CPUs"),
        }
    }
}

/// A list beside a mode that has no network is for calls that ask for one.
fn allowed_by_default(import: &mut Import) {
    let none = import.draft.settings.contains(&Scalar::Network(NetworkMode::None).into());
    import.each("sandbox.bash.proxyAllowlist", |import, host| {
        import.allowed("sandbox.bash.proxyAllowlist", host, &[]);
    });
    if none {
        let why = "its hosts count once network.mode is egress, as with --network egress";
        import.draft.remarks.push(format!("sandbox.bash.proxyAllowlist: {why}"));
    }
}

fn proxy(import: &mut Import) {
    import.no_equal("listenAddr", "the proxy of a session is its own");
    import.network(&Keys {
        allow: &["allowlist.hosts"],
        ports: Some("allowlist.ports"),
        deny: &["blocklist.hosts", "blocklist.ipRanges"],
        ..Keys::default()
    });
    import.no_equal("logRequests", "every connection is in the audit log");
    import.no_equal("logResponses", "the audit log has how much came back, and never what");
}

fn process(import: &mut Import) {
    import.add(Setting::Preset("process-tool".to_owned()));
    match import.take("env") {
        Some(mode) if mode == "inherit" => import.add(Scalar::EnvMode(EnvMode::Inherit)),
        Some(mode) if mode == "explicit" || mode == "clean" => import.add(Scalar::EnvMode(EnvMode::Explicit)),
        Some(mode) => import.remark("env", &mode, "is none of inherit, clean, explicit"),
        None => {}
    }
    import.each("allowedEnvVars", |import, name| import.add(Setting::EnvPass(name.to_owned())));
    import.paths("allowedPaths", Access::Write);
    import.paths("blockedPaths", Access::Deny);
    import.milliseconds("timeout", Scalar::Timeout);
    import.scalar("maxOutputSize", Scalar::Output);
    import.no_equal("cwd", "the command starts in the directory that `sandbox run` was called in");
    for key in ["uid", "gid"] {
        import.no_equal(key, "the command runs as its caller");
    }
}
