//! The review drawn to memory, and what its keys do.

use std::path::Path;

use cofferdam_workspace::diff::{self, Difference, Hunk};
use cofferdam_workspace::{Change, Conflict, Entry as FileEntry, Time, What};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::*;
use crate::commands::review::content::{Content, Line as Shown};
use crate::commands::review::model::Effect;

fn entry(mode: u32) -> FileEntry {
    FileEntry {
        kind: Kind::File,
        mode,
        size: 5,
        device: 1,
        inode: 2,
        links: 1,
        modified: Time(1, 0),
        changed: Time(1, 0),
        is_whiteout: false,
        target: None,
    }
}

fn change(path: &str, what: What) -> Change {
    let before = (what != What::Added).then(|| entry(0o644));
    Change { path: path.into(), what, before, after: Some(entry(0o644)), conflict: None }
}

fn changes() -> Vec<Change> {
    let mut link = change("out", What::Added);
    link.after = Some(FileEntry { kind: Kind::Link, target: Some("/etc/passwd".into()), ..entry(0o777) });
    let conflict = Change { conflict: Some(Conflict::Changed), ..change("both", What::Modified) };
    vec![
        change(".git/HEAD", What::Modified),
        change(".vscode/tasks.json", What::Added),
        conflict,
        change("Makefile", What::Modified),
        link,
        change("src/\u{1b}[2J\u{202e}evil", What::Modified),
        change("src/many", What::Modified),
    ]
}

/// As `Items` makes them of these changes.
fn items(changes: &[Change]) -> Vec<Item<'_>> {
    let one = |change| Item { tree: 0, change, with: vec![], is_repository: false, opened: vec![], is_run: false };
    let mut items: Vec<Item<'_>> = changes.iter().map(one).collect();
    items[0].is_repository = true;
    items[1].opened = vec![&changes[1]];
    items[3].is_run = true;
    items
}

fn hunks() -> Vec<Hunk> {
    let before = (1..=40).map(|number| number.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    let after = before.replace("\n3\n", "\n3 three\n").replace("\n20\n", "\n").replace("\n38\n", "\n38 last\n");
    let found = diff::compare(Some(before.as_bytes()), Some(after.as_bytes()));
    let Difference::Text { hunks, .. } = found else { panic!("it is text") };
    hunks
}

/// What would be read of the selected item.
fn read(review: &mut Review<'_>) {
    let Some(item) = review.unread() else { return };
    let words = |text: &str| vec![Shown { look: Look::Warning, text: text.to_owned(), hunk: None }];
    let content = if item.change.path == Path::new("src/many") {
        Content { words: vec![], hunks: hunks(), can_split: true }
    } else if item.opened.is_empty() {
        Content { words: words("words about it"), ..Content::default() }
    } else {
        Content { words: words("needs --opens: an editor runs it"), ..Content::default() }
    };
    review.show(content);
}

fn drawn(review: &mut Review<'_>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    let (columns, rows) = room(review, Rect::new(0, 0, width, height));
    review.set_room(columns, rows);
    read(review);
    let picture = Picture { title: "sandbox review 4f1f6a0c9d2e", is_coloured: true, unshown: 0 };
    terminal.draw(|frame| draw(frame, review, &picture)).expect("memory");
    terminal.backend().to_string()
}

fn press(review: &mut Review<'_>, keys: &str) -> Effect {
    let mut effect = Effect::Nothing;
    for key in keys.chars() {
        read(review);
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            key => KeyCode::Char(key),
        };
        effect = review.key(code, KeyModifiers::NONE);
    }
    read(review);
    effect
}

fn marks(review: &Review<'_>) -> String {
    review.entries.iter().map(|entry| symbol(entry.mark())).collect()
}

#[test]
fn files_and_hunks_stand_side_by_side_and_names_are_escaped() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    let text = drawn(&mut review, 80, 24);
    for shown in ["git directory (1 name)", "OPENS", "CONFLICT", "runs", "LINK OUT", "\\u{1b}[2J\\u{202e}evil"] {
        assert!(text.contains(shown), "{shown} is not in\n{text}");
    }
    press(&mut review, "jjjjjj\tarj");
    insta::assert_snapshot!(drawn(&mut review, 80, 24));
}

