//! HTTP/1.x as a proxy must read it: one meaning per message, or none.
//! Owns request and response heads, the framing of bodies and the requests sent on; whether a host may be reached and
//! where the bytes go is not decided here. `connections` calls it for proxied requests and for plain HTTP on port 80.

mod chunked;
mod denial;
mod head;
mod request;
mod response;
mod rewrite;
#[cfg(test)]
mod tests;

pub use chunked::{Chunked, Scan};
pub use denial::denial;
pub use head::Header;
pub use request::{BodyKind, RequestHead, RequestTarget, parse_request};
pub use response::{ResponseBody, ResponseHead, parse_response};
pub use rewrite::{UnsafeValue, rewrite, rewrite_response};

/// The longest request head that is read.
pub const REQUEST_HEAD_MAX: usize = 16 * 1024;
/// The longest response head that is read; servers send larger heads than clients do.
pub const RESPONSE_HEAD_MAX: usize = 64 * 1024;
/// The most header lines in one head.
pub const HEADERS_MAX: usize = 100;
