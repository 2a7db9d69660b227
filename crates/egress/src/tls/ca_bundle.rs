//! Which authorities are trusted in TLS: the host's own authorities outside, and besides them the session's own inside. Owns the
//! content of the files that programs inside read; their place is `plan`'s, the host's list comes from `supervisor`, the
//! authority's key is `session_ca`'s. Called by `process::service` at the start.

use aws_lc_rs::digest;
use data_encoding::BASE64;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The password that every Java has for its list; it protects nothing.
const JAVA_PASSWORD: &str = "changeit";

/// The authorities that this host believes, as one text in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trusted(String);

impl Trusted {
    pub(crate) fn new(text: String) -> Trusted {
        Trusted(text)
    }

    /// For programs that read PEM, with the session's authority.
    pub(crate) fn bundle(&self, authority: &[u8]) -> String {
        let mut text = self.0.clone();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = BASE64.encode(authority);
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
        text
    }

    /// The same for Java.
    pub(crate) fn java_store(&self, authority: &[u8]) -> Vec<u8> {
        let own = std::iter::once(authority.to_vec());
        let all: Vec<Vec<u8>> = own.chain(self.certificates().map(|one| one.to_vec())).collect();
        let mut store = Vec::new();
        // Its magic number, its version, how many there are.
        store.extend_from_slice(&[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
        put_length(&mut store, all.len());
        for (index, certificate) in all.iter().enumerate() {
            // A trusted certificate: an alias, the time it was added, its kind, itself.
            store.extend_from_slice(&[0, 0, 0, 2]);
            put_text(&mut store, &format!("cofferdam-{index}"));
            store.extend_from_slice(&[0; 8]);
            put_text(&mut store, "X.509");
            put_length(&mut store, certificate.len());
            store.extend_from_slice(certificate);
        }
        let mut sum = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        let password: Vec<u8> = JAVA_PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for part in [&password[..], b"Mighty Aphrodite", &store] {
            sum.update(part);
        }
        store.extend_from_slice(sum.finish().as_ref());
        store
    }

    /// What a server's certificate is checked with. Single ones that cannot be parsed are left out, as everywhere.
    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates());
        roots
    }

    fn certificates(&self) -> impl Iterator<Item = CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.0.as_bytes()).filter_map(Result::ok).map(CertificateDer::into_owned)
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_ends_with_the_sessions_authority() {
        let trusted = Trusted("some text without an end of line".to_owned());
        let text = trusted.bundle(&[7; 100]);
        let ours = text.strip_prefix("some text without an end of line\n").expect("the host's come first");
        let one = CertificateDer::from_pem_slice(ours.as_bytes()).expect("PEM");
        assert_eq!(one.as_ref(), [7; 100]);
        assert!(ours.lines().all(|line| line.len() <= 64));
    }

    #[test]
    fn a_java_store_counts_and_signs_what_is_in_it() {
        let other = Trusted(Trusted::default().bundle(&[1; 10]));
        let store = other.java_store(&[2; 20]);
        assert_eq!(store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        // Both, each with 4 + 2 + 11 + 8 + 2 + 5 + 4 bytes of its own, and the digest.
        assert_eq!(store.len(), 12 + 2 * 36 + 30 + 20);
    }
}
