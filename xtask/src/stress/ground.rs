//! Where the sandboxes of a stress test run: a directory of the user's with the binary, an empty project, a home and a
//! state directory. Owns making, filling and removing it. Called by `stress`.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::account::User;
use crate::problems::Problems;
use crate::shipped;

/// Has to hold what the commands of a run need.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

#[derive(Debug)]
pub(crate) struct Ground {
    user: User,
    /// We are root and the user is not.
    other: bool,
    pub(crate) dir: PathBuf,
}

impl Ground {
    pub(crate) fn set_up(user: &User, binary: &Path) -> Result<Self, Problems> {
        let dir = user.home.join(format!("cofferdam-stress-{}", std::process::id()));
        let other = user.uid != rustix::process::getuid().as_raw();
        let ground = Ground { user: user.clone(), other, dir };
        // Created, not reused: the owner of the home may have put something there.
        doing("make", &ground.dir, fs::create_dir(&ground.dir))?;
        doing("copy", binary, fs::copy(binary, ground.binary()))?;
        // With a cache in the home, each session has an overlay, and so a directory of its own.
        for dir in [ground.project(), ground.home(), ground.home().join(".npm")] {
            doing("make", &dir, fs::create_dir(&dir))?;
            ground.give(&dir)?;
        }
        ground.give(&ground.dir)?;
        ground.give(&ground.binary())?;
        if let Some(egress) = shipped::beside(binary) {
            let to = ground.dir.join(shipped::EGRESS);
            doing("copy", &egress, fs::copy(&egress, &to))?;
            ground.give(&to)?;
        }
        Ok(ground)
    }

    /// Removes everything; also done when it is dropped, but here a failure is reported.
    pub(crate) fn clear(self) -> Result<(), Problems> {
        doing("remove", &self.dir, fs::remove_dir_all(&self.dir))
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.join("project")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state/cofferdam")
    }

    fn binary(&self) -> PathBuf {
        self.dir.join(shipped::COMMAND)
    }

    /// `sandbox run -- sh -c SCRIPT`, as the user, in the project.
    pub(crate) fn sandbox(&self, script: &str) -> Command {
        let mut command = Command::new(self.binary());
        command.args(["run", "--", "/bin/sh", "-c", script]).current_dir(self.project()).env_clear();
        command.envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("USER", self.user.name.as_str())]);
        command.env("HOME", self.home()).env("XDG_STATE_HOME", self.dir.join("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.other {
            command.uid(self.user.uid).gid(self.user.gid);
        }
        command
    }

    fn give(&self, path: &Path) -> Result<(), Problems> {
        let owner = self.other.then_some((self.user.uid, self.user.gid));
        owner.map_or(Ok(()), |(uid, gid)| {
            doing("give away", path, std::os::unix::fs::lchown(path, Some(uid), Some(gid)))
        })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.dir)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("cannot remove {}: {e}", self.dir.display());
        }
    }
}

fn doing<T>(what: &str, path: &Path, result: std::io::Result<T>) -> Result<T, Problems> {
    result.map_err(|e| Problems::one(format!("cannot {what} {}: {e}", path.display())))
}
