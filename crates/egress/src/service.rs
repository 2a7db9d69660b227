//! The egress process of one session: takes the sockets that were made inside, accepts what programs send, and carries what
//! policy allows. Owns its start, the sockets and what all connections share; a connection's life is `transparent`'s and
//! `proxy`'s, names are `queries`'s. Runs in a process of its own, started by `launcher`.
//!
//! One thread: everything is shared without locks, and a program inside cannot make it start more.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_kernel::{landlock, network, privilege, process, socket};
use cofferdam_policy::{Endpoint, Host, Network, OnUnknown, Ruled, with_port};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixDatagram, UnixListener};
use tokio::task::LocalSet;

use crate::agent::{self, Agent, AgentStart};
use crate::carry::Carrier;
use crate::decide::{Decided, Denial, Rules, Verdict, allow_it, answered, not_approved};
use crate::inject::{Injection, Injections};
use crate::limits::{Connections, Place, Rate};
use crate::link::{Answer, Case, Link};
use crate::message::{Outcome, Told};
use crate::names::Names;
use crate::own::OwnAddresses;
use crate::publish::{self, Dialer, Published};
use crate::resolve::{Failure, Resolve};
use crate::terminate::Terminator;
use crate::trust::Trusted;
use crate::wire::dns;
use crate::{proxy, queries, transparent};

/// Where programs that know about proxies find one.
pub const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), 3128);
/// Names that have an address inside at the same time.
const MOST_NAMES: usize = 65_536;
/// Longest wait for one address of a host, when there are others.
const PER_ADDRESS: Duration = Duration::from_secs(4);
/// Longest wait for the last one.
const PER_HOST: Duration = Duration::from_secs(15);
/// How long what was sent last may take; the supervisor waits a little longer.
const LAST_BYTES: Duration = Duration::from_millis(1500);
const TURN: Duration = Duration::from_millis(1);
/// Descriptors for everything but connections.
const RESERVED: u64 = 128;

/// What a session's egress is started with.
#[derive(Debug)]
pub struct Start {
    pub network: Network,
    /// What happens to a place that no rule is about.
    pub unknown: Ruled<OnUnknown>,
    /// The user's ssh-agent, if programs inside may have it sign.
    pub agent: Option<AgentStart>,
    /// Ports of the session that can be reached from the host, and the way to who connects to them inside.
    pub published: Vec<Published>,
    pub dialer: Option<OwnedFd>,
    /// Where the sockets come from.
    pub sockets: OwnedFd,
    /// The supervisor.
    pub link: OwnedFd,
    /// Where some requests are read in TLS.
    pub terminates: Option<Terminates>,
}

/// What it takes to stand in the middle of TLS.
#[derive(Debug)]
pub struct Terminates {
    pub trusted: Trusted,
    pub injections: Vec<Injection>,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) rules: RefCell<Rules>,
    pub(crate) names: RefCell<Names>,
    pub(crate) resolve: Resolve,
    pub(crate) link: Rc<Link>,
    pub(crate) carrier: Rc<Carrier>,
    pub(crate) connections: Rc<Connections>,
    pub(crate) queries: Rate,
    pub(crate) header_timeout: Duration,
    pub(crate) unknown: Ruled<OnUnknown>,
    pub(crate) injections: Injections,
    pub(crate) terminator: Option<Terminator>,
    host_ports: Vec<Ruled<u16>>,
    own: OwnAddresses,
    warned: Cell<bool>,
}

