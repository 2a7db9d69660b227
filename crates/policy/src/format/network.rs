//! The table `network` of policy files. Owns its keys and the settings they stand for; what a value may be is
//! `network_part`'s, how hosts are written `endpoint`'s. Called by `file`; the entries of hosts by `requirements`, too.

use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::format::spanned::At;
use crate::format::values::PathEntry;
use crate::language::endpoint::Endpoint;
use crate::language::host::Host;
use crate::language::path::PathExpr;
use crate::language::quantity::{Size, Time};
use crate::types::error::PolicyError;
use crate::types::network::NetworkMode;
use crate::types::network::{AgentUse, Credential, Publish, SecretSource, SocketGrant};
use crate::types::network_part::{DEFAULT_CREDENTIAL_PORT, DEFAULT_HEADER, HostRule, NetworkPart};
use crate::types::origin::{Layer, Origin};
use crate::types::setting::Setting;

/// What a session can reach. What is denied wins over what is allowed.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NetworkTable {
    mode: Option<At<NetworkMode>>,
    /// Hosts that can be reached in mode `egress`: `x.org`, `*.x.org`, `**.x.org`, `10.1.2.3:5432`, `10.0.0.0/8:*`.
    allow: Vec<At<HostEntry>>,
    /// Hosts that cannot be reached, whatever is allowed. Without a port: on every port.
    deny: Vec<At<HostEntry>>,
    /// Where names are looked up, as `address:port`. Not from a project.
    resolvers: Vec<At<String>>,
    /// Most connections open at once.
    max_connections: Option<At<u32>>,
    /// Most lookups of names in a second.
    queries_per_second: Option<At<u32>>,
    /// Most bytes sent and received, together.
    bytes: Option<At<Size>>,
    /// A connection on which nothing moves is closed after this time.
    idle_timeout: Option<At<Time>>,
    /// A request that is not complete by then is refused.
    header_timeout: Option<At<Time>>,
    /// Ports of the session that can be reached from this host: `"8080:80"`, or `"8080"` on both sides.
    publish: Vec<At<String>>,
    /// Ports of this host's loopback that the session can reach.
    host_ports: Vec<At<u16>>,
    /// Whether keys of the ssh-agent sign for the session.
    ssh_agent: Option<At<AgentUse>>,
    /// Sockets of this host that the session can connect to, by their paths.
    sockets: Vec<At<PathEntry>>,
    /// Secrets that are put into requests outside. Not from a project.
    credentials: Vec<At<CredentialTable>>,
}

/// `"host"` or `{ host = "...", methods = [...], paths = [...], reason = "..." }`.
#[derive(Debug)]
pub(crate) struct HostEntry(pub(crate) HostTable);

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct HostTable {
    pub(crate) host: String,
    /// Methods of HTTP; all where absent.
    #[serde(default)]
    pub(crate) methods: Vec<String>,
    /// Paths of HTTP: `/a/*` is one segment, `/a/**` everything below `/a/`. All where absent.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default)]
    pub(crate) reason: String,
}

