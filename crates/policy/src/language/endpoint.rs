//! Which hosts and ports a network rule is about. Owns the notation of patterns, its checks, and what a pattern covers;
//! whether a connection is allowed is decided by the egress crate. Called by the file formats, flags and variables.
//! Why patterns are like this: docs/decisions/0022.
//!
//! | written         | covers                                  |
//! |-----------------|-----------------------------------------|
//! | `x.org`         | that name only                          |
//! | `*.x.org`       | names below it, at any depth, not it    |
//! | `**.x.org`      | both                                    |
//! | `10.1.2.3`      | that address                            |
//! | `10.0.0.0/8`    | the addresses of that network           |
//! | `...:5432`      | that port; `:*` every port; else 80, 443 |
//! | `x.org@10.1.2.3` | that name where it leads to this address, or one of this network; several between `+` |

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::language::host::{Host, HostError, check_name, parse_port};
use crate::language::name_data;

/// The ports of an endpoint without one.
pub const WEB_PORTS: [u16; 2] = [80, 443];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ports {
    /// None is written: 80 and 443. In a list of what is denied: every port.
    Web,
    One(u16),
    /// `:*`
    Any,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// `x`: this name only.
    Host(String),
    /// `*.x`: what is below it.
    Below(String),
    /// `**.x`: it and what is below it.
    AtAndBelow(String),
    /// A network, or a single address.
    Net(Cidr),
}

/// A network: no bit is set after the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix: u8,
}

/// A pattern of hosts and the ports it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub target: Target,
    pub ports: Ports,
    /// `@ADDRESS`: it is about the names only where they lead to one of these. Where empty, wherever they lead.
    pub at: Vec<Cidr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EndpointError {
    #[error("`{text}` names no host")]
    Host {
        text: String,
        #[source]
        cause: HostError,
    },
    #[error("`{0}` names every host: list the ones that are needed")]
    Everything(String),
    #[error("`{0}`: `*.` or `**.` stands at the beginning only, for whole labels")]
    Wildcard(String),
    #[error("`{0}`: anyone can have a name below it, so list the hosts themselves")]
    PublicSuffix(String),
    #[error("`{0}`: the name has no form in the DNS")]
    Unicode(String),
    #[error("`{0}`: the port is neither a number between 1 and 65535 nor `*`")]
    Port(String),
    #[error("`{text}`: the network starts at `{network}`")]
    Network { text: String, network: Cidr },
    #[error("`{0}`: a prefix is at most 32 bits long for IPv4 and 128 for IPv6")]
    Prefix(String),
    #[error("`{0}`: behind `@` stands the address that a name leads to, or a network, and before it the name")]
    Pair(String),
    #[error("`{0}`: a ceiling is about names and about addresses, not about both at once")]
    Ceiling(String),
}

impl Cidr {
    /// A single address.
    pub fn one(address: IpAddr) -> Cidr {
        Cidr { address, prefix: width(address) }
    }

    /// The network of this many bits around an address.
    pub fn around(address: IpAddr, prefix: u8) -> Option<Cidr> {
        (prefix <= width(address)).then(|| Cidr { address: masked(address, prefix), prefix })
    }

    pub fn is_one(&self) -> bool {
        self.prefix == width(self.address)
    }

    /// Whether the address lies in this network. IPv4 written inside IPv6 is another address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && masked(address, self.prefix) == self.address
    }

    /// Whether every address of `other` lies in this network.
    pub fn covers(&self, other: &Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

impl Target {
    /// Whether the pattern is about this host. Names are compared label by label, addresses with networks only.
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Target::Host(name), Host::Name(asked)) => name == asked,
            (Target::Below(name), Host::Name(asked)) => is_below(asked, name),
            (Target::AtAndBelow(name), Host::Name(asked)) => asked == name || is_below(asked, name),
            (Target::Net(net), Host::Address(address)) => net.contains(*address),
            _ => false,
        }
    }

    /// Whether every host of `other` is one of this.
    pub fn covers_all(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Net(net), Target::Net(other)) => net.covers(other),
            (_, Target::Host(name)) => self.covers(&Host::Name(name.clone())),
            (Target::Below(name), Target::Below(other)) => other == name || is_below(other, name),
            (Target::Below(name), Target::AtAndBelow(other)) => is_below(other, name),
            (Target::AtAndBelow(name), Target::Below(other) | Target::AtAndBelow(other)) => {
                other == name || is_below(other, name)
            }
            _ => false,
        }
    }
}

/// Whether `name` has at least one label more, in front of `parent`.
fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).and_then(|rest| rest.strip_suffix('.')).is_some_and(|rest| !rest.is_empty())
}

