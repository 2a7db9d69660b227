//! Rows in which something happens while changes are taken over or dropped: names that are exchanged, a process that is killed, names
//! that are planted, and host programs that work on hidden names while the workload spins on them.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cofferdam_policy::Transaction;
use cofferdam_testkit::edit;
use cofferdam_testkit::person::sessions;

use super::keeper::Host;
use super::transaction::{After, BY_PATH, COMMITTED, last};
use crate::raw;
use crate::row::{Finding, Off, Row, Trial, Walls};

/// How long an attacker without the walls has to win.
const LONGEST: Duration = Duration::from_secs(10);

fn exchange(one: &Path, other: &Path) -> Result<(), i32> {
    const RENAME_EXCHANGE: usize = 2;
    let name = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| libc::EINVAL);
    let here = usize::try_from(libc::AT_FDCWD).unwrap_or(usize::MAX - 99);
    let (one, other) = (name(one)?, name(other)?);
    let arguments = [here, one.as_ptr() as usize, here, other.as_ptr() as usize, RENAME_EXCHANGE, 0];
    raw::syscall(libc::SYS_renameat2, arguments).map(drop)
}

/// Exchanges two names as fast as it can while `work` runs; how often.
fn beside_exchanges<T>(one: &Path, other: &Path, work: impl FnOnce() -> T) -> (T, u64) {
    let (is_over, times) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if exchange(one, other).is_ok() {
                    times.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (done, times.load(Ordering::Relaxed))
    })
}

pub(crate) static E03: Row = Row {
    what: "a directory that is exchanged with a link out while a commit writes into it",
    control: "each name is reached beneath the project by one open, and what is put in place is looked at again",
    run: |trial| exchanged(trial).unwrap_or_else(|finding| finding),
    ..COMMITTED
};

fn exchanged(trial: &Trial) -> Result<Finding, Finding> {
    const ROUNDS: usize = 8;
    let mut total = 0;
    let mut put = 0;
    for round in 0..ROUNDS {
        let host = "rm -rf d link ../.local/state/cofferdam/kept; mkdir -p d \"$OUT/victim\"; ln -s ../../outside/victim link; echo old > d/changed; echo kept > \"$OUT/victim/changed\"";
        let inside = "i=0; while [ $i -lt 200 ]; do echo evil > d/f$i; i=$((i+1)); done; echo evil > d/changed";
        let after = After::session(trial, host, inside)?;
        let (one, other) = (trial.project().join("d"), trial.project().join("link"));
        let (said, times) = beside_exchanges(&one, &other, || match trial.walls {
            Walls::Standing => after.sandbox(&["commit"]),
            Walls::Open => after.script(BY_PATH),
        });
        let said = said?;
        total += times;
        let victim = trial.scene.outside().join("victim");
        let made = fs::read_dir(&victim).into_iter().flatten().flatten().count();
        let is_kept = fs::read_to_string(victim.join("changed")).is_ok_and(|text| text == "kept\n");
        if made != 1 || !is_kept {
            return Ok(Finding::Open(format!("{} files outside in round {round}: {}", made - 1, last(&said))));
        }
        put += [&one, &other].iter().filter(|at| at.join("f0").is_file()).count();
    }
    if total < 100 {
        return Ok(Finding::Broken(format!("{total} exchanges are no race")));
    }
    Ok(Finding::Contained(format!("nothing outside in {ROUNDS} commits beside exchanges, {put} of them whole")))
}

pub(crate) static E04: Row = Row {
    what: "a directory that is exchanged with a link out while a rollback removes it",
    control: "removed by descriptors",
    run: |trial| removed_beside(trial).unwrap_or_else(|finding| finding),
    ..COMMITTED
};

