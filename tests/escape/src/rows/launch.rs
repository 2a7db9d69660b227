//! Rows about what the launch hands to the command: descriptors, environment, arguments, the same walls for all.

use std::fs;

use cofferdam_plan::{LaunchPlan, Step};
use cofferdam_policy::{Isolation, Origin, Ruled};
use cofferdam_testkit::{Place, edit, program};

use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls, probe_argv};

pub(crate) static A01: Row = Row {
    what: "leaked descriptors and working directory",
    control: "close_range before exec; chdir to the project",
    before: |_, _| leak_descriptors(),
    off: Off::Bare,
    ..ROW
};

/// Descriptors that survive exec: the root directory and a file, where a launcher might have forgotten them.
fn leak_descriptors() -> Result<(), String> {
    for path in [c"/", c"/etc/passwd"] {
        let opened = raw::syscall(libc::SYS_open, [path.as_ptr() as usize, 0, 0, 0, 0, 0]);
        opened.map_err(|errno| format!("cannot leak a descriptor: errno {errno}"))?;
    }
    Ok(())
}

pub(crate) static A02: Row = Row {
    what: "the launcher's program through /proc",
    control: "pid 1 cannot be traced, so its exe link cannot be used; own program read-only or busy",
    run: |trial| {
        // All of it, not a hash: in a debug build under an emulator, hashing took a minute.
        let content = || program("escape-runner").and_then(|path| fs::read(path).ok());
        let before = content();
        let finding = trial.probe();
        if content() == before { finding } else { Finding::Broken("the launcher's program was changed".to_owned()) }
    },
    off: Off::Bare,
    ..ROW
};

pub(crate) static A11: Row = Row {
    what: "a command that looks like an option",
    control: "arguments are a list, never parsed again",
    argv: |_, _| ["--bind", "/", "/"].map(str::to_owned).to_vec(),
    run: |trial| {
        let launched = trial.launch("none");
        match (launched.report.code, &launched.report.error) {
            (127, Some(error)) => Finding::Contained(format!("127: {error}")),
            (code, error) => Finding::Open(format!("code {code}, {error:?}: read as an option")),
        }
    },
    // Through a program that reads options, as a careless launcher would.
    off: Off::Edit(|plan, _| plan.command.argv.insert(0, "/usr/bin/env".to_owned())),
    ..ROW
};

pub(super) fn inherit_everything(plan: &mut LaunchPlan, _: &Place) {
    plan.command.environment.extend(std::env::vars());
}

pub(crate) static A12: Row = Row {
    what: "variables that carry code",
    control: "the environment is built, never inherited",
    environment: &[
        ("LD_LIBRARY_PATH", "/nonexistent"),
        ("BASH_ENV", "/nonexistent"),
        ("ENV", "/nonexistent"),
        ("GIT_DIR", "/nonexistent"),
        ("GIT_SSH_COMMAND", "false"),
        ("GIT_EXTERNAL_DIFF", "false"),
        ("NODE_OPTIONS", "--require=/nonexistent"),
        ("PYTHONSTARTUP", "/nonexistent"),
        ("PERL5OPT", "-Mnone"),
        ("RUBYOPT", "-rnone"),
        ("PROMPT_COMMAND", "false"),
        ("BASH_FUNC_ls%%", "() { false; }"),
    ],
    off: Off::Edit(inherit_everything),
    ..ROW
};

pub(crate) static B21: Row = Row {
    what: "secrets in the environment",
    control: "environment by allow-list; pid 1's cannot be read",
    environment: &[
        ("AWS_SECRET_ACCESS_KEY", "canary-of-the-host"),
        ("GITHUB_TOKEN", "canary-of-the-host"),
        ("DATABASE_URL", "postgres://user:canary-of-the-host@db"),
        ("SOMETHING", "canary-of-the-host"),
    ],
    off: Off::Edit(inherit_everything),
    ..ROW
};

/// Namespaces that the chosen isolation makes anew.
fn note_namespaces(place: &Place, _: Walls) -> Result<(), String> {
    let mut kinds = vec!["user", "pid", "mnt", "ipc"];
    if !is_variant("process") {
        kinds.extend(["net", "uts", "cgroup"]);
    }
    let links = kinds.iter().filter_map(|kind| fs::read_link(format!("/proc/self/ns/{kind}")).ok());
    let links: Vec<String> = links.map(|link| link.display().to_string()).collect();
    fs::write(place.project().join("host-namespaces"), links.join("\n")).map_err(|error| error.to_string())
}

pub(crate) fn is_variant(name: &str) -> bool {
    std::env::var("COFFERDAM_TEST_VARIANT").is_ok_and(|value| value == name)
}

pub(crate) static A14: Row = Row {
    what: "a way to start that skips the sandbox",
    control: "one way to start; the filter and the namespaces come before exec",
    before: note_namespaces,
    policy: |policy, _| {
        if is_variant("process") {
            policy.isolation = Ruled::new(Isolation::Process, Origin::flag("--isolation"));
        }
    },
    argv: |place, _| {
        let line = probe_argv(place, "a14").join(" ");
        if is_variant("script") {
            vec![place.project().join("script").to_string_lossy().into_owned()]
        } else if is_variant("shell") {
            vec!["sh".to_owned(), "-c".to_owned(), format!("( {line} )")]
        } else {
            probe_argv(place, "a14")
        }
    },
    run: every_way,
    off: Off::Edit(|plan, _| edit::drop_steps(plan, |step| *step == Step::Seccomp)),
    ..ROW
};

fn every_way(trial: &Trial) -> Finding {
    use std::os::unix::fs::PermissionsExt as _;
    let line = probe_argv(&trial.scene, "a14").join(" ");
    let script = trial.scene.write("home/project/script", &format!("#!/bin/sh\nexec {line}\n"));
    if let Err(error) = fs::set_permissions(script, fs::Permissions::from_mode(0o755)) {
        return Finding::Broken(error.to_string());
    }
    let start = |variant: &str| {
        let launched = trial.launch_in("a14", &trial.project(), &[("COFFERDAM_TEST_VARIANT", variant)]);
        match trial.answer(&launched) {
            Finding::Contained(how) => Finding::Contained(format!("{variant}: {how}")),
            other => other,
        }
    };
    start("direct").and_then(|| start("script")).and_then(|| start("shell")).and_then(|| start("process"))
}
