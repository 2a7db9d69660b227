//! Where a bench runs: a directory in the measuring user's home with the binaries and an empty project, and the worker
//! processes that measure there as that user. Owns making and removing them; measures nothing. Called by the benches.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::account::{User, choose_user};
use crate::bench::worker::Request;
use crate::problems::Problems;
use crate::shipped;
use crate::workspace::read;

/// What a user's shell would have, so that the tools of the distribution are found.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

#[derive(Debug)]
pub(crate) struct Stage {
    user: User,
    /// The worker has to change to the user, which is not the one that runs us.
    other: bool,
    dir: PathBuf,
}

impl Stage {
    pub(crate) fn set_up(name: Option<&str>, sandbox: &Path, worker: &Path) -> Result<Self, Problems> {
        let own = rustix::process::getuid().as_raw();
        let user = choose_user(&read(Path::new("/etc/passwd"))?, own, name)?;
        let dir = user.home.join(format!("cofferdam-bench-{}", std::process::id()));
        let stage = Stage { other: user.uid != own, user, dir };
        // Created, not reused: the owner of the home may have put something there.
        stage.doing("make", &stage.dir, fs::create_dir(&stage.dir))?;
        stage.bring_command(sandbox, shipped::COMMAND)?;
        stage.bring(worker, "xtask")?;
        for dir in [stage.project(), stage.home()] {
            stage.doing("make", &stage.dir, fs::create_dir(&dir))?;
            stage.give(&dir)?;
        }
        stage.give(&stage.dir)?;
        Ok(stage)
    }

    /// Removes everything; also done when the stage is dropped, but here a failure is reported.
    pub(crate) fn clear(self) -> Result<(), Problems> {
        self.doing("remove", &self.dir, fs::remove_dir_all(&self.dir))
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.join("project")
    }

    /// A toolchain for the measuring user, once a bench has put one there.
    pub(crate) fn toolchain(&self) -> PathBuf {
        self.dir.join("toolchain")
    }

    pub(crate) fn sandbox(&self) -> PathBuf {
        self.dir.join(shipped::COMMAND)
    }

    /// One more program for the measuring user.
    pub(crate) fn bring(&self, from: &Path, name: &str) -> Result<PathBuf, Problems> {
        let to = self.dir.join(name);
        self.doing("copy", from, fs::copy(from, &to))?;
        self.give(&to)?;
        Ok(to)
    }

    /// A `sandbox`, and the program that it starts from its own directory. Two builds are in two directories.
    pub(crate) fn bring_command(&self, from: &Path, name: &str) -> Result<(), Problems> {
        let directory = self.dir.join(name);
        let directory = directory.parent().unwrap_or(&self.dir);
        if !directory.is_dir() {
            self.doing("make", directory, fs::create_dir(directory))?;
            self.give(directory)?;
        }
        self.bring(from, name)?;
        if let Some(egress) = shipped::beside(from) {
            let beside = Path::new(name).with_file_name(shipped::EGRESS);
            self.bring(&egress, &beside.to_string_lossy())?;
        }
        Ok(())
    }

