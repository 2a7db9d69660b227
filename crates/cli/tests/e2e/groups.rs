//! Groups of siblings: after the second question about names of one form or one directory one answer covers the rest, and it gives
//! what the question said, no more: rules stay above it.

use std::os::unix::fs::PermissionsExt as _;

use crate::screen::Screen;
use crate::support::Place;

const USER: &str = "home:.config/cofferdam/config.toml";
/// Writes down what it is asked. Takes the group where one of this kind is offered, else the path alone.
const HOOK: &str = r#"#!/bin/bash
cd "${0%/*}"
read -r line
echo "$line" >> asked
id=${line#*\"id\":}
scope=file
[[ $line == *'"group":{"kind":"KIND"'* ]] && scope=group
echo "{\"type\":\"cmd.approve\",\"id\":${id%%[,\}]*},\"scope\":\"$scope\",\"persist\":\"session\"}"
"#;

fn answering(kind: &str, settings: &str) -> Place {
    let place = Place::new();
    let hook = place.path("home:hook");
    place.write("home:hook", &HOOK.replace("KIND", kind));
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let unknown = format!("[unknown]\nverdict = \"ask\"\nhook = [\"{}\"]\nper_minute = 10000\n", hook.display());
    place.write(USER, &format!("mode = \"dynamic\"\n{unknown}{settings}"));
    place
}

fn asked(place: &Place) -> Vec<serde_json::Value> {
    let text = place.read("home:asked").unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn run(place: &Place, script: &str) -> crate::support::Ran {
    place.run(&["--network", "none"], &["bash", "-c", script])
}

/// As agents save their settings: a new file with a number in its name, moved over the old one.
const SAVES: &str =
    "cd ~/notes; for n in 48271.1763193600 77.1763193601 48271.1763193602 9002.1763193603 5.1763193604; do
    echo v-$n > settings.json.tmp.$n && mv settings.json.tmp.$n settings.json && echo saved; done";

#[test]
fn settings_that_are_saved_again_and_again_are_asked_about_twice() {
    let place = answering("names", "");
    place.write("home:notes/other", "x\n");
    let ran = run(&place, SAVES);
    let questions = asked(&place);
    assert_eq!(ran.out, "saved\n".repeat(5), "{}\n{questions:#?}", ran.err);
    assert!(questions.len() <= 2, "{questions:#?}");
    let group = &questions[1]["group"];
    assert_eq!(
        (&group["prefix"], &group["saved_as"]),
        (&"settings.json.tmp.".into(), &"settings.json".into()),
        "{group}"
    );
    assert_eq!(place.read("home:notes/settings.json").as_deref(), Some("v-5.1763193604\n"));
    // What was given without a question is in the log, with the question that it was given by.
    let log = place.sandbox(&["audit", "--format", "json"]).ok();
    assert_eq!(log.matches("\"byGroupOfQuestion\":2").count(), 3, "{log}");
    // Nothing of it is kept.
    run(&place, SAVES);
    assert_eq!(asked(&place).len(), 4);
}

#[test]
fn the_control_without_the_group_each_new_name_is_asked_about() {
    let place = answering("no such kind", "");
    place.write("home:notes/other", "x\n");
    run(&place, SAVES);
    assert_eq!(asked(&place).len(), 5);
}

#[test]
fn new_files_of_one_form_in_the_home_are_a_group_and_words_are_not_of_it() {
    let place = answering("names", "");
    let make = "for n in 481 77 9002 31337 word 12.word; do echo x > ~/.app.json.tmp.$n; done";
    run(&place, make).ok();
    let questions = asked(&place);
    let paths: Vec<&str> =
        questions.iter().filter_map(|question| question["path"].as_str()?.rsplit('/').next()).collect();
    assert_eq!(paths, [".app.json.tmp.481", ".app.json.tmp.77", ".app.json.tmp.word", ".app.json.tmp.12.word"]);
    for name in ["481", "77", "9002", "31337"] {
        assert!(place.exists(&format!("home:.app.json.tmp.{name}")), "{name}");
    }
}

#[test]
fn what_a_rule_hides_or_protects_is_in_no_group() {
    // A name of the pattern itself: the pattern is not offered, and the directory has all but that name.
    let place = answering("names", "[files]\ndeny = [\"~/many/app.777\"]\n");
    for n in [1, 2, 3, 777] {
        place.write(&format!("home:many/app.{n}"), "content\n");
    }
    let ran = run(&place, "cd ~/many; for n in 1 2 3 777; do cat app.$n && echo read-$n; done");
    assert!(!asked(&place).iter().any(|question| question["group"]["kind"] == "names"), "{:#?}", asked(&place));
    assert!(ran.out.contains("read-3") && !ran.out.contains("read-777"), "{}", ran.out);

    let place = answering("directory", "[files]\ndeny = [\"~/many/app.777\"]\nprotect = [\"~/many/app.3\"]\n");
    for n in [1, 2, 3, 777] {
        place.write(&format!("home:many/app.{n}"), "content\n");
    }
    let script =
        "cd ~/many; for n in 1 2 3 777; do cat app.$n && echo read-$n; { echo more >> app.$n; } && echo wrote-$n; done";
    let ran = run(&place, script);
    let kinds: Vec<_> =
        asked(&place).iter().filter(|question| question["group"]["kind"] == "directory").cloned().collect();
    assert!(!kinds.is_empty(), "{:#?}", asked(&place));
    assert!(ran.out.contains("read-3") && ran.out.contains("wrote-2"), "{}\n{}", ran.out, ran.err);
    assert!(
        !ran.out.contains("wrote-3") && !ran.out.contains("read-777") && !ran.out.contains("wrote-777"),
        "{}",
        ran.out
    );
}

#[test]
fn siblings_made_on_purpose_get_nothing_that_hosts_obey() {
    let place = answering("names", "");
    place.write("home:.ssh/id_rsa", "hunter2\n");
    place.write("home:.bash_profile", "mine\n");
    place.write("home:.zshrc", "mine\n");
    let script = "for n in 4811 4812 4813; do echo x > ~/.bash_$n; echo x > ~/.zshrc.$n; echo x > ~/.profile-$n; done
        for n in 1 2 3; do cat ~/.ssh/id_$n ~/.ssh/id_rsa; done
        echo evil > ~/.bash_profile; echo evil > ~/.zshrc; mv -f ~/.zshrc.4811 ~/.zshrc; mv -f ~/.zshrc.4812 ~/.zprofile
        echo evil > ~/.bash_aliases; echo evil > ~/.zshenv; cat ~/.ssh/id_rsa";
    let ran = run(&place, script);
    assert!(!ran.out.contains("hunter2"), "{}", ran.out);
    for name in [".bash_profile", ".zshrc"] {
        assert_eq!(place.read(&format!("home:{name}")).as_deref(), Some("mine\n"), "{name}");
    }
    for name in [".bash_aliases", ".zshenv", ".zprofile"] {
        assert!(!place.exists(&format!("home:{name}")), "{name}");
    }
    for question in asked(&place) {
        assert_ne!(question["group"]["prefix"], ".bash_", "{question:#}");
    }
}

#[test]
fn the_home_as_a_whole_is_offered_by_no_group_and_given_by_no_answer() {
    let place = answering("directory", "");
    for name in ["alpha", "beta", "gamma", "delta", "other"] {
        place.write(&format!("home:{name}"), "content\n");
    }
    let ran = run(&place, "cd ~; cat alpha beta gamma delta");
    assert_eq!(ran.out, "content\n".repeat(4), "{}", ran.err);
    let questions = asked(&place);
    assert_eq!(questions.len(), 4, "{questions:#?}");
    for question in &questions {
        assert_eq!(
            (&question["group"], &question["is_alone"]),
            (&serde_json::Value::Null, &true.into()),
            "{question:#}"
        );
    }
    // The control: below it there is one.
    for name in ["alpha", "beta", "gamma"] {
        place.write(&format!("home:below/{name}"), "content\n");
    }
    run(&place, "cd ~/below; cat alpha beta gamma").ok();
    assert_eq!(asked(&place).len(), 6);
}

#[test]
fn at_the_terminal_the_second_sibling_offers_the_group() {
    let Some(screen) = Screen::open(&[]) else { return };
    screen.place.write("home:notes/other", "x\n");
    screen.line("sandbox run -- bash -c 'cd ~/notes; for n in 1 22 3 44; do echo x > .app.tmp.$n; done; echo done-$n'");
    let shown = screen.wait_for("press a key");
    assert!(!shown.contains("[g]"), "{shown}");
    screen.keys(&["s"]);
    screen.wait_until("the second question", |text| text.contains("question 2") && text.contains("press a key"));
    let shown = screen.text();
    assert!(shown.contains("[g] the group: off") && shown.contains(".app.tmp.*, where * is digits"), "{shown}");
    screen.keys(&["g"]);
    let shown = screen.wait_for("[g] the group: ON");
    assert!(shown.contains("for    EVERY new file") && !shown.contains("[y]") && !shown.contains("[u]"), "{shown}");
    screen.capture("prompt-group");
    screen.keys(&["s"]);
    let after = screen.wait_for("done-44");
    assert!(!after.contains("question"), "{after}");
}
