//! Which group a question about one of several siblings can offer: names of one form, or their directory. Owns what such a form is
//! and what was asked in which directory; pure, and knows no rule: whether the group is offered, and what of it is given, is the
//! gate's. Used by `Gate`, and by `session_answers` for what a granted form covers.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use cofferdam_wire::{Group, Op};

/// Questions that are remembered: a program that asks more has to begin anew.
const MOST: usize = 256;
/// So many approvals in a directory, and it is offered as a whole whatever is asked next.
const ALLOWED: usize = 3;
/// Letters and digits that the common beginning of names has at least.
const LEAST: usize = 3;

#[derive(Debug)]
struct Sibling {
    path: PathBuf,
    op: Op,
}

/// What was asked and allowed so far.
#[derive(Debug, Default)]
pub(crate) struct Siblings {
    asked: VecDeque<Sibling>,
    allowed: VecDeque<PathBuf>,
}

impl Siblings {
    pub(crate) fn asked(&mut self, op: Op, path: &Path) {
        push(&mut self.asked, Sibling { path: path.to_path_buf(), op });
    }

    /// A person or a hook allowed something in this directory.
    pub(crate) fn allowed(&mut self, directory: &Path) {
        push(&mut self.allowed, directory.to_path_buf());
    }

    /// Names of one form, of which one was asked about for the same kind of access. `saved_as` says what a new file of a name is
    /// saved as: that has to be the same name for all of them.
    pub(crate) fn names(&self, op: Op, path: &Path, saved_as: impl Fn(&Path) -> Option<String>) -> Option<Group> {
        let (directory, name) = (path.parent()?, path.file_name()?.to_str()?);
        let saved = saved_as(path);
        let mut others =
            self.asked.iter().rev().filter(|other| {
                other.op == op && other.path.parent() == Some(directory) && saved_as(&other.path) == saved
            });
        let (prefix, suffix) = others.find_map(|other| form(other.path.file_name()?.to_str()?, name))?;
        let directory = directory.to_str()?.trim_end_matches('/').to_owned();
        Some(Group::Names { directory, prefix, suffix, saved_as: saved })
    }

    /// The directory, once another name in it was asked about for the same kind of access, or several were allowed.
    pub(crate) fn directory(&self, op: Op, path: &Path) -> Option<Group> {
        let directory = path.parent()?;
        let is_beside = |other: &Sibling| {
            other.path != path && other.path.parent() == Some(directory) && other.op.is_write() == op.is_write()
        };
        let allowed = self.allowed.iter().filter(|allowed| *allowed == directory).count();
        let counts = self.asked.iter().any(is_beside) || allowed >= ALLOWED;
        counts.then(|| directory.to_str().map(|directory| Group::Directory { directory: directory.to_owned() }))?
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T) {
    list.push_back(item);
    if list.len() > MOST {
        list.pop_front();
    }
}

/// What is the same of two names at their beginning and their end, where what lies between looks like no word.
fn form(one: &str, other: &str) -> Option<(String, String)> {
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic() && !b"*?[]{}\\/".contains(&byte));
    if !is_plain(one) || !is_plain(other) || one == other {
        return None;
    }
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    // Whole parts only: the first letters of two random parts may be the same.
    let prefix = &one[..=one[..same].rfind(is_mark)?];
    let (rest, other_rest) = (&one[prefix.len()..], &other[prefix.len()..]);
    let same = rest.bytes().rev().zip(other_rest.bytes().rev()).take_while(|(a, b)| a == b).count();
    let end = &rest[rest.len() - same..];
    let suffix = &end[end.find(is_mark).unwrap_or(end.len())..];
    let is_long = prefix.bytes().filter(u8::is_ascii_alphanumeric).count() >= LEAST;
    let fits = is_long && is_of_form(one, prefix, suffix) && is_of_form(other, prefix, suffix);
    fits.then(|| (prefix.to_owned(), suffix.to_owned()))
}

/// Whether a name begins and ends so, and what lies between is digits or random letters.
pub(crate) fn is_of_form(name: &str, prefix: &str, suffix: &str) -> bool {
    let between = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
    between.is_some_and(|between| between.split(is_mark).all(is_random))
}

fn is_mark(c: char) -> bool {
    matches!(c, '.' | '-' | '_')
}

