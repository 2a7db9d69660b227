//! Rows about names in the project that the host obeys later: links planted there, names that do not exist yet, parents.

use std::fs;

use cofferdam_policy::Access;
use cofferdam_testkit::edit;

use super::refusals::made_outside;
use super::{repository, rule};
use crate::row::{Finding, Off, ROW, Row, Trial};

pub(crate) static A06: Row = Row {
    what: "links planted in the project",
    control: "nothing is granted or made because of a link; links are not followed when a name is made",
    run: |trial| {
        repository(&trial.scene, "outside/repository");
        trial.scene.directory("outside/repository/hooks");
        trial.scene.link("home/project/.git", trial.scene.outside().join("repository"));
        trial.scene.link("home/project/.vscode", trial.scene.outside().join("repository"));
        let finding = trial.probe().and_then(|| {
            // A link that leads nowhere must not become something there.
            trial.scene.link("home/project/.claude", trial.scene.outside().join("missing"));
            let launched = trial.launch("a06");
            match &launched.report.error {
                Some(error) if error.contains(".claude") => Finding::Contained(format!("refused: {error}")),
                _ => trial.answer(&launched),
            }
        });
        let missing = trial.scene.outside().join("missing").symlink_metadata().is_ok().then(|| "missing".to_owned());
        match (finding, made_outside(&trial.scene).or(missing)) {
            (Finding::Contained(_), Some(name)) => Finding::Open(format!("{name} was made outside")),
            (finding, _) => finding,
        }
    },
    off: Off::Edit(|plan, place| edit::grant(plan, &place.outside().join("repository"))),
    ..ROW
};

pub(crate) static A15: Row = Row {
    what: "protected names that do not exist yet",
    control: "stand-ins hold them while the session runs",
    run: |trial| {
        let bare = [".git", ".claude", ".vscode", ".cursor", ".codex", ".gemini", ".mcp.json", ".cofferdam"];
        missing_names(trial, &bare).and_then(|| {
            repository(&trial.scene, "home/project/.git");
            missing_names(trial, &[".git/hooks", ".git/config", ".git/commondir"]).and_then(|| {
                // A protected name that leads to one that is missing.
                trial.scene.link("home/project/.codex", "later");
                missing_names(trial, &["later"])
            })
        })
    },
    off: Off::Edit(|plan, _| edit::drop_holds(plan)),
    ..ROW
};

fn missing_names(trial: &Trial, names: &[&str]) -> Finding {
    trial.scene.list("names", names.iter().map(|name| format!("home/project/{name}")));
    let finding = trial.probe();
    let left: Vec<&&str> = names.iter().filter(|name| trial.project().join(name).symlink_metadata().is_ok()).collect();
    match finding {
        Finding::Contained(_) if !left.is_empty() => Finding::Open(format!("{left:?} are left on the host")),
        other => other,
    }
}

pub(crate) static A16: Row = Row {
    what: "rename the parent of a protected path",
    control: "parents of protected paths are mount points",
    policy: |policy, place| rule(policy, &place.project().join("sub/deep/keep"), Access::Protect),
    run: |trial| {
        repository(&trial.scene, "home/project/.git");
        trial.scene.write("home/project/.git/config", "");
        trial.scene.directory("home/project/.git/hooks");
        trial.scene.write("home/project/sub/deep/keep", "");
        let names = [".git", ".git/hooks", ".git/config", "sub", "sub/deep", "sub/deep/keep"];
        trial.scene.list("names", names.iter().map(|name| format!("home/project/{name}")));
        trial.probe()
    },
    off: Off::Edit(|plan, place| {
        edit::drop_holds(plan);
        edit::drop_mounts_below(plan, &place.project());
    }),
    ..ROW
};

pub(crate) static E05: Row = Row {
    what: "a name that starts like a granted one",
    control: "paths are compared by component",
    policy: |policy, place| rule(policy, &place.root().join("ws"), Access::Write),
    run: |trial| {
        trial.scene.directory("ws");
        trial.scene.write("ws-evil/there", "");
        trial.probe()
    },
    off: Off::Edit(|plan, place| edit::grant(plan, &place.root().join("ws-evil"))),
    ..ROW
};

pub(crate) static E06: Row = Row {
    what: "the caller chooses the working directory",
    control: "system directories, the home and what lies above it are never a project",
    run: |trial| {
        let from = |directory: &std::path::Path| {
            let launched = trial.launch_in("e06", directory, &[]);
            let gone =
                launched.report.error.as_ref().filter(|error| error.contains("cannot enter the working directory"));
            match gone.map_or_else(|| trial.answer(&launched), |error| Finding::Contained(error.clone())) {
                Finding::Contained(how) => Finding::Contained(format!("from {}: {how}", directory.display())),
                other => other,
            }
        };
        let denied = trial.scene.directory("home/.aws/deep");
        let protected = trial.scene.directory("home/.config/fish/functions");
        from("/".as_ref())
            .and_then(|| from("/etc".as_ref()))
            .and_then(|| from("/usr/bin".as_ref()))
            .and_then(|| from(&trial.scene.home()))
            .and_then(|| from(trial.scene.root()))
            .and_then(|| from(&denied))
            .and_then(|| from(&protected))
    },
    off: Off::Edit(|plan, place| edit::grant(plan, &place.home())),
    ..ROW
};

pub(crate) static E18: Row = Row {
    what: "shell start-up files and directories of PATH",
    control: "read-only, also where a directory above them is given",
    policy: |policy, place| {
        rule(policy, &place.home().join(".config"), Access::Write);
        rule(policy, &place.home().join(".local"), Access::Write);
    },
    run: |trial| {
        let names = [
            ".config/autostart/x",
            ".config/fish/config.fish",
            ".local/bin/tool",
            ".bashrc",
            ".profile",
            ".config/autostart",
            ".local/bin",
        ];
        for name in names.iter().take(5) {
            trial.scene.write(format!("home/{name}"), "");
        }
        trial.scene.list("names", names.iter().map(|name| format!("home/{name}")));
        // A cache, which gets an overlay: the session must leave nothing of it, not even what the probe made there.
        trial.scene.directory("home/.npm");
        let finding = trial.probe();
        let planted = trial.scene.home().join(".config/autostart/planted");
        if matches!(finding, Finding::Contained(_)) && fs::metadata(planted).is_ok() {
            return Finding::Open("something was planted".to_owned());
        }
        finding
    },
    off: Off::Edit(|plan, place| {
        let granted = [place.home().join(".config"), place.home().join(".local")];
        edit::drop_mounts(plan, |mount| granted.iter().any(|g| mount.target.starts_with(g) && mount.target != *g));
    }),
    ..ROW
};
