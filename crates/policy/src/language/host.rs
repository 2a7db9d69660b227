//! A host as it comes off the wire: a name or an address, in the one form that rules are compared with. Owns the strict
//! parser, which refuses every second way of writing a host; patterns and what is allowed are `endpoint`'s and the
//! egress crate's. Called by `endpoint` and by every protocol that carries a host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use serde::{Serialize, Serializer};
use thiserror::Error;

/// Longest name and longest label of the DNS, without the final dot.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A host in canonical form: lower case, A-labels, no final dot; or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HostError {
    #[error("there is no host")]
    Empty,
    #[error("the name is longer than 253 characters")]
    TooLong,
    #[error("a label of the name is empty or longer than 63 characters")]
    Label,
    #[error("a name holds letters, digits, hyphens and underscores only")]
    Character,
    #[error("an IPv4 address is four decimal numbers without leading zeros")]
    Ipv4,
    #[error("the address in brackets is not IPv6, or it has a zone")]
    Ipv6,
    #[error("the port is not a number between 1 and 65535")]
    Port,
    #[error("there is no port")]
    NoPort,
}

impl Host {
    /// Reads a host without port. Strict: what two programs could read differently is no host.
    pub fn parse(text: &str) -> Result<Host, HostError> {
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(HostError::Ipv6)?;
            return address6(inner);
        }
        if text.contains(':') {
            return address6(text);
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        let looks_numeric = name.rsplit('.').next().is_some_and(is_number);
        if looks_numeric {
            // `1.2.3.4.` is a name to some resolvers and an address to others.
            return match text.parse::<Ipv4Addr>() {
                Ok(address) => Ok(Host::Address(IpAddr::V4(address))),
                Err(_) => Err(HostError::Ipv4),
            };
        }
        check_name(name)?;
        Ok(Host::Name(name.to_ascii_lowercase()))
    }

    /// The name, where it is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }

    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Host::Name(_) => None,
            Host::Address(address) => Some(*address),
        }
    }
}

impl fmt::Display for Host {
    /// IPv6 stands without brackets; see [`with_port`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `host:port`, with brackets around IPv6.
pub fn with_port(host: &Host, port: u16) -> String {
    match host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        other => format!("{other}:{port}"),
    }
}

/// Reads `host:port` or `[v6]:port`. Without a default, the port must be there.
pub fn parse_authority(text: &str, default_port: Option<u16>) -> Result<(Host, u16), HostError> {
    let (host, port) = split_port(text)?;
    let host = Host::parse(host)?;
    match port {
        Some(port) => Ok((host, parse_port(port).ok_or(HostError::Port)?)),
        None => default_port.map(|port| (host, port)).ok_or(HostError::NoPort),
    }
}

/// The host and what stands after its port's colon. IPv6 needs brackets here: `::1:80` could be either.
fn split_port(text: &str) -> Result<(&str, Option<&str>), HostError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or(HostError::Ipv6)?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(HostError::Ipv6),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(HostError::Ipv6),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// Digits only: `u16::from_str` would take a sign.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}

fn address6(text: &str) -> Result<Host, HostError> {
    text.parse::<Ipv6Addr>().map(|address| Host::Address(IpAddr::V6(address))).map_err(|_| HostError::Ipv6)
}

/// A last label that the old address parsers of libc read as a number: `127`, `0x7f`, and an empty `0x` too.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// The rules of a name in ASCII: letters, digits, inner hyphens, underscores (services and some real hosts have them).
pub(crate) fn check_name(name: &str) -> Result<(), HostError> {
    if name.len() > LONGEST_NAME {
        return Err(HostError::TooLong);
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > LONGEST_LABEL {
            return Err(HostError::Label);
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !label.bytes().all(plain) || label.starts_with('-') || label.ends_with('-') {
            return Err(HostError::Character);
        }
    }
    Ok(())
}
