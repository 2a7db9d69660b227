//! 'Always' is a promise: what was answered so is not asked again, for any place that a shipped profile names.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::Place;

const USER: &str = "home:.config/cofferdam/config.toml";
/// Writes down what it is asked, runs HOST, and approves.
const HOOK: &str = r#"#!/bin/bash
cd "${0%/*}"
read -r line
echo "$line" >> asked
HOST
id=${line#*\"id\":}
echo "{\"type\":\"cmd.approve\",\"id\":${id%%[,\}]*},\"scope\":\"file\",\"persist\":\"KEEP\"}"
"#;
/// Reads and then writes what the file `places` names, makes one more file, and says what succeeded.
const WALK: &str = r#"
while IFS= read -r place; do
    text=$(cat "$HOME/$place" 2>/dev/null) && [[ $text == known* ]] && echo "read $place"
    { echo more >> "$HOME/$place"; } 2>/dev/null && echo "wrote $place"
done < places
{ echo made > "$HOME/notes/made"; } 2>/dev/null && echo "wrote notes/made"
"#;

/// A place where every question is approved and kept so, after `host` has run outside.
fn approving(keep: &str, host: &str, settings: &str) -> Place {
    let place = Place::new();
    let hook = place.path("home:hook");
    place.write("home:hook", &HOOK.replace("HOST", host).replace("KEEP", keep));
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let unknown = format!("[unknown]\nverdict = \"ask\"\nhook = [\"{}\"]\nper_minute = 10000\n", hook.display());
    place.write(USER, &format!("{settings}mode = \"dynamic\"\n{unknown}"));
    place
}

/// Places in the home that the policy in force names and does not keep secret, as files that are there.
fn places(place: &Place) -> Vec<String> {
    let shown = place.sandbox(&["policy", "show", "--json"]).ok();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("it is JSON");
    let rules = shown["policy"]["files"].as_array().expect("it has rules").iter();
    let mut named: Vec<(String, bool)> = rules
        .filter(|rule| !matches!(rule["access"].as_str(), Some("deny" | "mask")))
        .filter_map(|rule| {
            let path = rule["path"].as_str()?;
            // Where a variable may move it, the place without the variable.
            let path = path
                .strip_prefix("${")
                .and_then(|path| path.split_once(":-"))
                .map_or_else(|| path.to_owned(), |(_, usual)| usual.replacen('}', "", 1));
            Some((
                path.strip_prefix("~/")?.replace('*', "x"),
                rule["access"] == "protect" && !path.ends_with("/cofferdam"),
            ))
        })
        .collect();
    named.extend([("notes/list".to_owned(), true), (".config/some-program/settings".to_owned(), true)]);
    named.sort();
    let is_directory = |name: &str| {
        let is_below = |other: &str| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        named.iter().any(|(other, is_file)| !is_file && other == name || is_below(other))
    };
    let file = |name: &str| if is_directory(name) { format!("{name}/file") } else { name.to_owned() };
    let mut files: Vec<String> = named.iter().map(|(name, _)| file(name)).collect();
    files.dedup();
    files
}

#[test]
fn what_is_answered_with_always_is_not_asked_again_for_any_place_of_any_profile() {
    for preset in [r#""default""#, r#"["cargo", "go", "node", "python", "registries"]"#, r#""tool""#] {
        let place = approving("user", "", &format!("preset = {preset}\n"));
        let places = places(&place);
        assert!(places.len() > 100, "{preset}: {places:?}");
        for name in &places {
            place.write(&format!("home:{name}"), "known\n");
        }
        place.write("places", &(places.join("\n") + "\n"));
        let asked = || place.read("home:asked").unwrap_or_default().lines().count();
        let first = place.run(&["--network", "none"], &["bash", "-c", WALK]);
        let before = asked();
        assert!(before > 20, "{preset}: only {before} questions\n{}", first.err);
        let second = place.run(&["--network", "none"], &["bash", "-c", WALK]);
        let after = place.read("home:asked").unwrap_or_default();
        let again: Vec<&str> = after.lines().skip(before).collect();
        assert!(again.is_empty(), "{preset}: asked again: {again:#?}\n{}", first.err);
        assert_eq!(first.out, second.out, "{preset}: the same is given\n{}", second.err);
    }
}

#[test]
fn why_says_of_what_is_protected_only_that_it_can_be_read_where_it_can() {
    let place = Place::new();
    place.write("home:.inputrc", "known\n");
    let inputrc = place.path("home:.inputrc").display().to_string();
    let flags = ["--on-unknown", "deny"];
    place.run(&flags, &["cat", &inputrc]).code(1).says(&[&format!("allow it with --ro {inputrc}")]);
    let why = || place.sandbox(&[&["why"], &flags[..], &[&inputrc]].concat()).ok();
    let told = why();
    assert!(!told.contains("can be read") && told.contains("protected") && told.contains("policy allow"), "{told}");
    place.sandbox(&["policy", "allow", &inputrc]).ok();
    assert_eq!(place.run(&flags, &["cat", &inputrc]).ok(), "known\n");
    assert!(why().contains("can be read"), "{}", why());
    assert_ne!(place.run(&flags, &["sh", "-c", "echo x >> ~/.inputrc"]).code, 0, "and stays as it is");
}

#[test]
fn a_file_that_is_given_where_rules_hide_names_of_a_directory_is_given_as_a_file() {
    let place = Place::new();
    place.write("home:.claude", "known\n");
    let path = place.path("home:.claude").display().to_string();
    for mode in ["static", "dynamic"] {
        assert_eq!(place.run(&["--mode", mode, "--ro", &path], &["cat", &path]).ok(), "known\n", "{mode}");
    }
}

#[test]
fn what_the_host_makes_while_a_creation_is_asked_about_is_not_given_for_it() {
    // A directory at that name: what was held to make the file in must not be mounted there.
    let place = approving("session", "mkdir -p made", "");
    place.write("home:.ssh/id_rsa", "hunter2");
    place.write("home:.bashrc", "mine\n");
    let script = "exec 3>> ~/made; cat ~/made/.ssh/id_rsa; echo evil >> ~/made/.bashrc; ls ~/made";
    let ran = place.run(&["--network", "none"], &["bash", "-c", script]);
    assert!(!ran.out.contains("hunter2") && !ran.out.contains("project"), "{}\n{}", ran.out, ran.err);
    assert_eq!(place.read("home:.bashrc").as_deref(), Some("mine\n"));
    // A file: it is asked about by itself.
    let place = approving("session", "[[ -e made ]] || echo of the host > made", "");
    let ran = place.run(&["--network", "none"], &["bash", "-c", "echo new >> ~/made"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(place.read("home:made").as_deref(), Some("of the host\n"));
}

#[test]
fn what_may_be_written_can_be_written_after_it_was_read_again() {
    let place = approving("session", "", "");
    place.write("home:notes/list", "one\n");
    let script = "echo two >> ~/notes/list; echo ready; read line; until [[ $(cat ~/notes/list) == new ]]; do sleep 0.05; done; \
                  echo three >> ~/notes/list";
    let mut session = place.start(&["--network", "none", "--timeout", "20s"], script);
    assert_eq!(session.first_line, "ready");
    // As an editor saves: the mount of the old file goes, and the next open mounts the new one.
    place.host("echo new > ~/notes/.list && mv ~/notes/.list ~/notes/list").ok();
    session.tell("go\n");
    assert_eq!(session.end(), (0, String::new()));
    assert_eq!(place.read("home:notes/list").as_deref(), Some("new\nthree\n"));
}