/// Serves until the supervisor is gone.
pub fn serve(start: Start) -> Result<(), String> {
    process::die_with_parent().map_err(|errno| format!("the parent-death signal: {errno}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| format!("the event loop: {error}"))?;
    let local = LocalSet::new();
    local.block_on(&runtime, run(start))
}

async fn run(start: Start) -> Result<(), String> {
    let Start { network, unknown, agent, published, dialer, sockets, link, terminates } = start;
    let link = Link::new(link).map_err(|error| format!("the supervisor: {error}"))?;
    let (terminator, injections) = match terminates {
        Some(Terminates { trusted, injections }) => (Some(Terminator::new(&network, &trusted)?), injections),
        None => (None, Vec::new()),
    };
    if let Some(terminator) = &terminator {
        // Whoever builds the session waits for it.
        link.introduce(terminator.certificate()).await;
    }
    let files = process::raise_open_files().unwrap_or(1024);
    let room = usize::try_from(files.saturating_sub(RESERVED) / 2).unwrap_or(usize::MAX);
    let most = usize::try_from(network.max_connections.value).unwrap_or(usize::MAX).min(room);
    let resolvers: Vec<SocketAddr> = network.resolvers.iter().map(|resolver| resolver.value).collect();
    let own = OwnAddresses::open();
    let service = Rc::new(Service {
        rules: RefCell::new(Rules::new(&network, own.now())),
        names: RefCell::new(Names::new(MOST_NAMES, queries::TTL)),
        resolve: Resolve::new(&resolvers)?,
        link,
        carrier: Carrier::new(),
        connections: Connections::new(
            most,
            network.idle_timeout.value,
            network.bytes.as_ref().map(|bytes| bytes.value),
        ),
        queries: Rate::new(network.queries_per_second.value),
        header_timeout: network.header_timeout.value,
        unknown,
        injections: Injections::new(injections),
        terminator,
        host_ports: network.host_ports.clone(),
        own,
        warned: Cell::new(false),
    });
    // Everything that has to be read was read; from here on this process has no files.
    let restricted =
        process::forbid_tracing().is_ok() && privilege::no_new_privileges().is_ok() && landlock::forbid_files().is_ok();
    if !restricted {
        return Err("the egress process could not give up its files".to_owned());
    }
    if let Some(dialer) = dialer {
        let dialer = Dialer::new(dialer).map_err(|error| format!("published ports: {error}"))?;
        for one in published {
            tokio::task::spawn_local(publish::serve(Rc::clone(&service), Rc::clone(&dialer), one));
        }
    }
    let agent = agent.map(|start| Rc::new(Agent::new(start, Rc::clone(&service.link))));
    tokio::task::spawn_local(take_sockets(Rc::clone(&service), agent, sockets));
    tokio::task::spawn_local(keep_time(Rc::clone(&service)));
    while let Some(told) = service.link.hear().await {
        service.obey(told);
    }
    service.finish().await;
    Ok(())
}

async fn keep_time(service: Rc<Service>) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        service.connections.sweep();
        service.link.flush().await;
        let own = service.own.now();
        service.rules.borrow_mut().set_own(own);
    }
}

/// Until everybody who could send one is gone.
async fn take_sockets(service: Rc<Service>, agent: Option<Rc<Agent>>, from: OwnedFd) {
    if rustix::io::ioctl_fionbio(&from, true).is_err() {
        return;
    }
    let Ok(from) = UnixDatagram::from_std(from.into()) else { return };
    let mut is_first = true;
    loop {
        let received = from.async_io(Interest::READABLE, || Ok(socket::receive_now(&from)?)).await;
        let Some((message, fds)) = received.ok().filter(|(message, _)| !message.is_empty()) else { return };
        let mut fds = fds.into_iter();
        if message.first() == Some(&network::AGENT) {
            if let (Some(agent), Some(fd)) = (&agent, fds.next())
                && let Ok(listener) = UnixListener::from_std(fd.into())
            {
                tokio::task::spawn_local(agent::serve(Rc::clone(agent), listener));
            }
            continue;
        }
        if is_first && let Some(names) = fds.next() {
            tokio::task::spawn_local(queries::serve(Rc::clone(&service), names));
            if message.first() == Some(&network::CAUGHT_PORTS) {
                let text = "no nftables here: only the ports that rules name can be reached, and programs inside cannot \
                            listen on them";
                service.link.warn(text.to_owned()).await;
            }
        }
        is_first = false;
        for fd in fds {
            let listener = std::net::TcpListener::from(fd);
            if let Ok(listener) = TcpListener::from_std(listener) {
                tokio::task::spawn_local(accept(Rc::clone(&service), listener));
            }
        }
    }
}

async fn accept(service: Rc<Service>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, from)) => service.clone().begin(client, from).await,
            // Out of descriptors or memory: whoever waits in the backlog waits a little longer.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

impl Service {
    /// Nobody is inside any more. What programs sent last is delivered, as it would be without us, and what every connection
    /// carried is written down.
    async fn finish(&self) {
        let end = Instant::now() + LAST_BYTES;
        loop {
            // Whoever was not accepted yet is, before anything is looked at.
            tokio::time::sleep(TURN).await;
            if !self.connections.is_owing() || Instant::now() > end {
                break;
            }
        }
        self.connections.end();
        while !self.connections.is_empty() && Instant::now() < end + TURN * 100 {
            tokio::time::sleep(TURN).await;
        }
        self.link.flush().await;
    }

