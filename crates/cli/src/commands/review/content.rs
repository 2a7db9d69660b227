//! What the review shows of one item: words about it and the lines that changed. Owns their escaping and their bounds, because a
//! workload wrote them; reads through `workspace` and decides nothing. Called by `review`.

use std::fmt::Write as _;

use cofferdam_gate::{columns, folded};
use cofferdam_policy::is_unseen;
use cofferdam_workspace::diff::{Difference, Hunk, Tag};
use cofferdam_workspace::{Change, Entry, Kind, Transaction, What};

use crate::commands::selection::Item;
use crate::render::changes::{difference, is_object, name, remarks_where};
use crate::render::output::bytes;
use crate::waiting::Classes;

/// Characters of one line; what is longer is said.
const LONGEST_LINE: usize = 2000;
/// Lines and characters of one item on the screen. `sandbox diff` has the rest.
const MOST_LINES: usize = 5000;
const MOST_CHARACTERS: usize = 1 << 19;
/// Names that go with an item.
const MOST_NAMED: usize = 200;
/// How what host programs obey without being asked is taken here.
const OPENS: &str = "[a] and the word `yes` take it";
/// Marks that stand on one character; more would cover the lines around it.
const MOST_MARKS: usize = 2;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Words,
    /// What a person must know before it is taken.
    Warning,
    Position,
    Added,
    Removed,
    Context,
}

/// Text that can be drawn as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) look: Look,
    pub(super) text: String,
    /// The hunk that it is part of.
    pub(super) hunk: Option<usize>,
}

/// One item as it was read.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) words: Vec<Line>,
    pub(super) hunks: Vec<Hunk>,
    /// Each hunk can be taken by itself.
    pub(super) can_split: bool,
}

fn words(look: Look, text: &str) -> Line {
    Line { look, text: cut(text), hunk: None }
}

/// Reads an item.
pub(super) fn read(transaction: &Transaction, classes: &Classes<'_>, item: &Item<'_>) -> Content {
    let mut content = Content::default();
    if item.is_repository {
        content.words = repository(item);
    }
    for change in item.to_tell().into_iter().take(MOST_NAMED) {
        for remark in remarks_where(classes, item.tree, change, OPENS) {
            let of = if item.with.is_empty() { String::new() } else { format!("{}: ", name(&change.path)) };
            content.words.push(words(Look::Warning, &format!("{of}{remark}")));
        }
    }
    if item.is_repository {
        return content;
    }
    content.words.extend(sentence(item.change).map(|text| words(Look::Words, &text)));
    content.hunks = item.hunks(transaction);
    content.can_split = !content.hunks.is_empty();
    if item.change.kind() == Kind::File && content.hunks.is_empty() {
        match difference(transaction, item.tree, item.change) {
            Difference::Text { hunks, .. } => content.hunks = hunks,
            Difference::Binary => content.words.push(words(Look::Words, &binary(item.change))),
        }
    }
    if !item.with.is_empty() {
        content.words.push(words(Look::Words, &format!("{} names go with it:", item.with.len())));
        content.words.extend(named(&item.with));
    }
    content
}

fn repository(item: &Item<'_>) -> Vec<Line> {
    let (objects, others): (Vec<&Change>, Vec<&Change>) = item.all().partition(|change| is_object(change));
    let mut lines = vec![words(Look::Words, "commits, branches and index go together")];
    if !objects.is_empty() {
        lines.push(words(Look::Words, &format!("{} new objects of git", objects.len())));
    }
    lines.extend(named(&others));
    lines
}

fn named(changes: &[&Change]) -> Vec<Line> {
    let word = |change: &Change| match change.what {
        What::Added => "new",
        What::Modified => "changed",
        What::Deleted => "removed",
        What::Replaced => "replaced",
    };
    let line = |change: &&Change| words(Look::Words, &format!("  {:<8} {}", word(change), name(&change.path)));
    let mut lines: Vec<Line> = changes.iter().take(MOST_NAMED).map(line).collect();
    if changes.len() > MOST_NAMED {
        lines.push(words(Look::Warning, &format!("  and {} more", changes.len() - MOST_NAMED)));
    }
    lines
}

