//! Writing: several at a time, after a crash, with a full disk, over the end of a file.

use std::io::Write as _;

use super::*;
use crate::verify::{Trouble, verify};

pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let random = EventIds::new().expect("the kernel has random bytes").random;
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_path_buf() } else { std::env::temp_dir() };
        Scratch(base.join(format!("cofferdam-audit-{name}-{}-{random:x}", std::process::id())))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        crate::directory(&self.0).join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn record(number: u64) -> Record<'static> {
    Record::new(Event::SyscallBlocked, "session", json!({ "number": number, "path": "a\nb\"\u{1b}[2J" }))
}

fn write(scratch: &Scratch, count: u64) -> Journal {
    let mut journal = Journal::open(&scratch.0).expect("the directory can be made");
    for number in 0..count {
        journal.append(&record(number)).expect("there is room");
    }
    journal
}

fn tear(scratch: &Scratch, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().append(true).open(scratch.file("00000001.ndjson"));
    file.and_then(|mut file| file.write_all(bytes)).expect("it is there");
}

#[test]
fn records_are_a_chain_that_verifies_and_reads_back() {
    let scratch = Scratch::new("chain");
    write(&scratch, 20);
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.records, report.last, report.files), (20, 20, 1));
    let entries: Vec<_> = crate::entries(&scratch.0).expect("readable").collect();
    assert_eq!(entries.len(), 20);
    assert_eq!(entries[3].details["path"], "a\nb\"\u{1b}[2J");
    assert_eq!(entries[3].session, "session");
    let ids: std::collections::BTreeSet<_> = entries.iter().map(|entry| &entry.event_id).collect();
    assert_eq!(ids.len(), 20);
}

#[test]
fn a_newline_in_a_path_is_one_record() {
    let scratch = Scratch::new("newline");
    write(&scratch, 1);
    let text = std::fs::read_to_string(scratch.file("00000001.ndjson")).expect("text");
    assert_eq!(text.lines().count(), 1);
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn writers_at_the_same_time_make_one_chain() {
    let scratch = Scratch::new("many");
    let settings = Settings { rotate_at: 20_000, checkpoint_every: 50, checkpoint_at_end: 10 };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut journal = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
                for number in 0..100 {
                    journal.append(&record(number)).expect("there is room");
                }
                journal.settle().expect("there is room");
            });
        }
    });
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole(), "{report:?}");
    let own = crate::entries(&scratch.0).expect("readable").filter(|entry| entry.session == "session").count();
    assert_eq!(own, 800);
    assert!(report.files > 5 && report.checkpoints >= 16, "{report:?}");
}

#[test]
fn what_a_crash_left_is_closed_off_and_told() {
    for torn in [&b"{\"version\":1,\"sequ"[..], b"\0\0\0\0", b"{", b"a\nb"] {
        let scratch = Scratch::new("torn");
        write(&scratch, 3);
        tear(&scratch, torn);
        let report = verify(&scratch.0).expect("readable");
        assert!(!report.is_whole());
        write(&scratch, 3);
        let report = verify(&scratch.0).expect("readable");
        assert!(report.is_whole(), "{report:?}");
        assert_eq!((report.records, report.torn.len()), (7, 1));
        assert_eq!((report.torn[0].line, report.torn[0].sequence), (4, 4));
    }
}

#[test]
fn a_writer_that_crashed_while_it_closed_off_is_closed_off_too() {
    let scratch = Scratch::new("twice");
    write(&scratch, 2);
    tear(&scratch, b"{\"half\":");
    tear(&scratch, b"\n{\"version\":1,\"sequence\":3,\"prev");
    write(&scratch, 1);
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(report.torn.len(), 1);
}

#[test]
fn records_that_went_missing_are_not_taken_for_a_crash() {
    let scratch = Scratch::new("cut");
    write(&scratch, 5);
    let path = scratch.file("00000001.ndjson");
    let text = std::fs::read(&path).expect("readable");
    let third = text.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(2).expect("five lines").0;
    std::fs::write(&path, &text[..=third]).expect("writable");
    write(&scratch, 2);
    let report = verify(&scratch.0).expect("readable");
    assert!(report.problems.iter().any(|p| p.trouble == Trouble::Missing { records: 2 } && p.at.sequence == 4));
    // The same with half of the last record left.
    let scratch = Scratch::new("cut-within");
    write(&scratch, 5);
    let path = scratch.file("00000001.ndjson");
    let text = std::fs::read(&path).expect("readable");
    std::fs::write(&path, &text[..text.len() - 10]).expect("writable");
    write(&scratch, 2);
    assert!(!verify(&scratch.0).expect("readable").is_whole());
}