#[test]
fn a_narrow_terminal_shows_one_pane_and_a_tiny_one_does_not_fail() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    press(&mut review, "jjjjjj");
    let files = drawn(&mut review, 60, 20);
    assert!(files.contains("FILES") && !files.contains("3 three"), "{files}");
    press(&mut review, "\t");
    let lines = drawn(&mut review, 60, 20);
    assert!(!lines.contains("FILES") && lines.contains("3 three"), "{lines}");
    for (width, height) in [(1, 1), (5, 2), (20, 5), (300, 3)] {
        drawn(&mut review, width, height);
    }
}

#[test]
fn classes_have_a_colour_of_their_own_and_none_without_colours() {
    let changes = changes();
    let colours = |is_coloured: bool| -> Vec<Option<Color>> {
        let review = Review::new(items(&changes));
        review.entries.iter().map(|entry| file_row(entry, is_coloured, 40).spans[2].style.fg).collect()
    };
    let expected = [None, Some(Color::Magenta), Some(Color::Red), Some(Color::Yellow), Some(Color::Cyan), None, None];
    assert_eq!(colours(true), expected);
    assert_eq!(colours(false), [None; 7]);
}

#[test]
fn what_hosts_obey_needs_the_word_yes_and_a_conflict_cannot_be_taken() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    press(&mut review, "ja");
    assert!(drawn(&mut review, 80, 24).contains("Type `yes`"));
    press(&mut review, "y\n");
    assert_eq!(marks(&review), "       ", "one letter is no yes");
    press(&mut review, "ayes\n");
    assert_eq!(marks(&review), " +     ");
    press(&mut review, "ja");
    assert_eq!(marks(&review), " +     ");
    assert!(review.message.contains("--overwrite"), "{}", review.message);
    press(&mut review, "r");
    assert_eq!(marks(&review), " +-    ");
}

#[test]
fn accept_all_leaves_what_needs_a_decision_of_its_own() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    press(&mut review, "jjjr");
    press(&mut review, "A");
    assert_eq!(marks(&review), "+  -+++");
    assert_eq!(review.message, "4 accepted; 1 that host programs obey need their own yes; 1 in conflict wait");
}

#[test]
fn hunks_are_decided_one_by_one_and_stay_so_when_another_file_was_looked_at() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    press(&mut review, "jjjjjj\tav");
    assert_eq!(marks(&review), "      ~");
    press(&mut review, "\tkj");
    let (_, decided) = review.entries[6].parts().expect("its hunks are kept");
    assert_eq!(decided, [Mark::Accepted, Mark::Reviewed, Mark::Open]);
    press(&mut review, "a");
    assert_eq!(marks(&review), "      +", "the file as a whole");
    press(&mut review, "w");
    assert_eq!(marks(&review), "       ");
}

#[test]
fn nothing_is_committed_without_a_decision_nor_dropped_without_a_yes() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    assert_eq!(press(&mut review, "c"), Effect::Nothing);
    assert!(review.message.contains("nothing is accepted"), "{}", review.message);
    press(&mut review, "v");
    assert_eq!(press(&mut review, "c"), Effect::Nothing);
    assert_eq!(press(&mut review, "Dy\n"), Effect::Nothing);
    assert_eq!(press(&mut review, "Dyes\n"), Effect::RollBack);
    assert_eq!(press(&mut review, "gw"), Effect::Nothing);
    assert_eq!(press(&mut review, "q"), Effect::Leave, "nothing is marked any more");
    assert_eq!(review.key(KeyCode::Char('c'), KeyModifiers::CONTROL), Effect::Leave);
    assert_eq!(press(&mut review, "jjra"), Effect::Nothing);
    // Letters alone are no yes.
    assert_eq!(press(&mut review, "ccy\n"), Effect::Nothing);
    assert_eq!(press(&mut review, "cyes\n"), Effect::Commit);
}

#[test]
fn the_ends_and_pages_of_many_files_are_one_key_away() {
    let changes: Vec<Change> = (0..3000).map(|at| change(&format!("d/{at:04}"), What::Added)).collect();
    let one = |change| Item { tree: 0, change, with: vec![], is_repository: false, opened: vec![], is_run: false };
    let mut review = Review::new(changes.iter().map(one).collect());
    drawn(&mut review, 80, 24);
    let mut at = |code: KeyCode| {
        read(&mut review);
        review.key(code, KeyModifiers::NONE);
        review.selected
    };
    assert_eq!(at(KeyCode::End), 2999);
    assert_eq!(at(KeyCode::Home), 0);
    assert_eq!(at(KeyCode::Char('G')), 2999);
    assert_eq!(at(KeyCode::Char('g')), 0);
    let page = at(KeyCode::PageDown);
    assert!((10..24).contains(&page), "{page}");
    assert_eq!(at(KeyCode::PageUp), 0);
}

