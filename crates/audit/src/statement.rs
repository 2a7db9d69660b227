//! Statements that are signed with the key of the chain, so that one key stands for a user's log and for what is said of its host.
//! Owns what is signed; what a statement says is the caller's. Called by `sandbox-verify`.

use std::os::fd::AsFd as _;
use std::path::Path;

use ed25519_dalek::{Signature, Signer as _};
use rustix::io::Errno;

use crate::files::{self, Lock};
use crate::{checkpoint, hex};

/// Keeps the signature of a statement from being one of a checkpoint.
const DOMAIN: &[u8] = b"cofferdam statement 1\0";

pub const ALGORITHM: &str = "ed25519";

/// A signature with the public key that checks it, both in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub key: String,
    pub signature: String,
}

fn message(statement: &[u8]) -> Vec<u8> {
    [DOMAIN, statement].concat()
}

/// Signs with the key below a state directory, which is made if there is none.
pub fn sign(state: &Path, statement: &[u8]) -> Result<Signed, Errno> {
    let directory = files::make_directory(&crate::directory(state))?;
    let _lock = Lock::to_write(directory.as_fd())?;
    let key = checkpoint::key(directory.as_fd())?;
    let signature = hex::encode(&key.sign(&message(statement)).to_bytes());
    Ok(Signed { key: hex::encode(key.verifying_key().as_bytes()), signature })
}

/// The public key below a state directory, if there is one.
pub fn public_key(state: &Path) -> Result<Option<String>, Errno> {
    match files::open_directory(&crate::directory(state)) {
        Ok(directory) => checkpoint::public_key(directory.as_fd()),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether the key that is named here signed exactly this.
pub fn is_signed(statement: &[u8], signed: &Signed) -> bool {
    let parts = checkpoint::parse_key(&signed.key).zip(hex::decode(&signed.signature));
    parts.is_some_and(|(key, signature)| {
        key.verify_strict(&message(statement), &Signature::from_bytes(&signature)).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_signed_by_the_key_of_the_chain_and_no_byte_of_it_can_change() {
        let state = std::env::temp_dir().join(format!("cofferdam-statement-{}", std::process::id()));
        let signed = sign(&state, b"all walls stand").expect("a key can be made");
        assert_eq!(public_key(&state).expect("it can be read"), Some(signed.key.clone()));
        assert!(is_signed(b"all walls stand", &signed));
        assert!(!is_signed(b"all walls stanD", &signed));
        let flipped = |text: &str| {
            let first = if text.starts_with('0') { "1" } else { "0" };
            format!("{first}{}", &text[1..])
        };
        assert!(!is_signed(b"all walls stand", &Signed { signature: flipped(&signed.signature), ..signed.clone() }));
        assert!(!is_signed(b"all walls stand", &Signed { key: flipped(&signed.key), ..signed }));
        std::fs::remove_dir_all(state).expect("it was made here");
    }

    #[test]
    fn without_a_chain_there_is_no_key() {
        assert_eq!(public_key(Path::new("/nonexistent/state")), Ok(None));
    }
}
