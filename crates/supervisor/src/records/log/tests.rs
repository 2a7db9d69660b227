//! What is written about questions, in a real chain.

use std::ffi::OsStr;
use std::path::PathBuf;

use cofferdam_wire::{Asker, Keep, Op, Program, Reach, Subject};

use super::*;

fn question(path: &[u8]) -> Question {
    Question {
        id: 7,
        op: Op::Read,
        subject: Subject::Path(PathBuf::from(OsStr::from_bytes(path))),
        is_dir: false,
        size: 3,
        flags: 0,
        asker: Asker {
            program: Program { pid: 4, exe: "/bin/cat".to_owned(), argv: vec!["cat".to_owned()] },
            ..Asker::default()
        },
        toolchain: None,
        group: None,
        by: None,
        also: Vec::new(),
        is_alone: false,
        hint: None,
        waiting: 1,
        asked: 0.0,
        until: None,
    }
}

#[test]
fn questions_and_answers_are_one_record_each_whatever_the_path_is() {
    let state = crate::scratch().join(format!("cofferdam-events-{}", std::process::id()));
    let mut log = Log::new("id".to_owned(), Some(&state));
    log.file_requested(&question(b"/a\nb\xff"));
    log.file_decided(&Settled {
        question: question(b"/plain"),
        verdict: Verdict::Allow { reach: Reach::Dir, keep: Keep::Session },
        cause: Cause::Person,
        granted: vec![PathBuf::from("/")],
        waited: Duration::from_millis(5),
    });
    assert!(!log.failed);
    let entries: Vec<_> = cofferdam_audit::entries(&state).expect("readable").collect();
    assert!(cofferdam_audit::verify(&state).expect("readable").is_whole());
    std::fs::remove_dir_all(&state).expect("it was made");
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].details["pathBytes"], "2f610a62ff");
    assert_eq!((entries[0].event.as_str(), entries[0].details["pid"].as_u64()), ("FILE_REQUESTED", Some(4)));
    let decided = &entries[1];
    assert_eq!((decided.actor.as_str(), decided.decision.as_deref()), ("person", Some("allow")));
    assert_eq!((decided.latency, &decided.details["scope"]), (Some(5000), &json!("dir")));
    assert!(decided.details.get("pathBytes").is_none());
}

#[test]
fn a_log_that_cannot_be_written_is_told_once_and_harms_nobody() {
    let state = PathBuf::from("/proc/self/nowhere");
    let mut log = Log::new("id".to_owned(), Some(&state));
    log.file_requested(&question(b"/a"));
    assert!(log.failed);
    log.file_requested(&question(b"/a"));
}
