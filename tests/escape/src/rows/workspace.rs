//! Rows about what the host executes later: git hooks and configuration, pointers between repositories, agents' files.

use std::path::Path;
use std::process::{Command, Stdio};

use cofferdam_plan::LaunchPlan;
use cofferdam_testkit::{Place, edit};

use super::refusals::mount;
use super::repository;
use crate::launching::enter_namespaces;
use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, probe_argv};

pub(super) fn unprotect(plan: &mut LaunchPlan, place: &Place) {
    edit::drop_holds(plan);
    for project in ["project", "bare", "linked"] {
        edit::drop_mounts_below(plan, &place.home().join(project));
    }
}

/// Names below the scene's home that the probe tries to change.
pub(super) fn attempt(trial: &Trial, names: &[&str], directory: &Path) -> Finding {
    trial.scene.list("names", names.iter().map(|name| format!("home/{name}")));
    trial.answer(&trial.launch_in(trial.check(), directory, &[]))
}

/// A repository with the two things that the host's git executes.
fn armed(place: &Place, at: &str) {
    repository(place, at);
    place.write(format!("{at}/config"), "[core]\n");
    place.write(format!("{at}/hooks/post-commit"), "");
}

pub(crate) static E12: Row = Row {
    what: "git hooks and configuration",
    control: "read-only mounts, also where .git is a link",
    run: |trial| {
        let project = trial.project();
        armed(&trial.scene, "home/project/.git");
        let names =
            ["project/.git/hooks", "project/.git/hooks/post-commit", "project/.git/config", "project/.git/commondir"];
        attempt(trial, &names, &project).and_then(|| {
            // The same behind a link: a repository kept under another name.
            if let Err(error) = std::fs::rename(project.join(".git"), project.join("real")) {
                return Finding::Broken(error.to_string());
            }
            trial.scene.link("home/project/.git", "real");
            attempt(trial, &["project/real/hooks", "project/real/config"], &project).and_then(|| {
                // And the link itself stays where it is.
                trial.scene.write("home/project/names", "home/project/.git\nhome/project/real\n");
                trial.answer(&trial.launch("a16"))
            })
        })
    },
    off: Off::Edit(unprotect),
    ..ROW
};

pub(crate) static E14: Row = Row {
    what: "a .git file that points to another repository",
    control: "pointers must agree in both directions",
    argv: |place, check| match check {
        "commit" => ["git", "-c", "user.name=t", "-c", "user.email=t", "commit", "--allow-empty", "-q", "-m", "inside"]
            .map(str::to_owned)
            .to_vec(),
        check => probe_argv(place, check),
    },
    run: |trial| {
        armed(&trial.scene, "outside/repository");
        let entry = trial.scene.directory("outside/repository/worktrees/victim");
        trial.scene.write("outside/repository/worktrees/victim/gitdir", "/elsewhere/.git\n");
        trial.scene.write("outside/repository/worktrees/victim/commondir", "../..\n");
        trial.scene.write("home/project/.git", &format!("gitdir: {}\n", entry.display()));
        trial.probe().and_then(|| commits_in_linked_worktree(trial))
    },
    off: Off::Edit(|plan, place| edit::grant(plan, &place.outside().join("repository"))),
    ..ROW
};

/// What the refusal must not break: a real linked worktree can commit, and its hooks stay closed.
fn commits_in_linked_worktree(trial: &Trial) -> Finding {
    let home = trial.scene.home();
    let git = |arguments: &[&str], directory: &Path| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t"];
        let mut command = Command::new("git");
        command.args(identity).args(arguments).current_dir(directory).env("HOME", &home).stdin(Stdio::null());
        command.env_remove("GIT_DIR").output().ok().filter(|output| output.status.success())
    };
    let main = trial.scene.directory("home/main");
    let linked = home.join("linked");
    let made = git(&["init", "-q"], &main)
        .and_then(|_| git(&["commit", "-q", "--allow-empty", "-m", "first"], &main))
        .and_then(|_| git(&["worktree", "add", "-q", &linked.to_string_lossy()], &main));
    if made.is_none() {
        return Finding::Skipped("git is not there, or cannot make a linked worktree".to_owned());
    }
    let launched = trial.launch_in("commit", &linked, &[]);
    let log =
        git(&["log", "--format=%s", "-1"], &linked).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if log.as_deref().map(str::trim) == Some("inside") {
        Finding::Contained("a linked worktree commits".to_owned())
    } else {
        Finding::Broken(format!("no commit in a linked worktree: {:?} {}", launched.report, launched.stderr.trim()))
    }
}

