//! What an egress process is started with. Owns the document and its version; the descriptors that go with it are sent beside
//! it, in the order that [`StartMessage::descriptors`] says. Written by `supervisor`, read by the program `sandbox-egress`,
//! which refuses a field that it does not know and every version but its own.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use cofferdam_policy::{AgentUse, Endpoint, Network, NetworkRule, OnUnknown, Origin, Ruled};
use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// Both programs are of one build, so this is no range: the release, and a number that changes with the documents and
/// messages of this crate between releases.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/3");

/// The program, as it lies beside `sandbox`.
pub const PROGRAM: &str = "sandbox-egress";

/// What the program says of itself when it is asked.
pub fn version_line() -> String {
    format!("{PROGRAM} {VERSION}")
}

/// The word that the descriptors of a start come with.
pub const START: &[u8] = b"start";

/// No start is longer, the authorities of the host included.
pub const LONGEST: usize = 16 << 20;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartMessage {
    pub version: String,
    pub network: NetworkStart,
    /// What happens to a place that no rule is about.
    pub unknown: Ruled<OnUnknown>,
    /// The user's ssh-agent, if programs inside may have it sign.
    pub agent: Option<AgentStart>,
    /// Ports of the session that can be reached from the host.
    pub published: Vec<PublishedPort>,
    /// Where some requests are read in TLS.
    pub terminates: Option<Terminates>,
}

impl StartMessage {
    /// How many descriptors come with it besides the document: where sockets come from, and where ports are published the way
    /// to the process that connects to them inside and the listener of each.
    pub fn descriptors(&self) -> usize {
        if self.published.is_empty() { 1 } else { 2 + self.published.len() }
    }
}

/// Of the network's policy what the egress process decides by; where secrets come from is not in it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkStart {
    pub allow: Vec<NetworkRule>,
    pub deny: Vec<NetworkRule>,
    pub within: Vec<Ruled<Endpoint>>,
    pub resolvers: Vec<Ruled<SocketAddr>>,
    pub max_connections: Ruled<u32>,
    pub queries_per_second: Ruled<u32>,
    pub bytes: Option<Ruled<u64>>,
    pub idle_timeout: Ruled<Duration>,
    pub header_timeout: Ruled<Duration>,
    pub host_ports: Vec<Ruled<u16>>,
}

impl NetworkStart {
    pub fn of(network: Network) -> NetworkStart {
        // Every field is named, so that a new one is not forgotten here.
        let Network {
            mode: _,
            allow,
            deny,
            within,
            resolvers,
            max_connections,
            queries_per_second,
            bytes,
            idle_timeout,
            header_timeout,
            publish: _,
            host_ports,
            credentials: _,
            ssh_agent: _,
            sockets: _,
        } = network;
        NetworkStart {
            allow,
            deny,
            within,
            resolvers,
            max_connections,
            queries_per_second,
            bytes,
            idle_timeout,
            header_timeout,
            host_ports,
        }
    }

    /// As the policy has it; what is not in here is as if it were not allowed.
    pub fn into_network(self) -> Network {
        let NetworkStart {
            allow,
            deny,
            within,
            resolvers,
            max_connections,
            queries_per_second,
            bytes,
            idle_timeout,
            header_timeout,
            host_ports,
        } = self;
        Network {
            allow,
            deny,
            within,
            resolvers,
            max_connections,
            queries_per_second,
            bytes,
            idle_timeout,
            header_timeout,
            host_ports,
            ..Network::default()
        }
    }
}

/// What relaying an ssh-agent needs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentStart {
    /// Of the agent, outside.
    pub socket: PathBuf,
    pub usage: AgentUse,
    /// Whether the operator can be asked.
    pub asks: bool,
}

/// A port of the session, and the rule that publishes it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPort {
    pub port: u16,
    pub origin: Origin,
}

/// What it takes to stand in the middle of TLS.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terminates {
    /// The authorities that this host believes, as one text in PEM.
    pub trusted: String,
    pub injections: Vec<Injection>,
}

/// One secret, and the only place that it goes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    pub host: String,
    pub port: u16,
    /// In lower case.
    pub header: String,
    pub placeholder: String,
    pub secret: Secret,
}

/// What a header can carry and no program inside may see: cleared when dropped, and silent about itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(BASE64.encode(&self.0)))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        // The error must not show what was read.
        let unreadable = |_| serde::de::Error::custom("a secret that is not in base64");
        BASE64.decode(text.as_bytes()).map(Secret::new).map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> StartMessage {
        let mut network = Network::default();
        for text in
            ["api.test:8443", "**.x.test", "*.y.test:*", "10.0.0.0/8", "[fd00::1]:22", "z.test:443@10.0.0.5+fd00::/8"]
        {
            let mut rule =
                NetworkRule::whole(Endpoint::parse(text).expect("an endpoint"), Origin::flag("--allow-host"));
            network.allow.push(rule.clone());
            rule.methods.push("GET".to_owned());
            rule.reason = "a test".into();
            network.deny.push(rule);
        }
        network.bytes = Some(Ruled::default_of(7));
        network.resolvers.push(Ruled::default_of("[::1]:53".parse().expect("a resolver")));
        let secret = Secret::new(vec![0xff, b'a', b'"']);
        let injection = Injection {
            host: "api.test".to_owned(),
            port: 443,
            header: "authorization".to_owned(),
            placeholder: "cofferdam-0".to_owned(),
            secret,
        };
        StartMessage {
            version: VERSION.to_owned(),
            network: NetworkStart::of(network),
            unknown: Ruled::default_of(OnUnknown::Ask),
            agent: Some(AgentStart { socket: "/run/agent".into(), usage: AgentUse::Ask, asks: true }),
            published: vec![PublishedPort { port: 80, origin: Origin::flag("--publish") }],
            terminates: Some(Terminates { trusted: "a\nb".to_owned(), injections: vec![injection] }),
        }
    }

    #[test]
    fn a_start_that_is_read_is_the_one_that_was_written() {
        let text = serde_json::to_string(&start()).expect("it can be written");
        assert_eq!(serde_json::from_str::<StartMessage>(&text).expect("it can be read"), start());
        assert_eq!(start().descriptors(), 3);
    }

    #[test]
    fn an_unknown_field_is_refused_wherever_it_stands() {
        let written = serde_json::to_value(start()).expect("it can be written");
        for place in
            ["", "/network", "/network/allow/0", "/network/allow/0/origin", "/unknown", "/agent", "/published/0"]
                .into_iter()
                .chain(["/terminates", "/terminates/injections/0"])
        {
            let mut changed = written.clone();
            changed.pointer_mut(place).expect("it is there")["later"] = true.into();
            let refused = serde_json::from_value::<StartMessage>(changed).expect_err(place);
            assert!(refused.to_string().contains("later"), "{place}: {refused}");
        }
    }

    #[test]
    fn a_secret_is_neither_in_what_debugging_prints_nor_in_errors() {
        let shown = format!("{:?}", start());
        assert!(shown.contains("Secret") && !shown.contains("255"), "{shown}");
        let error = serde_json::from_str::<Secret>("\"s3cr3t!\"").expect_err("no base64");
        assert!(!error.to_string().contains("s3cr"), "{error}");
    }
}
