//! Gathers the facts that a plan needs about this host, cheaply: one look per path that a rule names.
//! Owns which paths are looked at and the order of the looks; decides nothing. Called by `cli` before `plan`.

mod listings;
mod machine;
mod mounts;
mod paths;
mod programs;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_gate::masked_at;
use cofferdam_kernel::best_effort;
use cofferdam_kernel::{bound, filtered, fuse, landlock};
use cofferdam_plan::{
    FileId, HostFacts, Kind, MaskFact, MountFact, PathFact, Request, Shows, Terminal, TrackedFile, is_in_own_area,
    is_of_the_system, system_candidates,
};
use cofferdam_policy::decide::index::refuses;
use cofferdam_policy::path::{Base, is_at_or_below};
use cofferdam_policy::{Access, AgentUse, FileRule, Isolation, Layer, Mode, PathExpr, Places, Policy, folds_alike};
use cofferdam_wire::order::Chosen;
use rustix::io::Errno;
use thiserror::Error;

use self::listings::{Listings, list_matching};
use self::machine::{cpus, disk_of, has_own_largest_pid, has_quota, least_of, memory, resolvers};
use self::paths::{Found, Paths, closed_at, is_link, kept};
use self::programs::look_at_programs;
use crate::homes::{HomeError, Homes};
use crate::search::{self, Sought, search};
use crate::stand_ins::StandIns;
use crate::tracked::Repository;
use crate::{cgroup_home, git, state, written};

/// Entries of a protected directory that are looked at for links, and how deep below it.
const MOST_PROTECTED: usize = 256;
const DEEPEST_PROTECTED: usize = 3;

/// Directories that are never a project, whatever the working directory is.
const NOT_PROJECTS: &[&str] =
    &["/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/tmp"];

#[derive(Debug, Error)]
pub enum SurveyError {
    #[error("the working directory cannot be read")]
    WorkingDirectory(#[source] std::io::Error),
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error("`{path}` is no directory that can be entered", path = path.display())]
    NoDirectory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "a link that a session may have left leads from `{path}` to `{real}`; name that if you mean it",
        path = path.display(), real = real.display()
    )]
    LedOut { path: PathBuf, real: PathBuf },
    #[error("it cannot be read which directories sessions wrote")]
    Written(#[source] std::io::Error),
    #[error("`{path}` cannot be the project: it is a home, holds one, or belongs to the system", path = path.display())]
    NoProject { path: PathBuf },
}

/// Where the user stands, before any policy is read: needed to find the project's policy files.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub home: PathBuf,
    pub other_home: Option<PathBuf>,
    pub cwd: PathBuf,
    /// Where the command starts.
    pub start_in: PathBuf,
    pub project: Option<PathBuf>,
    pub state: PathBuf,
}

impl Surroundings {
    pub fn look(environment: &[(String, String)]) -> Result<Self, SurveyError> {
        Surroundings::chosen(environment, &Chosen::default())
    }

    /// With the project and the place to start in that the operator named, where they did.
    pub fn chosen(environment: &[(String, String)], chosen: &Chosen) -> Result<Self, SurveyError> {
        let value = |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let homes = Homes::look(environment)?;
        let cwd = std::env::current_dir().map_err(SurveyError::WorkingDirectory)?;
        let state = state::state_dir(&homes.first, value("XDG_STATE_HOME"));
        let places = Places { home: homes.first, other_home: homes.other, ..Places::default() };
        let stand_ins = StandIns::of(&state);
        let names_one = chosen.project.is_some() || chosen.start_in.is_some();
        let written = if names_one { written::trees(&state) } else { Ok(Vec::new()) };
        let paths = Paths::new(&stand_ins, written.map_err(SurveyError::Written)?);
        let named = |path: &Option<PathBuf>| path.as_ref().map(|path| directory(&cwd.join(path), &paths)).transpose();
        let (named_project, start_in) = (named(&chosen.project)?, named(&chosen.start_in)?);
        if let Some(path) = named_project.as_ref().filter(|path| !can_be_project(path, &places)) {
            return Err(SurveyError::NoProject { path: path.clone() });
        }
        let outside = named_project.as_ref().filter(|project| !cwd.starts_with(project));
        let start_in = start_in.or_else(|| outside.cloned()).unwrap_or_else(|| cwd.clone());
        let project = named_project.or_else(|| find_project(&cwd, &places, &stand_ins));
        Ok(Surroundings { home: places.home, other_home: places.other_home, cwd, start_in, project, state })
    }

