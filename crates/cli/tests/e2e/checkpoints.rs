//! Checkpoints of a session that runs, and of one that has ended: each step of an agent that stays alive is taken back.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Place, Running, wait_for};

/// An agent that stays alive: what its shell does is a child of it, and it says when each is done.
const AGENT: &str =
    r#"echo ready; while read -r line; do bash -c "$line"; echo "$line" > "$COFFERDAM_CHECKPOINT"; done"#;

/// The same without a word of its own.
const SILENT: &str = r#"echo ready; while read -r line; do bash -c "$line"; done"#;

/// Everything in the tree but for times, hidden names, and of git all but its hooks: names, kinds, modes, targets, content.
const PICTURE: &str = "find . -name .env -o -path './.git/*' -not -path './.git/hooks*' -o -printf '%P %y %m %l\\n' | sort; \
                       find . -type f -not -name .env '(' -not -path './.git/*' -o -path './.git/hooks/*' ')' | sort | xargs -d '\\n' sha256sum";

fn listed(place: &Place) -> Vec<(u64, String, String)> {
    let said: Value = serde_json::from_str(&place.sandbox(&["checkpoint", "--list", "--json"]).ok()).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = said["checkpoints"].as_array().expect("checkpoints").iter();
    all.map(|one| (one["number"].as_u64().expect("a number"), text(&one["by"]), text(&one["label"]))).collect()
}

fn picture(place: &Place) -> String {
    place.sandbox(&["attach", "last", "--", "bash", "-c", PICTURE]).ok()
}

fn begin(flags: &[&str], agent: &str) -> Option<(Place, Running)> {
    let place = Place::with_repository()?;
    place.write("src/deep/one", "1\n");
    place.write("src/two", "2\n");
    place.write("config", "before\n");
    place.write(".env", "TOKEN=hunter2\n");
    let running = place.start(&[&["--transaction"], flags].concat(), agent);
    Some((place, running))
}

const STEPS: [&str; 6] = [
    "sed -i s/one/ONE/ first; sed -i s/before/after/ config",
    "python3 -c \"open('made', 'w').write('by python')\" || echo 'by shell' > made",
    "printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "mkdir -p .vscode; echo '{}' > .vscode/tasks.json; echo '{}' > .mcp.json",
    "rm -rf src",
    "mkdir src; echo other > src/two; ln -s two src/link; chmod 600 config",
];

#[test]
fn every_call_of_an_agent_that_stays_alive_is_taken_back_byte_for_byte() {
    for mode in ["static", "dynamic"] {
        let Some((place, mut agent)) = begin(&["--mode", mode], AGENT) else { return };
        let host = place.host(PICTURE).ok();
        let mut seen = vec![picture(&place)];
        for (done, step) in STEPS.iter().enumerate() {
            agent.tell(&format!("{step}\n"));
            // Where the end of the child led to one first, the label comes a moment later.
            wait_for("the checkpoint", || listed(&place).get(done).filter(|one| one.2 == *step).map(|_| ()));
            seen.push(picture(&place));
        }
        let labels: Vec<String> = listed(&place).into_iter().map(|one| one.2).collect();
        assert_eq!(labels, STEPS, "{mode}: each is told by its command");
        for back in (0..STEPS.len()).rev() {
            let before = place.sandbox(&["undo", "--preview"]).ok();
            assert!(before.starts_with("back to "), "{mode}: {before}");
            place.sandbox(&["undo"]).code(0);
            assert_eq!(picture(&place), seen[back], "{mode}: back at {back}");
        }
        place.sandbox(&["undo"]).code(1).says(&["no step to take back"]);
        // Forward again, and on: the agent is still alive, and what it does next is a step as well.
        place.sandbox(&["rollback", "--to", "6"]).code(0);
        assert_eq!(picture(&place), seen[STEPS.len()], "{mode}");
        agent.tell("echo more >> made\n");
        wait_for("the next", || listed(&place).last().filter(|one| one.2 == "echo more >> made").map(drop));
        place.sandbox(&["undo"]).code(0);
        assert_eq!(picture(&place), seen[STEPS.len()], "{mode}");
        place.sandbox(&["undo", "3"]).code(0);
        assert_eq!(agent.end().0, 0, "{mode}");
        assert_eq!(place.host(PICTURE).ok(), host, "{mode}: the host has nothing of it");
        place.sandbox(&["commit", "--opens"]).code(0);
        assert_eq!(place.host(PICTURE).ok(), seen[3], "{mode}: what is committed is the state after three steps");
        assert_eq!(place.read(".env").as_deref(), Some("TOKEN=hunter2\n"), "{mode}");
    }
}

