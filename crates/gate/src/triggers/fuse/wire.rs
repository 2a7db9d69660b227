//! The bytes of the FUSE protocol, version 7.31, as far as the gate speaks it. Owns parsing of requests and building of
//! replies; knows no paths and no policy. Numbers and layouts are those of `linux/fuse.h`. Used by `fuse`.

use rustix::io::Errno;

pub(super) const ROOT: u64 = 1;
/// Large enough for any request that this server asks the kernel to send.
pub(super) const BUFFER: usize = MOST_WRITE + 4096;
const MOST_WRITE: usize = 1 << 16;
const HEADER: usize = 40;
/// Set in the flags of an open by the kernel itself, where a program is to be executed.
pub(super) const EXEC: u32 = 0x20;

const MAJOR: u32 = 7;
const MINOR: u32 = 31;
const INIT_ASYNC_READ: u32 = 1 << 0;
const INIT_DO_READDIRPLUS: u32 = 1 << 13;
const INIT_READDIRPLUS_AUTO: u32 = 1 << 14;
const INIT_PARALLEL_DIROPS: u32 = 1 << 18;
const INIT_MAX_PAGES: u32 = 1 << 22;
const INIT_CACHE_SYMLINKS: u32 = 1 << 23;

/// A request, without what the gate does not look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) unique: u64,
    pub(super) node: u64,
    /// The thread, as its pid namespace numbers it; 0 where it is not in the sandbox's.
    pub(super) thread: u32,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Init {
        flags: u32,
        readahead: u32,
    },
    Destroy,
    Lookup {
        name: Vec<u8>,
    },
    Forget {
        count: u64,
    },
    ForgetMany(Vec<(u64, u64)>),
    GetAttr,
    ReadLink,
    /// A plain file that is to be made; what it will hold is asked at its open.
    Mknod {
        name: Vec<u8>,
        mode: u32,
    },
    Open {
        flags: u32,
    },
    OpenDir,
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    Release {
        handle: u64,
    },
    StatFs,
    Interrupt {
        unique: u64,
    },
    /// Creating an open file at once would hold the directory's lock while the operator decides: the kernel then makes
    /// the file first and opens it afterwards.
    Create,
    MakeDirectory {
        name: Vec<u8>,
        mode: u32,
    },
    Remove {
        name: Vec<u8>,
    },
    RemoveDirectory {
        name: Vec<u8>,
    },
    Rename {
        name: Vec<u8>,
        /// Of the directory that it goes to, and what it is called there.
        to: (u64, Vec<u8>),
        flags: u32,
    },
    SetAttributes(NewAttributes),
    Write {
        handle: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Sync {
        handle: u64,
    },
    /// Changes something in a way that is never carried out, by a name in the node or on the node itself.
    Change {
        what: &'static str,
        name: Option<Vec<u8>>,
    },
    Other,
}

/// A time of a file that is to change, in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NewTime {
    #[default]
    AsItIs,
    Now,
    At(u64, u32),
}

/// What is to change of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewAttributes {
    pub(super) size: Option<u64>,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) accessed: NewTime,
    pub(super) modified: NewTime,
}

