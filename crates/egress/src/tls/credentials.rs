//! Secrets that stand in requests outside and nowhere inside: what a session holds is a placeholder. Owns the exchange of one
//! for the other in headers, and never shows a secret; when it may happen is `connections::http`'s, where secrets come from
//! `supervisor`'s. Bodies are not looked at.

use cofferdam_policy::Host;
use cofferdam_reach::start::Injection;
use data_encoding::BASE64;
use zeroize::Zeroizing;

/// All of a session's.
#[derive(Debug, Default)]
pub(crate) struct Injections(Vec<Injection>);

impl Injections {
    pub(crate) fn new(all: Vec<Injection>) -> Injections {
        Injections(all)
    }

    fn of_host<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Injection> {
        self.0.iter().filter(move |one| matches!(host, Host::Name(name) if *name == one.host))
    }

    /// Whether a secret goes to this place.
    pub(crate) fn concern(&self, host: &Host, port: u16) -> bool {
        self.of_host(host).any(|one| one.port == port)
    }

    /// Whether a header holds a placeholder that this host would exchange, were it asked in the right way.
    pub(crate) fn is_held_for(&self, host: &Host, value: &[u8]) -> bool {
        self.of_host(host).any(|one| swapped(value, one.placeholder.as_bytes(), b"").is_some())
    }

    /// The value of a header for the server, where it holds a placeholder that is exchanged.
    pub(crate) fn reveal(&self, (host, port): (&Host, u16), name: &str, value: &[u8]) -> Option<Vec<u8>> {
        let meant = |one: &&Injection| one.port == port && name.eq_ignore_ascii_case(&one.header);
        swapped_by(value, self.of_host(host).filter(meant).map(|one| (one.placeholder.as_bytes(), one.secret.bytes())))
    }

    /// The value of a header for the session, where it holds a secret.
    pub(crate) fn hide(&self, (host, port): (&Host, u16), value: &[u8]) -> Option<Vec<u8>> {
        let meant = self.of_host(host).filter(|one| one.port == port);
        swapped_by(value, meant.map(|one| (one.secret.bytes(), one.placeholder.as_bytes())))
    }
}

fn swapped_by<'a>(value: &[u8], swaps: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Vec<u8>> {
    let mut result = None;
    for (from, to) in swaps {
        let now = swapped(result.as_deref().unwrap_or(value), from, to);
        result = now.or(result);
    }
    result
}

/// The value with every `from` replaced, as it stands or in what `Basic` encodes; None where there is none.
fn swapped(value: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    const SCHEME: &[u8] = b"basic ";
    let basic = value.split_at_checked(SCHEME.len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
    if let Some((scheme, encoded)) = basic
        && let Ok(decoded) = BASE64.decode(encoded.trim_ascii()).map(Zeroizing::new)
        && let Some(pair) = replaced(&decoded, from, to).map(Zeroizing::new)
    {
        return Some([scheme, BASE64.encode(&pair).as_bytes()].concat());
    }
    replaced(value, from, to)
}

fn replaced(value: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let mut rest = value;
    let mut result: Option<Vec<u8>> = None;
    while let Some(at) = rest.windows(from.len().max(1)).position(|window| window == from) {
        let result = result.get_or_insert_default();
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    if let Some(result) = &mut result {
        result.extend_from_slice(rest);
    }
    result
}

#[cfg(test)]
mod tests {
    use cofferdam_reach::start::Secret;

    use super::*;

    const SECRET: &[u8] = b"s3cr3t-token";

    fn injections() -> Injections {
        Injections::new(vec![Injection {
            host: "api.test".to_owned(),
            port: 443,
            header: "authorization".to_owned(),
            placeholder: "cofferdam-0123".to_owned(),
            secret: Secret::new(SECRET.to_vec()),
        }])
    }

    fn host(name: &str) -> Host {
        Host::Name(name.to_owned())
    }

    #[test]
    fn a_placeholder_becomes_the_secret_in_its_header_only() {
        let injections = injections();
        let api = host("api.test");
        let reveal = |port, name, value: &[u8]| injections.reveal((&api, port), name, value);
        let revealed = reveal(443, "Authorization", b"Bearer cofferdam-0123").expect("it is replaced");
        assert_eq!(revealed, b"Bearer s3cr3t-token");
        assert_eq!(reveal(443, "x-other", b"Bearer cofferdam-0123"), None);
        assert_eq!(reveal(8443, "authorization", b"Bearer cofferdam-0123"), None);
        assert_eq!(reveal(443, "authorization", b"Bearer cofferdam-012"), None);
        assert_eq!(injections.reveal((&host("b.test"), 443), "authorization", b"cofferdam-0123"), None);
    }

    #[test]
    fn a_placeholder_in_a_basic_pair_becomes_the_secret() {
        let encoded = format!("basic {}", BASE64.encode(b"user:cofferdam-0123"));
        let revealed = injections().reveal((&host("api.test"), 443), "authorization", encoded.as_bytes());
        let expected = format!("basic {}", BASE64.encode(b"user:s3cr3t-token"));
        assert_eq!(revealed.expect("it is replaced"), expected.as_bytes());
    }

    #[test]
    fn a_secret_in_a_response_becomes_the_placeholder_again() {
        let injections = injections();
        let api = host("api.test");
        let hidden = injections.hide((&api, 443), b"a=s3cr3t-token; b=s3cr3t-token").expect("it is replaced");
        assert_eq!(hidden, b"a=cofferdam-0123; b=cofferdam-0123");
        let echoed = format!("Basic {}", BASE64.encode(b"u:s3cr3t-token"));
        let hidden = injections.hide((&api, 443), echoed.as_bytes()).expect("it is replaced");
        assert_eq!(hidden, format!("Basic {}", BASE64.encode(b"u:cofferdam-0123")).as_bytes());
    }

    #[test]
    fn a_placeholder_is_known_on_every_port_of_its_host() {
        let injections = injections();
        assert!(injections.is_held_for(&host("api.test"), b"token cofferdam-0123"));
        assert!(!injections.is_held_for(&host("b.test"), b"token cofferdam-0123"));
        assert!(injections.concern(&host("api.test"), 443) && !injections.concern(&host("api.test"), 80));
    }

    #[test]
    fn a_secret_is_not_in_what_debugging_prints() {
        assert!(!format!("{:?}", injections()).contains("s3cr3t"));
    }
}
