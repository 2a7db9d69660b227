//! The lists of the table `network` of policy files. Owns their entries and what they stand for; what a value may be is
//! `network_part`'s, how hosts are written `endpoint`'s. Called by `file`; the entries of hosts by `requirements`, too.

use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;

use crate::format::spanned::At;
use crate::format::tables::NetworkTable;
use crate::format::values::{CredentialTable, HostEntry, HostTable, PathEntry};
use crate::language::endpoint::Endpoint;
use crate::language::host::Host;
use crate::language::path::PathExpr;
use crate::types::error::PolicyError;
use crate::types::network::{Credential, Publish, SecretSource, SocketGrant};
use crate::types::network_part::{DEFAULT_CREDENTIAL_PORT, DEFAULT_HEADER, HostRule, NetworkPart};
use crate::types::origin::{Layer, Origin};

impl NetworkTable {
    /// The entries of its lists, in the order of the format.
    pub(crate) fn parts(
        self,
        layer: Layer,
        origin: impl Fn(usize) -> Origin,
    ) -> Result<Vec<At<NetworkPart>>, PolicyError> {
        let mut found = Vec::new();
        let mut add = |offset, part| found.push(At { value: part, offset });
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
        for At { value, offset } in self.publish {
            let publish = Publish::parse(&value)
                .ok_or_else(|| bad("network.publish", &value, "ports, as in `8080:80` or `8080`", origin(offset)))?;
            add(offset, NetworkPart::Publish(publish));
        }
        for At { value, offset } in self.host_ports {
            add(offset, NetworkPart::HostPort(value));
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
        if layer.is_untrusted()
            && let Some(At { value: part, offset }) = found.iter().find(|at| at.value.is_for_owners())
        {
            let setting = format!("network.{}", part.key());
            return Err(PolicyError::NotForProjects { setting, origin: origin(*offset) });
        }
        Ok(found)
    }
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
        Ok(Credential { host, port, variable: self.variable, header, source, optional: self.optional })
    }
}
