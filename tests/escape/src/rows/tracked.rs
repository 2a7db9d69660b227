//! Rows about hidden files that git tracks: a commit from inside leaves them as they were.

use std::path::Path;
use std::process::{Command, Stdio};

use cofferdam_plan::{LaunchPlan, MountKind, Step};
use cofferdam_testkit::Place;

use crate::row::{Finding, Off, ROW, Row, probe_argv};

/// Samples, a file that git has as it is, and one that differs from what git has.
const TRACKED: [&str; 4] = [".env.example", ".env.test", ".env", ".env.local"];

fn git(home: &Path, project: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t"]).args(arguments).current_dir(project);
    command.env("HOME", home).env_remove("GIT_DIR").stdin(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What was hidden before: an empty file that every program believes.
fn cover_by_empty_files(plan: &mut LaunchPlan, place: &Place) {
    let project = place.home().join("project");
    for step in &mut plan.steps {
        if let Step::Mount(mount) = step
            && mount.kind == MountKind::Refused
            && mount.target.starts_with(&project)
        {
            mount.kind = MountKind::Text(String::new());
        }
    }
}

pub(crate) static E26: Row = Row {
    what: "a commit that empties or drops hidden files that git tracks",
    control: "samples and what git has are shown, the rest is a node that git cannot add",
    argv: |place, check| match check {
        "commit" => {
            let script = "git add -A || git add new; git -c user.name=t -c user.email=t commit -q -m inside";
            ["sh", "-c", script].map(str::to_owned).to_vec()
        }
        check => probe_argv(place, check),
    },
    run: |trial| {
        let (home, project) = (trial.scene.home(), trial.project());
        for name in TRACKED {
            trial.scene.write(format!("home/project/{name}"), "KEY=committed\n");
        }
        let git = |arguments: &[&str]| git(&home, &project, arguments);
        let made = git(&["init", "-q"])
            .and_then(|_| git(&["add", "-A", "-f"]))
            .and_then(|_| git(&["commit", "-q", "-m", "first"]));
        let before = made.and_then(|_| git(&["ls-tree", "HEAD", "--", TRACKED[0], TRACKED[1], TRACKED[2], TRACKED[3]]));
        let Some(before) = before else { return Finding::Skipped("git is not there, or cannot commit".to_owned()) };
        trial.scene.write("home/project/.env.local", "KEY=secret\n");
        trial.scene.write("home/project/new", "x\n");
        let launched = trial.launch_in("commit", &project, &[]);
        let log = git(&["log", "--format=%s", "-1"]).unwrap_or_default();
        if log.trim() != "inside" {
            return Finding::Broken(format!("no commit inside: {:?} {}", launched.report, launched.stderr.trim()));
        }
        let after = git(&["ls-tree", "HEAD", "--", TRACKED[0], TRACKED[1], TRACKED[2], TRACKED[3]]).unwrap_or_default();
        let kept = std::fs::read_to_string(project.join(".env.local")).unwrap_or_default();
        if after == before && kept == "KEY=secret\n" {
            Finding::Contained("the commit has every tracked file as it was".to_owned())
        } else {
            Finding::Open(format!("the commit changed hidden files: {after}"))
        }
    },
    off: Off::Edit(cover_by_empty_files),
    ..ROW
};
