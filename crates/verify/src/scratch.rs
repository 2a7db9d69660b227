//! The place of one trial: a home and a project with canaries in them, made for it and removed with it. Owns where everything lies;
//! launches nothing. Made by `trial`, known to the process that launches and to the probe by its path.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_workspace::remove_tree::{Progress, Removal};
use rustix::fs::{AtFlags, Mode, OFlags};

/// How long a removal may take.
const MOST_TIME: Duration = Duration::from_mins(1);

/// The paths of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scratch {
    root: PathBuf,
}

/// Secrets of the home directory that no session is shown unasked.
pub(crate) const HOME_SECRETS: &[&str] =
    &[".ssh/id_ed25519", ".aws/credentials", ".gnupg/private-keys-v1.d/key.key", ".config/gcloud/credentials.db"];
/// Secrets of the project.
pub(crate) const PROJECT_SECRETS: &[&str] = &[".env", "packages/api/.env"];
pub(crate) const SHELL_FILES: &[&str] = &[".bashrc", ".profile", ".zshrc"];
pub(crate) const AGENT_FILES: &[&str] = &[".mcp.json", ".claude/settings.json", ".vscode/tasks.json"];
pub(crate) const GIT_FILES: &[&str] = &[".git/hooks/pre-commit", ".git/config"];

impl Scratch {
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Scratch { root: root.into() }
    }

    /// Makes all of it, with the token in every canary, and the policy as the user's own.
    pub(crate) fn make(&self, token: &str, policy: Option<&str>) -> io::Result<()> {
        for directory in [self.outside(), self.state(), self.project().join(".git/objects")] {
            fs::create_dir_all(directory)?;
        }
        let (home, project) = (self.home(), self.project());
        let secrets = HOME_SECRETS.iter().map(|name| home.join(name));
        let secrets = secrets.chain(PROJECT_SECRETS.iter().map(|name| project.join(name)));
        for path in secrets.chain([self.canary()]) {
            write(&path, &format!("{token}\n"))?;
        }
        let obeyed = SHELL_FILES.iter().map(|name| home.join(name));
        for path in obeyed.chain(AGENT_FILES.iter().map(|name| project.join(name))) {
            write(&path, "{}\n")?;
        }
        write(&project.join(".git/HEAD"), "ref: refs/heads/main\n")?;
        write(&project.join(".git/config"), "[core]\n\trepositoryformatversion = 0\n")?;
        write(&project.join(".git/hooks/pre-commit"), "#!/bin/sh\n")?;
        write(&project.join(".git/refs/heads/.keep"), "")?;
        write(&project.join("plain"), "plain\n")?;
        std::os::unix::fs::symlink(self.outside(), project.join("link-out"))?;
        std::os::unix::fs::symlink(home.join(HOME_SECRETS[0]), project.join("link-secret"))?;
        policy.map_or(Ok(()), |text| write(&self.config().join("cofferdam/config.toml"), text))
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    /// What a session must not change.
    pub(crate) fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    pub(crate) fn canary(&self) -> PathBuf {
        self.outside().join("canary")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// For XDG_STATE_HOME.
    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub(crate) fn outcome(&self) -> PathBuf {
        self.root.join("outcome.json")
    }

    /// A socket of a service, where a list of the shipped policy expects one. Its name is short: so are addresses of sockets.
    pub(crate) fn socket(&self) -> PathBuf {
        self.home().join(".gnupg/S.a")
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        let (Some(run), Some(name)) = (self.root.parent(), self.root.file_name().and_then(|name| name.to_str())) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        remove(fs::File::open(run)?.as_fd(), name)
    }
}

/// Which of these names below a directory has the token in it: it was written.
pub(crate) fn changed(directory: &Path, names: &[&str], token: &str) -> Option<String> {
    let has_token = |path: &Path| fs::read(path).is_ok_and(|text| contains(&text, token));
    let changed = names.iter().find(|name| has_token(&directory.join(name)))?;
    Some(format!("{changed} on the host was written"))
}

pub(crate) fn contains(text: &[u8], token: &str) -> bool {
    text.windows(token.len()).any(|part| part == token.as_bytes())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text)
}

/// By descriptors, and no link is followed: what a session wrote is in it.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    match Removal::new(top, Vec::new())?.turn(Instant::now() + MOST_TIME) {
        Progress::Done => Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?),
        Progress::OutOfTime => Err(io::ErrorKind::TimedOut.into()),
        Progress::Stuck => Err(io::Error::other("something in it cannot be removed")),
    }
}
