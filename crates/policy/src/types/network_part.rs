//! One entry of a list about the network. Owns which lists there are, their notation and checks, and what each entry changes;
//! settings with one value are `scalar`'s, and which layer may say what is `layers`'. Part of `Setting`.

use core::net::SocketAddr;
use std::borrow::Cow;
use std::fmt;

use crate::language::endpoint::Endpoint;
use crate::language::path_entry::path_entry;
use crate::types::network::{Credential, Network, NetworkRule, Publish, SecretSource, SocketGrant};
use crate::types::origin::{Layer, Origin, Ruled};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkPart {
    Allow(HostRule),
    Deny(HostRule),
    Resolver(SocketAddr),
    Publish(Publish),
    HostPort(u16),
    Credential(Credential),
    Socket(SocketGrant),
}

/// What a rule about hosts says, wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    pub endpoint: Endpoint,
    pub methods: Vec<String>,
    pub paths: Vec<String>,
    pub reason: Cow<'static, str>,
}

impl HostRule {
    /// A rule about whole connections.
    pub fn whole(endpoint: Endpoint) -> Self {
        HostRule { endpoint, methods: Vec::new(), paths: Vec::new(), reason: Cow::Borrowed("") }
    }

    /// Whether it is about whole connections.
    pub(crate) fn is_whole(&self) -> bool {
        self.methods.is_empty() && self.paths.is_empty()
    }

    fn ruled(self, origin: Origin) -> NetworkRule {
        let HostRule { endpoint, methods, paths, reason } = self;
        NetworkRule { endpoint, methods, paths, reason, origin }
    }

    /// The entry of a list in a file.
    pub(crate) fn entry(&self, quote: fn(&str) -> String) -> String {
        let host = quote(&self.endpoint.to_string());
        if self.methods.is_empty() && self.paths.is_empty() && self.reason.is_empty() {
            return host;
        }
        let mut fields = vec![format!("host = {host}")];
        let list = |texts: &[String]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", ");
        if !self.methods.is_empty() {
            fields.push(format!("methods = [{}]", list(&self.methods)));
        }
        if !self.paths.is_empty() {
            fields.push(format!("paths = [{}]", list(&self.paths)));
        }
        if !self.reason.is_empty() {
            fields.push(format!("reason = {}", quote(&self.reason)));
        }
        format!("{{ {} }}", fields.join(", "))
    }
}

impl From<&NetworkRule> for HostRule {
    fn from(rule: &NetworkRule) -> Self {
        let NetworkRule { endpoint, methods, paths, reason, .. } = rule.clone();
        HostRule { endpoint, methods, paths, reason }
    }
}

fn credential_entry(credential: &Credential, quote: fn(&str) -> String) -> String {
    let Credential { host, port, variable, header, source, optional } = credential;
    let mut fields = vec![format!("host = {}", quote(host))];
    if *port != DEFAULT_CREDENTIAL_PORT {
        fields.push(format!("port = {port}"));
    }
    fields.push(format!("variable = {}", quote(variable)));
    if header != DEFAULT_HEADER {
        fields.push(format!("header = {}", quote(header)));
    }
    fields.push(match source {
        SecretSource::Environment(name) => format!("env = {}", quote(name)),
        SecretSource::File(path) => format!("file = {}", quote(path.as_str())),
        SecretSource::Command(argv) => {
            format!("command = [{}]", argv.iter().map(|word| quote(word)).collect::<Vec<_>>().join(", "))
        }
    });
    if *optional {
        fields.push("optional = true".to_owned());
    }
    format!("{{ {} }}", fields.join(", "))
}

pub(crate) const DEFAULT_CREDENTIAL_PORT: u16 = 443;
pub(crate) const DEFAULT_HEADER: &str = "authorization";

impl NetworkPart {
    /// Its name in the table `network`.
    pub fn key(&self) -> &'static str {
        match self {
            NetworkPart::Allow(_) => "allow",
            NetworkPart::Deny(_) => "deny",
            NetworkPart::Resolver(_) => "resolvers",
            NetworkPart::Publish(_) => "publish",
            NetworkPart::HostPort(_) => "host_ports",
            NetworkPart::Credential(_) => "credentials",
            NetworkPart::Socket(_) => "sockets",
        }
    }

    /// The entry as a file has it.
    pub(crate) fn value(&self, quote: fn(&str) -> String) -> String {
        match self {
            NetworkPart::Allow(rule) | NetworkPart::Deny(rule) => rule.entry(quote),
            NetworkPart::Resolver(address) => quote(&address.to_string()),
            NetworkPart::Publish(publish) => quote(&publish.to_string()),
            NetworkPart::HostPort(port) => port.to_string(),
            NetworkPart::Credential(credential) => credential_entry(credential, quote),
            NetworkPart::Socket(SocketGrant { path, optional, reason }) => {
                path_entry(path.as_str(), *optional, reason, quote)
            }
        }
    }

    /// Whether a project's own files never say this, approved or not: who answers names, and who holds secrets.
    pub(crate) fn is_for_owners(&self) -> bool {
        matches!(self, NetworkPart::Resolver(_) | NetworkPart::Credential(_))
    }

    /// What a usable value would be, where this is none.
    pub(crate) fn mistake(&self) -> Option<&'static str> {
        match self {
            NetworkPart::Allow(rule) | NetworkPart::Deny(rule) => {
                if !rule.endpoint.at.is_empty() && !rule.is_whole() {
                    Some("no methods and paths for a name at an address: it is about whole connections")
                } else if !rule.methods.iter().all(|method| is_method(method)) {
                    Some("methods in upper case, as in `GET`")
                } else if !rule.paths.iter().all(|path| is_path_glob(path)) {
                    Some("paths that begin with `/`, without `..`, `%` and `?`; `**` is a whole segment")
                } else {
                    None
                }
            }
            NetworkPart::Resolver(address) if address.port() == 0 => Some("an address with a port"),
            NetworkPart::HostPort(0) => Some("a port between 1 and 65535"),
            NetworkPart::Credential(credential) => credential_mistake(credential),
            NetworkPart::Socket(socket) if !socket.path.is_one_path() => Some("a path without `*`"),
            _ => None,
        }
    }
}

