//! Takes the sockets that were made inside the session, and accepts what programs connect to. Owns telling by its
//! destination what a connection is: the proxy's, a name query, a port of the host, or a host's; what happens on it is
//! `connections`'s and `names`'s. Started by `service`.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use cofferdam_kernel::{network, socket};
use cofferdam_policy::{Host, Ruled};
use cofferdam_reach::decide::Decided;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixDatagram, UnixListener};

use crate::connections::context::Context;
use crate::connections::flow::reset;
use crate::connections::{intercepted, proxy};
use crate::names::dns_server::{self, DnsServer};
use crate::names::lookups::is_synthetic;
use crate::session::limits::Place;
use crate::ssh_agent::{self, Agent};

/// Where programs that know about proxies find one.
pub(crate) const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), 3128);

#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) context: Rc<Context>,
    pub(crate) dns: Rc<DnsServer>,
    pub(crate) agent: Option<Rc<Agent>>,
    /// Ports of the host's loopback that programs inside may connect to.
    pub(crate) host_ports: Vec<Ruled<u16>>,
    /// Whether the supervisor was told that there are too many connections.
    pub(crate) warned: Cell<bool>,
}

/// Until every process that could send one is gone.
pub(crate) async fn take_sockets(acceptor: Rc<Acceptor>, from: OwnedFd) {
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
            if let (Some(agent), Some(fd)) = (&acceptor.agent, fds.next())
                && let Ok(listener) = UnixListener::from_std(fd.into())
            {
                tokio::task::spawn_local(ssh_agent::serve(Rc::clone(agent), listener));
            }
            continue;
        }
        if is_first && let Some(names) = fds.next() {
            tokio::task::spawn_local(dns_server::serve(Rc::clone(&acceptor.dns), names));
            if message.first() == Some(&network::CAUGHT_PORTS) {
                let text = "no nftables here: only the ports that rules name can be reached, and programs inside cannot \
                            listen on them";
                acceptor.context.link.warn(text.to_owned()).await;
            }
        }
        is_first = false;
        for fd in fds {
            let listener = std::net::TcpListener::from(fd);
            if let Ok(listener) = TcpListener::from_std(listener) {
                tokio::task::spawn_local(accept(Rc::clone(&acceptor), listener));
            }
        }
    }
}

async fn accept(acceptor: Rc<Acceptor>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((client, from)) => Rc::clone(&acceptor).begin(client, from).await,
            // Out of descriptors or memory: clients in the backlog wait a little longer.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

impl Acceptor {
    /// Starts a connection's own task.
    async fn begin(self: Rc<Self>, client: TcpStream, from: SocketAddr) {
        let Ok(to) = client.local_addr().map(canonical) else { return };
        let connections = &self.context.connections;
        let Some(place) = connections.enter() else {
            reset(&client);
            if !self.warned.replace(true) {
                let most = connections.most();
                let text = format!("more than {most} connections at once are refused [network.max_connections]");
                self.context.link.warn(text).await;
            }
            return;
        };
        let id = place.id();
        let acceptor = Rc::clone(&self);
        let task = tokio::task::spawn_local(async move { acceptor.serve(client, canonical(from), to, place).await });
        connections.watch(id, task.abort_handle());
    }

    async fn serve(self: Rc<Self>, client: TcpStream, from: SocketAddr, to: SocketAddr, place: Place) {
        let context = &*self.context;
        if to == PROXY {
            return Box::pin(proxy::serve(context, client, from, &place)).await;
        }
        if to.port() == network::NAME_PORT && !context.rules.allows_address(to) {
            return Box::pin(dns_server::serve_stream(&self.dns, client)).await;
        }
        if to.ip().is_loopback() {
            let Some(listed) = self.host_ports.iter().find(|port| port.value == to.port()) else {
                return reset(&client);
            };
            let rule = format!("network.host_ports = [{}]", listed.value);
            let decided = Decided { rule, origin: listed.origin.clone() };
            return intercepted::to_host(context, client, to, &decided, &place).await;
        }
        let host = match to.ip() {
            IpAddr::V4(address) if is_synthetic(address) => {
                // One that was never given out, or long ago.
                let Some(name) = context.lookups.name_of(address) else { return reset(&client) };
                Host::Name(name)
            }
            address => Host::Address(address),
        };
        intercepted::serve(context, client, from, (&host, to.port()), &place).await;
    }
}

/// A listener of both families writes IPv4 as mapped.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
