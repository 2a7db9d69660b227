//! What kind of address an address is. Owns the ranges that are not the public internet, and finds IPv4 addresses that
//! are written inside IPv6; what is allowed is `decide`'s. Called by `decide`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use cofferdam_policy::Cidr;

/// Why an address is not just a place on the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    Unspecified,
    Loopback,
    Private,
    LinkLocal,
    /// Shared by a carrier's customers.
    Cgnat,
    UniqueLocal,
    Multicast,
    Broadcast,
    /// Documentation, benchmarks, protocols, and what is not assigned.
    Reserved,
    /// Hands out a machine's own credentials.
    Metadata,
    /// An address of this host.
    Own,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Unspecified => "unspecified",
            Class::Loopback => "loopback",
            Class::Private => "private",
            Class::LinkLocal => "link-local",
            Class::Cgnat => "carrier-grade NAT",
            Class::UniqueLocal => "unique local",
            Class::Multicast => "multicast",
            Class::Broadcast => "broadcast",
            Class::Reserved => "reserved",
            Class::Metadata => "cloud metadata",
            Class::Own => "the host's own",
        })
    }
}

impl Class {
    /// What no rule can allow: it is no place to connect to, or means another one.
    pub fn is_never_allowed(self) -> bool {
        matches!(self, Class::Unspecified | Class::Multicast | Class::Broadcast)
    }

    /// What only a rule about the very address allows: the network around it was not meant to hold it.
    pub fn needs_exact_rule(self) -> bool {
        matches!(self, Class::Metadata | Class::Own)
    }
}

impl Class {
    /// Whether a name may be allowed to lead there: a server of one's own network, never this machine or what it is told by.
    fn can_be_paired(self) -> bool {
        match self {
            Class::Private | Class::Cgnat | Class::UniqueLocal | Class::Reserved => true,
            Class::Unspecified
            | Class::Loopback
            | Class::LinkLocal
            | Class::Multicast
            | Class::Broadcast
            | Class::Metadata
            | Class::Own => false,
        }
    }
}

/// Whether a rule about a name may list this address for it, in every way in which the address can be read.
pub fn can_be_paired(address: IpAddr, own: &[IpAddr]) -> bool {
    let inner = embedded(address).into_iter().map(IpAddr::V4);
    let mut classes = std::iter::once(address).chain(inner).filter_map(|reading| class_of(reading, own));
    classes.all(|(class, _)| class.can_be_paired())
}

/// The services that hand out a machine's credentials: AWS, ECS, EKS, Google, Azure, Alibaba, Oracle.
const METADATA: &[IpAddr] = &[
    v4(169, 254, 169, 254),
    v4(169, 254, 170, 2),
    v4(169, 254, 170, 23),
    v4(168, 63, 129, 16),
    v4(100, 100, 100, 200),
    v4(192, 0, 0, 192),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn net(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Cidr {
    Cidr { address: v4(a, b, c, d), prefix }
}

const fn net6(head: [u16; 3], prefix: u8) -> Cidr {
    Cidr { address: IpAddr::V6(Ipv6Addr::new(head[0], head[1], head[2], 0, 0, 0, 0, 0)), prefix }
}

const fn one6(last: u16) -> Cidr {
    Cidr { address: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, last)), prefix: 128 }
}

/// Ranges that are not public, the narrower of two that overlap first. After IANA's special-purpose registries.
const RANGES: &[(Cidr, Class)] = &[
    (net(0, 0, 0, 0, 8), Class::Unspecified),
    (net(10, 0, 0, 0, 8), Class::Private),
    (net(100, 64, 0, 0, 10), Class::Cgnat),
    (net(127, 0, 0, 0, 8), Class::Loopback),
    (net(169, 254, 0, 0, 16), Class::LinkLocal),
    (net(172, 16, 0, 0, 12), Class::Private),
    (net(192, 0, 0, 0, 24), Class::Reserved),
    (net(192, 0, 2, 0, 24), Class::Reserved),
    (net(192, 88, 99, 0, 24), Class::Reserved),
    (net(192, 168, 0, 0, 16), Class::Private),
    (net(198, 18, 0, 0, 15), Class::Reserved),
    (net(198, 51, 100, 0, 24), Class::Reserved),
    (net(203, 0, 113, 0, 24), Class::Reserved),
    (net(224, 0, 0, 0, 4), Class::Multicast),
    (net(255, 255, 255, 255, 32), Class::Broadcast),
    (net(240, 0, 0, 0, 4), Class::Reserved),
    (one6(0), Class::Unspecified),
    (one6(1), Class::Loopback),
    (net6([0xfc00, 0, 0], 7), Class::UniqueLocal),
    (net6([0xfe80, 0, 0], 10), Class::LinkLocal),
    (net6([0xfec0, 0, 0], 10), Class::Private),
    (net6([0xff00, 0, 0], 8), Class::Multicast),
    // Protocols: Teredo, benchmarks, ORCHID and others.
    (net6([0x2001, 0, 0], 23), Class::Reserved),
    (net6([0x2001, 0xdb8, 0], 32), Class::Reserved),
    (net6([0x3fff, 0, 0], 20), Class::Reserved),
    (net6([0x5f00, 0, 0], 16), Class::Reserved),
];

