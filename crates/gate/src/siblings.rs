//! Which form the names of siblings have that a session asks about one after the other. Owns what such a form is and what was asked in
//! which directory; pure, and knows no rule and no file: what of a form is there and may be offered is the gate's. Used by `Gate`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use cofferdam_wire::Op;

/// Questions that are remembered: a program that asks more has to begin anew.
const MOST: usize = 256;
/// Letters and digits that the common beginning of names has at least.
const LEAST: usize = 3;

/// What names begin and end with; between it are digits or random letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    prefix: String,
    suffix: String,
}

/// What was asked so far.
#[derive(Debug, Default)]
pub(crate) struct Siblings {
    asked: VecDeque<(Op, PathBuf)>,
}

impl Siblings {
    pub(crate) fn asked(&mut self, op: Op, path: &Path) {
        self.asked.push_back((op, path.to_path_buf()));
        if self.asked.len() > MOST {
            self.asked.pop_front();
        }
    }

    /// The form that this name has with one beside it that was asked about for the same kind of access.
    pub(crate) fn form(&self, op: Op, path: &Path) -> Option<Form> {
        let (directory, name) = (path.parent()?, path.file_name()?.to_str()?);
        let beside = self.asked.iter().rev().filter(|(asked, other)| *asked == op && other.parent() == Some(directory));
        let mut names = beside.filter_map(|(_, other)| other.file_name()?.to_str());
        names.find_map(|other| form(other, name))
    }
}

impl Form {
    /// Whether a name begins and ends so, and what lies between is digits or random letters.
    pub(crate) fn has(&self, name: &str) -> bool {
        let between = name.strip_prefix(&self.prefix).and_then(|rest| rest.strip_suffix(&self.suffix));
        between.is_some_and(|between| between.split(is_mark).all(is_random))
    }
}

/// What is the same of two names at their beginning and their end, where what lies between looks like no word.
fn form(one: &str, other: &str) -> Option<Form> {
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
    let form = Form { prefix: prefix.to_owned(), suffix: suffix.to_owned() };
    (is_long && form.has(one) && form.has(other)).then_some(form)
}

/// Nothing that could be read as a pattern, as another directory, or as two names of a list.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_graphic() && !b"*?[]{}\\/,".contains(&byte))
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

    #[test]
    fn names_of_one_form_are_known_and_others_are_none() {
        for (one, other, expected) in [
            (".app.json.tmp.481", ".app.json.tmp.77", Some((".app.json.tmp.", ""))),
            (".app.json.tmp.481.Ab3x9Q", ".app.json.tmp.77.zK20Lp", Some((".app.json.tmp.", ""))),
            // The first letters of random parts are the same.
            (".app.json.tmp.Ab3x9Q", ".app.json.tmp.Ab77yQ", Some((".app.json.tmp.", ""))),
            ("report-2024.csv", "report-2025.csv", Some(("report-", ".csv"))),
            ("tmp_obj_aB3dEf", "tmp_obj_9xYzW1", Some(("tmp_obj_", ""))),
            // A number that both have stays in the form.
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
            (".xy111", ".xy222", None),
            // One is no number.
            ("app.tmp.481", "app.tmp.x", None),
            ("app.tmp.481", "app.tmp.", None),
            ("app.tmp.481", "app.tmp.481", None),
            // What could be read as a pattern, as another directory or as two names.
            ("app.*.481", "app.*.77", None),
            ("app.[a].481", "app.[a].77", None),
            ("app.\u{202e}.481", "app.\u{202e}.77", None),
            ("app .481", "app .77", None),
            ("app,x.481", "app,x.77", None),
        ] {
            let expected =
                expected.map(|(prefix, suffix)| Form { prefix: prefix.to_owned(), suffix: suffix.to_owned() });
            assert_eq!(form(one, other), expected, "{one} {other}");
            assert_eq!(form(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_form_has_what_is_random_and_no_word() {
        let form = |prefix: &str, suffix: &str| Form { prefix: prefix.to_owned(), suffix: suffix.to_owned() };
        for (name, has) in [
            (".app.json.tmp.1", true),
            (".app.json.tmp.481.Ab3x9Q", true),
            (".app.json.tmp.k3jf9x2a", true),
            (".app.json.tmp.", false),
            (".app.json.tmp", false),
            (".app.json.tmp.secret", false),
            (".app.json.tmp.1.secret", false),
            (".app.json.tmp.python3", false),
            (".app.json.tmp.1 ", false),
            (".app.json.tmp.1,2", false),
            (".APP.json.tmp.1", false),
            ("x.app.json.tmp.1", false),
        ] {
            assert_eq!(form(".app.json.tmp.", "").has(name), has, "{name}");
        }
        assert!(!form("ab-1", "1.csv").has("ab-1.csv"), "beginning and end do not share a part");
    }

    #[test]
    fn the_second_of_several_for_the_same_access_in_the_same_directory_has_a_form() {
        let mut siblings = Siblings::default();
        let has = |siblings: &Siblings, op, path: &str| siblings.form(op, Path::new(path)).is_some();
        assert!(!has(&siblings, Op::Read, "/h/many/app.1"));
        siblings.asked(Op::Read, Path::new("/h/many/app.1"));
        for (op, path, expected) in [
            (Op::Read, "/h/many/app.2", true),
            (Op::Write, "/h/many/app.2", false),
            (Op::Read, "/h/other/app.2", false),
            (Op::Read, "/h/many/in/app.2", false),
            (Op::Read, "/h/many/list", false),
            (Op::Read, "/h/many/app.1", false),
        ] {
            assert_eq!(has(&siblings, op, path), expected, "{op:?} {path}");
        }
        for n in 0..MOST {
            siblings.asked(Op::Read, Path::new(&format!("/h/more/{n}")));
        }
        assert!(!has(&siblings, Op::Read, "/h/many/app.2"), "what was asked long ago is forgotten");
    }
}
