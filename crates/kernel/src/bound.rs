//! Sockets that processes of this network namespace have bound to names in the file system. Owns the reading of
//! `/proc/net/unix`, with a bound on it, and the look at what each name leads to now; what becomes of a socket is the caller's.
//! Used by `host::survey` at the start, by `gate` when a directory is granted, and by `supervisor::covers` while it is written.
//!
//! A name is listed as its process gave it: one that does not begin with a slash counts from the directory in which that
//! process stood, and is looked for where any process stands now.

use std::collections::{BTreeMap, BTreeSet};
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundSocket {
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
}

/// Why the caller cannot know of all of them.
#[derive(Debug, Error)]
pub enum BoundError {
    #[error(transparent)]
    Proc(#[from] ProcError),
    #[error("there are too many to look at")]
    TooMany,
}

/// Those of them that lie where they are wanted. A name that counts from somewhere is also looked for in `roots`,
/// whichever process has bound it and wherever that one stands: git goes to a directory whose path is too long for a name,
/// binds and returns.
pub fn sockets(roots: &[&Path], is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<BoundSocket>, BoundError> {
    let list = Proc::open()?.read_whole("net/unix", MOST_BYTES)?.ok_or(BoundError::TooMany)?;
    let names = names(&list);
    let names = names.iter().map(|name| Path::new(OsStr::from_bytes(name)));
    let (absolute, mut relative): (BTreeSet<&Path>, BTreeSet<&Path>) = names.partition(|name| name.is_absolute());
    relative.extend(absolute.iter().filter_map(|name| below_descriptor(name)));
    let mut directories = if relative.is_empty() { BTreeSet::new() } else { working_directories() };
    directories.extend(roots.iter().map(|root| root.to_path_buf()));
    if absolute.len().saturating_add(relative.len().saturating_mul(directories.len())) > MOST_LOOKS {
        return Err(BoundError::TooMany);
    }
    let joined = directories.iter().flat_map(|directory| relative.iter().map(|name| directory.join(name)));
    let mut parents = BTreeMap::new();
    let found = absolute.iter().map(|name| name.to_path_buf()).chain(joined);
    let mut found: Vec<BoundSocket> = found.filter_map(|name| look(&name, &mut parents, &is_wanted)).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Those whose names count from nowhere. A name that does may be meant in any directory, and so may be a socket of another
/// network namespace in this one.
pub fn named_in_full(is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<BoundSocket>, BoundError> {
    let list = Proc::open()?.read_whole("net/unix", MOST_BYTES)?.ok_or(BoundError::TooMany)?;
    let names = names(&list);
    let names = names.iter().map(|name| Path::new(OsStr::from_bytes(name)));
    let mut parents = BTreeMap::new();
    let whole = names.filter(|name| name.is_absolute() && below_descriptor(name).is_none());
    Ok(whole.filter_map(|name| look(name, &mut parents, &is_wanted)).collect())
}

/// `sock` of `/proc/self/fd/3/sock` and of `/proc/self/cwd/sock`, which lead elsewhere in every process.
fn below_descriptor(name: &Path) -> Option<&Path> {
    let mut parts = name.strip_prefix("/proc").ok()?.components();
    parts.next()?;
    match parts.next()?.as_os_str().as_bytes() {
        b"fd" => drop(parts.next()?),
        b"cwd" => {}
        _ => return None,
    }
    Some(parts.as_path()).filter(|rest| !rest.as_os_str().is_empty())
}

/// The real directory of each name is found once.
fn look(
    name: &Path,
    parents: &mut BTreeMap<PathBuf, Option<PathBuf>>,
    is_wanted: impl Fn(&Path) -> bool,
) -> Option<BoundSocket> {
    let (parent, last) = (name.parent()?, name.file_name()?);
    if !parents.contains_key(parent) {
        parents.insert(parent.to_path_buf(), parent.canonicalize().ok());
    }
    let path = parents.get(parent)?.as_ref()?.join(last);
    if !is_wanted(&path) {
        return None;
    }
    let stat = rustix::fs::lstat(&path).ok()?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    is_socket.then_some(BoundSocket { path, device: stat.st_dev, inode: stat.st_ino })
}

/// Names in the list, but for its heading, for abstract ones and for those of connections. A name may hold line breaks.
fn names(list: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut goes_on = false;
    for line in list.strip_suffix(b"\n").unwrap_or(list).split(|byte| *byte == b'\n').skip(1) {
        if begins_entry(line) {
            let name = name_of(line);
            goes_on = name.is_some();
            names.extend(name.map(<[u8]>::to_vec));
        } else if let Some(name) = names.last_mut().filter(|_| goes_on) {
            name.push(b'\n');
            name.extend_from_slice(line);
        }
    }
    names
}

/// Whether this is `Num: RefCount` and more, and not the rest of a name.
fn begins_entry(line: &[u8]) -> bool {
    let number = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let after = line.get(number..).unwrap_or_default().strip_prefix(b": ").unwrap_or_default();
    number >= 8 && after.len() > 8 && after.iter().take(8).all(u8::is_ascii_hexdigit)
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
            broken\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    21 /run/two\n\
            lines\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    22 /run/tail\n\n";
        let found: Vec<String> = names(list).into_iter().filter_map(|name| String::from_utf8(name).ok()).collect();
        assert_eq!(found, ["/run/a b", "/run/datagram", "relative", "/run/two\nlines", "/run/tail\n"]);
    }

    #[test]
    fn names_that_count_from_a_descriptor_are_known() {
        let table = [
            ("/proc/self/fd/3/a/sock", Some("a/sock")),
            ("/proc/17/cwd/sock", Some("sock")),
            ("/proc/self/fd/3", None),
            ("/proc/self/root/sock", None),
            ("/run/self/fd/3/sock", None),
        ];
        for (name, expected) in table {
            assert_eq!(below_descriptor(Path::new(name)), expected.map(Path::new), "{name}");
        }
    }

    #[test]
    fn a_socket_is_found_while_somebody_listens_and_not_afterwards() {
        let place = std::env::temp_dir().join(format!("bound-{}", std::process::id()));
        std::fs::create_dir(&place).expect("it is new");
        std::os::unix::fs::symlink(&place, place.join("link")).expect("a link");
        let real = place.canonicalize().expect("it exists");
        let found = || {
            let found = sockets(&[&real], |path| path.starts_with(&real)).expect("the list is short");
            let names = found.iter().filter_map(|one| one.path.file_name()?.to_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let listener = UnixListener::bind(place.join("link/stream")).expect("binds");
        let datagram = UnixDatagram::bind(place.join("datagram")).expect("binds");
        let lines = UnixListener::bind(place.join("two\nlines")).expect("binds");
        let directory = std::fs::File::open(&place).expect("opens");
        let short = format!("/proc/self/fd/{}/short", std::os::fd::AsRawFd::as_raw_fd(&directory));
        let short = UnixListener::bind(short).expect("binds");
        drop(directory);
        assert_eq!(found(), ["datagram", "short", "stream", "two\nlines"]);
        let client = UnixStream::connect(place.join("stream")).expect("connects");
        let accepted = listener.accept().expect("accepts");
        drop((listener, datagram, lines, short));
        assert_eq!(found(), [] as [&str; 0], "the names are there, and nobody listens");
        drop((client, accepted));
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
