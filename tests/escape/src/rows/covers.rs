//! Rows about walls that a host program could take off: it replaces, removes and recreates names that are hidden in read-only
//! trees, and renames the directories above them, while the workload opens them in a loop.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_policy::Access;
use cofferdam_supervisor::Decider;
use cofferdam_testkit::{Place, edit};
use cofferdam_wire::{Keep, Reach, Verdict};

use super::launch::is_variant;
use super::{gate, rule};
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

const ROUNDS: usize = 150;

/// Four rounds are one of everything that is done; on a slow machine there are no more than the time allows.
const FEWEST: usize = 8;
const LONGEST: Duration = Duration::from_secs(6);

/// A tree that a rule gives, one that an answer gives, and the names that are hidden in each.
fn trees(place: &Place) -> [PathBuf; 2] {
    ["given", "asked"].map(|tree| place.outside().join(tree))
}

fn hidden(place: &Place) -> Vec<PathBuf> {
    let names = ["secret", "sub/deep/key", "sub/whole", "later"];
    trees(place).iter().flat_map(|tree| names.map(|name| tree.join(name))).collect()
}

pub(crate) static A18: Row = Row {
    what: "a host program works on hidden names of read-only trees",
    control: "hidden by name on directory entries of the sandbox's own; nothing is mounted on the host's",
    session: |session, place| {
        if is_variant("static") {
            return;
        }
        gate::asking(session, place);
        session.decider = Some(Decider(Rc::new(|_| Some(Verdict::Allow { reach: Reach::Dir, keep: Keep::Session }))));
    },
    policy: |policy, place| {
        rule(policy, &trees(place)[0], Access::Read);
        for name in hidden(place) {
            rule(policy, &name, Access::Deny);
        }
    },
    run: |trial| {
        let has_device = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
        let ways = ["static", "fuse", "calls"].into_iter().filter(|way| has_device || *way != "fuse");
        ways.map(|way| (way, work(trial, way))).fold(Finding::Contained(String::new()), |so_far, (way, found)| {
            match (so_far, found) {
                (Finding::Contained(_), Finding::Open(how)) => Finding::Open(format!("{way}: {how}")),
                // With the walls open each way has to be open.
                (Finding::Open(_), Finding::Contained(how)) => Finding::Contained(format!("{way}: {how}")),
                (Finding::Contained(before), Finding::Contained(how)) => {
                    Finding::Contained(format!("{before} {way}: {how};"))
                }
                (Finding::Open(before), Finding::Open(how)) => Finding::Open(format!("{before}; {way}: {how}")),
                (broken @ (Finding::Broken(_) | Finding::Skipped(_)), _) | (_, broken) => broken,
            }
        })
    },
    off: Off::Edit(|plan, _| edit::cover_by_mounts(plan)),
    ..ROW
};

fn work(trial: &Trial, way: &str) -> Finding {
    if let Err(error) = prepare(&trial.scene) {
        return Finding::Broken(error.to_string());
    }
    // What an answer gives is no step of a plan, so the negative control has nothing to switch off there.
    let looked_at: Vec<PathBuf> = match trial.walls {
        Walls::Standing => hidden(&trial.scene),
        Walls::Open => hidden(&trial.scene).into_iter().take(2).collect(),
    };
    trial.scene.list("names", looked_at.iter().map(|name| name.display().to_string()));
    let mut helper = trial.start_with("a18", &[("COFFERDAM_TEST_VARIANT", way)], Stdio::null());
    let ready = helper.wait_for(&trial.project().join("ready"), Duration::from_secs(30));
    let end = Instant::now() + LONGEST;
    let mut rounds = (0..ROUNDS).take_while(|round| *round < FEWEST || Instant::now() < end);
    let worked = rounds.try_for_each(|round| trees(&trial.scene).iter().try_for_each(|tree| disturb(tree, round)));
    trial.scene.write(trial.project().join("done"), "");
    let finished = helper.finish();
    match (ready, worked, finished) {
        (Ok(true), Ok(()), Ok(launched)) => trial.answer(&launched),
        (ready, worked, finished) => Finding::Broken(format!("{ready:?} {worked:?} {finished:?}")),
    }
}

fn prepare(place: &Place) -> std::io::Result<()> {
    gate::forget(place, &["ready", "done"]).map_err(std::io::Error::other)?;
    for tree in trees(place) {
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        place.write(tree.join("plain"), "plain");
        place.write(tree.join("secret"), "secret");
        fill(&tree.join("sub"))?;
    }
    Ok(())
}

fn fill(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory.join("deep"))?;
    fs::create_dir_all(directory.join("whole"))?;
    fs::write(directory.join("deep/key"), "secret")?;
    fs::write(directory.join("whole/inside"), "secret")
}

/// One round of what programs of the host do.
fn disturb(tree: &Path, round: usize) -> std::io::Result<()> {
    let (secret, new) = (tree.join("secret"), tree.join("secret.new"));
    // As editors and `sed -i` save.
    fs::write(&new, "secret")?;
    fs::rename(&new, &secret)?;
    fs::remove_file(&secret)?;
    fs::write(&secret, "secret")?;
    fs::write(tree.join("later"), "secret")?;
    let (sub, moved) = (tree.join("sub"), tree.join("moved"));
    fs::write(sub.join("deep/key.new"), "secret")?;
    fs::rename(sub.join("deep/key.new"), sub.join("deep/key"))?;
    if round.is_multiple_of(4) {
        fs::rename(&sub, &moved)?;
        fill(&sub)?;
        fs::remove_dir_all(&moved)?;
    }
    if round % 4 == 2 {
        fs::rename(sub.join("whole"), sub.join("other"))?;
        fs::rename(sub.join("other"), sub.join("whole"))?;
        fs::remove_file(tree.join("later"))?;
    }
    Ok(())
}
