//! From a name to addresses, outside the sandbox. Owns the resolver and its cache (within each answer's time to live); what
//! the addresses may be is `decide`'s. Called once a name was allowed, never before.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Record, RecordType};

/// Longest wait for one server.
const PER_SERVER: Duration = Duration::from_secs(3);
/// Where the system names none, as libc has it.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);
/// Answers kept.
const CACHED: u64 = 4096;
const MOST_FOUND: usize = 4096;
/// Longest that one is believed, whatever it says.
const LONGEST: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub(crate) struct Resolve {
    resolver: TokioResolver,
    /// Both families of a name in one place: the resolver forgets that a family has nothing.
    found: RefCell<HashMap<String, Found>>,
}

#[derive(Debug)]
struct Found {
    addresses: Rc<[IpAddr]>,
    until: Instant,
}

/// Why there are no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    NoSuchName,
    /// The name exists and has nothing of this kind.
    Nothing,
    Unanswered,
    /// It was not asked: there were too many names.
    TooMany,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::NoSuchName => "there is no such name",
            Failure::Nothing => "the name has no address",
            Failure::Unanswered => "no resolver answered",
            Failure::TooMany => "too many names were looked up [network.queries_per_second]",
        })
    }
}

impl Resolve {
    /// With these servers, or those of the system.
    pub(crate) fn new(servers: &[SocketAddr]) -> Result<Resolve, String> {
        let is_named = Path::new("/etc/resolv.conf").exists();
        let servers = if servers.is_empty() && !is_named { &[LOCAL] } else { servers };
        let provider = TokioRuntimeProvider::default();
        let mut builder = if servers.is_empty() {
            TokioResolver::builder(provider).map_err(|error| format!("the system's resolvers: {error}"))?
        } else {
            let servers = servers.iter().map(|server| {
                let mut config = NameServerConfig::udp_and_tcp(server.ip());
                for connection in &mut config.connections {
                    connection.port = server.port();
                }
                config
            });
            let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
            TokioResolver::builder_with_config(config, provider)
        };
        let options = builder.options_mut();
        options.timeout = PER_SERVER;
        options.attempts = 2;
        options.cache_size = CACHED;
        // Names are complete: what a search list would add was not decided about.
        options.ndots = 0;
        options.ip_strategy = hickory_resolver::config::LookupIpStrategy::Ipv4AndIpv6;
        let resolver = builder.build().map_err(|error| format!("the resolver: {error}"))?;
        Ok(Resolve { resolver, found: RefCell::default() })
    }

    /// Every address of both families.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Rc<[IpAddr]>, Failure> {
        let now = Instant::now();
        if let Some(found) = self.found.borrow().get(name).filter(|found| now < found.until) {
            return Ok(Rc::clone(&found.addresses));
        }
        let looked = self.resolver.lookup_ip(format!("{name}.")).await.map_err(|error| failure(&error))?;
        let addresses: Rc<[IpAddr]> = looked.iter().collect();
        if addresses.is_empty() {
            return Err(Failure::Nothing);
        }
        let until = looked.valid_until().min(now + LONGEST);
        let mut found = self.found.borrow_mut();
        if found.len() >= MOST_FOUND {
            found.retain(|_, found| now < found.until);
        }
        if found.len() < MOST_FOUND && now < until {
            found.insert(name.to_owned(), Found { addresses: Rc::clone(&addresses), until });
        }
        Ok(addresses)
    }

    /// Records of another kind.
    pub(crate) async fn records(&self, name: &str, kind: RecordType) -> Result<Vec<Record>, Failure> {
        let found = self.resolver.lookup(format!("{name}."), kind).await.map_err(|error| failure(&error))?;
        Ok(found.answers().to_vec())
    }
}

fn failure(error: &hickory_resolver::net::NetError) -> Failure {
    if error.is_nx_domain() {
        Failure::NoSuchName
    } else if error.is_no_records_found() {
        Failure::Nothing
    } else {
        Failure::Unanswered
    }
}
