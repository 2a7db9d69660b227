//! What a workload tries in a transaction: forging what overlayfs keeps in attributes, files that are none, and hidden names that the
//! host replaces meanwhile. Owns the attempts; what becomes of them on the host is looked at by the rows.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use cofferdam_testkit::Place;

use super::{call, keeper};
use crate::row::Finding;
use crate::words;

/// In the project: a directory of the host's and a new file get every mark that overlayfs has.
pub(super) fn forged_attributes() -> Finding {
    if let Err(error) = fs::write("zero", "").and_then(|()| fs::write("keep/new", "n")) {
        return Finding::Broken(error.to_string());
    }
    let mut said = Vec::new();
    for (path, name, value) in [
        (c"keep", c"user.overlay.opaque", "y"),
        (c"keep", c"user.overlay.redirect", "/other"),
        (c"zero", c"user.overlay.whiteout", "y"),
        (c"keep", c"trusted.overlay.opaque", "y"),
    ] {
        let arguments = [path.as_ptr() as usize, name.as_ptr() as usize, value.as_ptr() as usize, value.len(), 0];
        // A kernel that takes it keeps it under another name.
        let result = call(libc::SYS_setxattr, &arguments);
        said.push(result.map_or_else(words::errno, |_| "kept apart".to_owned()));
    }
    let here = usize::try_from(libc::AT_FDCWD).unwrap_or(usize::MAX - 99);
    let whiteout = usize::try_from(libc::S_IFCHR).unwrap_or(0);
    let made = call(libc::SYS_mknodat, &[here, c"keep/a2".as_ptr() as usize, whiteout, 0]);
    said.push(made.map_or_else(words::errno, |_| "a whiteout was made".to_owned()));
    Finding::Contained(said.join(", "))
}

pub(super) fn odd_files() -> Finding {
    let mode = usize::try_from(libc::S_IFIFO | 0o600).unwrap_or(0);
    let here = usize::try_from(libc::AT_FDCWD).unwrap_or(usize::MAX - 99);
    let pipe = call(libc::SYS_mknodat, &[here, c"pipe".as_ptr() as usize, mode, 0]);
    let sock = UnixListener::bind("sock").map(drop);
    match (pipe, sock, fs::write("plain", "x")) {
        (Ok(_), Ok(()), Ok(())) => Finding::Contained(String::new()),
        made => Finding::Broken(format!("{made:?}")),
    }
}

/// Reads and writes whatever is there under the names, in every way that row A18 knows.
pub(super) fn spin_on_hidden(place: &Place) -> Finding {
    const LASTS: Duration = Duration::from_secs(3);
    let project = place.project();
    let secret = project.join(".env");
    // In the session's layer, where the host looks for it.
    fs::write(project.join("up"), "").unwrap_or_default();
    let began = Instant::now();
    let (mut rounds, mut seen) = (0usize, 0usize);
    while began.elapsed() < LASTS {
        rounds += 1;
        if keeper::read_somehow(&project, &secret, rounds).is_some_and(|text| text.contains("TOKEN=")) {
            seen += 1;
        }
        // A file of the workload's own may have the name where the policy hides none: it is not the host's.
        let config = fs::OpenOptions::new().append(true).open(project.join(".git/config"));
        config.and_then(|mut file| file.write_all(b"#x\n")).unwrap_or_default();
    }
    if seen == 0 {
        Finding::Contained("the secret was not read".to_owned())
    } else {
        Finding::Open(format!("the secret was read {seen} times in {rounds} rounds"))
    }
}