    /// Starts a connection's own task.
    async fn begin(self: Rc<Self>, client: TcpStream, from: SocketAddr) {
        let Ok(to) = client.local_addr().map(canonical) else { return };
        let Some(place) = self.connections.enter() else {
            reset(&client);
            if !self.warned.replace(true) {
                let most = self.connections.most();
                self.link
                    .warn(format!("more than {most} connections at once are refused [network.max_connections]"))
                    .await;
            }
            return;
        };
        let id = place.id();
        let service = Rc::clone(&self);
        let task = tokio::task::spawn_local(async move { service.serve(client, canonical(from), to, place).await });
        self.connections.watch(id, task.abort_handle());
    }

    async fn serve(self: Rc<Self>, client: TcpStream, from: SocketAddr, to: SocketAddr, place: Place) {
        if to == PROXY {
            return Box::pin(proxy::serve(&self, client, from, &place)).await;
        }
        if to.port() == network::NAME_PORT && !self.is_allowed_address(to) {
            return Box::pin(queries::serve_stream(&self, client)).await;
        }
        if to.ip().is_loopback() {
            let Some(listed) = self.host_ports.iter().find(|port| port.value == to.port()) else {
                return reset(&client);
            };
            let rule = format!("network.host_ports = [{}]", listed.value);
            let decided = Decided { rule, origin: listed.origin.clone() };
            return transparent::to_host(&self, client, to, &decided, &place).await;
        }
        let host = match to.ip() {
            IpAddr::V4(address) if is_synthetic(address) => {
                let name = self.names.borrow_mut().name_of(address, Instant::now()).map(str::to_owned);
                // One that was never given out, or long ago.
                let Some(name) = name else { return reset(&client) };
                Host::Name(name)
            }
            address => Host::Address(address),
        };
        transparent::serve(&self, client, from, (&host, to.port()), &place).await;
    }

    fn is_allowed_address(&self, to: SocketAddr) -> bool {
        matches!(self.rules.borrow().host(&Host::Address(to.ip()), to.port()), Verdict::Allowed(_))
    }

    /// Whether requests to this place are read one by one: for rules about them, or for a secret.
    pub(crate) fn reads(&self, host: &Host, port: u16) -> bool {
        self.injections.concern(host, port) || self.rules.borrow().inspects(host, port)
    }

    /// What is said about a place, by policy or by whoever is asked.
    pub(crate) async fn judge(&self, host: &Host, port: u16, from: Option<SocketAddr>) -> Result<Decided, Denial> {
        let verdict = self.rules.borrow().host(host, port);
        match verdict {
            Verdict::Allowed(decided) => Ok(decided),
            Verdict::Denied(denial) => Err(denial),
            Verdict::Unknown if self.unknown.value == OnUnknown::Deny => Err(self.rules.borrow().unlisted(host, port)),
            Verdict::Unknown if self.unknown.value == OnUnknown::AllowAndLog => {
                let rule = "unknown.verdict = \"allow-and-log\"".to_owned();
                Ok(Decided { rule, origin: self.unknown.origin.clone() })
            }
            Verdict::Unknown => match self.link.ask(&host.to_string(), port, from).await {
                Some(Answer { allowed: true, origin, .. }) => {
                    let rule = format!("{host}:{port}");
                    Ok(Decided { rule, origin: answered(origin) })
                }
                Some(Answer { origin, .. }) => Err(Denial {
                    rule: "unknown.verdict = \"ask\"".to_owned(),
                    origin: Some(self.unknown.origin.clone()),
                    why: not_approved(&with_port(host, port), &origin),
                    remedy: format!("approve it when it is asked about, or {}", allow_it(host, port)),
                }),
                None => Err(self.rules.borrow().unlisted(host, port)),
            },
        }
    }

