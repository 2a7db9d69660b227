//! What the standard streams may be, a closed list, and how each gets inside: a descriptor keeps the mount that it was opened
//! on, so a file of the host never goes in by its own (docs/decisions/0033). Owns the list, stdin that is opened again on a
//! mount of its own, and the sandbox's own devices; bytes are carried by `supervisor`.
//! Called by `init`, `workload` and `join`, and by `supervisor` before it clones.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use cofferdam_kernel::mount::{self, Attributes};
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{stderr, stdin, stdout};

pub const PIPEFS_MAGIC: i64 = 0x5049_5045;
/// Harmless devices that every sandbox has its own of.
const DEVICES: [(u32, u32, &CStr); 5] =
    [(1, 3, c"/dev/null"), (1, 5, c"/dev/zero"), (1, 7, c"/dev/full"), (1, 8, c"/dev/random"), (1, 9, c"/dev/urandom")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A pipe without a name, or a socket: it leads to what is at its other end and nowhere else.
    Channel,
    Terminal,
    /// The sandbox's own is taken instead.
    Device(&'static CStr),
    /// A regular file, nameless ones included.
    File,
    /// A pipe with a name, which can be opened the other way.
    Fifo,
}

impl Kind {
    /// Whether its bytes are carried, so that the descriptor stays outside.
    pub fn is_carried(self) -> bool {
        matches!(self, Kind::File | Kind::Fifo)
    }
}

/// What a stream is that no sandbox gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub stream: &'static str,
    pub is: &'static str,
}

/// Standard input, output and error, in this order.
pub type Kinds = [Kind; 3];

/// The streams of this process.
pub fn look() -> Result<Result<Kinds, Refused>, Errno> {
    let mut kinds = [Kind::Channel; 3];
    let streams = [("stdin", stdin()), ("stdout", stdout()), ("stderr", stderr())];
    for (kind, (stream, fd)) in kinds.iter_mut().zip(streams) {
        *kind = match kind_of(fd)? {
            // What cannot be read is no input; opening it again would give what the caller did not.
            Ok(Kind::File) if stream == "stdin" && access(fd)? == OFlags::WRONLY => {
                return Ok(Err(Refused { stream, is: "a file that is open for writing only" }));
            }
            Ok(kind) => kind,
            Err(is) => return Ok(Err(Refused { stream, is })),
        };
    }
    Ok(Ok(kinds))
}

fn access(fd: BorrowedFd<'_>) -> Result<OFlags, Errno> {
    Ok(rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE)
}

/// What a descriptor is, or what it is that is not on the list.
pub fn kind_of(fd: BorrowedFd<'_>) -> Result<Result<Kind, &'static str>, Errno> {
    if rustix::fs::fcntl_getfl(fd)?.contains(OFlags::PATH) {
        return Ok(Err("a descriptor that was opened with O_PATH"));
    }
    let stat = rustix::fs::fstat(fd)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => Ok(Kind::Channel),
        FileType::Fifo if rustix::fs::fstatfs(fd)?.f_type == PIPEFS_MAGIC => Ok(Kind::Channel),
        FileType::Fifo => Ok(Kind::Fifo),
        FileType::RegularFile => Ok(Kind::File),
        FileType::CharacterDevice if rustix::termios::isatty(fd) => Ok(Kind::Terminal),
        FileType::CharacterDevice => {
            let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            let known = DEVICES.iter().find(|(major, minor, _)| (*major, *minor) == number);
            known.map(|(_, _, path)| Kind::Device(path)).ok_or("a device that sandboxes do not have")
        }
        FileType::Directory => Err("a directory"),
        FileType::BlockDevice => Err("a block device"),
        FileType::Symlink | FileType::Unknown => Err("neither a file nor a pipe, a socket or a terminal"),
    })
}

/// Why a descriptor cannot be handed over by its number. A pipe without a name leads to its other end and nowhere else; a file could be
/// opened again for writing, a directory leads out, and a socket carries further descriptors.
pub fn why_not_passed(number: i32) -> Option<&'static str> {
    let path = format!("/proc/self/fd/{number}");
    let Ok(stat) = rustix::fs::stat(&path) else { return Some("it is not open") };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => {
            let is_nameless = rustix::fs::statfs(&path).is_ok_and(|fs| fs.f_type == PIPEFS_MAGIC);
            (!is_nameless).then_some("it is a pipe with a name")
        }
        FileType::Directory => Some("it is a directory"),
        FileType::Socket => Some("it is a socket"),
        FileType::RegularFile => Some("it is a file: give its path with --ro or --rw, or let it be a standard stream"),
        _ => Some("it is not a pipe"),
    }
}

