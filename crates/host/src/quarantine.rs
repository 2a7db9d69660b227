//! Programs that may not run any more because a session of theirs was ended for an attempt to escape. Owns what of a command
//! is quarantined, the list of it in the state directory (a file for each, named by the hash of its content) and the look
//! into it before a launch; what is an attempt is `supervisor`'s. No wall: content that differs by a byte is another program.

use std::fs::{File, Metadata};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_audit::{Actor, Event, Journal, JournalError, Record, Severity, to_hex};
use cofferdam_plan::is_of_the_system;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::state::make_all;

/// A larger program is not read at every launch to be compared.
const MOST_BYTES: u64 = 256 << 20;
/// Of a file of the list.
const MOST_ENTRY: u64 = 64 << 10;
/// Entries that are looked at.
const MOST_ENTRIES: usize = 4096;

/// They run what they are given: the script is what counts.
const INTERPRETERS: &[&str] = &[
    "ash", "awk", "bash", "bun", "csh", "dash", "deno", "elixir", "env", "erl", "fish", "gawk", "java", "ksh", "lua",
    "luajit", "mksh", "node", "nodejs", "perl", "php", "pwsh", "pypy", "pypy3", "python", "Rscript", "ruby", "sh",
    "tclsh", "tcsh", "zsh",
];

/// A program that may not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    pub version: u32,
    /// SHA-256 of its content.
    pub hash: String,
    pub size: u64,
    /// Where it lay.
    pub path: PathBuf,
    /// The session that was ended, and for what.
    pub session: String,
    pub why: String,
    /// Seconds since 1970.
    pub since: u64,
    /// Its content was changed while the session ran: what is quarantined is what it was at the end.
    pub is_changed: bool,
}

#[derive(Debug, Error)]
pub enum QuarantineError {
    #[error("`{}` is quarantined since session {} was ended for an attempt to escape (sha256 {})", .0.path.display(), .0.session, .0.hash)]
    Refused(Box<Quarantined>),
    #[error("the list of quarantined programs in {} cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        errno: Errno,
    },
    #[error("nothing with the hash `{hash}` is quarantined")]
    Unknown { hash: String },
    #[error("`{hash}` is the beginning of several hashes")]
    Several { hash: String },
    #[error("a release needs a reason")]
    NoReason,
    #[error("the release could not be recorded, so `{hash}` stays quarantined")]
    Unrecorded {
        hash: String,
        #[source]
        source: JournalError,
    },
}

fn directory(state: &Path) -> PathBuf {
    state.join("quarantine")
}

/// What of a command would be quarantined: the program, or the script that an interpreter is given. Never an interpreter, and
/// never what belongs to the system.
pub fn subject(argv: &[String], cwd: &Path, search: &str) -> Option<PathBuf> {
    let (program, arguments) = argv.split_first()?;
    let found = find(program, cwd, search)?;
    let real = found.canonicalize().ok()?;
    let names = [Path::new(program), &real].map(|path| path.file_name().unwrap_or_default().to_string_lossy());
    if names.iter().any(|name| name == "env") {
        let is_own = |word: &&String| word.starts_with('-') || word.contains('=');
        let own = arguments.iter().take_while(is_own).count();
        return subject(&arguments[own..], cwd, search);
    }
    if names.iter().any(|name| is_interpreter(name)) {
        return script(arguments, cwd).filter(|path| is_of_a_user(path));
    }
    Some(real).filter(|path| is_of_a_user(path))
}

fn find(program: &str, cwd: &Path, search: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program));
    }
    let places = search.split(':').filter(|place| place.starts_with('/'));
    places.map(|place| Path::new(place).join(program)).find(|path| path.is_file())
}

/// `python3.11` is `python`.
fn is_interpreter(name: &str) -> bool {
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
        || INTERPRETERS.contains(&name)
}

/// The file that an interpreter is given; none where it is given its program in words.
fn script(arguments: &[String], cwd: &Path) -> Option<PathBuf> {
    for argument in arguments {
        let is_in_words = |flags: &str| !flags.starts_with('-') && flags.contains(['c', 'e', 'm', 'p']);
        match argument.strip_prefix('-') {
            Some("jar" | "-") => {}
            Some("-eval" | "-print" | "-command") => return None,
            Some(flags) if is_in_words(flags) => return None,
            Some(_) => {}
            None => return cwd.join(argument).canonicalize().ok(),
        }
    }
    None
}

fn is_of_a_user(path: &Path) -> bool {
    let is_roots = |file: &Metadata| file.uid() == 0 && !rustix::process::getuid().is_root();
    !is_of_the_system(path) && path.metadata().is_ok_and(|file| file.is_file() && !is_roots(&file))
}

/// Its content's hash and size. What is no plain file, or too large, has none.
fn content(path: &Path) -> Option<(String, u64)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file() && found.len() <= MOST_BYTES)?;
    let mut hash = Sha256::new();
    let mut rest = file.take(MOST_BYTES);
    let mut chunk = vec![0; 64 << 10];
    loop {
        match rest.read(&mut chunk).ok()? {
            0 => return Some((to_hex(&hash.finalize()), found.len())),
            length => hash.update(&chunk[..length]),
        }
    }
}

/// Refuses a command whose program is quarantined. Without a list this is one call that finds none.
pub fn check(state: &Path, argv: &[String], cwd: &Path, search: &str) -> Result<(), QuarantineError> {
    let listed = list(state)?;
    if listed.is_empty() {
        return Ok(());
    }
    let Some(path) = subject(argv, cwd, search) else { return Ok(()) };
    let size = path.metadata().map_or(0, |found| found.len());
    if !listed.iter().any(|entry| entry.size == size || entry.size == 0) {
        return Ok(());
    }
    let Some((hash, _)) = content(&path) else { return Ok(()) };
    match listed.into_iter().find(|entry| entry.hash == hash) {
        Some(entry) => Err(QuarantineError::Refused(Box::new(Quarantined { path, ..entry }))),
        None => Ok(()),
    }
}

