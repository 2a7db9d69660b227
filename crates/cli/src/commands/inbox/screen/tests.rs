//! The inbox drawn to memory, and what its keys do.

use std::time::Duration;

use cofferdam_host::persist::KeptRule;
use cofferdam_policy::{Access, PathExpr, Setting};
use cofferdam_wire::protocol::{Command, Event, FsRequest, Persist, SessionStatus};
use cofferdam_wire::{Asker, Cause, Group, Op, Program};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::*;
use crate::commands::inbox::model::Effect;
use crate::commands::revoke::{DecidedThen, KeptAnswer};

fn request(id: u64, path: &str) -> Event {
    let program =
        Program { pid: 7, exe: "/usr/bin/cat".to_owned(), argv: vec!["cat".to_owned(), "\x1b[31m".to_owned()] };
    Event::FsRequest(Box::new(FsRequest {
        id,
        pid: 7,
        exe: "/usr/bin/cat".to_owned(),
        cwd: "/home/you".to_owned(),
        op: Op::Read,
        path: path.to_owned(),
        path_bytes: None,
        flags: 0,
        is_dir: false,
        size: 12,
        asker: Asker { program, cwd: "/home/you".to_owned(), parents: vec![] },
        toolchain: None,
        group: None,
        is_alone: false,
        also: vec![],
        hint: None,
        waiting: 1,
        ts: 0.0,
        until: None,
    }))
}

fn decided(id: u64) -> Event {
    Event::Audit {
        id,
        decision: Decision::Allow,
        scope: Reach::Dir,
        persist: Keep::Session,
        cause: Cause::Person,
        path: "/h/\u{202e}x".to_owned(),
        ts: 0.0,
        granted: vec![],
        group: None,
        by: None,
    }
}

fn status(session: &str) -> Event {
    Event::Session(Box::new(SessionStatus {
        session: session.to_owned(),
        pid: 99,
        argv: vec!["make".to_owned(), "test".to_owned()],
        memory: Some(5 << 20),
        processes: Some(3),
        ..SessionStatus::default()
    }))
}

fn press(inbox: &mut Inbox, key: char, now: Instant) -> Effect {
    inbox.key(KeyCode::Char(key), KeyModifiers::NONE, now)
}

fn drawn(inbox: &Inbox) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("memory");
    terminal.draw(|frame| draw(frame, inbox)).expect("memory");
    terminal.backend().to_string()
}

#[test]
fn questions_sessions_and_decisions_are_shown_escaped() {
    let now = Instant::now().checked_sub(Duration::from_secs(10)).expect("long after the start");
    let mut inbox = Inbox::default();
    assert!(drawn(&inbox).contains("no open questions"));
    inbox.take("local-0a-6b1f0e92d7c4", status("local-0a-6b1f0e92d7c4"), now);
    inbox.take("local-0b-2c8e91a0f3d5", status("local-0b-2c8e91a0f3d5"), now);
    inbox.take("local-0a-6b1f0e92d7c4", request(2, "/home/you/\x1b[2J\u{202e}txt"), now);
    inbox.take("local-0b-2c8e91a0f3d5", request(5, &format!("/home/you/{}/.ssh/id", "deep/".repeat(20))), now);
    inbox.take("local-0a-6b1f0e92d7c4", decided(1), now);
    insta::assert_snapshot!(drawn(&inbox));
    press(&mut inbox, 'j', now + Duration::from_secs(1));
    press(&mut inbox, 'd', now + Duration::from_secs(1));
    insta::assert_snapshot!(drawn(&inbox));
}

#[test]
fn of_a_path_too_long_for_the_screen_the_end_is_shown() {
    let now = Instant::now();
    let mut inbox = Inbox::default();
    inbox.take("local-0a-6b1f0e92d7c4", request(2, &format!("/home/you/{}/.ssh/id_ed25519", "long/".repeat(700))), now);
    let text = drawn(&inbox);
    assert!(text.contains("characters not shown: see `sandbox questions`"), "{text}");
    assert_eq!(text.matches(".ssh/id_ed25519").count(), 2, "{text}");
    assert!(text.contains("by: /usr/bin/cat"), "{text}");
}

#[test]
fn nothing_is_offered_for_good_that_no_rule_can_give() {
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    let mut inbox = Inbox::default();
    let Event::FsRequest(mut listing) = request(2, "/home/you/notes") else { panic!("it is a question") };
    (listing.op, listing.is_dir) = (Op::List, true);
    inbox.take("local-0a-6b1f0e92d7c4", Event::FsRequest(listing), now);
    assert!(!drawn(&inbox).contains("[u] always"), "{}", drawn(&inbox));
    assert_eq!(press(&mut inbox, 'u', later), Effect::Nothing);
    press(&mut inbox, 'd', later);
    assert!(drawn(&inbox).contains("[u] always"), "{}", drawn(&inbox));
    assert!(matches!(press(&mut inbox, 'u', later), Effect::Say(..)));
}

