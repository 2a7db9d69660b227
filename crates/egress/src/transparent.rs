//! A connection that a program made as if there were nothing in between. Owns what is looked at before its first byte
//! leaves: TLS must name the host that was asked for, plain HTTP too, and a host with rules about requests takes nothing else.
//! Called by `service` for every connection that is not to the proxy.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cofferdam_policy::Host;
use rustix::net::Shutdown;
use tokio::net::TcpStream;

use crate::carry::{Way, write_all};
use crate::decide::{Decided, Denial};
use crate::limits::Place;
use crate::link::Case;
use crate::proxy;
use crate::service::{self, Service, Unreached, reset};
use crate::wire::{Progress, hello};

/// What a program sends first, as far as it is looked at.
const LOOKED_AT: usize = 16 << 10;

/// Ports on which nothing but their protocol is carried.
const TLS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// A connection that was allowed, and by what.
#[derive(Clone, Copy)]
pub(crate) struct Flow<'a> {
    pub(crate) service: &'a Service,
    pub(crate) host: &'a Host,
    pub(crate) port: u16,
    pub(crate) decided: &'a Decided,
    pub(crate) place: &'a Place,
}

/// A server that somebody has connected already.
pub(crate) type Dialled<'a> = Option<(TcpStream, Recorded<'a>)>;

pub(crate) async fn serve(
    service: &Service,
    client: TcpStream,
    from: SocketAddr,
    (host, port): (&Host, u16),
    place: &Place,
) {
    match service.judge(host, port, Some(from)).await {
        Ok(decided) => {
            let flow = Flow { service, host, port, decided: &decided, place };
            if port == HTTP_PORT {
                // What few connections need does not stand in the memory of all.
                Box::pin(proxy::serve_origin(flow, client, Vec::new(), None)).await;
            } else {
                tunnel(flow, client, Vec::new(), None).await;
            }
        }
        Err(denial) => {
            service.link.open(&service::denied(host, port, &denial)).await;
            reset(&client);
        }
    }
}

/// Carries a connection that was allowed, once what it begins with (`read` is what came already) fits the name.
pub(crate) async fn tunnel<'a>(flow: Flow<'a>, client: TcpStream, mut read: Vec<u8>, dialled: Dialled<'a>) {
    let Flow { service, host, port, .. } = flow;
    let reads = service.reads(host, port);
    if port != TLS_PORT && !reads {
        return tunnel_anything(flow, client, read, dialled).await;
    }
    let looked = tokio::time::timeout(service.header_timeout, look(&client, &mut read, host)).await;
    let refused = match looked {
        Ok(Ok(Kind::Tls)) if !reads => None,
        Ok(Ok(Kind::Tls)) => match &service.terminator {
            Some(terminator) => {
                return Box::pin(proxy::serve_terminated(flow, terminator, client, read, dialled)).await;
            }
            None => Some("its rules are about requests, which TLS hides"),
        },
        Ok(Ok(_)) if port == TLS_PORT => Some("only TLS is carried to port 443"),
        Ok(Ok(Kind::Http)) => return Box::pin(proxy::serve_origin(flow, client, read, dialled)).await,
        Ok(Ok(_)) => Some("its requests are read, and this is neither HTTP nor TLS"),
        Ok(Err(why)) => Some(why),
        Err(_) => Some("nothing that names the host came in time"),
    };
    if let Some(why) = refused {
        return flow.refuse(&client, why).await;
    }
    let Some((server, recorded)) = flow.connected(dialled, &client).await else { return };
    carry(service, (&client, read), &server, &recorded, flow.place).await;
}