fn kind(entry: &Entry) -> String {
    match (entry.kind, entry.target.as_deref()) {
        (Kind::Link, Some(target)) => format!("a link to {}", name(target)),
        (Kind::Link, None) => "a link".to_owned(),
        (Kind::Directory, _) => "a directory".to_owned(),
        (Kind::File, _) if entry.mode & 0o111 != 0 => "an executable file".to_owned(),
        (Kind::File, _) => "a file".to_owned(),
        (Kind::Fifo | Kind::Socket | Kind::Device, _) => "no file".to_owned(),
    }
}

/// What became of it, where its lines do not say it.
fn sentence(change: &Change) -> Option<String> {
    let was_run = |entry: &Entry| entry.mode & 0o111 != 0;
    match (&change.before, &change.after) {
        (None, Some(after)) => Some(format!("new: {}", kind(after))),
        (Some(before), None) => Some(format!("removed: {}", kind(before))),
        (Some(before), Some(after)) if before.kind != after.kind || before.target != after.target => {
            Some(format!("was {}, is {}", kind(before), kind(after)))
        }
        (Some(before), Some(after)) if before.kind == Kind::File && was_run(before) != was_run(after) => {
            Some(if was_run(after) { "can be executed now" } else { "cannot be executed any more" }.to_owned())
        }
        _ => None,
    }
}

fn binary(change: &Change) -> String {
    let size =
        |entry: &Option<Entry>| entry.as_ref().filter(|entry| entry.kind == Kind::File).map(|entry| bytes(entry.size));
    let sizes = match (size(&change.before), size(&change.after)) {
        (Some(before), Some(after)) => format!("{before} before, {after} now"),
        (Some(before), None) => format!("{before} before"),
        (None, Some(after)) => format!("{after} now"),
        (None, None) => "of no size".to_owned(),
    };
    format!("binary, or too large to compare: {sizes}")
}

/// All lines of an item, bounded.
pub(super) fn lines(words: &[Line], hunks: &[Hunk]) -> Vec<Line> {
    let mut lines = words.to_vec();
    let (mut shown, all) = (0, hunks.iter().map(|hunk| hunk.lines.len()).sum::<usize>());
    let mut characters = 0;
    for (at, hunk) in hunks.iter().enumerate() {
        let mut push = |look, text| lines.push(Line { look, text, hunk: Some(at) });
        push(Look::Position, hunk.position());
        for line in &hunk.lines {
            if shown >= MOST_LINES || characters >= MOST_CHARACTERS {
                break;
            }
            let (look, sign) = match line.tag {
                Tag::Added => (Look::Added, '+'),
                Tag::Removed => (Look::Removed, '-'),
                Tag::Context => (Look::Context, ' '),
            };
            let end = line.text.strip_suffix(b"\n");
            let text = visible(sign, end.unwrap_or(&line.text));
            characters += text.len();
            shown += 1;
            push(look, text);
            if end.is_none() {
                push(Look::Context, "\\ No newline at end of file".to_owned());
            }
        }
    }
    if shown < all {
        let text = format!("{} more lines are not shown: see `sandbox diff`", all - shown);
        let note = Line { look: Look::Warning, text, hunk: None };
        // Where it is seen first, too: what is taken is more than what is shown.
        lines.insert(words.len(), note.clone());
        lines.push(note);
    }
    lines
}

/// The lines over rows of this width: what stands far to the right is on the screen, too.
pub(super) fn rows(lines: &[Line], width: usize) -> Vec<Line> {
    let width = width.max(8);
    let fold = |line: &Line| {
        let (look, hunk) = (line.look, line.hunk);
        folded(&line.text, width).into_iter().map(move |text| Line { look, text, hunk }).collect::<Vec<_>>()
    };
    lines.iter().flat_map(fold).collect()
}

