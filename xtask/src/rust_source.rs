//! Just enough of Rust's lexical grammar to look for words in code and not in comments or literals.
//! Owns blanking and word search; knows nothing of the checks. Called by `map` and what it counts, and by `conformance`.

/// `source` with comments, strings and character literals replaced by spaces; line breaks stay, so lines still count.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if rest[0] == b'"' {
            string(rest)
        } else if rest[0] == b'r' && !follows_word(bytes, at) {
            raw_string(rest)
        } else if rest[0] == b'\'' {
            character(rest)
        } else {
            0
        };
        for byte in &mut code[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length.max(1);
    }
    // Only whole bytes of ASCII were written and only whole literals were blanked.
    String::from_utf8_lossy(&code).into_owned()
}

/// What of `source` is code that ships: without comments, literals and tests; line breaks stay.
pub(crate) fn product_code(source: &str) -> String {
    without_tests(&code_only(source))
}

/// Blanked `code` without the items that `#[cfg(test)]` marks; line breaks stay. An item ends with its first `;` outside of
/// brackets, with the brace that closes its first one, or before the bracket that closes what it stands in.
pub(crate) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    while let Some(start) = out.find(MARK) {
        let mut depth = 0usize;
        let mut end = out.len();
        for (at, byte) in out.bytes().enumerate().skip(start + MARK.len()) {
            match byte {
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' if depth == 0 => {
                    end = at;
                    break;
                }
                b'}' | b')' | b']' => {
                    depth -= 1;
                    if depth == 0 && byte == b'}' {
                        end = at + 1;
                        break;
                    }
                }
                b';' if depth == 0 => {
                    end = at + 1;
                    break;
                }
                _ => {}
            }
        }
        let blank: String = out[start..end].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// The 1-based lines of blanked `code` on which `word` stands as a whole identifier.
pub(crate) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    code.lines().enumerate().filter(|(_, line)| has_word(line, word)).map(|(index, _)| index + 1).collect()
}

/// The names of functions that code defines.
pub(crate) fn functions(code: &str) -> impl Iterator<Item = &str> {
    let words = |code| str::split(code, |c: char| !is_word(c)).filter(|word| !word.is_empty());
    words(code).zip(words(code).skip(1)).filter(|(word, _)| *word == "fn").map(|(_, name)| name)
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !is_word(c)).any(|w| w == word)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    // `br"..."` and `cr"..."` are raw strings too, and their prefix is no word before the `r`.
    let before = &bytes[..at];
    let before = before.strip_suffix(b"b").or(before.strip_suffix(b"c")).unwrap_or(before);
    before.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a raw string at the start of `rest`, or 0 if there is none (`r#type`, or a plain word).
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let body = 2 + hashes;
    let closes = |at: usize| rest[at] == b'"' && rest[at + 1..].iter().take_while(|&&b| b == b'#').count() >= hashes;
    (body..rest.len()).find(|&at| closes(at)).map_or(rest.len(), |at| at + 1 + hashes)
}

/// Length of a character literal at the start of `rest`, or 0 for a lifetime.
fn character(rest: &[u8]) -> usize {
    match rest.get(1) {
        Some(b'\\') => rest.iter().skip(3).position(|&b| b == b'\'').map_or(rest.len(), |at| at + 4),
        // A literal closes after one character, which takes at most four bytes; a lifetime does not close.
        Some(_) => rest.iter().take(6).skip(2).position(|&b| b == b'\'').map_or(0, |at| {
            let inner = &rest[1..at + 2];
            if std::str::from_utf8(inner).is_ok_and(|s| s.chars().count() == 1) { at + 3 } else { 0 }
        }),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_literals_are_not_code() {
        let source = concat!(
            "// unsafe\n",
            "/* unsafe /* unsafe */ unsafe */\n",
            "let a = \"unsafe \\\" unsafe\";\n",
            "let b = r#\"unsafe \" unsafe\"#; let c = br\"unsafe\";\n",
            "let d = '\"'; let e = '\\''; let f = 'é'; unsafe {}\n",
            "fn g<'unsafe_not>(x: &'unsafe_not str) {} // unsafe\n",
        );
        assert_eq!(lines_with_word(&code_only(source), "unsafe"), vec![5]);
    }

    #[test]
    fn part_of_an_identifier_is_no_match() {
        assert_eq!(lines_with_word("#![forbid(unsafe_code)]\nnot_unsafe", "unsafe"), Vec::<usize>::new());
    }

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let code = code_only("#[test]\nfn denied_path_returns_eacces() {}\n// fn commented_out() {}\n");
        assert_eq!(functions(&code).collect::<Vec<_>>(), ["denied_path_returns_eacces"]);
    }

    #[test]
    fn raw_identifiers_do_not_start_a_string() {
        assert_eq!(lines_with_word(&code_only("let r#type = 1; unsafe {}"), "unsafe"), vec![1]);
    }

    #[test]
    fn only_the_item_behind_each_mark_is_a_test() {
        let code = "\
#[cfg(test)]
mod tests;
fn a() {}
#[cfg(test)]
#[derive(Debug, Clone)]
struct B([u8; 2]);
fn c() {}
#[cfg(test)]
fn d(x: [u8; 2]) -> u8 { if true { x[0] } else { x[1] } }
fn e() {}
mod f {
    #[cfg(test)]
    const G: u8 = 1
}
fn h() {}
#[cfg(test)]
mod more { fn i() {}
";
        let left = without_tests(code);
        let words = left.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
        assert_eq!(words.collect::<Vec<_>>(), ["fn", "a", "fn", "c", "fn", "e", "mod", "f", "fn", "h"]);
        assert_eq!(left.lines().count(), code.lines().count());
    }

    #[test]
    fn unterminated_input_ends() {
        for source in ["\"", "r#\"", "/*", "'\\", "'", "r", "b'"] {
            assert_eq!(code_only(source).len(), source.len());
        }
    }
}
