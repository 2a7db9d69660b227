//! Hostile paths as they are shown, and what each key means.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use cofferdam_wire::{Asker, Group, Subject};

use super::*;

fn question(path: &[u8]) -> Question {
    let program = |exe: &str, argv: &[&str]| Program {
        pid: 12,
        exe: exe.to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
    };
    Question {
        id: 3,
        op: Op::Read,
        subject: Subject::Path(PathBuf::from(OsStr::from_bytes(path))),
        is_dir: false,
        size: 1234,
        flags: 0,
        asker: Asker {
            program: program("/usr/bin/cat", &["cat", "notes.txt"]),
            cwd: "/home/you/project".to_owned(),
            parents: vec![program("/bin/bash", &["bash", "-c", "cat notes.txt"]), program("/usr/bin/make", &["make"])],
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

const VIEW: View = View { columns: 79, rows: 20, place: (1, 1), seconds_left: Some(42), keys: Keys::Panel };

fn drawn(question: &Question, choices: Choices, view: View) -> String {
    let lines = choices.lines(question, view);
    assert!(lines.len() <= view.rows, "{} lines:\n{}", lines.len(), lines.join("\n"));
    for line in &lines {
        assert!(line.chars().map(columns).sum::<usize>() <= view.columns, "{line}");
        assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
    }
    lines.join("\n")
}

#[test]
fn an_ordinary_question() {
    insta::assert_snapshot!(drawn(&question(b"/home/you/notes/notes.txt"), Choices::default(), VIEW));
}

#[test]
fn escapes_are_shown_and_not_obeyed() {
    let path = b"/home/you/\x1b[2J\x1b[1;1H\x1b]0;owned\x07a\nb\x08\x08\r\xc2\x9b31m\xff";
    insta::assert_snapshot!(drawn(&question(path), Choices::default(), VIEW));
}

#[test]
fn direction_and_invisible_characters_are_shown() {
    let path = "/home/you/\u{202e}gpj.exe/a\u{200b}b\u{2066}\u{feff}\u{e0041}";
    insta::assert_snapshot!(drawn(&question(path.as_bytes()), Choices::default(), VIEW));
}

#[test]
fn padding_does_not_push_the_end_away() {
    let path = format!("/home/you/safe.txt{}/../../.ssh/id_ed25519", " ".repeat(200));
    insta::assert_snapshot!(drawn(&question(path.as_bytes()), Choices::default(), VIEW));
}

#[test]
fn of_a_path_too_long_for_the_screen_both_ends_are_shown() {
    let path = format!("/home/you/{}/.ssh/id_ed25519", "long/".repeat(700));
    insta::assert_snapshot!(drawn(&question(path.as_bytes()), Choices::default(), VIEW));
    // And all of it on request.
    let view = View { rows: 12, ..VIEW };
    let mut choices = Choices::default();
    choices.key(b"?", &question(b"/"), VIEW);
    let mut all = String::new();
    for _ in 0..40 {
        all.push_str(&drawn(&question(path.as_bytes()), choices, view).replace(['\n', ' '], ""));
        choices.key(b" ", &question(b"/"), VIEW);
    }
    assert_eq!(all.matches("long/").count().min(600), 600);
    assert!(all.contains("id_ed25519"));
}

#[test]
fn programs_lie_in_escapes_as_well() {
    let mut question = question(b"/data/x");
    question.asker.program.argv = vec!["cat\x1b[31m".to_owned(), "a b".to_owned(), "x".repeat(500)];
    question.asker.parents[0].exe = "/tmp/ba\nsh\u{202e}".to_owned();
    question.toolchain = Some("rust\x1b toolchain".to_owned());
    question.also = vec![PathBuf::from("/data/y\x07"), PathBuf::from("/data/z")];
    question.waiting = 3;
    let view = View { place: (1, 2), keys: Keys::Program, ..VIEW };
    let mut choices = Choices::default();
    assert_eq!(choices.key(b"d", &question, VIEW), Action::Redraw);
    insta::assert_snapshot!(drawn(&question, choices, view));
    choices.key(b"?", &question, VIEW);
    insta::assert_snapshot!(drawn(&question, choices, view));
}

#[test]
fn a_small_terminal_still_shows_the_path_and_the_keys() {
    let path = format!("/home/you/{}/end", "x".repeat(300));
    insta::assert_snapshot!(drawn(
        &question(path.as_bytes()),
        Choices::default(),
        View { columns: 60, rows: 9, ..VIEW }
    ));
}

#[test]
fn on_the_smallest_terminal_every_key_is_named() {
    let mut question = question("/home/you/\u{6771}".repeat(200).as_bytes());
    question.toolchain = Some("a toolchain with a very long name indeed".to_owned());
    (question.also, question.waiting) = (vec![PathBuf::from("/x"); 20], 21);
    let lines = Choices::default().lines(&question, View { columns: 59, rows: 8, ..VIEW });
    assert!(lines.len() <= 11 && lines.concat().contains("[?] more"), "{}", lines.join("\n"));
}

#[test]
fn each_key_means_what_it_says_and_no_other_means_anything() {
    let mut asked = question(b"/data/x");
    let allow = |reach, keep| Action::Answer(Verdict::Allow { reach, keep });
    for (key, action) in [
        (&b"y"[..], allow(Reach::File, Keep::Once)),
        (b"s", allow(Reach::File, Keep::Session)),
        (b"p", allow(Reach::File, Keep::Project)),
        (b"u", allow(Reach::File, Keep::User)),
        (b"n", Action::Answer(Verdict::DENY_ONCE)),
        (b"\x1b", Action::Answer(Verdict::DENY_ONCE)),
        (b"N", Action::Answer(Verdict::Deny { reach: Reach::File, keep: Keep::Session })),
        (b"\x03", Action::Interrupt),
        (b"l", Action::Later),
        (b"t", Action::Nothing),
        (b"Y", Action::Nothing),
        (b"\r", Action::Nothing),
        (b" ", Action::Nothing),
        (b"yes", Action::Nothing),
    ] {
        assert_eq!(Choices::default().key(key, &asked, VIEW), action, "{key:?}");
    }
    asked.toolchain = Some("rust toolchain".to_owned());
    let mut choices = Choices::default();
    choices.key(b"t", &asked, VIEW);
    assert_eq!(choices.key(b"s", &asked, VIEW), allow(Reach::Toolchain, Keep::Session));
    choices.key(b"d", &asked, VIEW);
    assert_eq!(choices.key(b"s", &asked, VIEW), allow(Reach::Dir, Keep::Session));
    choices.key(b"d", &asked, VIEW);
    assert_eq!(choices.key(b"s", &asked, VIEW), allow(Reach::File, Keep::Session));
}

#[test]
fn a_directory_that_no_answer_gives_is_not_offered() {
    let (asked, mut choices) = (question(b"/home/you/.config/tool"), Choices::default());
    assert!(drawn(&asked, choices, VIEW).contains("[d] whole directory"));
    let asked = Question { is_alone: true, hint: Some("no answer gives all of it".to_owned()), ..asked };
    let text = drawn(&asked, choices, VIEW);
    assert!(!text.contains("[d]") && text.contains("no answer gives all of it"), "{text}");
    assert_eq!(choices.key(b"d", &asked, VIEW), Action::Nothing);
    let session = Verdict::Allow { reach: Reach::File, keep: Keep::Session };
    assert_eq!(choices.key(b"s", &asked, VIEW), Action::Answer(session));
}

#[test]
fn without_keys_one_line_says_how_to_answer() {
    let line = notice("local-0a-1f", &question(b"/home/you/\x1b[2J"));
    let expected = "sandbox: cat wants to read /home/you/\\u{1b}[2J: `sandbox approve 1f:3` or `sandbox deny 1f:3`";
    assert_eq!(line, expected);
}

#[test]
fn nothing_is_offered_for_good_that_no_rule_can_give() {
    let offered = |question: &Question, choices: Choices| {
        let drawn = drawn(question, choices, VIEW);
        (drawn.contains("[p] this project"), drawn.contains("[u] always"))
    };
    let mut listing = Question { op: Op::List, is_dir: true, ..question(b"/home/you/notes") };
    let mut choices = Choices::default();
    assert_eq!(offered(&listing, choices), (false, false), "the names of a directory alone");
    assert_eq!(choices.key(b"u", &listing, VIEW), Action::Nothing);
    assert_eq!(choices.key(b"d", &listing, VIEW), Action::Redraw);
    assert_eq!(offered(&listing, choices), (true, true), "all of it");
    let always = Verdict::Allow { reach: Reach::Dir, keep: Keep::User };
    assert_eq!(choices.key(b"u", &listing, VIEW), Action::Answer(always));
    listing = Question { op: Op::Sign, subject: Subject::Key("SHA256:x".to_owned()), ..question(b"/x") };
    assert_eq!(offered(&listing, Choices::default()), (false, false), "what a key signs");
    assert_eq!(Choices::default().key(b"p", &listing, VIEW), Action::Nothing);
    assert_eq!(offered(&question(b"/home/you/notes"), Choices::default()), (true, true));
}

fn hosts() -> Question {
    let hosts = ["pypi.org:443", "files.pythonhosted.org:443"].map(str::to_owned).to_vec();
    let group = Some(Group::Hosts { name: "pip install".to_owned(), hosts });
    Question { group, ..hosts_alone() }
}

fn hosts_alone() -> Question {
    Question { op: Op::Connect, subject: Subject::Host("pypi.org:443".to_owned()), ..question(b"") }
}

fn files() -> Question {
    let names = ["app.1", "app.22", "app.333"].map(str::to_owned).to_vec();
    let group = Group::Files { directory: "/home/you/many".to_owned(), names };
    Question { group: Some(group), ..question(b"/home/you/many/app.22") }
}

#[test]
fn a_group_is_told_in_full_before_it_can_be_answered() {
    // A line that was folded goes on below its beginning.
    let whole = |question: &Question, choices| drawn(question, choices, VIEW).replace("\n         ", "");
    let said = "all 2 hosts of pip install: pypi.org:443, files.pythonhosted.org:443\n";
    let text = whole(&hosts(), Choices::default());
    assert!(text.contains(&format!("  for    this host and port\n  [g]    {said}")), "{text}");
    assert!(text.contains("\n [g] the group: off [y] once [s] this session"), "{text}");
    let text = whole(&files(), Choices::default());
    let of_files = "read all 3 of app.1, app.22, app.333 in /home/you/many\n";
    assert!(text.contains(&format!("  for    this file alone\n  [g]    {of_files}")), "{text}");
    let mut choices = Choices::default();
    assert_eq!(choices.key(b"g", &hosts(), VIEW), Action::Redraw);
    let text = whole(&hosts(), choices);
    assert!(text.contains(&format!("  for    {said}")) && !text.contains("[g]    all"), "{text}");
    assert!(text.contains("\n [g] the group: ON [s] this session [p] this project"), "{text}");
}

#[test]
fn a_group_that_has_no_room_on_the_panel_is_not_answered_there() {
    let of = |count: usize| {
        let hosts = (0..count).map(|n| format!("host-{n}.example.org:443")).collect();
        Question { group: Some(Group::Hosts { name: "many".to_owned(), hosts }), ..hosts_alone() }
    };
    for (count, view, fits) in [
        (20, VIEW, true),
        (40, VIEW, false),
        (20, View { rows: 12, ..VIEW }, false),
        (20, View { columns: 40, ..VIEW }, false),
        (3, View { columns: 40, ..VIEW }, true),
    ] {
        let (question, mut choices) = (of(count), Choices::default());
        let text = drawn(&question, choices, view);
        assert_eq!(text.contains("[g] the group: off"), fits, "{count}:\n{text}");
        assert_eq!(text.contains("no room for it here"), !fits, "{count}:\n{text}");
        let shown = text.replace("\n         ", "");
        let missing = (0..count).filter(|n| !shown.contains(&format!("host-{n}.example.org:443"))).count();
        assert_eq!(missing == 0, fits, "{count}:\n{text}");
        assert_eq!(choices.key(b"g", &question, view), if fits { Action::Redraw } else { Action::Nothing });
        let reach = if fits { Reach::Group } else { Reach::File };
        let answer = Action::Answer(Verdict::Allow { reach, keep: Keep::Session });
        assert_eq!(choices.key(b"s", &question, view), answer, "{count}");
    }
    // It had room when it was chosen.
    let (question, mut choices) = (of(20), Choices::default());
    choices.key(b"g", &question, VIEW);
    let small = View { rows: 12, ..VIEW };
    assert!(drawn(&question, choices, small).contains("for    this host and port"));
    assert_eq!(choices.key(b"s", &question, small), Action::Redraw);
    let alone = Action::Answer(Verdict::Allow { reach: Reach::File, keep: Keep::Session });
    assert_eq!(choices.key(b"s", &question, small), alone);
}

#[test]
fn names_of_a_group_are_shown_escaped() {
    let group = Group::Files {
        directory: "/h/\u{1b}[2J\u{202e}x".to_owned(),
        names: vec!["app.1".to_owned(), "app.2".to_owned()],
    };
    let text = drawn(&Question { group: Some(group), ..question(b"/h/app.2") }, Choices::default(), VIEW);
    assert!(text.contains("[g]    read all 2 of app.1, app.2 in /h/") && !text.contains('\u{202e}'), "{text}");
}

#[test]
fn a_group_is_answered_as_it_can_be_given() {
    let answer = |key: &[u8], question: &Question| {
        let mut choices = Choices::default();
        choices.key(b"g", question, VIEW);
        choices.key(key, question, VIEW)
    };
    let allow = |keep| Action::Answer(Verdict::Allow { reach: Reach::Group, keep });
    let deny = Action::Answer(Verdict::Deny { reach: Reach::File, keep: Keep::Session });
    for (question, key, expected) in [
        (hosts(), &b"s"[..], allow(Keep::Session)),
        (hosts(), b"p", allow(Keep::Project)),
        (hosts(), b"u", allow(Keep::User)),
        (hosts(), b"y", Action::Nothing),
        (hosts(), b"N", deny),
        (files(), b"s", allow(Keep::Session)),
        (files(), b"u", Action::Nothing),
        (files(), b"y", Action::Nothing),
        // Without a group the key means nothing.
        (question(b"/home/you/x"), b"y", Action::Answer(Verdict::Allow { reach: Reach::File, keep: Keep::Once })),
    ] {
        assert_eq!(answer(key, &question), expected, "{question:?}");
    }
}
