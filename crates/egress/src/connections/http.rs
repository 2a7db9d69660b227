//! Requests of HTTP/1.x, one after the other on a client's connection, each decided on its own and sent on. Owns framing and
//! reuse of both connections; what a request means is `wire::http`'s, whether it may go `decide`'s. Redirects are responses
//! like others: following one is a new request. Called by `intercepted`, `tunnel` and `proxy`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use cofferdam_policy::{Host, parse_authority};
use cofferdam_reach::decide::{Decided, Denial, Verdict};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::connections::context::{Context, Unreached};
use crate::connections::flow::{Dialled, Flow, Recorded};
use crate::session::limits::Place;
use crate::session::supervisor_link::Case;
use crate::tls::terminate::Terminator;
use crate::wire::Progress;
use crate::wire::http::{REQUEST_HEAD_MAX, RequestHead, RequestTarget, denial, parse_request, rewrite};

mod transfer;

pub(crate) use transfer::Incoming;
use transfer::{Body, pass, respond};

/// Read at once.
const CHUNK: usize = 4096;
/// Longest wait for a server to begin TLS.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Whom the requests of a connection are for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum For<'a> {
    /// The host that each names: the program knows that it speaks to a proxy.
    AnyHost { from: SocketAddr },
    /// The host that the program connected to, in TLS that ends here where it is secure.
    One { host: &'a Host, port: u16, decided: &'a Decided, from: SocketAddr, secure: Option<&'a Terminator> },
}

/// A server that a request was sent to, for the next one.
pub(crate) struct Server<'a> {
    host: Host,
    port: u16,
    incoming: Incoming<Box<dyn AsyncRead + Unpin>>,
    outgoing: Box<dyn AsyncWrite + Unpin>,
    recorded: Recorded<'a>,
}

impl<'a> Server<'a> {
    pub(crate) fn new(host: &Host, port: u16, stream: TcpStream, recorded: Recorded<'a>) -> Self {
        let (from, outgoing) = stream.into_split();
        Server::of(host, port, Box::new(from), Box::new(outgoing), recorded)
    }

    fn of(
        host: &Host,
        port: u16,
        from: Box<dyn AsyncRead + Unpin>,
        outgoing: Box<dyn AsyncWrite + Unpin>,
        recorded: Recorded<'a>,
    ) -> Self {
        let incoming = Incoming { from, bytes: Vec::new() };
        Server { host: host.clone(), port, incoming, outgoing, recorded }
    }

    /// A server may have closed a connection that was not used for a while.
    fn is_usable(&mut self, host: &Host, port: u16) -> bool {
        self.host == *host && self.port == port && self.incoming.bytes.is_empty() && self.is_silent()
    }

    /// Only looks: the task that reads next is woken for itself.
    fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        let mut context = TaskContext::from_waker(Waker::noop());
        let looked = Pin::new(&mut self.incoming.from).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
        looked.is_pending()
    }
}

/// A client that sent plain HTTP to a server of its choice, of which `read` was read.
pub(crate) async fn serve_origin<'a>(flow: Flow<'a>, client: TcpStream, read: Vec<u8>, dialled: Dialled<'a>) {
    let Flow { context, host, port, decided, from, place } = flow;
    let (reading, writing) = client.into_split();
    let server = dialled.map(|(stream, recorded)| Server::new(host, port, stream, recorded));
    let mut exchange = Exchange {
        context,
        incoming: Incoming { from: reading, bytes: read },
        outgoing: writing,
        whom: For::One { host, port, decided, from, secure: None },
        server,
        dialled: None,
        place,
    };
    // A client that goes away in the middle needs no answer.
    drop(exchange.run().await);
}

/// A client that began TLS with a host whose requests are read.
pub(crate) async fn serve_terminated<'a>(
    flow: Flow<'a>,
    terminator: &'a Terminator,
    client: TcpStream,
    read: Vec<u8>,
    dialled: Dialled<'a>,
) {
    let Flow { context, host, port, decided, from, place } = flow;
    let accepted = tokio::time::timeout(context.header_timeout, terminator.accept(host, client, read)).await;
    let stream = match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) => {
            let why = format!("the program does not speak TLS with the session's own authority: {error}");
            return context.link.open(&Case::failed(host, port, &why)).await;
        }
    };
    let (reading, writing) = tokio::io::split(stream);
    let mut exchange = Exchange {
        context,
        incoming: Incoming { from: reading, bytes: Vec::new() },
        outgoing: writing,
        whom: For::One { host, port, decided, from, secure: Some(terminator) },
        server: None,
        dialled,
        place,
    };
    // The same; but TLS says when it is over.
    drop(exchange.run().await);
    drop(exchange.outgoing.shutdown().await);
}

