//! Which directory is the home, where HOME and the password database do not agree.

use crate::support::{Place, Ran, binary, finish};

/// `sandbox ARGUMENTS` as root of a user namespace whose password database says that root's home is `home`.
fn sandbox(place: &Place, home: &str, value: Option<&str>, arguments: &[&str]) -> Ran {
    const ENTER: &str = r#"mount --bind "$0" /etc/passwd && exec "$@""#;
    place.write("home:passwd", &format!("root:x:0:0::{home}:/bin/sh\n"));
    let mut command = place.command("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", ENTER]).arg(place.path("home:passwd"));
    command.arg(binary()).args(arguments);
    match value {
        Some(value) => command.env("HOME", value),
        None => command.env_remove("HOME"),
    };
    finish(&mut command, b"")
}

#[test]
fn without_any_home_nothing_runs() {
    let Some(place) = Place::with(&["unshare", "mount"]) else { return };
    let run = ["run", "--", "touch", "ran"];
    for value in [None, Some(""), Some("home"), Some("/"), Some("/proc/1")] {
        for recorded in ["", "/", "/nonexistent/home", "/usr/sbin"] {
            let ran = sandbox(&place, recorded, value, &run).code(125);
            ran.says(&[
                "there is no home directory to keep secrets out of",
                "hint: set HOME to a directory of your own",
            ]);
            assert!(!place.exists("ran"), "HOME={value:?}, recorded {recorded}");
        }
    }
    // The same command with either of them.
    let home = place.home.display().to_string();
    sandbox(&place, "/", Some(&home), &run).ok();
    assert!(place.exists("ran"));
    sandbox(&place, &home, None, &["run", "--", "rm", "ran"]).ok();
    assert!(!place.exists("ran"));
}

#[test]
fn commands_about_sessions_find_them_without_home() {
    let Some(place) = Place::with(&["unshare", "mount"]) else { return };
    let home = place.home.display().to_string();
    sandbox(&place, &home, None, &["run", "--", "true"]).ok();
    let told = sandbox(&place, &home, Some("/"), &["audit", "--event", "SANDBOX_CREATED"]).ok();
    assert!(told.contains("SANDBOX_CREATED"), "{told}");
    sandbox(&place, "/", None, &["ps"]).code(125).says(&["hint: set HOME"]);
}

#[test]
fn what_is_given_in_one_home_is_not_given_in_the_other() {
    let Some(place) = Place::with(&["unshare", "mount"]) else { return };
    place.write("home:first/.netrc", "of the first\n");
    place.write("home:second/.netrc", "of the second\n");
    place.write("home:first/.config/cofferdam/config.toml", "[files]\nread = [\"~/.netrc\"]\n");
    let (first, second) = (place.path("home:first"), place.path("home:second"));
    let script = format!("cat {0}/.netrc; cat {1}/.netrc", first.display(), second.display());
    let ran = sandbox(
        &place,
        &second.display().to_string(),
        Some(&first.display().to_string()),
        &["run", "--mode", "static", "--", "sh", "-c", &script],
    );
    assert_eq!(ran.out, "of the first\n", "{}", ran.err);
}

/// The state directory says which policies are approved, and the user's policy lies where the other variable leads.
#[test]
fn links_of_the_project_that_lead_to_state_and_policy_cannot_be_replaced() {
    for mode in ["static", "dynamic"] {
        for variable in ["XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
            let place = Place::new();
            place.host("mkdir -p real evil && ln -s real link").ok();
            let run = |script: &str| {
                let mut command = place.command(binary());
                command.env(variable, place.project.join("link"));
                finish(command.args(["run", "--mode", mode, "--", "sh", "-c", script]), b"")
            };
            run("rm link; mv link other; ln -sfn evil link; mv -T evil link; mkdir -p link/x; true");
            let leads = std::fs::read_link(place.path("link")).ok();
            assert_eq!(leads, Some("real".into()), "{mode} {variable}");
            // The control: any other link of the project can be.
            place.host("ln -s real free").ok();
            run("ln -sfn evil free").ok();
            assert_eq!(std::fs::read_link(place.path("free")).ok(), Some("evil".into()), "{mode} {variable}");
        }
    }
}
