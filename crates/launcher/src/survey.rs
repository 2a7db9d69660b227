//! Gathers the facts that a plan needs about this host, cheaply: one look per path that a rule names.
//! Owns resolution of paths (links followed once, identity recorded); decides nothing. Called by `cli` before `plan`.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_gate::masked_at;
use cofferdam_kernel::mount::open_source;
use cofferdam_kernel::{bound, filtered, fuse, landlock};
use cofferdam_plan::{
    FileId, HostFacts, Kind, MaskFact, MountFact, PathFact, Request, Shows, Terminal, TrackedFile, is_in_own_area,
    is_of_the_system, system_candidates,
};
use cofferdam_policy::decide::index::{Written, refuses};
use cofferdam_policy::path::{Base, is_at_or_below};
use cofferdam_policy::{Access, FileRule, Isolation, Layer, Mode, PathExpr, Places, Policy, folds_alike};
use rustix::fs::FileType;
use rustix::io::Errno;
use thiserror::Error;

use crate::homes::{HomeError, Homes};
use crate::listings::Listings;
use crate::message::best_effort;
use crate::mounts;
use crate::search::{self, Sought, search};
use crate::stand_ins::StandIns;
use crate::tracked::Repository;
use crate::{cgroup, git, quota, session};

/// Entries of a protected directory that are looked at for links, and how deep below it.
const MOST_PROTECTED: usize = 256;
const DEEPEST_PROTECTED: usize = 3;

/// The kernel follows as many.
const MOST_LINKS: usize = 40;

/// Directories that are never a project, whatever the working directory is.
const NOT_PROJECTS: &[&str] =
    &["/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/tmp"];

