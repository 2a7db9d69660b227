//! Text of a report inside of markup: what a check saw was written by what it looked at, so none of it is taken for markup, and none of
//! it hides or moves its neighbours. Owns the characters that HTML gives a meaning; which others cannot be seen is
//! `cofferdam_gate::shown`'s list. Used by the page for every word that is not its own.

use std::fmt::{self, Display, Formatter};

use cofferdam_gate::{shown, shown_short};

/// Names and reasons are short. What is longer is cut with a note, and stands whole in the report at the end.
const LONGEST_WORD: usize = 500;
/// From here on evidence is folded; it is all there, one click away.
const LONG: usize = 900;
/// What stands in front of it meanwhile.
const HEAD: usize = 240;

/// A text of one line: the end of a line becomes an escape too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a>(pub(super) &'a str);

/// A text over lines, in a box of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said<'a>(pub(super) &'a str);

impl Display for Word<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        markup(&shown_short(self.0.as_bytes(), LONGEST_WORD), to)
    }
}

impl Display for Said<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let text = self.0.strip_suffix('\n').unwrap_or(self.0);
        if text.is_empty() {
            return to.write_str("<p class=\"quiet\">none was recorded</p>");
        }
        let lines: Vec<String> = text.split('\n').map(|line| shown(line.as_bytes())).collect();
        let text = lines.join("\n");
        let length = text.chars().count();
        if length <= LONG {
            to.write_str("<pre>")?;
            markup(&text, to)?;
            return to.write_str("</pre>");
        }
        let head: String = text.chars().take(HEAD).collect();
        to.write_str("<details class=\"long\"><summary><code>")?;
        markup(&head, to)?;
        write!(to, "</code> <span class=\"more\">... and {} more characters</span></summary><pre>", length - HEAD)?;
        markup(&text, to)?;
        to.write_str("</pre></details>")
    }
}

/// The five characters that mean something in the text of an element or in a quoted attribute.
pub(super) fn markup(text: &str, to: &mut impl fmt::Write) -> fmt::Result {
    for c in text.chars() {
        match c {
            '&' => to.write_str("&amp;"),
            '<' => to.write_str("&lt;"),
            '>' => to.write_str("&gt;"),
            '"' => to.write_str("&quot;"),
            '\'' => to.write_str("&#39;"),
            c => to.write_char(c),
        }?;
    }
    Ok(())
}
