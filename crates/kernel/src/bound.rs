//! Sockets that processes of this network namespace have bound to names in the file system. Owns the reading of
//! `/proc/net/unix`, with a bound on it, and the look at what each name leads to now; what becomes of a socket is the caller's.
//! Used by `launcher::survey` at the start, and by `gate` when a directory is granted.
//!
//! A name is listed as its process gave it: one that does not begin with a slash counts from the directory in which that
//! process stood, and is looked for where any process stands now.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use thiserror::Error;

use crate::proc::{Proc, ProcError};

/// What is read at most: some 400 000 sockets, connections included.
const MOST_BYTES: usize = 32 << 20;
/// How many places are looked at most.
const MOST_LOOKS: usize = 1 << 18;

/// A socket by the path at which it really is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundSocket {
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
}

/// Why nobody knows of all of them.
#[derive(Debug, Error)]
pub enum BoundError {
    #[error(transparent)]
    Proc(#[from] ProcError),
    #[error("there are too many to look at")]
    TooMany,
}

/// Those of them that lie where they are wanted.
pub fn sockets(is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<BoundSocket>, BoundError> {
    let list = Proc::open()?.read_whole("net/unix", MOST_BYTES)?.ok_or(BoundError::TooMany)?;
    let mut names: Vec<&[u8]> = names(&list).collect();
    names.sort_unstable();
    names.dedup();
    let path = |name: &&[u8]| PathBuf::from(OsStr::from_bytes(name));
    let (absolute, relative): (Vec<PathBuf>, Vec<PathBuf>) =
        names.iter().map(path).partition(|name| name.is_absolute());
    let directories = if relative.is_empty() { BTreeSet::new() } else { working_directories() };
    if absolute.len().saturating_add(relative.len().saturating_mul(directories.len())) > MOST_LOOKS {
        return Err(BoundError::TooMany);
    }
    let joined = directories.iter().flat_map(|directory| relative.iter().map(|name| directory.join(name)));
    let mut last = None;
    Ok(absolute.into_iter().chain(joined).filter_map(|name| look(&name, &mut last, &is_wanted)).collect())
}

/// A directory as a name has it, and where it really is.
type Directory = (PathBuf, Option<PathBuf>);

/// Names are sorted, so most lie in the directory of the one before.
fn look(name: &Path, last: &mut Option<Directory>, is_wanted: impl Fn(&Path) -> bool) -> Option<BoundSocket> {
    let (directory, file) = (name.parent()?, name.file_name()?);
    if last.as_ref().is_none_or(|(known, _)| known != directory) {
        *last = Some((directory.to_path_buf(), directory.canonicalize().ok()));
    }
    let (_, real) = last.as_ref()?;
    let path = real.as_ref()?.join(file);
    if !is_wanted(&path) {
        return None;
    }
    let stat = rustix::fs::lstat(&path).ok()?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    is_socket.then_some(BoundSocket { path, device: stat.st_dev, inode: stat.st_ino })
}

/// Names in the list, but for its heading, for abstract ones and for those of connections.
fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b'\n').skip(1).filter_map(name_of)
}

/// A line is `Num: RefCount Protocol Flags Type St Inode Path`, and the path may hold blanks itself.
fn name_of(line: &[u8]) -> Option<&[u8]> {
    const DATAGRAM: &[u8] = b"0002";
    const CONNECTED: &[u8] = b"03";
    let mut rest = line;
    let mut fields = [[].as_slice(); 7];
    for field in &mut fields {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        (*field, rest) = rest.split_at(end);
    }
    let [.., kind, state, _] = fields;
    // What was accepted has the name of what accepted it, which may be gone.
    let is_connection = state == CONNECTED && kind != DATAGRAM;
    let name = rest.get(1..)?;
    (!is_connection && !name.is_empty() && !name.starts_with(b"@")).then_some(name)
}

/// Where processes stand, as far as this user may know.
fn working_directories() -> BTreeSet<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeSet::new() };
    let is_process = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let entries = entries.filter_map(Result::ok).filter(|entry| is_process(&entry.file_name()));
    entries.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    #[test]
    fn names_of_what_listens_are_read_from_the_list() {
        let list = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23498 /run/a b\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 23499 /run/accepted\n\
            0000000000000000: 00000002 00000000 00000000 0002 03    17 /run/datagram\n\
            0000000000000000: 00000002 00000000 00010000 0005 01    18 relative\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    19 @abstract\n\
            0000000000000000: 00000003 00000000 00000000 0001 03    20\n\
            broken\n";
        let found: Vec<&str> = names(list).filter_map(|name| str::from_utf8(name).ok()).collect();
        assert_eq!(found, ["/run/a b", "/run/datagram", "relative"]);
    }

    #[test]
    fn a_socket_is_found_while_somebody_listens_and_not_afterwards() {
        let place = std::env::temp_dir().join(format!("bound-{}", std::process::id()));
        std::fs::create_dir(&place).expect("it is new");
        std::os::unix::fs::symlink(&place, place.join("link")).expect("a link");
        let real = place.canonicalize().expect("it exists");
        let found = || {
            let found = sockets(|path| path.starts_with(&real)).expect("the list is short");
            let names = found.iter().filter_map(|one| one.path.file_name()?.to_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let listener = UnixListener::bind(place.join("link/stream")).expect("binds");
        let datagram = UnixDatagram::bind(place.join("datagram")).expect("binds");
        assert_eq!(found(), ["datagram", "stream"]);
        let client = UnixStream::connect(place.join("stream")).expect("connects");
        let accepted = listener.accept().expect("accepts");
        drop((listener, datagram));
        assert_eq!(found(), [] as [&str; 0], "the names are there, and nobody listens");
        drop((client, accepted));
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
