//! Requests of HTTP/1.x, one after the other on a client's connection, each decided on its own and sent on. Owns framing and
//! reuse of both connections; what a request means is `wire::http`'s, whether it may go `decide`'s. Redirects are responses
//! like others: following one is a new request. Called by `proxy`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use cofferdam_policy::{Host, parse_authority};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::decide::{Decided, Denial, Verdict};
use crate::limits::Place;
use crate::service::{self, Service};
use crate::terminate::Terminator;
use crate::transparent::Recorded;
use crate::wire::Progress;
use crate::wire::http::{
    BodyKind, Chunked, REQUEST_HEAD_MAX, RequestHead, RequestTarget, ResponseBody, denial, parse_request,
    parse_response, rewrite, rewrite_response,
};

/// Read at once.
const CHUNK: usize = 4096;
/// Read at once of a body that is larger.
const BODY: usize = 64 << 10;
/// Longest wait for a server to begin TLS.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Whom the requests of a connection are for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum For<'a> {
    /// Whoever each names: the program knows that it speaks to a proxy.
    Anybody { from: SocketAddr },
    /// The host that the program connected to, in TLS that ends here where it is secure.
    One { host: &'a Host, port: u16, decided: &'a Decided, secure: Option<&'a Terminator> },
}

/// What comes from one side, read ahead.
pub(crate) struct Incoming<R> {
    pub(crate) from: R,
    pub(crate) bytes: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// False at the end.
    async fn more(&mut self, at_once: usize) -> io::Result<bool> {
        self.bytes.reserve(at_once);
        Ok(self.from.read_buf(&mut self.bytes).await? > 0)
    }
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

    /// A server may have closed a connection that nobody used for a while.
    fn is_usable(&mut self, host: &Host, port: u16) -> bool {
        self.host == *host && self.port == port && self.incoming.bytes.is_empty() && self.is_silent()
    }

    /// Only looks: whoever reads next is woken for itself.
    fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        let looked = Pin::new(&mut self.incoming.from).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
        looked.is_pending()
    }
}

