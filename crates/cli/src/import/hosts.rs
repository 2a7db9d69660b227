//! What other formats say about the network, as rules about hosts. Owns how their patterns, ports and modes become ours; a
//! pattern that ours cannot say becomes a remark, never a wider rule. Called by the formats.

use cofferdam_policy::{Endpoint, HostRule, NetworkMode, NetworkPart, Scalar};
use serde_json::Value;

use super::configuration::{Import, small};

const EVERYTHING: &str = "names every host: list the ones that are needed, or set network.mode = \"host\" yourself";

/// The keys of a format about the network.
#[derive(Debug, Default)]
pub(super) struct Keys<'a> {
    /// Whether there is a network at all: true or false.
    pub(super) enabled: Option<&'a str>,
    pub(super) allow: &'a [&'a str],
    /// Ports of whatever is allowed.
    pub(super) ports: Option<&'a str>,
    pub(super) deny: &'a [&'a str],
    pub(super) connections: Option<&'a str>,
}

impl Import {
    pub(super) fn network(&mut self, keys: &Keys<'_>) {
        let enabled = keys.enabled.and_then(|key| Some((key, self.take(key)?)));
        let ports = keys.ports.and_then(|key| Some((key, self.take(key)?)));
        let numbers: Vec<u16> = ports.iter().flat_map(|(_, list)| numbers(list)).collect();
        let before = self.draft.settings.len();
        for key in keys.allow {
            self.each(key, |import, host| import.allowed(key, host, &numbers));
        }
        let allows = self.draft.settings.len() > before;
        match &enabled {
            Some((_, Value::Bool(false))) => self.add(Scalar::Network(NetworkMode::None)),
            Some((_, Value::Bool(true))) if allows => {}
            Some((key, value @ Value::Bool(true))) => {
                self.remark(key, value, "a session reaches the hosts of network.allow, and none is listed");
            }
            Some((key, value)) => self.remark(key, value, "is neither true nor false"),
            None => {}
        }
        let off = matches!(enabled, Some((_, Value::Bool(false))));
        if allows && !off {
            self.add(Scalar::Network(NetworkMode::Egress));
        }
        if let Some((key, list)) = ports.filter(|(_, list)| !allows && !is_empty(list)) {
            self.remark(key, &list, "ports stand behind the hosts of network.allow, and none is listed");
        }
        for key in keys.deny {
            self.each(key, |import, host| import.denied(key, host));
        }
        let most = keys.connections.and_then(|key| Some((key, self.take(key)?)));
        match most.as_ref().map(|(key, value)| (*key, value, value.as_u64().and_then(small))) {
            Some((_, _, Some(0))) | None => {}
            Some((_, _, Some(count))) => self.add(Scalar::MaxConnections(count)),
            Some((key, value, None)) => self.remark(key, value, "is no number of connections"),
        }
    }

    /// One that is allowed, on these ports, else on those it names, else on the web's.
    pub(super) fn allowed(&mut self, key: &str, text: &str, ports: &[u16]) {
        let value = Value::from(text);
        let host = plain(text);
        if matches!(host, "*" | "**" | "0.0.0.0/0" | "::/0") {
            return self.remark(key, &value, EVERYTHING);
        }
        let web = ports.is_empty() || ports == [80, 443] || ports == [443, 80];
        let written = |host: &str| Endpoint::parse_allow(host).map(|endpoint| (host.to_owned(), endpoint));
        let endpoints: Result<Vec<(String, Endpoint)>, _> = if web || has_port(host) {
            written(host).map(|one| vec![one])
        } else {
            ports.iter().map(|port| written(&format!("{host}:{port}"))).collect()
        };
        match endpoints {
            Ok(endpoints) => {
                for (_, endpoint) in endpoints {
                    self.add(NetworkPart::Allow(HostRule::whole(endpoint)));
                }
            }
            Err(error) => self.remark(key, &value, &error.to_string()),
        }
    }

    pub(super) fn denied(&mut self, key: &str, text: &str) {
        match Endpoint::parse(plain(text)) {
            Ok(endpoint) => self.add(NetworkPart::Deny(HostRule::whole(endpoint))),
            Err(error) => self.remark(key, &Value::from(text), &error.to_string()),
        }
    }
}

/// Without a scheme and a path.
fn plain(text: &str) -> &str {
    let text = text.trim();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest.split('/').next().unwrap_or(rest));
    rest.trim_end_matches('.')
}

fn has_port(host: &str) -> bool {
    Endpoint::parse(host).is_ok_and(|endpoint| endpoint.ports != cofferdam_policy::Ports::Web)
}

fn numbers(list: &Value) -> Vec<u16> {
    let one = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    match list {
        Value::Array(list) => list.iter().filter_map(one).collect(),
        value => one(value).into_iter().collect(),
    }
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_some_and(Vec::is_empty)
}
