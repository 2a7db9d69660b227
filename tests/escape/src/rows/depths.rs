//! Rows about what lies below the project's root: secrets in subdirectories, and a project that a session filled with names
//! to hide.

use std::fs;
use std::time::{Duration, Instant};

use cofferdam_testkit::edit;

use super::gate;
use super::launch::is_variant;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

const SECRETS: [&str; 8] = [
    "packages/api/.env",
    "packages/api/.env.production",
    "packages/api/.streamlit/secrets.toml",
    "infra/prod/main.tfvars",
    "infra/prod/terraform.tfstate",
    "apps/web/config/master.key",
    "deploy/id_ed25519",
    "a/b/c/d/e/f/g/h/.netrc",
];

pub(crate) static A24: Row = Row {
    what: "secrets below the project's root",
    control: "a search finds what rules about any directory are about; it is covered, and so is the way to it",
    session: |session, place| {
        if !is_variant("static") {
            gate::asking(session, place);
        }
    },
    run: |trial| {
        let has_device = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
        let ways = ["static", "fuse", "calls"].into_iter().filter(|way| has_device || *way != "fuse");
        ways.fold(Finding::Contained(String::new()), |so_far, way| so_far.and_then(|| from_everywhere(trial, way)))
    },
    off: Off::Edit(|plan, place| {
        edit::drop_holds(plan);
        edit::drop_mounts_below(plan, &place.project());
    }),
    ..ROW
};

/// From the project's root, and from a directory of it.
fn from_everywhere(trial: &Trial, way: &str) -> Finding {
    let marked = trial.scene.directory("home/project/.git");
    trial.scene.directory("home/project/.git/objects");
    trial.scene.directory("home/project/.git/refs");
    trial.scene.write(marked.join("HEAD"), "ref: refs/heads/main\n");
    let mut found = Finding::Contained(way.to_owned());
    for directory in [trial.project(), trial.project().join("packages/api")] {
        // With the walls open they have been moved.
        for name in ["packages", "infra", "apps", "deploy", "a", "node_modules"] {
            match fs::remove_dir_all(trial.project().join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Finding::Broken(error.to_string());
                }
                _ => {}
            }
        }
        for name in SECRETS {
            trial.scene.write(format!("home/project/{name}"), "secret");
        }
        trial.scene.write("home/project/packages/api/.env.example", "sample");
        trial.scene.list("names", SECRETS.map(|name| format!("home/project/{name}")));
        let launched = trial.launch_in("a24", &directory, &[("COFFERDAM_TEST_VARIANT", way)]);
        found = found.and_then(|| trial.answer(&launched));
    }
    found
}

pub(crate) static D11: Row = Row {
    what: "a session leaves thousands of names to hide",
    control: "the survey is bounded, and the next start is refused with a remedy",
    run: |trial| {
        for number in 0..20_000 {
            trial.scene.write(format!("home/project/packages/.env.{number}"), "");
        }
        let begin = Instant::now();
        let launched = trial.launch("ran");
        let took = begin.elapsed();
        match trial.refusal(&launched, &["more names to hide"]) {
            Finding::Contained(_) if trial.walls == Walls::Standing && took > Duration::from_secs(5) => {
                Finding::Open(format!("refused after {took:?}"))
            }
            other => other,
        }
    },
    ..ROW
};
