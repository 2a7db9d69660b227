//! A changed file as lines that came and went. Owns what is text and how much of it is shown; the words around it and colours are
//! `cli`'s. Called by `cli`.

use similar::TextDiff;

/// A larger file is said to differ, and not shown.
pub const LARGEST: u64 = 4 << 20;
const CONTEXT: usize = 3;

/// How a file differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Hunks as `diff -u` writes them, and how many lines came and went.
    Text { hunks: String, added: usize, removed: usize },
    /// Not text, or too large.
    Binary,
}

/// `None` is a file that is not there.
pub fn compare(before: Option<&[u8]>, after: Option<&[u8]>) -> Difference {
    let (Some(before), Some(after)) = (text(before), text(after)) else { return Difference::Binary };
    let diff = TextDiff::from_lines(before, after);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let (added, removed) = (count(similar::ChangeTag::Insert), count(similar::ChangeTag::Delete));
    let hunks = diff.unified_diff().context_radius(CONTEXT).to_string();
    Difference::Text { hunks, added, removed }
}

fn text(content: Option<&[u8]>) -> Option<&str> {
    let content = content.unwrap_or_default();
    if content.contains(&0) {
        return None;
    }
    std::str::from_utf8(content).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_came_and_went_are_counted_and_shown() {
        let Difference::Text { hunks, added, removed } = compare(Some(b"a\nb\n"), Some(b"a\nc\nd\n")) else {
            panic!("it is text");
        };
        assert_eq!((added, removed), (2, 1));
        assert!(hunks.contains("-b\n+c\n+d\n"), "{hunks}");
        assert_eq!(compare(None, Some(b"\0")), Difference::Binary);
        assert_eq!(compare(Some(b"\xff"), None), Difference::Binary);
    }
}
