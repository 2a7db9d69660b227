//! What is said on the network, as a row writes it down and the probe does it: one line each in a file of the project.
//! Owns that format and the messages that several rows use; who expects which outcome is the row's.

use std::net::SocketAddr;

/// Where programs inside find the proxy.
pub(crate) const PROXY: &str = "198.18.0.1:3128";
/// Outside any policy's list: what answers here is the sandbox, or the world's name server.
pub(crate) const RESOLVER: &str = "8.8.8.8:53";

/// How the probe speaks to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    Proxy,
    /// Through a relay of the program's own, to the proxy.
    Relay,
    Address(SocketAddr),
    /// Looked up first, as programs do.
    Name(String),
    /// A lookup, and nothing else.
    Lookup(String),
    LookupByStream(String),
}

/// One conversation: each part but the first waits for a word of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Talk {
    pub(crate) way: Way,
    pub(crate) parts: Vec<Vec<u8>>,
}

impl Talk {
    pub(crate) fn to_line(&self) -> String {
        let (kind, rest) = match &self.way {
            Way::Proxy => ("proxy", String::new()),
            Way::Relay => ("relay", String::new()),
            Way::Address(address) => ("address", address.to_string()),
            Way::Name(name) => ("name", name.clone()),
            Way::Lookup(name) => ("lookup", name.clone()),
            Way::LookupByStream(name) => ("stream", name.clone()),
        };
        let hex = |part: &Vec<u8>| part.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        format!("{kind}\t{rest}\t{}", self.parts.iter().map(hex).collect::<Vec<_>>().join(","))
    }

    pub(crate) fn parse(line: &str) -> Option<Talk> {
        let mut fields = line.split('\t');
        let (kind, rest, parts) = (fields.next()?, fields.next()?.to_owned(), fields.next()?);
        let way = match kind {
            "proxy" => Way::Proxy,
            "relay" => Way::Relay,
            "address" => Way::Address(rest.parse().ok()?),
            "name" => Way::Name(rest),
            "lookup" => Way::Lookup(rest),
            "stream" => Way::LookupByStream(rest),
            _ => return None,
        };
        let byte = |at: usize, hex: &str| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let part = |hex: &str| (0..hex.len()).step_by(2).map(|at| byte(at, hex)).collect::<Option<Vec<u8>>>();
        Some(Talk { way, parts: parts.split(',').map(part).collect::<Option<_>>()? })
    }
}

/// The outcomes of a conversation that got through.
pub(crate) fn is_through(outcome: &str) -> bool {
    ["200", "302", "echo", "data", "socks 0", "address"].iter().any(|through| is(outcome, through))
}

/// An outcome may say more than its first words.
pub(crate) fn is(outcome: &str, expected: &str) -> bool {
    outcome.strip_prefix(expected).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// A greeting of TLS.
pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
    let block = |bytes: &[u8]| [&length(bytes.len())[..], bytes].concat();
    let mut extensions = vec![0, 0x2b, 0, 3, 2, 3, 4];
    if let Some(name) = name {
        let entry = [&[0][..], &block(name.as_bytes())].concat();
        extensions.extend([&[0, 0][..], &block(&block(&entry))].concat());
    }
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &block(&extensions)].concat();
    let message = [&[1, 0][..], &block(&body)].concat();
    [&[0x16, 3, 1][..], &block(&message)].concat()
}

fn length(of: usize) -> [u8; 2] {
    u16::try_from(of).unwrap_or(u16::MAX).to_be_bytes()
}

/// The two messages of a client of SOCKS that gives a name.
pub(crate) fn socks(command: u8, name: &[u8], port: u16) -> Vec<Vec<u8>> {
    let named = [&[5, command, 0, 3, u8::try_from(name.len()).unwrap_or(u8::MAX)][..], name].concat();
    vec![vec![5, 1, 0], [&named[..], &port.to_be_bytes()].concat()]
}

/// A question for an address.
pub(crate) fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or(63));
        message.extend_from_slice(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}
