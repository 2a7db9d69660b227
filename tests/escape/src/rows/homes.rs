//! Rows about which directory is the home: the environment names one, the password database another, or neither does.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use cofferdam_testkit::{Launched, edit};

use super::gate::asking;
use super::launch::is_variant;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

pub(crate) static A20: Row = Row {
    what: "HOME unset, empty, relative, `/` or another user's",
    control: "the password database decides, and both homes are homes",
    session: |session, place| {
        if !is_variant("static") {
            asking(session, place);
            session.policy.unknown.verdict.value = cofferdam_policy::OnUnknown::Deny;
        }
    },
    run: |trial| {
        trial.scene.write("home/.ssh/id_canary", "canary");
        trial.scene.write("home/.bashrc", "true");
        let other = trial.scene.directory("outside/other");
        trial.scene.write("outside/other/.ssh/id_canary", "canary");
        trial.scene.write("passwd", &format!("root:x:0:0::{}:/bin/sh\n", trial.scene.home().display()));
        // Only root can give a directory away; a user has the one at `/srv`, which is root's.
        let is_root = trial.scene.root().metadata().is_ok_and(|about| about.uid() == 0);
        if is_root && let Err(error) = chown(&other, Some(12345), None) {
            return Finding::Broken(format!("{} cannot be given away: {error}", other.display()));
        }
        let others = if is_root { other.clone() } else { "/srv".into() };
        let outside = trial.scene.outside();
        let values = [None, Some(""), Some("home"), Some("/"), others.to_str(), outside.to_str()];
        let mut finding = Finding::Contained(String::new());
        for variant in ["static", "fuse", "calls"] {
            for value in values {
                for directory in [trial.scene.home(), trial.project()] {
                    finding = finding.and_then(|| {
                        let said = trial.answer(&launch(trial, variant, value, &directory));
                        named(said, &format!("{variant}, HOME={value:?} in {}", directory.display()))
                    });
                    if trial.walls == Walls::Open || !matches!(finding, Finding::Contained(_)) {
                        return finding;
                    }
                }
            }
        }
        match finding {
            Finding::Contained(_) => Finding::Contained("6 values of HOME, 2 directories, 3 triggers".to_owned()),
            other => other,
        }
    },
    off: Off::Edit(|plan, place| edit::grant(plan, &place.home())),
    ..ROW
};

/// As root of a user namespace, whose home the password database of that namespace says.
fn launch(trial: &Trial, variant: &str, home: Option<&str>, directory: &Path) -> Launched {
    const ENTER: &str = r#"mount --bind "$0" /etc/passwd && cd "$1" && shift && exec "$@""#;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let words = ["unshare", "--map-root-user", "--mount", "sh", "-c", ENTER].map(str::to_owned);
    let mut words = words.to_vec();
    words.extend([text(&trial.scene.root().join("passwd")), text(directory), "env".to_owned()]);
    words.extend(match home {
        None => vec!["-u".to_owned(), "HOME".to_owned()],
        Some(home) => vec![format!("HOME={home}")],
    });
    trial.launch_behind(&words, "a20", &[("COFFERDAM_TEST_VARIANT", variant)])
}

fn named(finding: Finding, which: &str) -> Finding {
    match finding {
        Finding::Open(how) => Finding::Open(format!("{which}: {how}")),
        Finding::Broken(why) => Finding::Broken(format!("{which}: {why}")),
        other => other,
    }
}