    /// A file of the measuring user, with its directories, below the stage.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), Problems> {
        let mut directory = self.dir.clone();
        for part in Path::new(name).parent().into_iter().flatten() {
            directory.push(part);
            if !directory.is_dir() {
                self.doing("make", &directory, fs::create_dir(&directory))?;
                self.give(&directory)?;
            }
        }
        let path = self.dir.join(name);
        self.doing("write", &path, fs::write(&path, text))?;
        self.give(&path)
    }

    /// A program as the measuring user, in the project.
    pub(crate) fn user_command(&self, program: &Path) -> Command {
        let mut command = self.command(program);
        if self.other {
            command.uid(self.user.uid).gid(self.user.gid);
        }
        command
    }

    /// A worker in the namespaces that this program was started in.
    pub(crate) fn worker(&self) -> Result<Worker, Problems> {
        Worker::start(self.user_command(&self.dir.join("xtask")).args(["bench-worker", "serve"]))
    }

    /// A worker whose home is the one that the password database names, as a user's is: with another one both are homes, and
    /// a launch closes the names of both.
    pub(crate) fn worker_at_home(&self) -> Result<Worker, Problems> {
        let mut command = self.user_command(&self.dir.join("xtask"));
        Worker::start(command.args(["bench-worker", "serve"]).env("HOME", &self.user.home))
    }

    /// A worker with a home and a project of its own, empty.
    pub(crate) fn worker_apart_in(&self, name: &str) -> Result<Worker, Problems> {
        let (home, project) = (self.dir.join(format!("{name}-home")), self.dir.join(format!("{name}-project")));
        for dir in [&home, &project] {
            self.doing("make", dir, fs::create_dir(dir))?;
            self.give(dir)?;
        }
        let mut command = self.user_command(&self.dir.join("xtask"));
        Worker::start(command.args(["bench-worker", "serve"]).current_dir(project).env("HOME", home))
    }

    /// A worker in a mount namespace of its own, with that many mounts more.
    pub(crate) fn worker_with_mounts(&self, count: usize) -> Result<Worker, Problems> {
        self.worker_apart(&["--count", &count.to_string()])
    }

    /// A worker that has no /dev/fuse: unknown paths are noticed by reported calls there.
    pub(crate) fn worker_without_fuse(&self) -> Result<Worker, Problems> {
        self.worker_apart(&["--count", "0", "--without-fuse"])
    }

    /// A worker in a mount namespace of its own.
    fn worker_apart(&self, arguments: &[&str]) -> Result<Worker, Problems> {
        let mut command = self.command(Path::new("unshare"));
        let root = rustix::process::getuid().is_root();
        // A user who is not root needs to be root of a user namespace to mount.
        command.args(if root { &["--mount"][..] } else { &["--mount", "--user", "--map-root-user"] });
        command.arg("--").arg(self.dir.join("xtask")).args(["bench-worker", "mounts"]).args(arguments);
        if root && self.other {
            command.args(["--uid", &self.user.uid.to_string(), "--gid", &self.user.gid.to_string()]);
        }
        Worker::start(&mut command)
    }

    /// Facts that explain a figure.
    pub(crate) fn machine(&self) -> Value {
        let uname = rustix::system::uname();
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = text("/proc/cpuinfo");
        let cpu =
            cpu.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ")).map_or("unknown", |(_, m)| m);
        let bwrap =
            Command::new("bwrap").arg("--version").output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
        json!({
            "user": format!("{} (uid {})", self.user.name, self.user.uid),
            "kernel": uname.release().to_string_lossy(),
            "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "cpu": cpu,
            "load": text("/proc/loadavg").split(' ').next(),
            "mounts": text("/proc/self/mountinfo").lines().count(),
            "bwrap": bwrap.ok().as_deref().map_or("not installed", str::trim),
        })
    }

    /// Empty, so that the figures do not depend on which caches the account happens to have (each is one more overlay).
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.project()).env_clear().envs([
            ("PATH", PATH),
            ("LANG", "C.UTF-8"),
            ("USER", &self.user.name),
            ("LOGNAME", &self.user.name),
        ]);
        command.env("HOME", self.home()).env("XDG_STATE_HOME", self.dir.join("state"));
        command
    }

    fn give(&self, path: &Path) -> Result<(), Problems> {
        if !self.other {
            return Ok(());
        }
        let given = std::os::unix::fs::lchown(path, Some(self.user.uid), Some(self.user.gid));
        self.doing("give away", path, given)
    }

    /// A directory and everything below it.
    pub(crate) fn give_tree(&self, tree: &Path) -> Result<(), Problems> {
        let mut waiting = vec![tree.to_path_buf()];
        while let Some(path) = waiting.pop() {
            self.give(&path)?;
            if path.is_dir() && !path.is_symlink() {
                let entries: std::io::Result<Vec<_>> = self.doing("list", &path, fs::read_dir(&path))?.collect();
                waiting.extend(self.doing("list", &path, entries)?.iter().map(fs::DirEntry::path));
            }
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "reads as what the stage does")]
    fn doing<T>(&self, what: &str, path: &Path, result: std::io::Result<T>) -> Result<T, Problems> {
        result.map_err(|e| Problems::one(format!("cannot {what} {}: {e}", path.display())))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.dir)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("cannot remove {}: {e}", self.dir.display());
        }
    }
}

/// A process that measures on request: one line of JSON each way.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Worker {
    fn start(command: &mut Command) -> Result<Self, Problems> {
        let missing = |what: String| Problems::one(format!("cannot start the measuring process: {what}"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| missing(format!("{}: {e}", command.get_program().display())))?;
        let requests = child.stdin.take();
        let replies = BufReader::new(child.stdout.take().ok_or_else(|| missing("no output".to_owned()))?);
        Ok(Worker { child, requests, replies })
    }

    pub(crate) fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Problems> {
        let broken = |what: String| Problems::one(format!("the measuring process does not answer: {what}"));
        let line = serde_json::to_string(request).map_err(|e| broken(e.to_string()))?;
        let requests = self.requests.as_mut().ok_or_else(|| broken("no input".to_owned()))?;
        requests.write_all((line + "\n").as_bytes()).map_err(|e| broken(e.to_string()))?;
        let mut reply = String::new();
        self.replies.read_line(&mut reply).map_err(|e| broken(e.to_string()))?;
        let reply: Result<Value, String> =
            serde_json::from_str(&reply).map_err(|e| broken(format!("{e}: `{}`", reply.trim())))?;
        serde_json::from_value(reply.map_err(Problems::one)?).map_err(|e| broken(e.to_string()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A worker ends when the bench cannot ask any more.
        self.requests = None;
        if let Err(e) = self.child.wait() {
            eprintln!("cannot wait for the measuring process: {e}");
        }
    }
}
