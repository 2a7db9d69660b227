//! Transactions over real overlays: what a session would do is done on a mount, then committed or dropped. Each test runs in a user
//! namespace of its own, as a session does.

mod beginnings;
mod checkpoints;
mod closed;
mod copied;
mod copies;
mod killed;
mod origins;
mod properties;
mod review;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use cofferdam_kernel::file::stamp;
use rustix::mount::{MountFlags, UnmountFlags};

use super::*;
use crate::changes::{Conflict, Why};

const INSIDE: &str = "COFFERDAM_TEST_INSIDE";

/// Runs `test` in namespaces of its own, where any user may mount; `name` is the calling test's.
fn apart(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let itself = std::env::current_exe().expect("this program has a path");
    let name = format!("transaction::tests::{name}");
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--"])
        .arg(itself)
        .args([name.as_str(), "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare is part of every system");
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let is_forbidden = said.contains("unshare failed") || said.contains("unshare:");
    if is_forbidden {
        println!("skipped: this host gives no user namespaces: {said}");
        return;
    }
    print!("{said}");
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

/// A project, an overlay over it, and the directory of the transaction.
struct Scene {
    base: PathBuf,
    other: Option<PathBuf>,
    hidden: Vec<HiddenRule>,
    masked: Vec<HiddenRule>,
    /// Whether the layer begins as a copy of the project.
    is_copy: bool,
    is_mounted: bool,
    /// Whether the project is a repository of git itself.
    is_repository: bool,
}

static SCENES: AtomicUsize = AtomicUsize::new(0);

impl Scene {
    fn new() -> Self {
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let base = crate::scratch().join(format!("cofferdam-workspace-{}-{number}", std::process::id()));
        std::fs::create_dir_all(base.join("kept/t/0/upper")).expect("writable");
        for directory in ["kept/t/0/work", "project", "inside"] {
            std::fs::create_dir_all(base.join(directory)).expect("writable");
        }
        Scene {
            base,
            other: None,
            hidden: Vec::new(),
            masked: Vec::new(),
            is_copy: false,
            is_mounted: false,
            is_repository: false,
        }
    }

    /// The project on another mount than the transaction.
    fn on_another_mount() -> Self {
        let mut scene = Scene::new();
        let project = scene.project();
        rustix::mount::mount("tmpfs", &project, "tmpfs", MountFlags::empty(), None).expect("a namespace of our own");
        scene.other = Some(project);
        scene
    }

    fn project(&self) -> PathBuf {
        self.base.join("project")
    }

    fn inside(&self) -> PathBuf {
        self.base.join("inside")
    }

    fn kept(&self) -> PathBuf {
        self.base.join("kept/t")
    }

    fn begin(&mut self) {
        let (device, (seconds, nanoseconds)) = stamp(&self.project()).expect("writable");
        let inode = std::fs::metadata(self.project()).expect("it is there").ino();
        let mut manifest = Manifest::new("t", 0, &["sh".to_owned()], false).expect("a running machine");
        let (lower, mounted) = (self.project(), Time(seconds, nanoseconds));
        let (is_repository, in_transaction, index) = (self.is_repository, true, index_of(&lower));
        manifest.trees.push(TreeRecord {
            is_copy: self.is_copy,
            slot: 0,
            lower,
            device,
            inode,
            mounted,
            is_repository,
            in_transaction,
            index,
        });
        manifest.hidden = self.hidden.clone();
        manifest.masked = self.masked.clone();
        let directory = beneath::root(&self.kept()).expect("it is there");
        manifest.write(directory.as_fd()).expect("writable");
        let mut below = self.project();
        if self.is_copy {
            crate::copied::fill(directory.as_fd(), 0, &self.project(), &self.hidden).expect("it is small");
            below = self.base.join("nothing");
            std::fs::create_dir_all(&below).expect("writable");
        }
        let layer = |name: &str| self.kept().join("0").join(name).display().to_string();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},userxattr,volatile",
            below.display(),
            layer("upper"),
            layer("work")
        );
        let options = std::ffi::CString::new(options).expect("no zero");
        rustix::mount::mount("overlay", self.inside(), "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .expect("overlays can be mounted here");
        self.is_mounted = true;
    }

    fn end(&mut self) -> Transaction {
        self.seal();
        Transaction::open(&self.kept()).expect("it was sealed")
    }

    fn seal(&mut self) {
        rustix::mount::unmount(self.inside(), UnmountFlags::empty()).expect("no process is in it");
        self.is_mounted = false;
        let directory = beneath::root(&self.kept()).expect("it is there");
        assert_eq!(seal(directory.as_fd()).expect("writable"), Some(State::Sealed));
    }

    /// Runs a script as a session would, and ends it.
    fn session(&mut self, script: &str) -> Transaction {
        self.begin();
        sh(&self.inside(), script);
        self.end()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.is_mounted {
            rustix::mount::unmount(self.inside(), UnmountFlags::DETACH).expect("it was mounted");
        }
        if let Some(other) = &self.other {
            rustix::mount::unmount(other, UnmountFlags::DETACH).expect("it was mounted");
        }
        let parent = beneath::root(self.base.parent().expect("it has one")).expect("it is there");
        let name = self.base.file_name().and_then(|name| name.to_str()).expect("we named it");
        stages::remove(parent.as_fd(), name).expect("it is ours");
    }
}

fn sh(directory: &Path, script: &str) {
    let ran = Command::new("sh").args(["-ec", script]).current_dir(directory).status().expect("a shell");
    assert!(ran.success(), "{script}");
}

/// Everything that two trees are compared by: kind, mode, content or target, and which names are one file.
fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(at) = left.pop() {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(root.join(&at))
            .expect("readable")
            .map(|entry| at.join(entry.expect("readable").file_name()))
            .collect();
        entries.sort();
        for path in entries {
            let whole = root.join(&path);
            let stat = whole.symlink_metadata().expect("it is there");
            let mode = stat.permissions().mode() & 0o7777;
            let text = if stat.is_symlink() {
                format!("link {}", std::fs::read_link(&whole).expect("a link").display())
            } else if stat.is_dir() {
                left.push(path.clone());
                format!("directory {mode:o}")
            } else {
                let content = String::from_utf8_lossy(&std::fs::read(&whole).expect("readable")).into_owned();
                let name = first.entry(stat.ino()).or_insert_with(|| path.clone());
                format!("file {mode:o} {} {content}", name.display())
            };
            found.insert(path, text);
        }
    }
    found
}

