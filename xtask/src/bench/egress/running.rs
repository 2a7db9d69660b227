//! Programs beside the bench: those that serve until they are dropped, and those that must end in time with a figure.
//! Owns their processes; what they are is the callers'.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Longer than any single measurement takes.
const PATIENCE: Duration = Duration::from_secs(40);
/// How `timeout` ends when what it ran did not, and the sandbox when its time is over.
const TIMED_OUT: i32 = 124;
const READY: Duration = Duration::from_secs(15);

/// A program in a process group of its own, ended with everything in the group.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let shown = shown(command);
        command.process_group(0).spawn().map(Running).map_err(|e| format!("{shown}: {e}"))
    }

    /// One that says in its first line where it is.
    pub(crate) fn saying(command: &mut Command) -> Result<(Self, String), String> {
        let shown = shown(command);
        let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let mut line = String::new();
        let read = running.0.stdout.take().map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
        match read {
            Ok(1..) => Ok((running, line.trim().to_owned())),
            _ => Err(format!("{shown}: it said nothing")),
        }
    }

    /// One that listens at this address sooner or later.
    pub(crate) fn listening(command: &mut Command, address: &str) -> Result<Self, String> {
        let shown = shown(command);
        let mut running = Running::start(command)?;
        let end = Instant::now() + READY;
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = running.0.try_wait() {
                return Err(format!("{shown}: {status}"));
            }
            if Instant::now() > end {
                return Err(format!("{shown}: nobody listens at {address}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && matches!(child.try_wait(), Ok(None))
        && let Err(e) = kill_process_group(group, Signal::KILL)
    {
        eprintln!("cannot end process {}: {e}", child.id());
    }
    if let Err(e) = child.wait() {
        eprintln!("cannot wait for process {}: {e}", child.id());
    }
}

/// What a program printed, if it ended with success and in time; else its last words.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    let failed = |what: String| format!("{shown}: {what}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reader = thread::spawn(move || stdout.map_or(String::new(), text));
    let complaints = thread::spawn(move || stderr.map_or(String::new(), text));
    let deadline = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    let hung = matches!(child.try_wait(), Ok(None));
    end(&mut child);
    if hung {
        // A process that left the group may still hold the pipes: the bench does not wait for that.
        return Err(failed(format!("not done after {} s", PATIENCE.as_secs())));
    }
    let status = child.wait().map_err(|e| failed(e.to_string()))?;
    let (output, complaints) = (reader.join().unwrap_or_default(), complaints.join().unwrap_or_default());
    if status.success() {
        return Ok(output);
    }
    if status.code() == Some(TIMED_OUT) {
        return Err(failed("it hung, and was ended".to_owned()));
    }
    let last = complaints.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let first = complaints.lines().find(|line| line.starts_with("error")).unwrap_or(last);
    Err(failed(format!("{status}: {first}")))
}

pub(crate) fn figure(command: &mut Command) -> Result<f64, String> {
    let text = output(command)?;
    text.trim().parse().map_err(|_| format!("{}: `{}` is no figure", shown(command), text.trim()))
}

/// The program's name: its arguments are long, and the same in every round.
fn shown(command: &Command) -> String {
    let name = |word: &std::ffi::OsStr| PathBuf::from(word).file_name().unwrap_or(word).display().to_string();
    name(command.get_program())
}

fn text(mut pipe: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    match pipe.by_ref().read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) => e.to_string(),
    }
}
