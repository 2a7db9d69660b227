//! Row E25: files that lend the user's rights to other users who run them. Owns the look at the host afterwards; the attempts are the
//! probe's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cofferdam_testkit::edit;

use super::gate::{answering, each_trigger};
use super::launch::is_variant;
use crate::row::{Finding, Off, ROW, Row, Trial};

const CALLS: [&str; 10] =
    ["chmod", "fchmod", "fchmodat", "fchmodat2", "mknod", "mknodat", "creat", "open", "openat", "openat2"];

pub(crate) static E25: Row = Row {
    what: "set-user-ID and set-group-ID bits left on the host",
    control: "the filter compares the mode of every call that takes one",
    session: |session, place| {
        if !is_variant("static") {
            answering(session, place, "none");
        }
    },
    run: |trial| {
        let in_variant = |variant: &[(&str, &str)]| {
            let launched = trial.launch_in(trial.check(), &trial.project(), variant);
            judged_on_the_host(trial, trial.answer(&launched))
        };
        in_variant(&[("COFFERDAM_TEST_VARIANT", "static")]).and_then(|| each_trigger(trial, in_variant))
    },
    off: Off::Edit(|plan, _| edit::let_through(plan, &CALLS)),
    reported: &["chmod", "fchmod", "fchmodat", "mknod", "mknodat"],
    ..ROW
};

/// What the probe was told is one thing, what lies on the disk is another.
fn judged_on_the_host(trial: &Trial, finding: Finding) -> Finding {
    let marked = files_with_bits(&trial.project());
    let shared = trial.project().join("shared");
    let is_shared = fs::metadata(&shared).is_ok_and(|found| found.permissions().mode() & 0o7777 == 0o2775);
    match finding {
        Finding::Contained(how) if !marked.is_empty() => Finding::Open(format!("{how}, but there are {marked:?}")),
        Finding::Contained(_) if !is_shared => Finding::Broken("a directory cannot be shared with a group".to_owned()),
        other => other,
    }
}

fn files_with_bits(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let found = entry.path().symlink_metadata().ok()?;
            (!found.is_dir() && found.permissions().mode() & 0o6000 != 0).then(|| entry.path())
        })
        .collect()
}
