//! Starting the process that launches, from a test: its environment is built from nothing, its streams are captured, and
//! it ends within a bounded time. Owns the process; what happens in it is `launch`'s.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Place, Report};

/// Longer than any row takes; a launch that hangs is killed and reported.
const PATIENCE: Duration = Duration::from_mins(1);

/// What came out of a launch.
#[derive(Debug)]
pub struct Launched {
    pub stdout: String,
    pub stderr: String,
    pub report: Report,
    pub hung: bool,
}

/// A launch that still runs.
#[derive(Debug)]
pub struct Helper {
    pub child: Child,
    place: Place,
}

/// Runs `program arguments...` in `directory` with the scene's home, until it ends.
pub fn run_helper(
    program: &Path,
    arguments: &[&str],
    place: &Place,
    directory: &Path,
    environment: &[(&str, &str)],
) -> io::Result<Launched> {
    start_helper(program, arguments, place, directory, environment, Stdio::null())?.finish()
}

pub fn start_helper(
    program: &Path,
    arguments: &[&str],
    place: &Place,
    directory: &Path,
    environment: &[(&str, &str)],
    stdin: Stdio,
) -> io::Result<Helper> {
    match fs::remove_file(place.report()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("HOME", place.home())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .envs(environment.iter().copied())
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(Helper { child, place: place.clone() })
}

impl Helper {
    /// Waits for the end, at most as long as a launch can sensibly take.
    pub fn finish(mut self) -> io::Result<Launched> {
        let hung = self.wait(PATIENCE)?.is_none();
        if hung {
            self.child.kill()?;
            self.child.wait()?;
        }
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stdout))?;
        self.child.stderr.take().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stderr))?;
        let report = fs::read_to_string(self.place.report()).ok().and_then(|text| Report::parse(&text));
        Ok(Launched {
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            report: report.unwrap_or(Report {
                error: Some("the launch left no report".to_owned()),
                code: -1,
                ..Report::default()
            }),
            hung,
        })
    }

    /// The exit status, or none if it still runs when `patience` is over.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until a file of the scene exists: how a probe says that it is ready.
    pub fn wait_for(&mut self, path: &Path, patience: Duration) -> io::Result<bool> {
        let end = Instant::now() + patience;
        while !path.exists() {
            if Instant::now() >= end || self.child.try_wait()?.is_some() {
                return Ok(path.exists());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(true)
    }
}
