//! May this host be reached? Owns the verdict about names, addresses, ports and requests, with the rule that gave it and
//! the smallest change; resolves nothing, opens nothing and asks no question. Called by every protocol of `egress`, by
//! `sandbox why` and by the dry run.
//!
//! Deny wins over allow, whatever the layers. What no rule is about is [`Verdict::Unknown`]: the caller asks or refuses
//! with [`Rules::unlisted`].

use core::net::IpAddr;
use std::collections::BTreeSet;

use cofferdam_policy::{
    Cidr, Endpoint, Host, Layer, Network, NetworkRule, Origin, Ports, Ruled, Target, WEB_PORTS, with_port,
};

pub mod address;
mod request_path;

use address::{Class, can_be_paired, embedded, special};

#[cfg(test)]
mod tests;

/// The rules of one session, and what it answers to questions as it runs.
#[derive(Debug, Clone)]
pub struct Rules {
    allow: Vec<NetworkRule>,
    deny: Vec<NetworkRule>,
    within: Vec<Ruled<Endpoint>>,
    own: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allowed(Decided),
    Denied(Denial),
    /// No rule is about it.
    Unknown,
}

/// The rule that allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// As a policy file would have it.
    pub rule: String,
    pub origin: Origin,
}

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// As a policy file would have it, or what refuses without one.
    pub rule: String,
    pub origin: Option<Origin>,
    /// One line.
    pub why: String,
    /// The smallest change that would allow it, one line.
    pub remedy: String,
}

impl Verdict {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Verdict::Allowed(_))
    }
}

impl Rules {
    /// The rules of a policy. `own` are the addresses of this host.
    pub fn new(network: &Network, own: Vec<IpAddr>) -> Rules {
        Rules { allow: network.allow.clone(), deny: network.deny.clone(), within: network.within.clone(), own }
    }

    /// The verdict about what was asked for, before anything is resolved. An address is allowed only where a rule lists
    /// addresses, and then has passed [`Rules::addresses`] too.
    pub fn host(&self, host: &Host, port: u16) -> Verdict {
        if let Some(denial) = self.denied(host, port) {
            return Verdict::Denied(denial);
        }
        if let Host::Address(address) = host
            && let Err(denial) = self.addresses(host, port, &[*address])
        {
            return Verdict::Denied(denial);
        }
        match self.allow.iter().find(|rule| rule.endpoint.allows(host, port)) {
            Some(rule) => Verdict::Allowed(decided(rule)),
            None => Verdict::Unknown,
        }
    }

    /// Whether a lookup of this name may leave: whether some port of it could be allowed.
    pub fn name(&self, host: &Host) -> Verdict {
        let ports = self.allow.iter().filter(|rule| rule.endpoint.target.covers(host)).map(|rule| rule.endpoint.ports);
        let mut refused = None;
        for ports in ports {
            for port in self.examples_of(ports) {
                match self.host(host, port) {
                    Verdict::Denied(denial) => refused = Some(denial),
                    verdict @ Verdict::Allowed(_) => return verdict,
                    Verdict::Unknown => {}
                }
            }
        }
        let every_port = |rule: &&NetworkRule| {
            rule.is_whole()
                && rule.endpoint.target.covers(host)
                && matches!(rule.endpoint.ports, Ports::Web | Ports::Any)
                && rule.endpoint.at.is_empty()
        };
        let refused =
            refused.or_else(|| self.deny.iter().find(every_port).map(|rule| denied_by(rule, &host.to_string())));
        refused.map_or(Verdict::Unknown, Verdict::Denied)
    }

    /// Checks every address that a name resolved to: one bad address refuses all of them.
    pub fn addresses(&self, host: &Host, port: u16, found: &[IpAddr]) -> Result<(), Denial> {
        found.iter().try_for_each(|address| self.address(host, port, *address))
    }

    /// The addresses among these that are refused, where an answer about the name at them would let it be reached.
    pub fn could_be_paired(&self, host: &Host, port: u16, found: &[IpAddr]) -> Option<Vec<IpAddr>> {
        host.name()?;
        let refused: Vec<IpAddr> =
            found.iter().copied().filter(|address| self.address(host, port, *address).is_err()).collect();
        let mut answered_so = self.clone();
        answered_so.grant(Endpoint::at(host, port, &refused), answered(String::new()));
        answered_so.addresses(host, port, found).is_ok().then_some(refused)
    }

