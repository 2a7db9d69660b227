//! How long an approval takes: a program inside opens what the operator has not approved, a client on the session's socket
//! approves each question, and both note the time by the clock that they share. Owns both ends; called by the worker.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::candidate::{Binary, Candidate};
use crate::bench::statistics::Samples;

/// More questions in a minute than a person would be asked; the built-in limit is thirty.
const SETTINGS: &str = "version = 1\n\n[unknown]\nper_minute = 100000\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// What is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Asked {
    /// Each by itself.
    Files,
    /// Each with all that lies below it.
    Directories,
}

impl Asked {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Asked::Files => "files",
            Asked::Directories => "directories",
        }
    }

    fn scope(self) -> &'static str {
        match self {
            Asked::Files => "file",
            Asked::Directories => "dir",
        }
    }

    fn make(self, at: &Path) -> std::io::Result<()> {
        match self {
            Asked::Files => fs::write(at, "nobody has approved this\n"),
            Asked::Directories => fs::create_dir(at),
        }
    }
}

/// Nanoseconds by the clock that runs the same inside and outside.
fn now() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Inside: opens each, and says when each call returned.
pub(crate) fn open_all(at: &Path, count: usize) -> Result<String, String> {
    let mut returned = Vec::with_capacity(count);
    for index in 0..count {
        let path = at.join(index.to_string());
        let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        returned.push(now());
        drop(opened.map_err(|e| format!("{}: {e}", path.display()))?);
    }
    Ok(json!(returned).to_string())
}

/// Outside: one session, that many approvals.
pub(crate) fn measure(dir: &Path, of: Asked, binary: Binary, count: usize) -> Result<Samples, String> {
    let failed = |e: std::io::Error| format!("cannot ask: {e}");
    let home = std::env::var_os("HOME").map(PathBuf::from).ok_or("no home")?;
    fs::create_dir_all(home.join(".config/cofferdam")).map_err(failed)?;
    fs::write(home.join(".config/cofferdam/config.toml"), SETTINGS).map_err(failed)?;
    let unknown = dir.join(format!("unknown-{}", of.name()));
    fs::create_dir(&unknown).map_err(failed)?;
    (0..count).try_for_each(|index| of.make(&unknown.join(index.to_string()))).map_err(failed)?;
    let measured = ask(dir, &unknown, (of, binary), count);
    fs::remove_dir_all(&unknown).and_then(|()| fs::remove_dir_all(home.join(".config"))).map_err(failed)?;
    measured
}

fn ask(dir: &Path, unknown: &Path, (of, binary): (Asked, Binary), count: usize) -> Result<Samples, String> {
    let own = dir.join("xtask");
    let (own, at) = (own.to_str().ok_or("no text")?, unknown.to_str().ok_or("no text")?);
    let argv = ["bench-worker", "open", at, "--count", &count.to_string()];
    let mut command = Candidate::gated(&dir.join(binary.file_name()), "ask", own, &argv);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let sent = approve(&mut child, &sessions(), of, count);
    if sent.is_err() {
        child.kill().map_err(|e| e.to_string())?;
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let sent = sent.map_err(|e| format!("{e}; {said}"))?;
    let returned: Vec<i64> = serde_json::from_slice(&output.stdout).map_err(|e| format!("{e}: {said}"))?;
    if returned.len() != sent.len() {
        return Err(format!("{} answers for {} calls: {said}", sent.len(), returned.len()));
    }
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of one call fit a float")]
    Ok(returned.iter().zip(&sent).map(|(returned, sent)| (returned - sent) as f64).collect())
}

/// Where sessions have their sockets.
fn sessions() -> PathBuf {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).unwrap_or_default();
    state.join("cofferdam/sessions")
}

/// Approves every question and says when each answer was sent.
fn approve(child: &mut Child, sessions: &Path, of: Asked, count: usize) -> Result<Vec<i64>, String> {
    let socket = connect(child, sessions)?;
    let failed = |e: std::io::Error| format!("on the socket: {e}");
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut replies = BufReader::new(socket.try_clone().map_err(failed)?);
    let say = |value: &Value| (&socket).write_all(format!("{value}\n").as_bytes()).map_err(failed);
    say(&json!({ "type": "hello", "version": 1, "face": "bench" }))?;
    let mut sent = Vec::with_capacity(count);
    while sent.len() < count {
        let mut line = String::new();
        if replies.read_line(&mut line).map_err(failed)? == 0 {
            return Err(format!("it hung up after {} answers", sent.len()));
        }
        let event: Value = serde_json::from_str(&line).map_err(|e| format!("{e}: {line}"))?;
        match event["type"].as_str() {
            Some("event.fs_request") => {
                let answer =
                    json!({ "type": "cmd.approve", "id": event["id"], "scope": of.scope(), "persist": "session" });
                sent.push(now());
                say(&answer)?;
            }
            Some("error") => return Err(line),
            _ => {}
        }
    }
    Ok(sent)
}

fn connect(child: &mut Child, sessions: &Path) -> Result<UnixStream, String> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let mut found = fs::read_dir(sessions).into_iter().flatten().flatten();
        if let Some(socket) = found.find_map(|entry| connect_in(&entry.path()).ok()) {
            return Ok(socket);
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended before it asked: {status}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err("it has no socket".to_owned())
}

/// The path of a socket is at most 107 bytes long, so it goes through a descriptor.
fn connect_in(session: &Path) -> io::Result<UnixStream> {
    let directory = File::open(session)?;
    UnixStream::connect(format!("/proc/self/fd/{}/socket", directory.as_raw_fd()))
}
