//! What the egress process and its supervisor say to each other, one JSON object per message on a socket pair.
//! Owns the words; `egress::session::supervisor_link` and `supervisor::network::egress_process` carry them.

use core::net::{IpAddr, SocketAddr};

use cofferdam_wire::{NetworkOutcome, Reached};
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
        /// Where not empty, the name may be reached, and leads to these addresses, which no rule lists for it.
        at: Vec<IpAddr>,
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
        verdict: NetworkOutcome,
    },
    /// The connection that asked is gone.
    Withdraw {
        id: u64,
    },
    /// Instead of all others, by the process that was to become it: the program could not be executed.
    NotExecuted {
        errno: i32,
    },
    /// Before anything else: the program runs, cannot be traced, and waits for its start.
    Ready {
        version: String,
    },
    /// Where requests are read in TLS, before any other word but that: the certificates that programs inside are to trust, the session's own
    /// authority included. Comes with two files, for programs that read PEM and for Java.
    Authority,
    /// To one place, and treated alike.
    Connections {
        address: Option<IpAddr>,
        reached: Reached,
    },
    Queries {
        name: String,
        kind: String,
        verdict: NetworkOutcome,
        count: u64,
    },
    /// Something is weaker than it should be, in words for a person.
    Warn {
        text: String,
    },
}

/// To the egress process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "kebab-case")]
pub enum Told {
    /// The answer to a question. `keep` are the places that it stays valid for, as policy writes them.
    Answer { id: u64, allowed: bool, keep: Vec<String>, origin: String },
}
