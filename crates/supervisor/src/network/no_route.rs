//! Whether the command tried to reach a network that it does not have: the kernel counts that in each network namespace.
//! Owns the reading of the counters, which `launcher` opens inside; what they mean to a person is `cli`'s.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use cofferdam_wire::Unrouted;

/// The counters of a namespace; the open file keeps them readable after its last process has ended.
pub(crate) struct Counters(std::fs::File);

impl Counters {
    pub(crate) fn of(opened: OwnedFd) -> Self {
        Counters(opened.into())
    }

    pub(crate) fn read(mut self) -> Unrouted {
        let mut text = String::new();
        self.0.read_to_string(&mut text).map_or_else(|_| Unrouted::default(), |_| parse(&text))
    }
}

/// Each protocol has a line of names and a line of values.
fn parse(text: &str) -> Unrouted {
    let value = |protocol: &str, name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)).map(str::split_whitespace);
        let (names, values) = (lines.next()?, lines.next()?);
        names.zip(values).find(|(n, _)| *n == name).and_then(|(_, value)| value.parse().ok())
    };
    Unrouted {
        no_route: value("Ip:", "OutNoRoutes").unwrap_or(0),
        no_listener: value("Udp:", "NoPorts").unwrap_or(0),
        refused: value("Tcp:", "AttemptFails").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::{Unrouted, parse};

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: Forwarding OutNoRoutes\nIp: 2 3\nTcp: MaxConn AttemptFails\nTcp: -1 2\nUdp: InDatagrams NoPorts\nUdp: 0 1\nUdpLite: InDatagrams NoPorts\nUdpLite: 0 9\n";
        assert_eq!(parse(text), Unrouted { no_route: 3, no_listener: 1, refused: 2 });
        assert_eq!(parse("Ip: Forwarding\n"), Unrouted::default());
        assert_eq!(parse(""), Unrouted::default());
    }
}