#[test]
fn a_file_that_is_full_is_followed_by_another() {
    let scratch = Scratch::new("rotate");
    let settings = Settings { rotate_at: 2000, ..Settings::default() };
    let mut one = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
    let mut other = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
    for number in 0..30 {
        one.append(&record(number)).expect("there is room");
        other.append(&record(number)).expect("there is room");
    }
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole(), "{report:?}");
    assert!(report.files > 3);
    let text = std::fs::read_to_string(scratch.file("00000002.ndjson")).expect("readable");
    let first: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["event"], &first["details"]["hash"]), (&json!("CHAIN_CONTINUED"), &first["previous"]));
}

#[test]
fn a_writer_that_stopped_between_two_files_is_followed() {
    for is_made in [true, false] {
        let scratch = Scratch::new("between");
        let settings = Settings { rotate_at: 500, ..Settings::default() };
        let mut journal = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
        while !scratch.file("00000002.ndjson").exists() {
            journal.append(&record(0)).expect("there is room");
        }
        drop(journal);
        // As if the writer had come no further than the last record of the old file.
        let next = scratch.file("00000002.ndjson");
        let emptied = if is_made { std::fs::write(&next, "") } else { std::fs::remove_file(&next) };
        emptied.expect("it is there");
        let old = std::fs::File::open(scratch.file("00000001.ndjson")).expect("it is there");
        let tail = ending(old.as_fd(), files::size_of(&old).expect("a size")).expect("readable").tail.expect("records");
        let head = Head { sequence: tail.sequence, hash: tail.hash, checkpoint: 0 };
        std::fs::write(scratch.file("head"), head.text()).expect("writable");
        write(&scratch, 3);
        let report = verify(&scratch.0).expect("readable");
        assert!(report.is_whole() && report.files == 2, "{report:?}");
    }
}

#[test]
fn a_record_that_is_too_large_keeps_its_place_without_its_details() {
    let scratch = Scratch::new("large");
    let mut journal = write(&scratch, 1);
    let large = Record::new(Event::FileRequested, "session", json!({ "path": "x".repeat(1 << 20) }));
    journal.append(&large).expect("there is room");
    assert!(verify(&scratch.0).expect("readable").is_whole());
    let entry = crate::entries(&scratch.0).expect("readable").last().expect("two records");
    assert!(entry.details["omitted"].as_u64().is_some_and(|bytes| bytes > 1 << 20));
}

#[test]
fn the_key_is_the_users_alone_and_made_once() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("key");
    let settings = Settings { checkpoint_every: 4, ..Settings::default() };
    let mut journal = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
    for number in 0..3 {
        journal.append(&record(number)).expect("there is room");
    }
    assert!(!scratch.file("key").exists(), "a short session pays for no key");
    for number in 0..9 {
        journal.append(&record(number)).expect("there is room");
    }
    let mode = std::fs::metadata(scratch.file("key")).expect("made").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole() && report.checkpoints == 3, "{report:?}");
}

#[test]
fn a_writer_that_was_killed_before_it_wrote_the_head_is_followed() {
    // The last record before the kill is an ordinary one, or a checkpoint.
    for last in [3, 5] {
        let scratch = Scratch::new("behind");
        let settings = Settings { checkpoint_every: 4, ..Settings::default() };
        let mut journal = Journal::open_with(&scratch.0, settings).expect("the directory can be made");
        let mut before = Vec::new();
        while crate::entries(&scratch.0).expect("readable").count() < last {
            before = std::fs::read(scratch.file("head")).expect("made");
            journal.append(&record(0)).expect("there is room");
        }
        drop(journal);
        if last == 5 {
            let entry = crate::entries(&scratch.0).expect("readable").nth(3).expect("four records");
            let hash = hex::decode(entry.line[entry.line.len() - 66..entry.line.len() - 2].as_ref()).expect("a hash");
            before = Head { sequence: 4, hash, checkpoint: 0 }.text().into_bytes();
        }
        std::fs::write(scratch.file("head"), before).expect("writable");
        let report = verify(&scratch.0).expect("readable");
        assert!(report.is_whole(), "{last}: {report:?}");
        write(&scratch, 2);
        let report = verify(&scratch.0).expect("readable");
        assert!(report.is_whole(), "{last}: {report:?}");
    }
}

#[test]
fn a_full_disk_leaves_no_half_record() {
    // Every write to this device fails as on a full disk; a link to it would not be followed, so the file is ours.
    let scratch = Scratch::new("full");
    let mut journal = write(&scratch, 2);
    journal.file = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it").into();
    assert!(journal.append(&record(9)).is_err());
    drop(journal);
    write(&scratch, 1);
    let report = verify(&scratch.0).expect("readable");
    assert!(report.is_whole() && report.records == 3, "{report:?}");
}