impl fmt::Display for NetworkPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network.{} = {}", self.key(), self.value(|text| format!("{text:?}")))
    }
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

fn is_path_glob(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#' | b'\\' | b';');
    let Some(rest) = text.strip_prefix('/').filter(|rest| rest.bytes().all(plain)) else { return false };
    let last = rest.split('/').count() - 1;
    rest.split('/').enumerate().all(|(index, segment)| {
        let named = !segment.is_empty() || index == last;
        named && segment != "." && segment != ".." && (segment == "**" || !segment.contains("**"))
    })
}

fn credential_mistake(credential: &Credential) -> Option<&'static str> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0', '*']);
    let is_token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if credential.port == 0 {
        return Some("a port between 1 and 65535");
    }
    if !is_name(&credential.variable) {
        return Some("a `variable` with the name of a variable");
    }
    if credential.header.is_empty() || !credential.header.bytes().all(is_token) {
        return Some("a `header` with the name of a header");
    }
    match &credential.source {
        SecretSource::Environment(name) if !is_name(name) => Some("an `env` with the name of a variable"),
        SecretSource::File(path) if !path.is_one_path() => Some("a `file` without `*`"),
        SecretSource::Command(argv) if argv.first().is_none_or(String::is_empty) => {
            Some("a `command` with the name of a program")
        }
        SecretSource::File(_) | SecretSource::Command(_) if credential.optional => {
            Some("`optional` beside `env` only: a file or a program that is named has to be there")
        }
        _ => None,
    }
}

impl Network {
    /// Lists add up.
    pub(crate) fn apply(&mut self, part: NetworkPart, origin: Origin) {
        match part {
            NetworkPart::Allow(rule) => self.allow.push(rule.ruled(origin)),
            NetworkPart::Deny(rule) => self.deny.push(rule.ruled(origin)),
            NetworkPart::Resolver(address) => self.resolvers.push(Ruled::new(address, origin)),
            NetworkPart::Publish(publish) => {
                self.publish.retain(|other| other.value.host_port != publish.host_port);
                self.publish.push(Ruled::new(publish, origin));
            }
            NetworkPart::HostPort(port) => {
                if !self.host_ports.iter().any(|other| other.value == port) {
                    self.host_ports.push(Ruled::new(port, origin));
                }
            }
            NetworkPart::Credential(credential) => {
                self.credentials.retain(|other| other.value.variable != credential.variable);
                self.credentials.push(Ruled::new(credential, origin));
            }
            NetworkPart::Socket(socket) => {
                // What the organisation names stays its word: some sockets are given by it alone.
                let is_same = |other: &Ruled<SocketGrant>| other.value.path.is_same_place(&socket.path);
                if self.sockets.iter().any(|other| other.origin.layer == Layer::Org && is_same(other)) {
                    return;
                }
                self.sockets.retain(|other| !is_same(other));
                self.sockets.push(Ruled::new(socket, origin));
            }
        }
    }

    /// Every entry, in the order of the format.
    pub(crate) fn parts(&self) -> Vec<Ruled<NetworkPart>> {
        let mut parts = Vec::new();
        let rules = |list: &[NetworkRule], part: fn(HostRule) -> NetworkPart| {
            list.iter().map(|rule| Ruled::new(part(rule.into()), rule.origin.clone())).collect::<Vec<_>>()
        };
        parts.extend(rules(&self.allow, NetworkPart::Allow));
        parts.extend(rules(&self.deny, NetworkPart::Deny));
        parts.extend(self.resolvers.iter().map(|one| one.map(NetworkPart::Resolver)));
        parts.extend(self.publish.iter().map(|one| one.map(NetworkPart::Publish)));
        parts.extend(self.host_ports.iter().map(|one| one.map(NetworkPart::HostPort)));
        parts.extend(self.credentials.iter().map(|one| one.map(NetworkPart::Credential)));
        parts.extend(self.sockets.iter().map(|one| one.map(NetworkPart::Socket)));
        parts
    }
}
