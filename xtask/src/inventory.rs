//! How large the product is and what its crates use: lines of code, arrows to siblings, structs by their fields.
//! Owns counting them in a source; sets no limits. Called by `map`, which prints them.

use std::collections::BTreeSet;

use crate::rust_source::product_code;

/// A struct and how many fields it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) fields: usize,
}

/// What one source holds besides its tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Lines that hold code: no blank lines and no comments.
    pub(crate) lines: usize,
    /// The crates of this workspace that it names, without their common prefix.
    pub(crate) siblings: BTreeSet<String>,
    pub(crate) structs: Vec<Struct>,
}

pub(crate) fn contents(source: &str) -> Contents {
    let code = product_code(source);
    let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    Contents { lines, siblings: siblings(&code), structs: structs(&code) }
}

fn siblings(code: &str) -> BTreeSet<String> {
    let words = code.split(|c: char| !is_word(c));
    words.filter_map(|word| word.strip_prefix("cofferdam_")).map(str::to_owned).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn structs(code: &str) -> Vec<Struct> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("struct ") {
        let is_whole = !rest[..at].ends_with(is_word);
        rest = &rest[at + "struct ".len()..];
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        if is_whole && !name.is_empty() {
            let fields = body(&rest[name.len()..]).map_or(0, fields);
            found.push(Struct { name, fields });
        }
    }
    found
}

/// What stands between the brackets of a struct, behind its name and generic parameters; None where it has none.
fn body(code: &str) -> Option<&str> {
    let mut depth = Depth::default();
    let mut start = None;
    for (at, c) in code.char_indices() {
        match (start, c) {
            (None, ';') if depth.is_outside() => return None,
            (None, '{' | '(') if depth.is_outside() => start = Some(at + 1),
            _ => {}
        }
        depth.pass(c);
        if let Some(start) = start
            && depth.is_outside()
        {
            return code.get(start..at);
        }
    }
    None
}

fn fields(body: &str) -> usize {
    let mut depth = Depth::default();
    let mut fields = 0;
    let mut is_empty = true;
    for c in body.chars() {
        depth.pass(c);
        if c == ',' && depth.is_outside() {
            is_empty = true;
        } else if !c.is_whitespace() && is_empty {
            is_empty = false;
            fields += 1;
        }
    }
    fields
}

/// How deep in brackets of any kind; the `>` of an arrow is none.
#[derive(Default)]
struct Depth {
    open: usize,
    is_after_dash: bool,
}

impl Depth {
    fn pass(&mut self, c: char) {
        match c {
            '{' | '(' | '[' | '<' => self.open += 1,
            '>' if self.is_after_dash => {}
            '}' | ')' | ']' | '>' => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.is_after_dash = c == '-';
    }

    fn is_outside(&self) -> bool {
        self.open == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(source: &str) -> Vec<(String, usize)> {
        contents(source).structs.into_iter().map(|one| (one.name, one.fields)).collect()
    }

    #[test]
    fn fields_are_counted_whatever_their_types() {
        let source = "
            pub(crate) struct Named<'a, T: Fn(u8, u8) -> bool> where T: Into<Vec<u8>> {
                /// A comment, with a comma.
                #[serde(default, skip)]
                pub a: BTreeMap<String, (u8, u8)>,
                b: Box<dyn Fn(u8, u8) -> Option<u8>>,
                c: [u8; 4],
            }
            struct Pair(u8, Vec<(u8, u8)>);
            struct Unit;
            struct Empty {}
            constructor();";
        let expected = [("Named", 3), ("Pair", 2), ("Unit", 0), ("Empty", 0)];
        assert_eq!(counted(source), expected.map(|(name, fields)| (name.to_owned(), fields)));
    }

    #[test]
    fn lines_and_siblings_are_those_of_the_product() {
        let source = "\
//! A comment.

use cofferdam_policy::Host; // and another

fn f() {}

#[cfg(test)]
mod tests {
    use cofferdam_testkit::World;
}
";
        let contents = contents(source);
        assert_eq!(contents.lines, 2);
        assert_eq!(contents.siblings, BTreeSet::from(["policy".to_owned()]));
    }
}