/// A secret for one host. Exactly one of `env`, `file` and `command` says where it comes from.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct CredentialTable {
    /// The host's own name, without wildcard.
    host: String,
    /// 443 where absent.
    port: Option<u16>,
    /// The variable that holds a placeholder inside.
    variable: String,
    /// The header in which the placeholder is replaced; `authorization` where absent.
    header: Option<String>,
    /// A variable of yours that holds the secret.
    env: Option<String>,
    /// A file whose first line is the secret.
    file: Option<String>,
    /// A program that prints the secret, and its arguments.
    command: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for HostEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = HostEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host, or a table with `host`")
            }

            fn visit_str<E: Error>(self, host: &str) -> Result<HostEntry, E> {
                let (methods, paths) = (Vec::new(), Vec::new());
                Ok(HostEntry(HostTable { host: host.to_owned(), methods, paths, reason: String::new() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HostEntry, A::Error> {
                HostTable::deserialize(MapAccessDeserializer::new(map)).map(HostEntry)
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for HostEntry {
    fn schema_name() -> Cow<'static, str> {
        "HostEntry".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let table = generator.subschema_for::<HostTable>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, table] })
    }
}

impl NetworkTable {
    /// What is set, in the order of the format.
    pub(crate) fn settings(
        self,
        layer: Layer,
        origin: impl Fn(usize) -> Origin,
    ) -> Result<Vec<At<Setting>>, PolicyError> {
        let mut found = Vec::new();
        if let Some(At { value, offset }) = self.mode {
            found.push(At { value: Setting::Network(value), offset });
        }
        let mut add = |offset, part| found.push(At { value: Setting::NetworkPart(part), offset });
        for At { value, offset } in self.allow {
            add(offset, NetworkPart::Allow(value.allow("network.allow", || origin(offset))?));
        }
        for At { value, offset } in self.deny {
            add(offset, NetworkPart::Deny(value.deny("network.deny", || origin(offset))?));
        }
        for At { value, offset } in self.resolvers {
            let address = resolver(&value).ok_or_else(|| {
                bad("network.resolvers", &value, "an address, as in `127.0.0.1:5353`", origin(offset))
            })?;
            add(offset, NetworkPart::Resolver(address));
        }
        let numbers = [
            at(self.max_connections, NetworkPart::MaxConnections),
            at(self.queries_per_second, NetworkPart::QueriesPerSecond),
            at(self.bytes, |size| NetworkPart::Bytes(size.0)),
            at(self.idle_timeout, |time| NetworkPart::IdleTimeout(time.0)),
            at(self.header_timeout, |time| NetworkPart::HeaderTimeout(time.0)),
        ];
        for At { value, offset } in numbers.into_iter().flatten() {
            add(offset, value);
        }
        for At { value, offset } in self.publish {
            let publish = Publish::parse(&value)
                .ok_or_else(|| bad("network.publish", &value, "ports, as in `8080:80` or `8080`", origin(offset)))?;
            add(offset, NetworkPart::Publish(publish));
        }
        for At { value, offset } in self.host_ports {
            add(offset, NetworkPart::HostPort(value));
        }
        if let Some(At { value, offset }) = self.ssh_agent {
            add(offset, NetworkPart::SshAgent(value));
        }
        for At { value, offset } in self.sockets {
            let PathEntry { path, optional, reason } = value;
            let path = PathExpr::parse(&path).map_err(|cause| PolicyError::Path {
                setting: "network.sockets",
                origin: origin(offset),
                cause,
            })?;
            add(offset, NetworkPart::Socket(SocketGrant { path, optional, reason: Cow::Owned(reason) }));
        }
        for At { value, offset } in self.credentials {
            add(offset, NetworkPart::Credential(value.credential(|| origin(offset))?));
        }
        let owners = |at: &&At<Setting>| matches!(&at.value, Setting::NetworkPart(part) if part.is_for_owners());
        if layer.is_untrusted()
            && let Some(At { value: Setting::NetworkPart(part), offset }) = found.iter().find(owners)
        {
            let setting = format!("network.{}", part.key());
            return Err(PolicyError::NotForProjects { setting, origin: origin(*offset) });
        }
        Ok(found)
    }
}

fn at<T>(value: Option<At<T>>, part: impl FnOnce(T) -> NetworkPart) -> Option<At<NetworkPart>> {
    value.map(|At { value, offset }| At { value: part(value), offset })
}

fn bad(setting: &str, value: &str, expected: &str, origin: Origin) -> PolicyError {
    let (setting, value, expected) = (setting.to_owned(), value.to_owned(), expected.to_owned());
    PolicyError::Value { setting, value, expected, origin }
}

/// An address with or without port; 53 is the DNS.
fn resolver(text: &str) -> Option<SocketAddr> {
    let address = text.parse::<SocketAddr>().ok();
    address.or_else(|| text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 53)))
}

impl HostEntry {
    pub(crate) fn allow(self, setting: &'static str, origin: impl Fn() -> Origin) -> Result<HostRule, PolicyError> {
        let endpoint = Endpoint::parse_allow(&self.0.host);
        let endpoint = endpoint.map_err(|cause| PolicyError::Host { setting, origin: origin(), cause })?;
        Ok(self.rule(endpoint))
    }

    pub(crate) fn deny(self, setting: &'static str, origin: impl Fn() -> Origin) -> Result<HostRule, PolicyError> {
        let endpoint = Endpoint::parse(&self.0.host);
        let endpoint = endpoint.map_err(|cause| PolicyError::Host { setting, origin: origin(), cause })?;
        Ok(self.rule(endpoint))
    }

    fn rule(self, endpoint: Endpoint) -> HostRule {
        let HostTable { methods, paths, reason, .. } = self.0;
        HostRule { endpoint, methods, paths, reason: Cow::Owned(reason) }
    }
}

impl CredentialTable {
    fn credential(self, origin: impl Fn() -> Origin) -> Result<Credential, PolicyError> {
        const SETTING: &str = "network.credentials";
        let Ok(Host::Name(host)) = Host::parse(&self.host) else {
            return Err(bad(SETTING, &self.host, "a `host` that is a name without wildcard and port", origin()));
        };
        let source = match (self.env, self.file, self.command) {
            (Some(name), None, None) => SecretSource::Environment(name),
            (None, Some(file), None) => {
                SecretSource::File(PathExpr::parse(&file).map_err(|cause| PolicyError::Path {
                    setting: SETTING,
                    origin: origin(),
                    cause,
                })?)
            }
            (None, None, Some(argv)) => SecretSource::Command(argv),
            _ => return Err(bad(SETTING, &host, "exactly one of `env`, `file` and `command`", origin())),
        };
        let header = self.header.map_or_else(|| DEFAULT_HEADER.to_owned(), |header| header.to_ascii_lowercase());
        let port = self.port.unwrap_or(DEFAULT_CREDENTIAL_PORT);
        Ok(Credential { host, port, variable: self.variable, header, source })
    }
}
