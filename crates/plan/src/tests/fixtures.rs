//! A made-up laptop: what exists on it is a list of paths, directories with a trailing slash.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_policy::decide::index::stands_at;
use cofferdam_policy::{Access, ExpandedRule, FileRule, Hold, Mode, Origin, PathExpr, Policy, Stand};

use crate::facts::cgroup::CgroupHome;
use crate::facts::git::{GitDir, GitRole};
use crate::facts::host::{HostFacts, MaskFact, Terminal};
use crate::facts::path::{FileId, Kind, PathFact};
use crate::system_candidates;

/// The shipped policy in static mode.
pub(super) fn decided_at_start() -> Policy {
    let mut policy = Policy::built_in();
    policy.mode.value = Mode::Static;
    let is_known = |rule: &FileRule| rule.origin.source == "profiles/known.toml";
    policy.files.retain(|rule| !is_known(rule));
    policy
}

pub(super) struct Laptop {
    existing: Vec<String>,
    sockets: Vec<String>,
    git: Vec<GitDir>,
    pub(super) project: Option<PathBuf>,
    pub(super) landlock_abi: u32,
    pub(super) own_largest_pid: bool,
    pub(super) uid: u32,
    pub(super) cgroup: CgroupHome,
    pub(super) cpus: u32,
    pub(super) memory: u64,
    pub(super) disks: Vec<String>,
}

pub(super) fn rule(path: &str, access: Access) -> FileRule {
    FileRule {
        path: PathExpr::parse(path).expect("a good path"),
        access,
        stand: Stand::Refuse,
        hold: Hold::Directory,
        only_missing: false,
        optional: false,
        is_final: false,
        reason: Cow::Borrowed(""),
        origin: Origin::built_in("test", 1),
    }
}

impl Laptop {
    pub(super) fn with(paths: &[&str]) -> Self {
        let mut existing: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
        existing.extend(["/home/dev/app/".to_owned(), "/home/dev/".to_owned(), "/usr/lib/".to_owned()]);
        Laptop {
            existing,
            sockets: Vec::new(),
            git: Vec::new(),
            project: Some("/home/dev/app".into()),
            landlock_abi: 7,
            own_largest_pid: true,
            uid: 1000,
            cgroup: CgroupHome::None { why: "this laptop has no cgroup v2".to_owned() },
            cpus: 4,
            memory: 16 << 30,
            disks: Vec::new(),
        }
    }

    pub(super) fn git(mut self, path: &str, role: GitRole) -> Self {
        self.git.push(GitDir::new(path.into(), role));
        self
    }

    /// Processes of the host listen at these.
    pub(super) fn listening(mut self, paths: &[&str]) -> Self {
        self.existing.extend(paths.iter().map(|path| (*path).to_owned()));
        self.sockets.extend(paths.iter().map(|path| (*path).to_owned()));
        self
    }

    fn find(&self, path: &Path) -> Option<(Kind, FileId)> {
        let text = path.to_string_lossy();
        let directory = format!("{}/", text.trim_end_matches('/'));
        let listed = self.existing.iter().position(|p| *p == *text || *p == directory);
        let is_parent = self.existing.iter().any(|p| p.starts_with(&directory));
        let is_socket = self.sockets.iter().any(|socket| *socket == *text);
        let leaf = if is_socket { Kind::Socket } else { Kind::File };
        let kind = if is_parent { Kind::Directory } else { leaf };
        (listed.is_some() || is_parent).then(|| (kind, FileId { device: 1, inode: listed.unwrap_or(9999) as u64 }))
    }

    pub(super) fn look(&self, path: &Path) -> PathFact {
        if let Some((kind, id)) = self.find(path) {
            return PathFact::Present { canonical: path.to_path_buf(), kind, id };
        }
        let missing = path.ancestors().take_while(|p| p.parent().is_some() && self.find(p).is_none());
        PathFact::Missing { canonical: path.to_path_buf(), first: missing.last().unwrap_or(path).to_path_buf() }
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.find(path).is_some()
    }

    /// The facts of a survey that listed every directory: also what patterns match, and other spellings of what is refused.
    pub(super) fn surveyed(&self, policy: &Policy) -> HostFacts {
        let mut facts = self.facts(policy);
        let mut all: Vec<&Path> = self.existing.iter().flat_map(|path| Path::new(path).ancestors()).collect();
        all.sort();
        all.dedup();
        for (index, rule) in policy.files.iter().enumerate() {
            for place in rule.path.expand(&facts.places()) {
                let rule = ExpandedRule { path: place.clone(), rule: rule.clone(), lifts: false };
                let is_meant = |path: &&&Path| **path != place && stands_at(&rule, path);
                facts.answers.extend(all.iter().filter(is_meant).map(|path| (index, self.look(path))));
            }
        }
        facts.masks = masks(policy, &facts);
        facts
    }

    pub(super) fn facts(&self, policy: &Policy) -> HostFacts {
        let mut facts = HostFacts {
            uid: self.uid,
            gid: 1000,
            home: "/home/dev".into(),
            cwd: self.project.clone().unwrap_or_else(|| "/home/dev".into()),
            project: self.project.clone(),
            git: self.git.clone(),
            system: system_candidates().map(PathBuf::from).collect(),
            libraries: vec![("/usr/lib".into(), FileId { device: 1, inode: 7 })],
            loaders: vec!["/usr/lib/ld.so".into()],
            landlock_abi: self.landlock_abi,
            own_largest_pid: self.own_largest_pid,
            terminal: Terminal::default(),
            cgroup: self.cgroup.clone(),
            cpus: (0..self.cpus).collect(),
            memory: self.memory,
            disks: self.disks.clone(),
            session_dir: Some("/home/dev/.local/state/cofferdam/sessions".into()),
            ..HostFacts::default()
        };
        let places = facts.places();
        for (index, rule) in policy.files.iter().enumerate().filter(|(_, rule)| !rule.path.is_glob()) {
            facts.answers.extend(rule.path.expand(&places).iter().map(|path| (index, self.look(path))));
        }
        let git = self.git.iter().flat_map(|g| [g.path.clone(), g.path.join("commondir"), g.path.join("gitdir")]);
        let project = self.project.iter().flat_map(|p| [p.clone(), p.join(".git")]);
        for path in git.chain(project).collect::<Vec<_>>() {
            facts.paths.insert(path.clone(), self.look(&path));
        }
        for (index, grant) in policy.network.sockets.iter().enumerate() {
            let paths = grant.value.path.expand(&places);
            facts.granted_sockets.extend(paths.iter().map(|path| (index, self.look(path))));
        }
        let identity = |path: &String| Some((PathBuf::from(path), self.find(Path::new(path))?.1));
        facts.sockets = self.sockets.iter().filter_map(identity).collect();
        for program in ["make", "nosuch"] {
            facts.executables.insert(program.to_owned(), self.look(&Path::new("/usr/bin").join(program)));
        }
        facts.masks = masks(policy, &facts);
        facts
    }
}

/// What files of mask rules read as; those called `binary` are no text.
fn masks(policy: &Policy, facts: &HostFacts) -> BTreeMap<PathBuf, MaskFact> {
    let text = |path: &Path| (!path.ends_with("binary")).then(|| "masked".to_owned());
    let masked = facts.answers.iter().filter(|(index, _)| policy.files[*index].access == Access::Mask);
    let files = masked.filter_map(|(_, fact)| match fact {
        PathFact::Present { canonical, kind: Kind::File, .. } => Some(canonical.clone()),
        _ => None,
    });
    files.map(|path| (path.clone(), MaskFact { is_named: true, text: text(&path) })).collect()
}
