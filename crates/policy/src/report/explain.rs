//! The effective policy as text, every line with the rule that set it. Owns wording and grouping; colours, paging and
//! JSON are the edge's. Called by `sandbox policy show` and by the dry run.

use std::borrow::Cow;

use crate::types::files::{Access, FileRule};
use crate::types::network::NetworkMode;
use crate::types::network_part::NetworkPart;
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::policy::{Mode, Policy};
use crate::types::scalar::Scalar;

/// Plain lines without colour. The shipped lists are summed up unless `verbose`.
pub fn explain(policy: &Policy, verbose: bool) -> Vec<String> {
    let mut lines = Vec::new();
    modes(policy, &mut lines);
    files(policy, verbose, &mut lines);
    network(policy, verbose, &mut lines);
    processes(policy, &mut lines);
    limits(policy, &mut lines);
    syscalls(policy, &mut lines);
    response(policy, &mut lines);
    audit(policy, &mut lines);
    environment(policy, verbose, &mut lines);
    if !policy.held_back.is_empty() {
        lines.push("held back until the project's policy is approved".to_owned());
        lines.extend(policy.held_back.iter().map(|held| line(&held.rule, &held.origin)));
    }
    lines
}

fn line(what: &str, origin: &Origin) -> String {
    format!("  {what:<48}  {origin}")
}

fn value<T: std::fmt::Display>(name: &str, ruled: &Ruled<T>) -> String {
    line(&format!("{name} {}", ruled.value), &ruled.origin)
}

/// The settings of a table that have one value.
fn scalars(policy: &Policy, table: &'static str) -> impl Iterator<Item = String> {
    policy.scalars_of(table).map(|scalar| scalar_line(&scalar))
}

fn scalar_line(scalar: &Ruled<Scalar>) -> String {
    line(&format!("{} {}", scalar.value.label(), scalar.value.amount()), &scalar.origin)
}

fn modes(policy: &Policy, lines: &mut Vec<String>) {
    lines.push("modes".to_owned());
    for scalar in policy.scalars_of("").filter(|scalar| scalar.value.only_layer().is_none()) {
        lines.push(scalar_line(&scalar));
        if matches!(scalar.value, Scalar::Mode(_)) {
            lines.push(match policy.network.mode.value {
                NetworkMode::Host => line("network host (the host's own, unfiltered)", &policy.network.mode.origin),
                NetworkMode::None | NetworkMode::Egress => value("network", &policy.network.mode),
            });
        }
    }
    if policy.mode.value == Mode::Dynamic {
        lines.extend(scalars(policy, "unknown"));
        lines.extend(policy.unknown.hook.iter().map(|hook| line("a hook answers questions", &hook.origin)));
    }
    lines.extend(policy.presets.iter().map(|preset| value("preset", preset)));
    if let Some(origin) = &policy.none_approved {
        lines.push(line("isolation none is approved", origin));
    }
    if let Some(origin) = &policy.host_network_approved {
        lines.push(line("the host's network is approved", origin));
    }
}

fn files(policy: &Policy, verbose: bool, lines: &mut Vec<String>) {
    let groups = [
        (Access::Write, "writable"),
        (Access::Overlay, "looks writable, never reaches the host"),
        (Access::Read, "readable"),
        (Access::Protect, "protected"),
        (Access::Mask, "masked: read-only, without the values of secret names"),
        (Access::Deny, "denied"),
    ];
    for (access, title) in groups {
        let rules: Vec<&FileRule> = policy.files.iter().filter(|rule| rule.access == access).collect();
        if rules.is_empty() {
            continue;
        }
        lines.push(title.to_owned());
        let summed_up =
            |rule: &&&FileRule| !verbose && rule.origin.layer == Layer::BuiltIn && access <= Access::Protect;
        lines.extend(rules.iter().filter(|rule| !summed_up(rule)).map(|rule| file_line(rule)));
        let shipped = rules.iter().filter(summed_up).count();
        if let Some(rule) = rules.iter().find(summed_up) {
            lines.push(format!("  {:<48}  built-in: {}", format!("{shipped} shipped paths"), rule.origin.source));
        }
    }
    lines.extend(policy.write_within.iter().map(|root| value("grants to write lie within", root)));
}

