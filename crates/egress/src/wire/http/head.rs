//! The lines of a head: a start line and headers, each ended by CRLF and nothing else.
//! Owns the rules about bytes and the framing headers; what a start line means is for `request` and `response`,
//! which are its only callers.

use super::super::Progress;
use super::HEADERS_MAX;

/// One header line. The name is a token; the value is without the blanks around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    pub name: &'a str,
    pub value: &'a [u8],
}

impl Header<'_> {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// The start line's meaning, the headers in order, and the length of the head.
pub(super) struct Head<'a, S> {
    pub(super) start: S,
    pub(super) headers: Vec<Header<'a>>,
    pub(super) len: usize,
}

/// How a head fails; `Progress` without the good outcome.
pub(super) enum Stop {
    Partial,
    Bad(&'static str, u16),
}

impl Stop {
    pub(super) fn progress<T>(self) -> Progress<T> {
        match self {
            Stop::Partial => Progress::Partial,
            Stop::Bad(reason, status) => Progress::Bad(reason, status),
        }
    }
}

/// What differs between the two kinds of head.
pub(super) struct Limits {
    pub(super) head_max: usize,
    pub(super) too_large: u16,
    pub(super) malformed: u16,
}

/// Reads a head. Each line is checked as soon as it ends, so a fault is reported before the rest arrives.
pub(super) fn read<'a, S>(
    buf: &'a [u8],
    limits: &Limits,
    start: impl Fn(&'a [u8]) -> Result<S, (&'static str, u16)>,
) -> Result<Head<'a, S>, Stop> {
    let (line, mut at) = next_line(buf, 0, limits)?;
    let start = start(line).map_err(|(reason, status)| Stop::Bad(reason, status))?;
    let mut headers = Vec::new();
    loop {
        let (line, next) = next_line(buf, at, limits)?;
        at = next;
        if line.is_empty() {
            return Ok(Head { start, headers, len: at });
        }
        if headers.len() == HEADERS_MAX {
            return Err(Stop::Bad("too many headers", limits.too_large));
        }
        headers.push(header(line).map_err(|reason| Stop::Bad(reason, limits.malformed))?);
    }
}

/// The line that begins at `at`, and where the next one begins.
fn next_line<'a>(buf: &'a [u8], at: usize, limits: &Limits) -> Result<(&'a [u8], usize), Stop> {
    for (index, &byte) in buf.iter().enumerate().skip(at) {
        if index >= limits.head_max {
            return Err(Stop::Bad("head too large", limits.too_large));
        }
        match byte {
            b'\n' if index > at && buf[index - 1] == b'\r' => return Ok((&buf[at..index - 1], index + 1)),
            b'\n' => return Err(Stop::Bad("line ends with LF alone", limits.malformed)),
            _ if index > at && buf[index - 1] == b'\r' => return Err(Stop::Bad("CR without LF", limits.malformed)),
            b'\r' | b'\t' => {}
            0 => return Err(Stop::Bad("NUL in the head", limits.malformed)),
            0x01..=0x1f | 0x7f => return Err(Stop::Bad("control byte in the head", limits.malformed)),
            _ => {}
        }
    }
    Err(Stop::Partial)
}

fn header(line: &[u8]) -> Result<Header<'_>, &'static str> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err("folded header line");
    }
    let colon = line.iter().position(|&byte| byte == b':').ok_or("header line without a colon")?;
    let name = token(&line[..colon]).ok_or("header name is not a token")?;
    Ok(Header { name, value: trim(&line[colon + 1..]) })
}

/// `bytes` as text when they are an RFC 9110 token.
pub(super) fn token(bytes: &[u8]) -> Option<&str> {
    let ok = !bytes.is_empty() && bytes.iter().copied().all(is_token_byte);
    if ok { std::str::from_utf8(bytes).ok() } else { None }
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a byte may stand in a header value that is sent on.
pub(super) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The only header of this name; `Err` when there are several.
pub(super) fn only<'a>(headers: &[Header<'a>], name: &str) -> Result<Option<&'a [u8]>, ()> {
    let mut found = headers.iter().filter(|header| header.is(name));
    let first = found.next().map(|header| header.value);
    if found.next().is_some() { Err(()) } else { Ok(first) }
}

/// The elements of every header of this name, read as lists; empty elements are left out.
pub(super) fn list<'h, 'a: 'h>(headers: &'h [Header<'a>], name: &'h str) -> impl Iterator<Item = &'a [u8]> + 'h {
    headers
        .iter()
        .filter(move |header| header.is(name))
        .flat_map(|header| header.value.split(|&byte| byte == b','))
        .map(trim)
        .filter(|element| !element.is_empty())
}

/// What `Content-Length` and `Transfer-Encoding` say together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Absent,
    Length(u64),
    Chunked,
}

/// Reads both framing headers, and takes no message in which two readers could see two lengths.
pub(super) fn framing(headers: &[Header<'_>], minor: u8) -> Result<Framing, &'static str> {
    let length = only(headers, "content-length").map_err(|()| "more than one Content-Length")?;
    let encoding = only(headers, "transfer-encoding").map_err(|()| "more than one Transfer-Encoding")?;
    match (length, encoding) {
        (Some(_), Some(_)) => Err("Content-Length and Transfer-Encoding together"),
        (None, None) => Ok(Framing::Absent),
        (Some(value), None) => decimal(value).map(Framing::Length).ok_or("malformed Content-Length"),
        (None, Some(_)) if minor == 0 => Err("Transfer-Encoding in HTTP/1.0"),
        (None, Some(value)) if value.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (None, Some(_)) => Err("Transfer-Encoding other than chunked"),
    }
}

/// Digits only: no sign, no list, no blanks, and it must fit.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Whether the connection stays open after this message. HTTP/1.0 is never kept: its keep-alive was never specified.
pub(super) fn keep_alive(headers: &[Header<'_>], minor: u8) -> bool {
    minor == 1 && !list(headers, "connection").any(|option| option.eq_ignore_ascii_case(b"close"))
}
