//! Whatever is done to a chain is found, and where.

use proptest::prelude::*;

use super::*;
use crate::journal::tests::{Scratch, record};
use crate::{Journal, Settings};

/// Checkpoints every few records, and more than one file.
fn chain(records: u64) -> Scratch {
    let scratch = Scratch::new("verify");
    let settings = Settings { rotate_at: 6000, checkpoint_every: 5, checkpoint_at_end: 2 };
    let mut journal = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
    for number in 0..records {
        journal.append(&record(number)).expect("there is room");
    }
    scratch
}

fn names(scratch: &Scratch) -> Vec<String> {
    let entries = crate::directory(&scratch.0).read_dir().expect("made");
    let mut names: Vec<_> = entries.flatten().map(|e| e.file_name().into_string().expect("text")).collect();
    names.retain(|name| name.ends_with(".ndjson"));
    names.sort();
    names
}

fn lines(scratch: &Scratch, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(scratch.file(name)).expect("text");
    text.split_inclusive('\n').map(str::to_owned).collect()
}

fn put(scratch: &Scratch, name: &str, lines: &[String]) {
    std::fs::write(scratch.file(name), lines.concat()).expect("writable");
}

fn problems(scratch: &Scratch) -> Vec<Problem> {
    verify(&scratch.0).expect("readable").problems
}

fn sequence_of(line: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(line).expect("JSON")["sequence"].as_u64().expect("a number")
}

/// That a problem is told at this line or, when the file ends before it, at its end.
fn is_located(problems: &[Problem], name: &str, line: usize) -> bool {
    problems.iter().any(|p| p.at.file == name && p.at.line == line as u64 + 1)
}

fn pick<'a>(names: &'a [String], scratch: &Scratch, at: usize) -> (&'a str, Vec<String>, usize) {
    let mut at = at;
    for name in names {
        let lines = lines(scratch, name);
        if at < lines.len() {
            return (name, lines, at);
        }
        at -= lines.len();
    }
    pick(names, scratch, at)
}

#[test]
fn an_untouched_chain_is_whole() {
    let scratch = chain(60);
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole(), "{report:?}");
    assert!(report.files > 2 && report.checkpoints > 5 && report.signed > 50, "{report:?}");
    assert!(verify(&scratch.0.join("nothing")).expect("readable").is_whole());
}

#[test]
fn a_missing_file_or_witness_is_found() {
    for name in ["head", "checkpoint", "key.pub", "00000001.ndjson", "00000002.ndjson"] {
        let scratch = chain(60);
        std::fs::remove_file(scratch.file(name)).expect("it is there");
        assert!(!problems(&scratch).is_empty(), "{name}");
    }
    let scratch = chain(60);
    let last = names(&scratch).pop().expect("files");
    std::fs::remove_file(scratch.file(&last)).expect("it is there");
    assert!(problems(&scratch).iter().any(|p| matches!(p.trouble, Trouble::Truncated { .. })));
}

#[test]
fn a_tail_that_was_cut_and_covered_up_is_found_by_the_checkpoint() {
    let scratch = chain(12);
    let name = "00000001.ndjson";
    let kept = lines(&scratch, name)[..4].to_vec();
    put(&scratch, name, &kept);
    for name in names(&scratch).iter().skip(1) {
        std::fs::remove_file(scratch.file(name)).expect("it is there");
    }
    let last = check(kept[3].trim_end().as_bytes()).expect("a record").hash;
    std::fs::write(scratch.file("head"), Head { sequence: 4, hash: last, checkpoint: 0 }.text()).expect("writable");
    let found = problems(&scratch);
    assert!(found.iter().any(|p| matches!(p.trouble, Trouble::Truncated { .. }) && p.at.sequence == 5), "{found:?}");
}

#[test]
fn records_that_were_written_anew_are_found_by_signature_or_head() {
    let scratch = chain(12);
    let other = chain(12);
    // Another user's chain in place of this one, all files but the witnesses.
    for name in names(&scratch) {
        std::fs::remove_file(scratch.file(&name)).expect("it is there");
    }
    for name in names(&other) {
        std::fs::copy(other.file(&name), scratch.file(&name)).expect("writable");
    }
    let found = problems(&scratch);
    assert!(found.iter().any(|p| p.trouble == Trouble::BadSignature), "{found:?}");
    assert!(found.iter().any(|p| p.trouble == Trouble::Replaced), "{found:?}");
}