/// The mode stands among the modes; here is what it lets through.
fn network(policy: &Policy, verbose: bool, lines: &mut Vec<String>) {
    let is_default = |part: &Ruled<NetworkPart>| {
        part.origin.layer == Layer::BuiltIn && !matches!(part.value, NetworkPart::Allow(_) | NetworkPart::Deny(_))
    };
    let parts: Vec<Ruled<NetworkPart>> = policy.network.parts();
    let shown: Vec<&Ruled<NetworkPart>> = parts.iter().filter(|part| verbose || !is_default(part)).collect();
    let is_mode = |scalar: &Ruled<Scalar>| matches!(scalar.value, Scalar::Network(_));
    let is_said = |scalar: &Ruled<Scalar>| scalar.origin.layer != Layer::BuiltIn;
    let numbers: Vec<Ruled<Scalar>> = policy.scalars_of("network").filter(|scalar| !is_mode(scalar)).collect();
    let says_nothing = shown.iter().all(|part| is_default(part)) && !numbers.iter().any(is_said);
    if policy.network.mode.value != NetworkMode::Egress && says_nothing {
        return;
    }
    lines.push("network".to_owned());
    let summed_up = |part: &&Ruled<NetworkPart>| !verbose && part.origin.layer == Layer::BuiltIn;
    lines.extend(shown.iter().filter(|part| !summed_up(part)).map(|part| network_line(part)));
    let shipped = shown.iter().filter(|part| summed_up(part)).count();
    if let Some(part) = shown.iter().find(|part| summed_up(part)) {
        lines.push(format!("  {:<48}  built-in: {}", format!("allow {shipped} shipped hosts"), part.origin.source));
    }
    lines.extend(numbers.iter().filter(|scalar| verbose || is_said(scalar)).map(scalar_line));
    lines.extend(policy.network.within.iter().map(|within| value("allowed hosts lie within", within)));
    if policy.network.mode.value == NetworkMode::Egress && policy.network.allow.is_empty() {
        lines.push("  no host is allowed".to_owned());
    }
}

fn network_line(part: &Ruled<NetworkPart>) -> String {
    let finality = if part.origin.layer == Layer::Requirements { " (final)" } else { "" };
    let what = match &part.value {
        NetworkPart::Allow(rule) | NetworkPart::Deny(rule) => {
            let (methods, paths) = (rule.methods.join(" "), rule.paths.join(" "));
            let words = [part.value.key(), &rule.endpoint.to_string(), &methods, &paths].join(" ");
            let reason = if rule.reason.is_empty() { String::new() } else { format!("  # {}", rule.reason) };
            return format!("{}{reason}", line(&format!("{}{finality}", words.trim_end()), &part.origin));
        }
        NetworkPart::Credential(credential) => {
            format!("credential {} for {}:{}", credential.variable, credential.host, credential.port)
        }
        other => format!("{} {}", other.key(), other.value(str::to_owned)),
    };
    line(&what, &part.origin)
}

fn file_line(rule: &FileRule) -> String {
    let finality = if rule.is_final { " (final)" } else { "" };
    let reason = if rule.reason.is_empty() { String::new() } else { format!("  # {}", rule.reason) };
    format!("{}{reason}", line(&format!("{}{finality}", rule.path), &rule.origin))
}

fn processes(policy: &Policy, lines: &mut Vec<String>) {
    lines.push("processes".to_owned());
    lines.extend(scalars(policy, "process"));
    lines.extend(policy.process.executables.iter().map(|name| value("may execute", name)));
}

fn limits(policy: &Policy, lines: &mut Vec<String>) {
    let mut limits = scalars(policy, "limits").peekable();
    if limits.peek().is_some() {
        lines.push("limits".to_owned());
        lines.extend(limits);
    }
}

fn syscalls(policy: &Policy, lines: &mut Vec<String>) {
    lines.push("system calls".to_owned());
    lines.extend(scalars(policy, "syscalls"));
    lines.extend(policy.syscalls.allow.iter().map(|call| value("allow", call)));
    lines.extend(policy.syscalls.deny.iter().map(|call| value("deny", call)));
}

fn response(policy: &Policy, lines: &mut Vec<String>) {
    lines.push("response to signs of an escape".to_owned());
    lines.extend(scalars(policy, "response"));
    lines.extend(policy.response.hook.iter().map(|hook| {
        line(&format!("an alert is sent to {}", hook.value.first().map_or("", String::as_str)), &hook.origin)
    }));
}

fn audit(policy: &Policy, lines: &mut Vec<String>) {
    if policy.audit_keep.origin.layer != Layer::BuiltIn {
        lines.push("audit log".to_owned());
        lines.extend(scalars(policy, "audit"));
    }
}

fn environment(policy: &Policy, verbose: bool, lines: &mut Vec<String>) {
    lines.push("environment".to_owned());
    lines.extend(scalars(policy, "env"));
    lines.extend(policy.env.pass.iter().map(|name| value("pass", name)));
    // Values stay out: they may be secrets.
    lines.extend(policy.env.set.iter().map(|set| line(&format!("set {}", set.value.0), &set.origin)));
    for (title, globs) in [("block", &policy.env.block), ("clean", &policy.env.clean)] {
        let shown = |glob: &&Ruled<Cow<'static, str>>| verbose || glob.origin.layer != Layer::BuiltIn;
        lines.extend(globs.iter().filter(shown).map(|glob| value(title, glob)));
        let shipped = globs.iter().filter(|glob| !shown(glob)).count();
        if shipped > 0 {
            let what = format!("{title} {shipped} shipped patterns");
            lines.push(format!("  {what:<48}  built-in: profiles/environment.toml"));
        }
    }
}
