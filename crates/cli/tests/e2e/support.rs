//! A home with a project in it, and the command run there. Owns making and removing the directories and the environment
//! that the command starts with; every test module uses it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cofferdam_testkit::leaks;
use rustix::fs::FlockOperation;

/// Longest that a test waits for something that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// A home directory of its own with a project below it; both are removed when dropped.
///
/// Not in /tmp: the sandbox has its own there.
pub(crate) struct Place {
    pub(crate) home: PathBuf,
    pub(crate) project: PathBuf,
    /// A supervisor was killed here, and left what the next session has to sweep.
    killed: Arc<AtomicBool>,
}

/// How a command ended and what it printed.
#[derive(Debug)]
pub(crate) struct Ran {
    /// As a shell counts: 128+n for signal n.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// What it printed to stdout, after asserting that it succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self.out
    }

    /// Itself, after asserting that it ended with this code.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Itself, after asserting that stderr holds each of these texts.
    #[track_caller]
    pub(crate) fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.err.contains(text), "`{text}` is not in stderr:\n{}", self.err);
        }
        self
    }
}

impl Place {
    pub(crate) fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let real = PathBuf::from(std::env::var_os("HOME").expect("HOME is set"));
        let real = real.canonicalize().expect("the home directory exists");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // With HOME=/home the paths of a capture are those that documents use, also where a program cuts them short.
        let is_captured = std::env::var_os("COFFERDAM_CAPTURES").is_some() && count == 0;
        let name = if is_captured { "you".to_owned() } else { format!("cofferdam-e2e-{}-{count}", std::process::id()) };
        let home = real.join(name);
        let project = home.join("project");
        std::fs::create_dir(&home).unwrap_or_else(|error| panic!("cannot make {}: {error}", home.display()));
        std::fs::create_dir(&project).expect("it was just made");
        Place { home, project, killed: Arc::default() }
    }

    /// A place, if these programs are installed; else says why the test is skipped.
    pub(crate) fn with(programs: &[&str]) -> Option<Place> {
        for program in programs {
            if which(program).is_none() {
                println!("skipped: `{program}` is not installed");
                return None;
            }
        }
        Some(Place::new())
    }

    /// A place whose project is a git repository with one commit.
    pub(crate) fn with_repository() -> Option<Place> {
        let place = Place::with(&["git"])?;
        place.make_repository();
        Some(place)
    }

    pub(crate) fn make_repository(&self) {
        self.write("home:.gitconfig", "[user]\nname = T\nemail = t@example.org\n[init]\ndefaultBranch = main\n");
        self.write("first", "one\n");
        self.host("git init -q . && git add first && git commit -qm first").ok();
    }

    /// The path that `name` means: below the project, or below the home when it starts with `home:`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match name.strip_prefix("home:") {
            Some(rest) => self.home.join(rest),
            None => self.project.join(name),
        }
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("directories can be made");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// `program` in the project with the environment of a login, and nothing of the test runner's.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.project).stdin(Stdio::null()).envs(self.environment());
        command
    }

    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let home = self.home.display().to_string();
        let mut environment: Vec<(String, String)> = [
            ("HOME", home.as_str()),
            ("USER", "someone"),
            ("LANG", "C.UTF-8"),
            ("TERM", "xterm"),
            ("SHELL", "/bin/bash"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        environment.push(("PATH".to_owned(), std::env::var("PATH").expect("PATH is set")));
        // rustup's stand-ins for cargo and rustc look for the toolchain in the home of the user who installed them.
        let real = PathBuf::from(std::env::var_os("HOME").expect("HOME is set"));
        let rustup = std::env::var_os("RUSTUP_HOME").map_or_else(|| real.join(".rustup"), PathBuf::from);
        // Software of the user who runs the tests lies in a home that is not the sandbox's.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&path).filter(|place| place.starts_with(&real));
        let prefixes = installed.filter_map(|place| place.parent().map(PathBuf::from)).filter(|place| *place != real);
        let mut software: Vec<String> = prefixes
            .chain([rustup.clone()])
            .filter(|place| place.is_dir())
            .map(|place| place.display().to_string())
            .collect();
        software.sort();
        software.dedup();
        if !software.is_empty() {
            environment.push(("COFFERDAM_RO".to_owned(), software.join(":")));
        }
        if rustup.is_dir() {
            environment.push(("RUSTUP_HOME".to_owned(), rustup.display().to_string()));
        }
        // And a login's way to its service manager, where there is one.
        for name in ["RUSTUP_TOOLCHAIN", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            environment.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
        }
        environment
    }

    /// A shell script outside the sandbox, in the project.
    pub(crate) fn host(&self, script: &str) -> Ran {
        finish(self.command("bash").args(["-c", script]), b"")
    }

    /// `sandbox` with these arguments.
    pub(crate) fn sandbox(&self, arguments: &[&str]) -> Ran {
        finish(self.command(binary()).args(arguments), b"")
    }

    /// `sandbox run FLAGS -- COMMAND`.
    pub(crate) fn run(&self, flags: &[&str], command: &[&str]) -> Ran {
        self.sandbox(&[&["run"], flags, &["--"], command].concat())
    }

    /// A shell script inside the sandbox.
    pub(crate) fn inside(&self, script: &str) -> Ran {
        self.run(&[], &["bash", "-c", script])
    }

    /// Starts `sandbox run -- bash -c SCRIPT` and waits as [`Place::begin_session`] does.
    pub(crate) fn start(&self, flags: &[&str], script: &str) -> Running {
        let mut command = self.command(binary());
        command.arg("run").args(flags).args(["--", "bash", "-c", script]);
        self.begin_session(command)
    }

    /// Whether the session of this supervisor is written down.
    fn lists(&self, supervisor: u32) -> bool {
        let written = |session: &PathBuf| std::fs::read(session.join("session.json")).ok();
        let records = self.sessions().iter().filter_map(written).collect::<Vec<_>>();
        let parsed = records.iter().filter_map(|bytes| serde_json::from_slice::<serde_json::Value>(bytes).ok());
        parsed.into_iter().any(|record| record["pid"] == supervisor)
    }

    /// Starts a session that prints a line once it is up, and waits for that and until `sandbox ps` lists it: the
    /// supervisor writes a session down beside the command's start.
    pub(crate) fn begin_session(&self, command: Command) -> Running {
        let mut running = self.begin(command);
        wait_for("the session's directory", || (self.lists(running.pid()) || running.has_ended()).then_some(()));
        running
    }

    /// Starts what prints a line once it is up.
    pub(crate) fn begin(&self, mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sandbox starts");
        let mut line = Vec::new();
        let out = child.stdout.as_mut().expect("stdout is piped");
        let mut byte = [0u8];
        while out.read_exact(&mut byte).is_ok() && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        let killed = Arc::clone(&self.killed);
        Running { child, first_line: String::from_utf8_lossy(&line).into_owned(), killed }
    }

    /// What sessions left here; after a kill, what the next one did not sweep either.
    fn leaks(&self) -> Vec<String> {
        if self.killed.load(Ordering::Relaxed) {
            self.sweep(0);
        }
        leaks::find_in(&self.home, &self.home)
    }

    /// Directories of sessions that live or were killed.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let entries = self.path("home:.local/state/cofferdam/sessions").read_dir();
        entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Runs one more session, which sweeps all but `living` others while its command waits.
    pub(crate) fn sweep(&self, living: usize) {
        let is_claimed = |session: &PathBuf| {
            let lock = FlockOperation::NonBlockingLockExclusive;
            File::open(session).is_ok_and(|directory| rustix::fs::flock(directory, lock).is_err())
        };
        wait_for("the end of what was killed", || {
            (self.sessions().iter().filter(|session| is_claimed(session)).count() <= living).then_some(())
        });
        let sweeper = self.start(&[], "echo ready; read line");
        wait_for("the sweep of killed sessions", || (self.sessions().len() <= living + 1).then_some(()));
        sweeper.end();
    }
}