    /// What path expressions stand for, without git directories and variables.
    pub fn places(&self) -> Places {
        let (home, other_home, project) = (self.home.clone(), self.other_home.clone(), self.project.clone());
        Places { home, other_home, project, ..Places::default() }
    }
}

/// The nearest directory with a repository or a policy of its own, else the working directory itself; never a home, what
/// lies above one, or a directory of the system: root's shell may stand in `/usr/bin`, and no command gets to write there
/// because of that.
fn find_project(cwd: &Path, places: &Places, stand_ins: &StandIns) -> Option<PathBuf> {
    let is_project = |dir: &Path| can_be_project(dir, places);
    let marked = |dir: &&Path| {
        let is_there = |path: PathBuf| rustix::fs::lstat(&path).is_ok_and(|stat| !stand_ins.knows(&path, &stat));
        [".git", ".cofferdam"].iter().any(|name| is_there(dir.join(name)))
    };
    let found = cwd.ancestors().take_while(|dir| is_project(dir)).find(marked).unwrap_or(cwd);
    is_project(found).then(|| found.to_path_buf())
}

fn can_be_project(dir: &Path, places: &Places) -> bool {
    let is_system = NOT_PROJECTS.iter().any(|n| dir == Path::new(n)) || is_of_the_system(dir);
    !places.holds_a_home(dir) && !is_system
}

/// A directory by its real path.
fn directory(path: &Path, paths: &Paths<'_>) -> Result<PathBuf, SurveyError> {
    let entries = path.canonicalize().and_then(|real| real.read_dir().map(|_| real));
    let real = entries.map_err(|source| SurveyError::NoDirectory { path: path.to_path_buf(), source })?;
    if paths.is_led_out(path, &real, &[]) {
        return Err(SurveyError::LedOut { path: path.to_path_buf(), real });
    }
    Ok(real)
}

/// Everything `plan` wants to know.
pub fn survey(policy: &Policy, around: &Surroundings, request: &Request) -> HostFacts {
    let stand_ins = StandIns::of(&around.state);
    let mut facts = HostFacts {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        home: around.home.clone(),
        other_home: around.other_home.clone(),
        cwd: around.start_in.clone(),
        project: around.project.clone(),
        has_fuse: policy.mode.value == Mode::Dynamic && fuse::is_available(),
        landlock_abi: landlock::abi(),
        inotify_instances: least_of([
            "/proc/sys/fs/inotify/max_user_instances",
            "/proc/sys/user/max_inotify_instances",
        ]),
        inotify_watches: least_of(["/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"]),
        own_largest_pid: rustix::system::uname().release().to_str().is_ok_and(has_own_largest_pid),
        terminal: Terminal {
            stdin: rustix::termios::isatty(rustix::stdio::stdin()),
            stdout: rustix::termios::isatty(rustix::stdio::stdout()),
            stderr: rustix::termios::isatty(rustix::stdio::stderr()),
        },
        cgroup: cgroup_home::cgroup_home(&request.environment),
        memory: memory(),
        cpus: cpus(),
        pid: rustix::process::getpid().as_raw_nonzero().get().cast_unsigned(),
        session_dir: Some(around.state.join("sessions")),
        ..HostFacts::default()
    };
    let written = written::trees(&around.state);
    let unread = written.as_ref().err().map(|error| format!("`{}`: {error}", around.state.display()));
    let paths = Paths::new(&stand_ins, written.unwrap_or_default());
    facts.variables = variables(policy, request, &facts, &paths);
    git::look(&mut facts, &stand_ins);
    if policy.isolation.value == Isolation::None {
        return facts;
    }
    facts.system =
        system_candidates().filter(|p| rustix::fs::lstat(*p).is_ok_and(|s| !is_link(&s))).map(PathBuf::from).collect();
    // What does not exist cannot be covered, and what this session writes there is made after the walls stand.
    best_effort(state::make_all(&around.state), "where it cannot be made, nothing will be written there");
    look_at_paths(policy, &mut facts, &paths);
    look_at_ways_of_variables(policy, request, &mut facts, &paths);
    look_at_mounts(&mut facts);
    search_project(policy, &mut facts, &around.state, &paths);
    facts.tracked = tracked(policy, &facts);
    facts.masks = masks(policy, &facts);
    if policy.network.ssh_agent.value != AgentUse::Off {
        facts.public_ssh = public_ssh(&facts.home, &paths);
    }
    look_at_sockets(policy, &mut facts, &paths);
    facts.folding = folding(policy, &facts);
    facts.paths_unknown = unread.or_else(|| paths.failed());
    if policy.limits.storage.is_some() || policy.limits.inodes.is_some() {
        facts.has_quota = facts.session_dir.as_deref().is_some_and(has_quota);
    }
    if policy.network.mode.value == cofferdam_policy::NetworkMode::Egress || policy.network.is_unchosen() {
        facts.resolvers = resolvers();
    }
    if limits_io(policy) {
        facts.disks = disks(policy, &facts);
    }
    let limits_programs = !policy.process.allow_exec.value || !policy.process.executables.is_empty();
    if limits_programs {
        look_at_programs(policy, request, &mut facts, &paths);
    }
    facts
}