fn cut(text: &str) -> String {
    let count = text.chars().count();
    if count <= LONGEST_LINE {
        return text.to_owned();
    }
    let begin: String = text.chars().take(LONGEST_LINE).collect();
    format!("{begin} <<< {} more characters are not shown: see `sandbox diff` >>>", count - LONGEST_LINE)
}

/// A line of a file: nothing in it moves the cursor, hides, or covers what stands beside it.
fn visible(sign: char, text: &[u8]) -> String {
    // A character has four bytes at most; the rest is only counted.
    let begin = &text[..text.len().min(4 * LONGEST_LINE)];
    let mut out = String::from(sign);
    let (mut marks, mut characters) = (0, 0);
    let mut used = 0;
    for chunk in begin.utf8_chunks() {
        for c in chunk.valid().chars() {
            if characters >= LONGEST_LINE {
                break;
            }
            characters += 1;
            used += c.len_utf8();
            marks = if columns(c) == 0 { marks + 1 } else { 0 };
            match c {
                '\t' => out.push_str("\u{2192}   "),
                c if is_unseen(c) || marks > MOST_MARKS => out.extend(c.escape_unicode()),
                c => out.push(c),
            }
        }
        if characters >= LONGEST_LINE {
            break;
        }
        for byte in chunk.invalid() {
            characters += 1;
            used += 1;
            // Writing to a string does not fail.
            write!(out, "\\x{byte:02x}").unwrap_or_default();
        }
    }
    if used < text.len() {
        let left = text.len() - used;
        write!(out, " <<< {left} more bytes are not shown: see `sandbox diff` >>>").unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use cofferdam_workspace::diff;

    use super::*;

    fn shown(before: &[u8], after: &[u8]) -> Vec<Line> {
        let Difference::Text { hunks, .. } = diff::compare(Some(before), Some(after)) else { panic!("it is text") };
        lines(&[], &hunks)
    }

    #[test]
    fn nothing_that_a_workload_wrote_draws_on_the_screen_or_hides_there() {
        let after = "a\x1b[2J\x07\r\n\u{202e}txet\n\u{200b}x\ne\u{301}\u{301}\u{301}\u{301}\n\tt\n".as_bytes();
        let lines = shown(b"", &[after, b"\xff\xfe"].concat());
        let text: String = lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
        for hostile in ['\x1b', '\x07', '\r', '\u{202e}', '\u{200b}', '\t', '\u{fffd}'] {
            assert!(!text.contains(hostile), "{hostile:?} in {text:?}");
        }
        for told in ["\\u{1b}[2J", "\\u{202e}txet", "e\u{301}\u{301}\\u{301}\\u{301}", "\u{2192}   t", "\\xff\\xfe"] {
            assert!(text.contains(told), "{told} is not in {text}");
        }
    }

    #[test]
    fn long_lines_and_long_files_are_bounded_and_that_is_said() {
        let lines = shown(b"", &[b" ".repeat(1 << 20), b"rm -rf\n".to_vec()].concat());
        assert!(lines[1].text.len() < 3 * LONGEST_LINE, "{}", lines[1].text.len());
        assert!(lines[1].text.contains("more bytes are not shown"), "{}", &lines[1].text[LONGEST_LINE..]);
        let lines = shown(b"", &b"x\n".repeat(100_000));
        assert!(lines.len() <= MOST_LINES + 4, "{}", lines.len());
        for note in [lines.first(), lines.last()] {
            assert_eq!(note.expect("a line").text, "95000 more lines are not shown: see `sandbox diff`");
        }
        let lines = shown(b"", &[b"y".repeat(1999), b"\n".to_vec()].concat().repeat(2000));
        let characters: usize = lines.iter().map(|line| line.text.len()).sum();
        assert!(characters < 2 * MOST_CHARACTERS, "{characters}");
    }

    #[test]
    fn what_stands_far_to_the_right_is_on_the_screen_too() {
        let lines = shown(b"", &[b" ".repeat(300), b"evil()\n".to_vec()].concat());
        let rows = rows(&lines, 40);
        assert!(rows.iter().all(|row| row.text.chars().count() <= 40));
        assert!(rows.iter().any(|row| row.text.contains("evil()")));
    }
}