/// A server may speak first, so it is connected before anything was said.
async fn tunnel_anything<'a>(flow: Flow<'a>, client: TcpStream, mut read: Vec<u8>, dialled: Dialled<'a>) {
    let Flow { service, host, place, .. } = flow;
    let Some((server, recorded)) = flow.connected(dialled, &client).await else { return };
    let looked = tokio::select! {
        biased;
        looked = look(&client, &mut read, host) => looked,
        _ = server.readable() => Ok(Kind::Unclear),
    };
    match looked {
        Ok(Kind::Http) => Box::pin(proxy::serve_origin(flow, client, read, Some((server, recorded)))).await,
        Ok(Kind::Unclear) => {
            let (traffic, is_last) = (&place.traffic, &Cell::new(false));
            let back = Way { from: &server, to: &client, carried: &recorded.down, traffic, is_last };
            let there = Way { from: &client, to: &server, carried: &recorded.up, traffic, is_last };
            let sent = async {
                let sent = send_watched(service, read, host, &there).await;
                place.traffic.settle(true);
                if let Err(why) = sent {
                    flow.refuse(&client, why).await;
                    shut(&server);
                    shut(&client);
                }
            };
            // How it ended is the programs' business.
            let ((), _received) = tokio::join!(sent, service.carrier.one(&back));
        }
        Ok(Kind::Tls | Kind::Other) => carry(service, (&client, read), &server, &recorded, place).await,
        Err(why) => flow.refuse(&client, why).await,
    }
}

impl<'a> Flow<'a> {
    async fn connected(self, dialled: Dialled<'a>, client: &TcpStream) -> Dialled<'a> {
        if dialled.is_some() {
            return dialled;
        }
        let Flow { service, host, port, decided, .. } = self;
        match service.reach(host, port).await {
            Ok((server, address)) => {
                let case = service::allowed(host, port, address, decided);
                service.link.open(&case).await;
                Some((server, Recorded::new(service, case)))
            }
            Err(unreached) => {
                service.link.open(&unreached.case(host, port)).await;
                reset(client);
                None
            }
        }
    }

    async fn refuse(self, client: &TcpStream, why: &'static str) {
        let denial = Denial {
            rule: "what is carried must fit the host".to_owned(),
            origin: None,
            why: why.to_owned(),
            remedy: String::new(),
        };
        self.service.link.open(&service::denied(self.host, self.port, &denial)).await;
        reset(client);
    }
}

/// Where the server spoke first, or the program says too little to know what it speaks: what it says goes on, and is looked
/// at for as long as it could still turn out to be something that names a host.
async fn send_watched(service: &Service, first: Vec<u8>, host: &Host, way: &Way<'_>) -> Result<(), &'static str> {
    const FAILED: &str = "the connection failed";
    let mut seen = first;
    let mut sent = 0;
    loop {
        let kind = kind_of(&seen, host)?;
        if kind == Some(Kind::Http) {
            return Err("a request that begins in pieces, or to a server that spoke first");
        }
        // A greeting of TLS goes on once it is known whom it names.
        if kind.is_some() || !seen.starts_with(&[HANDSHAKE]) {
            way.count(seen.len() - sent).map_err(|_| FAILED)?;
            write_all(way.to, &seen[sent..]).await.map_err(|_| FAILED)?;
            sent = seen.len();
        }
        if kind.is_some() {
            break;
        }
        if read_more(way.from, &mut seen).await.map_err(|_| FAILED)? == 0 {
            break;
        }
    }
    drop(seen);
    // How it ended is the programs' business.
    drop(service.carrier.one(way).await);
    Ok(())
}

pub(crate) async fn carry(
    service: &Service,
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
        let _sent = send_and_carry(service, bytes, &there).await;
        place.traffic.settle(true);
    };
    let ((), _received) = tokio::join!(sending, service.carrier.one(&back));
}

async fn send_and_carry(service: &Service, bytes: Vec<u8>, way: &Way<'_>) -> io::Result<()> {
    if !bytes.is_empty() {
        way.count(bytes.len())?;
        write_all(way.to, &bytes).await?;
        drop(bytes);
    }
    service.carrier.one(way).await
}

/// To one chosen port of the host's loopback.
pub(crate) async fn to_host(service: &Service, client: TcpStream, to: SocketAddr, decided: &Decided, place: &Place) {
    let host = Host::Address(to.ip());
    let server = match TcpStream::connect(to).await {
        Ok(server) => server,
        Err(error) => {
            service.link.open(&Unreached::Refused(error).case(&host, to.port())).await;
            return reset(&client);
        }
    };
    let case = service::allowed(&host, to.port(), to.ip(), decided);
    service.link.open(&case).await;
    let recorded = Recorded::new(service, case);
    carry(service, (&client, Vec::new()), &server, &recorded, place).await;
}

fn shut(stream: &TcpStream) {
    // It may be shut already, which is what is wanted.
    let _shut = rustix::net::shutdown(stream, Shutdown::Both);
}

/// What one connection carried goes to the record when it ends, however it ends.
pub(crate) struct Recorded<'a> {
    service: &'a Service,
    case: Case,
    pub(crate) up: Cell<u64>,
    pub(crate) down: Cell<u64>,
}

