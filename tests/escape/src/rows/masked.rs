//! Rows about files that tools need and that hold secrets: they read without them, in every mode.

use cofferdam_plan::{LaunchPlan, MountKind, Step};
use cofferdam_testkit::Place;

use super::gate;
use super::launch::is_variant;
use crate::row::{Finding, Off, ROW, Row, Walls};

/// Below the home of the scene. The last two lie in the project, which is written directly.
const FILES: [(&str, &str); 7] = [
    (".cargo/config.toml", "[registries.mine]\nindex = \"kept\"\ntoken = \"canary\"\n"),
    (".gitconfig", "[user]\nname = kept\n[http]\nextraheader = Authorization: Basic canary\n"),
    (".npmrc", "registry=https://kept.example\n//kept.example/:_authToken=canary\n"),
    (".config/pip/pip.conf", "[global]\nindex-url = https://u:canary@kept.example/simple\n"),
    (".bashrc", "alias kept=ls\nexport GITHUB_TOKEN=canary\n"),
    ("project/.npmrc", "kept=1\n//r.example/:_authToken=canary\n"),
    ("project/.git/config", "[remote \"origin\"]\n\turl = https://u:canary@kept.example/r.git\n"),
];

const WITH_SECRET: &str = "was read with its secret";

/// As before: what is masked is the file itself, read-only.
fn show_whole(plan: &mut LaunchPlan, _: &Place) {
    for step in &mut plan.steps {
        let Step::Mount(mount) = step else { continue };
        if let MountKind::Text(text) = &mount.kind
            && text.contains("***")
        {
            mount.kind = MountKind::Bind { source: mount.target.clone(), id: None, write: false, exec: false };
        }
        if let MountKind::Filtered { hidden, .. } = &mut mount.kind {
            hidden.retain(|one| !one.text.as_ref().is_some_and(|text| text.contains("***")));
        }
    }
}

pub(crate) static B22: Row = Row {
    what: "secrets in files that tools need",
    control: "rendered without the values of secret names, by the gate or as a text of the set-up",
    session: |session, place| {
        if !is_variant("static") {
            gate::asking(session, place);
        }
    },
    run: |trial| {
        for (name, text) in FILES {
            trial.scene.write(trial.scene.home().join(name), text);
        }
        trial.scene.write("home/project/.git/HEAD", "ref: refs/heads/main\n");
        trial.scene.write("home/project/.git/objects/info/x", "");
        trial.scene.write("home/project/.git/refs/x", "");
        trial.scene.list("names", FILES.iter().map(|(name, _)| trial.scene.home().join(name).display().to_string()));
        let look =
            |way: &str| trial.answer(&trial.launch_in("b22", &trial.project(), &[("COFFERDAM_TEST_VARIANT", way)]));
        // What the gate renders is no step of a plan.
        if trial.walls == Walls::Open {
            return match look("static") {
                Finding::Open(how) if !how.contains(WITH_SECRET) => Finding::Broken(how),
                found => found,
            };
        }
        let has_device = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
        let found = look("static").and_then(|| look("calls"));
        if has_device { found.and_then(|| look("fuse")) } else { found }
    },
    off: Off::Edit(show_whole),
    ..ROW
};

/// Inside: every way to read each of them.
pub(crate) fn look(place: &Place) -> Finding {
    let names = std::fs::read_to_string(place.project().join("names")).unwrap_or_default();
    for name in names.lines() {
        let read = match crate::probe::ways_to_read(std::path::Path::new(name)) {
            Ok(read) => read,
            Err(error) => return Finding::Open(format!("{name}: {error}")),
        };
        if read.iter().any(|text| text.contains("canary")) {
            return Finding::Open(format!("{name} {WITH_SECRET}"));
        }
        if !read.iter().all(|text| text.contains("kept")) {
            return Finding::Open(format!("{name} does not read as it is otherwise: {read:?}"));
        }
        if std::fs::OpenOptions::new().append(true).open(name).is_ok() {
            return Finding::Open(format!("{name} can be written"));
        }
    }
    Finding::Contained(format!("{} files read without their secrets", names.lines().count()))
}
