//! A changed file as lines that came and went. Owns what is text, how it falls into hunks and what a file is with some of them; the
//! words around it and colours are `cli`'s. Called by `patch` and `cli`.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// A larger file is compared as a whole.
pub const LARGEST: u64 = 4 << 20;
const CONTEXT: usize = 3;
/// Two files without a line in common take the square of their lines; after this the hunks are larger than they had to be.
const LONGEST: Duration = Duration::from_millis(500);

/// How a file differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// In order, with how many lines came and went.
    Text { hunks: Vec<Hunk>, added: usize, removed: usize },
    /// Not text, or too large.
    Binary,
}

/// Lines that changed, with those around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Which lines of the file before, counted from zero.
    pub old: Range<usize>,
    pub new: Range<usize>,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub tag: Tag,
    /// With the end of the line, where it has one.
    pub text: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    Context,
    Removed,
    Added,
}

impl Hunk {
    /// `@@ -1,2 +1,3 @@`: where it lies. A part without lines is named by the line before it.
    pub fn position(&self) -> String {
        let side = |range: &Range<usize>| {
            let begin = if range.is_empty() { range.start } else { range.start + 1 };
            format!("{begin},{}", range.len())
        };
        format!("@@ -{} +{} @@", side(&self.old), side(&self.new))
    }
}

/// `None` is a file that is not there.
pub fn compare(before: Option<&[u8]>, after: Option<&[u8]>) -> Difference {
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    if !is_text(before) || !is_text(after) {
        return Difference::Binary;
    }
    let (old, new) = (lines(before), lines(after));
    let operations = operations(&old, &new);
    let (mut added, mut removed) = (0, 0);
    let mut hunks = Vec::new();
    for group in group_diff_ops(operations, CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let mut shown = Vec::new();
        let mut push = |tag: Tag, lines: &[&[u8]]| {
            shown.extend(lines.iter().map(|line| Line { tag, text: line.to_vec() }));
        };
        for operation in &group {
            let (from, to) = (&old[operation.old_range()], &new[operation.new_range()]);
            if operation.tag() == DiffTag::Equal {
                push(Tag::Context, from);
                continue;
            }
            removed += from.len();
            added += to.len();
            push(Tag::Removed, from);
            push(Tag::Added, to);
        }
        hunks.push(Hunk { old: old_range, new: new_range, lines: shown });
    }
    Difference::Text { hunks, added, removed }
}

fn operations(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(Instant::now() + LONGEST))
}

/// Lines of a file that gave way to others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit<'a> {
    old: Range<usize>,
    new: Vec<&'a [u8]>,
}

fn edits<'a>(old: &[&[u8]], new: &[&'a [u8]]) -> Vec<Edit<'a>> {
    let changed = operations(old, new).into_iter().filter(|operation| operation.tag() != DiffTag::Equal);
    changed.map(|one| Edit { old: one.old_range(), new: new[one.new_range()].to_vec() }).collect()
}

/// What two versions of a text have made of what both began with; none where both have changed the same lines, or lines without one
/// between them that both left as it was, and where one of them is no text.
pub fn merge(base: &[u8], one: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    if ![base, one, other].into_iter().all(is_text) {
        return None;
    }
    let (old, one, other) = (lines(base), lines(one), lines(other));
    let mut all = edits(&old, &one);
    all.extend(edits(&old, &other));
    all.sort_by_key(|edit| (edit.old.start, edit.old.end));
    all.dedup();
    if all.windows(2).any(|two| two[1].old.start <= two[0].old.end) {
        return None;
    }
    let (mut merged, mut at) = (Vec::with_capacity(base.len()), 0);
    for edit in &all {
        merged.extend(old[at..edit.old.start].concat());
        merged.extend(edit.new.concat());
        at = edit.old.end;
    }
    merged.extend(old[at..].concat());
    Some(merged)
}

/// What a file is after these hunks of it, in their order, and none of the others.
pub fn with_hunks<'a>(before: &[u8], hunks: impl IntoIterator<Item = &'a Hunk>) -> Vec<u8> {
    let old = lines(before);
    let mut content = Vec::with_capacity(before.len());
    let mut at = 0;
    for hunk in hunks {
        content.extend(old.get(at..hunk.old.start).unwrap_or_default().concat());
        let kept = hunk.lines.iter().filter(|line| line.tag != Tag::Removed);
        content.extend(kept.flat_map(|line| &line.text));
        at = hunk.old.end;
    }
    content.extend(old.get(at..).unwrap_or_default().concat());
    content
}

