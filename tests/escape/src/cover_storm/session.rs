//! One session of the storm: starts the launching process, and compares at its end what the workload saw with what was
//! reported. Owns the names and the comparison; the plan is the product's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cofferdam_policy::Access;
use cofferdam_testkit::{Helper, Place, Scene, Session, edit, policy_with, start_helper};
use cofferdam_wire::End;

use crate::cover_storm::{Configuration, Tree};
use crate::row::{Finding, probe_argv};
use crate::rows::rule;

const PATIENCE: Duration = Duration::from_secs(30);

/// Names below the tree that cannot be read, in either kind of tree.
const HIDDEN: [&str; 2] = [".env", "sub/secret"];
/// Names that cannot be written in a direct project, and not be read where the tree is read-only.
const PROTECTED: [&str; 3] = [".git/config", ".envrc", ".vscode/tasks.json"];

pub(crate) fn tree(place: &Place, tree: Tree) -> PathBuf {
    match tree {
        Tree::Direct => place.project(),
        Tree::Read => place.outside().join("given"),
    }
}

/// Marks of the project by which both sides talk.
pub(crate) const UP: &str = "up";
pub(crate) const STOP: &str = "stop";
pub(crate) const SEEN: &str = "seen";
/// Names that are read, and names that are written to, one in a line.
pub(crate) const READ: &str = "read-names";
pub(crate) const WRITE: &str = "write-names";

pub(crate) struct Running {
    helper: Helper,
}

/// What became of one session.
pub(crate) struct Ended {
    /// Its keeper ended it.
    pub(crate) by_keeper: bool,
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    /// What was seen or changed and no report names, as often as that was so.
    pub(crate) unreported: Vec<String>,
    /// Contents that were read beyond the number of falls that was told of their name.
    pub(crate) uncounted: usize,
    /// How often each name fell, with the median and the longest of its windows in microseconds.
    pub(crate) windows: Vec<(u32, u64, u64)>,
}

impl Running {
    /// Every second session leaves no trace that a look could find afterwards, and lives longer.
    pub(crate) fn start(
        configuration: Configuration,
        runner: &Path,
        scene: &Scene,
        number: usize,
    ) -> Result<Running, String> {
        let text = |error: std::io::Error| error.to_string();
        for mark in [UP, STOP, SEEN, "linked", "renamed"] {
            match fs::remove_file(scene.project().join(mark)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.to_string()),
                _ => {}
            }
        }
        let top = tree(scene, configuration.tree);
        let lines = |names: &[&str]| {
            let paths: Vec<String> = names.iter().map(|name| top.join(name).display().to_string()).collect();
            paths.join("\n")
        };
        let readable = if configuration.tree == Tree::Direct { Vec::new() } else { PROTECTED.to_vec() };
        scene.write(scene.project().join(READ), &lines(&[HIDDEN.to_vec(), readable].concat()));
        scene.write(scene.project().join(WRITE), &lines(&[HIDDEN.to_vec(), PROTECTED.to_vec()].concat()));
        let check = if number.is_multiple_of(2) { "cover-storm-quiet" } else { "cover-storm" };
        let name = configuration.name();
        let root = scene.root().display().to_string();
        let arguments = ["cover-storm-launch", &name, check, &root];
        let helper = start_helper(runner, &arguments, scene, &scene.project(), &[], Stdio::null()).map_err(text)?;
        let mut running = Running { helper };
        if running.helper.wait_for(&scene.project().join(UP), PATIENCE).map_err(text)? {
            return Ok(running);
        }
        let launched = running.helper.finish().map_err(text)?;
        Err(format!(
            "{name}: the workload did not start: {:?} {} {}",
            launched.report, launched.stdout, launched.stderr
        ))
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool, String> {
        self.helper.wait(Duration::ZERO).map(|status| status.is_some()).map_err(|error| error.to_string())
    }

