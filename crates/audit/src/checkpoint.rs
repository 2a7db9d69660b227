//! Signed places of the chain: an ed25519 signature over a sequence and the hash of that record, and so over everything before it.
//! Owns the key and what is signed; the key is made on first use. Used by `journal` and `prune` (sign) and `verify` (checks).

use std::os::fd::BorrowedFd;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::files::{self, KEY, PUBLIC_KEY};
use crate::hex;
use crate::line::Hash;

/// What a signature says of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It and all before are as they were written.
    Written,
    /// It and all before may be missing: they were pruned.
    Pruned,
}

impl Meaning {
    /// Keeps a signature of ours from meaning anything elsewhere.
    fn domain(self) -> &'static [u8] {
        match self {
            Meaning::Written => b"cofferdam audit checkpoint 1\0",
            Meaning::Pruned => b"cofferdam audit pruned 1\0",
        }
    }

    fn message(self, sequence: u64, hash: &Hash) -> Vec<u8> {
        [self.domain(), &sequence.to_be_bytes(), hash].concat()
    }
}

/// The key of this directory, made if there is none. Only under the lock.
pub(crate) fn key(directory: BorrowedFd<'_>) -> Result<SigningKey, Errno> {
    let key = if let Some(bytes) = files::read_small(directory, KEY)? {
        // Half a key is no key; making another would make every signature so far look forged.
        SigningKey::from_bytes(&<[u8; 32]>::try_from(bytes).map_err(|_| Errno::BADMSG)?)
    } else {
        let mut seed = [0; 32];
        let mut filled = 0;
        while filled < seed.len() {
            filled += getrandom(&mut seed[filled..], GetRandomFlags::empty())?;
        }
        let key = SigningKey::from_bytes(&seed);
        files::replace(directory, KEY, &seed)?;
        key
    };
    if !files::exists(directory, PUBLIC_KEY) {
        files::replace(directory, PUBLIC_KEY, (hex::encode(key.verifying_key().as_bytes()) + "\n").as_bytes())?;
    }
    Ok(key)
}

/// The key that signatures are checked with, as it is printed; `None` before the first checkpoint.
pub(crate) fn public_key(directory: BorrowedFd<'_>) -> Result<Option<String>, Errno> {
    let bytes = files::read_small(directory, PUBLIC_KEY)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned()))
}

pub(crate) fn parse_key(text: &str) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(&hex::decode(text)?).ok()
}

/// A signature, as it stands in the details of its record and in the file `checkpoint` or `pruned`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Checkpoint {
    /// The record that is signed, and with it all before.
    pub(crate) sequence: u64,
    pub(crate) hash: String,
    pub(crate) key: String,
    pub(crate) signature: String,
}

impl Checkpoint {
    pub(crate) fn sign(key: &SigningKey, meaning: Meaning, sequence: u64, hash: &Hash) -> Self {
        Checkpoint {
            sequence,
            hash: hex::encode(hash),
            key: hex::encode(key.verifying_key().as_bytes()),
            signature: hex::encode(&key.sign(&meaning.message(sequence, hash)).to_bytes()),
        }
    }

    pub(crate) fn details(&self) -> Value {
        json!({ "sequence": self.sequence, "hash": self.hash, "key": self.key, "signature": self.signature })
    }

    /// As a file of the chain's directory has it.
    pub(crate) fn text(&self) -> String {
        format!("{}\n", self.details())
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text.strip_suffix(b"\n")?).ok()
    }

    /// What was signed, if this key signed it in this meaning.
    pub(crate) fn verified(&self, meaning: Meaning, key: &VerifyingKey) -> Option<(u64, Hash)> {
        let hash: Hash = hex::decode(&self.hash)?;
        let signature = Signature::from_bytes(&hex::decode(&self.signature)?);
        let is_ours = hex::encode(key.as_bytes()) == self.key;
        let is_signed = key.verify_strict(&meaning.message(self.sequence, &hash), &signature).is_ok();
        (is_ours && is_signed).then_some((self.sequence, hash))
    }
}