/// Files under their own names: a link there may lead to where sessions write, and then to what they choose.
fn public_ssh(home: &Path, paths: &Paths<'_>) -> Vec<PathFact> {
    let directory = home.join(".ssh");
    let is_real = directory.canonicalize().is_ok_and(|real| real == directory);
    let entries = is_real.then(|| directory.read_dir().ok()).flatten().into_iter().flatten().flatten();
    let named = entries.map(|entry| entry.path()).filter(|path| {
        let is_listed = ["known_hosts", "config"].iter().any(|name| path.ends_with(name));
        (is_listed || path.extension().is_some_and(|end| end == "pub"))
            && path.symlink_metadata().is_ok_and(|about| about.is_file())
    });
    let mut found: Vec<PathFact> = named.map(|path| paths.look(&path)).collect();
    found.retain(|fact| matches!(fact, PathFact::Present { kind: Kind::File, canonical, .. } if canonical.starts_with(&directory)));
    found.sort_by(|a, b| a.canonical().cmp(b.canonical()));
    found
}

fn limits_io(policy: &Policy) -> bool {
    let limits = &policy.limits;
    [&limits.io_read, &limits.io_write, &limits.io_read_ops, &limits.io_write_ops].into_iter().any(Option::is_some)
}

/// The disks below everything that the session can write to.
fn disks(policy: &Policy, facts: &HostFacts) -> Vec<String> {
    let is_written = |index: &usize| policy.files.get(*index).is_some_and(|rule| rule.access > Access::Read);
    let granted = facts.answers.iter().filter(|(index, _)| is_written(index)).map(|(_, fact)| fact.canonical());
    let project = facts.project.iter().chain(&facts.session_dir).map(PathBuf::as_path);
    let mut found = Vec::new();
    for path in granted.chain(project) {
        // What does not exist yet will lie where its parent does.
        let existing = path.ancestors().find_map(|path| rustix::fs::stat(path).ok());
        if let Some(disk) = existing.and_then(|stat| disk_of(stat.st_dev)).filter(|disk| !found.contains(disk)) {
            found.push(disk);
        }
    }
    found
}

/// The values of variables that path expressions name; relative values are no paths.
fn variables(policy: &Policy, request: &Request, facts: &HostFacts, paths: &Paths<'_>) -> Vec<(String, PathBuf)> {
    let writable = writable(policy, facts, paths);
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let sockets = policy.network.sockets.iter().map(|grant| &grant.value.path);
    let named = policy.files.iter().map(|rule| &rule.path).chain(sockets);
    for name in named.filter_map(PathExpr::variable) {
        if found.iter().any(|(n, _)| n == name) {
            continue;
        }
        let value = request.environment.iter().find(|(n, v)| n == name && v.starts_with('/'));
        if let Some((name, value)) = value {
            let path = Path::new(value);
            let real = path.canonicalize().ok().filter(|real| !paths.is_led_out(path, real, &writable));
            found.push((name.clone(), real.unwrap_or_else(|| path.to_path_buf())));
        }
    }
    found
}

