//! One request or response on its way from one connection to another: its head as it was rewritten, and its body. Owns
//! reading ahead and where a body ends; decides nothing. Called by `http`.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::wire::Progress;
use crate::wire::http::{BodyKind, Chunked, RequestHead, ResponseBody, denial, parse_response, rewrite_response};

/// Read at once of a body that is larger.
const BODY: usize = 64 << 10;

/// What comes from one side, read ahead.
pub(crate) struct Incoming<R> {
    pub(crate) from: R,
    pub(crate) bytes: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// False at the end.
    pub(super) async fn more(&mut self, at_once: usize) -> io::Result<bool> {
        self.bytes.reserve(at_once);
        Ok(self.from.read_buf(&mut self.bytes).await? > 0)
    }
}

/// The response, with what comes before it; whether the server keeps its connection.
pub(super) async fn respond<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
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
pub(super) enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

impl Body {
    pub(super) fn of_request(kind: BodyKind) -> Body {
        match kind {
            BodyKind::None => Body::Length(0),
            BodyKind::Length(length) => Body::Length(length),
            BodyKind::Chunked => Body::Chunked(Chunked::default()),
        }
    }

    pub(super) fn of_response(kind: ResponseBody) -> Body {
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
pub(super) async fn pass<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
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