/// The requests of one client.
pub(crate) struct Exchange<'a, R, W> {
    pub(crate) context: &'a Context,
    pub(crate) incoming: Incoming<R>,
    pub(crate) outgoing: W,
    pub(crate) whom: For<'a>,
    pub(crate) server: Option<Server<'a>>,
    /// The server is connected, and TLS with it has not begun.
    pub(crate) dialled: Option<(TcpStream, Recorded<'a>)>,
    pub(crate) place: &'a Place,
}

/// A tunnel that was agreed on.
pub(crate) struct Agreed {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) decided: Decided,
    pub(crate) server: TcpStream,
    pub(crate) address: std::net::IpAddr,
}

/// A request that is not sent on.
struct Refusal {
    status: u16,
    rule: String,
    why: String,
    remedy: String,
}

impl Refusal {
    fn malformed(status: u16, why: &str) -> Refusal {
        Refusal { status, rule: "malformed request".to_owned(), why: why.to_owned(), remedy: String::new() }
    }

    fn denied(denial: &Denial) -> Refusal {
        let rule = match &denial.origin {
            Some(origin) => format!("{} [{origin}]", denial.rule),
            None => denial.rule.clone(),
        };
        Refusal { status: 403, rule, why: denial.why.clone(), remedy: denial.remedy.clone() }
    }
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Exchange<'a, R, W> {
    /// Until the client is done, or wants a tunnel.
    pub(crate) async fn run(&mut self) -> io::Result<Option<Agreed>> {
        loop {
            let Some(length) = self.head().await? else { return Ok(None) };
            let head = self.incoming.bytes[..length].to_vec();
            let request = match parse_request(&head) {
                Progress::Done(request, _) => request,
                Progress::Bad(why, status) => {
                    self.refuse(&Refusal::malformed(status, why)).await?;
                    return Ok(None);
                }
                Progress::Partial => return Ok(None),
            };
            self.incoming.bytes.drain(..length);
            if let RequestTarget::Authority { host, port } = request.target {
                return self.connect(host, port).await;
            }
            let goes_on = self.one(&request).await?;
            self.place.traffic.settle(false);
            if !goes_on {
                return Ok(None);
            }
        }
    }

    /// Reads until a head is complete; None when the connection is over.
    async fn head(&mut self) -> io::Result<Option<usize>> {
        let mut is_idle = self.incoming.bytes.is_empty();
        let deadline = tokio::time::Instant::now() + self.context.header_timeout;
        loop {
            let end = self.incoming.bytes.windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(end) = end.filter(|end| *end < REQUEST_HEAD_MAX) {
                return Ok(Some(end + 4));
            }
            // What is wrong already is told before the rest comes.
            match parse_request(&self.incoming.bytes) {
                Progress::Done(_, length) => return Ok(Some(length)),
                Progress::Bad(why, status) => {
                    self.refuse(&Refusal::malformed(status, why)).await?;
                    return Ok(None);
                }
                Progress::Partial => {}
            }
            let more = if is_idle && self.server.is_some() {
                // Between requests the connection's own limit counts.
                self.incoming.more(CHUNK).await
            } else {
                let Ok(more) = tokio::time::timeout_at(deadline, self.incoming.more(CHUNK)).await else {
                    self.refuse(&Refusal::malformed(408, "the request did not come in time")).await?;
                    return Ok(None);
                };
                more
            };
            if !more? {
                return Ok(None);
            }
            is_idle = false;
        }
    }

    async fn refuse(&mut self, refusal: &Refusal) -> io::Result<()> {
        let response = denial(refusal.status, &refusal.rule, &refusal.why, &refusal.remedy, true);
        self.outgoing.write_all(&response).await?;
        self.outgoing.shutdown().await
    }