/// The requests of one client.
pub(crate) struct Exchange<'a, R, W> {
    pub(crate) service: &'a Service,
    pub(crate) incoming: Incoming<R>,
    pub(crate) outgoing: W,
    pub(crate) whom: For<'a>,
    pub(crate) server: Option<Server<'a>>,
    /// Somebody has connected the server, and TLS with it has not begun.
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
        let deadline = tokio::time::Instant::now() + self.service.header_timeout;
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
        let For::Anybody { from } = self.whom else {
            self.refuse(&Refusal::malformed(405, "CONNECT to a server")).await?;
            return Ok(None);
        };
        let parsed = parse_authority(&format!("{host}:{port}"), None);
        let Ok((host, port)) = parsed else {
            self.refuse(&Refusal::malformed(400, "the host is not written as hosts are")).await?;
            return Ok(None);
        };
        match self.reach(&host, port, Some(from)).await? {
            Some((server, address, decided)) => {
                self.outgoing.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                Ok(Some(Agreed { host, port, decided, server, address }))
            }
            None => Ok(None),
        }
    }

    /// Decides and connects; None once the client was told why not.
    async fn reach(
        &mut self,
        host: &Host,
        port: u16,
        from: Option<SocketAddr>,
    ) -> io::Result<Option<(TcpStream, std::net::IpAddr, Decided)>> {
        let decided = match self.whom {
            For::One { decided, .. } => decided.clone(),
            For::Anybody { .. } => match self.service.judge(host, port, from).await {
                Ok(decided) => decided,
                Err(denial) => {
                    self.service.link.open(&service::denied(host, port, &denial)).await;
                    self.refuse(&Refusal::denied(&denial)).await?;
                    return Ok(None);
                }
            },
        };
        match self.service.reach(host, port).await {
            Ok((stream, address)) => Ok(Some((stream, address, decided))),
            Err(unreached) => {
                self.service.link.open(&unreached.case(host, port)).await;
                let refusal = match &unreached {
                    service::Unreached::Denied(denial) => Refusal::denied(denial),
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
            For::Anybody { .. } => match (request.target, parse_authority(authority, Some(80))) {
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
        let verdict = self.service.rules.borrow().request(&host, port, request.method, path);
        if let Verdict::Denied(denial) = verdict {
            self.service.link.open(&service::denied(&host, port, &denial)).await;
            self.refuse(&Refusal::denied(&denial)).await?;
            return Ok(false);
        }
        let secure = self.terminator();
        if secure.is_none()
            && request.headers.iter().any(|header| self.service.injections.is_held_for(&host, header.value))
        {
            let denial = in_the_open(&host);
            self.service.link.open(&service::denied(&host, port, &denial)).await;
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
        let injections = &self.service.injections;
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
            For::Anybody { .. } => None,
        }
    }

    /// Connects to the server; None once the client was told why not.
    async fn open(&mut self, host: &Host, port: u16) -> io::Result<Option<Server<'a>>> {
        let (stream, recorded) = if let Some(dialled) = self.dialled.take() {
            dialled
        } else {
            let from = match self.whom {
                For::Anybody { from } => Some(from),
                For::One { .. } => None,
            };
            let Some((stream, address, decided)) = self.reach(host, port, from).await? else { return Ok(None) };
            let case = service::allowed(host, port, address, &decided);
            self.service.link.open(&case).await;
            (stream, Recorded::new(self.service, case))
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
                self.service.link.open(&service::failed(host, port, &why)).await;
                let rule = "none: the host was not reached".to_owned();
                self.refuse(&Refusal { status: 502, rule, why, remedy: String::new() }).await?;
                Ok(None)
            }
        }
    }

    /// Sends the request while the response comes back; whether both connections can be used again.
    async fn forward(&mut self, request: &RequestHead<'_>, head: &[u8], server: &mut Server<'a>) -> io::Result<bool> {
        let secure = self.terminator().is_some();
        let Exchange { service, incoming, outgoing, place, .. } = self;
        let Server { host, port, incoming: coming, outgoing: going, recorded } = server;
        let hide = |value: &[u8]| if secure { service.injections.hide((host, *port), value) } else { None };
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
                // The client is gone in the middle of its request, which nobody can answer.
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

/// Why a placeholder does not travel where everybody on the way could read what it stands for.
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

/// The response, with whatever comes before it; whether the server keeps its connection.
async fn respond<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    request: &RequestHead<'_>,
    coming: &mut Incoming<R>,
    outgoing: &mut W,
    count: &impl Fn(usize) -> io::Result<()>,
    hide: &impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<bool> {
    loop {
        let (length, head, body, keeps, interim) = loop {
            match parse_response(&coming.bytes, request.method) {
                Progress::Done(response, length) => {
                    let mut head = Vec::with_capacity(length + 64);
                    let keeps = response.keep_alive;
                    rewrite_response(&response, keeps && request.keep_alive, &mut head, hide);
                    break (length, head, response.body, keeps, response.is_interim());
                }
                Progress::Bad(why, status) => {
                    outgoing.write_all(&denial(status, "none: the server's response", why, "", true)).await?;
                    return Ok(false);
                }
                Progress::Partial => {}
            }
            // A reset is an end like others.
            if !coming.more(BODY).await.unwrap_or(false) {
                if coming.bytes.is_empty() {
                    let why = "the server closed the connection without a response";
                    outgoing.write_all(&denial(502, "none: the server's response", why, "", true)).await?;
                }
                return Ok(false);
            }
        };
        coming.bytes.drain(..length);
        count(length)?;
        pass(&head, Body::of_response(body), coming, outgoing, count).await?;
        if !interim {
            return Ok(keeps);
        }
    }
}

/// What is left of a body.
enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

impl Body {
    fn of_request(kind: BodyKind) -> Body {
        match kind {
            BodyKind::None => Body::Length(0),
            BodyKind::Length(length) => Body::Length(length),
            BodyKind::Chunked => Body::Chunked(Chunked::default()),
        }
    }

    fn of_response(kind: ResponseBody) -> Body {
        match kind {
            ResponseBody::None => Body::Length(0),
            ResponseBody::Length(length) => Body::Length(length),
            ResponseBody::Chunked => Body::Chunked(Chunked::default()),
            ResponseBody::UntilClose => Body::UntilClose,
        }
    }

    /// How many of these belong to it, and whether it ended with them.
    fn take(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        match self {
            Body::Length(left) => {
                let used = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= u64::try_from(used).unwrap_or(*left);
                Ok((used, *left == 0))
            }
            Body::Chunked(chunked) => {
                let scan = chunked.scan(bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
                Ok((scan.used, scan.ended))
            }
            Body::UntilClose => Ok((bytes.len(), false)),
        }
    }
}

/// A head and the body that follows it. The first write has as much of both as there is.
async fn pass<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    head: &[u8],
    mut body: Body,
    from: &mut Incoming<R>,
    to: &mut W,
    count: &impl Fn(usize) -> io::Result<()>,
) -> io::Result<()> {
    let (used, mut ended) = body.take(&from.bytes)?;
    let mut first = Vec::with_capacity(head.len() + used);
    first.extend_from_slice(head);
    first.extend_from_slice(&from.bytes[..used]);
    from.bytes.drain(..used);
    count(first.len())?;
    to.write_all(&first).await?;
    to.flush().await?;
    drop(first);
    while !ended {
        if from.bytes.is_empty() && !from.more(BODY).await? {
            return match body {
                Body::UntilClose => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let (used, over) = body.take(&from.bytes)?;
        count(used)?;
        to.write_all(&from.bytes[..used]).await?;
        to.flush().await?;
        from.bytes.drain(..used);
        ended = over;
    }
    Ok(())
}
