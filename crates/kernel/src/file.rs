//! Reading a file that another process may have put there: it never waits, never takes more than it was asked for, and
//! reads nothing but regular files. Owns that one way of reading, how times of files are compared, and files without a name; what a file means is the caller's. Called by `host` and
//! `cli` for everything that lies where a sandbox could write.

use std::io::{Error, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SeekFrom};

/// The text of a regular file of at most `most` bytes; links are followed.
pub fn read_text(path: &Path, most: u64) -> Result<String, Error> {
    String::from_utf8(read_bytes(path, most)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// The same for a file that need not be text.
pub fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    // Looked at before it is opened: to open a device or a pipe is to do something to it.
    check(&rustix::fs::stat(path)?, most)?;
    // And once more: by now it may be another file. Not waiting also goes for another process's lease on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    check(&stat, most)?;
    let mut bytes = Vec::with_capacity(usize::try_from(stat.st_size).unwrap_or(0) + 1);
    std::fs::File::from(file).take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_large(most));
    }
    Ok(bytes)
}

fn check(stat: &rustix::fs::Stat, most: u64) -> Result<(), Error> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if u64::try_from(stat.st_size).is_ok_and(|size| size <= most) => Ok(()),
        FileType::RegularFile => Err(too_large(most)),
        FileType::Directory => Err(rustix::io::Errno::ISDIR.into()),
        _ => Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

fn too_large(most: u64) -> Error {
    Error::new(ErrorKind::FileTooLarge, format!("it is larger than {most} bytes"))
}

/// The device of a directory and a time, in seconds and nanoseconds, by the clock that stamps its files: a file that has no name
/// is changed, after a look at it. Everything that was changed before has an earlier time, and nothing that is changed
/// later has one.
pub fn stamp(directory: &Path) -> Result<(u64, (i64, i64)), rustix::io::Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fstat(&file)?;
    rustix::fs::fchmod(&file, Mode::RUSR)?;
    let stat = rustix::fs::fstat(&file)?;
    Ok((stat.st_dev, (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(i64::MAX))))
}

/// A text as a file to read: no pipe that this process would have to feed.
pub fn in_memory(text: &[u8]) -> Result<OwnedFd, rustix::io::Errno> {
    let file = rustix::fs::memfd_create("text", MemfdFlags::CLOEXEC)?;
    let mut rest = text;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use rustix::fs::CWD;

    use super::*;

    fn scene(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("cofferdam-file-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        path
    }

    #[test]
    fn regular_files_are_read_also_through_links() {
        let dir = scene("regular");
        std::fs::write(dir.join("file"), "text").expect("writable");
        std::fs::write(dir.join("empty"), "").expect("writable");
        std::os::unix::fs::symlink("file", dir.join("link")).expect("writable");
        assert_eq!(read_text(&dir.join("file"), 4).expect("it fits"), "text");
        assert_eq!(read_text(&dir.join("link"), 4).expect("it fits"), "text");
        assert_eq!(read_text(&dir.join("empty"), 4).expect("it fits"), "");
        let kind = |name: &str| read_text(&dir.join(name), 4).expect_err("nothing to read").kind();
        assert_eq!(kind("missing"), ErrorKind::NotFound);
        assert_eq!(kind("file/below"), ErrorKind::NotADirectory);
        std::fs::write(dir.join("binary"), b"\xff").expect("writable");
        assert_eq!(kind("binary"), ErrorKind::InvalidData);
        std::fs::remove_dir_all(dir).expect("it is ours");
    }

    #[test]
    fn neither_pipes_nor_devices_nor_huge_files_are_read_and_nobody_waits() {
        let dir = scene("special");
        rustix::fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("any user can make a fifo");
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("a socket can be made");
        std::os::unix::fs::symlink("/dev/zero", dir.join("device")).expect("writable");
        std::fs::File::create(dir.join("sparse")).and_then(|file| file.set_len(10 << 30)).expect("it holds nothing");
        let started = Instant::now();
        for (name, kind) in [
            ("fifo", ErrorKind::InvalidInput),
            ("socket", ErrorKind::InvalidInput),
            ("device", ErrorKind::InvalidInput),
            ("sparse", ErrorKind::FileTooLarge),
            ("", ErrorKind::IsADirectory),
        ] {
            assert_eq!(read_text(&dir.join(name), 1 << 20).expect_err("nothing to read").kind(), kind, "{name}");
        }
        assert!(started.elapsed() < Duration::from_secs(1));
        std::fs::remove_dir_all(dir).expect("it is ours");
    }
}