impl NewAttributes {
    fn parse(arg: &[u8]) -> Option<NewAttributes> {
        let valid = u32_at(arg, 0)?;
        let has = |bit: u32| valid & 1 << bit != 0;
        let number = |bit: u32, at| if has(bit) { u32_at(arg, at).map(Some) } else { Some(None) };
        let time = |bit: u32, now: u32, seconds, nanoseconds| match (has(bit), has(now)) {
            (_, true) => Some(NewTime::Now),
            (true, false) => Some(NewTime::At(u64_at(arg, seconds)?, u32_at(arg, nanoseconds)?)),
            (false, false) => Some(NewTime::AsItIs),
        };
        // The last of its fields: what is cut off is no request.
        u32_at(arg, 84)?;
        Some(NewAttributes {
            mode: number(0, 68)?,
            uid: number(1, 76)?,
            gid: number(2, 80)?,
            size: if has(3) { Some(u64_at(arg, 16)?) } else { None },
            accessed: time(4, 7, 32, 56)?,
            modified: time(5, 8, 40, 60)?,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn name_at(bytes: &[u8], at: usize) -> Option<Vec<u8>> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(rest[..end].to_vec())
}

impl Request {
    pub(super) fn parse(bytes: &[u8]) -> Option<Request> {
        let opcode = u32_at(bytes, 4)?;
        Some(Request {
            unique: u64_at(bytes, 8)?,
            node: u64_at(bytes, 16)?,
            thread: u32_at(bytes, 32)?,
            body: body(opcode, bytes.get(HEADER..)?)?,
        })
    }
}

fn body(opcode: u32, arg: &[u8]) -> Option<Body> {
    let change = |what, at: Option<usize>| Some(Body::Change { what, name: at.and_then(|at| name_at(arg, at)) });
    match opcode {
        1 => Some(Body::Lookup { name: name_at(arg, 0)? }),
        2 => Some(Body::Forget { count: u64_at(arg, 0)? }),
        3 => Some(Body::GetAttr),
        4 => Some(Body::SetAttributes(NewAttributes::parse(arg)?)),
        5 => Some(Body::ReadLink),
        6 => change("make the link", Some(0)),
        8 => Some(Body::Mknod { name: name_at(arg, 16)?, mode: u32_at(arg, 0)? }),
        9 => Some(Body::MakeDirectory { name: name_at(arg, 8)?, mode: u32_at(arg, 0)? }),
        10 => Some(Body::Remove { name: name_at(arg, 0)? }),
        11 => Some(Body::RemoveDirectory { name: name_at(arg, 0)? }),
        12 => rename(arg, 8, 0),
        13 => change("make the link", Some(8)),
        14 => Some(Body::Open { flags: u32_at(arg, 0)? }),
        15 => Some(Body::Read { handle: u64_at(arg, 0)?, offset: u64_at(arg, 8)?, size: u32_at(arg, 16)? }),
        16 => write(arg),
        17 => Some(Body::StatFs),
        18 | 29 => Some(Body::Release { handle: u64_at(arg, 0)? }),
        20 => Some(Body::Sync { handle: u64_at(arg, 0)? }),
        21 => change("change the attributes of", None),
        26 => Some(Body::Init { flags: u32_at(arg, 12)?, readahead: u32_at(arg, 8)? }),
        27 => Some(Body::OpenDir),
        28 => read_dir(arg, false),
        35 => Some(Body::Create),
        36 => Some(Body::Interrupt { unique: u64_at(arg, 0)? }),
        38 => Some(Body::Destroy),
        42 => Some(Body::ForgetMany(forgets(arg)?)),
        44 => read_dir(arg, true),
        45 => rename(arg, 16, u32_at(arg, 8)?),
        _ => Some(Body::Other),
    }
}

fn rename(arg: &[u8], names: usize, flags: u32) -> Option<Body> {
    let name = name_at(arg, names)?;
    let new = name_at(arg, names + name.len() + 1)?;
    Some(Body::Rename { name, to: (u64_at(arg, 0)?, new), flags })
}

fn write(arg: &[u8]) -> Option<Body> {
    let length = usize::try_from(u32_at(arg, 16)?).ok()?;
    let data = arg.get(40..40usize.checked_add(length)?)?.to_vec();
    Some(Body::Write { handle: u64_at(arg, 0)?, offset: u64_at(arg, 8)?, data })
}

fn read_dir(arg: &[u8], plus: bool) -> Option<Body> {
    Some(Body::ReadDir { handle: u64_at(arg, 0)?, offset: u64_at(arg, 8)?, size: u32_at(arg, 16)?, plus })
}

fn forgets(arg: &[u8]) -> Option<Vec<(u64, u64)>> {
    let count = usize::try_from(u32_at(arg, 0)?).ok()?;
    (0..count).map(|i| Some((u64_at(arg, 8 + i * 16)?, u64_at(arg, 16 + i * 16)?))).collect()
}

/// What is known of a file, in the words of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) mtime: (u64, u32),
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Replies are built field by field.
#[derive(Debug, Default)]
pub(super) struct Out(Vec<u8>);

impl Out {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn attr(self, attr: &Attr) -> Self {
        let (seconds, nanoseconds) = attr.mtime;
        self.u64(attr.ino)
            .u64(attr.size)
            .u64(attr.size.div_ceil(512))
            .u64(seconds)
            .u64(seconds)
            .u64(seconds)
            .u32(nanoseconds)
            .u32(nanoseconds)
            .u32(nanoseconds)
            .u32(attr.mode)
            .u32(attr.links)
            .u32(attr.uid)
            .u32(attr.gid)
            .u32(0)
            .u32(4096)
            .u32(0)
    }

    /// `names` says for how many seconds the name may be taken for known, `attributes` the same of size and mode.
    pub(super) fn entry(node: u64, attr: &Attr, names: u64, attributes: u64) -> Vec<u8> {
        Out::default().entry_part(node, attr, names, attributes).0
    }

    fn entry_part(self, node: u64, attr: &Attr, names: u64, attributes: u64) -> Self {
        self.u64(node).u64(1).u64(names).u64(attributes).u32(0).u32(0).attr(attr)
    }

    /// The name does not exist, and that may be taken for known for `names` seconds.
    pub(super) fn no_entry(names: u64) -> Vec<u8> {
        Out::default().u64(0).u64(0).u64(names).u64(0).u32(0).u32(0).attr(&Attr::default()).0
    }

    pub(super) fn attributes(attr: &Attr, seconds: u64) -> Vec<u8> {
        Out::default().u64(seconds).u32(0).u32(0).attr(attr).0
    }

    pub(super) fn opened(handle: u64) -> Vec<u8> {
        Out::default().u64(handle).u32(0).u32(0).0
    }

    pub(super) fn written(length: usize) -> Vec<u8> {
        Out::default().u32(u32::try_from(length).unwrap_or(0)).u32(0).0
    }

    pub(super) fn init(flags: u32, readahead: u32) -> Vec<u8> {
        let wanted = INIT_ASYNC_READ
            | INIT_DO_READDIRPLUS
            | INIT_READDIRPLUS_AUTO
            | INIT_PARALLEL_DIROPS
            | INIT_MAX_PAGES
            | INIT_CACHE_SYMLINKS;
        let most_write = u32::try_from(MOST_WRITE).unwrap_or(u32::MAX);
        let out = Out::default().u32(MAJOR).u32(MINOR).u32(readahead).u32(flags & wanted);
        let out = out.u16(16).u16(12).u32(most_write).u32(1).u16(16).u16(0);
        (0..8).fold(out, |out, _| out.u32(0)).0
    }

    pub(super) fn statfs() -> Vec<u8> {
        let out = (0..5).fold(Out::default(), |out, _| out.u64(0));
        (0..6).fold(out.u32(4096).u32(255).u32(4096).u32(0), |out, _| out.u32(0)).0
    }
}

/// One name of a directory, for `Listing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) bytes: Vec<u8>,
    pub(super) ino: u64,
    /// As in `st_mode`, shifted.
    pub(super) kind: u32,
}

/// A reply that holds as many names as fit.
#[derive(Debug)]
pub(super) struct Listing {
    out: Out,
    room: usize,
}

impl Listing {
    pub(super) fn new(room: u32) -> Self {
        Listing { out: Out::default(), room: usize::try_from(room).unwrap_or(0) }
    }

    /// Whether another name has room.
    pub(super) fn has_room(&self, name: &Name, plus: bool) -> bool {
        let size = (24 + name.bytes.len()).next_multiple_of(8) + if plus { 128 } else { 0 };
        self.out.0.len() + size <= self.room
    }

    /// `next` is where the following read goes on; `entry` is what a lookup of the name would say: node, attributes, and
    /// for how long both may be taken for known.
    pub(super) fn push(&mut self, name: &Name, next: u64, entry: Option<(u64, &Attr, (u64, u64))>, plus: bool) {
        let dirent = 24 + name.bytes.len();
        let padded = dirent.next_multiple_of(8);
        let mut out = std::mem::take(&mut self.out);
        if plus {
            out = match entry {
                Some((node, attr, (names, attributes))) => out.entry_part(node, attr, names, attributes),
                None => out.entry_part(0, &Attr::default(), 0, 0),
            };
        }
        let length = u32::try_from(name.bytes.len()).unwrap_or(0);
        out = out.u64(name.ino).u64(next).u32(length).u32(name.kind);
        out.0.extend(&name.bytes);
        out.0.resize(out.0.len() + padded - dirent, 0);
        self.out = out;
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.out.0
    }
}

/// The whole reply to a request.
pub(super) fn reply(unique: u64, result: Result<&[u8], Errno>) -> Vec<u8> {
    let data = result.unwrap_or_default();
    let error = result.err().map_or(0, |errno| -errno.raw_os_error());
    let length = u32::try_from(16 + data.len()).unwrap_or(u32::MAX);
    let mut bytes = Out::default().u32(length).u32(error.cast_unsigned()).u64(unique).0;
    bytes.extend(data);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name_of(body: &Body) -> Option<&Vec<u8>> {
        match body {
            Body::Lookup { name }
            | Body::Mknod { name, .. }
            | Body::MakeDirectory { name, .. }
            | Body::Remove { name }
            | Body::RemoveDirectory { name }
            | Body::Rename { name, .. }
            | Body::Change { name: Some(name), .. } => Some(name),
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn a_request_never_holds_more_than_its_bytes(
            opcode in 0u32..50,
            header in prop::collection::vec(any::<u8>(), HEADER..=HEADER),
            arg in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = header;
            bytes[4..8].copy_from_slice(&opcode.to_le_bytes());
            bytes.extend(&arg);
            if let Some(request) = Request::parse(&bytes) {
                prop_assert_eq!(u64_at(&bytes, 8), Some(request.unique));
                if let Some(name) = name_of(&request.body) {
                    prop_assert!(!name.contains(&0) && name.len() < arg.len());
                }
                if let Body::ForgetMany(forgets) = &request.body {
                    prop_assert!(8 + forgets.len() * 16 <= arg.len());
                }
            }
            // A request that is cut off never parses as another one. A change is refused by what it does, so its name is told
            // where there is one and not missed where it was cut off.
            let cut = &bytes[..cut.index(bytes.len())];
            if let (Some(whole), Some(part)) = (Request::parse(&bytes), Request::parse(cut)) {
                let is_nameless = matches!(part.body, Body::Change { name: None, .. });
                prop_assert!(part == whole || is_nameless);
            }
        }
    }

    #[test]
    fn sizes_are_those_of_the_kernel_header() {
        assert_eq!(Out::entry(1, &Attr::default(), 0, 0).len(), 128);
        assert_eq!(Out::attributes(&Attr::default(), 0).len(), 104);
        assert_eq!(Out::init(0, 0).len(), 64);
        assert_eq!(Out::statfs().len(), 80);
        assert_eq!(Out::opened(0).len(), 16);
        assert_eq!(reply(1, Err(Errno::STALE)).len(), 16);
    }

    #[test]
    fn a_short_or_foreign_request_is_no_request() {
        assert_eq!(Request::parse(&[]), None);
        assert_eq!(Request::parse(&[0; 39]), None);
        let mut lookup = vec![0u8; 40];
        lookup[4] = 1;
        assert_eq!(Request::parse(&lookup), None, "a name without its end");
        lookup.extend(b"etc\0");
        let parsed = Request::parse(&lookup).expect("whole");
        assert_eq!(parsed.body, Body::Lookup { name: b"etc".to_vec() });
    }
}