fn removed_beside(trial: &Trial) -> Result<Finding, Finding> {
    const ROUNDS: usize = 10;
    let victim = trial.scene.outside().join("victim");
    let began = Instant::now();
    let mut round = 0;
    while round < ROUNDS || trial.walls == Walls::Open && began.elapsed() < LONGEST {
        round += 1;
        let host = "rm -rf ../.local/state/cofferdam/kept; mkdir -p \"$OUT/victim/sub\"; echo kept > \"$OUT/victim/canary\"; echo kept > \"$OUT/victim/sub/canary\"";
        let inside = "i=0; while [ $i -lt 100 ]; do mkdir -p a/$i d/$i; i=$((i+1)); done; echo x > d/canary; ln -s ../../outside link";
        let after = After::session(trial, host, inside)?;
        let (one, other) = (after.upper.join("d"), after.upper.join("link"));
        fs::remove_file(&other)
            .and_then(|()| std::os::unix::fs::symlink(&victim, &other))
            .map_err(|error| Finding::Broken(error.to_string()))?;
        let (ended, _) = beside_exchanges(&one, &other, || match trial.walls {
            Walls::Standing => after.sandbox(&["rollback"]).map(drop),
            Walls::Open => {
                // Again and again: what was made anew has to be removed, too.
                let until = Instant::now() + Duration::from_millis(300);
                while Instant::now() < until && victim.join("canary").exists() {
                    // What fails is tried again.
                    remove_by_path(&one).unwrap_or_default();
                    fs::create_dir_all(one.join("1")).unwrap_or_default();
                    if !other.exists() && !one.is_symlink() {
                        std::os::unix::fs::symlink(&victim, &other).unwrap_or_default();
                    }
                }
                Ok(())
            }
        });
        ended?;
        if !victim.join("canary").exists() || !victim.join("sub/canary").exists() {
            return Ok(Finding::Open(format!("what lies outside was removed in round {round}")));
        }
    }
    Ok(Finding::Contained(format!("{round} rollbacks removed nothing outside")))
}

/// Looks whether it is a directory, and goes into it a moment later: CVE-2022-21658.
fn remove_by_path(path: &Path) -> io::Result<()> {
    if !path.symlink_metadata()?.is_dir() {
        return fs::remove_file(path);
    }
    std::thread::sleep(Duration::from_micros(200));
    for entry in fs::read_dir(path)?.flatten() {
        remove_by_path(&entry.path())?;
    }
    fs::remove_dir(path)
}

pub(crate) static E20: Row = Row {
    what: "a commit that is killed",
    control: "staged, synced and journalled; the next command finishes it",
    run: |trial| killed(trial).unwrap_or_else(|finding| finding),
    ..COMMITTED
};

/// Both versions of 100 files; how many have the second.
fn new_ones(project: &Path) -> usize {
    let is_new =
        |number: &usize| fs::read_to_string(project.join(format!("f{number}"))).is_ok_and(|text| text == "new\n");
    (0..100).filter(is_new).count()
}

fn killed(trial: &Trial) -> Result<Finding, Finding> {
    const ROUNDS: u32 = 16;
    let (mut old, mut new, mut whole) = (0, 0, None);
    for round in 0..=ROUNDS {
        let host =
            "rm -rf ../.local/state/cofferdam/kept; i=0; while [ $i -lt 100 ]; do echo old > f$i; i=$((i+1)); done";
        let inside = "i=0; while [ $i -lt 100 ]; do echo new > f$i; i=$((i+1)); done";
        let after = After::session(trial, host, inside)?;
        let project = trial.project();
        let broken = |error: io::Error| Finding::Broken(error.to_string());
        if trial.walls == Walls::Open {
            return killed_script(&after);
        }
        let began = Instant::now();
        let mut command = after.of_sandbox();
        let mut child = command.arg("commit").stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(broken)?;
        // The first goes through, and tells how long it takes.
        if let Some(whole) = whole {
            let at: Duration = whole * round / ROUNDS;
            std::thread::sleep(at.saturating_sub(began.elapsed()));
            child.kill().map_err(broken)?;
        }
        child.wait().map_err(broken)?;
        whole.get_or_insert(began.elapsed());
        after.sandbox(&["changes"])?;
        match new_ones(&project) {
            0 => old += 1,
            100 => new += 1,
            some => return Ok(Finding::Open(format!("{some} of 100 files are new after round {round}"))),
        }
    }
    if old == 0 || new < 2 {
        return Ok(Finding::Broken(format!("{old} old and {new} new: no commit was killed in between")));
    }
    Ok(Finding::Contained(format!("killed at {ROUNDS} moments: wholly old or wholly new")))
}

/// Killed when the first file is there.
fn killed_script(after: &After<'_>) -> Result<Finding, Finding> {
    let script = "(cd \"$UPPER\"; for f in f*; do cat $f > \"$PROJECT/$f\"; sleep 0.01; done) & pid=$!; \
                  until grep -qsx new f1; do sleep 0.01; done; kill -9 $pid; wait $pid 2>/dev/null; true";
    after.script(script)?;
    let some = new_ones(&after.trial.project());
    Ok(match some {
        0 | 100 => Finding::Contained("all or nothing".to_owned()),
        _ => Finding::Open(format!("{some} of 100 files are new")),
    })
}