fn everything(transaction: &Transaction) -> Vec<Choice> {
    let changes = transaction.changes().expect("readable");
    let free = |found: &Changes| {
        let free = found.changes.iter().filter(|change| change.conflict.is_none());
        let chosen: HashSet<PathBuf> = free.map(|change| change.path.clone()).collect();
        Choice { allowed: chosen.clone(), chosen }
    };
    changes.iter().map(free).collect()
}

fn commit_all(transaction: &mut Transaction) -> Committed {
    let (changes, all) = (transaction.changes().expect("readable"), everything(transaction));
    transaction.commit(&changes, all).expect("nothing is in the way")
}

fn commit_only(transaction: &mut Transaction, path: &str) {
    let changes = transaction.changes().expect("readable");
    let allowed = changes[0].changes.iter().map(|change| change.path.clone()).collect();
    let choice = Choice { chosen: HashSet::from([PathBuf::from(path)]), allowed };
    transaction.commit(&changes, vec![choice]).expect("nothing is in the way");
}

fn told(transaction: &Transaction) -> Vec<String> {
    let changes = transaction.changes().expect("readable");
    let line = |change: &crate::Change| {
        format!("{:?} {}{}", change.what, change.path.display(), change.conflict.map_or("", |_| " conflict"))
    };
    changes[0].changes.iter().map(line).collect()
}

const BEFORE: &str = "
    mkdir -p dir/sub gone/deep mixed shut; echo one > a; echo two > b; echo x > dir/x; echo y > dir/sub/y
    echo g > gone/deep/g; echo m > mixed/m; ln -s a link; echo plain > becomes-dir; echo s > shut/s
    mkdir becomes-file; echo f > becomes-file/f; chmod 640 b";
const SESSION: &str = "
    echo more >> a; chmod 755 b; rm dir/x; echo z > dir/z; rm -r gone; mkdir -p new/a/b; echo n > new/a/b/n
    ln -s n new/a/b/l; rm link; ln -s b link; rm becomes-dir; mkdir becomes-dir; echo d > becomes-dir/d
    rm -r becomes-file; echo file > becomes-file; rm -r mixed; mkdir mixed; echo other > mixed/o; chmod 700 shut
    ln new/a/b/n new/second; ln a third; mkfifo pipe; rm pipe";