impl Ports {
    pub fn allow(self, port: u16) -> bool {
        match self {
            Ports::Web => WEB_PORTS.contains(&port),
            Ports::One(one) => one == port,
            Ports::Any => true,
        }
    }

    /// In a list of what is denied, no port means every port.
    pub fn deny(self, port: u16) -> bool {
        self == Ports::Web || self.allow(port)
    }

    /// Whether every port of `other` is one of these, in a list of what is allowed.
    pub fn allow_all(self, other: Ports) -> bool {
        match (self, other) {
            (Ports::Any, _) => true,
            (_, Ports::Any) => false,
            (_, Ports::One(port)) => self.allow(port),
            (own, Ports::Web) => own == Ports::Web,
        }
    }
}

impl Endpoint {
    /// Reads a pattern. Names may be in Unicode; what is kept is what the DNS has.
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let (place, at) = match text.split_once('@') {
            None => (text, Vec::new()),
            Some((place, addresses)) => (place, addresses_of(text, addresses)?),
        };
        let (host, ports) = split(place)?;
        let target = target(place, host)?;
        if !at.is_empty() && matches!(target, Target::Net(_)) {
            return Err(EndpointError::Pair(text.to_owned()));
        }
        Ok(Endpoint { target, ports, at })
    }

    /// Reads a pattern that gives access: it must not be about names that other owners can register.
    pub fn parse_allow(text: &str) -> Result<Endpoint, EndpointError> {
        let endpoint = Endpoint::parse(text)?;
        match &endpoint.target {
            Target::Below(name) | Target::AtAndBelow(name) if name_data::is_public_suffix(name) => {
                Err(EndpointError::PublicSuffix(text.to_owned()))
            }
            _ => Ok(endpoint),
        }
    }

    /// The endpoint that is exactly this host and port.
    pub fn of(host: &Host, port: u16) -> Endpoint {
        let target = match host {
            Host::Name(name) => Target::Host(name.clone()),
            Host::Address(address) => Target::Net(Cidr::one(*address)),
        };
        Endpoint { target, ports: Ports::One(port), at: Vec::new() }
    }

    /// The same, only where the name leads to exactly these addresses.
    pub fn at(host: &Host, port: u16, addresses: &[IpAddr]) -> Endpoint {
        let at = addresses.iter().copied().map(Cidr::one).collect();
        Endpoint { at, ..Endpoint::of(host, port) }
    }

    /// Whether it is about its names where they lead to this address.
    pub fn is_at(&self, address: IpAddr) -> bool {
        self.at.is_empty() || self.at.iter().any(|net| net.contains(address))
    }

    /// Whether this, in a list of what is allowed, is about the connection; one with addresses once they are known.
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        self.ports.allow(port) && self.target.covers(host)
    }

    /// Whether this, in a list of what is denied, is about the connection, wherever it leads.
    pub fn denies(&self, host: &Host, port: u16) -> bool {
        self.at.is_empty() && self.ports.deny(port) && self.target.covers(host)
    }

    /// Whether this, in a list of what is denied, is about the connection because of where it leads.
    pub fn denies_at(&self, host: &Host, port: u16, address: IpAddr) -> bool {
        !self.at.is_empty() && self.is_at(address) && self.ports.deny(port) && self.target.covers(host)
    }

    /// Whether denying this leaves nothing of allowing `other`.
    pub fn denies_all(&self, other: &Endpoint) -> bool {
        let ports = if self.ports == Ports::Web { Ports::Any } else { self.ports };
        self.covers_addresses(other) && ports.allow_all(other.ports) && self.target.covers_all(&other.target)
    }

    /// Whether allowing `other` reaches no name and port that allowing this does not. An address that is not public is
    /// checked by itself.
    pub fn allows_all(&self, other: &Endpoint) -> bool {
        self.covers_addresses(other) && self.ports.allow_all(other.ports) && self.target.covers_all(&other.target)
    }

    fn covers_addresses(&self, other: &Endpoint) -> bool {
        let is_covered = |net: &Cidr| self.at.iter().any(|own| own.covers(net));
        self.at.is_empty() || !other.at.is_empty() && other.at.iter().all(is_covered)
    }
}

fn addresses_of(text: &str, addresses: &str) -> Result<Vec<Cidr>, EndpointError> {
    let mut found = Vec::new();
    for one in addresses.split('+') {
        match target(text, one) {
            Ok(Target::Net(net)) => found.push(net),
            Err(error @ (EndpointError::Network { .. } | EndpointError::Prefix(_))) => return Err(error),
            _ => return Err(EndpointError::Pair(text.to_owned())),
        }
    }
    Ok(found)
}