    /// The verdict about one request of HTTP.
    pub fn request(&self, host: &Host, port: u16, method: &str, path: &str) -> Verdict {
        if let Verdict::Denied(denial) = self.host(host, port) {
            return Verdict::Denied(denial);
        }
        let what = || format!("{method} {path}");
        let clear = request_path::clear(path);
        let denies = |rule: &&NetworkRule| {
            let path_matches = match &clear {
                Some(clear) => request_path::any_matches(&rule.paths, clear),
                None => !rule.paths.is_empty(),
            };
            rule.endpoint.denies(host, port)
                && (rule.methods.is_empty() || rule.methods.iter().any(|listed| listed.eq_ignore_ascii_case(method)))
                && (rule.paths.is_empty() || path_matches)
        };
        if let Some(rule) = self.deny.iter().find(denies) {
            return Verdict::Denied(denied_by(rule, &format!("{} at {}", what(), with_port(host, port))));
        }
        let about = self.allowing(host, port);
        let allows = |rule: &&&NetworkRule| {
            (rule.methods.is_empty() || rule.methods.iter().any(|listed| listed == method))
                && (rule.paths.is_empty()
                    || clear.as_ref().is_some_and(|clear| request_path::any_matches(&rule.paths, clear)))
        };
        match (about.iter().find(allows), about.first()) {
            (Some(rule), _) => Verdict::Allowed(decided(rule)),
            (None, None) => Verdict::Unknown,
            (None, Some(rule)) if clear.is_none() => Verdict::Denied(Denial {
                rule: written("allow", rule),
                origin: Some(rule.origin.clone()),
                why: format!("the path of `{}` can be read in more than one way, and the rule is about paths", what()),
                remedy: "send the path without dot segments, doubled slashes and needless escapes".to_owned(),
            }),
            (None, Some(rule)) => Verdict::Denied(Denial {
                rule: written("allow", rule),
                origin: Some(rule.origin.clone()),
                why: format!(
                    "`{}` is not among the methods and paths that are allowed at {}",
                    what(),
                    with_port(host, port)
                ),
                remedy: format!(
                    "network.allow = [{{ host = \"{}\", methods = [\"{method}\"], paths = [\"{}\"] }}]",
                    Endpoint::of(host, port),
                    path.split(['?', '#']).next().unwrap_or(path)
                ),
            }),
        }
    }

    /// Whether requests must be read one by one: rules about methods or paths count here, and opaque traffic would pass
    /// them by.
    pub fn inspects(&self, host: &Host, port: u16) -> bool {
        let allows = self.allowing(host, port);
        let denies = self.deny.iter().any(|rule| !rule.is_whole() && rule.endpoint.denies(host, port));
        denies || !allows.is_empty() && !allows.iter().any(|rule| rule.is_whole())
    }

    /// What allows this host. A rule that adds an address to it does not widen which requests others allow.
    fn allowing(&self, host: &Host, port: u16) -> Vec<&NetworkRule> {
        let mut about: Vec<&NetworkRule> = self.allow.iter().filter(|rule| rule.endpoint.allows(host, port)).collect();
        if about.iter().any(|rule| rule.endpoint.at.is_empty()) {
            about.retain(|rule| rule.endpoint.at.is_empty());
        }
        about
    }

    /// Every single port that a rule names, and those of the web.
    pub fn ports(&self) -> BTreeSet<u16> {
        let named = self.allow.iter().filter_map(|rule| match rule.endpoint.ports {
            Ports::One(port) => Some(port),
            Ports::Web | Ports::Any => None,
        });
        WEB_PORTS.into_iter().chain(named).collect()
    }

    /// Adds an answer that allows. It lifts no denial, and goes beyond no ceiling.
    pub fn grant(&mut self, endpoint: Endpoint, origin: Origin) {
        self.allow.push(NetworkRule::whole(endpoint, origin));
    }

