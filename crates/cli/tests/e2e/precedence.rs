//! Which rule decides, in what is enforced and in what is said: other spellings of a hidden name, a pattern against a name.

use crate::support::Place;

/// The ways in which a path is decided.
const MODES: &[&[&str]] = &[&["--mode", "static"], &["--mode", "dynamic", "--on-unknown", "allow-and-log"]];

fn spelled_otherwise() -> Place {
    let place = Place::new();
    for name in [".ENV.local", ".Env", "home:.SSH/id", "home:.aws/Credentials", "home:.AWS/credentials"] {
        place.write(name, "hunter2\n");
    }
    place.write("plain", "plain\n");
    place
}

#[test]
fn other_spellings_of_a_hidden_name_are_hidden_in_every_mode() {
    let place = spelled_otherwise();
    for mode in MODES {
        for name in [".ENV.local", ".Env", "~/.SSH/id", "~/.AWS/credentials", "~/.aws/Credentials"] {
            let ran = place.run(mode, &["bash", "-c", &format!("cat plain {name}")]);
            assert_eq!(ran.out, "plain\n", "{mode:?} {name}: {}", ran.err);
            let said = place.sandbox(&[&["why"], *mode, &[name]].concat()).ok();
            assert!(said.contains("is hidden"), "{mode:?} {name}: {said}");
        }
    }
}

#[test]
fn learning_gives_no_other_spelling_of_a_hidden_name() {
    let place = spelled_otherwise();
    let ran = place.sandbox(&["learn", "--", "bash", "-c", "cat ~/.SSH/id ~/.AWS/credentials .ENV.local; true"]);
    assert!(!ran.out.contains("hunter2"), "{}", ran.out);
    assert!(!ran.out.contains("path = \"~/.SSH") && !ran.out.contains("path = \"~/.AWS"), "{}", ran.out);
}

#[test]
fn a_pattern_is_as_strong_as_the_name_that_it_stands_for() {
    let place = Place::new();
    place.write("home:data/one.key", "hunter2\n");
    place.write(
        "home:.config/cofferdam/config.toml",
        "[files]\nread = [\"~/data/one.key\", { path = \"~/data/new.key\", optional = true }]\n",
    );
    place.write(".cofferdam/policy.toml", "[files]\ndeny = [\"~/data/*.key\"]\n");
    // The project's layer comes after the user's, and its rule is as long.
    for mode in MODES {
        for name in ["~/data/one.key", "~/data/new.key"] {
            let said = place.sandbox(&[&["why"], *mode, &[name]].concat()).ok();
            assert!(said.contains("is hidden"), "{mode:?} {name}: {said}");
        }
        let ran = place.run(mode, &["bash", "-c", "cat ~/data/one.key"]);
        assert_eq!(ran.out, "", "{mode:?}");
    }
    // Made after the start, it is the gate's to decide.
    let mut running = place.start(MODES[1], "echo up; read -r line; cat ~/data/new.key; true");
    place.write("home:data/new.key", "hunter2\n");
    running.tell("made\n");
    assert_eq!(running.end(), (0, String::new()));
}
