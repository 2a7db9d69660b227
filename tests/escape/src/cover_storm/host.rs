//! The host's side of a storm: what system calls and programs do to the names of one tree. Owns the changes and how often each
//! was made; which of the names are covered is the session's.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::raw;

/// A program that replaces a covered name, and how it is called for turn N.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    script: &'static str,
}

/// `$N` is another number each time. Git is told to trust a tree that root may have made for a user.
pub(crate) const PROGRAMS: [Program; 6] = [
    Program { name: "git config", script: "git config user.name mark-$N" },
    Program { name: "git checkout", script: "git checkout -qf branch-$((N % 2))" },
    Program { name: "git clean", script: "git clean -fxq .env && echo TOKEN=$N > .env" },
    Program { name: "sed -i", script: "sed -i s/TOKEN=.*/TOKEN=$N/ .env" },
    Program {
        name: "vim",
        script: "vim -u NONE -i NONE -n -es -c 'set backupcopy=no nofsync' -c %d -c \"call setline(1, 'TOKEN=$N')\" -c wq sub/secret",
    },
    Program { name: "rm -rf", script: "rm -rf sub && mkdir sub && echo TOKEN=$N > sub/secret" },
];

const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n";

/// Failures of a program, of all its runs, that are let pass: the workload renames and truncates what it works on.
const MOST_FAILED: usize = 20;
/// Between some changes, so that the session gets to run; the rest comes in bursts.
const PAUSE: Duration = Duration::from_micros(400);

pub(crate) struct Host {
    tree: PathBuf,
    turn: usize,
    pub(crate) calls: usize,
    pub(crate) binds: usize,
    pub(crate) runs: [usize; PROGRAMS.len()],
    failed: [usize; PROGRAMS.len()],
    is_root: bool,
}

impl Host {
    pub(crate) fn new(tree: PathBuf) -> Host {
        let none = [0; PROGRAMS.len()];
        Host { tree, turn: 0, calls: 0, binds: 0, runs: none, failed: none, is_root: is_root() }
    }

    /// The tree: a repository with two branches that differ in what is protected.
    pub(crate) fn make(&self) -> Result<(), String> {
        fs::create_dir_all(&self.tree).map_err(|error| error.to_string())?;
        self.script(
            "git init -q -b branch-0 && mkdir -p .vscode sub && echo zero > .envrc && echo {} > .vscode/tasks.json \
             && git add .envrc .vscode && git commit -qm zero && git checkout -qb branch-1 && git rm -qr .vscode \
             && echo one > .envrc && git commit -qam one && git checkout -q branch-0",
            0,
        )
        .and_then(|made| if made { Ok(()) } else { Err("the repository cannot be made".to_owned()) })
    }

    /// What a session before has moved away or emptied.
    pub(crate) fn restore(&mut self) -> Result<(), String> {
        fs::create_dir_all(self.tree.join("sub")).map_err(|error| error.to_string())?;
        replace(&self.tree.join(".git/config"), CONFIG)?;
        let text = self.next();
        for name in [".env", "sub/secret"] {
            replace(&self.tree.join(name), &text)?;
        }
        // A protected name that is missing at the start may be made inside.
        let is_whole = self.script("rm -f .git/*.lock && git checkout -qf branch-0", 0)?;
        if is_whole { Ok(()) } else { Err("the tree cannot be restored".to_owned()) }
    }

    fn next(&mut self) -> String {
        self.turn += 1;
        format!("TOKEN={}\n", self.turn)
    }