    /// Adds an answer that denies.
    pub fn refuse(&mut self, endpoint: Endpoint, origin: Origin) {
        self.deny.push(NetworkRule::whole(endpoint, origin));
    }

    /// The addresses of this host changed.
    pub fn set_own(&mut self, own: Vec<IpAddr>) {
        self.own = own;
    }

    /// Why what is [`Verdict::Unknown`] is refused, where no question is asked.
    pub fn unlisted(&self, host: &Host, port: u16) -> Denial {
        let asked = with_port(host, port);
        let elsewhere = self.allow.iter().find(|rule| rule.endpoint.target.covers(host));
        let why = match elsewhere {
            Some(rule) => format!("`{}` is allowed, which is not about port {port}", rule.endpoint),
            None => format!("no rule allows {asked}"),
        };
        Denial {
            rule: "network.allow".to_owned(),
            origin: elsewhere.map(|rule| rule.origin.clone()),
            why,
            remedy: allow_it(host, port),
        }
    }

    fn denied(&self, host: &Host, port: u16) -> Option<Denial> {
        let whole = self.deny.iter().filter(|rule| rule.is_whole());
        for rule in whole {
            if rule.endpoint.denies(host, port) {
                return Some(denied_by(rule, &with_port(host, port)));
            }
        }
        let ceiling = self.within.first()?;
        if self.within.iter().any(|within| within.value.allows(host, port)) {
            return None;
        }
        let covering: Vec<String> = self.within.iter().map(|within| format!("`{}`", within.value)).collect();
        Some(Denial {
            rule: "network_hosts.within".to_owned(),
            origin: Some(ceiling.origin.clone()),
            why: format!("{} is beyond the ceiling: {} only", with_port(host, port), covering.join(", ")),
            remedy: "ask the operator who keeps the ceiling".to_owned(),
        })
    }

    fn address(&self, host: &Host, port: u16, address: IpAddr) -> Result<(), Denial> {
        let readings = std::iter::once(address).chain(embedded(address).into_iter().map(IpAddr::V4));
        for reading in readings {
            if let Some(rule) = self.deny.iter().find(|rule| rule.endpoint.denies_at(host, port, reading)) {
                return Err(denied_by(rule, &rule.endpoint.to_string()));
            }
            let reading = Host::Address(reading);
            if let Some(rule) = self.deny.iter().find(|rule| rule.is_whole() && rule.endpoint.denies(&reading, port)) {
                return Err(denied_by(rule, &at(host, address, port)));
            }
        }
        let Some((class, range)) = special(address, &self.own) else { return self.public(host, port, address) };
        let can_be_paired = can_be_paired(address, &self.own);
        let pairs = |rule: &NetworkRule| can_be_paired && pairs(rule, host, address, port, &range);
        let listed = self.allow.iter().any(|rule| lists(rule, address, port, class, &range) || pairs(rule));
        // An answer at run time may list what the ceiling does not.
        let itself = Host::Address(address);
        let within = self.within.is_empty() || self.within.iter().any(|within| within.value.allows(&itself, port));
        if listed && within {
            return Ok(());
        }
        let remedy = if class.is_never_allowed() {
            "nothing allows it".to_owned()
        } else {
            let endpoint = match host {
                Host::Name(_) if can_be_paired => Endpoint::at(host, port, &[address]),
                _ => Endpoint::of(&Host::Address(address), port),
            };
            format!("{}, in your own policy or on the command line", allow_this(&endpoint))
        };
        Err(Denial {
            rule: format!("{class} addresses are refused"),
            origin: None,
            why: format!("{} is {class}", at(host, address, port)),
            remedy,
        })
    }

    /// A rule with addresses is about these alone. What no rule is about was decided before.
    fn public(&self, host: &Host, port: u16, address: IpAddr) -> Result<(), Denial> {
        let mut about = self.allow.iter().filter(|rule| rule.endpoint.allows(host, port)).peekable();
        let Some(first) = about.peek().copied() else { return Ok(()) };
        if about.any(|rule| rule.endpoint.is_at(address)) {
            return Ok(());
        }
        Err(Denial {
            rule: written("allow", first),
            origin: Some(first.origin.clone()),
            why: format!("{} is not among the addresses that are allowed for it", at(host, address, port)),
            remedy: allow_this(&Endpoint::at(host, port, &[address])),
        })
    }

