//! TLS that ends in this process: both handshakes, the session's certificate authority, the certificates that programs are
//! given, and the credentials that are put into requests. Owns keys and secrets; which hosts it is done for is policy's.
//! Used by `connections`; `supervisor` hands in the host's authorities and the credentials.

pub(crate) mod ca_bundle;
pub(crate) mod credentials;
mod session_ca;
pub(crate) mod terminate;
