//! Response heads, read strictly enough to know where each response ends on a connection that is used again.
//! Owns the framing of responses; contents and redirects are none of its business. Called by `connections`, which answers
//! 502 and closes where a server is not to be understood.

use super::super::Progress;
use super::RESPONSE_HEAD_MAX;
use super::head::{self, Framing, Header, Limits};

const LIMITS: Limits = Limits { head_max: RESPONSE_HEAD_MAX, too_large: 502, malformed: 502 };

/// A response head whose end of body is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead<'a> {
    pub status: u16,
    pub reason: &'a [u8],
    /// 0 or 1.
    pub minor: u8,
    pub headers: Vec<Header<'a>>,
    pub body: ResponseBody,
    /// Whether the server keeps the connection; false for a body that ends with it.
    pub keep_alive: bool,
}

impl ResponseHead<'_> {
    /// A 1xx response: another head for the same request follows.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// Where a response's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseBody {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// Reads the head of the response to a request with `method`.
pub(crate) fn parse_response<'a>(buf: &'a [u8], method: &str) -> Progress<ResponseHead<'a>> {
    match head::read(buf, &LIMITS, status_line) {
        Err(stop) => stop.progress(),
        Ok(head) => match whole(&head.start, head.headers, method) {
            Ok(response) => Progress::Done(response, head.len),
            Err(reason) => Progress::Bad(reason, 502),
        },
    }
}

struct StatusLine<'a> {
    status: u16,
    reason: &'a [u8],
    minor: u8,
}

fn status_line(line: &[u8]) -> Result<StatusLine<'_>, (&'static str, u16)> {
    let (minor, rest) = match line.strip_prefix(b"HTTP/1.") {
        Some([b'1', b' ', rest @ ..]) => (1, rest),
        Some([b'0', b' ', rest @ ..]) => (0, rest),
        _ => return Err(("not an HTTP/1.x response", 502)),
    };
    // Some servers leave out the reason, and the space before it too.
    let (digits, reason) = match rest {
        [a, b, c] => ([*a, *b, *c], &[][..]),
        [a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
        _ => return Err(("malformed status line", 502)),
    };
    if !digits.iter().all(u8::is_ascii_digit) || !(b'1'..=b'5').contains(&digits[0]) {
        return Err(("malformed status", 502));
    }
    let status = digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    Ok(StatusLine { status, reason, minor })
}

fn whole<'a>(line: &StatusLine<'a>, headers: Vec<Header<'a>>, method: &str) -> Result<ResponseHead<'a>, &'static str> {
    let StatusLine { status, reason, minor } = *line;
    if status == 101 {
        return Err("protocol switched without being asked");
    }
    let framing = head::framing(&headers, minor)?;
    let body = match (status, framing) {
        (100..=199 | 204 | 304, _) => ResponseBody::None,
        _ if method == "HEAD" => ResponseBody::None,
        (_, Framing::Length(length)) => ResponseBody::Length(length),
        (_, Framing::Chunked) => ResponseBody::Chunked,
        (_, Framing::Absent) => ResponseBody::UntilClose,
    };
    let keep_alive = body != ResponseBody::UntilClose && head::keep_alive(&headers, minor);
    Ok(ResponseHead { status, reason, minor, headers, body, keep_alive })
}
