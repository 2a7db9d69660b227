//! `COFFERDAM_*` variables as a policy layer. Owns their names and notations, and refuses names it does not know, so
//! that a misspelt restriction is no silence; reads no environment itself. Called by `layers`.

use crate::endpoint::{Endpoint, EndpointError};
use crate::error::{PolicyError, did_you_mean};
use crate::limit::Limit;
use crate::network::AgentUse;
use crate::network_part::{HostRule, NetworkPart};
use crate::origin::{Origin, Ruled};
use crate::overrides::file;
use crate::path::PathExpr;
use crate::quantity::{COUNT, CPUS, SIZE, TIME, parse_count, parse_cpus, parse_size, parse_time};
use crate::setting::Setting;
use crate::types::{Access, Isolation, Mode, NetworkMode, OnUnknown};
use crate::unbuilt;

const PREFIX: &str = "COFFERDAM_";

/// Set by the sandbox for the command inside; no policy.
const MARKERS: &[&str] = &["COFFERDAM_SESSION"];

const KNOWN: &[&str] = &[
    "COFFERDAM_ALLOW_HOST",
    "COFFERDAM_BLACKLIST",
    "COFFERDAM_CPUS",
    "COFFERDAM_DEBUG",
    "COFFERDAM_DENY_HOST",
    "COFFERDAM_ISOLATION",
    "COFFERDAM_MEMORY",
    "COFFERDAM_MODE",
    "COFFERDAM_NETWORK",
    "COFFERDAM_ON_UNKNOWN",
    "COFFERDAM_OUTPUT",
    "COFFERDAM_OVERLAY",
    "COFFERDAM_PRESET",
    "COFFERDAM_PROCESSES",
    "COFFERDAM_RO",
    "COFFERDAM_RW",
    "COFFERDAM_SSH_AGENT",
    "COFFERDAM_TIMEOUT",
];

/// The settings of the environment. Variables of other names are not looked at.
pub(crate) fn settings(environment: &[(String, String)]) -> Result<Vec<Ruled<Setting>>, PolicyError> {
    let ours = environment.iter().filter(|(name, _)| name.starts_with(PREFIX) && !MARKERS.contains(&name.as_str()));
    let mut settings = Vec::new();
    for (name, value) in ours {
        let origin = Origin::variable(name.clone());
        unbuilt::check_name(name, &origin)?;
        for setting in of_variable(name, value, &origin)? {
            settings.push(Ruled::new(setting, origin.clone()));
        }
    }
    Ok(settings)
}

fn of_variable(name: &str, value: &str, origin: &Origin) -> Result<Vec<Setting>, PolicyError> {
    let bad = |expected: String| PolicyError::Value {
        setting: name.to_owned(),
        value: value.to_owned(),
        expected,
        origin: origin.clone(),
    };
    let one_of = |names: &[&str]| bad(format!("one of {}", names.join(", ")));
    let one = |setting| Ok(vec![setting]);
    let limit =
        |limit: Option<Limit>, expected: &str| one(Setting::Limit(limit.ok_or_else(|| bad(expected.to_owned()))?));
    match name {
        "COFFERDAM_PRESET" => Ok(parts(value).map(|preset| Setting::Preset(preset.to_owned())).collect()),
        "COFFERDAM_ISOLATION" => {
            one(Setting::Isolation(Isolation::from_name(value).ok_or_else(|| one_of(Isolation::NAMES))?))
        }
        "COFFERDAM_MODE" => one(Setting::Mode(Mode::from_name(value).ok_or_else(|| one_of(Mode::NAMES))?)),
        "COFFERDAM_ON_UNKNOWN" => {
            one(Setting::UnknownVerdict(OnUnknown::from_name(value).ok_or_else(|| one_of(OnUnknown::NAMES))?))
        }
        "COFFERDAM_NETWORK" => {
            one(Setting::Network(NetworkMode::from_name(value).ok_or_else(|| one_of(NetworkMode::NAMES))?))
        }
        "COFFERDAM_ALLOW_HOST" => {
            hosts("COFFERDAM_ALLOW_HOST", value, Endpoint::parse_allow, NetworkPart::Allow, origin)
        }
        "COFFERDAM_DENY_HOST" => hosts("COFFERDAM_DENY_HOST", value, Endpoint::parse, NetworkPart::Deny, origin),
        "COFFERDAM_SSH_AGENT" => {
            let agent = AgentUse::from_name(value).ok_or_else(|| one_of(AgentUse::NAMES))?;
            one(Setting::NetworkPart(NetworkPart::SshAgent(agent)))
        }
        "COFFERDAM_TIMEOUT" => limit(parse_time(value).map(Limit::Timeout), TIME),
        "COFFERDAM_MEMORY" => limit(parse_size(value).map(Limit::Memory), SIZE),
        "COFFERDAM_CPUS" => limit(parse_cpus(value).map(Limit::CpuMillis), CPUS),
        "COFFERDAM_OUTPUT" => limit(parse_size(value).map(Limit::Output), SIZE),
        "COFFERDAM_PROCESSES" => {
            let count = parse_count(value).and_then(|count| u32::try_from(count).ok());
            one(Setting::MaxProcesses(count.ok_or_else(|| bad(COUNT.to_owned()))?))
        }
        "COFFERDAM_DEBUG" => match value {
            "1" | "true" => one(Setting::Debug(true)),
            "0" | "false" => one(Setting::Debug(false)),
            _ => Err(one_of(&["1", "true", "0", "false"])),
        },
        "COFFERDAM_RW" => paths("COFFERDAM_RW", Access::Write, value, origin),
        "COFFERDAM_RO" => paths("COFFERDAM_RO", Access::Read, value, origin),
        "COFFERDAM_OVERLAY" => paths("COFFERDAM_OVERLAY", Access::Overlay, value, origin),
        "COFFERDAM_BLACKLIST" => paths("COFFERDAM_BLACKLIST", Access::Deny, value, origin),
        _ => {
            let hint = did_you_mean(name, KNOWN.iter().copied());
            Err(PolicyError::UnknownVariable { name: name.to_owned(), hint })
        }
    }
}

fn paths(name: &'static str, access: Access, value: &str, origin: &Origin) -> Result<Vec<Setting>, PolicyError> {
    parts(value)
        .map(|text| {
            let origin = origin.clone();
            let path = PathExpr::parse(text).map_err(|cause| PolicyError::Path { setting: name, origin, cause })?;
            Ok(file(access, path))
        })
        .collect()
}

/// Hosts stand between commas: a colon belongs to a port. They imply no mode.
fn hosts(
    name: &'static str,
    value: &str,
    parse: fn(&str) -> Result<Endpoint, EndpointError>,
    part: fn(HostRule) -> NetworkPart,
    origin: &Origin,
) -> Result<Vec<Setting>, PolicyError> {
    let texts = value.split(',').map(str::trim).filter(|text| !text.is_empty());
    texts
        .map(|text| {
            let endpoint = parse(text);
            let endpoint =
                endpoint.map_err(|cause| PolicyError::Host { setting: name, origin: origin.clone(), cause })?;
            Ok(Setting::NetworkPart(part(HostRule::whole(endpoint))))
        })
        .collect()
}

/// The parts between `:`, where `${NAME:-default}` is one part.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let outside = move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ':' && depth == 0
    };
    value.split(outside).filter(|part| !part.is_empty())
}
