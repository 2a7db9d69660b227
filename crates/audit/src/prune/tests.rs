//! What is pruned is gone, what is left verifies, and every step on the way can be the last one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::journal::tests::{Scratch, record};
use crate::{Entry, Settings, Trouble, entries, verify};

/// Records with more than one file.
fn chain(records: u64, rotate_at: u64) -> (Scratch, Journal) {
    let scratch = Scratch::new("prune");
    let settings = Settings { rotate_at, checkpoint_every: 5, checkpoint_at_end: 2 };
    let mut journal = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
    for number in 0..records {
        journal.append(&record(number)).expect("there is room");
    }
    (scratch, journal)
}

fn all(scratch: &Scratch) -> Vec<Entry> {
    entries(&scratch.0).expect("readable").collect()
}

/// Everything before this record.
fn before(entry: &Entry) -> Keep {
    Keep { since: parse_stamp(&entry.time), ..Keep::default() }
}

fn files_of(scratch: &Scratch) -> BTreeMap<String, Vec<u8>> {
    let entries = crate::directory(&scratch.0).read_dir().expect("it is there").flatten();
    entries.map(|e| (e.file_name().into_string().expect("text"), std::fs::read(e.path()).expect("readable"))).collect()
}

fn put(scratch: &Scratch, files: &BTreeMap<String, Vec<u8>>) {
    let directory = crate::directory(&scratch.0);
    for name in files_of(scratch).keys() {
        std::fs::remove_file(directory.join(name)).expect("it is there");
    }
    for (name, bytes) in files {
        std::fs::write(directory.join(name), bytes).expect("writable");
    }
}

#[test]
fn a_pruned_chain_is_whole_and_says_until_when_and_by_what() {
    for (rotate_at, files) in [(6000, 3), (1 << 20, 1)] {
        let (scratch, mut journal) = chain(60, rotate_at);
        let written = all(&scratch);
        assert!(files_of(&scratch).len() > files);
        for at in [1, 20, 40] {
            let first = &written[at];
            let would = look(&scratch.0, &before(first)).expect("readable").expect("there is something");
            let pruned = prune(&scratch.0, &before(first), 0).expect("writable").expect("there is something");
            assert_eq!(would, pruned);
            assert_eq!(pruned.sequence, first.sequence - 1);
            let left = all(&scratch);
            assert_eq!(left[0].line, first.line);
            let report = verify(&scratch.0).expect("readable");
            assert!(report.is_whole(), "{report:?}");
            assert_eq!(report.records, left.len() as u64);
            let beginning = report.pruned.expect("it was pruned");
            assert_eq!((beginning.sequence, beginning.by.as_str()), (first.sequence - 1, "sandbox audit prune"));
            assert_eq!(beginning.until, written[at - 1].time);
            let last: Vec<&Entry> = left.iter().filter(|entry| entry.event == "CHAIN_PRUNED").collect();
            assert_eq!(last.last().expect("it is recorded").actor, "person");
            // A writer that was there before goes on in the chain that is there now.
            journal.append(&record(99)).expect("there is room");
            assert!(verify(&scratch.0).expect("readable").is_whole());
            assert_eq!(look(&scratch.0, &before(first)).expect("readable"), None, "nothing is left to do");
        }
    }
}

#[test]
fn a_size_is_kept_and_what_is_spared_stays() {
    let (scratch, _journal) = chain(60, 6000);
    let total: u64 = entries(&scratch.0).expect("readable").map(|entry| entry.line.len() as u64 + 1).sum();
    let keep = Keep { bytes: Some(total / 2), ..Keep::default() };
    let written = all(&scratch);
    let spared = Keep { spared: parse_stamp(&written[7].time), ..keep };
    assert_eq!(
        prune(&scratch.0, &spared, 0).expect("writable").expect("there is something").sequence,
        written[6].sequence
    );
    prune(&scratch.0, &keep, 0).expect("writable").expect("there is something");
    let left: u64 = all(&scratch).iter().map(|entry| entry.line.len() as u64 + 1).sum();
    let own: u64 =
        all(&scratch).iter().filter(|e| e.event.starts_with("CHAIN_")).map(|e| e.line.len() as u64 + 1).sum();
    assert!(left <= total / 2 + own && left > total / 3, "{left} of {total}");
    assert!(verify(&scratch.0).expect("readable").is_whole());
}

