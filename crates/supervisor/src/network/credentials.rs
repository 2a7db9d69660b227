//! The secrets of a session's credentials, read outside before anything starts. Owns their sources, what may be a secret and the
//! placeholders that stand for them inside; who uses them is the egress process, to which they go and which alone keeps them.
//! Called by `launch`.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::timing::time_until;
use cofferdam_plan::{CredentialPlan, LaunchPlan, SecretPlace};
use cofferdam_reach::start::{Injection, Secret};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;
use zeroize::Zeroizing;

/// Where distributions keep all authorities that they believe, in one file.
const PLACES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Whatever is longer is no token.
const LONGEST: usize = 16 << 10;
/// A program may ask a person for a password.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, Error)]
pub enum SecretError {
    #[error("the variable `{name}` is not set")]
    NotSet { name: String },
    #[error("cannot read `{path}`")]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{path}` is not a file")]
    NotAFile { path: PathBuf },
    #[error("cannot run `{program}`")]
    NotRun {
        program: String,
        #[source]
        cause: io::Error,
    },
    #[error("`{program}` failed")]
    Failed { program: String },
    #[error("`{program}` did not print a line within {} seconds", PATIENCE.as_secs())]
    TooSlow { program: String },
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    #[error("it holds characters that no header can carry")]
    Unfit,
}

/// What could not be gathered.
#[derive(Debug)]
pub(crate) enum GatherError {
    Trusted { path: PathBuf, cause: io::Error },
    Secret { variable: String, cause: SecretError },
    Kernel(Errno),
}

/// What it takes to stand in the middle of TLS, and what the session is told instead of secrets.
pub(crate) struct Credentials {
    /// The authorities that the caller believes, in PEM.
    pub(crate) trusted: String,
    pub(crate) injections: Vec<Injection>,
    /// Variables and what they hold inside.
    pub(crate) placeholders: Vec<(String, String)>,
    /// Secrets that others can read.
    pub(crate) exposed: Vec<String>,
}

impl Credentials {
    /// None where no TLS is read.
    pub(crate) fn gather(plan: &LaunchPlan) -> Result<Option<Credentials>, GatherError> {
        let wanted = plan.egress.as_ref().and_then(|egress| egress.terminates.as_ref());
        let Some(wanted) = wanted else { return Ok(None) };
        let named = std::env::var_os("SSL_CERT_FILE").filter(|name| !name.is_empty()).map(PathBuf::from);
        let wants_secrets = !wanted.credentials.is_empty();
        let trusted = match trusted(named.as_deref()) {
            // Rules about requests may be about plain HTTP; the egress process then believes no server that speaks TLS.
            Err((_, cause)) if cause.kind() == io::ErrorKind::NotFound && named.is_none() && !wants_secrets => {
                String::new()
            }
            read => read.map_err(|(path, cause)| GatherError::Trusted { path, cause })?,
        };
        let mut gathered =
            Credentials { trusted, injections: Vec::new(), placeholders: Vec::new(), exposed: Vec::new() };
        for credential in &wanted.credentials {
            let CredentialPlan { host, port, header, variable, source } = credential.clone();
            let secret = read(&source).map_err(|cause| GatherError::Secret { variable: variable.clone(), cause })?;
            gathered.exposed.extend(exposed(&source));
            let placeholder = placeholder().map_err(GatherError::Kernel)?;
            gathered.placeholders.push((variable, placeholder.clone()));
            gathered.injections.push(Injection { host, port, header, placeholder, secret });
        }
        Ok(Some(gathered))
    }
}

