//! Signed reports. Owns which bytes are signed and how a file is compared with its signature; the key is that of the user's audit log.
//! Called by `options`.

use std::path::Path;

use cofferdam_audit::statement::{self, ALGORITHM, Signed};
use cofferdam_kernel::Errno;
use thiserror::Error;

use crate::report::{Report, SCHEMA, Signature};

/// Longest report that is read.
pub(crate) const MOST_BYTES: u64 = 4 << 20;

/// Why a file is no report that is believed.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Disbelief {
    #[error("it is no JSON report as `sandbox verify --json` prints it: {0}")]
    Unreadable(String),
    #[error(
        "it is a page; wanted is the JSON report, which the page has at its end and `sandbox verify --json` prints"
    )]
    Page,
    #[error("its format is `{0}`, not `{SCHEMA}`")]
    Format(String),
    #[error("it is not signed")]
    Unsigned,
    #[error("it is signed by key {0}, not by {1}")]
    OtherKey(String, String),
    #[error("its bytes are not those that were signed")]
    Altered,
}

/// The report as it is written: in letters that no terminal and no browser moves or hides, so that what is seen and copied is
/// what was signed.
pub(crate) fn text(report: &Report) -> String {
    let mut text = in_ascii(&serde_json::to_string_pretty(report).unwrap_or_default());
    text.push('\n');
    text
}

/// JSON in letters of ASCII alone, which parses to the same value: JSON has others only inside of strings.
fn in_ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || c == ' ' || c.is_ascii_graphic() {
            out.push(c);
        } else {
            let mut units = [0; 2];
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

fn signed_part(report: &Report) -> Vec<u8> {
    text(&Report { signature: None, ..report.clone() }).into_bytes()
}

pub(crate) fn sign(report: &mut Report, state: &Path) -> Result<(), Errno> {
    let Signed { key, signature } = statement::sign(state, &signed_part(report))?;
    report.signature = Some(Signature { algorithm: ALGORITHM.to_owned(), key_id: key, value: signature });
    Ok(())
}

/// The report of a file, if this key signed each byte of it.
pub(crate) fn checked(file: &[u8], key: &str) -> Result<Report, Disbelief> {
    if file.trim_ascii_start().starts_with(b"<") {
        return Err(Disbelief::Page);
    }
    let report: Report = serde_json::from_slice(file).map_err(|error| Disbelief::Unreadable(error.to_string()))?;
    if report.schema != SCHEMA {
        return Err(Disbelief::Format(report.schema));
    }
    let signature = report.signature.clone().ok_or(Disbelief::Unsigned)?;
    if signature.key_id != key {
        return Err(Disbelief::OtherKey(signature.key_id, key.to_owned()));
    }
    let signed = Signed { key: signature.key_id, signature: signature.value };
    // What two spellings mean is one thing, but only one of them was written.
    let is_as_written = signature.algorithm == ALGORITHM && text(&report).as_bytes() == file;
    let is_signed = is_as_written && statement::is_signed(&signed_part(&report), &signed);
    if is_signed { Ok(report) } else { Err(Disbelief::Altered) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn state(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("cofferdam-signing-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_signed_report_is_believed_and_no_changed_byte_of_it() {
        let state = state("bytes");
        let mut report = sample();
        sign(&mut report, &state).expect("a key can be made");
        let key = report.signature.as_ref().map(|signature| signature.key_id.clone()).expect("it is signed");
        let file = text(&report).into_bytes();
        assert_eq!(checked(&file, &key), Ok(report));
        for at in 0..file.len() {
            let mut forged = file.clone();
            forged[at] ^= 1;
            assert!(checked(&forged, &key).is_err(), "byte {at} of {}", file.len());
        }
        assert_eq!(checked(&[&file[..], b" "].concat(), &key), Err(Disbelief::Altered));
        std::fs::remove_dir_all(state).expect("it was made here");
    }

    #[test]
    fn a_report_of_another_key_or_of_none_is_not_believed() {
        let (own, other) = (state("own"), state("other"));
        let mut report = sample();
        let key = statement::sign(&own, b"").expect("a key can be made").key;
        assert_eq!(checked(text(&report).as_bytes(), &key), Err(Disbelief::Unsigned));
        sign(&mut report, &other).expect("a key can be made");
        assert!(matches!(checked(text(&report).as_bytes(), &key), Err(Disbelief::OtherKey(..))));
        for state in [own, other] {
            std::fs::remove_dir_all(state).expect("it was made here");
        }
    }
}
