//! Ports of the session that can be reached from the host's loopback. Owns the carrying; the listeners were opened outside
//! before the session began, and connections inside are made by a process that lives in the session's network.
//! Started by `process::service`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener as StdListener};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use cofferdam_kernel::socket;
use cofferdam_policy::{Host, Origin};
use cofferdam_reach::decide::Decided;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixDatagram};
use tokio::sync::Mutex;

use crate::connections::context::Context;
use crate::connections::flow::{Recorded, carry, reset};
use crate::session::supervisor_link::Case;

/// A port that is published: its listener on the host, and where it leads.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) listener: StdListener,
    pub(crate) port: u16,
    pub(crate) origin: Origin,
}

/// The way to the process that connects inside; one connection at a time is asked for.
pub(crate) struct Dialer(Mutex<UnixDatagram>);

impl Dialer {
    pub(crate) fn new(way: OwnedFd) -> io::Result<Rc<Dialer>> {
        rustix::io::ioctl_fionbio(&way, true)?;
        Ok(Rc::new(Dialer(Mutex::new(UnixDatagram::from_std(way.into())?))))
    }

    async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        let way = self.0.lock().await;
        let asked = port.to_be_bytes();
        way.async_io(Interest::WRITABLE, || Ok(socket::send(way.as_fd(), &asked, None)?)).await?;
        let (_, fds) = way.async_io(Interest::READABLE, || Ok(socket::receive_now(&*way)?)).await?;
        let fd = fds.into_iter().next().ok_or(io::ErrorKind::ConnectionRefused)?;
        let stream = std::net::TcpStream::from(fd);
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

pub(crate) async fn serve(context: Rc<Context>, dialer: Rc<Dialer>, published: Published) {
    let Published { listener, port, origin } = published;
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let decided = Rc::new(Decided { rule: format!("network.publish, port {port}"), origin });
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Some(place) = context.connections.enter() else {
            reset(&client);
            continue;
        };
        let (context, dialer, decided) = (Rc::clone(&context), Rc::clone(&dialer), Rc::clone(&decided));
        let id = place.id();
        let connections = Rc::clone(&context.connections);
        let task = tokio::task::spawn_local(async move {
            let Ok(server) = dialer.dial(port).await else { return reset(&client) };
            let inside = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let case = Case::allowed(&Host::Address(inside), port, inside, &decided);
            let recorded = Recorded::open(&context.link, case).await;
            carry(&context, (&client, Vec::new()), &server, &recorded, &place).await;
        });
        connections.watch(id, task.abort_handle());
    }
}
