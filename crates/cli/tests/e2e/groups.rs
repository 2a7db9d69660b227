//! Groups of siblings: after the second question about files of one form one answer covers those that were there then, by name, and it
//! gives what the answer about each of them would, no more: rules stay above it, and what comes later is asked about.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::screen::Screen;
use crate::support::{Place, Ran};

const USER: &str = "home:.config/cofferdam/config.toml";
/// Writes down what it is asked. Takes the group where one is offered, else the path alone.
const HOOK: &str = r#"#!/bin/bash
cd "${0%/*}"
read -r line
echo "$line" >> asked
id=${line#*\"id\":}
scope=file
[[ $line == *'"group":{"kind":"KIND"'* ]] && scope=group
BEFORE
echo "{\"type\":\"cmd.approve\",\"id\":${id%%[,\}]*},\"scope\":\"$scope\",\"persist\":\"session\"}"
"#;
const READS: &str = "cd ~/many; for n in 1 2 3 4; do cat app.$n && echo read-$n; done";

/// `before` runs on the host between the question and the answer.
fn answering(kind: &str, settings: &str, before: &str) -> Place {
    let place = Place::new();
    let hook = place.path("home:hook");
    place.write("home:hook", &HOOK.replace("KIND", kind).replace("BEFORE", before));
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let unknown = format!("[unknown]\nverdict = \"ask\"\nhook = [\"{}\"]\nper_minute = 10000\n", hook.display());
    place.write(USER, &format!("mode = \"dynamic\"\n{unknown}{settings}"));
    place
}

fn with_many(place: &Place) {
    for n in 1..=4 {
        place.write(&format!("home:many/app.{n}"), "content\n");
    }
}

fn asked(place: &Place) -> Vec<Value> {
    let text = place.read("home:asked").unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn names_asked(place: &Place) -> Vec<String> {
    let name = |question: &Value| question["path"].as_str()?.rsplit('/').next().map(str::to_owned);
    asked(place).iter().filter_map(name).collect()
}

fn run(place: &Place, script: &str) -> Ran {
    place.run(&["--network", "none"], &["bash", "-c", script])
}

#[test]
fn files_of_one_form_are_one_answer_that_names_each_of_them() {
    let place = answering("files", "", "");
    with_many(&place);
    place.write("home:many/list", "content\n");
    let ran = run(&place, &format!("{READS}; cat list >/dev/null; echo more >> app.3 && echo wrote-3"));
    let questions = asked(&place);
    assert_eq!(ran.out.matches("read-").count(), 4, "{}\n{questions:#?}", ran.err);
    // What has another name is asked about. What was given for reading is not for writing.
    assert_eq!(names_asked(&place), ["app.1", "app.2", "list"], "{questions:#?}");
    assert!(!ran.out.contains("wrote-3"), "{}", ran.out);
    assert_eq!(place.read("home:many/app.3").as_deref(), Some("content\n"));
    assert_eq!(questions[0]["group"], Value::Null);
    let directory = place.path("home:many").display().to_string();
    let names = ["app.1", "app.2", "app.3", "app.4"];
    assert_eq!(questions[1]["group"], json!({ "kind": "files", "directory": directory, "names": names }));
    assert_eq!(questions[2]["group"], Value::Null);
    // What was given without a question is in the log, with the question that it was given by.
    let log = place.sandbox(&["audit", "--format", "json"]).ok();
    assert_eq!(log.matches("\"byGroupOfQuestion\":2").count(), 2, "{log}");
    assert_eq!(log.matches("\"scope\":\"group\"").count(), 1, "{log}");
    // Nothing of it is kept.
    run(&place, READS).ok();
    assert_eq!(asked(&place).len(), 5);
}

#[test]
fn the_control_without_the_group_each_file_is_asked_about() {
    let place = answering("no such kind", "", "");
    with_many(&place);
    run(&place, READS).ok();
    assert_eq!(names_asked(&place), ["app.1", "app.2", "app.3", "app.4"]);
}

#[test]
fn a_name_that_was_not_there_when_it_was_asked_is_not_in_the_group() {
    // One that the host makes while the answer is on its way, and one of the workload's own.
    let place = answering("files", "", "[[ $scope = group ]] && echo later > many/app.5");
    with_many(&place);
    let ran = run(&place, &format!("{READS}; cat app.5; echo mine > app.6 && cat app.6; mv app.6 app.7 || cat app.6"));
    assert!(ran.out.contains("read-4\nlater\nmine\n"), "{}\n{}", ran.out, ran.err);
    let names = names_asked(&place);
    assert_eq!(names[..4], ["app.1", "app.2", "app.5", "app.6"], "{names:?}");
    assert_eq!(asked(&place)[3]["group"], Value::Null, "a new file");
}

#[test]
fn what_a_rule_or_an_answer_is_about_is_in_no_group() {
    let place = answering("files", "[files]\ndeny = [\"~/many/app.3\"]\nread = [\"~/many/app.4\"]\n", "");
    with_many(&place);
    let ran = run(&place, READS);
    assert!(!ran.out.contains("read-3") && ran.out.contains("read-4"), "{}", ran.out);
    let questions = asked(&place);
    assert_eq!(questions[1]["group"]["names"], json!(["app.1", "app.2"]), "{questions:#?}");

    let place = answering("files", "[files]\nprotect = [\"~/many/app.3\"]\n", "");
    with_many(&place);
    let ran = run(&place, "cd ~/many; for n in 1 2 3 4; do { echo more >> app.$n; } && echo wrote-$n; done");
    assert!(!ran.out.contains("wrote-3") && ran.out.contains("wrote-4"), "{}", ran.out);
    let questions = asked(&place);
    assert_eq!(questions[1]["group"]["names"], json!(["app.1", "app.2", "app.4"]), "{questions:#?}");
    assert_eq!(place.read("home:many/app.3").as_deref(), Some("content\n"));

    // Denied for the session before the group was asked about.
    let deny = "[[ $line == */many/app.1\\\"* ]] && { echo \"{\\\"type\\\":\\\"cmd.deny\\\",\\\"id\\\":${id%%[,\\}]*},\
                \\\"persist\\\":\\\"session\\\"}\"; exit; }";
    let place = answering("files", "", deny);
    with_many(&place);
    let ran = run(&place, &format!("{READS}; cat app.1"));
    assert!(!ran.out.contains("read-1") && ran.out.contains("read-4"), "{}", ran.out);
    let questions = asked(&place);
    assert_eq!(questions[1]["group"]["names"], json!(["app.2", "app.3", "app.4"]), "{questions:#?}");
    assert_eq!(questions.len(), 2, "{questions:#?}");
}

/// Of two mounts of one file one would stay when the host has replaced it, and show the old content.
#[test]
fn many_opens_of_a_granted_file_at_once_are_one_mount() {
    let place = answering("files", "", "");
    let name = |n: usize| format!("home:many/app.{n}");
    (1..=12).for_each(|n| place.write(&name(n), "content\n"));
    let program = [
        "import threading, sys",
        "for path in sys.argv[1:]:",
        "    wait = threading.Barrier(32)",
        "    def read():",
        "        wait.wait()",
        "        open(path).read()",
        "    all = [threading.Thread(target=read) for _ in range(32)]",
        "    [one.start() for one in all]",
        "    [one.join() for one in all]",
    ];
    place.write("opens.py", &program.join("\n"));
    let many = "cd ~/many; cat app.1 app.2 > /dev/null; python3 $OLDPWD/opens.py $(seq -f app.%g 3 12); \
                cut -d' ' -f5 /proc/self/mountinfo | grep -o 'app[.][0-9]*$' | sort | uniq -c";
    let ran = run(&place, many).ok();
    assert!(ran.lines().count() == 12 && ran.lines().all(|line| line.trim().starts_with("1 ")), "{ran}");
}

#[test]
fn an_answer_that_cannot_be_carried_out_gives_no_group() {
    let place = answering("files", "", "[[ $line == */many/app.2\\\"* ]] && rm many/app.2");
    with_many(&place);
    let ran = run(&place, READS);
    assert!(!ran.out.contains("read-2") && ran.out.contains("read-4"), "{}", ran.out);
    assert_eq!(names_asked(&place), ["app.1", "app.2", "app.3"], "the third has a question of its own");
}

#[test]
fn what_is_called_like_a_secret_is_asked_about_alone() {
    let place = answering("files", "", "");
    for n in 1..=3 {
        for name in ["token-", "id_rsa.", "many/api-key.", "secrets/app.", "many/app."] {
            place.write(&format!("home:below/{name}{n}"), "content\n");
        }
    }
    let read = "cd ~/below; for name in token- id_rsa. many/api-key. secrets/app.; do for n in 1 2 3; do cat $name$n; done; done";
    run(&place, read);
    let questions = asked(&place);
    assert!(questions.iter().all(|question| question["group"] == Value::Null), "{questions:#?}");
    // The control: others have one.
    run(&place, "cd ~/below/many; cat app.1 app.2 app.3").ok();
    assert_eq!(asked(&place).len() - questions.len(), 2);
}

#[test]
fn links_and_directories_are_in_no_group() {
    let place = answering("files", "", "");
    with_many(&place);
    place.write("home:.ssh/id_rsa", "hunter2\n");
    place.write("home:elsewhere/notes", "elsewhere\n");
    for (target, link) in [(".ssh/id_rsa", "many/app.11"), ("elsewhere/notes", "many/app.12")] {
        symlink(place.path(&format!("home:{target}")), place.path(&format!("home:{link}"))).expect("the home is ours");
    }
    place.write("home:many/app.13/in", "content\n");
    let ran = run(&place, &format!("{READS}; cat app.11; cat app.12; ls app.13"));
    assert!(ran.out.contains("read-4\nelsewhere\n") && !ran.out.contains("hunter2"), "{}\n{}", ran.out, ran.err);
    let questions = asked(&place);
    assert_eq!(questions[1]["group"]["names"], json!(["app.1", "app.2", "app.3", "app.4"]), "{questions:#?}");
    assert_eq!(names_asked(&place), ["app.1", "app.2", "notes", "app.13"], "{questions:#?}");
}

#[test]
fn siblings_made_on_purpose_get_nothing_that_hosts_obey() {
    let place = answering("files", "", "");
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
    // New files are in no group: their names are the workload's.
    let questions = asked(&place);
    assert!(
        questions.len() >= 9 && questions.iter().all(|question| question["group"] == Value::Null),
        "{questions:#?}"
    );
}

#[test]
fn the_home_as_a_whole_is_given_by_no_answer_and_the_question_says_so() {
    let place = answering("files", "", "");
    for name in ["alpha", "beta", "below/alpha"] {
        place.write(&format!("home:{name}"), "content\n");
    }
    run(&place, "cd ~; cat alpha beta below/alpha").ok();
    let is_alone: Vec<Value> = asked(&place).iter().map(|question| question["is_alone"].clone()).collect();
    assert_eq!(is_alone, [json!(true), json!(true), Value::Null]);
}

#[test]
fn at_the_terminal_the_second_sibling_offers_the_group() {
    let Some(screen) = Screen::open(&[]) else { return };
    with_many(&screen.place);
    screen.line("sandbox run -- bash -c 'cd ~/many; cat app.1 app.2 app.3 app.4; echo done-$((40+4))'");
    let shown = screen.wait_for("press a key");
    assert!(!shown.contains("[g]"), "{shown}");
    screen.keys(&["s"]);
    screen.wait_until("the second question", |text| text.contains("question 2") && text.contains("press a key"));
    let shown = screen.text();
    let said = "read all 4 of app.1, app.2, app.3, app.4 in";
    assert!(shown.contains("[g] the group: off") && shown.contains(&format!("[g]    {said}")), "{shown}");
    screen.keys(&["g"]);
    let shown = screen.wait_for("[g] the group: ON");
    assert!(shown.contains(&format!("for    {said}")) && !shown.contains("[y]") && !shown.contains("[u]"), "{shown}");
    screen.capture("prompt-group");
    screen.keys(&["s"]);
    let after = screen.wait_for("done-44");
    assert_eq!(after.matches("content").count(), 4, "{after}");
    assert!(!after.contains("question"), "{after}");
}