/// What the session would have made of the project without an overlay.
fn directly(scene: &Scene) -> BTreeMap<PathBuf, String> {
    let copy = scene.base.join("copy");
    sh(&scene.base, "rm -rf copy; cp -a project copy");
    sh(&copy, SESSION);
    picture(&copy)
}

#[test]
fn a_commit_makes_the_tree_what_the_session_would_have_made_of_it() {
    apart("a_commit_makes_the_tree_what_the_session_would_have_made_of_it", || {
        for make in [Scene::new, Scene::on_another_mount] {
            let mut scene = make();
            sh(&scene.project(), BEFORE);
            let before = picture(&scene.project());
            let after = directly(&scene);
            let mut transaction = scene.session(SESSION);
            assert_eq!(picture(&scene.project()), before, "nothing reached the host");
            let committed = commit_all(&mut transaction);
            assert!(committed.left.is_empty(), "{committed:?}");
            assert_eq!(picture(&scene.project()), after);
            assert_eq!(transaction.state(), State::Committed);
            assert_eq!(told(&transaction), Vec::<String>::new());
        }
    });
}

#[test]
fn a_rollback_leaves_the_tree_as_if_nothing_had_run() {
    apart("a_rollback_leaves_the_tree_as_if_nothing_had_run", || {
        let mut scene = Scene::new();
        sh(&scene.project(), BEFORE);
        let before = picture(&scene.project());
        let transaction = scene.session(SESSION);
        drop(transaction);
        roll_back(&scene.kept()).expect("it is sealed");
        assert_eq!(picture(&scene.project()), before);
        assert!(!scene.kept().exists());
    });
}

#[test]
fn a_commit_that_is_killed_at_any_step_is_wholly_done_or_not_at_all() {
    apart("a_commit_that_is_killed_at_any_step_is_wholly_done_or_not_at_all", || {
        let mut steps = 0;
        for make in [Scene::new, Scene::on_another_mount] {
            for stop in 0.. {
                let mut scene = make();
                sh(&scene.project(), BEFORE);
                let before = picture(&scene.project());
                let after = directly(&scene);
                let mut transaction = scene.session(SESSION);
                let (changes, all) = (transaction.changes().expect("readable"), everything(&transaction));
                let mut left = stop;
                let mut between = || {
                    left = usize::checked_sub(left, 1).ok_or(Errno::CANCELED)?;
                    Ok(())
                };
                let committed = transaction.commit_with(&changes, all, &[], &mut between);
                let is_whole = committed.is_ok();
                assert!(is_whole || matches!(committed, Err(CommitError::Journal(Errno::CANCELED))), "{committed:?}");
                let was_written = has_journal(transaction.directory.as_fd());
                drop(transaction);
                let again = Transaction::open(&scene.kept()).expect("recovery works");
                let now = picture(&scene.project());
                if is_whole || was_written {
                    assert_eq!(now, after, "stopped after {stop} steps, with a journal");
                } else {
                    assert!(now == before || now == after, "stopped after {stop} steps: {now:?}");
                }
                let expected = if now == after { State::Committed } else { State::Sealed };
                assert_eq!(again.state(), expected, "stopped after {stop} steps");
                let names = |path: &Path| std::fs::read_dir(path).expect("readable").count();
                let is_staged = now == before && names(&scene.kept()) != 3;
                assert!(!is_staged, "what was staged is gone: transaction.json, state and the layers are left");
                steps += 1;
                if is_whole {
                    break;
                }
            }
        }
        println!("killed at {steps} steps");
        assert!(steps > 60, "{steps}");
    });
}