/// As the loop does it before a key.
fn drawn_in(inbox: &mut Inbox, columns: u16, rows: u16) -> String {
    inbox.group_in_view = group_in_view(inbox, Rect::new(0, 0, columns, rows));
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("memory");
    terminal.draw(|frame| draw(frame, inbox)).expect("memory");
    terminal.backend().to_string()
}

#[test]
fn a_group_is_answered_where_all_of_it_is_on_the_screen() {
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    for (count, columns, rows, fits) in
        [(4, 80, 24, true), (16, 80, 24, true), (16, 80, 15, false), (16, 30, 24, false)]
    {
        let mut inbox = Inbox::default();
        let Event::FsRequest(mut asked) = request(2, "/home/you/many/app.2") else { panic!("it is a question") };
        let names: Vec<String> = (0..count).map(|n| format!("application.json.{n}")).collect();
        asked.group = Some(Group::Files { directory: "/home/you/many".to_owned(), names: names.clone() });
        inbox.take("local-0a-6b1f0e92d7c4", Event::FsRequest(asked), now);
        let text = drawn_in(&mut inbox, columns, rows);
        assert_eq!(text.contains("[g] the group: off"), fits, "{text}");
        press(&mut inbox, 'g', later);
        assert_eq!(inbox.reach == Some(Reach::Group), fits, "{count} {columns}");
        let text = drawn_in(&mut inbox, columns, rows);
        let has =
            |text: &str, name: &String| text.contains(&format!("{name},")) || text.contains(&format!("{name} in"));
        if fits {
            let text = text.lines().map(|line| line.trim_matches('"').trim_end()).collect::<Vec<_>>().join(" ");
            assert!(names.iter().filter(|name| has(&text, name)).count() + 2 >= names.len(), "{text}");
            assert!(text.contains("for: read all") && !text.contains("[u]") && !text.contains("[y]"), "{text}");
            // The terminal is smaller by now: the first key shows that it is about the file alone.
            drawn_in(&mut inbox, 18, 10);
            assert_eq!((press(&mut inbox, 's', later), inbox.reach), (Effect::Nothing, None));
        }
        let scope = Reach::File;
        let (session, persist) = ("local-0a-6b1f0e92d7c4".to_owned(), Persist::Keep(Keep::Session));
        let command = Command::Approve { id: 2, scope, persist };
        assert_eq!(press(&mut inbox, 's', later), Effect::Say(session, command), "{count} {columns}");
    }
}

#[test]
fn a_filter_shows_and_answers_only_what_has_its_text() {
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(2));
    let mut inbox = Inbox::default();
    inbox.take("local-0a-6b1f0e92d7c4", request(2, "/a/one"), now);
    inbox.take("local-0b-2c8e91a0f3d5", request(3, "/b/Two"), now);
    for key in ['/', 't', 'w'] {
        press(&mut inbox, key, later);
    }
    assert!(drawn(&inbox).contains("2 open, 1 shown /tw_"), "{}", drawn(&inbox));
    inbox.key(KeyCode::Enter, KeyModifiers::NONE, later);
    assert!(!drawn(&inbox).contains("/a/one"), "{}", drawn(&inbox));
    assert_eq!(press(&mut inbox, 'y', later), Effect::Nothing, "it just came under the selection");
    let answered = press(&mut inbox, 'y', later + Duration::from_secs(1));
    assert!(matches!(answered, Effect::Say(session, _) if session == "local-0b-2c8e91a0f3d5"));
    inbox.key(KeyCode::Esc, KeyModifiers::NONE, later);
    assert!(drawn(&inbox).contains("/a/one"));
    press(&mut inbox, '?', later);
    assert!(drawn(&inbox).contains("kept for the project"), "{}", drawn(&inbox));
    assert_eq!(press(&mut inbox, 'q', later), Effect::Nothing, "any key goes back");
}

