//! What `sandbox why` says about a host: whether a session could reach it now, by which rule, and what would change that;
//! and what a past session did about it. Owns the wording; the verdict is `reach`'s.

use std::path::Path;

use cofferdam_host::flags::FlagError;
use cofferdam_host::preparation::PrepareError;
use cofferdam_kernel::own_addresses::own_addresses;
use cofferdam_policy::{
    Endpoint, Host, Isolation, Layer, Mode, NetworkMode, OnUnknown, Policy, parse_authority, with_port,
};
use cofferdam_reach::{Denial, Rules, Verdict};

use super::path::would_be_asked;
use crate::log::{self, LogError};

/// A name without a port is looked at as a browser would.
const USUAL_PORT: u16 = 443;

/// As it was typed: `HOST`, `HOST:PORT`, or an address.
pub(super) fn place(target: &str) -> Result<(Host, u16), PrepareError> {
    let bare = target.parse().ok().map(|address: std::net::IpAddr| (Host::Address(address.to_canonical()), USUAL_PORT));
    bare.map_or_else(|| parse_authority(target, Some(USUAL_PORT)), Ok)
        .map_err(|error| FlagError::new("HOST", target, error.to_string()).into())
}

pub(super) fn about(target: &str, policy: &Policy) -> Result<Vec<String>, PrepareError> {
    let (host, port) = place(target)?;
    let shown = with_port(&host, port);
    let network = &policy.network;
    // As it was typed, where that is what a rule would say.
    let endpoint = Endpoint::parse_allow(target).unwrap_or_else(|_| Endpoint::of(&host, port));
    // Who chose `none` gets no host by naming one.
    let chosen = if network.mode.origin.layer == Layer::BuiltIn { "" } else { "--network egress " };
    let allow = format!("to allow it: {chosen}--allow-host {endpoint}");
    let unfiltered = |origin| format!("{shown} can be reached: the network is the host's own, unfiltered [{origin}]");
    let lines = match (policy.isolation.value, network.mode.value) {
        (Isolation::None, _) => vec![unfiltered(&policy.isolation.origin)],
        (Isolation::Process, _) => vec![
            format!(
                "{shown} cannot be reached: isolation `process` has no sockets for it [{}]",
                policy.isolation.origin
            ),
            format!("to allow it: --isolation full --allow-host {endpoint}"),
        ],
        (Isolation::Full, NetworkMode::Host) => {
            vec![unfiltered(&network.mode.origin), "to forbid it: leave out the mode `host`".to_owned()]
        }
        (Isolation::Full, NetworkMode::None) => vec![
            format!(
                "{shown} cannot be reached: there is no network inside but an own loopback [{}]",
                network.mode.origin
            ),
            allow,
        ],
        (Isolation::Full, NetworkMode::Egress) => by_rules(policy, &host, port),
    };
    Ok(lines)
}

fn by_rules(policy: &Policy, host: &Host, port: u16) -> Vec<String> {
    let shown = with_port(host, port);
    let rules = Rules::new(&policy.network, own_addresses());
    let unknown = &policy.unknown.verdict;
    let verdict = if policy.mode.value == Mode::Static { OnUnknown::Deny } else { unknown.value };
    let Denial { remedy, .. } = rules.unlisted(host, port);
    match rules.host(host, port) {
        Verdict::Allowed(decided) => {
            let mut lines = vec![format!("{shown} can be reached: {} [{}]", decided.rule, decided.origin)];
            if rules.inspects(host, port) {
                lines.push("only for the methods and paths that its rules list".to_owned());
            }
            if host.name().is_some() {
                lines.push(not_public(&network_pairs(policy, host, port)));
            }
            lines.push(format!("to forbid it: --deny-host {}", Endpoint::of(host, port)));
            lines
        }
        Verdict::Denied(denial) => refused(&shown, &denial),
        Verdict::Unknown => match verdict {
            OnUnknown::Deny => refused(&shown, &rules.unlisted(host, port)),
            OnUnknown::Ask => vec![
                format!("{shown}: no rule is about it: {} [{}]", would_be_asked(unknown), unknown.origin),
                format!("to allow it: {remedy}"),
            ],
            OnUnknown::AllowAndLog => vec![
                format!("{shown} can be reached and is recorded: no rule is about it [{}]", unknown.origin),
                format!("to forbid it: --deny-host {}", Endpoint::of(host, port)),
            ],
        },
    }
}

/// The addresses that rules list for this name.
fn network_pairs(policy: &Policy, host: &Host, port: u16) -> Vec<String> {
    let about = policy.network.allow.iter().map(|rule| &rule.endpoint).filter(|endpoint| endpoint.allows(host, port));
    about.flat_map(|endpoint| &endpoint.at).map(ToString::to_string).collect()
}

fn not_public(pairs: &[String]) -> String {
    let others = "where the name leads to another address that is not public";
    match pairs {
        [] => "where the name leads to an address that is not public, the pair must be listed, too: HOST:PORT@ADDRESS"
            .to_owned(),
        pairs => format!("at {} too; {others}, it is refused or asked about", pairs.join(" and ")),
    }
}

fn refused(shown: &str, denial: &Denial) -> Vec<String> {
    let origin = denial.origin.as_ref().map_or_else(String::new, |origin| format!(": {origin}"));
    vec![
        format!("{shown} cannot be reached: {} [{}{origin}]", denial.why, denial.rule),
        format!("to allow it: {}", denial.remedy),
    ]
}

/// What a session did about a host, on every port unless one is named.
pub(super) fn in_session(
    target: &str,
    (host, port): (Host, u16),
    session: &str,
    state: &Path,
) -> Result<Vec<String>, LogError> {
    let (host, port) = (host.to_string(), Some(port).filter(|port| target.ends_with(&format!(":{port}"))));
    let found = log::hosts(state, session)?;
    let about =
        found.iter().filter(|one| one.host == host && (one.port.is_none() || port.is_none() || one.port == port));
    let mut lines: Vec<String> = about
        .map(|one| {
            let place = one.port.map_or_else(|| format!("the name {host}"), |port| format!("{host}:{port}"));
            let why = match (&one.rule, &one.origin) {
                (Some(rule), Some(origin)) => format!(" [{origin}: {rule}]"),
                (Some(only), None) | (None, Some(only)) => format!(" [{only}]"),
                (None, None) => String::new(),
            };
            let bytes =
                if one.up + one.down > 0 { format!(", {} bytes up, {} down", one.up, one.down) } else { String::new() };
            format!("{} {place}, {} times{bytes}{why}", one.outcome, one.count)
        })
        .collect();
    if lines.is_empty() {
        lines.push(format!("session {session} never asked for {host}"));
    }
    Ok(lines)
}
