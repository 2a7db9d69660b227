//! Whether a project's own directory would count as a repository to git on the host, beside its `.git` or in place of it
//! (docs/decisions/0032). Owns that question and the `HEAD` that is put aside; `profiles/protect.toml` says which names are
//! held while a session runs. Called by `supervisor::store` before it lets go of these.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use cofferdam_kernel::file::read_bytes;
use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{HostFacts, PathFact};
use cofferdam_policy::Policy;
use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::Errno;

use crate::git::changes::head_of;
use crate::obeyed::direct_project;

/// The name that keeps git from such a repository while it is held.
pub const COMMONDIR: &str = "commondir";

const HEAD: &str = "HEAD";

/// Where a `HEAD` goes that made the project's own directory a repository; numbered where there is one.
const SET_ASIDE: &str = "HEAD.set-aside";
const MOST_ASIDE: usize = 64;

/// How often it is put aside where another session makes it again.
const MOST_TRIES: usize = 4;

/// A path with its end of line.
const LONGEST_COMMONDIR: u64 = 1 << 16;

/// A project that is no repository by itself.
#[derive(Debug)]
pub struct GitRoot {
    project: PathBuf,
    /// It has all that makes one, and git goes by its `.git`.
    looked_like_one: bool,
}

/// What became of a `HEAD`, as far as it was seen to be so.
#[derive(Debug)]
pub enum Cleared {
    Nothing,
    Done(String),
    /// It counts as a repository still.
    Not(String),
}

impl GitRoot {
    /// Nothing where the session cannot write to the project, or where the project is a bare repository.
    pub fn look(policy: &Policy, facts: &HostFacts) -> Option<Self> {
        let project = direct_project(policy, facts)?.to_path_buf();
        let looked_like_one = looks_like_one(&project);
        let has_dot_git = matches!(facts.paths.get(&project.join(".git")), Some(PathFact::Present { .. }));
        let is_held = kind(&project.join(COMMONDIR)) == Some(FileType::Socket);
        let is_bare = facts.git.iter().any(|dir| dir.path == project) || looked_like_one && !has_dot_git && !is_held;
        (!is_bare).then_some(GitRoot { project, looked_like_one })
    }

    /// Takes the `HEAD` away that would make the project a repository once its names are held no longer.
    pub fn clear(&self) -> Cleared {
        if self.looked_like_one && is_in_use(&self.project.join(".git")) {
            return Cleared::Nothing;
        }
        clear(&self.project)
    }
}

/// The same where it is known that the project was none: a stand-in of a session held `commondir`.
pub fn clear(project: &Path) -> Cleared {
    let mut how = None;
    let mut failed = None;
    for _ in 0..MOST_TRIES {
        if failed.is_some() || !looks_like_one(project) {
            break;
        }
        match take_away(project) {
            Ok(done) => how = Some(done),
            Err(errno) => failed = Some(errno),
        }
    }
    let at = project.display();
    if looks_like_one(project) {
        let why = failed.map_or_else(|| "it is made again and again".to_owned(), |errno| errno.to_string());
        return Cleared::Not(format!(
            "{at} counts as a repository of its own to git, and its HEAD cannot be taken away ({why}): `config` and `hooks` there name programs that git runs. Remove {at}/HEAD before you run git or enter the directory"
        ));
    }
    match how {
        None => Cleared::Nothing,
        Some(how) => Cleared::Done(format!(
            "{at} would have counted as a repository of its own to git: its HEAD {how}; look at it and at `config` and `hooks` there"
        )),
    }
}

/// What was done with it.
fn take_away(project: &Path) -> Result<String, Errno> {
    let directory = open_source(project)?;
    for number in 0..MOST_ASIDE {
        let name = if number == 0 { SET_ASIDE.to_owned() } else { format!("{SET_ASIDE}.{number}") };
        match rename(&directory, &name) {
            Ok(()) => return Ok(format!("is now {name}")),
            Err(Errno::EXIST) => {}
            Err(_) => break,
        }
    }
    rustix::fs::unlinkat(&directory, HEAD, AtFlags::empty())?;
    Ok("could not be renamed and is removed".to_owned())
}

fn rename(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::renameat_with(directory, HEAD, directory, name, RenameFlags::NOREPLACE) {
        // A file system that cannot do it.
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => rustix::fs::renameat(directory, HEAD, directory, name),
        },
        other => other,
    }
}

/// Whether git, or another program that reads repositories, would take a directory for one: these ask for no more of `HEAD`
/// than that it is there. A socket node that holds a name counts as missing.
fn looks_like_one(project: &Path) -> bool {
    let has_head =
        kind(&project.join(HEAD)).is_some_and(|kind| kind != FileType::Directory && kind != FileType::Socket);
    has_head && (has_stores(project) || common(project).is_some_and(|common| has_stores(&common)))
}

/// Through links: git follows them, too.
fn has_stores(directory: &Path) -> bool {
    directory.join("objects").is_dir() && directory.join("refs").is_dir()
}

/// Where `commondir` of the user's own leads.
fn common(project: &Path) -> Option<PathBuf> {
    let mut line = read_bytes(&project.join(COMMONDIR), LONGEST_COMMONDIR).ok()?;
    line.truncate(line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1));
    Some(project.join(OsString::from_vec(line)))
}

/// Whether git goes by this `.git`, and looks no further. It stops at a file that leads nowhere.
fn is_in_use(dot_git: &Path) -> bool {
    match kind(dot_git) {
        None => false,
        Some(FileType::RegularFile) => true,
        Some(_) => head_of(dot_git).is_some() && has_stores(dot_git),
    }
}

fn kind(path: &Path) -> Option<FileType> {
    rustix::fs::lstat(path).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
}