    pub(crate) fn finish(self, configuration: Configuration, scene: &Scene) -> Result<Ended, String> {
        scene.write(scene.project().join(STOP), "");
        let launched = self.helper.finish().map_err(|error| error.to_string())?;
        let report = &launched.report;
        let by_keeper = report.end == Some(End::CoverFell);
        let seen = fs::read_to_string(scene.project().join(SEEN)).unwrap_or_default();
        let answer = launched.stdout.lines().find_map(Finding::parse);
        match (&answer, by_keeper) {
            (Some(Finding::Contained(_)), _) | (None, true) => {}
            // Without its covers nothing is closed at the end.
            (Some(Finding::Open(_)), _) if configuration.is_open => {}
            _ => {
                let name = configuration.name();
                return Err(format!("{name}: {answer:?} {report:?} {} {}", launched.stdout, launched.stderr));
            }
        }
        let of_kind = |kind: &str| seen.lines().filter(|line| line.starts_with(kind)).count();
        let (unreported, uncounted) = unreported(&seen, &report.fallen);
        Ok(Ended {
            by_keeper,
            reads: of_kind("r "),
            writes: of_kind("w "),
            unreported,
            uncounted,
            windows: report.fallen.iter().map(|(_, times, median, worst)| (*times, *median, *worst)).collect(),
        })
    }
}

/// What was read or written without a report about its name, and contents of the host's beyond the number that was told. From
/// the moment when a cover is off until it is on again a host program may put several contents there, and not each is heard of:
/// the number is a lower bound, the report is about all of them.
fn unreported(seen: &str, fallen: &[(PathBuf, u32, u64, u64)]) -> (Vec<String>, usize) {
    let mut contents: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for line in seen.lines() {
        let mut words = line.split(' ');
        let (Some(kind), Some(path)) = (words.next(), words.next()) else { continue };
        let known = contents.entry((kind, path)).or_default();
        known.extend(words.next().filter(|word| kind == "r" && is_of_the_host(word)));
    }
    let (mut missing, mut uncounted) = (Vec::new(), 0);
    for ((kind, path), contents) in contents {
        let about = |is_about: &dyn Fn(&Path) -> bool| -> u32 {
            fallen.iter().filter(|one| is_about(&one.0)).map(|(_, times, ..)| *times).sum()
        };
        // With another directory above it there is another object under the name as well. The name itself has to be told.
        let (own, with_above) = (about(&|it| Path::new(path) == it), about(&|it| Path::new(path).starts_with(it)));
        if own == 0 {
            missing.extend((0..contents.len().max(1)).map(|_| format!("{kind} {path}: {} seen", contents.len())));
        } else {
            uncounted += contents.len().saturating_sub(usize::try_from(with_above).unwrap_or(usize::MAX));
        }
    }
    (missing, uncounted)
}

/// What the workload itself truncated or appended to says nothing about how often a cover fell.
fn is_of_the_host(word: &str) -> bool {
    word.strip_prefix("TOKEN=").is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// `escape-runner cover-storm-launch CONFIGURATION CHECK SCENE`.
pub fn launch(arguments: &[String]) -> i32 {
    let [name, check, scene] = arguments else { return 2 };
    let Some(configuration) = Configuration::of(name) else { return 2 };
    let place = Place::at(scene);
    let mut session = Session::of(probe_argv(&place, check));
    if configuration.way != "static" {
        session.policy = policy_with(&[("--mode", "dynamic"), ("--on-unknown", "deny")]);
        session.without_fuse = configuration.way == "calls";
        rule(&mut session.policy, &place.probe(), Access::Read);
    }
    let top = tree(&place, configuration.tree);
    rule(&mut session.policy, &top.join("sub/secret"), Access::Deny);
    if configuration.tree == Tree::Read {
        rule(&mut session.policy, &top, Access::Read);
        for name in [".env", ".git/config", ".envrc", ".vscode"] {
            rule(&mut session.policy, &top.join(name), Access::Deny);
        }
    }
    let report = session.run(
        |plan| match (configuration.is_open, configuration.tree) {
            (false, _) => {}
            (true, Tree::Direct) => plan.covers.clear(),
            (true, Tree::Read) => edit::cover_by_mounts(plan),
        },
        || {},
    );
    let code = report.code;
    if fs::write(place.report(), report.to_json()).is_ok() { code } else { 2 }
}