    /// CONNECT: true to a tunnel, after which this is over.
    async fn connect(&mut self, host: &str, port: &str) -> io::Result<Option<Agreed>> {
        let For::AnyHost { .. } = self.whom else {
            self.refuse(&Refusal::malformed(405, "CONNECT to a server")).await?;
            return Ok(None);
        };
        let parsed = parse_authority(&format!("{host}:{port}"), None);
        let Ok((host, port)) = parsed else {
            self.refuse(&Refusal::malformed(400, "the host is not written as hosts are")).await?;
            return Ok(None);
        };
        match self.reach(&host, port).await? {
            Some((server, address, decided)) => {
                self.outgoing.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                Ok(Some(Agreed { host, port, decided, server, address }))
            }
            None => Ok(None),
        }
    }

    /// Decides and connects; None once the client was told why not.
    async fn reach(&mut self, host: &Host, port: u16) -> io::Result<Option<(TcpStream, std::net::IpAddr, Decided)>> {
        let (For::One { from, .. } | For::AnyHost { from }) = self.whom;
        let decided = match self.whom {
            For::One { decided, .. } => decided.clone(),
            For::AnyHost { .. } => match self.context.rules.decide(host, port, Some(from)).await {
                Ok(decided) => decided,
                Err(denial) => {
                    self.context.link.open(&Case::denied(host, port, &denial)).await;
                    self.refuse(&Refusal::denied(&denial)).await?;
                    return Ok(None);
                }
            },
        };
        match self.context.reach(host, port, from).await {
            Ok((stream, address)) => Ok(Some((stream, address, decided))),
            Err(unreached) => {
                self.context.link.open(&unreached.case(host, port)).await;
                let refusal = match &unreached {
                    Unreached::Denied(denial) => Refusal::denied(denial),
                    other => Refusal {
                        status: 502,
                        rule: "none: the host was not reached".to_owned(),
                        why: other.to_string(),
                        remedy: String::new(),
                    },
                };
                self.refuse(&refusal).await?;
                Ok(None)
            }
        }
    }

    /// Where a request goes, if anywhere.
    fn place_of(&self, request: &RequestHead<'_>) -> Result<(Host, u16), Refusal> {
        let malformed = |why| Err(Refusal::malformed(400, why));
        let Some(authority) = request.authority() else { return malformed("the request names no host") };
        match self.whom {
            For::AnyHost { .. } => match (request.target, parse_authority(authority, Some(80))) {
                (RequestTarget::Absolute { .. }, Ok(place)) => Ok(place),
                (RequestTarget::Absolute { .. }, Err(_)) => malformed("the host is not written as hosts are"),
                _ => malformed("this is a proxy: the request needs a whole URL"),
            },
            For::One { host, port, .. } => match parse_authority(authority, Some(port)) {
                Ok((asked, at)) if asked == *host && at == port => Ok((asked, at)),
                Ok(_) => malformed("the request names another host than the one that was connected to"),
                Err(_) => malformed("the host is not written as hosts are"),
            },
        }
    }

    /// One request and its response; whether the connection goes on.
    async fn one(&mut self, request: &RequestHead<'_>) -> io::Result<bool> {
        let (host, port) = match self.place_of(request) {
            Ok(place) => place,
            Err(refusal) => {
                self.refuse(&refusal).await?;
                return Ok(false);
            }
        };
        let path = match request.target {
            RequestTarget::Absolute { path_and_query: "", .. } => "/",
            RequestTarget::Absolute { path_and_query, .. } | RequestTarget::Origin { path_and_query } => path_and_query,
            RequestTarget::Authority { .. } => "",
        };
        let verdict = self.context.rules.request(&host, port, request.method, path);
        if let Verdict::Denied(denial) = verdict {
            self.context.link.open(&Case::denied(&host, port, &denial)).await;
            self.refuse(&Refusal::denied(&denial)).await?;
            return Ok(false);
        }
        let secure = self.terminator();
        if secure.is_none()
            && request.headers.iter().any(|header| self.context.injections.is_held_for(&host, header.value))
        {
            let denial = in_the_open(&host);
            self.context.link.open(&Case::denied(&host, port, &denial)).await;
            self.refuse(&Refusal::denied(&denial)).await?;
            return Ok(false);
        }
        let usable = self.server.take().and_then(|mut server| server.is_usable(&host, port).then_some(server));
        let mut server = match usable {
            Some(server) => server,
            None => match self.open(&host, port).await? {
                Some(server) => server,
                None => return Ok(false),
            },
        };
        let mut head = Vec::with_capacity(1024);
        let injections = &self.context.injections;
        let reveal = |name: &str, value: &[u8]| secure.and_then(|_| injections.reveal((&host, port), name, value));
        if rewrite(request, &mut head, reveal).is_err() {
            return Ok(false);
        }
        let keep = self.forward(request, &head, &mut server).await?;
        if keep {
            self.server = Some(server);
        }
        Ok(keep)
    }

