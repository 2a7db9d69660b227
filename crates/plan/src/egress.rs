//! The network that a session gets: none, named hosts, or the host's. Owns the choice of mechanism and the variables that
//! tell programs of the proxy; rules about hosts stay policy's, and are decided where connections arrive.
//! Called by `plan()`; executed by `launcher`.

use core::net::IpAddr;

use cofferdam_policy::{Isolation, Mode, Network, NetworkMode, OnUnknown, Policy, Ports, Ruled};
use serde::Serialize;

use crate::PlanError;
use crate::facts::HostFacts;

/// Where programs inside find the proxy.
pub(crate) const PROXY: &str = "198.18.0.1:3128";
/// What programs reach inside without it.
const DIRECT: &str = "localhost,127.0.0.1,::1";

/// What the egress process of a session is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressPlan {
    pub network: Network,
    /// What happens to a host that no rule is about.
    pub unknown: Ruled<OnUnknown>,
    /// Ports that are listened on where the kernel cannot catch them all.
    pub ports: Vec<u16>,
    /// Places of the session's loopback that lead outside: resolvers, and chosen ports of the host.
    pub caught: Vec<(IpAddr, u16)>,
    /// Whether nftables is tried; where it is not to be had, only `ports` are caught.
    pub by_filter: bool,
}

impl EgressPlan {
    pub(crate) fn of(policy: &Policy, facts: &HostFacts) -> Result<Option<EgressPlan>, PlanError> {
        let network = &policy.network;
        let wanted = network.mode.value;
        let needs_own = wanted == NetworkMode::Egress || !network.publish.is_empty() || !network.host_ports.is_empty();
        if !needs_own || policy.isolation.value == Isolation::None {
            return Ok(None);
        }
        if policy.isolation.value != Isolation::Full {
            let origin = network.mode.origin.clone();
            return Err(PlanError::NetworkNeedsFull { mode: wanted, origin });
        }
        if wanted == NetworkMode::Host {
            // The host's own network has every port of it.
            return Ok(None);
        }
        let named = network.allow.iter().filter_map(|rule| match rule.endpoint.ports {
            Ports::One(port) => Some(port),
            Ports::Web | Ports::Any => None,
        });
        let mut ports: Vec<u16> = named.chain([80, 443, 3128]).collect();
        ports.sort_unstable();
        ports.dedup();
        let resolvers = facts.resolvers.iter().filter(|address| address.is_loopback());
        let mut caught: Vec<(IpAddr, u16)> = resolvers.map(|address| (*address, 53)).collect();
        for port in &network.host_ports {
            let both = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16])];
            caught.extend(both.map(|loopback| (loopback, port.value)));
        }
        let mut network = network.clone();
        let named = wanted == NetworkMode::Egress;
        if !named {
            // Chosen ports of the host, and no names.
            network.allow.clear();
        }
        let mut unknown = policy.unknown.verdict.clone();
        if !named || policy.mode.value == Mode::Static {
            unknown.value = OnUnknown::Deny;
        }
        Ok(Some(EgressPlan { network, unknown, ports, caught, by_filter: true }))
    }

    /// For programs that read them; all others are served as well.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        if self.network.mode.value != NetworkMode::Egress {
            return Vec::new();
        }
        let proxy = format!("http://{PROXY}");
        let named = ["http_proxy", "https_proxy", "all_proxy"].map(|name| (name, proxy.as_str()));
        let both = named.into_iter().chain([("no_proxy", DIRECT)]);
        both.flat_map(|(name, value)| [name.to_owned(), name.to_uppercase()].map(|name| (name, value.to_owned())))
            .collect()
    }
}
