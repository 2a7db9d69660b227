//! Request heads, as sent to a forward proxy or, without knowing of one, to port 80.
//! Owns the forms of the target and the refusals that need no policy; hosts are handed on as text, for the policy's own
//! parser to canonicalise. Called by `connections`; `rewrite` turns the result into the request sent on.

use super::super::{Progress, is_name_byte};
use super::REQUEST_HEAD_MAX;
use super::head::{self, Framing, Header, Limits, list, only};

const LIMITS: Limits = Limits { head_max: REQUEST_HEAD_MAX, too_large: 431, malformed: 400 };
const METHOD_MAX: usize = 32;

/// A request head that has one meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead<'a> {
    pub method: &'a str,
    pub target: RequestTarget<'a>,
    /// 0 or 1.
    pub minor: u8,
    pub headers: Vec<Header<'a>>,
    /// The `Host` header. In absolute form and for CONNECT it names the same host as the target.
    pub host: Option<&'a str>,
    pub body: BodyKind,
    pub keep_alive: bool,
}

/// Where a request wants to go. Texts are as written: no decoding, no change of case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestTarget<'a> {
    /// CONNECT. The host of an IPv6 address keeps its brackets.
    Authority { host: &'a str, port: &'a str },
    /// `http://authority/path`; the path is empty when the URI ends after the authority.
    Absolute { authority: &'a str, path_and_query: &'a str },
    /// A path alone; the host is in `RequestHead::host`.
    Origin { path_and_query: &'a str },
}

/// How long the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    None,
    Length(u64),
    Chunked,
}

impl<'a> RequestHead<'a> {
    /// `host` or `host:port` that the request is for, other than CONNECT: the URI's, else the `Host` header's.
    pub(crate) fn authority(&self) -> Option<&'a str> {
        match self.target {
            RequestTarget::Absolute { authority, .. } => Some(authority),
            RequestTarget::Origin { .. } => self.host,
            RequestTarget::Authority { .. } => None,
        }
    }
}

/// Reads a request head from the front of `buf`, which holds everything read since the last request.
///
/// A `Bad` request ends the connection: what follows it cannot be framed.
pub(crate) fn parse_request(buf: &[u8]) -> Progress<RequestHead<'_>> {
    match head::read(buf, &LIMITS, request_line) {
        Err(stop) => stop.progress(),
        Ok(head) => match whole(&head.start, head.headers) {
            Ok(request) => Progress::Done(request, head.len),
            Err((reason, status)) => Progress::Bad(reason, status),
        },
    }
}

type Refusal = (&'static str, u16);

struct RequestLine<'a> {
    method: &'a str,
    target: RequestTarget<'a>,
    minor: u8,
}

fn request_line(line: &[u8]) -> Result<RequestLine<'_>, Refusal> {
    let line = std::str::from_utf8(line).map_err(|_| ("request line is not ASCII", 400))?;
    if !line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(("request line is not ASCII", 400));
    }
    if line == "PRI * HTTP/2.0" {
        return Err(("HTTP/2 preface", 400));
    }
    let mut parts = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(("request line is not three words", 400));
    };
    let minor = match version {
        "HTTP/1.1" => 1,
        "HTTP/1.0" => 0,
        _ => return Err(("not HTTP/1.0 or HTTP/1.1", 400)),
    };
    // Lower-case methods are legal, but servers that fold case would see another method than the rules did.
    let upper = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
    if method.is_empty() || method.len() > METHOD_MAX || !method.bytes().all(upper) {
        return Err(("method is not in capital letters", 400));
    }
    if matches!(method, "TRACE" | "TRACK") {
        return Err(("TRACE is not carried", 405));
    }
    Ok(RequestLine { method, target: request_target(method, target)?, minor })
}