    /// Resolves, checks every address and connects to one that was checked.
    pub(crate) async fn reach(&self, host: &Host, port: u16) -> Result<(TcpStream, IpAddr), Unreached> {
        let addresses = match host {
            Host::Address(address) => Rc::from([*address]),
            Host::Name(name) => {
                self.may_be_looked_up(host, port, name)?;
                self.resolve.addresses(name).await.map_err(Unreached::Unresolved)?
            }
        };
        self.rules.borrow().addresses(host, port, &addresses).map_err(Unreached::Denied)?;
        let mut last = Unreached::Unresolved(Failure::Nothing);
        for (index, address) in addresses.iter().enumerate() {
            let patience = if index + 1 == addresses.len() { PER_HOST } else { PER_ADDRESS };
            match tokio::time::timeout(patience, TcpStream::connect((*address, port))).await {
                Ok(Ok(stream)) => {
                    let _quick = stream.set_nodelay(true);
                    return Ok((stream, *address));
                }
                Ok(Err(error)) => last = Unreached::Refused(error),
                Err(_) => last = Unreached::Refused(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last)
    }

    /// A name that a program gives to the proxy leaves as a lookup does: it may be data, and there may be too many.
    fn may_be_looked_up(&self, host: &Host, port: u16, name: &str) -> Result<(), Unreached> {
        if dns::looks_tunnelled(name) {
            return Err(Unreached::Denied(Denial {
                rule: "names that look like data are refused".to_owned(),
                origin: None,
                why: format!("{} looks like data", with_port(host, port)),
                remedy: String::new(),
            }));
        }
        let now = Instant::now();
        let mut names = self.names.borrow_mut();
        if !names.has(name) {
            if !self.queries.take(now) {
                return Err(Unreached::Unresolved(Failure::TooMany));
            }
            // Where the table is full it counts again, which is what a limit is for.
            let _known = names.address_of(name, now);
        }
        Ok(())
    }

    fn obey(&self, told: Told) {
        match told {
            Told::Answer { id, allowed, keep, origin } => {
                if let Some(endpoint) = keep.as_deref().and_then(|keep| Endpoint::parse(keep).ok()) {
                    let mut rules = self.rules.borrow_mut();
                    let origin = answered(origin.clone());
                    if allowed { rules.grant(endpoint, origin) } else { rules.refuse(endpoint, origin) }
                }
                self.link.answer(id, Answer { allowed, kept: keep.is_some(), origin });
            }
        }
    }
}

/// Why a place that policy allows was not reached.
#[derive(Debug)]
pub(crate) enum Unreached {
    Unresolved(Failure),
    Denied(Denial),
    Refused(io::Error),
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreached::Unresolved(failure) => failure.fmt(f),
            Unreached::Denied(denial) => f.write_str(&denial.why),
            Unreached::Refused(error) => error.fmt(f),
        }
    }
}

impl Unreached {
    pub(crate) fn case(&self, host: &Host, port: u16) -> Case {
        match self {
            Unreached::Denied(denial) => denied(host, port, denial),
            Unreached::Unresolved(failure) => failed(host, port, &failure.to_string()),
            Unreached::Refused(error) => failed(host, port, &error.to_string()),
        }
    }
}

/// Programs choose the paths that a reason tells of, and a record must fit a message: a longer one would end the way to the
/// supervisor.
fn brief(text: &str) -> String {
    const MOST: usize = 300;
    match text.get(..text.floor_char_boundary(MOST)) {
        Some(kept) if kept.len() < text.len() => format!("{kept}...({} more bytes)", text.len() - kept.len()),
        _ => text.to_owned(),
    }
}

pub(crate) fn denied(host: &Host, port: u16, denial: &Denial) -> Case {
    Case {
        host: host.to_string(),
        port,
        address: None,
        verdict: Outcome::Denied,
        rule: brief(&denial.why),
        origin: denial.origin.as_ref().map(|origin| brief(&origin.to_string())).unwrap_or_default(),
        remedy: brief(&denial.remedy),
    }
}

pub(crate) fn failed(host: &Host, port: u16, why: &str) -> Case {
    let (origin, remedy) = (String::new(), String::new());
    Case { host: host.to_string(), port, address: None, verdict: Outcome::Failed, rule: brief(why), origin, remedy }
}

pub(crate) fn allowed(host: &Host, port: u16, address: IpAddr, decided: &Decided) -> Case {
    Case {
        host: host.to_string(),
        port,
        address: Some(address),
        verdict: Outcome::Allowed,
        rule: brief(&decided.rule),
        origin: brief(&decided.origin.to_string()),
        remedy: String::new(),
    }
}

/// Whether an address is one that stands for a name inside.
fn is_synthetic(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 198 && (18..=19).contains(&second)
}

/// The kernel tells a program that its connection was refused; it has no other word for that by now.
pub(crate) fn reset(client: &TcpStream) {
    let _at_once = rustix::net::sockopt::set_socket_linger(client, Some(Duration::ZERO));
}

/// A listener of both families writes IPv4 as mapped.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