fn look_at_paths(policy: &Policy, facts: &mut HostFacts, paths: &Paths<'_>) {
    let places = facts.places();
    let mut in_homes: Vec<Listings<'_>> = places.homes().map(Listings::new).collect();
    let mut in_root = Listings::bounded(Path::new("/"));
    let mut in_project = places.project.as_deref().map(Listings::bounded);
    let writable = writable(policy, facts, paths);
    // Directories that are known to be real: names missing in them need no further look.
    let real: Vec<PathBuf> = facts.own_trees().map(Path::to_path_buf).collect();
    for (index, rule) in policy.files.iter().enumerate().filter(|(_, rule)| !rule.path.is_deep()) {
        if rule.optional && !rule.path.is_glob() && !may_exist(rule, &places, &mut in_homes, &mut in_root, &writable) {
            continue;
        }
        for (nth, path) in rule.expand(&places).into_iter().enumerate() {
            if rule.path.is_glob() {
                // Below homes there is one path for each of them, in their order.
                let home = below_home(&rule.path, &places).zip(in_homes.get_mut(nth));
                let matching = match (home, &rule.path.base, &mut in_project) {
                    (Some((rest, home)), ..) => home.matching(&rest, rule.access, &rule.path),
                    (None, Base::Project, Some(in_project)) => {
                        in_project.matching(&rule.path.rest, rule.access, &rule.path)
                    }
                    _ => list_matching(&path, rule.access, rule.path.except())
                        .inspect_err(|errno| paths.note(&path, *errno))
                        .unwrap_or_default(),
                };
                for path in matching {
                    let Some((fact, link)) = find_by(index, policy, &path, &writable, facts, paths) else {
                        continue;
                    };
                    facts.answers.extend(kept(rule.access, link).map(|link| (index, link)));
                    facts.answers.push((index, fact.unwrap_or_else(|| paths.missing(&path))));
                }
                continue;
            }
            let is_absent = match (&rule.path.base, &mut in_project) {
                (Base::Project, Some(in_project)) if rule.path.rest.file_name().is_some() => {
                    !in_project.may_exist(&rule.path.rest, &[])
                }
                _ => false,
            };
            let found =
                if is_absent { Some((None, None)) } else { find_by(index, policy, &path, &writable, facts, paths) };
            let Some((fact, link)) = found else { continue };
            if refuses(rule.access) && !is_absent {
                let home = below_home(&rule.path, &places).zip(in_homes.get_mut(nth));
                let spelled = match (home, &rule.path.base, &mut in_project) {
                    (Some((rest, home)), ..) => home.matching(&rest, rule.access, &rule.path),
                    (None, Base::Project, Some(in_project)) => {
                        in_project.matching(&rule.path.rest, rule.access, &rule.path)
                    }
                    (None, Base::Root, _) => in_root.matching(&rule.path.rest, rule.access, &rule.path),
                    _ => Vec::new(),
                };
                // What another spelling leads to may be the same, by a hard link or on a file system that folds case: a
                // directory that is only read is shown without names, so each counts.
                for path in spelled {
                    let Some((fact, link)) = find_by(index, policy, &path, &writable, facts, paths) else {
                        continue;
                    };
                    facts.answers.extend(kept(rule.access, link).into_iter().chain(fact).map(|fact| (index, fact)));
                }
            }
            if let Some(link) = kept(rule.access, link) {
                facts.answers.push((index, link));
                if fact.is_none() {
                    facts.answers.extend(paths.behind_link(&path).map(|target| (index, target)));
                    continue;
                }
            }
            match fact {
                Some(fact) => facts.answers.push((index, fact)),
                // A missing name matters where it could be created, and to a rule that demands it.
                None if path
                    .parent()
                    .is_some_and(|parent| real.iter().any(|known| known.as_os_str() == parent.as_os_str())) =>
                {
                    facts.answers.push((index, PathFact::Missing { first: path.clone(), canonical: path }));
                }
                None if let Some(first) =
                    in_project.as_mut().filter(|_| is_absent).and_then(|all| all.missing_top(&path)) =>
                {
                    facts.answers.push((index, PathFact::Missing { first, canonical: path }));
                }
                None if !rule.optional || writable.iter().any(|root| is_at_or_below(&path, root)) => {
                    facts.answers.push((index, paths.missing(&path)));
                }
                None => {}
            }
        }
    }
    let listings = in_homes.iter().chain(&in_project).chain([&in_root]);
    for (path, errno) in listings.filter_map(Listings::failed) {
        paths.note(path, *errno);
    }
    // Patterns there (`*.code-workspace`) were compared with the names that were read.
    facts.unlisted.extend(in_project.filter(Listings::is_cut).and(facts.project.clone()));
    look_into_protected(policy, &writable, facts, paths);
    look_at_git_paths(&writable, facts, paths);
}

/// The project itself, and what git reads and keeps for it.
fn look_at_git_paths(writable: &[PathBuf], facts: &mut HostFacts, paths: &Paths<'_>) {
    let mut more: Vec<PathBuf> = facts.project.iter().cloned().collect();
    for git in &facts.git {
        more.extend([git.path.clone(), git.path.join("commondir"), git.path.join("gitdir")]);
    }
    let reads = facts.git.iter().flat_map(|git| &git.reads).chain(&facts.git_includes);
    facts.git_reads = reads.flat_map(|path| look_at_read(path, writable, paths)).collect();
    facts.paths = more.into_iter().map(|path| (path.clone(), paths.look(&path))).collect();
    // `.git` is a name to keep, also where it is a link.
    if let Some(dot_git) = facts.project.as_ref().map(|project| project.join(".git")) {
        let Found { fact, link, .. } = paths.find(&dot_git);
        let fact = link.or(fact).unwrap_or_else(|| paths.missing(&dot_git));
        facts.paths.insert(dot_git, fact);
    }
}