#[test]
fn names_are_found_by_a_part_of_them_and_the_search_goes_on() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    press(&mut review, "/makeFILE\n");
    assert_eq!(review.selected, 3);
    press(&mut review, "/SRC\n");
    assert_eq!(review.selected, 5);
    press(&mut review, "n");
    assert_eq!(review.selected, 6);
    press(&mut review, "n");
    assert_eq!(review.selected, 5, "from the beginning again");
    press(&mut review, "N");
    assert_eq!(review.selected, 6);
    press(&mut review, "/nowhere\n");
    assert_eq!((review.selected, review.message.as_str()), (6, "no name has `nowhere` in it"));
    // What is typed there is no decision.
    assert_eq!(marks(&review), "       ");
    assert!(drawn(&mut review, 80, 24).contains("[/] find"));
}

#[test]
fn a_directory_is_decided_at_once_but_for_what_needs_a_decision_of_its_own() {
    let mut changes = [
        change("a/.vscode/tasks.json", What::Added),
        change("a/b/both", What::Modified),
        change("a/b/one", What::Added),
        change("a/b/two", What::Added),
        change("a/three", What::Added),
        change("other", What::Added),
    ];
    changes[1].conflict = Some(Conflict::Changed);
    let one = |change| Item { tree: 0, change, with: vec![], is_repository: false, opened: vec![], is_run: false };
    let mut items: Vec<Item<'_>> = changes.iter().map(one).collect();
    items[0].opened = vec![&changes[0]];
    let mut review = Review::new(items);
    press(&mut review, "jjjd");
    assert!(drawn(&mut review, 80, 24).contains("a/b/: 2 undecided"), "{}", drawn(&mut review, 80, 24));
    press(&mut review, "x");
    assert_eq!(marks(&review), "      ", "another key decides nothing");
    press(&mut review, "r");
    assert_eq!(marks(&review), "   -  ");
    // The directory above, and what was decided stays.
    press(&mut review, "kkdda");
    assert_eq!(marks(&review), "  +-+ ");
    assert_eq!(review.message, "2 accepted; 1 that host programs obey need their own yes; 1 in conflict wait");
    press(&mut review, "Gdr");
    assert_eq!(marks(&review), "  +-+-");
}

#[test]
fn decisions_are_not_lost_by_one_key() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    assert_eq!(press(&mut review, "jjjaq"), Effect::Nothing);
    let text = drawn(&mut review, 80, 24);
    assert!(text.contains("1 accepted, 0 rejected, 0 reviewed are not kept: [c] commit"), "{text}");
    assert_eq!(press(&mut review, "j"), Effect::Nothing);
    assert_eq!(marks(&review), "   +   ", "another key goes back");
    assert_eq!(press(&mut review, "qcyes\n"), Effect::Commit);
    assert_eq!(press(&mut review, "qq"), Effect::Leave);
    let mut review = Review::new(items(&changes));
    assert_eq!(press(&mut review, "vq"), Effect::Nothing, "a file that was looked at is a mark, too");
    assert_eq!(press(&mut review, "q"), Effect::Leave);
}

#[test]
fn a_small_terminal_shows_whole_keys_and_all_of_them_when_asked() {
    let changes = changes();
    let mut review = Review::new(items(&changes));
    let text = drawn(&mut review, 40, 8);
    for shown in ["1/7: 0 accepted, 0 rejected, 0 reviewed", "[a] accept", "[c] commit", "[q] leave", "[?] all keys"] {
        assert!(text.contains(shown), "{shown} is not in\n{text}");
    }
    assert!(text.contains("git directory") && text.contains("OPENS"), "{text}");
    press(&mut review, "?");
    let first = drawn(&mut review, 40, 8);
    assert!(first.contains("[v] reviewed"), "{first}");
    press(&mut review, " ");
    let second = drawn(&mut review, 40, 8);
    assert!(second.contains("[D] roll back"), "{second}");
    press(&mut review, "a");
    assert_eq!(marks(&review), "       ", "it closes the keys and decides nothing");
    assert!(drawn(&mut review, 40, 8).contains("git directory"));
}
