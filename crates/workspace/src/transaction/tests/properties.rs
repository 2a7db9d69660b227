//! Random sequences of file operations, in a session and on the host meanwhile. What a commit must make of them is told by running
//! the same operations on a plain copy, and by what the host touched. The number of sequences is `COFFERDAM_SEQUENCES`;
//! past a thousand nextest ends the test for its time: `COFFERDAM_SEQUENCES=10000 cargo test -p cofferdam-workspace properties -- --nocapture`.

use std::os::unix::fs::symlink;

use super::*;

const SEQUENCES: u64 = 200;
const NAMES: [&str; 10] = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "f"];

/// A generator with a state of its own, so that a number names a sequence.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.below(NAMES.len() as u64)).expect("small")]
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Write(&'static str, u64),
    Append(&'static str, u64),
    Replace(&'static str, u64),
    MakeDirectory(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    HardLink(&'static str, &'static str),
    Mode(&'static str, u32),
    /// A commit of git, of all that is there.
    Commit(u64),
}

impl Deed {
    pub(super) fn random(random: &mut Random) -> Self {
        let (name, other, number) = (random.name(), random.name(), random.below(4));
        match random.below(12) {
            0..=2 => Deed::Write(name, number),
            3 => Deed::Append(name, number),
            4 => Deed::Replace(name, number),
            5 | 6 => Deed::MakeDirectory(name),
            7 | 8 => Deed::Remove(name),
            9 => Deed::Rename(name, other),
            10 if number == 0 => Deed::HardLink(name, other),
            10 => Deed::Link(name, other),
            _ => Deed::Mode(name, [0o644, 0o755, 0o600, 0o700][usize::try_from(number).expect("small")]),
        }
    }

    /// In a repository, every sixth is a commit.
    fn random_in(random: &mut Random, is_repository: bool) -> Self {
        if is_repository && random.below(6) == 0 { Deed::Commit(random.below(1000)) } else { Deed::random(random) }
    }

    /// Whether it could be done.
    pub(super) fn apply(self, root: &Path) -> bool {
        let at = |name: &str| root.join(name);
        let kind = |name: &str| at(name).symlink_metadata().ok();
        let is_file = |name: &str| kind(name).is_some_and(|stat| stat.is_file());
        let is_directory = |name: &str| kind(name).is_some_and(|stat| stat.is_dir());
        match self {
            Deed::Write(name, number) if is_file(name) || kind(name).is_none() => {
                std::fs::write(at(name), format!("{number}")).is_ok()
            }
            Deed::Append(name, number) if is_file(name) => {
                let file = std::fs::OpenOptions::new().append(true).open(at(name));
                file.is_ok_and(|mut file| std::io::Write::write_all(&mut file, format!("+{number}").as_bytes()).is_ok())
            }
            Deed::Replace(name, number) if is_file(name) => {
                std::fs::write(at("f.new"), format!("r{number}")).is_ok()
                    && std::fs::rename(at("f.new"), at(name)).is_ok()
            }
            Deed::MakeDirectory(name) => std::fs::create_dir(at(name)).is_ok(),
            Deed::Remove(name) if is_directory(name) => std::fs::remove_dir_all(at(name)).is_ok(),
            Deed::Remove(name) => std::fs::remove_file(at(name)).is_ok(),
            Deed::Rename(from, to) if is_file(from) && !is_directory(to) => std::fs::rename(at(from), at(to)).is_ok(),
            Deed::Link(name, to) if kind(name).is_none() => symlink(to, at(name)).is_ok(),
            Deed::HardLink(from, to) if is_file(from) && kind(to).is_none() => {
                std::fs::hard_link(at(from), at(to)).is_ok()
            }
            Deed::Mode(name, mode) if is_file(name) || is_directory(name) => {
                let mode = if is_directory(name) { mode | 0o700 } else { mode };
                std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).is_ok()
            }
            Deed::Commit(number) => {
                git(root, &["add", "-A"]).is_some()
                    && git(root, &["commit", "-q", "--allow-empty", "-m", &number.to_string()]).is_some()
            }
            _ => false,
        }
    }
}

/// What git says, which must be the same wherever and whenever it is asked.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // What git starts to tidy up later would still be in the overlay when it is unmounted.
    command.args([
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "maintenance.auto=false",
        "-c",
        "core.logAllRefUpdates=true",
    ]);
    command.args(arguments).current_dir(root).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let date = "2026-01-01T00:00:00Z";
    let said = command.env("GIT_AUTHOR_DATE", date).env("GIT_COMMITTER_DATE", date).output().ok()?;
    said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Every eighth sequence is one of a repository: starting git costs more than all other operations.
fn is_repository(seed: u64) -> bool {
    seed % 8 == 5
}

/// The tree of a sequence, and with it a repository where it is one of those.
fn begin_sequence(scene: &Scene, random: &mut Random, seed: u64) {
    begin(scene, random);
    if is_repository(seed) {
        git(&scene.project(), &["init", "-q"]).expect("git is part of what tests need");
        assert!(Deed::Commit(0).apply(&scene.project()), "seed {seed}: the first commit");
    }
}

/// No object is missing, broken or of the wrong kind, and what is checked out is told as before.
fn assert_sound(root: &Path, seed: u64, done: &dyn std::fmt::Debug) {
    if is_repository(seed) {
        let sound = git(root, &["fsck", "--strict", "--full"]).and_then(|_| git(root, &["status", "--porcelain"]));
        assert!(sound.is_some(), "seed {seed}: git fsck after {done:?}");
    }
}

/// Where git keeps the times of files: told by what it lists instead.
fn without_index(mut picture: BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    picture.remove(Path::new(INDEX));
    picture
}

/// A tree with no file under two names: a layer cannot keep those together.
pub(super) fn begin(scene: &Scene, random: &mut Random) {
    for _ in 0..12 {
        let deed = Deed::random(random);
        if !matches!(deed, Deed::HardLink(..)) {
            deed.apply(&scene.project());
        }
    }
}

pub(super) fn sequences() -> u64 {
    std::env::var("COFFERDAM_SEQUENCES").ok().and_then(|number| number.parse().ok()).unwrap_or(SEQUENCES)
}

/// When each name was touched last; of a directory its mode.
fn touched(root: &Path) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let entry = |path: &PathBuf| {
        let stat = root.join(path).symlink_metadata().expect("it is there");
        if stat.is_dir() { (stat.mode().into(), 0, 0) } else { (stat.ino(), stat.ctime(), stat.ctime_nsec()) }
    };
    picture(root).keys().map(|path| (path.clone(), entry(path))).collect()
}

/// Without which other name a file has.
pub(super) fn plain(text: Option<&String>) -> Option<String> {
    let text = text?;
    match text.strip_prefix("file ") {
        None => Some(text.clone()),
        Some(rest) => {
            let parts: Vec<&str> = rest.splitn(3, ' ').collect();
            Some(format!("{} {}", parts[0], parts[2]))
        }
    }
}

#[test]
fn a_commit_equals_running_directly_and_a_rollback_equals_not_running() {
    apart("properties::a_commit_equals_running_directly_and_a_rollback_equals_not_running", || {
        let (mut changes, mut repositories) = (0, 0);
        for seed in 0..sequences() {
            let mut random = Random(seed);
            let mut scene = if seed % 8 == 0 { Scene::on_another_mount() } else { Scene::new() };
            scene.is_copy = seed % 5 == 2;
            begin_sequence(&scene, &mut random, seed);
            repositories += u64::from(is_repository(seed));
            sh_copy(&scene);
            let (copy, before) = (scene.base.join("copy"), picture(&scene.project()));
            scene.begin();
            let mut done = Vec::new();
            for _ in 0..random.below(24) {
                let deed = Deed::random_in(&mut random, is_repository(seed));
                let (inside, outside) = (deed.apply(&scene.inside()), deed.apply(&copy));
                assert_eq!(inside, outside, "seed {seed}: {deed:?} after {done:?}");
                done.push(deed);
            }
            let mut transaction = scene.end();
            assert_eq!(picture(&scene.project()), before, "seed {seed}: nothing reached the host");
            changes += transaction.changes().expect("readable")[0].changes.len();
            if seed % 4 == 3 {
                drop(transaction);
                roll_back(&scene.kept()).expect("it is sealed");
                assert_eq!(picture(&scene.project()), before, "seed {seed}: rolled back after {done:?}");
                assert_sound(&scene.project(), seed, &done);
                continue;
            }
            let committed = commit_all(&mut transaction);
            assert!(committed.left.is_empty(), "seed {seed}: {committed:?}");
            let (now, wanted) = (without_index(picture(&scene.project())), without_index(picture(&copy)));
            assert_eq!(now, wanted, "seed {seed}: {done:?}");
            let listed = |root: &Path| git(root, &["ls-files", "--stage"]);
            assert!(!is_repository(seed) || listed(&scene.project()) == listed(&copy), "seed {seed}: {done:?}");
            assert_sound(&scene.project(), seed, &done);
            assert_eq!(told(&transaction), Vec::<String>::new(), "seed {seed}");
        }
        println!("{} sequences with {changes} changes, {repositories} of them of repositories", sequences());
        assert!(changes > 0 && repositories > 0);
    });
}

#[test]
fn nothing_that_the_host_wrote_meanwhile_is_lost() {
    apart("properties::nothing_that_the_host_wrote_meanwhile_is_lost", || {
        let (mut conflicts, mut edits) = (0, 0);
        for seed in 0..sequences() {
            let mut random = Random(seed ^ 0x5eed_0000);
            let mut scene = Scene::new();
            scene.is_copy = seed % 5 < 2;
            begin_sequence(&scene, &mut random, seed);
            sh_copy(&scene);
            let copy = scene.base.join("copy");
            let (before, base) = (touched(&scene.project()), picture(&scene.project()));
            scene.begin();
            // In every other sequence the host works between the session's operations, else after them.
            let is_between = seed % 2 == 0;
            let mut done = Vec::new();
            for _ in 0..random.below(20) {
                let deed = Deed::random_in(&mut random, is_repository(seed));
                deed.apply(&scene.inside());
                deed.apply(&copy);
                done.push((false, deed));
                if is_between && random.below(3) == 0 {
                    let deed = Deed::random_in(&mut random, is_repository(seed));
                    deed.apply(&scene.project());
                    done.push((true, deed));
                }
            }
            let mut transaction = scene.end();
            if !is_between {
                for _ in 0..random.below(6) {
                    let deed = Deed::random_in(&mut random, is_repository(seed));
                    deed.apply(&scene.project());
                    done.push((true, deed));
                }
            }
            let (host, now) = (picture(&scene.project()), touched(&scene.project()));
            let wanted = picture(&copy);
            let is_touched = |path: &Path| before.get(path) != now.get(path);
            let found = transaction.changes().expect("readable").remove(0).changes;
            let in_conflict = found.into_iter().filter(|change| change.conflict.is_some());
            let in_conflict: HashSet<PathBuf> = in_conflict.map(|change| change.path).collect();
            conflicts += in_conflict.len();
            commit_all(&mut transaction);
            assert_sound(&scene.project(), seed, &done);
            let after = picture(&scene.project());
            let all = host.keys().chain(wanted.keys()).chain(base.keys());
            let paths: std::collections::BTreeSet<&PathBuf> = all.filter(|path| *path != Path::new(INDEX)).collect();
            let touched: Vec<&&PathBuf> = paths.iter().filter(|path| is_touched(path)).collect();
            for path in &paths {
                let is_near = touched.iter().any(|other| other.starts_with(path) || path.starts_with(other));
                let (host, after) = (plain(host.get(*path)), plain(after.get(*path)));
                if is_touched(path) && host.is_some() {
                    edits += 1;
                    assert_eq!(after, host, "seed {seed}: {} of the host: {done:?}", path.display());
                } else if !is_near && !is_between && !in_conflict.contains(*path) {
                    // The rule may see a conflict too many: a directory that was changed and changed back.
                    let wanted = plain(wanted.get(*path));
                    assert_eq!(after, wanted, "seed {seed}: {} of the session: {done:?}", path.display());
                }
            }
        }
        println!("{} sequences with {edits} names that the host touched, {conflicts} conflicts", sequences());
        assert!(conflicts > 0 && edits > conflicts);
    });
}

fn sh_copy(scene: &Scene) {
    sh(&scene.base, "cp -a project copy");
}
