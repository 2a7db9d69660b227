//! The network that a session gets: none, named hosts, or the host's. Owns the choice of mechanism and the variables that
//! tell programs of the proxy; rules about hosts stay policy's, and are decided where connections arrive.
//! Called by `plan()`; executed by `launcher`.

use core::net::IpAddr;
use std::path::{Path, PathBuf};

use cofferdam_policy::{AgentUse, Isolation, Mode, Network, NetworkMode, OnUnknown, Policy, Ports, Ruled};
use serde::Serialize;

use crate::PlanError;
use crate::facts::host::HostFacts;
use crate::network::terminates::TerminatesPlan;
use crate::posture::Posture;

/// Where programs inside find the proxy.
pub(crate) const PROXY: &str = "198.18.0.1:3128";
const AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
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
    /// No layer said a word about the network: every host is refused, by a process that has no network either and is started
    /// once a program inside asks for a host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub only_refuses: bool,
    /// Whether nftables is tried; where it is not to be had, only `ports` are caught.
    pub by_filter: bool,
    /// The user's ssh-agent, and where programs inside find what stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentPlan>,
    /// Where requests to some hosts are read in TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminates: Option<TerminatesPlan>,
}

/// An ssh-agent that is relayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentPlan {
    /// On the host.
    pub socket: PathBuf,
    pub inside: PathBuf,
    pub usage: AgentUse,
    /// Whether the operator can be asked.
    pub asks: bool,
}

impl AgentPlan {
    fn of(policy: &Policy, facts: &HostFacts, environment: &[(String, String)]) -> Option<AgentPlan> {
        let usage = policy.network.ssh_agent.value;
        let socket =
            environment.iter().find(|(name, _)| name == AGENT_VARIABLE).map(|(_, value)| PathBuf::from(value))?;
        let wanted = usage != AgentUse::Off
            && policy.isolation.value == Isolation::Full
            && socket.is_absolute()
            && facts.system.iter().any(|path| path == Path::new("/run"));
        let asks = policy.mode.value == Mode::Dynamic && policy.unknown.verdict.value == OnUnknown::Ask;
        wanted.then(|| AgentPlan { socket, inside: format!("/run/user/{}/ssh-agent", facts.uid).into(), usage, asks })
    }
}

impl EgressPlan {
    pub(crate) fn of(
        policy: &Policy,
        facts: &HostFacts,
        environment: &[(String, String)],
    ) -> Result<Option<EgressPlan>, PlanError> {
        let network = &policy.network;
        let wanted = network.mode.value;
        let agent = AgentPlan::of(policy, facts, environment);
        let is_full = policy.isolation.value == Isolation::Full;
        let has_another_use = !network.publish.is_empty() || !network.host_ports.is_empty() || agent.is_some();
        let refuses = is_full && network.is_unchosen();
        let needs_own = wanted == NetworkMode::Egress || has_another_use || refuses;
        if !needs_own || policy.isolation.value == Isolation::None {
            return Ok(None);
        }
        if !is_full {
            let origin = network.mode.origin.clone();
            return Err(PlanError::NetworkNeedsFull { mode: wanted, origin });
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
        let terminates = if named { TerminatesPlan::of(&network, facts, environment) } else { None };
        ports.extend(terminates.iter().flat_map(|plan| plan.credentials.iter().map(|one| one.port)));
        ports.sort_unstable();
        ports.dedup();
        let only_refuses = refuses && !has_another_use;
        Ok(Some(EgressPlan { network, unknown, ports, caught, only_refuses, by_filter: true, agent, terminates }))
    }

    /// For programs that read them; all others are served as well.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let agent = self.agent.iter().map(|agent| (AGENT_VARIABLE.to_owned(), agent.inside.display().to_string()));
        let mut variables: Vec<(String, String)> = agent.collect();
        if self.network.mode.value != NetworkMode::Egress && !self.network.is_unchosen() {
            return variables;
        }
        let proxy = format!("http://{PROXY}");
        let named = ["http_proxy", "https_proxy", "all_proxy"].map(|name| (name, proxy.as_str()));
        let both = named.into_iter().chain([("no_proxy", DIRECT)]);
        variables.extend(
            both.flat_map(|(name, value)| [name.to_owned(), name.to_uppercase()].map(|name| (name, value.to_owned()))),
        );
        variables.extend(self.terminates.iter().flat_map(TerminatesPlan::variables));
        variables
    }
}

/// Whether secrets are used as the policy says.
pub(crate) fn tell_of_credentials(network: &Network, egress: Option<&EgressPlan>, posture: &mut Posture) {
    match egress.and_then(|egress| egress.terminates.as_ref()).map(|plan| plan.credentials.len()) {
        Some(count) if count > 0 => posture.enforced(
            "credentials",
            format!("{count} put into requests outside, over TLS; the session holds placeholders"),
        ),
        None if network.credentials.iter().any(|one| !one.value.optional) => {
            posture.missing("credentials", "they are used with network `egress` only; the session holds nothing");
        }
        // None was given, or none that is there.
        Some(_) | None => {}
    }
}