impl<'a> Recorded<'a> {
    pub(crate) fn new(service: &'a Service, case: Case) -> Self {
        Recorded { service, case, up: Cell::new(0), down: Cell::new(0) }
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        self.service.link.close(&self.case, self.up.get(), self.down.get());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Names the host.
    Tls,
    /// Looks like a request, about which `proxy` decides.
    Http,
    Other,
    /// Too little to know, and the program waits.
    Unclear,
}

/// A record of TLS that greets.
const HANDSHAKE: u8 = 0x16;
/// How long a program may take between the first letters of what could be a request.
const BETWEEN_LETTERS: Duration = Duration::from_millis(100);

/// Reads as much as it takes to know what a program begins with. Bytes are taken off the connection, into `read`: who only
/// looks would be woken again and again. Whoever stops waiting finds there what came until then.
async fn look(client: &TcpStream, read: &mut Vec<u8>, host: &Host) -> Result<Kind, &'static str> {
    loop {
        if let Some(kind) = kind_of(read, host)? {
            return Ok(kind);
        }
        let is_letters = !read.is_empty() && !read.starts_with(&[HANDSHAKE]);
        let reading = read_more(client, read);
        let length = if is_letters {
            match tokio::time::timeout(BETWEEN_LETTERS, reading).await {
                Ok(length) => length,
                Err(_) => return Ok(Kind::Unclear),
            }
        } else {
            reading.await
        };
        if length.map_err(|_| "the connection failed")? == 0 {
            return Ok(Kind::Other);
        }
    }
}

/// Room is made once there is something: a connection that says nothing holds none.
async fn read_more(from: &TcpStream, into: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        from.readable().await?;
        into.reserve(2048);
        match from.try_read_buf(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

/// None while it cannot be known.
fn kind_of(bytes: &[u8], host: &Host) -> Result<Option<Kind>, &'static str> {
    const METHODS: &[&[u8]] =
        &[b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ", b"PRI "];
    match bytes {
        [] => Ok(None),
        [HANDSHAKE, 3, ..] => match hello::server_name(bytes) {
            Progress::Partial if bytes.len() > LOOKED_AT => Err("a TLS greeting that does not end"),
            Progress::Partial => Ok(None),
            Progress::Bad(why, _) => Err(why),
            Progress::Done(hello, _) => match (host, hello.sni) {
                (Host::Name(name), Some(asked)) if asked.trim_end_matches('.').eq_ignore_ascii_case(name) => {
                    Ok(Some(Kind::Tls))
                }
                (Host::Name(_), Some(_)) => Err("TLS names another host than the one that was asked for"),
                (Host::Name(_), None) => Err("TLS does not name the host"),
                // An address that policy lists needs no name.
                (Host::Address(_), _) => Ok(Some(Kind::Tls)),
            },
        },
        [HANDSHAKE] => Ok(None),
        _ if METHODS.iter().any(|method| bytes.starts_with(method)) => Ok(Some(Kind::Http)),
        _ if METHODS.iter().any(|method| method.starts_with(bytes)) => Ok(None),
        _ => Ok(Some(Kind::Other)),
    }
}