/// All that may not run, in the order of their hashes.
pub fn list(state: &Path) -> Result<Vec<Quarantined>, QuarantineError> {
    let path = directory(state);
    let unreadable = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        QuarantineError::Unreadable { path: path.clone(), errno }
    };
    let entries = match std::fs::read_dir(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(unreadable)?,
    };
    let mut found = Vec::new();
    for entry in entries.take(MOST_ENTRIES) {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What a killed writer left has another name.
        if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            found.push(read_entry(&entry.path(), name));
        }
    }
    found.sort_by(|one, other| one.hash.cmp(&other.hash));
    Ok(found)
}

/// The name is what counts: an entry that cannot be read is still one.
fn read_entry(path: &Path, hash: String) -> Quarantined {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST_ENTRY).read_to_string(&mut text));
    let parsed = read.ok().and_then(|_| serde_json::from_str::<Quarantined>(&text).ok());
    let unknown = Quarantined {
        version: 1,
        hash: hash.clone(),
        size: 0,
        path: PathBuf::from("?"),
        session: "?".to_owned(),
        why: String::new(),
        since: 0,
        is_changed: false,
    };
    Quarantined { hash, ..parsed.unwrap_or(unknown) }
}

/// Puts what a command ran into quarantine; nothing where it ran what is never quarantined. `began` is in seconds since 1970.
pub fn add(
    state: &Path,
    (argv, cwd, search): (&[String], &Path, &str),
    (session, why): (&str, &str),
    (began, now): (f64, f64),
) -> Result<Option<Quarantined>, Errno> {
    let Some(path) = subject(argv, cwd, search) else { return Ok(None) };
    let Some((hash, size)) = content(&path) else { return Ok(None) };
    #[expect(clippy::cast_precision_loss, reason = "seconds of this century fit a float")]
    let changed = path.metadata().map_or(0.0, |found| found.ctime() as f64 + found.ctime_nsec() as f64 / 1e9);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole seconds since 1970")]
    let entry = Quarantined {
        version: 1,
        hash,
        size,
        path,
        session: session.to_owned(),
        why: why.to_owned(),
        since: now as u64,
        is_changed: changed > began,
    };
    let (directory, text) = (directory(state), json!(entry).to_string());
    make_all(&directory)?;
    let (next, last) = (directory.join(format!(".{session}")), directory.join(&entry.hash));
    let written =
        File::create(&next).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    let put = written.and_then(|()| std::fs::rename(&next, &last));
    put.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Some(entry))
}

/// Lets a program run again. It stays where it is unless the release is recorded.
pub fn release(state: &Path, hash: &str, reason: &str) -> Result<Quarantined, QuarantineError> {
    if reason.trim().is_empty() {
        return Err(QuarantineError::NoReason);
    }
    let mut meant = list(state)?.into_iter().filter(|entry| hash.len() >= 6 && entry.hash.starts_with(hash));
    let entry = match (meant.next(), meant.next()) {
        (Some(entry), None) => entry,
        (None, _) => return Err(QuarantineError::Unknown { hash: hash.to_owned() }),
        (Some(_), Some(_)) => return Err(QuarantineError::Several { hash: hash.to_owned() }),
    };
    let details = json!({
        "action": "quarantine-released", "path": entry.path.to_string_lossy(), "sha256": entry.hash, "reason": reason,
    });
    let record =
        Record { actor: Actor::Person, severity: Severity::Warning, ..Record::new(Event::PolicyChanged, "", details) };
    Journal::open(state)
        .and_then(|mut journal| journal.append(&record))
        .map_err(|source| QuarantineError::Unrecorded { hash: entry.hash.clone(), source })?;
    std::fs::remove_file(directory(state).join(&entry.hash)).map_err(|error| QuarantineError::Unreadable {
        path: directory(state),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_script_counts_and_never_an_interpreter_or_what_is_the_systems() {
        let place = std::env::temp_dir().join(format!("cofferdam-quarantine-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory");
        let place = place.canonicalize().expect("it exists");
        for name in ["tool", "script.py"] {
            std::fs::write(place.join(name), name).expect("a file");
        }
        symlink("/bin/sh", place.join("not-a-shell")).expect("a link");
        let of = |argv: &[&str]| {
            let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
            let search = format!("/usr/bin:/bin:{}", place.display());
            subject(&argv, &place, &search).map(|path| path.strip_prefix(&place).map(Path::to_path_buf).unwrap_or(path))
        };
        let cases: [(&[&str], Option<&str>); 13] = [
            (&["tool"], Some("tool")),
            (&["./tool", "-c"], Some("tool")),
            (&["sh", "script.py"], Some("script.py")),
            (&["sh", "-x", "./script.py", "tool"], Some("script.py")),
            (&["env", "A=1", "sh", "script.py"], Some("script.py")),
            (&["env", "-i", "tool"], Some("tool")),
            (&["./not-a-shell", "script.py"], Some("script.py")),
            (&["sh", "-c", "script.py"], None),
            (&["sh", "-ec", "script.py"], None),
            (&["sh"], None),
            (&["sh", "missing"], None),
            (&["ls", "script.py"], None),
            (&["sh", "/etc/passwd"], None),
        ];
        for (argv, expected) in cases {
            assert_eq!(of(argv).as_deref(), expected.map(Path::new), "{argv:?}");
        }
        assert!(is_interpreter("python3.11") && is_interpreter("python3") && !is_interpreter("pythonic"));
        std::fs::remove_dir_all(&place).expect("it is ours");
    }
}
