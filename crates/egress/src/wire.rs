//! The protocols that the egress process reads from programs it does not trust: bytes in, values out.
//! Owns framing and its limits; opens no socket, knows no policy and keeps no clock. `connections` calls it with what it
//! has read so far and does what the values say.

pub(crate) mod agent;
pub(crate) mod dns;
pub(crate) mod hello;
pub(crate) mod http;
pub(crate) mod socks;

#[cfg(test)]
mod mutate;

/// What a parser makes of the bytes read so far.
///
/// Every parser here reads from the front and stops at the first fault, so more bytes never change an answer that is
/// not `Partial`: the way the input was cut into reads does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress<T> {
    /// Nothing is wrong so far; read more and ask again with all of it.
    Partial,
    /// The value, and how many bytes of the buffer it took.
    Done(T, usize),
    /// The peer broke the rules: the reason, and the HTTP status that says so to a client that speaks HTTP.
    Bad(&'static str, u16),
}

/// Bytes that may stand in a host name as programs write it: letters, digits, hyphen, underscore, and the dot between.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// `name` without one trailing dot, in lower case; `None` when it is empty, too long or has an empty label.
fn lower_name(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let plain = name.len() <= NAME_MAX && name.iter().copied().all(is_name_byte);
    let labels = name.split(|&byte| byte == b'.').all(|label| (1..=63).contains(&label.len()));
    (plain && labels).then(|| name.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect())
}

/// The longest name that DNS can carry, written with dots.
const NAME_MAX: usize = 253;
