//! Gathers the facts that a plan needs about this host, cheaply: one look per path that a rule names.
//! Owns resolution of paths (links followed once, identity recorded); decides nothing. Called by `cli` before `plan`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use cofferdam_kernel::landlock;
use cofferdam_kernel::mount::open_source;
use cofferdam_plan::{FileId, HostFacts, Kind, PathFact, Request, Terminal, queries, system_candidates};
use cofferdam_policy::path::name_matches;
use cofferdam_policy::{Isolation, Policy};
use rustix::fs::FileType;
use rustix::io::Errno;
use thiserror::Error;

use crate::{git, holds, session};

/// Directories that are never a project, whatever the working directory is.
const NOT_PROJECTS: &[&str] = &[
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root",
    "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp",
];

#[derive(Debug, Error)]
pub enum SurveyError {
    #[error("the working directory cannot be read")]
    WorkingDirectory(#[source] std::io::Error),
    #[error("the home directory `{home}` cannot be resolved")]
    Home {
        home: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Where the user stands, before any policy is read: needed to find the project's policy files.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub home: PathBuf,
    pub cwd: PathBuf,
    pub project: Option<PathBuf>,
    pub state: PathBuf,
}

impl Surroundings {
    pub fn look(environment: &[(String, String)]) -> Result<Self, SurveyError> {
        let value = |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let home = PathBuf::from(value("HOME").filter(|h| h.starts_with('/')).unwrap_or("/nonexistent"));
        let home = match home.canonicalize() {
            Ok(home) => home,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => home,
            Err(source) => return Err(SurveyError::Home { home, source }),
        };
        let cwd = std::env::current_dir().map_err(SurveyError::WorkingDirectory)?;
        let project = find_project(&cwd, &home);
        let state = session::state_dir(&home, value("XDG_STATE_HOME"));
        Ok(Surroundings { home, cwd, project, state })
    }
}

/// The nearest directory with a repository or a policy of its own, else the working directory itself; never the home
/// directory, what lies above it, or a directory of the system.
fn find_project(cwd: &Path, home: &Path) -> Option<PathBuf> {
    let is_project = |dir: &Path| !home.starts_with(dir) && !NOT_PROJECTS.iter().any(|n| dir == Path::new(n));
    let marked = |dir: &&Path| {
        [".git", ".cofferdam"].iter().any(|name| dir.join(name).symlink_metadata().is_ok_and(|m| !is_hold(&m)))
    };
    let found = cwd.ancestors().take_while(|dir| is_project(dir)).find(marked).unwrap_or(cwd);
    is_project(found).then(|| found.to_path_buf())
}

fn is_hold(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o7777 == 0o1400
}

/// Everything `plan` wants to know.
pub fn survey(policy: &Policy, around: &Surroundings, request: &Request) -> HostFacts {
    let mut facts = HostFacts {
        machine: std::env::consts::ARCH.to_owned(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        home: around.home.clone(),
        cwd: around.cwd.clone(),
        project: around.project.clone(),
        git: around.project.as_deref().map(git::git_dirs).unwrap_or_default(),
        variables: variables(policy, request),
        landlock_abi: landlock::abi(),
        terminal: Terminal {
            stdin: rustix::termios::isatty(rustix::stdio::stdin()),
            stdout: rustix::termios::isatty(rustix::stdio::stdout()),
            stderr: rustix::termios::isatty(rustix::stdio::stderr()),
        },
        session_dir: Some(around.state.join("sessions")),
        ..HostFacts::default()
    };
    if policy.isolation.value == Isolation::None {
        return facts;
    }
    facts.system =
        system_candidates().filter(|p| rustix::fs::lstat(*p).is_ok_and(|s| !is_link(&s))).map(PathBuf::from).collect();
    look_at_paths(policy, &mut facts);
    let limits_programs = !policy.process.allow_exec.value || !policy.process.executables.is_empty();
    if limits_programs {
        look_at_programs(policy, request, &mut facts);
    }
    facts
}

fn is_link(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// The values of variables that path expressions name; relative values are no paths.
fn variables(policy: &Policy, request: &Request) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for name in policy.files.iter().filter_map(|rule| rule.path.variable()) {
        if found.iter().any(|(n, _)| n == name) {
            continue;
        }
        let value = request.environment.iter().find(|(n, v)| n == name && v.starts_with('/'));
        if let Some((name, value)) = value {
            let path = Path::new(value);
            found.push((name.clone(), path.canonicalize().unwrap_or_else(|_| path.to_path_buf())));
        }
    }
    found
}

fn look_at_paths(policy: &Policy, facts: &mut HostFacts) {
    let mut listings = Listings::default();
    for query in queries(policy, &facts.places()) {
        if query.glob {
            let matches = list_matching(&query.path);
            for path in &matches {
                facts.paths.entry(path.clone()).or_insert_with(|| look(path));
            }
            facts.globs.insert(query.path, matches);
        } else if listings.may_exist(&query.path, &facts.home) {
            facts.paths.entry(query.path).or_insert_with_key(|path| look(path));
        } else if facts.project.as_ref().is_some_and(|project| query.path.starts_with(project)) {
            // Only there does it matter which part of a missing name is missing.
            facts.paths.entry(query.path).or_insert_with_key(|path| missing(path));
        }
    }
    let mut more: Vec<PathBuf> = facts.project.iter().cloned().collect();
    more.extend(facts.project.iter().map(|p| p.join(".git")));
    for git in &facts.git {
        more.extend([git.path.clone(), git.path.join("commondir"), git.path.join("gitdir")]);
    }
    for path in more {
        facts.paths.entry(path.clone()).or_insert_with(|| look(&path));
    }
}

/// The shipped lists name hundreds of places in the home directory, of which few exist: reading a directory once is
/// cheaper than asking for every name in it.
#[derive(Default)]
struct Listings(BTreeMap<PathBuf, Option<Vec<OsString>>>);

impl Listings {
    /// False only if a directory on the way to `path` was listed and does not have the next name.
    fn may_exist(&mut self, path: &Path, home: &Path) -> bool {
        let Ok(rest) = path.strip_prefix(home) else { return true };
        let mut at = home.to_path_buf();
        for name in rest.components() {
            let listing = self.0.entry(at.clone()).or_insert_with(|| list(&at));
            match listing {
                // Sorted by `list`. Where names are compared without case the kernel decides, so only absence of a
                // name in any spelling counts as absence.
                Some(names) if !has_name(names, name.as_os_str()) => return false,
                Some(_) => {}
                None => return true,
            }
            at.push(name);
            if at.components().count() > home.components().count() + 2 {
                return true;
            }
        }
        true
    }
}

/// Names in lower case, sorted; `None` where the directory cannot be listed or is not one.
fn list(path: &Path) -> Option<Vec<OsString>> {
    let mut names: Vec<OsString> = std::fs::read_dir(path)
        .ok()?
        .map(|entry| entry.map(|e| e.file_name().to_ascii_lowercase()))
        .collect::<Result<_, _>>()
        .ok()?;
    names.sort_unstable();
    Some(names)
}

fn has_name(names: &[OsString], name: &OsStr) -> bool {
    !name.is_ascii() || names.binary_search(&name.to_ascii_lowercase()).is_ok()
}

/// Names in the pattern's directory that match its last component.
fn list_matching(pattern: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(last)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let last = last.to_string_lossy();
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| name_matches(&last, &entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// One path: what it is and where it really is.
fn look(path: &Path) -> PathFact {
    match open_source(path) {
        Ok(fd) => present(path.to_path_buf(), fd.as_fd()),
        // A link somewhere on the way: resolve it once, then look at the result without following anything.
        Err(Errno::LOOP) => match path.canonicalize() {
            Ok(real) => open_source(&real).map_or_else(|_| missing(&real), |fd| present(real.clone(), fd.as_fd())),
            Err(_) => missing(path),
        },
        Err(_) => missing(path),
    }
}

fn present(canonical: PathBuf, fd: std::os::fd::BorrowedFd<'_>) -> PathFact {
    let Ok(stat) = rustix::fs::fstat(fd) else { return missing(&canonical) };
    if holds::is_stand_in(&stat) {
        return missing(&canonical);
    }
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        _ => Kind::Other,
    };
    PathFact::Present { canonical, kind, id: FileId { device: stat.st_dev, inode: stat.st_ino } }
}

fn missing(path: &Path) -> PathFact {
    let mut first = path.to_path_buf();
    while let Some(parent) = first.parent() {
        match rustix::fs::lstat(parent) {
            Ok(stat) if !holds::is_stand_in(&stat) => break,
            _ => first = parent.to_path_buf(),
        }
    }
    let parent = first.parent().and_then(|p| p.canonicalize().ok());
    let rebase = |p: &Path| match (&parent, first.parent().and_then(|old| p.strip_prefix(old).ok())) {
        (Some(parent), Some(rest)) => parent.join(rest),
        _ => p.to_path_buf(),
    };
    PathFact::Missing { canonical: rebase(path), first: rebase(&first) }
}

fn look_at_programs(policy: &Policy, request: &Request, facts: &mut HostFacts) {
    let path = request.environment.iter().find(|(n, _)| n == "PATH").map_or("/usr/local/bin:/usr/bin:/bin", |(_, v)| v);
    let mut executables = BTreeMap::new();
    for name in policy.process.executables.iter().map(|e| &e.value).chain(request.argv.first()) {
        let candidates: Vec<PathBuf> = if name.contains('/') {
            vec![facts.cwd.join(name)]
        } else {
            path.split(':').filter(|d| d.starts_with('/')).map(|d| Path::new(d).join(name)).collect()
        };
        let found = candidates.iter().filter_map(|c| c.canonicalize().ok()).find(|c| c.is_file());
        if let Some(found) = found {
            executables.insert(name.clone(), look(&found));
        }
    }
    facts.executables = executables;
    for library in ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib"] {
        if let Some(PathFact::Present { canonical, id, .. }) = Path::new(library).canonicalize().ok().map(|p| look(&p))
            && !facts.libraries.iter().any(|(known, _)| canonical.starts_with(known))
        {
            facts.libraries.push((canonical, id));
        }
    }
    let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];
    facts.loaders = loaders.iter().filter_map(|l| Path::new(l).canonicalize().ok()).collect();
}
