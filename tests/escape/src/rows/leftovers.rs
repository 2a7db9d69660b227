//! Rows about what a command leaves for later: trees that no process can remove by path, and files that hang the
//! process that opens them.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::program;

use crate::raw;
use crate::row::{Finding, ROW, Row, Trial, Walls};

pub(crate) static D08: Row = Row {
    what: "a tree of up to 20,000 levels and 100,000 files in an overlay",
    control: "removal by descriptors, with a budget; the next session goes on with it",
    run: |trial| {
        trial.scene.directory("home/.npm");
        let began = Instant::now();
        let launched = trial.launch("d08");
        let made = trial.answer(&launched);
        match trial.walls {
            Walls::Standing => made.and_then(|| removed_in_time(trial, began)),
            // The probe filled the directory itself: a process that walks it by path cannot remove it.
            Walls::Open => walked_by_path(&trial.scene.home().join(".npm")),
        }
    },
    ..ROW
};

/// How long the session took to end after its command, and how many more it took until nothing was left.
fn removed_in_time(trial: &Trial, began: Instant) -> Finding {
    // Two seconds are promised; a slow machine may need more for the same, and for the start.
    const AT_MOST: Duration = Duration::from_secs(15);
    const SESSIONS: usize = 20;
    let total = began.elapsed();
    let command = fs::read_to_string(trial.project().join("took")).ok().and_then(|text| text.trim().parse().ok());
    let Some(command) = command.map(Duration::from_millis) else {
        return Finding::Broken("no time was told".to_owned());
    };
    let end = total.saturating_sub(command);
    if end > AT_MOST {
        return Finding::Open(format!("the session took {} ms to end", end.as_millis()));
    }
    let sessions = trial.scene.home().join(".local/state/cofferdam/sessions");
    let is_left = || sessions.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    let mut more = 0;
    while is_left() && more < SESSIONS {
        trial.launch("d08-wait");
        more += 1;
    }
    if is_left() {
        Finding::Open(format!("something is left after {more} more sessions"))
    } else {
        Finding::Contained(format!("ended within {} s, nothing left after {more} more sessions", AT_MOST.as_secs()))
    }
}

/// Enough for every path that the kernel takes, so that the kernel ends the walk and not this program.
const STACK: usize = 1 << 26;

fn walked_by_path(top: &Path) -> Finding {
    fn remove(path: &Path) -> io::Result<()> {
        if !path.symlink_metadata()?.is_dir() {
            return fs::remove_file(path);
        }
        for entry in fs::read_dir(path)? {
            remove(&entry?.path())?;
        }
        fs::remove_dir(path)
    }
    let top_of_thread = top.to_path_buf();
    let walker = std::thread::Builder::new().stack_size(STACK).spawn(move || remove(&top_of_thread));
    let walked = walker.and_then(|walker| walker.join().unwrap_or_else(|_| Err(io::Error::other("the walk panicked"))));
    let removed = Command::new("rm").arg("-rf").arg(top).status();
    match (walked, removed) {
        (Err(error), Ok(status)) if status.success() => Finding::Open(format!("by path: {error}")),
        (Ok(()), _) => Finding::Contained("removed by path".to_owned()),
        (walked, removed) => Finding::Broken(format!("{walked:?}, then {removed:?}")),
    }
}

pub(crate) static D09: Row = Row {
    what: "pipes, sockets, devices and huge files under names that the next launch reads",
    control: "opened without waiting, and only if they are regular files of a sensible size",
    run: |trial| match trial.walls {
        Walls::Standing => nobody_hangs(trial),
        Walls::Open => plain_open_waits(trial),
    },
    ..ROW
};

/// What puts something there that is no file.
type Make = fn(&Path) -> io::Result<()>;

const KINDS: [(&str, Make); 4] = [
    ("pipe", |path| make_fifo(path)),
    ("socket", |path| UnixListener::bind(path).map(drop)),
    ("device", |path| std::os::unix::fs::symlink("/dev/zero", path)),
    ("huge file", |path| fs::File::create(path).and_then(|file| file.set_len(1 << 40))),
];

const NAMES: [&str; 6] =
    [".git", ".cofferdam/policy.toml", ".cofferdam/policy.local.toml", ".env", ".mcp.json", ".vscode"];

fn make_fifo(path: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let mode = usize::try_from(libc::S_IFIFO | 0o600).unwrap_or(0);
    let made = raw::syscall(libc::SYS_mknod, [path.as_ptr() as usize, mode, 0, 0, 0, 0]);
    made.map(drop).map_err(io::Error::from_raw_os_error)
}

fn nobody_hangs(trial: &Trial) -> Finding {
    const PATIENCE: Duration = Duration::from_secs(10);
    let Some(sandbox) = program("sandbox") else {
        return Finding::Skipped("the command `sandbox` was not built".to_owned());
    };
    trial.scene.directory("home/project/.cofferdam");
    let mut slowest = Duration::ZERO;
    for (kind, make) in KINDS {
        for name in NAMES {
            let path = trial.project().join(name);
            if let Err(error) = make(&path) {
                return Finding::Broken(format!("no {kind} at {name}: {error}"));
            }
            match launch(&sandbox, trial, PATIENCE) {
                Ok(Some(took)) => slowest = slowest.max(took),
                Ok(None) => return Finding::Open(format!("the next launch hangs at a {kind} called {name}")),
                Err(error) => return Finding::Broken(error.to_string()),
            }
            if let Err(error) = fs::remove_file(&path) {
                return Finding::Broken(format!("{name}: {error}"));
            }
        }
    }
    Finding::Contained(format!("{} launches, none hung", KINDS.len() * NAMES.len()))
}

/// How long `sandbox run` took, whatever it thinks of the project; none if it did not end.
fn launch(sandbox: &PathBuf, trial: &Trial, patience: Duration) -> io::Result<Option<Duration>> {
    let began = Instant::now();
    let mut child = Command::new(sandbox)
        .args(["run", "--", "/bin/true"])
        .arg(trial.scene.root())
        .current_dir(trial.project())
        .env_clear()
        .env("HOME", trial.scene.home())
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    while began.elapsed() < patience {
        if child.try_wait()?.is_some() {
            return Ok(Some(began.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait().map(|_| None)
}

fn plain_open_waits(trial: &Trial) -> Finding {
    let path = trial.project().join("pipe");
    let opened = make_fifo(&path).and_then(|()| Command::new("cat").arg(&path).stdin(Stdio::null()).spawn());
    let mut child = match opened {
        Ok(child) => child,
        Err(error) => return Finding::Broken(error.to_string()),
    };
    std::thread::sleep(Duration::from_secs(1));
    let waited = child.try_wait();
    let ended = child.kill().and_then(|()| child.wait());
    match (waited, ended) {
        (Ok(None), Ok(_)) => Finding::Open("a plain open of the pipe waits".to_owned()),
        (Ok(Some(_)), _) => Finding::Contained("a plain open of the pipe returned".to_owned()),
        (waited, ended) => Finding::Broken(format!("{waited:?} {ended:?}")),
    }
}