#[derive(Debug, Error)]
pub enum SurveyError {
    #[error("the working directory cannot be read")]
    WorkingDirectory(#[source] std::io::Error),
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// Where the user stands, before any policy is read: needed to find the project's policy files.
#[derive(Debug, Clone)]
pub struct Surroundings {
    pub home: PathBuf,
    pub other_home: Option<PathBuf>,
    pub cwd: PathBuf,
    pub project: Option<PathBuf>,
    pub state: PathBuf,
}

impl Surroundings {
    pub fn look(environment: &[(String, String)]) -> Result<Self, SurveyError> {
        let value = |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let homes = Homes::look(environment)?;
        let cwd = std::env::current_dir().map_err(SurveyError::WorkingDirectory)?;
        let state = session::state_dir(&homes.first, value("XDG_STATE_HOME"));
        let places = Places { home: homes.first, other_home: homes.other, ..Places::default() };
        let project = find_project(&cwd, &places, &StandIns::of(&state));
        Ok(Surroundings { home: places.home, other_home: places.other_home, cwd, project, state })
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
    let is_system = |dir: &Path| NOT_PROJECTS.iter().any(|n| dir == Path::new(n)) || is_of_the_system(dir);
    let is_project = |dir: &Path| !places.holds_a_home(dir) && !is_system(dir);
    let marked = |dir: &&Path| {
        let is_there = |path: PathBuf| rustix::fs::lstat(&path).is_ok_and(|stat| !stand_ins.knows(&path, &stat));
        [".git", ".cofferdam"].iter().any(|name| is_there(dir.join(name)))
    };
    let found = cwd.ancestors().take_while(|dir| is_project(dir)).find(marked).unwrap_or(cwd);
    is_project(found).then(|| found.to_path_buf())
}

/// Everything `plan` wants to know.
pub fn survey(policy: &Policy, around: &Surroundings, request: &Request) -> HostFacts {
    let stand_ins = StandIns::of(&around.state);
    let mut facts = HostFacts {
        machine: std::env::consts::ARCH.to_owned(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        home: around.home.clone(),
        other_home: around.other_home.clone(),
        cwd: around.cwd.clone(),
        project: around.project.clone(),
        variables: variables(policy, request, around.project.as_ref()),
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
        cgroup: cgroup::cgroup_home(&request.environment),
        memory: memory(),
        cpus: cpus(),
        pid: rustix::process::getpid().as_raw_nonzero().get().cast_unsigned(),
        session_dir: Some(around.state.join("sessions")),
        ..HostFacts::default()
    };
    git::look(&mut facts, &stand_ins);
    if policy.isolation.value == Isolation::None {
        return facts;
    }
    facts.system =
        system_candidates().filter(|p| rustix::fs::lstat(*p).is_ok_and(|s| !is_link(&s))).map(PathBuf::from).collect();
    // What does not exist cannot be covered, and what this session writes there is made after the walls stand.
    best_effort(session::make_all(&around.state), "where it cannot be made, nothing will be written there");
    look_at_paths(policy, &mut facts, &stand_ins);
    look_at_mounts(&mut facts);
    search_project(policy, &mut facts, &around.state, &stand_ins);
    facts.tracked = tracked(policy, &facts);
    facts.masks = masks(policy, &facts);
    look_at_sockets(policy, &mut facts, &stand_ins);
    facts.folding = folding(policy, &facts);
    if policy.limits.storage.is_some() || policy.limits.inodes.is_some() {
        facts.has_quota = facts.session_dir.as_deref().is_some_and(quota::is_available);
    }
    if policy.network.mode.value == cofferdam_policy::NetworkMode::Egress {
        facts.resolvers = resolvers();
    }
    if limits_io(policy) {
        facts.disks = disks(policy, &facts);
    }
    let limits_programs = !policy.process.allow_exec.value || !policy.process.executables.is_empty();
    if limits_programs {
        look_at_programs(policy, request, &mut facts, &stand_ins);
    }
    facts
}

/// As programs read them; without any they ask this machine itself.
fn resolvers() -> Vec<std::net::IpAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let named = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let mut found: Vec<std::net::IpAddr> = named.filter_map(|address| address.trim().parse().ok()).collect();
    if found.is_empty() {
        found.push(std::net::Ipv4Addr::LOCALHOST.into());
    }
    found
}

/// The machine's limit, and that of the user namespace that this process is in.
fn least_of(files: [&str; 2]) -> Option<u64> {
    let number = |file: &&str| {
        let mut text = [0; 32];
        let length = std::fs::File::open(file).and_then(|mut file| file.read(&mut text)).ok()?;
        std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
    };
    files.iter().filter_map(number).min()
}

/// Before Linux 6.14 root inside would change the number for the whole machine.
fn has_own_largest_pid(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| version >= (6, 14))
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

/// The kernel limits whole disks, never partitions. File systems without a disk of their own have no number.
fn disk_of(device: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    if major == 0 {
        return None;
    }
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if rustix::fs::stat(entry.join("partition")).is_err() {
        return Some(format!("{major}:{minor}"));
    }
    let whole = std::fs::read_to_string(entry.canonicalize().ok()?.parent()?.join("dev")).ok()?;
    Some(whole.trim().to_owned())
}

/// Bytes of memory that the machine has.
fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// The CPUs that this process may use.
fn cpus() -> Vec<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

fn is_link(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// The values of variables that path expressions name; relative values are no paths.
fn variables(policy: &Policy, request: &Request, project: Option<&PathBuf>) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let sockets = policy.network.sockets.iter().map(|grant| &grant.value.path);
    let paths = policy.files.iter().map(|rule| &rule.path).chain(sockets);
    for name in paths.filter_map(PathExpr::variable) {
        if found.iter().any(|(n, _)| n == name) {
            continue;
        }
        let value = request.environment.iter().find(|(n, v)| n == name && v.starts_with('/'));
        if let Some((name, value)) = value {
            let path = Path::new(value);
            let is_led_out =
                |real: &PathBuf| project.is_some_and(|at| is_led_out(path, real, std::slice::from_ref(at)));
            let real = path.canonicalize().ok().filter(|real| !is_led_out(real));
            found.push((name.clone(), real.unwrap_or_else(|| path.to_path_buf())));
        }
    }
    found
}

fn look_at_paths(policy: &Policy, facts: &mut HostFacts, stand_ins: &StandIns) {
    let places = facts.places();
    let mut in_homes: Vec<Listings<'_>> = places.homes().map(Listings::new).collect();
    let mut in_root = Listings::bounded(Path::new("/"));
    let mut in_project = places.project.as_deref().map(Listings::bounded);
    let writable = writable(policy, facts);
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
                    _ => list_matching(&path, rule.access, rule.path.except()),
                };
                for path in matching {
                    let Some((fact, link)) = find_for(index, rule.access, &path, &writable, facts, stand_ins) else {
                        continue;
                    };
                    facts.answers.extend(kept(rule.access, link).map(|link| (index, link)));
                    facts.answers.push((index, fact.unwrap_or_else(|| missing(&path, stand_ins))));
                }
                continue;
            }
            let is_absent = match (&rule.path.base, &mut in_project) {
                (Base::Project, Some(in_project)) if rule.path.rest.file_name().is_some() => {
                    !in_project.may_exist(&rule.path.rest, &[])
                }
                _ => false,
            };
            let found = if is_absent {
                Some((None, None))
            } else {
                find_for(index, rule.access, &path, &writable, facts, stand_ins)
            };
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
                    let Some((fact, link)) = find_for(index, rule.access, &path, &writable, facts, stand_ins) else {
                        continue;
                    };
                    facts.answers.extend(kept(rule.access, link).into_iter().chain(fact).map(|fact| (index, fact)));
                }
            }
            if let Some(link) = kept(rule.access, link) {
                facts.answers.push((index, link));
                if fact.is_none() {
                    facts.answers.extend(behind_link(&path, stand_ins).map(|target| (index, target)));
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
                    facts.answers.push((index, missing(&path, stand_ins)));
                }
                None => {}
            }
        }
    }
    // Patterns there (`*.code-workspace`) were compared with the names that were read.
    facts.unlisted.extend(in_project.filter(Listings::is_cut).and(facts.project.clone()));
    look_into_protected(policy, &writable, facts, stand_ins);
    let mut more: Vec<PathBuf> = facts.project.iter().cloned().collect();
    for git in &facts.git {
        more.extend([git.path.clone(), git.path.join("commondir"), git.path.join("gitdir")]);
    }
    let reads = facts.git.iter().flat_map(|git| &git.reads).chain(&facts.git_includes);
    facts.git_reads = reads.flat_map(|path| look_at_read(path, &writable, stand_ins)).collect();
    facts.paths = more.into_iter().map(|path| (path.clone(), look(&path, stand_ins))).collect();
    // `.git` is a name to keep, also where it is a link.
    if let Some(dot_git) = facts.project.as_ref().map(|project| project.join(".git")) {
        let (fact, link) = find_with_link(&dot_git, stand_ins);
        let fact = link.or(fact).unwrap_or_else(|| missing(&dot_git, stand_ins));
        facts.paths.insert(dot_git, fact);
    }
}

