//! Rows about launches that must not happen, or must not be deceived: fake /proc, swapped paths, no namespaces.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_plan::Step;
use cofferdam_policy::Access;
use cofferdam_testkit::{Place, edit, leaks, program};

use super::{repository, rule};
use crate::launching::enter_namespaces;
use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

/// Mounts a file system in this process's own mount namespace.
pub(crate) fn mount(kind: &str, target: &str, options: &str) -> Result<(), String> {
    let text = |text: &str| std::ffi::CString::new(text).unwrap_or_default();
    let (kind, target, options) = (text(kind), text(target), text(options));
    let arguments =
        [kind.as_ptr() as usize, target.as_ptr() as usize, kind.as_ptr() as usize, 0, options.as_ptr() as usize, 0];
    raw::syscall(libc::SYS_mount, arguments).map(drop).map_err(|errno| format!("mount: errno {errno}"))
}

pub(crate) static A05: Row = Row {
    what: "a fake /proc",
    control: "procfs is checked by its magic number before anything is written to it",
    before: |_, walls| {
        enter_namespaces(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        if walls == Walls::Standing { mount("tmpfs", "/proc", "") } else { Ok(()) }
    },
    // Stand-ins need /proc as well, and would refuse first.
    arrange: edit::drop_holds,
    run: |trial| trial.refusal(&trial.launch("ran"), &["not a procfs"]),
    // The check is no step: without the fake, the same launch goes ahead.
    off: Off::Edit(|_, _| {}),
    ..ROW
};

pub(crate) static A07: Row = Row {
    what: "a parent becomes a link after the survey",
    control: "every name is opened and made without following links",
    swap: |place| {
        let git = place.project().join(".git");
        if fs::rename(&git, place.project().join(".git-old")).is_ok() {
            place.link("home/project/.git", place.outside().join("repository"));
        }
    },
    run: |trial| {
        repository(&trial.scene, "home/project/.git");
        repository(&trial.scene, "outside/repository");
        let finding = trial.refusal(&trial.launch("ran"), &["symbolic links", "Not a directory", "replaced"]);
        match made_outside(&trial.scene) {
            Some(name) => Finding::Open(format!("{name} was made outside")),
            None => finding,
        }
    },
    off: Off::Edit(|plan, place| {
        edit::drop_holds(plan);
        edit::drop_mounts_below(plan, &place.project());
    }),
    ..ROW
};

/// What is in the repository outside that the row did not put there.
pub(crate) fn made_outside(place: &Place) -> Option<String> {
    let entries = fs::read_dir(place.outside().join("repository")).into_iter().flatten().flatten();
    let known = ["HEAD", "objects", "refs", "hooks"];
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).find(|name| !known.contains(&name.as_str()))
}

pub(crate) static A08: Row = Row {
    what: "a granted directory is swapped after the survey",
    control: "device and inode of every source are compared before it is bound",
    policy: |policy, place| rule(policy, &place.root().join("data"), Access::Write),
    swap: |place| {
        if fs::rename(place.root().join("data"), place.root().join("data-old")).is_ok() {
            place.write("data/secret", "of the host");
        }
    },
    run: |trial| {
        trial.scene.directory("data");
        let launched = trial.launch("a08");
        match &launched.report.error {
            Some(error) if error.contains("replaced") && launched.stdout.is_empty() => {
                Finding::Contained(error.clone())
            }
            _ => trial.answer(&launched),
        }
    },
    off: Off::Edit(|plan, _| edit::forget_identities(plan)),
    ..ROW
};

pub(crate) static A09: Row = Row {
    what: "a set-user-ID copy of the command",
    control: "the command refuses to run with more rights than its caller",
    run: set_user_id_copy,
    ..ROW
};