    /// Ports that stand for all that `ports` holds, as far as the rules tell ports apart.
    fn examples_of(&self, ports: Ports) -> Vec<u16> {
        match ports {
            Ports::One(port) => vec![port],
            Ports::Web => WEB_PORTS.to_vec(),
            Ports::Any => {
                let limits =
                    self.deny.iter().map(|rule| &rule.endpoint).chain(self.within.iter().map(|one| &one.value));
                let mut told_apart: BTreeSet<u16> = limits
                    .filter_map(|endpoint| match endpoint.ports {
                        Ports::One(port) => Some(port),
                        Ports::Web | Ports::Any => None,
                    })
                    .chain(WEB_PORTS)
                    .collect();
                told_apart.extend((1..=u16::MAX).find(|port| !told_apart.contains(port)));
                told_apart.into_iter().collect()
            }
        }
    }
}

/// Whether a rule of a trusted layer is about this very address, or about a network of nothing else.
fn lists(rule: &NetworkRule, address: IpAddr, port: u16, class: Class, range: &Cidr) -> bool {
    let Target::Net(net) = &rule.endpoint.target else { return false };
    let meant = if class.needs_exact_rule() { net.is_one() } else { range.covers(net) };
    !class.is_never_allowed()
        && !rule.origin.layer.is_untrusted()
        && meant
        && rule.endpoint.allows(&Host::Address(address), port)
}

/// Whether a rule is about this name at this very address, or at a network of nothing but its kind. A project's own file opens
/// no address; its local one is the user's, and counts once it is approved.
fn pairs(rule: &NetworkRule, host: &Host, address: IpAddr, port: u16, range: &Cidr) -> bool {
    rule.is_whole()
        && rule.origin.layer != Layer::Project
        && rule.endpoint.allows(host, port)
        && rule.endpoint.at.iter().any(|net| range.covers(net) && net.contains(address))
}

fn decided(rule: &NetworkRule) -> Decided {
    Decided { rule: written("allow", rule), origin: rule.origin.clone() }
}

fn denied_by(rule: &NetworkRule, what: &str) -> Denial {
    if is_answer(&rule.origin) {
        return Denial {
            rule: written("deny", rule),
            origin: Some(rule.origin.clone()),
            why: not_approved(what, &rule.origin.source),
            remedy: format!("approve it when it is asked about, or `--allow-host {what}`"),
        };
    }
    let reason = if rule.reason.is_empty() { String::new() } else { format!(": {}", rule.reason) };
    Denial {
        rule: written("deny", rule),
        origin: Some(rule.origin.clone()),
        why: format!("{what} is denied{reason}"),
        remedy: match rule.origin.layer {
            Layer::Requirements => format!("ask the operator who keeps {}", rule.origin.source),
            _ => format!("remove `{}` from network.deny ({})", rule.endpoint, rule.origin),
        },
    }
}

/// Where an answer at run time comes from: it counts like a flag, of which it does not have the name.
pub fn answered(source: String) -> Origin {
    Origin { layer: Layer::Flag, source: source.into(), line: None }
}

fn is_answer(origin: &Origin) -> bool {
    origin.layer == Layer::Flag && !origin.source.starts_with("--")
}

pub fn not_approved(what: &str, why: &str) -> String {
    format!("{what} was not approved: {why}")
}

fn written(list: &str, rule: &NetworkRule) -> String {
    format!("network.{list} = [\"{}\"]", rule.endpoint)
}

/// What lets a place be reached, as a flag and as a file has it.
pub fn allow_it(host: &Host, port: u16) -> String {
    allow_this(&Endpoint::of(host, port))
}

fn allow_this(endpoint: &Endpoint) -> String {
    format!("`--allow-host {endpoint}`, or network.allow = [\"{endpoint}\"]")
}

/// What a name stands for, in a message.
fn at(host: &Host, address: IpAddr, port: u16) -> String {
    let asked = with_port(host, port);
    if host.address() == Some(address) { asked } else { format!("{asked} leads to {address}, which") }
}
