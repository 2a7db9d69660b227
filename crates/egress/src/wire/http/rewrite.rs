//! Heads as they are sent on: what concerned one connection stays behind, and the framing is written anew.
//! Owns which headers travel; what is put in place of a value is the caller's. Called by `connections` after its decision.

use super::head::{Header, is_value_byte, list};
use super::request::{BodyKind, RequestHead, RequestTarget};
use super::response::{ResponseBody, ResponseHead};

/// A replacement for a header's value holds bytes that would end the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the replacement for the header `{header}` holds control bytes")]
pub(crate) struct UnsafeValue {
    pub header: String,
}

/// Writes the origin-form request for the server, and adds nothing to `out` on error.
///
/// `replace` sees each header that travels, and may give another value for it. Host, framing and `Connection` are
/// written from what was parsed, so neither the client nor `replace` can change them. A CONNECT is never sent on.
pub(crate) fn rewrite(
    head: &RequestHead<'_>,
    out: &mut Vec<u8>,
    mut replace: impl FnMut(&str, &[u8]) -> Option<Vec<u8>>,
) -> Result<(), UnsafeValue> {
    let before = out.len();
    let (slash, path) = match head.target {
        RequestTarget::Authority { .. } => return Ok(()),
        RequestTarget::Origin { path_and_query } => ("", path_and_query),
        RequestTarget::Absolute { path_and_query, .. } if path_and_query.starts_with('/') => ("", path_and_query),
        RequestTarget::Absolute { path_and_query, .. } => ("/", path_and_query),
    };
    out.extend_from_slice(format!("{} {slash}{path} HTTP/1.{}\r\n", head.method, head.minor).as_bytes());
    if let Some(authority) = head.authority() {
        line(out, "Host", authority.as_bytes());
    }
    for header in travelling(&head.headers) {
        match replace(header.name, header.value) {
            Some(value) if !value.iter().copied().all(is_value_byte) => {
                out.truncate(before);
                return Err(UnsafeValue { header: header.name.to_owned() });
            }
            Some(value) => line(out, header.name, &value),
            None => line(out, header.name, header.value),
        }
    }
    match head.body {
        BodyKind::None => {}
        BodyKind::Length(length) => line(out, "Content-Length", length.to_string().as_bytes()),
        BodyKind::Chunked => line(out, "Transfer-Encoding", b"chunked"),
    }
    end(out, head.keep_alive);
    Ok(())
}

/// Writes the response head for the client. `keep_alive` says whether the client's connection stays open; `replace` sees each
/// value that travels, and may give another one of plain bytes.
pub(crate) fn rewrite_response(
    head: &ResponseHead<'_>,
    keep_alive: bool,
    out: &mut Vec<u8>,
    replace: impl Fn(&[u8]) -> Option<Vec<u8>>,
) {
    out.extend_from_slice(format!("HTTP/1.{} {:03} ", head.minor, head.status).as_bytes());
    out.extend_from_slice(replace(head.reason).as_deref().unwrap_or(head.reason));
    out.extend_from_slice(b"\r\n");
    // Where there is no body, a length says how long it would have been: HEAD and 304.
    let length_of_none = head.body == ResponseBody::None && head.status >= 200 && head.status != 204;
    for header in &head.headers {
        if header.is("content-length") && length_of_none {
            line(out, header.name, header.value);
        }
    }
    for header in travelling(&head.headers) {
        line(out, header.name, replace(header.value).as_deref().unwrap_or(header.value));
    }
    match head.body {
        ResponseBody::None | ResponseBody::UntilClose => {}
        ResponseBody::Length(length) => line(out, "Content-Length", length.to_string().as_bytes()),
        ResponseBody::Chunked => line(out, "Transfer-Encoding", b"chunked"),
    }
    end(out, keep_alive || head.is_interim());
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn end(out: &mut Vec<u8>, keep_alive: bool) {
    if !keep_alive {
        line(out, "Connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
}

/// The headers that are for the other end, without those that are written anew.
fn travelling<'h, 'a>(headers: &'h [Header<'a>]) -> impl Iterator<Item = &'h Header<'a>> {
    headers.iter().filter(|header| {
        let named = list(headers, "connection").any(|option| option.eq_ignore_ascii_case(header.name.as_bytes()));
        !(named || stays_behind(header.name))
    })
}

fn stays_behind(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "connection",
        "content-length",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let proxy = name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("proxy-"));
    proxy || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}