#[test]
fn an_answer_goes_to_the_session_that_asked() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let mut inbox = Inbox::default();
    inbox.take("local-0a-6b1f0e92d7c4", request(2, "/a"), now);
    inbox.take("local-0b-2c8e91a0f3d5", request(2, "/b"), now);
    assert_eq!(press(&mut inbox, 'y', now), Effect::Nothing, "the operator has not read it yet");
    let once = Command::Approve { id: 2, scope: Reach::File, persist: Persist::Keep(Keep::Once) };
    assert_eq!(press(&mut inbox, 'y', later), Effect::Say("local-0a-6b1f0e92d7c4".to_owned(), once));
    press(&mut inbox, 'j', later);
    press(&mut inbox, 'd', later);
    let session = Command::Approve { id: 2, scope: Reach::Dir, persist: Persist::Keep(Keep::Session) };
    assert_eq!(press(&mut inbox, 's', later), Effect::Say("local-0b-2c8e91a0f3d5".to_owned(), session));
    // A question above goes away, and the selection stays where it is.
    inbox.take("local-0a-6b1f0e92d7c4", decided(2), later);
    let deny = Command::Deny { id: 2, scope: Reach::File, persist: Persist::Keep(Keep::Once) };
    assert_eq!(press(&mut inbox, 'n', later), Effect::Say("local-0b-2c8e91a0f3d5".to_owned(), deny));
    // Its session ends: the next one under the selection is not answered at once.
    inbox.take("local-0c-93d4b7e61f08", request(1, "/c"), later);
    inbox.keep_only(&["local-0c-93d4b7e61f08"], later);
    assert_eq!(press(&mut inbox, 'y', later), Effect::Nothing);
    assert!(
        matches!(press(&mut inbox, 'y', later + Duration::from_secs(1)), Effect::Say(session, _) if session == "local-0c-93d4b7e61f08")
    );
    assert_eq!(inbox.key(KeyCode::Char('y'), KeyModifiers::CONTROL, later + Duration::from_secs(2)), Effect::Nothing);
    assert_eq!(press(&mut inbox, 'q', later), Effect::Quit);
}

fn answered(what: &str, keep: Option<&str>) -> Answered {
    let kept = keep.map(|path| KeptAnswer {
        rule: KeptRule {
            keep: Keep::User,
            file: "/home/you/.config/cofferdam/config.toml".into(),
            line: Some(3),
            setting: Setting::File {
                access: Access::Read,
                path: PathExpr::parse(path).expect("a path"),
                optional: true,
                reason: "approved 2026-11-19: /usr/bin/cat".into(),
            },
        },
        project: None,
        decided: Some(DecidedThen {
            time: "2026-11-19T08:10:00.123456Z".to_owned(),
            session: "local-0a-6b1f0e92d7c4".to_owned(),
            cause: "person".to_owned(),
            program: "/usr/bin/cat".to_owned(),
        }),
    });
    let details = kept.as_ref().map_or_else(|| vec!["counts until the session ends".to_owned()], KeptAnswer::details);
    let scope = if kept.is_some() { "user" } else { "session 6b1f0e92d7c4" };
    Answered { what: what.to_owned(), scope: scope.to_owned(), details, kept }
}

#[test]
fn the_history_lists_what_counts_and_revokes_a_kept_answer_at_the_second_key() {
    let later = Instant::now() + Duration::from_secs(1);
    let mut inbox = Inbox::default();
    assert_eq!(press(&mut inbox, 'h', later), Effect::LoadHistory);
    assert!(drawn(&inbox).contains("answers in force: 0"), "{}", drawn(&inbox));
    let kept = answered("files.read = \"~/notes/\u{1b}[2J\"", Some("~/notes/x"));
    inbox.history.show(vec![answered("allowed read /home/you/list.h", None), kept.clone()]);
    let text = drawn(&inbox);
    assert!(
        text.contains("> allowed read /home/you/list.h (session 6b1f0e92d7c4)") && !text.contains("[r] revoke"),
        "{text}"
    );
    assert_eq!(press(&mut inbox, 'r', later), Effect::Nothing);
    assert!(drawn(&inbox).contains("cannot be revoked: counts until the session ends"), "{}", drawn(&inbox));
    press(&mut inbox, 'j', later);
    let text = drawn(&inbox);
    assert!(text.contains("config.toml:3") && text.contains("2026-11-19 08:10:00 UTC by person"), "{text}");
    assert!(text.contains("[r] revoke") && !text.contains('\u{1b}'), "{text}");
    assert_eq!(press(&mut inbox, 'r', later), Effect::Nothing);
    assert!(drawn(&inbox).contains("press r again"), "{}", drawn(&inbox));
    assert_eq!(press(&mut inbox, 'x', later), Effect::Nothing, "any other key leaves it");
    assert_eq!(press(&mut inbox, 'r', later), Effect::Nothing);
    let revoked = kept.kept.expect("it is kept");
    assert_eq!(press(&mut inbox, 'r', later), Effect::Revoke(Box::new(revoked)));
    inbox.history.show(Vec::new());
    assert!(inbox.history.selected().is_none());
}

#[test]
fn back_from_the_history_no_key_answers_at_once() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let mut inbox = Inbox::default();
    inbox.take("local-0a-6b1f0e92d7c4", request(2, "/a"), now);
    press(&mut inbox, 'h', later);
    for key in ['y', 's', 'n', 'u'] {
        assert_eq!(press(&mut inbox, key, later), Effect::Nothing, "{key} in the history answers no question");
    }
    press(&mut inbox, 'q', later);
    assert_eq!(press(&mut inbox, 'y', later), Effect::Nothing);
    assert!(matches!(press(&mut inbox, 'y', later + Duration::from_secs(1)), Effect::Say(..)));
}
