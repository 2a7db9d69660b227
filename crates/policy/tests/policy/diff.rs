//! What one policy allows that another does not.

use cofferdam_policy::{Direction, Layer, Policy, differences};

use crate::{layer, places, resolved};

fn lines(before: &str, after: &str) -> Vec<(Direction, String)> {
    let policy = |text: &str| -> Policy {
        let mode = if text.contains("mode = \"dynamic\"") { "" } else { "mode = \"static\"\n" };
        resolved(&[layer(Layer::User, &format!("{mode}{text}"))]).unwrap()
    };
    let found = differences(&policy(before), &policy(after), &places());
    found.into_iter().map(|difference| (difference.direction, difference.to_string())).collect()
}

#[test]
fn differences_say_what_is_newly_allowed_or_denied() {
    use Direction::{Narrower, Other, Wider};
    for (before, after, expected) in [
        ("", "", vec![]),
        ("", "files.write = [\"~/data\"]", vec![(Wider, "~/data: read -> write")]),
        ("files.write = [\"~/data\"]", "", vec![(Narrower, "~/data: write -> read")]),
        ("", "files.read = [\"~/.ssh\"]", vec![(Wider, "~/.ssh: deny -> read")]),
        ("", "files.deny = [\"~/clients\"]", vec![(Narrower, "~/clients: read -> deny")]),
        // The same meaning in other words.
        ("files.write = [\"/home/u/data\"]", "files.write = [\"~/data\"]", vec![]),
        ("", "files.read = [\"~/data\"]", vec![]),
        ("", "isolation = \"process\"", vec![(Wider, "isolation: full -> process")]),
        ("", "debug = false", vec![(Narrower, "debug: true -> false")]),
        ("", "project = \"read\"", vec![(Narrower, ".: write -> read")]),
        ("", "limits.memory = \"1G\"", vec![(Narrower, "limits.memory: no limit -> 1G")]),
        ("limits.memory = \"1G\"", "limits.memory = \"2G\"", vec![(Wider, "limits.memory: 1G -> 2G")]),
        ("", "process.max = 5000", vec![(Wider, "process.max: 4096 -> 5000")]),
        ("", "process.executables = [\"sh\"]", vec![(Narrower, "process.executables: all -> the listed ones")]),
        ("", "env.pass = [\"A\"]", vec![(Wider, "env.pass \"A\": absent -> listed")]),
        ("", "syscalls.deny = [\"socket\"]", vec![(Narrower, "syscalls.deny \"socket\": absent -> listed")]),
        ("", "env.set.A = \"secret\"", vec![(Other, "env.set \"A\": absent -> listed")]),
        (
            "",
            "mode = \"dynamic\"",
            vec![(Narrower, "every other path: read -> ask"), (Narrower, "mode: static -> dynamic")],
        ),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|(way, text)| (way, text.to_owned())).collect();
        assert_eq!(lines(before, after), expected, "{before} | {after}");
    }
}

#[test]
fn a_difference_names_the_rule_that_decides() {
    let before = resolved(&[]).unwrap();
    let after = resolved(&[layer(Layer::User, "\n[files]\nread = [\"~/.ssh\"]")]).unwrap();
    let found = differences(&before, &after, &places());
    assert_eq!(found[0].origin.as_ref().unwrap().to_string(), "user: user.toml:3");
}