/// A variable stands for where it really leads: the links on the way to what a rule refuses there are kept as well.
fn look_at_ways_of_variables(policy: &Policy, request: &Request, facts: &mut HostFacts, paths: &Paths<'_>) {
    let writable = writable(policy, facts, paths);
    for (index, rule) in policy.files.iter().enumerate().filter(|(_, rule)| refuses(rule.access)) {
        let value = rule.path.variable().and_then(|name| request.environment.iter().find(|(n, _)| n == name));
        let Some((_, value)) = value.filter(|(_, value)| value.starts_with('/')) else { continue };
        let links = paths.links_to(Path::new(value), &writable);
        facts.links.extend(links.map(|link| (index, link)));
    }
}

/// What git reads at a path, and the links on the way to it that a session could replace. A link that leads nowhere is one of
/// them, and what it would lead to is missing.
fn look_at_read(path: &Path, writable: &[PathBuf], paths: &Paths<'_>) -> Vec<PathFact> {
    let plain = path.parent().and_then(|parent| parent.canonicalize().ok()).zip(path.file_name());
    let plain = plain.map_or_else(|| path.to_path_buf(), |(parent, name)| parent.join(name));
    let Found { fact, link, .. } = paths.find(&plain);
    let mut found: Vec<PathFact> = paths.links_to(path, writable).collect();
    let behind = link.as_ref().and_then(|_| paths.behind_link(&plain));
    found.push(fact.or(behind).unwrap_or_else(|| paths.missing(&plain)));
    found
}

/// A link in a protected directory cannot be replaced, but what it leads to could be written: hooks are kept with the
/// sources at times.
fn look_into_protected(policy: &Policy, writable: &[PathBuf], facts: &mut HostFacts, paths: &Paths<'_>) {
    // A directory that exists under a name that is only kept from being made is not protected: `.git` is the command's.
    let protects = |rule: &FileRule| rule.access == Access::Protect && !rule.only_missing;
    let is_protected = |index: usize| policy.files.get(index).is_some_and(protects);
    let mut tops: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (index, fact) in &facts.answers {
        if let PathFact::Present { canonical, kind: Kind::Directory, .. } = fact
            && is_protected(*index)
        {
            tops.entry(canonical.clone()).or_insert(*index);
        }
    }
    for (top, index) in tops {
        let mut entries = 0;
        let mut is_cut = false;
        let is_own = facts.own_trees().any(|root| is_at_or_below(&top, root));
        // What lies near the top is seen before a bound is reached.
        let mut directories = VecDeque::from([(top.clone(), 0)]);
        while let Some((directory, depth)) = directories.pop_front() {
            // What cannot be listed is closed to the session as well, but for want of a descriptor.
            let listed = std::fs::read_dir(&directory).inspect_err(|error| {
                paths.note(&directory, Errno::from_io_error(error).unwrap_or(Errno::IO));
            });
            for entry in listed.into_iter().flatten().flatten() {
                entries += 1;
                if entries > MOST_PROTECTED {
                    is_cut = true;
                    directories.clear();
                    break;
                }
                match entry.file_type() {
                    // Toolchains of a home are protected, and deep; a whole one may be a link to a project.
                    Ok(kind) if kind.is_dir() && !is_own => {}
                    Ok(kind) if kind.is_dir() && depth >= DEEPEST_PROTECTED => is_cut = true,
                    Ok(kind) if kind.is_dir() => directories.push_back((entry.path(), depth + 1)),
                    Ok(kind) if kind.is_file() => {}
                    _ => protect_target(index, &entry.path(), &top, writable, facts, paths),
                }
            }
        }
        facts.unlisted.extend(is_cut.then_some(top));
    }
}

/// What a link below a protected directory leads to, and the links on the way there.
fn protect_target(
    index: usize,
    path: &Path,
    top: &Path,
    writable: &[PathBuf],
    facts: &mut HostFacts,
    paths: &Paths<'_>,
) {
    let known = facts.links.len();
    let found = find_for(index, Access::Protect, path, writable, facts, paths);
    let new = facts.links.split_off(known);
    facts.links.extend(new.into_iter().filter(|(_, link)| !link.canonical().starts_with(top)));
    let Some((fact, _)) = found else { return };
    let Some(target) = fact.or_else(|| paths.behind_link(path)) else { return };
    let canonical = target.canonical();
    let is_written = writable.iter().any(|root| canonical != root && is_at_or_below(canonical, root));
    // What lies above the directory, as the project itself, stays as it is.
    if is_written && !canonical.starts_with(top) && !top.starts_with(canonical) {
        facts.answers.push((index, target));
    }
}