pub(crate) static E21: Row = Row {
    what: "names of what is staged, planted before a commit",
    control: "128 random bits, and made only where nothing has the name",
    run: |trial| planted(trial).unwrap_or_else(|finding| finding),
    ..COMMITTED
};

fn planted(trial: &Trial) -> Result<Finding, Finding> {
    let host = "rm -rf ../.local/state/cofferdam/kept; echo kept > \"$OUT/canary\"; for f in .commit.tmp .cofferdam-commit- .cofferdam-commit-0 f.next; do \
                ln -sfn ../../outside/canary $f; done; echo old > f";
    let after = After::session(trial, host, "echo evil > f")?;
    // The same names where the records of the transaction lie.
    let kept = after.upper.ancestors().nth(2).ok_or_else(|| Finding::Broken("no records".to_owned()))?.to_path_buf();
    let canary = trial.scene.outside().join("canary");
    for name in ["journal.json.next", "state.next", "staging.json.next"] {
        std::os::unix::fs::symlink(&canary, kept.join(name)).map_err(|error| Finding::Broken(error.to_string()))?;
    }
    let said = match trial.walls {
        Walls::Standing => after.sandbox(&["commit"])?,
        Walls::Open => after.script("cat \"$UPPER/f\" > .commit.tmp; mv .commit.tmp f")?,
    };
    let text = fs::read_to_string(&canary).unwrap_or_default();
    if text != "kept\n" {
        return Ok(Finding::Open(format!("written through a planted name: {}", last(&said))));
    }
    // Refused as it is, and done without them.
    for name in ["journal.json.next", "state.next", "staging.json.next"] {
        fs::remove_file(kept.join(name))
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .map_err(|error| Finding::Broken(error.to_string()))?;
    }
    let again = after.sandbox(&["commit"])?;
    let is_there = fs::read_to_string(trial.project().join("f")).is_ok_and(|text| text == "evil\n");
    let words = format!("{}; then {}", last(&said), last(&again));
    Ok(if is_there { Finding::Contained(words) } else { Finding::Broken(words) })
}

pub(crate) static A18: Row = Row {
    what: "a host program replaces hidden names of a project that is written in a transaction",
    control: "walls on names of the overlay, which the host cannot touch; no keeper",
    run: |trial| spun_on(trial).unwrap_or_else(|finding| finding),
    off: Off::Edit(|plan, place| {
        edit::drop_mounts_below(plan, &place.project());
        // Else the keeper covers what the host makes.
        plan.transaction = Transaction::Off;
    }),
    ..COMMITTED
};

fn spun_on(trial: &Trial) -> Result<Finding, Finding> {
    let project = trial.project();
    super::repository(&trial.scene, "home/project/.git");
    trial.scene.write("home/project/.git/config", "[core]\n");
    trial.scene.write("home/project/.env", "TOKEN=0\n");
    let broken = |error: io::Error| Finding::Broken(error.to_string());
    let mut helper = trial.start("a18-overlay", Stdio::null());
    // A name that changes while the walls are built ends the launch.
    let is_up = || {
        let sessions = fs::read_dir(sessions(&trial.scene)).into_iter().flatten().flatten();
        sessions
            .flat_map(|session| (0..8).map(move |slot| session.path().join(format!("{slot}/upper/up"))))
            .any(|up| up.exists())
    };
    let until = Instant::now() + LONGEST;
    while !is_up() && Instant::now() < until && matches!(helper.wait(Duration::ZERO), Ok(None)) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut host = Host::default();
    while matches!(helper.wait(Duration::ZERO), Ok(None)) {
        host.replace(&project).map_err(broken)?;
        std::thread::sleep(Duration::from_micros(200));
    }
    let launched = helper.finish().map_err(broken)?;
    if !launched.report.fallen.is_empty() {
        return Ok(Finding::Open(format!("covers fell: {:?}", launched.report.fallen)));
    }
    let seen = trial.answer(&launched);
    let config = fs::read_to_string(project.join(".git/config")).map_err(broken)?;
    let names: BTreeSet<String> = fs::read_dir(&project)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    if config.contains("#x") || names.contains("linked") || names.contains("renamed") {
        return Ok(Finding::Open(format!("the host has what was written inside: {names:?}")));
    }
    if host.turn < 16 {
        return Ok(Finding::Broken(format!("{} replacements are none", host.turn)));
    }
    Ok(seen.and_then(|| Finding::Contained("beside a host that replaces, removes and makes it again".to_owned())))
}