#[test]
fn an_agent_that_says_nothing_has_a_checkpoint_after_a_child_that_changed_something() {
    let Some((place, mut agent)) = begin(&[], SILENT) else { return };
    agent.tell("cat first\n");
    agent.tell("echo x > one\n");
    wait_for("the first", || (listed(&place).len() == 1).then_some(()));
    agent.tell("echo y > two\n");
    wait_for("the second", || (listed(&place).len() == 2).then_some(()));
    assert!(listed(&place).iter().all(|one| one.1 == "child"), "{:?}", listed(&place));
    place.sandbox(&["undo"]).code(0);
    let there = place.sandbox(&["attach", "last", "--", "ls"]).ok();
    assert!(there.contains("one") && !there.contains("two"), "{there}");
    assert_eq!(agent.end().0, 0);
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn after_the_session_a_step_can_still_be_taken_back() {
    let Some((place, mut agent)) = begin(&[], AGENT) else { return };
    agent.tell("echo good > good\n");
    wait_for("the checkpoint", || (listed(&place).len() == 1).then_some(()));
    agent.tell("echo bad > bad; rm first\n");
    assert_eq!(agent.end().0, 0);
    let said = place.sandbox(&["undo"]).ok();
    assert!(said.contains("goes          bad") && said.contains("comes back    first"), "{said}");
    place.sandbox(&["commit"]).code(0);
    assert!(place.exists("good") && place.exists("first") && !place.exists("bad"));
    // The last step is the commit now.
    let said = place.sandbox(&["undo", "--preview"]).ok();
    assert!(said.contains("before the last commit") && place.exists("good"), "{said}");
    assert!(said.contains("  good\n"), "{said}");
    place.sandbox(&["undo"]).code(1);
    assert!(place.exists("good"), "without a terminal it takes a word");
    place.sandbox(&["undo", "--yes"]).code(0);
    assert!(!place.exists("good") && place.exists("first"));
    place.sandbox(&["commit"]).code(0);
    assert!(place.exists("good"));
}

#[test]
fn after_the_session_each_undo_takes_one_step_back_and_a_look_takes_none() {
    let Some((place, mut agent)) = begin(&[], AGENT) else { return };
    let names = ["s1", "s2", "s3", "s4"];
    for (done, name) in names.iter().enumerate() {
        let step = format!("mkdir -p d; echo {name} > d/{name}");
        agent.tell(&format!("{step}\n"));
        wait_for("the checkpoint", || listed(&place).get(done).filter(|one| one.2 == step).map(|_| ()));
    }
    assert_eq!(agent.end().0, 0);
    for left in (0..names.len()).rev() {
        place.sandbox(&["undo", "--preview"]).code(0);
        place.sandbox(&["undo"]).code(0);
        let waits = place.sandbox(&["diff", "--stat"]).ok();
        let seen: Vec<&str> = names.into_iter().filter(|name| waits.contains(&format!("A d/{name}"))).collect();
        assert_eq!(seen, names[..left], "{waits}");
    }
}

#[test]
fn a_session_that_was_undone_to_nothing_says_how_it_is_closed() {
    let Some((place, mut agent)) = begin(&[], AGENT) else { return };
    agent.tell("echo x > made\n");
    wait_for("the checkpoint", || (listed(&place).len() == 1).then_some(()));
    place.sandbox(&["rollback", "--yes"]).code(125).says(&["still runs", "sandbox kill SESSION", "sandbox undo"]);
    assert_eq!(agent.end().0, 0);
    let said = place.sandbox(&["undo"]).ok();
    assert!(said.contains("is left to commit; `sandbox rollback --session "), "{said}");
    let said = place.sandbox(&["changes"]).ok();
    assert!(said.contains("nothing; `rollback --session` closes it"), "{said}");
    place.sandbox(&["rollback", "--to", "1"]).code(0);
    assert!(place.sandbox(&["changes"]).ok().contains("1 new"), "it was not closed");
    place.sandbox(&["undo"]).code(0);
    place.sandbox(&["rollback"]).code(0);
    assert_eq!(place.sandbox(&["changes"]).ok(), "No changes wait.\n");
}

#[test]
fn what_a_killed_put_back_left_in_part_is_as_it_was_before_at_the_next_command() {
    let Some((place, mut agent)) = begin(&[], AGENT) else { return };
    for (done, name) in ["good", "more"].iter().enumerate() {
        agent.tell(&format!("echo {name} > {name}\n"));
        wait_for("the checkpoint", || (listed(&place).len() > done).then_some(()));
    }
    assert_eq!(agent.end().0, 0);
    // As a supervisor leaves it that is killed while it puts the first one back.
    let leave = r#"cd ~/.local/state/cofferdam/kept/*/ && rm */upper/more &&
                   echo '{"to":1,"before":2,"went_on":'"$0"'}' > checkpoints/putting-back.json"#;
    place.host(&leave.replace(r#"'"$0"'"#, "false")).ok();
    let ran = place.sandbox(&["diff", "--stat"]);
    assert!(ran.out.contains("A more") && ran.out.contains("A good"), "{}", ran.out);
    ran.says(&["checkpoint 1 was put back in part only", "what was there before is there again"]);
    // Once is enough; and where the session went on afterwards, what lies there is its own.
    assert!(!place.sandbox(&["diff", "--stat"]).err.contains("in part only"));
    place.host(&leave.replace(r#"'"$0"'"#, "true")).ok();
    assert!(!place.sandbox(&["diff", "--stat"]).ok().contains("A more"));
    place.sandbox(&["rollback", "--to", "2", "--yes"]).code(0);
    assert!(place.sandbox(&["diff", "--stat"]).ok().contains("A more"));
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn nothing_that_a_killed_session_had_put_back_in_part_is_committed() {
    let Some((place, mut agent)) = begin(&[], AGENT) else { return };
    for (done, name) in ["good", "more"].iter().enumerate() {
        agent.tell(&format!("echo {name} > {name}\n"));
        wait_for("the checkpoint", || (listed(&place).len() > done).then_some(()));
    }
    place.host(&format!("kill -9 {}", agent.pid())).ok();
    agent.end();
    let leave = r#"cd ~/.local/state/cofferdam/sessions/*/ && rm */upper/more &&
                   echo '{"to":1,"before":2,"went_on":false}' > checkpoints/putting-back.json"#;
    place.host(leave).ok();
    place.sandbox(&["commit"]).code(0).says(&["what was there before is there again"]);
    assert!(place.exists("good") && place.exists("more"));
}

#[test]
fn checkpoints_need_a_transaction_and_a_running_session() {
    let Some(place) = Place::with_repository() else { return };
    place.sandbox(&["checkpoint"]).code(1).says(&["no changes of a session wait"]);
    let mut agent = place.start(&[], "echo ready; read line; echo x > made");
    place.sandbox(&["checkpoint"]).code(1).says(&["no changes of a session wait"]);
    agent.tell("\n");
    agent.end();
    place.run(&["--transaction"], &["sh", "-c", "echo y > also"]).code(0);
    place.sandbox(&["checkpoint"]).code(1).says(&["does not run any more"]);
    place.sandbox(&["rollback", "--to", "7"]).code(1).says(&["there is no checkpoint 7"]);
    assert!(place.sandbox(&["rollback", "--preview"]).ok().contains("also"));
    assert!(place.sandbox(&["diff", "--stat"]).ok().contains("also"), "nothing was dropped");
    place.sandbox(&["rollback"]).code(0);
}

/// What the workload may say over the pipe is a label and nothing else, and it may say it as often as it wants.
#[test]
fn a_flood_of_labels_neither_stops_the_session_nor_draws_on_the_operators_screen() {
    let Some((place, mut agent)) = begin(&[], SILENT) else { return };
    agent.tell(r#"for i in $(seq 2000); do printf 'x\033[2J%01000d\n' $i > "$COFFERDAM_CHECKPOINT"; done; echo z > z"#);
    agent.tell("\n");
    agent.tell("printf 'the\\033[2J end' > $COFFERDAM_CHECKPOINT; touch finished\n");
    wait_for("the end of the flood", || {
        place.sandbox(&["attach", "last", "--", "ls"]).ok().contains("finished").then_some(())
    });
    wait_for("a checkpoint", || (!listed(&place).is_empty()).then_some(()));
    let said = place.sandbox(&["checkpoint", "--list"]).ok();
    assert!(!said.contains('\u{1b}'), "{said:?}");
    assert!(listed(&place).iter().all(|one| one.2.len() <= 200), "labels are short");
    // Every label of before may still lead to one; nothing changes, so none is taken.
    let pictures: BTreeSet<String> = (0..3).map(|_| picture(&place)).collect();
    assert_eq!(pictures.len(), 1);
    assert_eq!(agent.end().0, 0);
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn a_session_goes_on_where_no_checkpoint_can_be_taken_and_says_so() {
    let Some((place, mut agent)) = begin(&[], AGENT) else { return };
    std::fs::write(place.sessions()[0].join("checkpoints"), "in the way").expect("ours");
    agent.tell("echo x > made\n");
    place.sandbox(&["checkpoint"]).says(&["no checkpoint could be taken"]);
    agent.tell("echo y > also\n");
    assert_eq!(agent.end().0, 0);
    assert!(place.sandbox(&["logs", "last"]).ok().contains("a checkpoint could not be taken"));
    assert!(place.sandbox(&["diff", "--stat"]).ok().contains("also"));
    place.sandbox(&["rollback"]).code(0);
}

#[test]
fn what_was_undone_to_the_beginning_is_kept_after_the_session_and_after_a_kill() {
    for is_killed in [false, true] {
        let Some((place, mut agent)) = begin(&[], AGENT) else { return };
        agent.tell("echo x > made\n");
        wait_for("the checkpoint", || (listed(&place).len() == 1).then_some(()));
        place.sandbox(&["undo"]).code(0);
        if is_killed {
            drop(agent);
        } else {
            assert_eq!(agent.end().0, 0);
        }
        place.sandbox(&["rollback", "--to", "1"]).code(0);
        place.sandbox(&["commit"]).code(0);
        assert_eq!(place.read("made").as_deref(), Some("x\n"), "killed: {is_killed}");
    }
}
