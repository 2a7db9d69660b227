//! Reads a git configuration file, as far as the survey needs it: sections, keys and values of one file, without what it
//! includes. Owns the format; what a value means is `git`'s. A line that git would refuse ends the reading; bytes that are no
//! text do not, because git takes them as they are.

/// One setting: `[section "part"] key = value`. Section and key are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: String,
    pub(crate) part: Vec<u8>,
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
}

pub(crate) fn parse(bytes: &[u8]) -> Vec<Entry> {
    // One character for each byte, and back again at the end: all that means something here is ASCII.
    let text: String =
        bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).iter().map(|byte| char::from(*byte)).collect();
    // For git that is one end of a line, also behind a backslash.
    let text = text.replace("\r\n", "\n");
    let mut entries = Vec::new();
    let (mut section, mut part) = (String::new(), String::new());
    let mut rest = text.as_str();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return entries;
        }
        if rest.starts_with(['#', ';']) {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        if let Some(header) = rest.strip_prefix('[') {
            let Some((name, inner, after)) = read_header(header) else { return entries };
            (section, part, rest) = (name, inner, after);
            continue;
        }
        let is_key = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let end = rest.find(|c| !is_key(c)).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        if key.is_empty() {
            return entries;
        }
        let after = after.trim_start_matches([' ', '\t']);
        let (value, after) = match after.strip_prefix('=') {
            Some(value) => read_value(value),
            // A key alone is true.
            None => ("true".to_owned(), after.split_once('\n').map_or("", |(_, after)| after)),
        };
        let (part, value) = (to_bytes(&part), to_bytes(&value));
        entries.push(Entry { section: section.clone(), part, key: key.to_ascii_lowercase(), value });
        rest = after;
    }
}

fn to_bytes(text: &str) -> Vec<u8> {
    text.chars().filter_map(|c| u8::try_from(c).ok()).collect()
}

/// `section]`, `section "part"]` or the old `section.part]`, and what follows.
fn read_header(text: &str) -> Option<(String, String, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.')?;
    let (name, after) = text.split_at(end);
    let after = after.trim_start_matches([' ', '\t']);
    if let Some(after) = after.strip_prefix(']') {
        let (name, part) = name.split_once('.').unwrap_or((name, ""));
        return Some((name.to_ascii_lowercase(), part.to_ascii_lowercase(), after));
    }
    let quoted = after.strip_prefix('"')?;
    let mut part = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let after = quoted.get(at + 1..)?.strip_prefix(']')?;
                return Some((name.to_ascii_lowercase(), part, after));
            }
            '\\' => part.push(characters.next()?.1),
            '\n' => return None,
            other => part.push(other),
        }
    }
    None
}

/// The value up to the end of its line, and what follows.
fn read_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    // White space inside counts, at the end it does not.
    let mut kept = 0;
    let mut is_quoted = false;
    let mut characters = text.trim_start_matches([' ', '\t']).char_indices();
    let base = text.trim_start_matches([' ', '\t']);
    while let Some((at, character)) = characters.next() {
        match character {
            '\n' => {
                value.truncate(kept);
                return (value, base.get(at + 1..).unwrap_or(""));
            }
            '"' => {
                is_quoted = !is_quoted;
                kept = value.len();
            }
            '#' | ';' if !is_quoted => {
                value.truncate(kept);
                return (value, base.get(at..).and_then(|rest| rest.split_once('\n')).map_or("", |(_, after)| after));
            }
            '\\' => {
                match characters.next().map(|(_, escaped)| escaped) {
                    // The line goes on.
                    Some('\n') | None => continue,
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some('b') => value.push('\u{8}'),
                    Some(other) => value.push(other),
                }
                kept = value.len();
            }
            ' ' | '\t' | '\r' if !is_quoted => value.push(character),
            other => {
                value.push(other);
                kept = value.len();
            }
        }
    }
    value.truncate(kept);
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String, String, String)> {
        let text_of = |bytes| String::from_utf8(bytes).expect("it was text");
        let parts = |entry: Entry| (entry.section, text_of(entry.part), entry.key, text_of(entry.value));
        parse(text.as_bytes()).into_iter().map(parts).collect()
    }

    fn one(section: &str, part: &str, key: &str, value: &str) -> Vec<(String, String, String, String)> {
        vec![(section.to_owned(), part.to_owned(), key.to_owned(), value.to_owned())]
    }

    #[test]
    fn what_git_reads_is_read() {
        for (text, expected) in [
            ("[core]\n\tbare = false\n", one("core", "", "bare", "false")),
            ("[Extensions] worktreeConfig", one("extensions", "", "worktreeconfig", "true")),
            ("[submodule \"a/b \\\"c\"]\nurl=x # why\n", one("submodule", "a/b \"c", "url", "x")),
            ("[include]\n path = \"a;b\" c  \n", one("include", "", "path", "a;b c")),
            ("[include]\n path = a\\\nb\n", one("include", "", "path", "ab")),
            ("[include]\r\n path = a\\\r\nb\r\n", one("include", "", "path", "ab")),
            ("[include]\r\n path = \"a\\\r\nb\" # c\r\n", one("include", "", "path", "ab")),
            ("\u{feff}[submodule \"\u{e9}\"]\nurl = \u{20ac}\n", one("submodule", "\u{e9}", "url", "\u{20ac}")),
            ("# one\n; two\n[a.B]c=1", one("a", "b", "c", "1")),
            ("[broken\nx = 1", Vec::new()),
            ("", Vec::new()),
        ] {
            assert_eq!(found(text), expected, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_kept() {
        let entries = parse(b"# \xff\n[submodule \"a\xff\"]\n\turl = \xe9\xa0\n[include]\n\tpath = b\xfe\n");
        let parts: Vec<_> = entries.iter().map(|entry| (entry.part.as_slice(), entry.value.as_slice())).collect();
        assert_eq!(parts, [(b"a\xff".as_slice(), b"\xe9\xa0".as_slice()), (b"", b"b\xfe")]);
    }
}
