//! Attempts on what a standard stream is on the host: opened again the other way, changed through the descriptor, used as
//! a place to start from.

use cofferdam_testkit::Place;

use super::{Attempt, call, judge, open};
use crate::row::Finding;

/// A mount that cannot be written, a pipe of the sandbox's own that is no file, or a name that leads nowhere.
const CLOSED: &[i32] =
    &[libc::EROFS, libc::EACCES, libc::EPERM, libc::EINVAL, libc::ENOTDIR, libc::EBADF, libc::EOPNOTSUPP];

pub(super) fn a19_stdin(place: &Place) -> Finding {
    let mut text = [0u8; 4];
    let read = call(libc::SYS_read, &[0, (&raw mut text) as usize, text.len()]);
    if read != Ok(4) || text != *b"text" {
        return Finding::Broken(format!("stdin cannot be read: {read:?} {text:?}"));
    }
    let is_pipe = std::fs::read_link("/proc/self/fd/0").is_ok_and(|name| name.to_string_lossy().starts_with("pipe:"));
    let mut attempts = Vec::new();
    for (what, flags) in [
        ("write", libc::O_WRONLY),
        ("read and write", libc::O_RDWR),
        ("truncate", libc::O_WRONLY | libc::O_TRUNC),
        ("append", libc::O_WRONLY | libc::O_APPEND),
    ] {
        // The way into a pipe of the sandbox's own leads to the one who reads it, which is inside.
        if !is_pipe {
            attempts.push(Attempt::new(format!("open stdin again to {what}"), open("/proc/self/fd/0", flags), CLOSED));
        }
    }
    if !is_pipe {
        attempts.push(Attempt::new("chmod of stdin", call(libc::SYS_fchmod, &[0, 0o777]), CLOSED));
    }
    attempts.push(Attempt::new("truncate stdin", call(libc::SYS_ftruncate, &[0, 0]), CLOSED));
    for name in [c"..", c".", c"planted"] {
        let flags = usize::try_from(libc::O_PATH).unwrap_or(0);
        let result = call(libc::SYS_openat, &[0, name.as_ptr() as usize, flags]);
        attempts.push(Attempt::new(format!("open {} of stdin", name.to_string_lossy()), result, CLOSED));
    }
    place.write("home/project/tried", "");
    judge(&attempts)
}
