//! What one file names: paths in `use` and in code, what each `use` brings into scope, and the modules it declares.
//! Owns reading them from blanked code; knows neither the other files nor where a path leads. Called by `module_graph`.

/// A path as it is written, and the inline modules (`mod x { .. }`) around it, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) within: Vec<String>,
    pub(super) segments: Vec<String>,
    /// Set where a `use` brings the path into scope under a name.
    pub(super) bound: Option<Binding>,
}

impl Named {
    pub(super) fn is_rooted(&self) -> bool {
        self.segments.first().is_some_and(|first| matches!(first.as_str(), "crate" | "super" | "self"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    /// `*` for all names of a module.
    pub(super) name: String,
    /// Whether other modules may use it under this name: `pub use`.
    pub(super) is_public: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) paths: Vec<Named>,
    /// Modules in files of their own: `mod x;`.
    pub(super) declared: Vec<String>,
}

/// Reads code from which comments, literals and tests were blanked.
pub(super) fn names(code: &str) -> Names {
    let mut reader = Reader { tokens: tokens(code), at: 0, names: Names::default() };
    reader.read();
    reader.names
}

/// Words, `::`, and every other character that is no space.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

struct Reader<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    names: Names,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        // One entry for each open brace: the inline module that it opened, if it did.
        let mut open: Vec<Option<&str>> = Vec::new();
        let mut is_public = false;
        while let Some(token) = self.next() {
            match token {
                "{" => open.push(None),
                "}" => drop(open.pop()),
                "mod" => match (self.peek(0), self.peek(1)) {
                    (Some(name), Some("{")) if is_word(name) => {
                        self.at += 2;
                        open.push(Some(name));
                    }
                    (Some(name), Some(";")) if is_word(name) && open.iter().all(Option::is_none) => {
                        self.names.declared.push(name.to_owned());
                    }
                    _ => {}
                },
                "pub" => {
                    // The scope in brackets may name a module (`pub(in crate::x)`), which is no use of it.
                    if self.peek(0) == Some("(") {
                        while self.next().is_some_and(|token| token != ")") {}
                    }
                    is_public = true;
                    continue;
                }
                // `impl Trait + use<'a>` names no path.
                "use" if self.peek(0) != Some("<") => {
                    let within = inline(&open);
                    self.tree(&within, &[], is_public);
                }
                // Behind generic arguments (`Vec::<u8>::new::x`) a path goes on and does not begin.
                "::" => {
                    if let Some(word) = self.peek(0).filter(|word| is_word(word)) {
                        self.at += 1;
                        self.path(word);
                    }
                }
                word if is_word(word) && self.peek(0) == Some("::") => {
                    let segments = self.path(word);
                    self.names.paths.push(Named { within: inline(&open), segments, bound: None });
                }
                _ => {}
            }
            is_public = false;
        }
    }

    fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek(0)?;
        self.at += 1;
        Some(token)
    }

    /// The rest of a path in code, behind `first`. Generic arguments end it.
    fn path(&mut self, first: &str) -> Vec<String> {
        let mut segments = vec![first.to_owned()];
        while self.peek(0) == Some("::") {
            self.at += 1;
            match self.peek(0) {
                Some(word) if is_word(word) => {
                    segments.push(word.to_owned());
                    self.at += 1;
                }
                _ => break,
            }
        }
        segments
    }

    /// One tree of a `use`, up to and without the `,`, `}` or `;` behind it.
    fn tree(&mut self, within: &[String], prefix: &[String], is_public: bool) {
        let mut segments = prefix.to_vec();
        while let Some(token) = self.peek(0) {
            match token {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while self.peek(0).is_some_and(|token| token != "}" && token != ";") {
                        self.tree(within, &segments, is_public);
                        if self.peek(0) == Some(",") {
                            self.at += 1;
                        }
                    }
                    if self.peek(0) == Some("}") {
                        self.at += 1;
                    }
                    return;
                }
                "as" => {
                    self.at += 1;
                    let name = self.next().unwrap_or_default().to_owned();
                    return self.leaf(within, segments, name, is_public);
                }
                // `{self}` is the module itself; `self::` is where a path begins.
                "self" if segments.len() == prefix.len() && !prefix.is_empty() => self.at += 1,
                "*" => {
                    self.at += 1;
                    return self.leaf(within, segments, "*".to_owned(), is_public);
                }
                word if is_word(word) => {
                    segments.push(word.to_owned());
                    self.at += 1;
                }
                _ => break,
            }
        }
        let name = segments.last().cloned().unwrap_or_default();
        self.leaf(within, segments, name, is_public);
        // Input that is no Rust must not hold the reader up.
        if !matches!(self.peek(0), Some("," | "}" | ";") | None) {
            self.at += 1;
        }
    }

    fn leaf(&mut self, within: &[String], segments: Vec<String>, name: String, is_public: bool) {
        if !segments.is_empty() {
            let bound = Some(Binding { name, is_public });
            self.names.paths.push(Named { within: within.to_vec(), segments, bound });
        }
    }
}

fn inline(open: &[Option<&str>]) -> Vec<String> {
    open.iter().flatten().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str) -> Vec<String> {
        names(code).paths.iter().map(|named| named.segments.join("::")).collect()
    }

    #[test]
    fn nested_braces_in_use_are_expanded() {
        let found = names("pub use crate::{a::{self, B, c::{D as E, *}}, f};");
        let bound: Vec<(String, &str)> = found
            .paths
            .iter()
            .map(|named| (named.segments.join("::"), named.bound.as_ref().map_or("", |bound| bound.name.as_str())))
            .collect();
        let expected = [("a", "a"), ("a::B", "B"), ("a::c::D", "E"), ("a::c", "*"), ("f", "f")];
        assert_eq!(bound, expected.map(|(path, name)| (format!("crate::{path}"), name)));
        assert!(found.paths.iter().all(|named| named.bound.as_ref().is_some_and(|bound| bound.is_public)));
    }

    #[test]
    fn paths_are_found_in_code_and_generic_arguments() {
        let code = "fn f(x: &crate::a::B) -> Vec<super::C> { self::d::e::<crate::g::H>::i::j(x) }";
        assert_eq!(paths(code), ["crate::a::B", "super::C", "self::d::e", "crate::g::H"]);
    }

    #[test]
    fn a_scope_and_a_captured_lifetime_are_no_paths() {
        assert_eq!(paths("pub(in crate::a) fn f() -> impl Sized + use<'a> { g() }"), Vec::<String>::new());
    }

    #[test]
    fn inline_modules_are_known_around_a_path() {
        let found = names("mod a { mod b { use super::C; } }\nmod d;\nuse super::E;");
        assert_eq!(found.declared, ["d"]);
        assert_eq!(found.paths[0].within, ["a", "b"]);
        assert!(found.paths[1].within.is_empty());
    }

    #[test]
    fn broken_input_ends() {
        for code in
            ["use", "use {", "use a::{b", "use a::(", "use a::{b; c", "use a as", "mod", "pub(", "crate::", "use }"]
        {
            names(code);
        }
    }
}