pub(crate) static E15: Row = Row {
    what: "repositories of submodules, bare repositories",
    control: "hooks and configuration of each are read-only",
    run: |trial| {
        for at in ["project/.git", "project/.git/modules/one", "project/.git/modules/group/two", "bare"] {
            armed(&trial.scene, &format!("home/{at}"));
        }
        let names = [
            "project/.git/modules/one/hooks",
            "project/.git/modules/one/config",
            "project/.git/modules/group/two/hooks",
            "project/.git/modules/group/two/config",
        ];
        attempt(trial, &names, &trial.project())
            .and_then(|| attempt(trial, &["bare/hooks", "bare/config"], &trial.scene.home().join("bare")))
    },
    off: Off::Edit(unprotect),
    ..ROW
};

pub(crate) static E16: Row = Row {
    what: "hooks, servers and tasks of agents and editors",
    control: "read-only mounts, also where the name is a link",
    run: |trial| {
        let files = [
            ".claude/settings.json",
            ".mcp.json",
            ".cursor/mcp.json",
            ".codex/config.toml",
            ".gemini/settings.json",
            ".vscode/tasks.json",
            ".envrc",
            ".husky/pre-commit",
        ];
        let mut names = vec!["project/.claude".to_owned(), "project/.vscode".to_owned()];
        for file in files {
            trial.scene.write(format!("home/project/{file}"), "{}");
            names.push(format!("project/{file}"));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        attempt(trial, &names, &trial.project()).and_then(|| {
            let project = trial.project();
            if let Err(error) = std::fs::rename(project.join(".claude"), project.join("agents")) {
                return Finding::Broken(error.to_string());
            }
            trial.scene.link("home/project/.claude", "agents");
            attempt(trial, &["project/agents/settings.json", "project/.claude"], &project)
        })
    },
    off: Off::Edit(unprotect),
    ..ROW
};

pub(crate) static E19: Row = Row {
    what: "other spellings of protected names",
    control: "mounts cover what the file system finds under a name, in any spelling",
    // A file system that knows no case, in namespaces around the sandbox.
    before: |place, _| {
        let project = place.project();
        enter_namespaces(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        mount("tmpfs", &project.to_string_lossy(), "casefold=utf8-12.1.0")?;
        ignore_case(&project)?;
        armed(place, "home/project/.git");
        place.write("home/project/names", "home/project/.GIT/hooks\nhome/project/.Git/config\nhome/project/.CLAUDE\n");
        Ok(())
    },
    argv: |place, _| probe_argv(place, "e12"),
    run: |trial| {
        let launched = trial.launch("e12");
        match &launched.report.error {
            Some(error) if error.contains("cannot prepare") => {
                Finding::Skipped("no file system that ignores case can be made here".to_owned())
            }
            _ => trial.answer(&launched),
        }
    },
    off: Off::Edit(unprotect),
    ..ROW
};

fn ignore_case(directory: &Path) -> Result<(), String> {
    use std::os::fd::AsRawFd as _;
    const SET_FLAGS: usize = 0x4008_6602;
    const CASEFOLD: i64 = 0x4000_0000;
    let file = std::fs::File::open(directory).map_err(|error| error.to_string())?;
    let flags = CASEFOLD;
    let fd = usize::try_from(file.as_raw_fd()).unwrap_or(0);
    raw::syscall(libc::SYS_ioctl, [fd, SET_FLAGS, (&raw const flags) as usize, 0, 0, 0])
        .map(drop)
        .map_err(|errno| format!("casefold: errno {errno}"))
}