/// The host part, and the ports that are written after it.
fn split(text: &str) -> Result<(&str, Ports), EndpointError> {
    let bad_host = |cause| EndpointError::Host { text: text.to_owned(), cause };
    let (host, port) = if text.starts_with('[') {
        let end = text.find(']').ok_or_else(|| bad_host(HostError::Ipv6))?;
        match text[end..].find(':') {
            Some(colon) => (&text[..end + colon], Some(&text[end + colon + 1..])),
            None => (text, None),
        }
    } else {
        match text.split_once(':') {
            // IPv6 without brackets has no port.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let ports = match port {
        None => Ports::Web,
        Some("*") => Ports::Any,
        Some(port) => Ports::One(parse_port(port).ok_or_else(|| EndpointError::Port(text.to_owned()))?),
    };
    Ok((host, ports))
}

fn target(text: &str, host: &str) -> Result<Target, EndpointError> {
    if let Some((address, prefix)) = host.split_once('/') {
        return network(text, address, prefix).map(Target::Net);
    }
    if matches!(host, "*" | "**" | "*." | "**.") {
        return Err(EndpointError::Everything(text.to_owned()));
    }
    if let Some(name) = host.strip_prefix("**.") {
        return name_of(text, name).map(Target::AtAndBelow);
    }
    if let Some(name) = host.strip_prefix("*.") {
        return name_of(text, name).map(Target::Below);
    }
    if host.contains('*') {
        return Err(EndpointError::Wildcard(text.to_owned()));
    }
    match host_of(text, host)? {
        Host::Name(name) => Ok(Target::Host(name)),
        Host::Address(address) => Ok(Target::Net(Cidr::one(address))),
    }
}

/// What a wildcard stands before: a name, never an address.
fn name_of(text: &str, name: &str) -> Result<String, EndpointError> {
    match host_of(text, name) {
        Ok(Host::Name(name)) => Ok(name),
        Ok(Host::Address(_)) => Err(EndpointError::Wildcard(text.to_owned())),
        Err(_) if name.contains('*') => Err(EndpointError::Wildcard(text.to_owned())),
        Err(error) => Err(error),
    }
}

fn host_of(text: &str, host: &str) -> Result<Host, EndpointError> {
    let parsed = if host.is_ascii() {
        Host::parse(host)
    } else {
        let unwritable = || EndpointError::Unicode(text.to_owned());
        let ascii = name_data::to_ascii(host.strip_suffix('.').unwrap_or(host)).ok_or_else(unwritable)?;
        check_name(&ascii).and_then(|()| Host::parse(&ascii))
    };
    let parsed = parsed.map_err(|cause| EndpointError::Host { text: text.to_owned(), cause })?;
    match &parsed {
        Host::Name(name) if !name_data::is_well_formed(name) => Err(EndpointError::Unicode(text.to_owned())),
        _ => Ok(parsed),
    }
}

fn network(text: &str, address: &str, prefix: &str) -> Result<Cidr, EndpointError> {
    let host = Host::parse(address).map_err(|cause| EndpointError::Host { text: text.to_owned(), cause })?;
    let Host::Address(address) = host else { return Err(EndpointError::Prefix(text.to_owned())) };
    let digits = !prefix.is_empty() && prefix.len() <= 3 && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = if digits { prefix.parse().ok() } else { None };
    let network = prefix.and_then(|prefix| Cidr::around(address, prefix));
    let network = network.ok_or_else(|| EndpointError::Prefix(text.to_owned()))?;
    if network.address == address {
        Ok(network)
    } else {
        Err(EndpointError::Network { text: text.to_owned(), network })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one() { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.prefix) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Host(name) => f.write_str(name),
            Target::Below(name) => write!(f, "*.{name}"),
            Target::AtAndBelow(name) => write!(f, "**.{name}"),
            Target::Net(net) => write!(f, "{net}"),
        }
    }
}

impl fmt::Display for Endpoint {
    /// As it would be written; reading it gives the same endpoint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.target, self.ports) {
            (target, Ports::Web) => write!(f, "{target}"),
            (Target::Net(net), ports) if net.address.is_ipv6() => {
                write!(f, "[{}]", net.address)?;
                if !net.is_one() {
                    write!(f, "/{}", net.prefix)?;
                }
                write!(f, "{ports}")
            }
            (target, ports) => write!(f, "{target}{ports}"),
        }?;
        for (index, net) in self.at.iter().enumerate() {
            write!(f, "{}{net}", if index == 0 { '@' } else { '+' })?;
        }
        Ok(())
    }
}

impl fmt::Display for Ports {
    /// As it stands after a host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ports::Web => Ok(()),
            Ports::One(port) => write!(f, ":{port}"),
            Ports::Any => f.write_str(":*"),
        }
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Endpoint::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
