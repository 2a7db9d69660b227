//! Rows about processes: pid 1, the supervisor, neighbours, orphans, threads, privileges.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam_plan::{MountKind, Step};
use cofferdam_testkit::{edit, leaks};

use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

/// With the walls open the probe does the same to a dumpable child of its own.
fn deputy(trial: &Trial) -> Finding {
    let check = if trial.walls == Walls::Standing { "b06" } else { "b06-own" };
    trial.answer(&trial.launch(check))
}

pub(crate) static B06: Row = Row {
    what: "pid 1 as a deputy",
    control: "pid 1 is not dumpable, has no descriptors and the same filter",
    run: deputy,
    off: Off::Edit(|_, _| {}),
    ..ROW
};

pub(crate) static B08: Row = Row {
    what: "reliance on Yama",
    control: "none: the same as B06, where Yama is off or absent",
    run: |trial| match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) if scope.trim() != "0" => {
            Finding::Skipped(format!("Yama is on here (ptrace_scope {})", scope.trim()))
        }
        _ => deputy(trial),
    },
    off: Off::Edit(|_, _| {}),
    ..ROW
};

pub(crate) static B07: Row = Row {
    what: "the supervisor",
    control: "own pid namespace, own /proc",
    before: |place, _| {
        fs::write(place.project().join("supervisor"), std::process::id().to_string()).map_err(|error| error.to_string())
    },
    off: Off::Edit(|plan, _| edit::drop_mounts(plan, |mount| mount.kind == MountKind::Proc)),
    ..ROW
};

pub(crate) static B19: Row = Row {
    what: "kill(-1)",
    control: "pid namespace",
    run: |trial| {
        let Ok(mut neighbour) = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn()
        else {
            return Finding::Broken("no neighbour".to_owned());
        };
        let launched = trial.launch("b19");
        let alive = matches!(neighbour.try_wait(), Ok(None));
        let ended = neighbour.kill().and_then(|()| neighbour.wait());
        match trial.answer(&launched) {
            Finding::Contained(_) if !alive => Finding::Open("a neighbour died".to_owned()),
            Finding::Contained(_) if launched.report.error.is_some() => Finding::Open("the supervisor died".to_owned()),
            _ if ended.is_err() => Finding::Broken("the neighbour cannot be ended".to_owned()),
            other => other,
        }
    },
    off: Off::Edit(|plan, _| edit::share_processes(plan)),
    ..ROW
};

pub(crate) static B20: Row = Row {
    what: "orphans of a killed supervisor",
    control: "parent-death signal and pid namespace",
    run: orphans,
    off: Off::Edit(|plan, _| edit::share_processes(plan)),
    ..ROW
};

fn orphans(trial: &Trial) -> Finding {
    let mut helper = trial.start("b20", Stdio::null());
    let ready = helper.wait_for(&trial.project().join("ready"), Duration::from_secs(30));
    let before = leaks::processes(&trial.scene).len();
    let killed = helper.child.kill().and_then(|()| helper.child.wait());
    let alive = leaks::processes_within(&trial.scene, Duration::from_secs(1));
    for pid in &alive {
        if let Err(errno) = raw::syscall(libc::SYS_kill, [*pid as usize, 9, 0, 0, 0, 0])
            && errno != libc::ESRCH
        {
            return Finding::Broken(format!("cannot end {pid}: errno {errno}"));
        }
    }
    release_stand_ins(trial);
    match (ready, killed) {
        (Ok(true), Ok(_)) if alive.is_empty() => Finding::Contained(format!("0 of {before} processes after a second")),
        (Ok(true), Ok(_)) => Finding::Open(format!("{} of {before} processes live on", alive.len())),
        other => Finding::Broken(format!("{other:?}")),
    }
}

/// A killed supervisor leaves its stand-ins (docs/decisions/0003) and its directory (0016); sessions after it remove them
/// when they have a moment, so a short one may leave that to the next.
fn release_stand_ins(trial: &Trial) {
    let sessions = trial.scene.home().join(".local/state/cofferdam/sessions");
    for _ in 0..20 {
        let launched = trial.launch("ran");
        if launched.report.code != 0 {
            eprintln!("the session after the killed one: {:?}", launched.report);
        }
        if std::fs::read_dir(&sessions).map_or(true, |mut left| left.next().is_none()) {
            return;
        }
    }
}

pub(crate) static C16: Row = Row {
    what: "set-user-ID programs",
    control: "no_new_privs, nosuid on every mount",
    off: Off::Edit(|plan, _| {
        edit::keep_capabilities(plan);
        // Landlock sets the flag by itself.
        edit::drop_steps(plan, |step| matches!(step, Step::NoNewPrivileges | Step::Landlock(_)));
    }),
    ..ROW
};

pub(crate) static C17: Row = Row {
    what: "capabilities",
    control: "all five sets are emptied",
    off: Off::Edit(|plan, _| edit::keep_capabilities(plan)),
    ..ROW
};

pub(crate) static C21: Row = Row {
    what: "a thread or process without the filter",
    control: "the filter is installed before the first fork inside",
    off: Off::Edit(|plan, _| edit::drop_steps(plan, |step| *step == Step::Seccomp)),
    ..ROW
};
