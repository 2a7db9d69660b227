//! Spins on covered names while host programs replace them: opening, linking, reopening, renaming out, truncating. Owns the
//! attempts and the marks they leave in the scene; what counts as contained is the row's.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_testkit::Place;

use super::call;
use crate::row::Finding;

const LONGEST: Duration = Duration::from_secs(25);
/// After the host has ended its work, for the last replacement to be noticed.
const SETTLES: Duration = Duration::from_millis(500);

/// `quiet` reads without leaving a link or a descriptor behind: what no look finds afterwards.
pub(super) fn a18_spin(place: &Place, quiet: bool) -> Finding {
    let project = place.home().join("project");
    let (secret, config) = (project.join(".env"), project.join(".git/config"));
    let Ok(mut log) = OpenOptions::new().append(true).create(true).open(project.join("seen")) else {
        return Finding::Broken("no log".to_owned());
    };
    place.write("home/project/up", "");
    let began = Instant::now();
    let mut seen = BTreeSet::new();
    let mut round = 0usize;
    while !project.join("stop").exists() && began.elapsed() < LONGEST {
        round += 1;
        let read = match round % 4 {
            0 => reopened(&secret),
            1 => linked(&project, &secret, quiet),
            2 if !quiet => renamed(&project, &secret),
            _ => fs::read_to_string(&secret).ok(),
        };
        if let Some(text) = read.filter(|text| !text.is_empty())
            && seen.insert(text.clone())
            && writeln!(log, "{}", text.trim()).is_err()
        {
            return Finding::Broken("the log cannot be written".to_owned());
        }
        if !quiet && OpenOptions::new().append(true).open(&config).and_then(|mut file| file.write_all(b"#x\n")).is_ok()
        {
            place.write("home/project/written", "");
        }
    }
    std::thread::sleep(SETTLES);
    match (fs::read_to_string(&secret), OpenOptions::new().append(true).open(&config)) {
        (Err(_), Err(_)) => Finding::Contained(format!("{} of its contents seen in {round} rounds", seen.len())),
        (read, written) => Finding::Open(format!(
            "at the end: {} {}",
            if read.is_ok() { "the secret is read" } else { "" },
            if written.is_ok() { "the configuration is writable" } else { "" }
        )),
    }
}

/// By turns, in every way.
pub(super) fn read_somehow(project: &Path, secret: &Path, round: usize) -> Option<String> {
    match round % 4 {
        0 => reopened(secret),
        1 => linked(project, secret, true),
        2 => renamed(project, secret),
        _ => fs::read_to_string(secret).ok(),
    }
}

/// Through a descriptor that does not count as opening.
fn reopened(secret: &Path) -> Option<String> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = std::ffi::CString::new(secret.as_os_str().as_bytes()).ok()?;
    let here = usize::try_from(libc::AT_FDCWD).unwrap_or(usize::MAX - 99);
    let flags = usize::try_from(libc::O_PATH | libc::O_CLOEXEC).ok()?;
    let fd = call(libc::SYS_openat, &[here, name.as_ptr() as usize, flags, 0]).ok()?;
    let fd = i32::try_from(fd).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{fd}"));
    let text = fs::read_to_string(path).ok();
    call(libc::SYS_close, &[usize::try_from(fd).ok()?]).ok();
    text
}

fn linked(project: &Path, secret: &Path, quiet: bool) -> Option<String> {
    let at = project.join("linked");
    fs::hard_link(secret, &at).ok()?;
    let mut text = String::new();
    let read = File::open(&at).and_then(|mut file| file.read_to_string(&mut text));
    if quiet {
        fs::remove_file(&at).ok();
    }
    read.ok().map(|_| text)
}

fn renamed(project: &Path, secret: &Path) -> Option<String> {
    let at = project.join("renamed");
    fs::rename(secret, &at).ok()?;
    fs::read_to_string(&at).ok()
}
