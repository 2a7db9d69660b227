//! While questions are open: others go on, signals do what they should, and no process waits for ever.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cofferdam_testkit::program;
use cofferdam_wire::{Cause, Keep, Reach};

use crate::stage::Stage;

pub(crate) fn fifty_questions_wait_and_another_thread_works(stage: &Stage) {
    let many = program("open-many").expect("it was built with the tests");
    fs::copy(many, stage.scene.project().join("open-many")).expect("the project is ours");
    let files: Vec<String> =
        (0..50).map(|n| stage.unknown(&format!("{n}/file"), "text\n").display().to_string()).collect();
    let mut live = stage.start("", &format!("./open-many {}", files.join(" ")));
    let mut questions: Vec<_> = (0..50).map(|_| live.person.question().expect("fifty questions")).collect();
    questions.sort_by(|a, b| a.path.cmp(&b.path));
    questions.dedup_by(|a, b| a.path == b.path);
    assert_eq!(questions.len(), 50, "each about a path of its own");
    // All of them are open now; another thread of the same process goes on.
    stage.await_mark("counted");
    for (n, question) in questions.iter().rev().enumerate() {
        let answered = if n % 2 == 0 {
            live.person.allow(question.id, Reach::File, Keep::Session)
        } else {
            live.person.deny(question.id)
        };
        answered.expect("it listens");
    }
    let done = live.finish();
    let number = |word: &str| done.out.lines().find_map(|line| line.strip_prefix(word)?.trim().parse::<u64>().ok());
    assert_eq!((number("opened"), number("refused")), (Some(25), Some(25)), "{done:?}");
    let counted = number("counted").unwrap_or(0);
    assert!(counted >= 20, "{done:?}");
    println!("50 questions open at once; meanwhile another thread counted to {counted}");
}

pub(crate) fn calls_in_one_directory_wait_for_one_answer(stage: &Stage) {
    let many = program("open-many").expect("it was built with the tests");
    fs::copy(many, stage.scene.project().join("open-many")).expect("the project is ours");
    let files: Vec<String> =
        (0..10).map(|n| stage.unknown(&format!("notes/{n}"), "text\n").display().to_string()).collect();
    let mut live = stage.start("", &format!("./open-many {}", files.join(" ")));
    let question = loop {
        let question = live.person.question().expect("a question");
        if question.waiting == 10 {
            break question;
        }
        assert_eq!(question.id, 1, "there is only one: {question:?}");
    };
    assert_eq!(question.also.len(), 9, "{question:?}");
    live.person.allow(question.id, Reach::Dir, Keep::Session).expect("it listens");
    let done = live.finish();
    assert!(done.out.starts_with("opened 10\n"), "{done:?}");
}

pub(crate) fn a_killed_process_is_reaped_at_once_and_its_question_goes(stage: &Stage) {
    const TIMES: usize = 5;
    let files: Vec<String> =
        (1..=TIMES).map(|n| stage.unknown(&format!("{n}/file"), "text\n").display().to_string()).collect();
    // The same for a process that waits for no answer shows what a kill takes here and now.
    let script = format!(
        "reap() {{ a=$(date +%s%N); kill -9 $2; wait $2; b=$(date +%s%N); echo $1 $(((b-a)/1000)); }}; \
         n=0; for f in {}; do n=$((n+1)); sleep 100 & s=$!; cat $f & p=$!; until [ -e kill$n ]; do sleep 0.01; done; \
         reap plain $s; reap asking $p; done",
        files.join(" ")
    );
    let mut live = stage.start("", &script);
    for n in 1..=TIMES {
        let question = live.person.question().expect("a question");
        stage.mark(&format!("kill{n}"));
        assert_eq!(live.person.settled(question.id).expect("it ends"), (false, Cause::Gone));
    }
    let done = live.finish();
    let micros = |whose: &str| {
        let mut micros: Vec<u64> =
            done.out.lines().filter_map(|line| line.strip_prefix(whose)?.trim().parse().ok()).collect();
        micros.sort_unstable();
        assert_eq!(micros.len(), TIMES, "{done:?}");
        micros
    };
    let (plain, asking) = (micros("plain"), micros("asking"));
    println!("kill to reaped in microseconds: {asking:?}, and {plain:?} for who waits for nobody");
    // A processor in software takes longer for everything, a plain kill included.
    let is_guest = std::env::var_os("COFFERDAM_TEST_GUEST").is_some();
    let most = if is_guest { 100_000 + 3 * plain[TIMES / 2] } else { 100_000 };
    assert!(asking[TIMES / 2] < most, "{asking:?}, {plain:?} microseconds");
}