/// By the listings of homes and of the root alone.
fn may_exist(
    rule: &FileRule,
    places: &Places,
    in_homes: &mut [Listings<'_>],
    in_root: &mut Listings<'_>,
    writable: &[PathBuf],
) -> bool {
    match below_home(&rule.path, places) {
        Some(rest) => in_homes.iter_mut().any(|home| home.may_exist(&rest, writable)),
        None if rule.path.base == Base::Root && refuses(rule.access) => in_root.may_exist(&rule.path.rest, writable),
        None => true,
    }
}

/// What rules about any directory of the project are about.
fn search_project(policy: &Policy, facts: &mut HostFacts, state: &Path, paths: &Paths<'_>) {
    let Some(project) = facts.project.clone() else { return };
    let rules = Sought::all(policy, &project);
    if rules.is_empty() {
        return;
    }
    let gives = |index: &usize| policy.files.get(*index).is_some_and(|rule| rule.access >= Access::Read);
    let given = facts.answers.iter().filter(|(index, _)| gives(index)).map(|(_, fact)| fact.canonical());
    let given: Vec<&Path> = given.filter(|path| path.starts_with(&project)).collect();
    let is_served = |mount: &&MountFact| {
        (mount.mounts_on_demand || matches!(mount.shows, Shows::Unknown { .. })) && mount.point != project
    };
    let served: Vec<&Path> = facts.mounts.iter().filter(is_served).map(|mount| mount.point.as_path()).collect();
    let found = search(&project, &rules, &given, &served, &state.join("searched"), search::BOUNDS);
    let writable = writable(policy, facts, paths);
    for (index, path) in found.names {
        if let Some((fact, _)) = find_by(index, policy, &path, &writable, facts, paths) {
            facts.answers.push((index, fact.unwrap_or_else(|| paths.missing(&path))));
        }
    }
    facts.closed.extend(found.closed.iter().filter_map(|path| closed_at(path, &writable)));
    facts.searched = Some(found.searched);
}

/// What the files of mask rules read as.
fn masks(policy: &Policy, facts: &HostFacts) -> BTreeMap<PathBuf, MaskFact> {
    let places = facts.places();
    let mut found: BTreeMap<PathBuf, MaskFact> = BTreeMap::new();
    for (index, fact) in &facts.answers {
        let Some(rule) = policy.files.get(*index).filter(|rule| rule.access == Access::Mask) else { continue };
        let PathFact::Present { canonical, kind: Kind::File, .. } = fact else { continue };
        let mask = found
            .entry(canonical.clone())
            .or_insert_with(|| MaskFact { text: masked_at(canonical), ..MaskFact::default() });
        let is_same = |path: &PathBuf| folds_alike(path.as_os_str().as_bytes(), canonical.as_os_str().as_bytes());
        mask.is_named |= rule.expand(&places).iter().any(is_same);
    }
    found
}

/// Hidden files of the project that git has. Without any there is nothing to read.
fn tracked(policy: &Policy, facts: &HostFacts) -> Vec<TrackedFile> {
    let Some(project) = facts.project.as_deref() else { return Vec::new() };
    let is_shipped = |rule: &FileRule| rule.access <= Access::Mask && rule.origin.layer == Layer::BuiltIn;
    let mut hidden: Vec<&Path> = Vec::new();
    for (index, fact) in &facts.answers {
        if let PathFact::Present { canonical, kind: Kind::File, .. } = fact
            && canonical.starts_with(project)
            && policy.files.get(*index).is_some_and(is_shipped)
        {
            hidden.push(canonical);
        }
    }
    if hidden.is_empty() {
        return Vec::new();
    }
    Repository::open(project, &facts.git).map(|repository| repository.tracked(&hidden)).unwrap_or_default()
}

/// Sockets that the policy names, and all others that a process listens at and that the session could see.
fn look_at_sockets(policy: &Policy, facts: &mut HostFacts, paths: &Paths<'_>) {
    let places = facts.places();
    let writable = writable(policy, facts, paths);
    for (index, grant) in policy.network.sockets.iter().enumerate() {
        let expanded = grant.value.path.expand(&places);
        let granted: Vec<PathFact> = expanded.iter().map(|path| paths.look_at_grant(path, &writable)).collect();
        facts.granted_sockets.extend(granted.into_iter().map(|fact| (index, fact)));
    }
    if !facts.granted_sockets.is_empty() {
        facts.control_sockets = control_sockets();
    }
    let gives = |index: &usize| policy.files.get(*index).is_some_and(|rule| rule.access >= Access::Read);
    let given = facts.answers.iter().filter(|(index, _)| gives(index)).map(|(_, fact)| fact.canonical());
    let named = |index: &usize| policy.files.get(*index).is_some_and(|rule| rule.origin.layer != Layer::BuiltIn);
    let roots = facts.answers.iter().filter(|(index, _)| gives(index) && named(index));
    let roots: Vec<&Path> = roots.map(|(_, fact)| fact.canonical()).chain(facts.own_trees()).collect();
    let given: Vec<&Path> = given.chain(facts.own_trees()).filter(|path| is_in_own_area(path)).collect();
    let could_be_seen = |path: &Path| !is_in_own_area(path) || given.iter().any(|root| path.starts_with(root));
    match bound::sockets(&roots, could_be_seen) {
        Ok(found) => {
            let known = |one: bound::BoundSocket| (one.path, FileId { device: one.device, inode: one.inode });
            facts.sockets = found.into_iter().map(known).collect();
        }
        Err(error) => facts.sockets_unknown = Some(error.to_string()),
    }
}

/// Under whatever other name they are granted, they are the same.
fn control_sockets() -> Vec<(PathBuf, FileId)> {
    let users = std::fs::read_dir("/run/user").into_iter().flatten().flatten();
    let users: Vec<PathBuf> = users.map(|user| user.path()).collect();
    let places = cofferdam_plan::control::PLACES.iter().flat_map(|place| match place.strip_prefix("RUNTIME/") {
        Some(rest) => users.iter().map(|user| user.join(rest)).collect(),
        None => vec![PathBuf::from(place)],
    });
    let known = |path: PathBuf| {
        let stat = rustix::fs::stat(&path).ok()?;
        Some((path, FileId { device: stat.st_dev, inode: stat.st_ino }))
    };
    places.filter_map(known).collect()
}

/// The table of mounts, and a closer look at those that may show something under another name.
fn look_at_mounts(facts: &mut HostFacts) {
    match mounts::table() {
        Ok(mounts) => facts.mounts = mounts,
        Err(why) => facts.mounts_unknown = Some(why),
    }
}

/// The part of an expression below the home directory, if that is where it leads here.
fn below_home<'a>(path: &'a PathExpr, places: &Places) -> Option<Cow<'a, Path>> {
    match &path.base {
        Base::Home => Some(Cow::Borrowed(&path.rest)),
        Base::Variable { name, default } if default.base == Base::Home => {
            let is_set = places.variables.iter().any(|(variable, _)| variable == name);
            match path.rest.as_os_str().is_empty() {
                _ if is_set => None,
                // Joining with nothing would leave a slash at the end, and so an empty name.
                true => Some(Cow::Borrowed(&default.rest)),
                false => Some(Cow::Owned(default.rest.join(&path.rest))),
            }
        }
        _ => None,
    }
}