/// Digits, or letters that no person put in this order: kinds of characters take turns more often than in a word with a number.
fn is_random(part: &str) -> bool {
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let bytes = part.as_bytes();
    let turns = bytes.windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count();
    let has_digit = bytes.iter().any(u8::is_ascii_digit);
    let is_mixed = if has_digit {
        bytes.len() >= 4 && turns >= 2 && turns * 4 >= bytes.len() - 1
    } else {
        bytes.len() >= 6 && turns * 2 >= bytes.len() - 1
    };
    !bytes.is_empty()
        && bytes.iter().all(u8::is_ascii_alphanumeric)
        && (bytes.iter().all(u8::is_ascii_digit) || is_mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &Path) -> Option<String> {
        None
    }

    #[test]
    fn names_of_one_form_are_a_pattern_and_others_are_none() {
        for (one, other, pattern) in [
            (".app.json.tmp.481", ".app.json.tmp.77", Some((".app.json.tmp.", ""))),
            (".app.json.tmp.481.Ab3x9Q", ".app.json.tmp.77.zK20Lp", Some((".app.json.tmp.", ""))),
            // The first letters of random parts are the same.
            (".app.json.tmp.Ab3x9Q", ".app.json.tmp.Ab77yQ", Some((".app.json.tmp.", ""))),
            ("report-2024.csv", "report-2025.csv", Some(("report-", ".csv"))),
            ("tmp_obj_aB3dEf", "tmp_obj_9xYzW1", Some(("tmp_obj_", ""))),
            // A number that both have stays in the pattern.
            ("log.48271.1", "log.48271.2", Some(("log.48271.", ""))),
            // Words.
            ("notes.tmp.alpha", "notes.tmp.beta", None),
            (".bash_profile", ".bash_aliases", None),
            (".bash_history2", ".bash_profile1", None),
            ("my_readMe", "my_writeMe", None),
            // No beginning, or too little of it.
            ("481.tmp", "77.tmp", None),
            (".a.481", ".a.77", None),
            ("..481", "..77", None),
            (".ba111", ".ba222", None),
            // One is no number.
            ("app.tmp.481", "app.tmp.x", None),
            ("app.tmp.481", "app.tmp.", None),
            ("app.tmp.481", "app.tmp.481", None),
            // What could be read as a pattern or as another directory.
            ("app.*.481", "app.*.77", None),
            ("app.[a].481", "app.[a].77", None),
            ("app.\u{202e}.481", "app.\u{202e}.77", None),
            ("app .481", "app .77", None),
        ] {
            let expected = pattern.map(|(prefix, suffix)| (prefix.to_owned(), suffix.to_owned()));
            assert_eq!(form(one, other), expected, "{one} {other}");
            assert_eq!(form(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_form_covers_what_is_random_and_no_word() {
        for (name, covered) in [
            (".app.json.tmp.1", true),
            (".app.json.tmp.481.Ab3x9Q", true),
            (".app.json.tmp.k3jf9x2a", true),
            (".app.json.tmp.", false),
            (".app.json.tmp", false),
            (".app.json.tmp.secret", false),
            (".app.json.tmp.1.secret", false),
            (".app.json.tmp.python3", false),
            (".app.json.tmp.1 ", false),
            (".APP.json.tmp.1", false),
            ("x.app.json.tmp.1", false),
        ] {
            assert_eq!(is_of_form(name, ".app.json.tmp.", ""), covered, "{name}");
        }
        assert!(!is_of_form("ab-1.csv", "ab-1", "1.csv"), "beginning and end do not share a part");
    }

    #[test]
    fn the_second_sibling_is_offered_with_its_group() {
        let mut siblings = Siblings::default();
        let names =
            |siblings: &Siblings, op, path: &str| siblings.names(op, Path::new(path), none).map(|group| group.name());
        let directory =
            |siblings: &Siblings, op, path: &str| siblings.directory(op, Path::new(path)).map(|group| group.name());
        assert_eq!(
            (names(&siblings, Op::Read, "/h/many/a.1"), directory(&siblings, Op::Read, "/h/many/a.1")),
            (None, None)
        );
        siblings.asked(Op::Read, Path::new("/h/many/app.1"));
        assert_eq!(names(&siblings, Op::Read, "/h/many/app.2").as_deref(), Some("/h/many/app.*"));
        assert_eq!(names(&siblings, Op::Create, "/h/many/app.2"), None, "another kind of access");
        assert_eq!(names(&siblings, Op::Read, "/h/other/app.2"), None);
        assert_eq!(names(&siblings, Op::Read, "/h/many/list"), None);
        assert_eq!(directory(&siblings, Op::Read, "/h/many/list").as_deref(), Some("EVERYTHING below /h/many"));
        assert_eq!(directory(&siblings, Op::Write, "/h/many/list"), None);
        assert_eq!(directory(&siblings, Op::Read, "/h/many/app.1"), None, "the same file");
        assert_eq!(directory(&siblings, Op::Read, "/h/many/in/list"), None);
        for _ in 0..ALLOWED {
            assert_eq!(directory(&siblings, Op::Write, "/h/many/list"), None);
            siblings.allowed(Path::new("/h/many"));
        }
        assert!(directory(&siblings, Op::Write, "/h/many/list").is_some());
        siblings.asked(Op::Read, Path::new("/app.1"));
        assert_eq!(names(&siblings, Op::Read, "/app.2").as_deref(), Some("/app.*"));
    }

    #[test]
    fn names_that_are_saved_as_different_names_are_no_group() {
        let mut siblings = Siblings::default();
        siblings.asked(Op::Create, Path::new("/h/app.json.1001"));
        let path = Path::new("/h/app.json.1002");
        let saved = |name: &'static str| move |_: &Path| Some(name.to_owned());
        let group = siblings.names(Op::Create, path, saved("app.json")).expect("a group");
        assert!(group.said(Op::Create).ends_with(", each saved as app.json"), "{}", group.said(Op::Create));
        assert_eq!(siblings.names(Op::Create, path, |path| path.to_str().map(str::to_owned)), None);
    }
}