    /// Where TLS with the client ended here.
    fn terminator(&self) -> Option<&'a Terminator> {
        match self.whom {
            For::One { secure, .. } => secure,
            For::AnyHost { .. } => None,
        }
    }

    /// Connects to the server; None once the client was told why not.
    async fn open(&mut self, host: &Host, port: u16) -> io::Result<Option<Server<'a>>> {
        let (stream, recorded) = if let Some(dialled) = self.dialled.take() {
            dialled
        } else {
            let Some((stream, address, decided)) = self.reach(host, port).await? else { return Ok(None) };
            let case = Case::allowed(host, port, address, &decided);
            (stream, Recorded::open(&self.context.link, case).await)
        };
        let Some(terminator) = self.terminator() else { return Ok(Some(Server::new(host, port, stream, recorded))) };
        let begun = tokio::time::timeout(HANDSHAKE, terminator.connect(host, stream)).await;
        match begun.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                let (from, outgoing) = tokio::io::split(stream);
                Ok(Some(Server::of(host, port, Box::new(from), Box::new(outgoing), recorded)))
            }
            Err(error) => {
                let why = format!("TLS with {host} failed: {error}");
                self.context.link.open(&Case::failed(host, port, &why)).await;
                let rule = "none: the host was not reached".to_owned();
                self.refuse(&Refusal { status: 502, rule, why, remedy: String::new() }).await?;
                Ok(None)
            }
        }
    }

    /// Sends the request while the response comes back; whether both connections can be used again.
    async fn forward(&mut self, request: &RequestHead<'_>, head: &[u8], server: &mut Server<'a>) -> io::Result<bool> {
        let secure = self.terminator().is_some();
        let Exchange { context, incoming, outgoing, place, .. } = self;
        let Server { host, port, incoming: coming, outgoing: going, recorded } = server;
        let hide = |value: &[u8]| if secure { context.injections.hide((host, *port), value) } else { None };
        let sent = std::cell::Cell::new(false);
        let count = |bytes: usize, direction: &std::cell::Cell<u64>| {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            direction.set(direction.get().saturating_add(bytes));
            place.traffic.add(bytes)
        };
        let sending = async {
            let up = |bytes| count(bytes, &recorded.up);
            let body = Body::of_request(request.body);
            let result = pass(head, body, incoming, going, &up).await;
            sent.set(result.is_ok());
            place.traffic.settle(true);
            match result {
                // Nothing that follows can be framed.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => Stopped::Malformed,
                // The client is gone in the middle of its request, and gets no answer.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Stopped::Gone,
                // A server may answer and not read on; what it answered still counts.
                _ => std::future::pending().await,
            }
        };
        let receiving = async {
            let down = |bytes| count(bytes, &recorded.down);
            respond(request, coming, outgoing, &down, &hide).await
        };
        let received = tokio::select! {
            biased;
            keep = receiving => Ok(keep?),
            stopped = sending => Err(stopped),
        };
        match received {
            Ok(keep) => Ok(keep && sent.get() && request.keep_alive),
            Err(Stopped::Gone) => Ok(false),
            Err(Stopped::Malformed) => {
                self.refuse(&Refusal::malformed(400, "the body is not framed as it says")).await?;
                Ok(false)
            }
        }
    }
}

/// Why a placeholder does not travel where every host on the way could read what it stands for.
fn in_the_open(host: &Host) -> Denial {
    Denial {
        rule: "network.credentials".to_owned(),
        origin: None,
        why: format!("the credential of {host} is put into requests over TLS only, and this one is in the open"),
        remedy: format!("use https://{host}"),
    }
}

/// Why a request cannot be sent to its end.
enum Stopped {
    Malformed,
    Gone,
}