#[test]
fn every_byte_of_every_witness_counts() {
    let scratch = chain(20);
    for name in ["head", "checkpoint", "key.pub"] {
        let path = scratch.file(name);
        let bytes = std::fs::read(&path).expect("readable");
        for (at, mask) in (0..bytes.len()).flat_map(|at| [1u8, 2, 4, 8, 16, 32, 64, 128].map(|mask| (at, mask))) {
            let mut changed = bytes.clone();
            changed[at] ^= mask;
            std::fs::write(&path, &changed).expect("writable");
            assert!(!problems(&scratch).is_empty(), "{name}: byte {at}, mask {mask}");
        }
        std::fs::write(&path, &bytes).expect("writable");
    }
    assert!(problems(&scratch).is_empty());
}

#[test]
fn a_chain_that_several_threads_check_is_judged_as_a_short_one() {
    let scratch = Scratch::new("long");
    let mut journal = Journal::open(&scratch.0).expect("the directory can be made");
    for number in 0..9000 {
        journal.append(&record(number)).expect("there is room");
    }
    assert!(problems(&scratch).is_empty());
    let name = "00000001.ndjson";
    let mut lines = lines(&scratch, name);
    lines[8000] = lines[8000].replacen("SYSCALL_BLOCKED", "SYSCALL_ALLOWED", 1);
    lines.remove(5000);
    put(&scratch, name, &lines);
    let found = problems(&scratch);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(is_located(&found, name, 5000) && is_located(&found, name, 7999), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_byte_that_is_changed_is_found_where_it_is(at in 0usize..100_000, mask in 1u8..=255, records in 1u64..40) {
        let scratch = chain(records);
        let names = names(&scratch);
        let name = &names[at % names.len()];
        let path = scratch.file(name);
        let mut bytes = std::fs::read(&path).expect("readable");
        let at = at % bytes.len();
        let line = bytes[..at].split(|b| *b == b'\n').count() - 1;
        bytes[at] ^= mask;
        std::fs::write(&path, bytes).expect("writable");
        let found = problems(&scratch);
        prop_assert!(is_located(&found, name, line), "{name} line {line}: {found:?}");
    }

    #[test]
    fn any_record_that_is_removed_is_found_where_it_was(at in 0usize..60, records in 2u64..40) {
        let scratch = chain(records);
        let names = names(&scratch);
        let (name, mut lines, at) = pick(&names, &scratch, at);
        let sequence = sequence_of(&lines.remove(at));
        put(&scratch, name, &lines);
        let found = problems(&scratch);
        prop_assert!(found.iter().any(|p| p.at.sequence == sequence), "{sequence}: {found:?}");
    }

    #[test]
    fn records_that_change_places_are_found(at in 0usize..60, far in 1usize..10, records in 12u64..40) {
        let scratch = chain(records);
        let names = names(&scratch);
        let (name, mut lines, at) = pick(&names, &scratch, at);
        let other = (at + far) % lines.len();
        prop_assume!(other != at);
        lines.swap(at, other);
        put(&scratch, name, &lines);
        let found = problems(&scratch);
        prop_assert!(is_located(&found, name, at.min(other)), "{name} {at} {other}: {found:?}");
    }

    #[test]
    fn a_record_that_stands_there_twice_is_found(at in 0usize..60, records in 2u64..40) {
        let scratch = chain(records);
        let names = names(&scratch);
        let (name, mut lines, at) = pick(&names, &scratch, at);
        lines.insert(at, lines[at].clone());
        put(&scratch, name, &lines);
        let found = problems(&scratch);
        prop_assert!(is_located(&found, name, at + 1), "{name} {at}: {found:?}");
    }

    #[test]
    fn a_tail_that_is_cut_off_anywhere_is_found_where_it_ends(keep in 0usize..100_000, records in 1u64..40) {
        let scratch = chain(records);
        let names = names(&scratch);
        let name = names.last().expect("a file");
        let path = scratch.file(name);
        let bytes = std::fs::read(&path).expect("readable");
        let keep = keep % bytes.len();
        let line = bytes[..keep].split(|b| *b == b'\n').count() - 1;
        std::fs::write(&path, &bytes[..keep]).expect("writable");
        let found = problems(&scratch);
        prop_assert!(is_located(&found, name, line), "{name} line {line}: {found:?}");
        // And it stays found when a process writes after it.
        let mut journal = Journal::open(&scratch.0).expect("there");
        journal.append(&record(7)).expect("there is room");
        prop_assert!(!problems(&scratch).is_empty());
    }
}
