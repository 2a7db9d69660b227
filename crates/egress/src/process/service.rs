//! The life of the egress process: it reads what it needs of files, gives up files and rights, serves, and delivers what was
//! sent last. Owns the start, the clock and the end; accepting is `accept`'s, a connection's life `connections`'s.
//! Called by `program`.
//!
//! One thread: everything is shared without locks, and a program inside cannot make it start more.

use std::cell::Cell;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_kernel::own_addresses::OwnAddresses;
use cofferdam_kernel::{landlock, privilege, process, socket};
use cofferdam_policy::{Network, OnUnknown, Ruled};
use cofferdam_reach::decide::Rules;
use cofferdam_reach::message::Said;
use cofferdam_reach::start::{AgentStart, Terminates};
use rustix::fs::MemfdFlags;
use tokio::task::LocalSet;

use crate::connections::context::Context;
use crate::connections::published::{self, Dialer, Published};
use crate::connections::splice::Carrier;
use crate::names::dns_server::DnsServer;
use crate::names::lookups::Lookups;
use crate::process::accept::{Acceptor, take_sockets};
use crate::session::limits::Connections;
use crate::session::rules::SessionRules;
use crate::session::supervisor_link::Link;
use crate::ssh_agent::Agent;
use crate::tls::ca_bundle::Trusted;
use crate::tls::credentials::Injections;
use crate::tls::terminate::Terminator;

/// How long what was sent last may take; the supervisor waits a little longer.
const LAST_BYTES: Duration = Duration::from_millis(1500);
const TURN: Duration = Duration::from_millis(1);
/// Descriptors for everything but connections.
const RESERVED: u64 = 128;

/// What a session's egress is started with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) network: Network,
    /// What happens to a place that no rule is about.
    pub(crate) unknown: Ruled<OnUnknown>,
    /// The user's ssh-agent, if programs inside may have it sign.
    pub(crate) agent: Option<AgentStart>,
    /// Ports of the session that can be reached from the host, and the way to the process that connects to them inside.
    pub(crate) published: Vec<Published>,
    pub(crate) dialer: Option<OwnedFd>,
    /// Where the sockets come from.
    pub(crate) sockets: OwnedFd,
    /// Where some requests are read in TLS.
    pub(crate) terminates: Option<Terminates>,
}

/// Serves until the supervisor, at the other end of the link, is gone.
pub(crate) fn serve(start: Start, link: OwnedFd) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| format!("the event loop: {error}"))?;
    let local = LocalSet::new();
    local.block_on(&runtime, run(start, link))
}

async fn run(start: Start, link: OwnedFd) -> Result<(), String> {
    let Start { network, unknown, agent, published, dialer, sockets, terminates } = start;
    let (terminator, injections) = match terminates {
        Some(Terminates { trusted, injections }) => {
            let (trusted, hosts) = (Trusted::new(trusted), injections.iter().map(|one| one.host.clone()));
            let terminator = Terminator::new(&network, hosts, &trusted)?;
            // The supervisor waits for it before it builds the session.
            introduce(link.as_fd(), &trusted, terminator.certificate())
                .map_err(|error| format!("certificates: {error}"))?;
            (Some(terminator), injections)
        }
        None => (None, Vec::new()),
    };
    let link = Link::new(link).map_err(|error| format!("the supervisor: {error}"))?;
    let files = process::raise_open_files().unwrap_or(1024);
    let room = usize::try_from(files.saturating_sub(RESERVED) / 2).unwrap_or(usize::MAX);
    let most = usize::try_from(network.max_connections.value).unwrap_or(usize::MAX).min(room);
    let resolvers: Vec<SocketAddr> = network.resolvers.iter().map(|resolver| resolver.value).collect();
    let own = OwnAddresses::open();
    let rules = SessionRules::new(Rules::new(&network, own.now()), unknown, Rc::clone(&link));
    let lookups = Lookups::new(&resolvers, network.queries_per_second.value)?;
    let dns = DnsServer { rules: Rc::clone(&rules), lookups: Rc::clone(&lookups), link: Rc::clone(&link) };
    let bytes = network.bytes.as_ref().map(|bytes| bytes.value);
    let context = Rc::new(Context {
        rules,
        lookups,
        link,
        connections: Connections::new(most, network.idle_timeout.value, bytes),
        carrier: Carrier::new(),
        header_timeout: network.header_timeout.value,
        injections: Injections::new(injections),
        terminator,
    });
    // Everything that has to be read was read; from here on this process has no files.
    // A kernel without Landlock leaves them: the posture says so from the start.
    if privilege::no_new_privileges().is_err() || landlock::forbid_files().is_err() {
        return Err("the egress process could not give up its files".to_owned());
    }
    if let Some(dialer) = dialer {
        let dialer = Dialer::new(dialer).map_err(|error| format!("published ports: {error}"))?;
        for one in published {
            tokio::task::spawn_local(published::serve(Rc::clone(&context), Rc::clone(&dialer), one));
        }
    }
    let acceptor = Acceptor {
        context: Rc::clone(&context),
        dns: Rc::new(dns),
        agent: agent.map(|start| Rc::new(Agent::new(start, Rc::clone(&context.link)))),
        host_ports: network.host_ports.clone(),
        warned: Cell::new(false),
    };
    tokio::task::spawn_local(take_sockets(Rc::new(acceptor), sockets));
    tokio::task::spawn_local(keep_time(Rc::clone(&context), own));
    while let Some(told) = context.link.hear().await {
        context.rules.apply(told);
    }
    finish(&context).await;
    Ok(())
}

/// Hands the supervisor what programs inside are to believe.
fn introduce(link: BorrowedFd<'_>, trusted: &Trusted, certificate: &[u8]) -> std::io::Result<()> {
    let file = |content: &[u8]| {
        let mut file = File::from(rustix::fs::memfd_create("trusted", MemfdFlags::CLOEXEC)?);
        file.write_all(content).map(|()| file)
    };
    let (pem, java) = (file(trusted.bundle(certificate).as_bytes())?, file(&trusted.java_store(certificate))?);
    let word = serde_json::to_vec(&Said::Authority)?;
    Ok(socket::send_all(link, &word, &[pem.as_fd(), java.as_fd()])?)
}

async fn keep_time(context: Rc<Context>, own: OwnAddresses) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        context.connections.sweep();
        context.link.flush().await;
        context.rules.set_own(own.now());
    }
}

/// No process is inside any more. What programs sent last is delivered, as it would be without us, and what every connection
/// carried is written down.
async fn finish(context: &Context) {
    let end = Instant::now() + LAST_BYTES;
    loop {
        // Connections that were not accepted yet are, before anything is looked at.
        tokio::time::sleep(TURN).await;
        if !context.connections.is_owing() || Instant::now() > end {
            break;
        }
    }
    context.connections.end();
    while !context.connections.is_empty() && Instant::now() < end + TURN * 100 {
        tokio::time::sleep(TURN).await;
    }
    context.link.flush().await;
}
