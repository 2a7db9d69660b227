//! Rows about a second mount of the same tree: what is hidden or protected has the same verdict under every name.

use std::path::Path;
use std::rc::Rc;

use cofferdam_policy::Access;
use cofferdam_supervisor::Decider;
use cofferdam_testkit::{Launched, edit};
use cofferdam_wire::{Keep, Reach, Verdict};

use super::gate::asking;
use super::launch::is_variant;
use super::{repository, rule};
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

/// Made in a mount namespace of the trial's own: each kind of alias that needs no disk of its own.
const MOUNTS: &str = r#"
set -e
home=$0/home; at=$0/outside/names
mount --bind $home $at/home
mount --bind $home/.ssh $at/directory
mount --bind $home/.ssh/id_canary $at/file
mount -t tmpfs none $home/.aws
echo canary > $home/.aws/id_canary
mount --bind $home/.aws $at/memory
mount --rbind $at/home $at/again
mount -t overlay none -o ro,lowerdir=$home:$at/empty $at/overlay
mount --bind $home/project $0/outside/work
exec "$@"
"#;

pub(crate) static A17: Row = Row {
    what: "a second mount of the same tree",
    control: "what is closed is compared with every mount, by device and root; what cannot be compared is hidden",
    policy: |policy, place| rule(policy, &place.outside().join("work"), Access::Write),
    session: |session, place| {
        if is_variant("static") {
            return;
        }
        asking(session, place);
        rule(&mut session.policy, &place.outside().join("work"), Access::Write);
        if is_variant("fuse-given") || is_variant("calls-given") {
            rule(&mut session.policy, &place.outside(), Access::Read);
        }
        session.without_fuse = is_variant("calls-given") || is_variant("calls-asked");
        let allow = Verdict::Allow { reach: Reach::Dir, keep: Keep::Session };
        session.decider = Some(Decider(Rc::new(move |_| Some(allow))));
    },
    run: |trial| {
        trial.scene.write("home/.ssh/id_canary", "canary");
        trial.scene.directory("home/.aws");
        trial.scene.write("home/notes", "no secret");
        repository(&trial.scene, "home/project/.git");
        trial.scene.write("home/project/.git/config", "[core]\n");
        trial.scene.directory("home/project/.git/hooks");
        for name in ["home", "directory", "memory", "again", "overlay", "empty"] {
            trial.scene.directory(format!("outside/names/{name}"));
        }
        trial.scene.directory("outside/work");
        trial.scene.write("outside/names/file", "");
        let variants: &[&str] = match trial.walls {
            Walls::Open => &["static"],
            Walls::Standing => &["static", "fuse-given", "fuse-asked", "calls-given", "calls-asked"],
        };
        let mut finding = Finding::Contained(String::new());
        for variant in variants {
            finding = finding.and_then(|| match trial.answer(&launch(trial, variant)) {
                Finding::Open(how) => Finding::Open(format!("{variant}: {how}")),
                Finding::Broken(why) => Finding::Broken(format!("{variant}: {why}")),
                other => other,
            });
        }
        match finding {
            Finding::Contained(_) => Finding::Contained(format!("7 kinds of mounts in {}", variants.join(", "))),
            other => other,
        }
    },
    off: Off::Edit(|plan, place| {
        edit::drop_holds(plan);
        edit::drop_mounts_below(plan, &place.outside().join("names"));
        edit::drop_mounts_below(plan, &place.outside().join("work"));
    }),
    ..ROW
};

fn launch(trial: &Trial, variant: &str) -> Launched {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut words = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTS].map(str::to_owned).to_vec();
    words.push(text(trial.scene.root()));
    trial.launch_behind(&words, "a17", &[("COFFERDAM_TEST_VARIANT", variant)])
}