/// What git reads at a path, and the links on the way to it that a session could replace. A link that leads nowhere is one of
/// them, and what it would lead to is missing.
fn look_at_read(path: &Path, writable: &[PathBuf], stand_ins: &StandIns) -> Vec<PathFact> {
    let plain = path.parent().and_then(|parent| parent.canonicalize().ok()).zip(path.file_name());
    let plain = plain.map_or_else(|| path.to_path_buf(), |(parent, name)| parent.join(name));
    let (fact, link) = find_with_link(&plain, stand_ins);
    let mut found: Vec<PathFact> = links_to(path).into_iter().filter_map(|link| link_fact(link, writable)).collect();
    let behind = link.as_ref().and_then(|_| behind_link(&plain, stand_ins));
    found.push(fact.or(behind).unwrap_or_else(|| missing(&plain, stand_ins)));
    found
}

/// A link in a protected directory cannot be replaced, but what it leads to could be written: hooks are kept with the
/// sources at times.
fn look_into_protected(policy: &Policy, writable: &[PathBuf], facts: &mut HostFacts, stand_ins: &StandIns) {
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
            // What cannot be listed is closed to the session as well.
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
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
                    _ => protect_target(index, &entry.path(), &top, writable, facts, stand_ins),
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
    stand_ins: &StandIns,
) {
    let known = facts.links.len();
    let found = find_for(index, Access::Protect, path, writable, facts, stand_ins);
    let new = facts.links.split_off(known);
    facts.links.extend(new.into_iter().filter(|(_, link)| !link.canonical().starts_with(top)));
    let Some((fact, _)) = found else { return };
    let Some(target) = fact.or_else(|| behind_link(path, stand_ins)) else { return };
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
fn search_project(policy: &Policy, facts: &mut HostFacts, state: &Path, stand_ins: &StandIns) {
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
    let writable = writable(policy, facts);
    for (index, path) in found.names {
        if let Some((fact, _)) = find_for(index, policy.files[index].access, &path, &writable, facts, stand_ins) {
            facts.answers.push((index, fact.unwrap_or_else(|| missing(&path, stand_ins))));
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

/// Sockets that the policy names, and all others that somebody listens at and that the session could see.
fn look_at_sockets(policy: &Policy, facts: &mut HostFacts, stand_ins: &StandIns) {
    let places = facts.places();
    let writable = writable(policy, facts);
    for (index, grant) in policy.network.sockets.iter().enumerate() {
        let paths = grant.value.path.expand(&places);
        let granted: Vec<PathFact> = paths.iter().map(|path| look_at_grant(path, &writable, stand_ins)).collect();
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

/// What a session wrote into the project may be a link. It does not lead a grant for something there to something elsewhere.
fn look_at_grant(path: &Path, writable: &[PathBuf], stand_ins: &StandIns) -> PathFact {
    let fact = look(path, stand_ins);
    if is_led_out(path, fact.canonical(), writable) { missing(path, stand_ins) } else { fact }
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

/// Names in the pattern's directory that match its last component.
fn list_matching(pattern: &Path, access: Access, except: &str) -> Vec<PathBuf> {
    let (Some(parent), Some(last)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let meant = Written { access, name: last.as_bytes(), is_glob: true, except };
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| meant.means(entry.file_name().as_bytes()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// One path: what it is and where it really is.
fn look(path: &Path, stand_ins: &StandIns) -> PathFact {
    find_with_link(path, stand_ins).0.unwrap_or_else(|| missing(path, stand_ins))
}

/// What a path leads to, and the link itself if its last part is one.
fn find_with_link(path: &Path, stand_ins: &StandIns) -> (Option<PathFact>, Option<PathFact>) {
    match open_source(path) {
        Ok(fd) => match rustix::fs::fstat(&fd) {
            Ok(stat) if is_link(&stat) => (find_target(path, stand_ins), present(path.to_path_buf(), &stat, stand_ins)),
            Ok(stat) => (present(path.to_path_buf(), &stat, stand_ins), None),
            Err(_) => (None, None),
        },
        Err(Errno::LOOP) => (find_target(path, stand_ins), None),
        Err(_) => (None, None),
    }
}

/// `find_with_link` for a rule; the links through which it leads are kept with the facts. `None` where a directory of the
/// user's own on the way cannot be entered, which is kept with the facts as well.
fn find_for(
    index: usize,
    access: Access,
    path: &Path,
    writable: &[PathBuf],
    facts: &mut HostFacts,
    stand_ins: &StandIns,
) -> Option<(Option<PathFact>, Option<PathFact>)> {
    let (fact, link) = find_with_link(path, stand_ins);
    if !refuses(access) {
        let is_led_out = |fact: &PathFact| is_led_out(path, fact.canonical(), writable);
        return Some((fact.filter(|fact| !is_led_out(fact)), link));
    }
    if fact.is_none()
        && let Some(closed) = closed_at(path, writable)
    {
        facts.closed.push(closed);
        link.as_ref()?;
    }
    let links = links_on_the_way(access, path, link.as_ref().or(fact.as_ref()), writable);
    facts.links.extend(links.into_iter().map(|link| (index, link)));
    Some((fact, link))
}

/// What a session wrote may be a link. It does not lead a grant for something in a tree that sessions write to what lies
/// outside of all such trees.
fn is_led_out(path: &Path, canonical: &Path, writable: &[PathBuf]) -> bool {
    let is_below = |path: &Path| writable.iter().any(|root| path != root && is_at_or_below(path, root));
    let is_within = |path: &Path| writable.iter().any(|root| is_at_or_below(path, root));
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    canonical != path && (is_below(path) || parent.as_deref().is_some_and(is_within)) && !is_within(canonical)
}

/// Where a path leads through a directory that this process cannot enter or list, and that a session could open again
/// because it can write there and belongs to the same user: that directory.
fn closed_at(path: &Path, writable: &[PathBuf]) -> Option<PathFact> {
    // Any other error (a server that is gone, a broken disk) says nothing about the directories on the way, and a session
    // gets it as well: to hide what lies above would hide the project.
    let is_refused = |errno: Errno| matches!(errno, Errno::ACCESS | Errno::PERM);
    let whole = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
    let is_closed = |stat: &rustix::fs::Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory && rustix::fs::access(path, whole).is_err()
    };
    match rustix::fs::stat(path) {
        Err(errno) if is_refused(errno) => {}
        Ok(stat) if is_closed(&stat) => {}
        _ => return None,
    }
    // The last link of a chain leads to it; those on the way are followed below.
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent()?.join(target);
    }
    let canonical = path.ancestors().find_map(|at| at.canonicalize().ok())?;
    let stat = rustix::fs::lstat(&canonical).ok()?;
    let is_own = stat.st_uid == rustix::process::getuid().as_raw();
    let is_meant = is_own && writable.iter().any(|root| is_at_or_below(&canonical, root));
    let id = FileId { device: stat.st_dev, inode: stat.st_ino };
    is_meant.then_some(PathFact::Present { canonical, kind: Kind::Directory, id })
}

/// A protected name is kept as the link it is, or the link could be replaced. To hide or to give is about what the link
/// leads to.
fn kept(access: Access, link: Option<PathFact>) -> Option<PathFact> {
    link.filter(|_| access == Access::Protect)
}

/// The links through which the kernel goes to what a rule refuses, where the session can write: each of them decides where
/// it leads, and so what the next session hides or protects.
fn links_on_the_way(access: Access, path: &Path, found: Option<&PathFact>, writable: &[PathBuf]) -> Vec<PathFact> {
    let is_plain =
        |fact: &PathFact| fact.canonical() == path && !matches!(fact, PathFact::Present { kind: Kind::Other, .. });
    if !refuses(access) || found.is_none_or(is_plain) {
        return Vec::new();
    }
    links_to(path).into_iter().filter_map(|link| link_fact(link, writable)).collect()
}

/// A link as it is, where a session could replace it.
fn link_fact(link: PathBuf, writable: &[PathBuf]) -> Option<PathFact> {
    let stat = rustix::fs::lstat(&link).ok().filter(|_| writable.iter().any(|root| is_at_or_below(&link, root)))?;
    let id = FileId { device: stat.st_dev, inode: stat.st_ino };
    Some(PathFact::Present { canonical: link, kind: Kind::Other, id })
}

/// Trees that rules give for writing, as they are written and where they really are, and those of the project.
fn writable(policy: &Policy, facts: &HostFacts) -> Vec<PathBuf> {
    let places = facts.places();
    let grants = policy.files.iter().filter(|rule| rule.access == Access::Write);
    let given: Vec<PathBuf> = grants.flat_map(|rule| rule.path.expand(&places)).collect();
    let named: Vec<PathBuf> = given.iter().cloned().chain(facts.own_trees().map(Path::to_path_buf)).collect();
    // A link that an earlier session may have left gives nothing, so what it leads to is not written.
    let real = |path: PathBuf| path.canonicalize().ok().filter(|real| !is_led_out(&path, real, &named));
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

fn links_to(path: &Path) -> Vec<PathBuf> {
    followed(path).0
}

/// The links through which the kernel goes, and where they lead, whether something is there or not; `None` where they are
/// too many to follow.
fn followed(path: &Path) -> (Vec<PathBuf>, Option<PathBuf>) {
    let parts = |path: &Path| path.iter().map(OsStr::to_os_string).rev().collect::<Vec<_>>();
    let (mut here, mut ahead, mut links) = (PathBuf::from("/"), parts(path), Vec::new());
    while let Some(part) = ahead.pop() {
        match part.as_bytes() {
            b"/" => here = PathBuf::from("/"),
            b".." => _ = here.pop(),
            _ => here.push(&part),
        }
        let Ok(target) = std::fs::read_link(&here) else { continue };
        if links.len() >= MOST_LINKS {
            return (links, None);
        }
        links.push(here.clone());
        here.pop();
        ahead.extend(parts(&target));
    }
    (links, Some(here))
}

/// What a link that leads nowhere would lead to: made inside, it would be found under the link's name.
fn behind_link(path: &Path, stand_ins: &StandIns) -> Option<PathFact> {
    followed(path).1.map(|target| missing(&target, stand_ins))
}

/// A link at the end or on the way: what it leads to is what the rule is about (dotfile managers make such links).
/// Resolved once; the result is then looked at without following anything.
fn find_target(path: &Path, stand_ins: &StandIns) -> Option<PathFact> {
    let real = path.canonicalize().ok()?;
    let fd = open_source(&real).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    present(real, &stat, stand_ins)
}

/// `None` for a stand-in of another session: the name counts as missing.
fn present(canonical: PathBuf, stat: &rustix::fs::Stat, stand_ins: &StandIns) -> Option<PathFact> {
    if stand_ins.knows(&canonical, stat) {
        return None;
    }
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Socket => Kind::Socket,
        _ => Kind::Other,
    };
    Some(PathFact::Present { canonical, kind, id: FileId { device: stat.st_dev, inode: stat.st_ino } })
}

/// Looks for the first part of the name that is missing; its parent is where it would be created.
fn missing(path: &Path, stand_ins: &StandIns) -> PathFact {
    let is_real = |parent: &Path| {
        let stat = open_source(parent).ok().and_then(|fd| rustix::fs::fstat(fd).ok());
        stat.is_some_and(|stat| !stand_ins.knows(parent, &stat))
    };
    if path.parent().is_some_and(is_real) {
        return PathFact::Missing { canonical: path.to_path_buf(), first: path.to_path_buf() };
    }
    let mut first = path.to_path_buf();
    while let Some(parent) = first.parent() {
        match rustix::fs::lstat(parent) {
            Ok(stat) if !stand_ins.knows(parent, &stat) => break,
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

fn look_at_programs(policy: &Policy, request: &Request, facts: &mut HostFacts, stand_ins: &StandIns) {
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
            executables.insert(name.clone(), look(&found, stand_ins));
        }
    }
    for library in library_directories(&executables) {
        if let Some(PathFact::Present { canonical, id, .. }) = library.canonicalize().ok().map(|p| look(&p, stand_ins))
            && !facts.libraries.iter().any(|(known, _)| canonical.starts_with(known))
        {
            facts.libraries.push((canonical, id));
        }
    }
    let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];
    facts.loaders = loaders.iter().filter_map(|l| Path::new(l).canonicalize().ok()).collect();
    facts.executables = executables;
}

/// Where the libraries of programs lie. The loader starts whatever it can map, so a directory that also holds programs
/// (compilers, git's own, java) is taken only where libraries are not kept apart from them.
fn library_directories(executables: &BTreeMap<String, PathFact>) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for parent in ["/usr/lib", "/lib"].map(Path::new) {
        let apart = parent.join("x86_64-linux-gnu");
        if apart.is_dir() {
            directories.push(apart);
            directories.extend(list_matching(&parent.join("python3*"), Access::Read, ""));
        } else {
            directories.push(parent.to_path_buf());
        }
    }
    directories.extend(["/usr/lib64", "/lib64", "/usr/local/lib"].map(PathBuf::from));
    // A program installed apart from the system brings its libraries along: PREFIX/bin/program, PREFIX/lib.
    let prefixes = executables.values().filter_map(|fact| match fact {
        PathFact::Present { canonical, .. } => canonical.parent().filter(|dir| dir.ends_with("bin"))?.parent(),
        PathFact::Missing { .. } => None,
    });
    let own = prefixes.filter(|prefix| !["/", "/usr", "/usr/local"].iter().any(|system| *prefix == Path::new(system)));
    directories.extend(own.map(|prefix| prefix.join("lib")));
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_no_refusal_closes_no_directory() {
        let directory = crate::memory::tests::scene("survey-errors");
        // Stands for a broken disk: no path has a NUL in it, and the error is none of those that mean a missing name.
        assert_eq!(closed_at(&directory.join("a\0b"), std::slice::from_ref(&directory)), None);
        std::fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn only_new_kernels_have_a_largest_pid_in_each_namespace() {
        for (release, has) in [
            ("6.14.0", true),
            ("6.18.44-test", true),
            ("7.0-rc1", true),
            ("6.12.107", false),
            ("5.15", false),
            ("", false),
        ] {
            assert_eq!(has_own_largest_pid(release), has, "{release}");
        }
    }
}