/// In the set-up child, while the host's tree is in view: puts something else in the place of a stdin that is carried.
/// Returns what the supervisor needs of it: the same open file, or the end of a pipe that is to be filled.
pub fn replace_stdin(kind: Kind) -> Result<Option<OwnedFd>, Errno> {
    if !kind.is_carried() {
        return Ok(None);
    }
    if kind == Kind::File
        && let Ok(file) = opened_again()
    {
        rustix::stdio::dup2_stdin(&file)?;
        return Ok(Some(file));
    }
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::stdio::dup2_stdin(&reader)?;
    Ok(Some(writer))
}

/// The file that stdin is, on a read-only mount of its own, at the same place in it. Fails where its name leads to
/// another file by now, or to none, or where this side of the user namespace may not read it.
fn opened_again() -> Result<OwnedFd, Errno> {
    let here = stdin();
    let name = rustix::fs::readlink("/proc/self/fd/0", Vec::new())?.into_bytes();
    let path = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(name));
    let source = mount::open_source(&path)?;
    let wanted = mount::identity(here)?;
    if mount::identity(source.as_fd())? != wanted {
        return Err(Errno::STALE);
    }
    let tree = mount::clone_tree(source.as_fd())?;
    mount::restrict_tree(tree.as_fd(), Attributes::READ_ONLY)?;
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, format!("/proc/self/fd/{}", tree.as_raw_fd()), flags, Mode::empty())?;
    // A submount on the file would be another one.
    if mount::identity(file.as_fd())? != wanted {
        return Err(Errno::STALE);
    }
    rustix::fs::seek(&file, SeekFrom::Start(rustix::fs::tell(here)?))?;
    Ok(file)
}

/// In the command's process: devices of the host give way to the sandbox's own, whose mounts cannot be changed.
pub fn take_own_devices(kinds: &Kinds) -> Result<(), Errno> {
    for (at, kind) in kinds.iter().enumerate() {
        let Kind::Device(path) = kind else { continue };
        match at {
            0 => rustix::stdio::dup2_stdin(own_device(path, stdin())?)?,
            1 => rustix::stdio::dup2_stdout(own_device(path, stdout())?)?,
            _ => rustix::stdio::dup2_stderr(own_device(path, stderr())?)?,
        }
    }
    Ok(())
}

pub fn own_device(path: &CStr, instead_of: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, access(instead_of)? | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

/// The command's ends of the pipes, and which streams they become.
#[derive(Debug, Default)]
pub struct Writers(pub Vec<(OwnedFd, Streams)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    Stdout,
    Stderr,
    Both,
}

impl Writers {
    /// For a command that gets its streams as descriptors: what stands for stdout, and what for stderr.
    pub fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let of = |but: Streams| self.0.iter().find(|(_, streams)| *streams != but).map(|(writer, _)| writer.as_fd());
        [of(Streams::Stderr), of(Streams::Stdout)]
    }

    /// In the command's process, before it is executed.
    pub fn become_streams(&self) -> Result<(), Errno> {
        for (writer, streams) in &self.0 {
            if *streams != Streams::Stderr {
                rustix::stdio::dup2_stdout(writer)?;
            }
            if *streams != Streams::Stdout {
                rustix::stdio::dup2_stderr(writer)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_is_not_on_the_list_is_refused_by_name() {
        let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("opens");
        let kind = |fd: &OwnedFd| kind_of(fd.as_fd()).expect("it is open");
        assert_eq!(kind(&open("/", OFlags::RDONLY)), Err("a directory"));
        assert_eq!(kind(&open("/dev/null", OFlags::PATH)), Err("a descriptor that was opened with O_PATH"));
        let events = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).expect("an epoll");
        assert_eq!(kind(&events), Err("neither a file nor a pipe, a socket or a terminal"));
        assert_eq!(kind(&open("/dev/ptmx", OFlags::RDWR | OFlags::NOCTTY)), Ok(Kind::Terminal));
        for (_, _, path) in DEVICES {
            let device = open(path.to_str().expect("text"), OFlags::RDONLY);
            assert_eq!(kind(&device), Ok(Kind::Device(path)));
        }
        let file: OwnedFd = File::open("/proc/self/exe").expect("opens").into();
        assert_eq!(kind(&file), Ok(Kind::File));
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        assert_eq!((kind(&reader), kind(&writer)), (Ok(Kind::Channel), Ok(Kind::Channel)));
    }

    #[test]
    fn a_pipe_with_a_name_is_carried() {
        let path = std::env::temp_dir().join(format!("cofferdam-streams-{}", std::process::id()));
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
        let fifo = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("opens");
        std::fs::remove_file(&path).expect("it is ours");
        let kind = kind_of(fifo.as_fd()).expect("it is open").expect("it is on the list");
        assert!(kind == Kind::Fifo && kind.is_carried());
    }
}
