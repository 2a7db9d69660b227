//! The few netlink messages that a session's network namespace needs: every address is local, and nftables hands what goes
//! elsewhere to one listener. Owns the encoding; which traffic is caught is `network`'s choice. No connection tracking is
//! involved: a transparent proxy rule finds a socket and changes no packet.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Loopback in a new network namespace.
const LOOPBACK: u32 = 1;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;
const ERROR: u16 = 2;

/// Messages in the making. Every length stands in front of what it counts, so it is filled in afterwards.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
    sequence: u32,
}

impl Messages {
    fn message(&mut self, kind: u16, flags: u16, header: &[u8], attributes: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.sequence += 1;
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(header);
        attributes(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        value(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) {
        self.attribute(NESTED | kind, inner);
    }

    fn value(&mut self, kind: u16, value: &[u8]) {
        self.attribute(kind, |to| to.bytes.extend_from_slice(value));
    }

    /// nftables counts in network order.
    fn number(&mut self, kind: u16, value: u32) {
        self.value(kind, &value.to_be_bytes());
    }

    fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, |to| {
            to.bytes.extend_from_slice(text.as_bytes());
            to.bytes.push(0);
        });
    }

    /// Sends all, and waits until the kernel has answered the message of this number or refused any.
    fn exchange(&self, protocol: Option<Protocol>, last: u32) -> Result<(), Errno> {
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        rustix::net::sendto(socket.as_fd(), &self.bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut buffer = [0u8; 8192];
        loop {
            let (length, _) = rustix::net::recv(socket.as_fd(), &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..length];
            while let Some(answer) = Answer::first(rest) {
                match answer {
                    Answer { error: Some(0), sequence, .. } if sequence == last => return Ok(()),
                    Answer { error: Some(0) | None, length, .. } => rest = rest.get(length..).unwrap_or_default(),
                    Answer { error: Some(number), .. } => return Err(Errno::from_raw_os_error(-number)),
                }
            }
        }
    }
}

struct Answer {
    length: usize,
    sequence: u32,
    error: Option<i32>,
}

impl Answer {
    fn first(bytes: &[u8]) -> Option<Answer> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let length = usize::try_from(word(0)?).ok()?.max(16).next_multiple_of(4);
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let error = if kind == ERROR { Some(word(16)?.cast_signed()) } else { None };
        Some(Answer { length, sequence: word(8)?, error })
    }
}