fn request_target<'a>(method: &str, target: &'a str) -> Result<RequestTarget<'a>, Refusal> {
    if target.contains('#') {
        return Err(("fragment in the target", 400));
    }
    if method == "CONNECT" {
        return match split_authority(target)? {
            (host, Some(port)) => Ok(RequestTarget::Authority { host, port }),
            (_, None) => Err(("CONNECT without a port", 400)),
        };
    }
    if target.starts_with('/') {
        return Ok(RequestTarget::Origin { path_and_query: target });
    }
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(("target is neither a path nor a URI", 400));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(("only http:// can be requested; use CONNECT for TLS", 400));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(end);
    split_authority(authority)?;
    Ok(RequestTarget::Absolute { authority, path_and_query })
}

/// Host and port of an authority. Userinfo, zone ids and percent signs are refused, not skipped.
fn split_authority(authority: &str) -> Result<(&str, Option<&str>), Refusal> {
    if authority.contains('@') {
        return Err(("userinfo in the authority", 400));
    }
    let host_end = if authority.starts_with('[') {
        authority.find(']').ok_or(("unclosed bracket in the host", 400))? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(host_end);
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let plain = match bracketed {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
        }
        None => !host.is_empty() && host.bytes().all(is_name_byte),
    };
    if !plain {
        return Err(("malformed host", 400));
    }
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Ok((host, None)),
        Some(port) if is_port(port) => Ok((host, Some(port))),
        _ => Err(("malformed port", 400)),
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0') && text.parse::<u16>().is_ok()
}

fn whole<'a>(line: &RequestLine<'a>, headers: Vec<Header<'a>>) -> Result<RequestHead<'a>, Refusal> {
    let RequestLine { method, target, minor } = *line;
    let host = host_header(&headers, minor)?;
    if !same_host(target, host)? {
        return Err(("the Host header names another host than the target", 400));
    }
    if list(&headers, "connection").any(|option| head::token(option).is_none()) {
        return Err(("malformed Connection header", 400));
    }
    let body = match head::framing(&headers, minor).map_err(|reason| (reason, 400))? {
        Framing::Absent => BodyKind::None,
        Framing::Length(length) => BodyKind::Length(length),
        Framing::Chunked => BodyKind::Chunked,
    };
    if method == "CONNECT" && !matches!(body, BodyKind::None | BodyKind::Length(0)) {
        return Err(("CONNECT with a body", 405));
    }
    // An offer to go on in h2c is not sent on, which tells both sides that it was not taken.
    if !matches!(only(&headers, "upgrade"), Ok(None | Some(b"h2c"))) {
        return Err(("Upgrade is not carried", 405));
    }
    if !only(&headers, "expect")
        .is_ok_and(|value| value.is_none_or(|value| value.eq_ignore_ascii_case(b"100-continue")))
    {
        return Err(("unknown expectation", 417));
    }
    let keep_alive = head::keep_alive(&headers, minor);
    Ok(RequestHead { method, target, minor, headers, host, body, keep_alive })
}

fn host_header<'a>(headers: &[Header<'a>], minor: u8) -> Result<Option<&'a str>, Refusal> {
    let Some(value) = only(headers, "host").map_err(|()| ("more than one Host header", 400))? else {
        return if minor == 0 { Ok(None) } else { Err(("no Host header", 400)) };
    };
    let host = std::str::from_utf8(value).map_err(|_| ("malformed host", 400))?;
    split_authority(host)?;
    Ok(Some(host))
}

/// Whether target and `Host` mean the same place. Case, one trailing dot and the default port make no difference.
fn same_host(target: RequestTarget<'_>, host: Option<&str>) -> Result<bool, Refusal> {
    let Some(given) = host else { return Ok(true) };
    let (given_host, given_port) = split_authority(given)?;
    let (host, port, default) = match target {
        RequestTarget::Origin { .. } => return Ok(true),
        RequestTarget::Absolute { authority, .. } => {
            let (host, port) = split_authority(authority)?;
            (host, port.unwrap_or("80"), "80")
        }
        // Some clients leave the port out of the Host header of a CONNECT, whatever it is.
        RequestTarget::Authority { host, port } => (host, port, port),
    };
    let plain = |host: &str| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    Ok(plain(given_host) == plain(host) && given_port.unwrap_or(default) == port)
}
