//! What a policy says about the network. Owns the types and their strictest defaults; notation of hosts is `endpoint`'s,
//! the verdict about a connection is the egress crate's. Part of `types::policy::Policy`.

use core::net::SocketAddr;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::language::endpoint::Endpoint;
use crate::language::path::PathExpr;
use crate::types::names::display_as;
use crate::types::origin::{Layer, Origin, Ruled};

/// Why there is a network though no layer chose one.
const ASKED_FIRST: &str = "no mode was chosen, so hosts are asked about";

/// One rule about hosts, in the list of what is allowed or in that of what is denied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    pub endpoint: Endpoint,
    /// Methods of HTTP, in upper case; where empty, the rule is about all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Paths of HTTP: `/a/*` is one segment, `/a/**` everything below `/a/`. Where empty, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    pub origin: Origin,
}

impl NetworkRule {
    /// A rule about whole connections.
    pub fn whole(endpoint: Endpoint, origin: Origin) -> Self {
        NetworkRule { endpoint, methods: Vec::new(), paths: Vec::new(), reason: Cow::Borrowed(""), origin }
    }

    /// Whether it is about whole connections, not about some requests in them.
    pub fn is_whole(&self) -> bool {
        self.methods.is_empty() && self.paths.is_empty()
    }
}

/// How far the network of a session reaches. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// An own loopback and nothing else.
    #[default]
    None,
    /// Named hosts through the supervisor.
    Egress,
    /// The host's network.
    Host,
}

display_as!(NetworkMode { None => "none", Egress => "egress", Host => "host" });
display_as!(AgentUse { Off => "off", Ask => "ask", Allow => "allow" });

/// The network of a session. The list of what is denied wins over the list of what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Network {
    pub mode: Ruled<NetworkMode>,
    pub allow: Vec<NetworkRule>,
    pub deny: Vec<NetworkRule>,
    /// Where not empty: the org's requirements allow only what these cover, answers at run time included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Ruled<Endpoint>>,
    /// Where names are looked up; where empty, the host's own resolvers.
    pub resolvers: Vec<Ruled<SocketAddr>>,
    /// Most connections open at once.
    pub max_connections: Ruled<u32>,
    /// Most lookups of names in a second.
    pub queries_per_second: Ruled<u32>,
    /// Most bytes sent and received, together.
    pub bytes: Option<Ruled<u64>>,
    /// A connection on which nothing moves is closed after this time.
    pub idle_timeout: Ruled<Duration>,
    /// A request that is not complete by then is refused.
    pub header_timeout: Ruled<Duration>,
    /// Ports of the session that can be reached from the host.
    pub publish: Vec<Ruled<Publish>>,
    /// Ports of the host's loopback that the session can reach.
    pub host_ports: Vec<Ruled<u16>>,
    /// Secrets that are put into requests outside, so that the session never holds them.
    pub credentials: Vec<Ruled<Credential>>,
    pub ssh_agent: Ruled<AgentUse>,
    /// Sockets of the host that the session can connect to. All others are covered.
    pub sockets: Vec<Ruled<SocketGrant>>,
}

impl Default for Network {
    /// The strictest: no network.
    fn default() -> Self {
        Network {
            mode: Ruled::default_of(NetworkMode::None),
            allow: Vec::new(),
            deny: Vec::new(),
            within: Vec::new(),
            resolvers: Vec::new(),
            max_connections: Ruled::default_of(4096),
            queries_per_second: Ruled::default_of(100),
            bytes: None,
            idle_timeout: Ruled::default_of(Duration::from_hours(1)),
            header_timeout: Ruled::default_of(Duration::from_secs(10)),
            publish: Vec::new(),
            host_ports: Vec::new(),
            credentials: Vec::new(),
            ssh_agent: Ruled::default_of(AgentUse::Off),
            sockets: Vec::new(),
        }
    }
}

impl Network {
    /// Whether there is no network because no layer said a word about it.
    pub fn is_unchosen(&self) -> bool {
        self.mode.origin.layer == Layer::BuiltIn && self.mode.value == NetworkMode::None
    }

    /// Where there is no network, none comes of what `origin` says.
    pub(crate) fn stay(&mut self, origin: &Origin) {
        if self.is_unchosen() {
            self.mode.origin = origin.clone();
        }
    }

    /// Who lists hosts wants them reached: a list without a mode is the mode `egress`.
    pub(crate) fn follow_the_list(&mut self) {
        if self.is_unchosen()
            && let Some(first) = self.allow.first()
        {
            self.mode = Ruled::new(NetworkMode::Egress, first.origin.clone());
        }
    }

    /// Where no layer chose a mode and unknown paths are asked about, hosts are, too: nothing is reached before an answer.
    pub fn ask_about_hosts(&mut self) {
        if self.is_unchosen() {
            let origin = Origin { layer: Layer::BuiltIn, source: ASKED_FIRST.into(), line: None };
            self.mode = Ruled::new(NetworkMode::Egress, origin);
        }
    }
}

/// A port of the host's loopback, and the port of the session that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Publish {
    pub host_port: u16,
    pub port: u16,
}

impl Publish {
    /// Reads `8080:80`, or `8080` for the same port on both sides.
    pub fn parse(text: &str) -> Option<Publish> {
        let (host_port, port) = text.split_once(':').unwrap_or((text, text));
        Some(Publish {
            host_port: crate::language::host::parse_port(host_port)?,
            port: crate::language::host::parse_port(port)?,
        })
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host_port == self.port {
            write!(f, "{}", self.port)
        } else {
            write!(f, "{}:{}", self.host_port, self.port)
        }
    }
}

impl Serialize for Publish {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A socket that a process of the host has bound to a name in the file system: the session finds it under the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct SocketGrant {
    pub path: PathExpr,
    /// Where there is none, that is no error.
    pub optional: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
}

/// A secret that is put into the requests to one host. The session holds a placeholder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Credential {
    /// The name itself, in canonical form.
    pub host: String,
    pub port: u16,
    /// The variable that holds the placeholder inside.
    pub variable: String,
    /// The header in which the placeholder is replaced, in lower case.
    pub header: String,
    pub source: SecretSource,
    /// Where the variable that it comes from is not set, there is none, and that is no error.
    pub optional: bool,
}

/// Where the secret comes from. It can never stand in a policy itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretSource {
    /// A variable of the caller.
    Environment(String),
    /// The first line of a file.
    File(PathExpr),
    /// The first line that a program prints.
    Command(Vec<String>),
}

/// Whether keys of the user's ssh-agent can sign for the session. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AgentUse {
    /// There is no agent inside.
    #[default]
    Off,
    /// Each signature is a question.
    Ask,
    /// Every key of the agent signs.
    Allow,
}