#[test]
fn what_the_host_changed_meanwhile_is_a_conflict_and_stays() {
    apart("what_the_host_changed_meanwhile_is_a_conflict_and_stays", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir d e; for f in a b c d/x e/y same; do echo old > $f; done");
        scene.begin();
        // The name is known inside, the host replaces it as editors do, and the session writes to what it knows.
        sh(&scene.inside(), "cat a > /dev/null");
        sh(&scene.project(), "echo host > new; mv new a; echo host >> b; echo host > d/x; echo mine > same");
        sh(&scene.inside(), "echo session >> a; rm b; echo session > c; rm -r d e; echo mine > same; echo n > n");
        let mut transaction = scene.end();
        let told = told(&transaction);
        assert_eq!(
            told,
            [
                "Modified a conflict",
                "Deleted b conflict",
                "Modified c",
                "Deleted d conflict",
                "Deleted d/x conflict",
                "Deleted e",
                "Deleted e/y",
                "Added n",
            ]
        );
        commit_all(&mut transaction);
        let read = |name: &str| std::fs::read_to_string(scene.project().join(name)).unwrap_or_default();
        assert_eq!([read("a"), read("b"), read("c"), read("d/x")], ["host\n", "old\nhost\n", "session\n", "host\n"]);
        assert!(!scene.project().join("e").exists() && scene.project().join("n").exists());
        assert_eq!(transaction.state(), State::Sealed, "the conflicts wait");
        // The operator takes the session's version of one.
        commit_only(&mut transaction, "a");
        assert_eq!(read("a"), "old\nsession\n");
    });
}

#[test]
fn what_the_host_removed_meanwhile_is_a_conflict_and_what_the_session_renamed_is_none() {
    apart("what_the_host_removed_meanwhile_is_a_conflict_and_what_the_session_renamed_is_none", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir d d/e calm; for f in a d/x d/e/y calm/z; do echo old > $f; done");
        scene.begin();
        let script = "echo session >> a; echo session >> d/x; echo session >> d/e/y; echo n > d/e/new; echo n > new
            echo more >> calm/z; mv calm/z calm/renamed; mkdir made; mv calm/renamed made/moved; cp made/moved calm/copy";
        sh(&scene.inside(), script);
        sh(&scene.project(), "rm -r a d");
        let mut transaction = scene.end();
        let expected = [
            "Added a conflict",
            "Deleted calm/z",
            "Added calm/copy",
            "Added d conflict",
            "Added d/e conflict",
            "Added d/e/new",
            "Added d/e/y conflict",
            "Added d/x conflict",
            "Added made",
            "Added made/moved",
            "Added new",
        ];
        let mut sorted = told(&transaction);
        sorted.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
        let mut expected: Vec<&str> = expected.to_vec();
        expected.sort_by_key(|line| line.split(' ').nth(1));
        assert_eq!(sorted, expected);
        commit_all(&mut transaction);
        let names: Vec<PathBuf> = picture(&scene.project()).into_keys().collect();
        let left = ["calm", "calm/copy", "made", "made/moved", "new"].map(PathBuf::from);
        assert_eq!(names, left, "what the host removed stays so");
        commit_only(&mut transaction, "a");
        assert_eq!(std::fs::read(scene.project().join("a")).expect("taken by name"), b"old\nsession\n");
    });
}

#[test]
fn a_part_is_committed_and_the_rest_waits() {
    apart("a_part_is_committed_and_the_rest_waits", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir d; echo 1 > d/a; echo 1 > d/b; echo 1 > c");
        // A directory that was removed and made again hides everything that was in it.
        let mut transaction =
            scene.session("rm -r d; mkdir d; echo 2 > d/a; echo 2 > c; mkdir -p x/y; echo 3 > x/y/z; echo 4 > x/o");
        commit_only(&mut transaction, "d/a");
        assert_eq!(
            told(&transaction),
            ["Modified c", "Deleted d/b", "Added x", "Added x/o", "Added x/y", "Added x/y/z"]
        );
        // The directories above come with it.
        commit_only(&mut transaction, "x/y/z");
        assert!(scene.project().join("x/y/z").exists() && !scene.project().join("x/o").exists());
        commit_all(&mut transaction);
        assert_eq!(transaction.state(), State::Committed);
        assert!(scene.project().join("x/o").exists() && !scene.project().join("d/b").exists());
    });
}

