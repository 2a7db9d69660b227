//! Addresses that stand for names inside a session: what a program looks up, and later connects to.
//! Owns the table and its bounds; it neither resolves a name nor decides about one. Asked through
//! `lookups`: by the DNS server for addresses, and for a connection for the name behind its address.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// 198.18.0.0/15: set apart for benchmarks, so no program expects anything there.
const NETWORK: u32 = 0xc612_0000;
/// The first /24 is not given out: the proxy's own address, 198.18.0.1, lies in it.
const FIRST: u32 = 256;
const END: u32 = 1 << 17;
/// The most names that can be held at once. Half of the addresses, so that a free one is soon found.
pub(crate) const NAMES_MAX: usize = 1 << 16;

/// A table of names and the addresses that stand for them.
///
/// A name keeps its address while it is in the table. When the table is full, the name that was longest out of use
/// makes room, but only after `ttl`: until then a program may still hold the address from an answer. Addresses are
/// given out in turn, so a freed one stays unused, and a late connection to it meets nothing, until the turn comes
/// round.
#[derive(Debug)]
pub(crate) struct Names {
    cap: usize,
    ttl: Duration,
    next: u32,
    by_name: HashMap<String, u32>,
    by_address: HashMap<u32, Entry>,
    /// Offsets by last use; the count makes uses of one instant distinct, and keeps their order.
    by_use: BTreeSet<(Instant, u64, u32)>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    name: String,
    used: Instant,
    turn: u64,
}

impl Names {
    /// A table of at most `cap` names whose answers are valid for `ttl`.
    pub(crate) fn new(cap: usize, ttl: Duration) -> Self {
        Self {
            cap: cap.min(NAMES_MAX),
            ttl,
            next: FIRST,
            by_name: HashMap::new(),
            by_address: HashMap::new(),
            by_use: BTreeSet::new(),
            uses: 0,
        }
    }

    /// Whether a name has an address; no use of it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The address for a canonical name. `None` when the table is full of names that may still be in use, or the name
    /// is longer than DNS allows.
    pub(crate) fn address_of(&mut self, name: &str, now: Instant) -> Option<Ipv4Addr> {
        if let Some(&offset) = self.by_name.get(name) {
            self.touch(offset, now);
            return Some(address(offset));
        }
        if name.is_empty() || name.len() > 253 || !self.make_room(now) {
            return None;
        }
        let offset = self.free_offset();
        self.uses += 1;
        self.by_name.insert(name.to_owned(), offset);
        self.by_address.insert(offset, Entry { name: name.to_owned(), used: now, turn: self.uses });
        self.by_use.insert((now, self.uses, offset));
        Some(address(offset))
    }

    /// The name that an address stands for; asking counts as use.
    pub(crate) fn name_of(&mut self, address: Ipv4Addr, now: Instant) -> Option<&str> {
        let offset = u32::from(address).checked_sub(NETWORK)?;
        self.touch(offset, now);
        self.by_address.get(&offset).map(|entry| entry.name.as_str())
    }

    fn touch(&mut self, offset: u32, now: Instant) {
        let Some(entry) = self.by_address.get_mut(&offset) else { return };
        self.by_use.remove(&(entry.used, entry.turn, offset));
        self.uses += 1;
        // Time given out of order never makes an entry look older than it is.
        entry.used = entry.used.max(now);
        entry.turn = self.uses;
        self.by_use.insert((entry.used, entry.turn, offset));
    }

    /// Makes sure that one more name fits; false when it does not.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.by_name.len() < self.cap {
            return true;
        }
        let Some(&oldest @ (used, _, offset)) = self.by_use.first() else { return false };
        if now.saturating_duration_since(used) <= self.ttl {
            return false;
        }
        self.by_use.remove(&oldest);
        if let Some(entry) = self.by_address.remove(&offset) {
            self.by_name.remove(&entry.name);
        }
        true
    }

    /// The next address in turn that nothing holds. There is one: the table holds at most half of them.
    fn free_offset(&mut self) -> u32 {
        loop {
            let offset = self.next;
            self.next = if offset + 1 == END { FIRST } else { offset + 1 };
            if !self.by_address.contains_key(&offset) {
                return offset;
            }
        }
    }
}

fn address(offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(NETWORK + offset)
}