pub(crate) fn a_signal_with_a_handler_does_not_end_the_wait(stage: &Stage) {
    let file = stage.unknown("notes/a", "the content\n");
    let script = format!(
        "trap 'echo term' TERM; trap 'echo alarm' ALRM; \
         (until [ -e asked ]; do sleep 0.02; done; kill -ALRM $$; sleep 0.1; kill -TERM $$; sleep 0.1; > sent) & \
         exec 3< {}; read -r line <&3; echo \"$line\"",
        file.display()
    );
    let mut live = stage.start("", &script);
    let question = live.person.question().expect("a question");
    stage.mark("asked");
    stage.await_mark("sent");
    live.person.allow(question.id, Reach::File, Keep::Session).expect("it listens");
    let done = live.finish();
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["alarm", "term", "the content"], "{done:?}");
}

pub(crate) fn a_question_that_nobody_answers_is_denied(stage: &Stage) {
    let file = stage.unknown("notes/a", "the content\n");
    let mut live = stage.start(",timeout=3", &format!("cat {}", file.display()));
    let question = live.person.question().expect("a question");
    assert!(
        question.until.is_some_and(|until| until - question.ts <= 3.5),
        "the question says until when: {question:?}"
    );
    assert_eq!(live.person.settled(question.id).expect("it ends"), (false, Cause::Timeout));
    let done = live.finish();
    done.says("").complains("Permission denied");
    assert!(done.took >= Duration::from_secs(3), "{done:?}");
}

pub(crate) fn a_flood_of_questions_is_denied_and_others_are_served(stage: &Stage) {
    let files: Vec<String> =
        (0..200).map(|n| stage.unknown(&format!("{n}/file"), "text\n").display().to_string()).collect();
    let script = format!("> begun; for f in {}; do read -r x < $f && echo $x; done 2> /dev/null", files.join(" "));
    let live = stage.start(",per-minute=20,timeout=600", &script);
    stage.await_mark("begun");
    let beside = stage.beside();
    let file = beside.unknown("notes/a", "the neighbour\n");
    let served = beside.run(&format!("{} allow file session", file.display()), &format!("cat {}", file.display()));
    served.says("the neighbour").was_asked(&[format!("Read {}", file.display())]);
    beside.end();
    let mut live = live;
    let mut asked = 0;
    // The first twenty wait for an answer each; what comes after them was refused at once. Each answer makes room, as fast as a person reads.
    while let Ok(question) = live.person.question_within(Duration::from_secs(if asked < 20 { 30 } else { 3 })) {
        asked += 1;
        live.person.allow(question.id, Reach::File, Keep::Once).expect("it listens");
    }
    let done = live.finish();
    let most = 20 + done.took.as_millis() / 700 + 1;
    assert!((20..=most).contains(&asked) && done.out.lines().count() as u128 == asked, "{done:?}");
    let summaries = records(&stage.scene.home().join(".local/state/cofferdam"), "\"questions\"");
    assert_eq!(summaries, 1, "the flood is told of once");
}

/// Lines in the files below a directory that have this text in them.
fn records(directory: &Path, text: &str) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => records(&entry.path(), text),
            Ok(kind) if kind.is_file() => {
                let content = fs::read(entry.path()).unwrap_or_default();
                String::from_utf8_lossy(&content).lines().filter(|line| line.contains(text)).count()
            }
            _ => 0,
        })
        .sum()
}
