//! Text that the workload chose made safe to show: what cannot be seen, or makes other text look different, is written as an escape.
//! Owns the one list of such characters (attack corpus F2-F4); every client uses it for paths and command lines. Loses
//! nothing: no two texts look alike, and nothing is left out.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

/// Bytes as text on one line, with every byte that is no visible character escaped: `\n` as `\u{a}`, a byte that is no
/// UTF-8 as `\xff`, a backslash as two, and blanks that pad as `\x20`, several as `\x20{8}`.
pub fn shown(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(c) = rest.chars().next() {
            let after = rest[c.len_utf8()..].trim_start_matches(' ');
            let blanks = if c == ' ' { rest.len() - after.len() } else { 0 };
            let is_last = after.is_empty() && chunk.invalid().is_empty();
            rest = if blanks > 0 { after } else { &rest[c.len_utf8()..] };
            match c {
                ' ' if blanks > 1 => write!(out, "\\x20{{{blanks}}}").unwrap_or_default(),
                ' ' if out.is_empty() || is_last => out.push_str("\\x20"),
                '\\' => out.push_str("\\\\"),
                c if is_visible(c) => out.push(c),
                c => out.extend(c.escape_unicode()),
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").unwrap_or_default();
        }
    }
    out
}

/// The same, cut to `most` columns with a note of how many characters are left out.
pub fn shown_short(bytes: &[u8], most: usize) -> String {
    let text = shown(bytes);
    let all = text.chars().count();
    let mut width = 0;
    let fits = text.chars().take_while(|c| {
        width += columns(*c);
        width <= most
    });
    let kept: String = fits.collect();
    let left_out = all - kept.chars().count();
    if left_out == 0 { text } else { format!("{kept}...({left_out} more)") }
}

/// A command line as it was given, words apart by single blanks.
pub fn shown_words<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = words.into_iter().map(|word| {
        let text = shown(word.as_bytes());
        if word.is_empty() || word.contains([' ', '\'', '"']) { Cow::Owned(format!("'{text}'")) } else { text.into() }
    });
    quoted.collect::<Vec<Cow<'_, str>>>().join(" ")
}

/// How many columns of a terminal a character that is shown takes.
pub fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Text over lines of `width` columns, broken anywhere: a path has no words.
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        if used + columns(c) > width {
            lines.push(String::new());
            used = 0;
        }
        used += columns(c);
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
    }
    lines
}

/// The same in at most `room` lines (three are the least): of what does not fit beginning and end, and between them how many
/// characters are missing and `where_else` they can be seen.
pub fn folded_short(text: &str, width: usize, room: usize, where_else: &str) -> Vec<String> {
    let all = folded(text, width);
    if all.len() <= room.max(1) {
        return all;
    }
    let kept = room.saturating_sub(1).max(2);
    let (head, tail) = (kept / 2, kept - kept / 2);
    let mut used = 0;
    let backwards = text.chars().rev().take_while(|c| {
        used += columns(*c);
        used <= tail * (width - 1)
    });
    let end: String = backwards.collect::<Vec<char>>().into_iter().rev().collect();
    let mut lines = all[..head].to_vec();
    let before: usize = lines.iter().map(|line| line.chars().count()).sum();
    let missing = text.chars().count() - before - end.chars().count();
    lines.push(format!("<<< {missing} characters not shown: {where_else} >>>"));
    lines.extend(folded(&end, width));
    lines
}

fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let hides = matches!(c,
        // Blanks that are no space, and letters that look like one.
        '\u{a0}' | '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{ffff}'
        // Written from right to left: moves its neighbours on terminals that follow it.
        | '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}' | '\u{10800}'..='\u{10fff}'
        | '\u{1e800}'..='\u{1efff}'
        // Private use, tags: whatever the font makes of them.
        | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..);
    !hides && !c.is_control() && columns(c) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_draws_or_hides_is_left() {
        for (hostile, safe) in [
            (&b"/home/you/\x1b[2J\x1b[1;1H/etc"[..], "/home/you/\\u{1b}[2J\\u{1b}[1;1H/etc"),
            ("/a/\u{9b}31m".as_bytes(), "/a/\\u{9b}31m"),
            (b"/a\x07\x08\x08b\r\nc\x7f", "/a\\u{7}\\u{8}\\u{8}b\\u{d}\\u{a}c\\u{7f}"),
            ("/tmp/\u{202e}txt.exe".as_bytes(), "/tmp/\\u{202e}txt.exe"),
            ("/a\u{200b}b\u{feff}\u{2066}".as_bytes(), "/a\\u{200b}b\\u{feff}\\u{2066}"),
            ("/e\u{301}".as_bytes(), "/e\\u{301}"),
            ("/\u{5d0}\u{627}".as_bytes(), "/\\u{5d0}\\u{627}"),
            (b"/bad\xff\xfe/x", "/bad\\xff\\xfe/x"),
            (b"/pad        /etc/shadow ", "/pad\\x20{8}/etc/shadow\\x20"),
            (b"/literal\\u{202e}", "/literal\\\\u{202e}"),
            ("/\u{3164}\u{2800}\u{a0}\u{e0041}".as_bytes(), "/\\u{3164}\\u{2800}\\u{a0}\\u{e0041}"),
        ] {
            assert_eq!(shown(hostile), safe);
        }
    }

    #[test]
    fn what_people_write_stays_readable() {
        for text in ["/home/you/My Documents/r\u{f6}t.txt", "/\u{6771}\u{4eac}/a+b=c~1", "/a,b(c)[d]{e}"] {
            assert_eq!(shown(text.as_bytes()), text);
        }
    }

    #[test]
    fn of_what_is_too_long_both_ends_stay() {
        let text: String = (0..100).map(|n| char::from(b'a' + n % 26)).collect();
        assert_eq!(folded(&text, 10).concat(), text);
        assert_eq!(folded_short(&text, 10, 10, "there"), folded(&text, 10));
        let short = folded_short(&text, 10, 4, "there");
        assert_eq!(short, ["abcdefghij", "<<< 72 characters not shown: there >>>", "efghijklmn", "opqrstuv"]);
        assert_eq!(folded_short(&text, 10, 0, "there").len(), 3);
        // Characters of two columns are not cut in half.
        assert_eq!(folded("\u{6771}\u{6771}", 3), ["\u{6771}", "\u{6771}"]);
    }

    #[test]
    fn what_is_cut_is_counted() {
        assert_eq!(shown_short(b"abcdef", 6), "abcdef");
        assert_eq!(shown_short(b"abcdefgh", 6), "abcdef...(2 more)");
        assert_eq!(shown_words(["sh", "-c", "echo  x", ""]), "sh -c 'echo\\x20{2}x' ''");
    }
}