/// Root's copy of the command, run by another user. It lies where that user can reach it.
fn set_user_id_copy(trial: &Trial) -> Finding {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    const NOBODY: u32 = 65534;
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Finding::Skipped("only root can make a set-user-ID copy that another user runs".to_owned());
    }
    let Some(command) = program("sandbox") else {
        return Finding::Skipped("the command `sandbox` was not built".to_owned());
    };
    let directory = PathBuf::from("/var/tmp").join(trial.scene.name());
    let copy = directory.join("sandbox");
    let home = directory.join("home");
    let mode = if trial.walls == Walls::Standing { 0o4755 } else { 0o755 };
    let made = fs::create_dir(&directory)
        .and_then(|()| fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)))
        .and_then(|()| {
            program("sandbox-egress").map_or(Ok(0), |egress| fs::copy(egress, directory.join("sandbox-egress")))
        })
        .and_then(|_| fs::copy(command, &copy))
        .and_then(|_| fs::set_permissions(&copy, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::create_dir(&home))
        .and_then(|()| std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)));
    let output = made.and_then(|()| {
        Command::new(&copy)
            .args(["run", "--", "/bin/echo", "ran"])
            .current_dir("/")
            .env_clear()
            .env("HOME", &home)
            .env("PATH", "/usr/bin:/bin")
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::null())
            .output()
    });
    let removed = fs::remove_dir_all(&directory);
    match (output, removed) {
        (Ok(output), Ok(())) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
            match output.status.code() {
                _ if String::from_utf8_lossy(&output.stdout).contains("ran") => {
                    Finding::Open("the command ran".to_owned())
                }
                Some(125 | 126) => Finding::Contained(said),
                other => Finding::Broken(format!("{other:?} {said}")),
            }
        }
        (Err(error), _) | (_, Err(error)) => Finding::Broken(error.to_string()),
    }
}

pub(crate) static A10: Row = Row {
    what: "the child dies before its ids are mapped",
    control: "the child maps itself; nobody writes to /proc/<pid>",
    // The child waits for a message that never comes, before it maps its ids.
    arrange: |plan| {
        edit::drop_holds(plan);
        plan.steps.insert(0, Step::AwaitHolds);
    },
    run: killed_before_the_map,
    // Maps first, waits then: what a child looks like for which its parent has written a map.
    off: Off::Edit(|plan, _| {
        plan.steps.remove(0);
        let after = plan.steps.iter().position(|step| matches!(step, Step::MapIds { .. })).map_or(0, |at| at + 1);
        plan.steps.insert(after, Step::AwaitHolds);
    }),
    ..ROW
};

fn killed_before_the_map(trial: &Trial) -> Finding {
    let helper = trial.start("ran", Stdio::null());
    let launcher = helper.child.id();
    let deadline = Instant::now() + Duration::from_secs(5);
    let child = loop {
        match leaks::processes(&trial.scene).into_iter().find(|pid| *pid != launcher) {
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            found => break found,
        }
    };
    let Some(child) = child else { return Finding::Broken("no child was seen".to_owned()) };
    let read = || fs::read_to_string(format!("/proc/{child}/uid_map"));
    let map = match trial.walls {
        Walls::Standing => {
            std::thread::sleep(Duration::from_millis(200));
            read()
        }
        // On a busy machine the child may take longer to get there.
        Walls::Open => {
            let deadline = Instant::now() + Duration::from_secs(5);
            loop {
                match read() {
                    Ok(map) if map.trim().is_empty() && Instant::now() < deadline => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    read => break read,
                }
            }
        }
    };
    let killed = raw::syscall(libc::SYS_kill, [child as usize, 9, 0, 0, 0, 0]);
    let launched = helper.finish();
    match (map, killed, launched) {
        (Ok(map), Ok(_), Ok(_)) if !map.trim().is_empty() => Finding::Open(format!("the map says `{}`", map.trim())),
        (Ok(_), Ok(_), Ok(launched)) => trial.refusal(&launched, &["ended before the command started"]),
        (map, killed, launched) => Finding::Broken(format!("{map:?} {killed:?} {launched:?}")),
    }
}

pub(crate) static A13: Row = Row {
    what: "no sandbox can be made",
    control: "a launch that cannot make its namespaces refuses, and nothing runs",
    before: |_, _| {
        enter_namespaces(libc::CLONE_NEWUSER)?;
        fs::write("/proc/sys/user/max_user_namespaces", "0").map_err(|error| error.to_string())
    },
    run: |trial| {
        let launched = trial.launch("ran");
        match trial.refusal(&launched, &["cannot create the namespaces"]) {
            Finding::Contained(why) if launched.report.code == 125 => Finding::Contained(format!("125: {why}")),
            Finding::Contained(why) => Finding::Open(format!("code {}: {why}", launched.report.code)),
            other => other,
        }
    },
    off: Off::Edit(|plan, _| edit::no_walls(plan)),
    ..ROW
};