#[test]
fn what_is_not_for_the_host_is_left_out_or_taken_off() {
    apart("what_is_not_for_the_host_is_left_out_or_taken_off", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "mkdir real; echo r > real/r; echo plain > file");
        let script = "
            mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'
            echo tool > tool; chmod 6755 tool; mkdir sticky; chmod 1777 sticky
            rm -r real; ln -s /etc real; ln -s /etc/passwd out; ln -s file in; truncate -s 70G huge
            setfattr -n user.note -v kept file 2>/dev/null || python3 -c 'import os; os.setxattr(\"file\", \"user.note\", b\"kept\")'";
        let mut transaction = scene.session(script);
        let changes = transaction.changes().expect("readable");
        let skipped: Vec<(PathBuf, Why)> =
            changes[0].skipped.iter().map(|skipped| (skipped.path.clone(), skipped.why)).collect();
        let expected = [("huge", Why::TooLarge), ("pipe", Why::Fifo), ("sock", Why::Socket)];
        assert_eq!(skipped, expected.map(|(path, why)| (PathBuf::from(path), why)));
        let of =
            |path: &str| changes[0].changes.iter().find(|change| change.path == Path::new(path)).expect("it changed");
        assert_eq!(of("real").conflict, Some(Conflict::LeavesTree), "a link out takes no directory's place");
        assert!(of("out").leaves_tree() && !of("in").leaves_tree());
        commit_all(&mut transaction);
        let project = scene.project();
        let mode = |name: &str| project.join(name).metadata().expect("committed").permissions().mode() & 0o7777;
        assert_eq!((mode("tool"), mode("sticky")), (0o755, 0o777));
        assert!(project.join("real/r").exists(), "the directory stays");
        assert!(!project.join("huge").exists() && project.join("out").symlink_metadata().is_ok());
        let mut value = [0u8; 8];
        let length = rustix::fs::getxattr(project.join("file"), "user.note", &mut value).expect("it was set");
        assert_eq!(&value[..length], b"kept");
    });
}

#[test]
fn what_one_machine_lost_is_said_to_be_lost() {
    apart("what_one_machine_lost_is_said_to_be_lost", || {
        let mut scene = Scene::new();
        scene.begin();
        sh(&scene.inside(), "echo a > a");
        rustix::mount::unmount(scene.inside(), UnmountFlags::empty()).expect("no process is in it");
        scene.is_mounted = false;
        let directory = beneath::root(&scene.kept()).expect("it is there");
        // As after a start of the machine: nothing says that the layer has reached the disk.
        let text = std::fs::read_to_string(scene.kept().join(MANIFEST)).expect("it was written");
        let text = text.replace(&boot().expect("a running machine"), "another");
        std::fs::write(scene.kept().join(MANIFEST), text).expect("ours");
        assert_eq!(seal(directory.as_fd()).expect("writable"), Some(State::Lost));
        let mut transaction = Transaction::open(&scene.kept()).expect("it can be looked at");
        let changes = transaction.changes().expect("readable");
        let all = everything(&transaction);
        assert!(transaction.commit(&changes, all).is_err(), "nothing of it is committed");
        assert!(!scene.project().join("a").exists());
        drop(transaction);
        roll_back(&scene.kept()).expect("it can be dropped");
    });
}

#[test]
fn two_processes_do_not_work_on_one_transaction() {
    apart("two_processes_do_not_work_on_one_transaction", || {
        let mut scene = Scene::new();
        let transaction = scene.session("echo a > a");
        assert!(matches!(Transaction::open(&scene.kept()), Err(OpenError::Locked)));
        drop(transaction);
        Transaction::open(&scene.kept()).expect("it is free again");
        // Another directory under the same name is not what the session wrote to.
        std::fs::rename(scene.project(), scene.base.join("moved")).expect("ours");
        std::fs::create_dir(scene.project()).expect("ours");
        assert!(matches!(Transaction::open(&scene.kept()), Err(OpenError::OtherDirectory { .. })));
        roll_back(&scene.kept()).expect("it can be dropped without its directory");
    });
}

#[test]
fn what_the_host_writes_into_a_directory_while_it_is_removed_stays() {
    apart("what_the_host_writes_into_a_directory_while_it_is_removed_stays", || {
        for script in ["echo precious > d/new", "echo more >> d/sub/x", "mkdir d/sub/n"] {
            let mut scene = Scene::new();
            sh(&scene.project(), "mkdir -p d/sub e; echo x > d/sub/x; echo y > e/y");
            let mut transaction = scene.session("rm -r d e");
            let (changes, all) = (transaction.changes().expect("readable"), everything(&transaction));
            let project = scene.project();
            let mut is_first = true;
            let mut between = || {
                if std::mem::take(&mut is_first) {
                    sh(&project, script);
                }
                Ok(())
            };
            transaction.commit_with(&changes, all, &[], &mut between).expect("it is carried through");
            assert!(project.join("d/sub/x").exists() && !project.join("e").exists(), "{script}");
        }
    });
}
