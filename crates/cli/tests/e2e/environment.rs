//! The environment inside is built, not inherited.

use crate::support::{Place, binary, finish};

const SECRETS: &[(&str, &str)] = &[
    ("AWS_SECRET_ACCESS_KEY", "hunter2"),
    ("AWS_SESSION_TOKEN", "hunter2"),
    ("GITHUB_TOKEN", "hunter2"),
    ("NPM_TOKEN", "hunter2"),
    ("OPENAI_API_KEY", "hunter2"),
    ("DATABASE_URL", "postgres://me:hunter2@db/x"),
    ("PGPASSWORD", "hunter2"),
    ("MY_SECRET", "hunter2"),
    ("SSH_AUTH_SOCK", "/run/hunter2"),
    ("DOCKER_HOST", "unix:///run/hunter2"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/hunter2"),
    ("LD_PRELOAD", "/nonexistent/hunter2.so"),
    ("LD_LIBRARY_PATH", "/nonexistent/hunter2"),
    ("BASH_ENV", "/nonexistent/hunter2"),
    ("ENV", "/nonexistent/hunter2"),
    ("PROMPT_COMMAND", "echo hunter2"),
    ("GIT_ASKPASS", "/nonexistent/hunter2"),
    ("PYTHONSTARTUP", "/nonexistent/hunter2"),
    ("UNHEARD_OF", "hunter2"),
];

#[test]
fn secrets_and_hooks_of_the_environment_do_not_come_along() {
    let place = Place::new();
    let mut command = place.command(binary());
    // LD_PRELOAD makes the loader of every program outside complain, so stderr is not looked at.
    command.args(["run", "--", "env"]).envs(SECRETS.iter().copied());
    let out = finish(&mut command, b"").ok();
    assert!(!out.contains("hunter2"), "{out}");
    for name in ["HOME=", "PATH=", "LANG=C.UTF-8", "TERM=xterm", "USER="] {
        assert!(out.lines().any(|line| line.starts_with(name)), "{name} is missing:\n{out}");
    }
}

#[test]
fn env_passes_a_variable_by_name_and_sets_one_by_value() {
    let place = Place::new();
    let mut command = place.command(binary());
    command.args(["run", "--env", "GITHUB_TOKEN", "--env", "MODE=a=b", "--env", "NOT_SET", "--", "env"]);
    let out = finish(command.env("GITHUB_TOKEN", "t0ken").env("NPM_TOKEN", "hunter2"), b"").ok();
    assert!(out.contains("GITHUB_TOKEN=t0ken\n") && out.contains("MODE=a=b\n"), "{out}");
    assert!(!out.contains("NOT_SET") && !out.contains("hunter2"), "{out}");
}

#[test]
fn the_command_can_tell_that_it_is_inside() {
    let place = Place::new();
    assert_eq!(place.inside("echo $COFFERDAM $TMPDIR").ok(), "1 /tmp\n");
}

#[test]
fn cofferdam_variables_are_a_policy_layer() {
    let place = Place::new();
    place.write("home:data/file", "old");
    let data = place.path("home:data").display().to_string();
    let run = |variables: &[(&str, &str)], flags: &[&str], script: &str| {
        let mut command = place.command(binary());
        command.arg("run").args(flags).args(["--", "bash", "-c", script]).envs(variables.iter().copied());
        finish(&mut command, b"")
    };
    run(&[("COFFERDAM_RW", &data)], &[], "echo new > ~/data/file").ok();
    assert_eq!(place.read("home:data/file").as_deref(), Some("new\n"));
    run(&[("COFFERDAM_BLACKLIST", &data)], &[], "cat ~/data/file").code(1);
    run(&[("COFFERDAM_TIMEOUT", "1s")], &[], "sleep 20").code(124);
    // Flags are the later layer.
    run(&[("COFFERDAM_TIMEOUT", "1s")], &["--timeout", "20s"], "sleep 1.5").ok();
    run(&[("COFFERDAM_RWX", &data)], &[], "true").code(125).says(&["COFFERDAM_RWX"]);
    run(&[("COFFERDAM_ISOLATION", "weak")], &[], "true").code(125).says(&["none, process, full"]);
}

#[test]
fn variables_that_did_not_come_along_are_named_when_a_command_fails() {
    let place = Place::new();
    let run = |script: &str| {
        let mut command = place.command(binary());
        command.args(["run", "--", "sh", "-c", script]).env("DATABASE_URL", "postgres://me:hunter2@db/x");
        command.env("MY_APP_PORT", "1").env("NPM_TOKEN", "hunter2").env("LD_LIBRARY_PATH", "/nonexistent/hunter2");
        finish(command.env("SSH_CONNECTION", "a").env("XDG_SESSION_ID", "3"), b"")
    };
    let failed = run("exit 3").code(3);
    let line = "sandbox: not passed: DATABASE_URL, MY_APP_PORT; to pass one: --env DATABASE_URL\n";
    assert!(failed.err.contains(line) && !failed.err.contains("hunter2"), "{}", failed.err);
    // The control: a command that did not fail wanted none of them.
    assert!(!run("true").err.contains("not passed"));
}

#[test]
fn harmless_variables_of_servers_and_databases_come_along() {
    const HARMLESS: [&str; 7] =
        ["PORT", "DEBUG", "PGHOST", "PGUSER", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
    let place = Place::new();
    let mut command = place.command(binary());
    command.args(["run", "--", "env"]);
    command.envs(HARMLESS.map(|name| (name, "value-of-it")));
    command.envs(
        ["PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PYTHONPATH", "NODE_OPTIONS"].map(|name| (name, "hunter2")),
    );
    let out = finish(&mut command, b"").ok();
    for name in HARMLESS {
        assert!(out.contains(&format!("\n{name}=value-of-it")) || out.starts_with(name), "{name}: {out}");
    }
    assert!(!out.contains("hunter2"), "{out}");
}
