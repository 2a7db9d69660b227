//! From a name to addresses, outside the sandbox. Owns the resolver and its cache (within each answer's time to live); what
//! the addresses may be is `decide`'s. Called once a name was allowed, never before.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Record, RecordType};

/// Longest wait for one server.
const PATIENCE: Duration = Duration::from_secs(3);
/// Answers kept.
const CACHED: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Resolve {
    resolver: TokioResolver,
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
        options.timeout = PATIENCE;
        options.attempts = 2;
        options.cache_size = CACHED;
        // Names are complete: what a search list would add was not decided about.
        options.ndots = 0;
        options.ip_strategy = hickory_resolver::config::LookupIpStrategy::Ipv4AndIpv6;
        let resolver = builder.build().map_err(|error| format!("the resolver: {error}"))?;
        Ok(Resolve { resolver })
    }

    /// Every address of both families.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Failure> {
        let found = self.resolver.lookup_ip(format!("{name}.")).await.map_err(|error| failure(&error))?;
        let found: Vec<IpAddr> = found.iter().collect();
        if found.is_empty() { Err(Failure::Nothing) } else { Ok(found) }
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