/// Fails the test that left something behind.
impl Drop for Place {
    fn drop(&mut self) {
        let leaks = if std::thread::panicking() { Vec::new() } else { self.leaks() };
        // overlayfs leaves directories of mode 000 behind when a session was killed.
        let remove = format!("chmod -R u+rwX '{0}'; rm -rf '{0}'", self.home.display());
        let removed = Command::new("sh").args(["-c", &remove]).stderr(Stdio::null()).status();
        assert!(removed.is_ok() || std::thread::panicking(), "cannot remove {}", self.home.display());
        assert!(leaks.is_empty(), "left behind: {leaks:#?}");
    }
}

/// A session that runs beside the test; ended when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) first_line: String,
    killed: Arc<AtomicBool>,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub(crate) fn tell(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("stdin is piped");
        input.write_all(text.as_bytes()).expect("the command reads");
    }

    /// Closes its stdin and waits for its end: the code as a shell counts, and the rest of stdout.
    pub(crate) fn end(mut self) -> (i32, String) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.child.stdout.take().expect("stdout is piped").read_to_string(&mut rest).expect("it is text");
        let status = self.child.wait().expect("it can be waited for");
        (shell_code(status), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its own end may have come first, and another process may have killed it.
        let ended = self.child.try_wait().ok().flatten();
        if ended.is_none() && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
        if ended.is_none_or(|status| status.signal().is_some()) {
            self.killed.store(true, Ordering::Relaxed);
        }
    }
}

fn shell_code(status: std::process::ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Runs to the end with this input.
pub(crate) fn finish(command: &mut Command, input: &[u8]) -> Ran {
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let writer = child.stdin.take().map(|mut stdin| {
        let input = input.to_vec();
        // A command that does not read all of it is no failure of the test.
        std::thread::spawn(move || stdin.write_all(&input).is_ok())
    });
    let output = child.wait_with_output().expect("its output can be read");
    if let Some(writer) = writer {
        writer.join().expect("the writer ends");
    }
    Ran {
        code: shell_code(output.status),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Looks until `found` gives something; fails with `what` after [`PATIENCE`].
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}

/// The command under test: named by the caller, else the one that the test runner built.
pub(crate) fn binary() -> PathBuf {
    let named = ["COFFERDAM_SANDBOX_BIN", "NEXTEST_BIN_EXE_sandbox"].iter().find_map(std::env::var_os);
    named.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandbox")), PathBuf::from)
}

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// A file's text, or nothing where it cannot be read.
pub(crate) fn slurp(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
