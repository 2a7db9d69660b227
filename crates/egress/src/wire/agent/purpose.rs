//! What a signature would be good for, read from the data to be signed.
//! Owns the two forms that are understood, and calls everything else unknown; whether the purpose is allowed is the
//! policy's. Called by `classify`.

use super::{Reader, printable};

/// What is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// A file or a commit, as `ssh-keygen -Y sign` does: good within the namespace only (`git`, `file`).
    Signature { namespace: &'a str },
    /// A login with this very key. `session_id` is what a `SessionBind` named before, if the client is not lying.
    Login {
        session_id: &'a [u8],
        user: &'a str,
        /// The server's key, where the client binds the login to it.
        host_key: Option<&'a [u8]>,
    },
    /// Something else. It could be good for anything, so nothing can be promised about it.
    Unknown,
}

const USERAUTH_REQUEST: u8 = 50;

impl<'a> Purpose<'a> {
    pub(super) fn of(key: &[u8], data: &'a [u8]) -> Self {
        // No data has both forms: the letters SSHS, read as the length of a session id, are more than a message holds.
        signature(data).or_else(|| login(key, data)).unwrap_or(Purpose::Unknown)
    }
}

/// PROTOCOL.sshsig: the magic, then namespace, reserved, hash algorithm and hash.
fn signature(data: &[u8]) -> Option<Purpose<'_>> {
    let mut reader = Reader(data.strip_prefix(b"SSHSIG")?);
    let namespace = printable(reader.string()?).filter(|namespace| !namespace.is_empty())?;
    reader.string()?; // reserved
    let expected = match reader.string()? {
        b"sha256" => 32,
        b"sha512" => 64,
        _ => return None,
    };
    let hash = reader.string()?;
    reader.end()?;
    (hash.len() == expected).then_some(Purpose::Signature { namespace })
}

/// RFC 4252, section 7, with OpenSSH's addition of the host's key.
fn login<'a>(key: &[u8], data: &'a [u8]) -> Option<Purpose<'a>> {
    let mut reader = Reader(data);
    let session_id = reader.string()?;
    if session_id.is_empty() || reader.u8()? != USERAUTH_REQUEST {
        return None;
    }
    let user = printable(reader.string()?)?;
    if reader.string()? != b"ssh-connection" {
        return None;
    }
    let host_bound = match reader.string()? {
        b"publickey" => false,
        b"publickey-hostbound-v00@openssh.com" => true,
        _ => return None,
    };
    if reader.u8()? != 1 {
        return None;
    }
    reader.string()?; // the algorithm of the signature
    if reader.string()? != key {
        return None;
    }
    let host_key = if host_bound { Some(reader.string()?) } else { None };
    reader.end()?;
    Some(Purpose::Login { session_id, user, host_key })
}