/// Global unicast, and the well-known prefix through which IPv6-only networks reach IPv4.
const PUBLIC6: &[Cidr] = &[net6([0x2000, 0, 0], 3), net6([0x64, 0xff9b, 0], 96)];

/// IPv4 as IPv6 sockets write it.
const MAPPED: Cidr = Cidr { address: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)), prefix: 96 };
const NAT64: Cidr = net6([0x64, 0xff9b, 0], 96);
const NAT64_LOCAL: Cidr = net6([0x64, 0xff9b, 1], 48);
const SIX_TO_FOUR: Cidr = net6([0x2002, 0, 0], 16);
const TEREDO: Cidr = net6([0x2001, 0, 0], 32);
const COMPATIBLE: Cidr = net6([0, 0, 0], 96);

/// The class of an address, and the range it lies in. `own` are the addresses of this host.
pub fn class_of(address: IpAddr, own: &[IpAddr]) -> Option<(Class, Cidr)> {
    let alone = Cidr::one(address);
    if METADATA.contains(&address) {
        return Some((Class::Metadata, alone));
    }
    if let Some((range, class)) = RANGES.iter().find(|(range, _)| range.contains(address)) {
        // The host's own address among private ones stays the host's own; its loopback has a class of its own.
        let is_own = own.contains(&address) && *class != Class::Loopback;
        return Some(if is_own { (Class::Own, alone) } else { (*class, *range) });
    }
    if own.contains(&address) {
        return Some((Class::Own, alone));
    }
    let is_known = address.is_ipv4() || MAPPED.contains(address) || PUBLIC6.iter().any(|net| net.contains(address));
    (!is_known).then_some((Class::Reserved, alone))
}

/// The IPv4 addresses that an IPv6 address stands for, in any of the ways in which a network on the path may read it.
pub fn embedded(address: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return Vec::new() };
    let parts = v6.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let last = pair(parts[6], parts[7]);
    let within = |net: &Cidr| net.contains(address);
    let mut found = Vec::new();
    if within(&MAPPED) || within(&NAT64) || within(&NAT64_LOCAL) {
        found.push(last);
    }
    if within(&COMPATIBLE) && parts[6] != 0 {
        found.push(last);
    }
    if within(&NAT64_LOCAL) {
        // RFC 6052 with 48 bits of prefix: the octet in the middle is empty.
        let [_, _, _, high, middle, low, ..] = parts;
        found.push(pair(high, (middle & 0xff) << 8 | low >> 8));
    }
    if within(&SIX_TO_FOUR) {
        found.push(pair(parts[1], parts[2]));
    }
    if within(&TEREDO) {
        found.push(pair(parts[2], parts[3]));
        found.push(pair(!parts[6], !parts[7]));
    }
    // ISATAP: the interface is 0000:5efe or 0200:5efe, whatever the prefix.
    if parts[4] & !0x0200 == 0 && parts[5] == 0x5efe {
        found.push(last);
    }
    found
}

/// The first reason why an address is not public: its own, or that of an address inside it.
pub fn special(address: IpAddr, own: &[IpAddr]) -> Option<(Class, Cidr)> {
    class_of(address, own).or_else(|| {
        let inner = embedded(address).into_iter().map(IpAddr::V4);
        // A rule about the inner address is not one about the outer: only the outer is dialled.
        inner.filter_map(|inner| class_of(inner, own)).map(|(class, _)| (class, Cidr::one(address))).next()
    })
}
