//! Lookups of a session: its table of addresses that stand for names, the resolver outside, and how many queries there may
//! be in a second. Owns counting them, by whichever way a name comes; decides nothing about names. Shared by the DNS server
//! and by connections.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::names::resolve::{Failure, Resolve};
use crate::names::synthetic::Names;
use crate::session::limits::Rate;

/// How long programs keep an address of ours.
pub(crate) const TTL: Duration = Duration::from_mins(1);
/// Names that have an address inside at the same time.
const MOST_NAMES: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Lookups {
    table: RefCell<Names>,
    pub(crate) resolve: Resolve,
    rate: Rate,
}

impl Lookups {
    /// With these servers, or those of the system.
    pub(crate) fn new(servers: &[SocketAddr], per_second: u32) -> Result<Rc<Lookups>, String> {
        let table = RefCell::new(Names::new(MOST_NAMES, TTL));
        Ok(Rc::new(Lookups { table, resolve: Resolve::new(servers)?, rate: Rate::new(per_second) }))
    }

    /// Counts one more query; false past the rate.
    pub(crate) fn take(&self) -> bool {
        self.rate.take(Instant::now())
    }

    /// The address that stands for a name; None when there are too many names.
    pub(crate) fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        self.table.borrow_mut().address_of(name, Instant::now())
    }

    /// The name that an address stands for; None for one that was never given out, or long ago.
    pub(crate) fn name_of(&self, address: Ipv4Addr) -> Option<String> {
        self.table.borrow_mut().name_of(address, Instant::now()).map(str::to_owned)
    }

    /// Counts a name that no query asked for before, as a query for it.
    pub(crate) fn count(&self, name: &str) -> Result<(), Failure> {
        let now = Instant::now();
        let mut table = self.table.borrow_mut();
        if !table.has(name) {
            if !self.rate.take(now) {
                return Err(Failure::TooMany);
            }
            // Where the table is full it counts again, which is what a limit is for.
            let _known = table.address_of(name, now);
        }
        Ok(())
    }
}

/// Whether an address is one that stands for a name inside, or the proxy's.
pub(crate) fn is_synthetic(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 198 && (18..=19).contains(&second)
}
