//! One connection that was allowed: for whom and by what, its server, its record, and carrying it. Owns what every way to
//! carry one has in common; what it may begin with is looked at by `tunnel` and `http`. Used by all of `connections`.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cofferdam_policy::Host;
use cofferdam_reach::decide::{Decided, Denial};
use tokio::net::TcpStream;

use crate::connections::context::Context;
use crate::connections::splice::{Way, write_all};
use crate::session::limits::Place;
use crate::session::supervisor_link::{Case, Link};

/// A connection that was allowed, and by what.
#[derive(Clone, Copy)]
pub(crate) struct Flow<'a> {
    pub(crate) context: &'a Context,
    pub(crate) host: &'a Host,
    pub(crate) port: u16,
    pub(crate) decided: &'a Decided,
    /// The program's end of its connection.
    pub(crate) from: SocketAddr,
    pub(crate) place: &'a Place,
}

/// A server that was connected already, if one was.
pub(crate) type Dialled<'a> = Option<(TcpStream, Recorded<'a>)>;

impl<'a> Flow<'a> {
    pub(crate) async fn connected(self, dialled: Dialled<'a>, client: &TcpStream) -> Dialled<'a> {
        if dialled.is_some() {
            return dialled;
        }
        let Flow { context, host, port, decided, from, .. } = self;
        match context.reach(host, port, from).await {
            Ok((server, address)) => {
                let case = Case::allowed(host, port, address, decided);
                Some((server, Recorded::open(&context.link, case).await))
            }
            Err(unreached) => {
                context.link.open(&unreached.case(host, port)).await;
                reset(client);
                None
            }
        }
    }

    pub(crate) async fn refuse(self, client: &TcpStream, why: &'static str) {
        let denial = Denial {
            rule: "what is carried must fit the host".to_owned(),
            origin: None,
            why: why.to_owned(),
            remedy: String::new(),
        };
        self.context.link.open(&Case::denied(self.host, self.port, &denial)).await;
        reset(client);
    }
}

/// What one connection carried goes to the record when it ends, however it ends.
pub(crate) struct Recorded<'a> {
    link: &'a Link,
    case: Case,
    pub(crate) up: Cell<u64>,
    pub(crate) down: Cell<u64>,
}

impl<'a> Recorded<'a> {
    /// Tells the supervisor of the connection first.
    pub(crate) async fn open(link: &'a Link, case: Case) -> Self {
        link.open(&case).await;
        Recorded { link, case, up: Cell::new(0), down: Cell::new(0) }
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        self.link.close(&self.case, self.up.get(), self.down.get());
    }
}

/// Carries both directions to their end; `bytes` were read from the client already.
pub(crate) async fn carry(
    context: &Context,
    (client, bytes): (&TcpStream, Vec<u8>),
    server: &TcpStream,
    recorded: &Recorded<'_>,
    place: &Place,
) {
    let (traffic, is_last) = (&place.traffic, &Cell::new(false));
    let there = Way { from: client, to: server, carried: &recorded.up, traffic, is_last };
    let back = Way { from: server, to: client, carried: &recorded.down, traffic, is_last };
    // How it ended is the programs' business.
    let sending = async {
        let _sent = send_and_carry(context, bytes, &there).await;
        place.traffic.settle(true);
    };
    let ((), _received) = tokio::join!(sending, context.carrier.one(&back));
}

async fn send_and_carry(context: &Context, bytes: Vec<u8>, way: &Way<'_>) -> io::Result<()> {
    if !bytes.is_empty() {
        way.count(bytes.len())?;
        write_all(way.to, &bytes).await?;
        drop(bytes);
    }
    context.carrier.one(way).await
}

/// The kernel tells a program that its connection was refused; it has no other word for that by now.
pub(crate) fn reset(client: &TcpStream) {
    let _at_once = rustix::net::sockopt::set_socket_linger(client, Some(Duration::ZERO));
}