#[test]
fn nothing_goes_without_a_reason() {
    let (scratch, _journal) = chain(20, 6000);
    let files = files_of(&scratch);
    let all_kept = [
        Keep::default(),
        Keep { bytes: Some(1 << 40), ..Keep::default() },
        Keep { since: Some(Stamp(0)), ..Keep::default() },
    ];
    for keep in all_kept {
        assert_eq!(prune(&scratch.0, &keep, 0).expect("writable"), None);
    }
    let spared = Keep { since: Some(Stamp::now()), bytes: Some(0), spared: Some(Stamp(0)) };
    assert_eq!(prune(&scratch.0, &spared, 0).expect("writable"), None);
    assert_eq!(files_of(&scratch), files);
    assert_eq!(look(&scratch.0.join("nothing"), &Keep::default()).expect("readable"), None);
}

/// Files as they are after each step, in the order of the steps, put together from before and after.
fn steps(old: &BTreeMap<String, Vec<u8>>, new: &BTreeMap<String, Vec<u8>>) -> Vec<BTreeMap<String, Vec<u8>>> {
    let mut now = old.clone();
    let mut steps = vec![now.clone()];
    let grown = |name: &str| new.get(name).filter(|bytes| old.get(name).is_none_or(|old| bytes.starts_with(old)));
    // The records that the prune writes: in the last file of before, and in a new one.
    let names: Vec<&String> = new.keys().filter(|name| name.ends_with(".ndjson")).collect();
    for name in names.into_iter().rev() {
        if let Some(bytes) = grown(name) {
            now.insert(name.clone(), bytes.clone());
        }
    }
    for name in ["head", "checkpoint", "key", "key.pub"] {
        now.insert(name.to_owned(), new[name].clone());
    }
    steps.push(now.clone());
    now.insert("pruned".to_owned(), new["pruned"].clone());
    steps.push(now.clone());
    let gone: Vec<String> = now.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
    for name in gone {
        now.remove(&name);
        steps.push(now.clone());
    }
    for (name, bytes) in new {
        now.insert(name.clone(), bytes.clone());
    }
    steps.push(now);
    steps
}

#[test]
fn a_crash_on_the_way_leaves_the_old_chain_or_the_new_one_and_the_next_prune_finishes() {
    let (scratch, journal) = chain(60, 6000);
    drop(journal);
    let written = all(&scratch);
    let old = files_of(&scratch);
    let keep = before(&written[25]);
    prune(&scratch.0, &keep, 0).expect("writable").expect("there is something");
    let new = files_of(&scratch);
    let (mut olds, mut news) = (0, 0);
    for step in steps(&old, &new) {
        put(&scratch, &step);
        // What a process left that was killed while it copied.
        std::fs::write(scratch.file("00000002.ndjson.rest"), "half").expect("writable");
        let report = verify(&scratch.0).expect("readable");
        assert!(report.is_whole(), "{report:?}");
        let first = all(&scratch)[0].sequence;
        match report.pruned {
            None => {
                assert_eq!(first, 1);
                olds += 1;
            }
            Some(pruned) => {
                assert_eq!((first, pruned.sequence), (written[25].sequence, written[25].sequence - 1));
                news += 1;
            }
        }
        // A session goes on writing, and the next prune comes to the same end.
        Journal::open(&scratch.0).and_then(|mut journal| journal.append(&record(7))).expect("there is room");
        prune(&scratch.0, &keep, 0).expect("writable");
        assert_eq!(all(&scratch)[0].line, written[25].line);
        let first_file = files_of(&scratch).into_iter().find(|(name, _)| name.ends_with(".ndjson")).expect("files").1;
        assert!(first_file.starts_with(written[25].line.as_bytes()), "what was pruned is gone from the disk");
        assert!(verify(&scratch.0).expect("readable").is_whole());
    }
    assert!(olds >= 2 && news >= 3, "{olds} {news}");
}