/// The caller's own list where it names one (`SSL_CERT_FILE`), else the system's.
fn trusted(named: Option<&Path>) -> Result<String, (PathBuf, io::Error)> {
    let place = match named {
        Some(named) => named,
        None => PLACES.iter().map(Path::new).find(|place| place.exists()).unwrap_or(Path::new(PLACES[0])),
    };
    let bytes = std::fs::read(place).map_err(|error| (place.to_path_buf(), error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// No process can guess it, and every reader sees what it is.
fn placeholder() -> Result<String, Errno> {
    let mut bytes = [0u8; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("cofferdam-{:032x}", u128::from_be_bytes(bytes)))
}

fn read(source: &SecretPlace) -> Result<Secret, SecretError> {
    let bytes = match source {
        SecretPlace::Environment(name) => {
            let value = std::env::var_os(name).ok_or_else(|| SecretError::NotSet { name: name.clone() })?;
            Zeroizing::new(OsString::into_vec(value))
        }
        SecretPlace::File(path) => of_file(path)?,
        SecretPlace::Command(argv) => of_command(argv)?,
    };
    first_line(&bytes)
}

fn first_line(bytes: &[u8]) -> Result<Secret, SecretError> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    if line.is_empty() {
        return Err(SecretError::Empty);
    }
    if line.len() > LONGEST {
        return Err(SecretError::TooLong);
    }
    if line.iter().any(u8::is_ascii_control) {
        return Err(SecretError::Unfit);
    }
    Ok(Secret::new(line.to_vec()))
}

fn of_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let unreadable = |cause: io::Error| SecretError::Unreadable { path: path.to_path_buf(), cause };
    // A pipe must not keep the launch waiting.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| unreadable(errno.into()))?;
    let file = std::fs::File::from(file);
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(SecretError::NotAFile { path: path.to_path_buf() });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 2));
    let most = u64::try_from(LONGEST + 2).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn exposed(source: &SecretPlace) -> Option<String> {
    let SecretPlace::File(path) = source else { return None };
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let text = format!("others can read the secret in {}: `chmod 600` it", path.display());
    (mode & 0o077 != 0).then_some(text)
}

fn of_command(argv: &[String]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let (program, arguments) = argv.split_first().ok_or(SecretError::Empty)?;
    let not_run = |cause| SecretError::NotRun { program: program.clone(), cause };
    let mut command = Command::new(program);
    // A group of its own can be ended as a whole; what it says to a person goes where ours goes.
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(not_run)?;
    let output = child.stdout.take();
    let read = match output {
        Some(output) => read_within(output, Instant::now() + PATIENCE).map_err(not_run)?,
        None => None,
    };
    let Some(bytes) = read else {
        end(&mut child);
        return Err(SecretError::TooSlow { program: program.clone() });
    };
    if child.wait().map_err(not_run)?.success() {
        Ok(bytes)
    } else {
        Err(SecretError::Failed { program: program.clone() })
    }
}

/// Everything that is printed, as far as it can be a secret; None when it takes too long.
fn read_within(mut output: ChildStdout, deadline: Instant) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 2));
    let mut chunk = Zeroizing::new([0u8; 1024]);
    loop {
        let mut fds = [PollFd::new(&output, PollFlags::IN)];
        match poll(&mut fds, Some(&time_until(deadline))) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let length = output.read(&mut chunk[..])?;
        if length == 0 {
            return Ok(Some(bytes));
        }
        // The first line counts; the rest is read so that the program can end.
        let room = (LONGEST + 2).saturating_sub(bytes.len()).min(length);
        bytes.extend_from_slice(&chunk[..room]);
    }
}

fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        best_effort(rustix::process::kill_process_group(group, Signal::KILL), "it may be gone already");
    }
    // Only so that no process is left of it.
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> Result<Secret, SecretError> {
        read(&SecretPlace::Command(vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()]))
    }

    #[test]
    fn a_secret_is_the_first_line_without_blanks_around_it() {
        assert_eq!(first_line(b" token \r\nsecond\n").expect("a secret"), Secret::new(b"token".to_vec()));
        assert_eq!(command("echo token; echo more").expect("a secret"), Secret::new(b"token".to_vec()));
    }

    #[test]
    fn what_no_header_can_carry_is_no_secret() {
        assert!(matches!(first_line(b"\nsecond"), Err(SecretError::Empty)));
        assert!(matches!(first_line(b"a\x1b[0mb"), Err(SecretError::Unfit)));
        assert!(matches!(first_line(&vec![b'a'; LONGEST + 1]), Err(SecretError::TooLong)));
    }

    #[test]
    fn a_program_that_fails_gives_no_secret() {
        assert!(matches!(command("echo token; exit 3"), Err(SecretError::Failed { .. })));
        let nothing = SecretPlace::Command(vec!["/nonexistent/program".to_owned()]);
        assert!(matches!(read(&nothing), Err(SecretError::NotRun { .. })));
    }

    #[test]
    fn a_directory_or_a_missing_file_is_no_secret() {
        assert!(matches!(of_file(Path::new("/")), Err(SecretError::NotAFile { .. })));
        assert!(matches!(of_file(Path::new("/nonexistent/token")), Err(SecretError::Unreadable { .. })));
    }

    #[test]
    fn placeholders_are_never_the_same() {
        let (one, other) = (placeholder().expect("random"), placeholder().expect("random"));
        assert_ne!(one, other);
        assert_eq!(one.len(), "cofferdam-".len() + 32);
    }
}
