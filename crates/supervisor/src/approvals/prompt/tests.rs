//! The prompt with a clock of its own, and in a real terminal: tmux shows what a person would see, around programs that
//! write lines, draw the screen or rewrite a line.

use std::path::PathBuf;

use cofferdam_wire::{Asker, Keep, Op, Program, Reach, Subject};

use super::*;

mod rehearsal;

const SIZE: Size = Size { rows: 24, columns: 80 };

pub(super) fn question(id: QuestionId) -> Question {
    let program = |exe: &str, argv: &[&str]| Program {
        pid: 12,
        exe: exe.to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
    };
    Question {
        id,
        op: Op::Read,
        subject: Subject::Path(PathBuf::from(format!("/home/you/notes/{id}.txt"))),
        is_dir: false,
        size: 1234,
        flags: 0,
        asker: Asker {
            program: program("/usr/bin/cat", &["cat", "notes.txt"]),
            cwd: "/home/you/project".to_owned(),
            parents: vec![program("/bin/bash", &["bash"])],
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

/// A prompt and its clock.
struct Stage {
    prompt: Prompt,
    now: Instant,
}

impl Stage {
    fn new() -> Stage {
        Stage { prompt: Prompt::new(SIZE, None), now: Instant::now() }
    }

    fn later(&mut self, milliseconds: u64) -> Out {
        self.now += Duration::from_millis(milliseconds);
        self.prompt.check_clock(self.now);
        self.prompt.take_out()
    }

    fn ask(&mut self, id: QuestionId) -> Out {
        self.prompt.ask(&question(id), self.now);
        self.prompt.take_out()
    }

    fn typed(&mut self, keys: &str) -> Out {
        self.prompt.typed(keys.as_bytes(), self.now);
        self.prompt.take_out()
    }

    fn output(&mut self, text: &str) -> String {
        self.prompt.output(text.as_bytes(), self.now);
        String::from_utf8(self.prompt.take_out().screen).expect("text")
    }

    /// With question 1 on the panel, which has the keys.
    fn active() -> Stage {
        let mut stage = Stage::new();
        assert!(text(&stage.ask(1)).contains("question 1 - wait"));
        assert!(text(&stage.later(701)).contains("question 1 - press a key"));
        stage
    }
}

fn text(out: &Out) -> String {
    String::from_utf8(out.screen.clone()).expect("text")
}

const ONCE: Verdict = Verdict::Allow { reach: Reach::File, keep: Keep::Once };

#[test]
fn without_a_question_nothing_is_touched() {
    let mut stage = Stage::new();
    assert_eq!(stage.output("a\x1b[31mb\r\n"), "a\x1b[31mb\r\n");
    assert_eq!(stage.typed("yes\r").program, b"yes\r");
    assert_eq!(stage.prompt.deadline(stage.now), None);
}

#[test]
fn a_question_that_is_left_for_later_says_where_it_is() {
    let mut stage = Stage::active();
    let mut out = stage.typed("l");
    out.screen.extend(stage.later(41).screen);
    assert!(out.answers.is_empty());
    assert!(text(&out).ends_with("\r\nsandbox: question 1 waits: `sandbox inbox` shows it\r\n"), "{}", text(&out));
}

#[test]
fn what_is_typed_ahead_answers_nothing() {
    let mut stage = Stage::new();
    stage.typed("ls");
    assert_eq!(text(&stage.ask(1)), "", "somebody types");
    assert_eq!(stage.typed("yyy").program, b"yyy");
    assert_eq!(text(&stage.later(500)), "");
    assert!(text(&stage.later(300)).contains("question 1 - wait"));
    // Not yet the panel's: it goes to the program, and the panel makes room for its echo.
    let out = stage.typed("y");
    assert_eq!((out.program.as_slice(), out.answers.as_slice()), (&b"y"[..], &[][..]));
    assert_eq!(stage.output("echo"), "echo");
    assert!(text(&stage.later(800)).contains("question 1 - wait"));
    assert!(text(&stage.later(800)).contains("press a key"));
    assert_eq!(stage.typed("y").program, b"");
    assert_eq!(stage.later(41).answers, [(1, ONCE)]);
}

#[test]
fn what_comes_faster_than_a_key_is_the_programs() {
    for burst in [&["yes\r"][..], &["y", "es\r"], &["s", "s"]] {
        let mut stage = Stage::active();
        let mut program = Vec::new();
        for part in burst {
            let out = stage.typed(part);
            assert_eq!(out.answers, []);
            program.extend(out.program);
        }
        assert_eq!(program, burst.concat().as_bytes());
        assert_eq!(stage.later(41).answers, []);
    }
    // An arrow is neither an answer nor the program's while the panel has the keys.
    let mut stage = Stage::active();
    let out = stage.typed("\x1b[A");
    assert_eq!((out.program.len(), out.answers.len()), (0, 0));
    assert_eq!(stage.later(41).answers, []);
    stage.typed("\x1b");
    assert_eq!(stage.later(41).answers, [(1, Verdict::DENY_ONCE)]);
}

#[test]
fn output_of_lines_is_held_back_and_then_complete() {
    let mut stage = Stage::new();
    stage.output("working");
    stage.ask(1);
    assert_eq!(stage.output(" on\r\n\x1b[3"), "");
    assert_eq!(stage.output("1mit"), "");
    stage.later(701);
    stage.typed("n");
    let out = stage.later(41);
    assert_eq!(out.answers, [(1, Verdict::DENY_ONCE)]);
    assert!(text(&out).ends_with("\x1b[?25h on\r\n\x1b[31mit"), "{:?}", text(&out));
    assert!(stage.later(251).resized);
}

#[test]
fn a_program_that_draws_goes_on_in_a_smaller_screen() {
    let mut stage = Stage::new();
    stage.output("\x1b[?1049h");
    let out = stage.ask(1);
    assert!(out.resized && stage.prompt.program_rows() < 24);
    assert!(stage.output("drawn").starts_with("drawn\x1b\\"));
    assert_eq!(stage.output("\x1b["), "\x1b[", "nothing between the parts of a sequence");
    assert!(stage.output("Hx").starts_with("Hx\x1b\\"));
    // It leaves its screen: the panel is below the lines of the other one, and the rest waits.
    let left = stage.output("\x1b[?1049lbye");
    assert!(left.starts_with("\x1b[?1049l\x1bD") && !left.contains("bye"), "{left:?}");
    stage.later(701);
    stage.typed("s");
    assert!(text(&stage.later(41)).ends_with("bye"));
    assert!(stage.prompt.program_rows() < 24);
    assert!(stage.later(251).resized && stage.prompt.program_rows() == 24);
}

#[test]
fn questions_come_one_after_another_and_none_is_answered_unread() {
    let mut stage = Stage::active();
    let out = stage.ask(2);
    assert!(text(&out).contains("question 1 (1 of 2)"));
    stage.typed("y");
    let out = stage.later(41);
    assert_eq!(out.answers, [(1, ONCE)]);
    assert!(text(&out).contains("question 2 - wait"));
    // A second press of the same key is neither for the program nor for the panel.
    let out = stage.typed("y");
    assert_eq!((out.program.len(), out.answers.len()), (0, 0));
    assert!(text(&stage.later(701)).contains("question 2 - press"));
    stage.typed("y");
    assert_eq!(stage.later(41).answers, [(2, ONCE)]);
    assert_eq!(stage.typed("ls\r").program, b"ls\r");
}

#[test]
fn an_answer_from_elsewhere_takes_the_question_away() {
    let mut stage = Stage::active();
    stage.prompt.settled(1, stage.now);
    assert!(stage.prompt.shown.is_none());
    stage.prompt.take_out();
    assert_eq!(stage.typed("y").program, b"y");
}

#[test]
fn an_interrupt_denies_and_reaches_the_program() {
    let mut stage = Stage::active();
    stage.typed("\x03");
    let out = stage.later(41);
    assert_eq!((out.answers.as_slice(), out.program.as_slice()), (&[(1, Verdict::DENY_ONCE)][..], &b"\x03"[..]));
}

#[test]
fn a_question_can_be_left_to_others() {
    let mut stage = Stage::active();
    stage.typed("l");
    let out = stage.later(41);
    assert_eq!(out.answers, []);
    assert!(stage.prompt.shown.is_none());
    assert!(!text(&stage.later(2000)).contains("question 1"));
}

#[test]
fn nothing_is_shown_between_the_parts_of_a_sequence() {
    let mut stage = Stage::new();
    stage.output("\x1b]0;tit");
    assert_eq!(text(&stage.ask(1)), "");
    stage.output("le\x07");
    assert!(text(&stage.later(1)).contains("question 1"));
}

#[test]
fn nothing_but_the_question_is_drawn_while_a_key_would_answer_it() {
    let mut stage = Stage::new();
    stage.output("\x1b[?1049h");
    stage.ask(1);
    // A fake drawn over the panel, and a sequence that is never finished so that the panel could not be drawn again.
    let fake = "\x1b[17;1Hread /harmless\x1b[";
    assert_eq!(stage.output(fake), fake);
    assert_eq!(text(&stage.later(2000)), "");
    assert_eq!(stage.typed("y").program, b"y", "the panel has no keys");
    stage.output("m");
    assert!(text(&stage.later(701)).contains("question 1 - press a key"));
    assert_eq!(stage.output(fake), "", "and once it has, nothing is drawn over it");
    stage.typed("n");
    let out = stage.later(41);
    assert_eq!(out.answers, [(1, Verdict::DENY_ONCE)]);
    assert!(text(&out).contains("read /harmless"));
}