/// Makes every address of a family one of this namespace's own.
pub(crate) fn make_all_local(family: AddressFamily) -> Result<(), Errno> {
    const NEW_ROUTE: u16 = 24;
    const TABLE_LOCAL: u8 = 255;
    const BY_BOOT: u8 = 3;
    const SCOPE_HOST: u8 = 254;
    const TYPE_LOCAL: u8 = 2;
    const OUT_INTERFACE: u16 = 4;

    let family = u8::try_from(family.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
    let mut messages = Messages::default();
    let header = [family, 0, 0, 0, TABLE_LOCAL, BY_BOOT, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
    messages.message(NEW_ROUTE, ACKNOWLEDGE | CREATE | EXCLUSIVE, &header, |to| {
        to.value(OUT_INTERFACE, &LOOPBACK.to_ne_bytes());
    });
    // The protocol for routes has the number 0.
    messages.exchange(None, 1)
}

/// Gives the loopback one more address.
pub(crate) fn add_address(address: Ipv4Addr) -> Result<(), Errno> {
    const NEW_ADDRESS: u16 = 20;
    const WHOLE: u8 = 32;
    const SCOPE_HOST: u8 = 254;
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;

    let family = u8::try_from(AddressFamily::INET.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
    let mut header = vec![family, WHOLE, 0, SCOPE_HOST];
    header.extend_from_slice(&LOOPBACK.to_ne_bytes());
    let mut messages = Messages::default();
    messages.message(NEW_ADDRESS, ACKNOWLEDGE | CREATE | EXCLUSIVE, &header, |to| {
        to.value(LOCAL, &address.octets());
        to.value(ADDRESS, &address.octets());
    });
    messages.exchange(None, 1)
}

/// One condition of a rule, or the end of it.
enum Part {
    /// Only what has this in its header, which starts at that offset.
    Header {
        base: u32,
        offset: u32,
        is: Vec<u8>,
    },
    Family(u8),
    Tcp,
    /// Only what belongs to a connection that has begun: its sockets are found without help.
    NotFirst,
    /// To the listener on this port.
    Divert(u16),
    Accept,
}

const IPV4: u8 = 2;
const IPV6: u8 = 10;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const VALUE_REGISTER: u32 = 1;
const VERDICT_REGISTER: u32 = 0;

fn to_address(address: IpAddr) -> [Part; 2] {
    match address {
        IpAddr::V4(v4) => {
            let is = v4.octets().to_vec();
            [Part::Family(IPV4), Part::Header { base: NETWORK_HEADER, offset: 16, is }]
        }
        IpAddr::V6(v6) => {
            let is = v6.octets().to_vec();
            [Part::Family(IPV6), Part::Header { base: NETWORK_HEADER, offset: 24, is }]
        }
    }
}

fn to_port(port: u16) -> Part {
    Part::Header { base: TRANSPORT_HEADER, offset: 2, is: port.to_be_bytes().to_vec() }
}

/// Hands every TCP connection that does not go to the namespace's own loopback to the listener on `listener`, and those to
/// `also` as well.
pub(crate) fn divert(listener: u16, also: &[(IpAddr, u16)]) -> Result<(), Errno> {
    const BATCH_BEGIN: u16 = 0x10;
    const BATCH_END: u16 = 0x11;
    const NFTABLES: u16 = 10;
    const NEW_TABLE: u16 = NFTABLES << 8;
    const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
    const INET: u8 = 1;
    const MANGLE: i32 = -150;

    let header = [INET, 0, 0, 0];
    let mut messages = Messages::default();
    let batch = [0, 0, 0, 10];
    messages.message(BATCH_BEGIN, 0, &batch, |_| {});
    messages.message(NEW_TABLE, CREATE, &header, |to| to.text(1, TABLE));
    messages.message(NEW_CHAIN, CREATE, &header, |to| {
        to.text(1, TABLE);
        to.text(3, CHAIN);
        to.nested(4, |hook| {
            hook.number(1, 0); // prerouting
            hook.number(2, MANGLE.cast_unsigned());
        });
        to.number(5, 1); // what no rule is about goes on
        to.text(7, "filter");
    });
    rule(&mut messages, &header, &[Part::Tcp, Part::NotFirst, Part::Accept]);
    for (address, port) in also {
        let [family, to] = to_address(*address);
        rule(&mut messages, &header, &[family, to, Part::Tcp, to_port(*port), Part::Divert(listener), Part::Accept]);
    }
    let own = Part::Header { base: NETWORK_HEADER, offset: 16, is: vec![127] };
    rule(&mut messages, &header, &[Part::Family(IPV4), own, Part::Accept]);
    let [family, own] = to_address(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST));
    rule(&mut messages, &header, &[family, own, Part::Accept]);
    rule(&mut messages, &header, &[Part::Tcp, Part::Divert(listener), Part::Accept]);
    let last = messages.sequence;
    messages.message(BATCH_END, 0, &batch, |_| {});
    messages.exchange(Some(netlink::NETFILTER), last)
}

const TABLE: &str = "cofferdam";
const CHAIN: &str = "egress";

fn rule(messages: &mut Messages, header: &[u8], parts: &[Part]) {
    const NEW_RULE: u16 = 10 << 8 | 6;
    messages.message(NEW_RULE, CREATE | APPEND | ACKNOWLEDGE, header, |to| {
        to.text(1, TABLE);
        to.text(2, CHAIN);
        to.nested(4, |expressions| {
            for part in parts {
                part.write(expressions);
            }
        });
    });
}

impl Part {
    fn write(&self, to: &mut Messages) {
        match self {
            Part::Header { base, offset, is } => {
                let length = u32::try_from(is.len()).unwrap_or_default();
                expression(to, "payload", |to| {
                    to.number(1, VALUE_REGISTER);
                    to.number(2, *base);
                    to.number(3, *offset);
                    to.number(4, length);
                });
                compare(to, is);
            }
            Part::Family(family) => {
                meta(to, 15);
                compare(to, &[*family]);
            }
            Part::Tcp => {
                meta(to, 16);
                compare(to, &[6]);
            }
            Part::NotFirst => {
                const FLAGS: u32 = 13;
                const SYN: u8 = 2;
                expression(to, "payload", |to| {
                    to.number(1, VALUE_REGISTER);
                    to.number(2, TRANSPORT_HEADER);
                    to.number(3, FLAGS);
                    to.number(4, 1);
                });
                expression(to, "bitwise", |to| {
                    to.number(1, VALUE_REGISTER);
                    to.number(2, VALUE_REGISTER);
                    to.number(3, 1);
                    to.nested(4, |to| to.value(1, &[SYN]));
                    to.nested(5, |to| to.value(1, &[0]));
                });
                compare(to, &[0]);
            }
            Part::Divert(port) => {
                expression(to, "immediate", |to| {
                    to.number(1, VALUE_REGISTER);
                    to.nested(2, |to| to.value(1, &port.to_be_bytes()));
                });
                expression(to, "tproxy", |to| {
                    to.number(1, 0); // either family
                    to.number(3, VALUE_REGISTER);
                });
            }
            Part::Accept => expression(to, "immediate", |to| {
                to.number(1, VERDICT_REGISTER);
                to.nested(2, |to| to.nested(2, |to| to.number(1, 1)));
            }),
        }
    }
}

fn meta(to: &mut Messages, key: u32) {
    expression(to, "meta", |to| {
        to.number(2, key);
        to.number(1, VALUE_REGISTER);
    });
}

fn compare(to: &mut Messages, is: &[u8]) {
    expression(to, "cmp", |to| {
        to.number(1, VALUE_REGISTER);
        to.number(2, 0);
        to.nested(3, |to| to.value(1, is));
    });
}

fn expression(to: &mut Messages, name: &str, data: impl FnOnce(&mut Messages)) {
    to.nested(1, |to| {
        to.text(1, name);
        to.nested(2, data);
    });
}