/// `Paths::find` for a rule; the links through which it leads are kept with the facts. `None` where a directory of the
/// user's own on the way cannot be entered, which is kept with the facts as well.
fn find_for(
    index: usize,
    access: Access,
    path: &Path,
    writable: &[PathBuf],
    facts: &mut HostFacts,
    paths: &Paths<'_>,
) -> Option<(Option<PathFact>, Option<PathFact>)> {
    let Found { fact, link, is_absent } = paths.find(path);
    if !refuses(access) {
        let is_led_out = |fact: &PathFact| paths.is_led_out(path, fact.canonical(), writable);
        return Some((fact.filter(|fact| !is_led_out(fact)), link));
    }
    if fact.is_none()
        && !is_absent
        && let Some(closed) = closed_at(path, writable)
    {
        facts.closed.push(closed);
        link.as_ref()?;
    }
    let links = paths.links_on_the_way(access, path, link.as_ref().or(fact.as_ref()), writable);
    facts.links.extend(links.into_iter().map(|link| (index, link)));
    Some((fact, link))
}

/// The same for a rule of the policy.
fn find_by(
    index: usize,
    policy: &Policy,
    path: &Path,
    writable: &[PathBuf],
    facts: &mut HostFacts,
    paths: &Paths<'_>,
) -> Option<(Option<PathFact>, Option<PathFact>)> {
    let rule = &policy.files[index];
    let (fact, link) = find_for(index, rule.access, path, writable, facts, paths)?;
    let is_led = |fact: &PathFact| !refuses(rule.access) && is_led_to_refused(rule, policy, path, fact, facts, paths);
    Some((fact.filter(|fact| !is_led(fact)), link))
}

