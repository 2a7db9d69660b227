//! HTTP/1.x as a proxy must read it: one meaning per message, or none.
//! Owns request and response heads, the framing of bodies and the requests sent on; whether a host may be reached and
//! where the bytes go is not decided here. `connections` calls it for proxied requests and for plain HTTP on port 80. Why
//! neither hyper nor httparse reads it: decision 0044.

mod chunked;
mod denial;
mod head;
mod request;
mod response;
mod rewrite;
#[cfg(test)]
mod tests;

pub(crate) use chunked::Chunked;
pub(crate) use denial::denial;
pub(crate) use request::{BodyKind, RequestHead, RequestTarget, parse_request};
pub(crate) use response::{ResponseBody, parse_response};
pub(crate) use rewrite::{rewrite, rewrite_response};

/// The longest request head that is read.
pub(crate) const REQUEST_HEAD_MAX: usize = 16 * 1024;
/// The longest response head that is read; servers send larger heads than clients do.
pub(crate) const RESPONSE_HEAD_MAX: usize = 64 * 1024;
/// The most header lines in one head.
pub(crate) const HEADERS_MAX: usize = 100;