#[test]
fn records_that_only_were_deleted_are_missing_also_in_a_pruned_chain() {
    let (scratch, _journal) = chain(60, 6000);
    let written = all(&scratch);
    // Deleted from a chain that was never pruned, by hand.
    let old = files_of(&scratch);
    std::fs::remove_file(scratch.file("00000001.ndjson")).expect("it is there");
    let report = verify(&scratch.0).expect("readable");
    assert!(report.problems.iter().any(|p| matches!(p.trouble, Trouble::Missing { .. })), "{report:?}");
    put(&scratch, &old);
    prune(&scratch.0, &before(&written[10]), 0).expect("writable").expect("there is something");
    let pruned = files_of(&scratch);
    // More than what was pruned.
    let first = pruned.keys().find(|name| name.ends_with(".ndjson")).expect("files").clone();
    let text = String::from_utf8(pruned[&first].clone()).expect("text");
    let cut = text.split_once('\n').expect("lines").1;
    std::fs::write(scratch.file(&first), cut).expect("writable");
    let report = verify(&scratch.0).expect("readable");
    let missing = Trouble::Missing { records: 1 };
    assert!(
        report.problems.iter().any(|p| p.trouble == missing && p.at.sequence == written[10].sequence),
        "{report:?}"
    );
    // All files of records, and the one that says where the chain begins.
    for name in [first.as_str(), "pruned"] {
        put(&scratch, &pruned);
        std::fs::remove_file(scratch.file(name)).expect("it is there");
        assert!(!verify(&scratch.0).expect("readable").is_whole(), "{name}");
    }
}

#[test]
fn where_the_chain_begins_can_be_said_with_the_key_alone() {
    let (scratch, mut journal) = chain(60, 6000);
    let written = all(&scratch);
    let old = files_of(&scratch);
    prune(&scratch.0, &before(&written[10]), 0).expect("writable").expect("there is something");
    let pruned = files_of(&scratch);
    // Every byte of it counts.
    let path = scratch.file("pruned");
    for (at, byte) in pruned["pruned"].iter().enumerate() {
        let mut changed = pruned["pruned"].clone();
        changed[at] = byte ^ 1;
        std::fs::write(&path, &changed).expect("writable");
        assert!(!verify(&scratch.0).expect("readable").is_whole(), "byte {at}");
    }
    // A checkpoint is a signature over a place as well, and is none of this meaning.
    std::fs::write(&path, &pruned["checkpoint"]).expect("writable");
    assert!(!verify(&scratch.0).expect("readable").is_whole());
    // The same signature in a chain whose records do not tell of it.
    put(&scratch, &old);
    std::fs::write(&path, &pruned["pruned"]).expect("writable");
    let report = verify(&scratch.0).expect("readable");
    assert!(report.problems.iter().any(|p| p.trouble == Trouble::Unannounced), "{report:?}");
    // What a session writes, whatever is in it, moves no beginning.
    put(&scratch, &old);
    let stolen: Value = serde_json::from_slice(&pruned["pruned"]).expect("JSON");
    let forged = json!({ "by": "sandbox audit prune", "until": "2026-11-19", "pruned": stolen });
    journal
        .append(&Record { actor: Actor::Workload, ..Record::new(Event::ChainPruned, "session", forged) })
        .expect("there is room");
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole() && report.pruned.is_none(), "{report:?}");
    assert_eq!(all(&scratch)[0].sequence, 1);
}

#[test]
fn a_retention_closes_files_in_time_and_removes_them_whole() {
    let (scratch, _journal) = chain(30, 6000);
    let files =
        |scratch: &Scratch| files_of(scratch).into_keys().filter(|name| name.ends_with(".ndjson")).collect::<Vec<_>>();
    let before = files(&scratch);
    assert_eq!(retain(&scratch.0, Duration::from_hours(24), None).expect("writable"), None);
    assert_eq!(files(&scratch), before, "nothing is due");
    assert_eq!(retain(&scratch.0, Duration::from_millis(1), Some(Stamp(0))).expect("writable"), None);
    let closed = files(&scratch);
    assert_eq!(closed.len(), before.len() + 1, "the last one is old enough to be closed");
    std::thread::sleep(Duration::from_millis(5));
    let pruned = retain(&scratch.0, Duration::from_millis(2), None).expect("writable").expect("all are old");
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole(), "{report:?}");
    let beginning = report.pruned.expect("it was pruned");
    assert_eq!((beginning.sequence, beginning.by.as_str()), (pruned.sequence, "audit.keep"));
    assert!(!files(&scratch).contains(&closed[0]), "{:?}", files(&scratch));
}

#[test]
fn two_prunes_at_a_time_are_one_and_a_refusal() {
    let (scratch, _journal) = chain(30, 6000);
    let directory = files::open_directory(&crate::directory(&scratch.0)).expect("it is there");
    let other = files::open_in_place(directory.as_fd(), files::HEAD).expect("it is there");
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).expect("free");
    let keep = Keep { since: Some(Stamp::now()), ..Keep::default() };
    assert_eq!(prune(&scratch.0, &keep, 0).expect_err("the other one is at it").errno, Errno::WOULDBLOCK);
    drop(other);
    assert!(prune(&scratch.0, &keep, 0).expect("writable").is_some());
}