/// Whether a link leads an operator's grant to what a rule about that very place refuses. Who wants it names the place.
fn is_led_to_refused(
    rule: &FileRule,
    policy: &Policy,
    path: &Path,
    fact: &PathFact,
    facts: &HostFacts,
    paths: &Paths<'_>,
) -> bool {
    let canonical = fact.canonical();
    if canonical == path || rule.origin.layer == Layer::BuiltIn || !paths.is_led(path) {
        return false;
    }
    let places = facts.places();
    let is_about = |other: &&FileRule| match other.access {
        Access::Deny | Access::Mask => true,
        Access::Protect => rule.access > Access::Read,
        Access::Read | Access::Overlay | Access::Write => false,
    };
    let mut refused = policy.files.iter().filter(is_about).filter(|other| !other.path.is_glob());
    refused.any(|other| other.expand(&places).iter().any(|place| is_at_or_below(canonical, place)))
}

/// Trees that rules give for writing, as they are written and where they really are, and those of the project.
fn writable(policy: &Policy, facts: &HostFacts, paths: &Paths<'_>) -> Vec<PathBuf> {
    let places = facts.places();
    let grants = policy.files.iter().filter(|rule| rule.access == Access::Write);
    let given: Vec<PathBuf> = grants.flat_map(|rule| rule.path.expand(&places)).collect();
    let named: Vec<PathBuf> = given.iter().cloned().chain(facts.own_trees().map(Path::to_path_buf)).collect();
    // A link that an earlier session may have left gives nothing, so what it leads to is not written.
    let real = |path: PathBuf| path.canonicalize().ok().filter(|real| !paths.is_led_out(&path, real, &named));
    let real: Vec<PathBuf> = given.into_iter().filter_map(real).collect();
    named.into_iter().chain(real).collect()
}

/// Where covers would count for one spelling of a name only. An overlay asks the file system below for each spelling.
fn folding(policy: &Policy, facts: &HostFacts) -> Vec<PathBuf> {
    let is_given = |index: &usize| policy.files.get(*index).is_some_and(|rule| rule.access >= Access::Overlay);
    let mut trees: Vec<&Path> = Vec::new();
    for (index, fact) in &facts.answers {
        if let PathFact::Present { canonical, kind: Kind::Directory, .. } = fact
            && is_given(index)
        {
            trees.push(canonical);
        }
    }
    if policy.project.value >= Access::Overlay {
        trees.extend(facts.own_trees());
    }
    // A server that never answers would stop the start; what lies there is hidden, or told not to be searched.
    let is_served = |mount: &&MountFact| matches!(mount.shows, Shows::Unknown { .. });
    let points = facts.mounts.iter().filter(|mount| !is_served(mount)).map(|mount| mount.point.as_path());
    let below: Vec<&Path> = points.filter(|point| trees.iter().any(|tree| point.starts_with(tree))).collect();
    let folds = |path: &&Path| match filtered::folds_case_at(path) {
        Ok(folds) => folds,
        // What cannot be looked at by its user is closed to the session, or is looked at as a file.
        Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::ACCESS),
    };
    trees.into_iter().chain(below).filter(folds).map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// Each test has a process of its own, whose limit this is.
    #[test]
    fn a_survey_that_cannot_open_anything_does_not_say_that_nothing_is_there() {
        let scene = crate::memory::tests::scene("survey-descriptors");
        let home = scene.join("home");
        std::fs::create_dir_all(home.join(".ssh")).expect("writable");
        let around = Surroundings {
            home: home.clone(),
            other_home: None,
            cwd: home.join("project"),
            start_in: home.join("project"),
            project: None,
            state: scene.join("state"),
        };
        let policy = Policy::built_in();
        let facts = || survey(&policy, &around, &Request::default());
        let hidden = |facts: &HostFacts| facts.answers.iter().any(|(_, fact)| fact.canonical() == home.join(".ssh"));
        let before = facts();
        assert!(hidden(&before) && before.paths_unknown.is_none(), "{:?}", before.paths_unknown);
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).expect("it can be lowered");
        let during = facts();
        setrlimit(Resource::Nofile, limit).expect("it can be raised again");
        assert!(!hidden(&during), "the directory of the home could not be opened");
        assert!(during.paths_unknown.is_some(), "no plan is made of this");
        std::fs::remove_dir_all(scene).expect("ours");
    }
}