/// Lines end with a line feed and with nothing else, as for git.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn is_text(content: &[u8]) -> bool {
    content.len() as u64 <= LARGEST && !content.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunks(before: &[u8], after: &[u8]) -> Vec<Hunk> {
        let Difference::Text { hunks, .. } = compare(Some(before), Some(after)) else { panic!("it is text") };
        hunks
    }

    #[test]
    fn lines_that_came_and_went_are_counted_and_shown() {
        let Difference::Text { hunks, added, removed } = compare(Some(b"a\nb\n"), Some(b"a\nc\nd\n")) else {
            panic!("it is text");
        };
        assert_eq!((added, removed), (2, 1));
        let shown: Vec<(Tag, &[u8])> = hunks[0].lines.iter().map(|line| (line.tag, line.text.as_slice())).collect();
        let expected: [(Tag, &[u8]); 4] =
            [(Tag::Context, b"a\n"), (Tag::Removed, b"b\n"), (Tag::Added, b"c\n"), (Tag::Added, b"d\n")];
        assert_eq!(shown, expected);
        assert_eq!(hunks[0].position(), "@@ -1,2 +1,3 @@");
        assert_eq!(compare(None, Some(b"\0")), Difference::Binary);
    }

    #[test]
    fn a_file_with_some_of_its_hunks_is_the_old_one_elsewhere() {
        let before: Vec<u8> = (0..40).flat_map(|number| format!("line {number}\r x\n").into_bytes()).collect();
        let text = String::from_utf8(before.clone()).expect("it is text");
        let after = text.replace("line 3\r", "third\r").replace("line 20\r x\n", "").replace("line 39\r x\n", "end");
        let all = hunks(&before, after.as_bytes());
        assert_eq!(all.len(), 3);
        assert_eq!(with_hunks(&before, &[]), before);
        assert_eq!(with_hunks(&before, &all), after.as_bytes());
        let second = text.replace("line 20\r x\n", "");
        assert_eq!(with_hunks(&before, &all[1..2]), second.as_bytes());
        assert_eq!(with_hunks(b"", &hunks(b"", b"new")), b"new");
    }

    #[test]
    fn two_versions_are_one_where_a_line_between_them_is_as_both_began() {
        let base = b"a\nb\nc\nd\ne\n";
        assert_eq!(merge(base, b"A\nb\nc\nd\ne\n", b"a\nb\nc\nd\ne\nf").as_deref(), Some(&b"A\nb\nc\nd\ne\nf"[..]));
        // The same by both is once.
        assert_eq!(merge(base, b"A\nb\nc\nd\nE\n", b"A\nb\nd\ne\n").as_deref(), Some(&b"A\nb\nd\nE\n"[..]));
        assert_eq!(merge(base, b"A\nb\nc\nd\nE\n", b"A\nb\nc\nd\ne\n").as_deref(), Some(&b"A\nb\nc\nd\nE\n"[..]));
        for other in [&b"B\nb\nc\nd\ne\n"[..], b"b\nc\nd\ne\n", b"a\nB\nc\nd\ne\n"] {
            assert_eq!(merge(base, b"A\nb\nc\nd\ne\n", other), None);
        }
        for other in [&b"x\na\nb\n"[..], b"", b"a\nc\ne", b"e\nd\nc\nb\na\n"] {
            assert_eq!(merge(base, other, base).as_deref(), Some(other), "one alone has changed it");
            assert_eq!(merge(base, base, other).as_deref(), Some(other));
            assert_eq!(merge(base, other, other).as_deref(), Some(other), "both have made the same");
        }
        assert_eq!(merge(base, b"\0", base), None, "no text");
    }

    #[test]
    fn files_whose_lines_were_shuffled_are_compared_in_bounded_time() {
        let file = |step: usize| -> Vec<u8> {
            (0..200_003).flat_map(|number| format!("{}\n", number * step % 200_003).into_bytes()).collect()
        };
        let (before, after) = (file(7919), file(104_729));
        let began = Instant::now();
        let found = hunks(&before, &after);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(with_hunks(&before, &found), after);
    }
}