    /// One change more, of calls and programs in proportion.
    pub(crate) fn change(&mut self, calls: usize, programs: usize) -> Result<(), String> {
        if let Some(index) = self.due(calls, programs) {
            let turn = self.turn + 1;
            self.turn = turn;
            self.put_back()?;
            let ran = self.script(PROGRAMS[index].script, turn)?;
            self.runs[index] += usize::from(ran);
            self.failed[index] += usize::from(!ran);
            if self.failed[index] > MOST_FAILED + self.runs[index] {
                return Err(format!(
                    "`{}` fails: {} of {}",
                    PROGRAMS[index].name, self.failed[index], self.runs[index]
                ));
            }
            return Ok(());
        }
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            std::thread::sleep(PAUSE);
        }
        self.call()
    }

    /// The program that is behind its share.
    fn due(&self, calls: usize, programs: usize) -> Option<usize> {
        let share = |runs: usize| runs * calls <= self.calls * programs && runs < programs;
        let behind = (0..PROGRAMS.len()).filter(|index| share(self.runs[*index]));
        behind.min_by_key(|index| self.runs[*index])
    }

    /// What the workload renamed away or emptied: a program has to find it.
    fn put_back(&mut self) -> Result<(), String> {
        let config = self.tree.join(".git/config");
        if !fs::read_to_string(&config).is_ok_and(|text| text.starts_with(CONFIG)) {
            replace(&config, CONFIG)?;
        }
        fs::create_dir_all(self.tree.join("sub")).map_err(|error| error.to_string())?;
        for name in [".env", "sub/secret"] {
            let path = self.tree.join(name);
            if !path.exists() {
                let text = self.next();
                replace(&path, &text)?;
            }
        }
        Ok(())
    }

    fn call(&mut self) -> Result<(), String> {
        let text = self.next();
        let at = |name: &str| self.tree.join(name);
        let (secret, deep, config) = (at(".env"), at("sub/secret"), at(".git/config"));
        match self.turn % 10 {
            0 => {
                fs::remove_file(&secret).ok();
                make_new(&secret, &text)
            }
            // Under another name it is one that no rule is about, so it is gone before the new one comes.
            1 => {
                fs::rename(&secret, at("aside")).ok();
                fs::remove_file(at("aside")).ok();
                make_new(&secret, &text)
            }
            2 | 3 => replace(&config, &format!("{CONFIG}[user]\n\tname = mark-{}\n", self.turn)),
            4 => {
                fs::rename(at("sub"), at("moved")).ok();
                fs::rename(at("moved"), at("sub")).ok();
                Ok(())
            }
            5 => {
                fs::rename(at("sub"), at("moved")).ok();
                fs::create_dir(at("sub")).ok();
                make_new(&deep, &text)?;
                fs::remove_dir_all(at("moved")).ok();
                Ok(())
            }
            6 => replace(&deep, &text),
            7 => {
                fs::rename(at(".git"), at("moved.git")).ok();
                fs::rename(at("moved.git"), at(".git")).ok();
                Ok(())
            }
            8 if self.is_root => self.bind(&secret, &text),
            _ => replace(&secret, &text),
        }
    }

    /// Over the name and off again.
    fn bind(&mut self, path: &Path, text: &str) -> Result<(), String> {
        let spare = self.tree.join("bound");
        fs::write(&spare, text).or_else(|error| lost(&error))?;
        let name = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string());
        let (from, to) = (name(&spare)?, name(path)?);
        let flags = usize::try_from(libc::MS_BIND).unwrap_or(0);
        let bound = raw::syscall(libc::SYS_mount, [from.as_ptr() as usize, to.as_ptr() as usize, 0, flags, 0, 0]);
        if bound.is_ok() {
            self.binds += 1;
            let flags = usize::try_from(libc::MNT_DETACH).unwrap_or(0);
            raw::syscall(libc::SYS_umount2, [to.as_ptr() as usize, flags, 0, 0, 0, 0])
                .map_err(|errno| format!("a bind mount stays: errno {errno}"))?;
        }
        fs::remove_file(&spare).or_else(|error| lost(&error))
    }

    /// Whether the program succeeded.
    fn script(&self, script: &str, turn: usize) -> Result<bool, String> {
        let status = Command::new("sh")
            .args(["-c", script])
            .current_dir(&self.tree)
            .env_clear()
            .envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("GIT_CONFIG_NOSYSTEM", "1")])
            .envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")])
            .envs([("GIT_AUTHOR_NAME", "host"), ("GIT_AUTHOR_EMAIL", "host@host")])
            .envs([("GIT_COMMITTER_NAME", "host"), ("GIT_COMMITTER_EMAIL", "host@host")])
            .env("HOME", &self.tree)
            .env("N", turn.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.map(|status| status.success()).map_err(|error| error.to_string())
    }
}

/// As editors and git save: another object moved into place.
fn replace(path: &Path, text: &str) -> Result<(), String> {
    let spare = path.with_file_name("spare");
    fs::write(&spare, text).and_then(|()| fs::rename(&spare, path)).or_else(|error| lost(&error))
}

/// Never in place of what is there: each content is one object's.
fn make_new(path: &Path, text: &str) -> Result<(), String> {
    let new = fs::File::options().write(true).create_new(true).open(path);
    new.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes())).or_else(|error| lost(&error))
}

/// The workload works on the same names: what it took away first is no failure of the host's.
fn lost(error: &std::io::Error) -> Result<(), String> {
    use std::io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound};
    match error.kind() {
        NotFound | AlreadyExists | IsADirectory | NotADirectory => Ok(()),
        _ => Err(format!("the host cannot work: {error}")),
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// As root, a mount namespace for host and sessions together: what is bound there never shows on this machine. It is shared in itself,
/// as a host's is, so that mounts spread as far as they can.
pub(crate) fn private_mounts() -> Result<(), String> {
    if !is_root() {
        return Ok(());
    }
    let number = |flags: u64| usize::try_from(flags).unwrap_or(0);
    let space = usize::try_from(libc::CLONE_NEWNS).unwrap_or(0);
    let propagate = |flags: u64| raw::syscall(libc::SYS_mount, [0, c"/".as_ptr() as usize, 0, number(flags), 0, 0]);
    raw::syscall(libc::SYS_unshare, [space, 0, 0, 0, 0, 0])
        .and_then(|_| propagate(libc::MS_REC | libc::MS_PRIVATE))
        .and_then(|_| propagate(libc::MS_REC | libc::MS_SHARED))
        .map(|_| ())
        .map_err(|errno| format!("no mount namespace of its own: errno {errno}"))
}
