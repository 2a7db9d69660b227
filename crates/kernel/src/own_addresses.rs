//! The addresses that this host has, which a session reaches only where policy lists them. Owns reading them from the kernel's
//! tables, again and again: a laptop changes networks. Judges none. Asked by the egress process, and by `sandbox why`.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::FileExt;

/// Both tables stay open: the egress process gives up the file system.
#[derive(Debug)]
pub struct OwnAddresses {
    v4: Option<File>,
    v6: Option<File>,
}

/// The addresses that this host has now.
pub fn own_addresses() -> Vec<IpAddr> {
    OwnAddresses::open().now()
}

impl OwnAddresses {
    pub fn open() -> OwnAddresses {
        // A kernel without a family has no table for it.
        OwnAddresses { v4: File::open("/proc/net/fib_trie").ok(), v6: File::open("/proc/net/if_inet6").ok() }
    }

    pub fn now(&self) -> Vec<IpAddr> {
        let mut own = v4_of(&self.v4.as_ref().map(read).unwrap_or_default());
        own.extend(v6_of(&self.v6.as_ref().map(read).unwrap_or_default()));
        own.sort_unstable();
        own.dedup();
        own
    }
}

fn read(file: &File) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 << 10];
    while let Ok(length @ 1..) = file.read_at(&mut chunk, u64::try_from(bytes.len()).unwrap_or(u64::MAX)) {
        bytes.extend_from_slice(&chunk[..length]);
        if bytes.len() > 4 << 20 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lines of an address, each followed by what it is: `/32 host LOCAL` is one of ours.
fn v4_of(table: &str) -> Vec<IpAddr> {
    let mut last: Option<Ipv4Addr> = None;
    let mut own = Vec::new();
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            own.extend(last.map(IpAddr::V4));
        }
    }
    own
}

/// Each line begins with an address of 32 digits.
fn v6_of(table: &str) -> Vec<IpAddr> {
    let addresses = table.lines().filter_map(|line| u128::from_str_radix(line.get(..32)?, 16).ok());
    addresses.map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_the_local_hosts_of_the_table() {
        let table = "Local:\n  +-- 10.0.0.0/24 2 0 2\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        \
                     /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(v4_of(table), ["10.0.0.7".parse::<IpAddr>().expect("an address")]);
        let table = "fe80000000000000020c29fffe123456 02 40 20 80     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(v6_of(table)[1], IpAddr::V6(Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn this_machine_has_its_loopback() {
        assert!(OwnAddresses::open().now().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
