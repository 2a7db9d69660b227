//! What the egress process and its supervisor say to each other, one JSON object per message on a socket pair.
//! Owns the words; `supervisor_link` carries them here, the supervisor's side is `supervisor`'s.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// From the egress process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum Said {
    /// No rule is about this place; the connection to it waits.
    Ask {
        id: u64,
        host: String,
        port: u16,
        client: Option<SocketAddr>,
    },
    /// A program wants a signature; `process` is its number as seen from outside.
    Sign {
        id: u64,
        subject: String,
        process: Option<u32>,
    },
    /// What became of it.
    Signed {
        subject: String,
        verdict: Outcome,
    },
    /// The connection that asked is gone.
    Withdraw {
        id: u64,
    },
    /// First of all, where requests are read in TLS: the certificate of the session's authority, in DER.
    Authority {
        certificate: Vec<u8>,
    },
    Connections(Tallied),
    Queries {
        name: String,
        kind: String,
        verdict: Outcome,
        count: u64,
    },
    /// Something is weaker than it should be, in words for a person.
    Warn {
        text: String,
    },
}

/// Connections to one place that were treated alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallied {
    pub host: String,
    pub port: u16,
    pub address: Option<IpAddr>,
    pub verdict: Outcome,
    /// The rule that decided and where it stands, or why it failed.
    pub rule: String,
    pub origin: String,
    /// The smallest change that would allow what was denied.
    pub remedy: String,
    pub connections: u64,
    pub up: u64,
    pub down: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Allowed,
    Denied,
    /// Allowed, and not reached.
    Failed,
    /// Nothing left for it: the operator is asked once it is connected to.
    Held,
}

/// To the egress process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "kebab-case")]
pub enum Told {
    /// The answer to a question. `keep` is the place that it stays valid for, as policy writes one.
    Answer { id: u64, allowed: bool, keep: Option<String>, origin: String },
}
