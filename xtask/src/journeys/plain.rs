//! What a terminal was sent, as text: escape sequences are taken out, and the few that ask the terminal something are told. Owns
//! the state machine; draws no screen and answers nothing itself. Called by `terminal`.

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    /// Behind `ESC [`, up to the letter that ends it.
    Control,
    /// A string that ends with BEL or `ESC \`.
    Text,
    TextEscape,
}

#[derive(Debug, Default)]
pub(crate) struct Plain {
    pub(crate) text: String,
    state: State,
    sequence: Vec<u8>,
    /// Of a character in several bytes.
    pending: Vec<u8>,
}

impl Plain {
    /// Takes bytes; hands back what a terminal answers to them.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        for byte in bytes {
            self.state = self.next(*byte, &mut answers);
        }
        answers
    }

    fn next(&mut self, byte: u8, answers: &mut Vec<u8>) -> State {
        match (self.state, byte) {
            (State::Ground, 0x1b) => State::Escape,
            (State::Ground, _) => {
                self.put(byte);
                State::Ground
            }
            (State::Escape, b'[') => {
                self.sequence.clear();
                State::Control
            }
            (State::Escape, b']' | b'P' | b'_' | b'^' | b'X') => {
                self.sequence.clear();
                State::Text
            }
            // Of two letters, as `ESC ( B`, the second is text; it stands in no text that is looked for.
            (State::Escape, _) => State::Ground,
            (State::Control, 0x40..=0x7e) => {
                self.end_control(byte, answers);
                State::Ground
            }
            (State::Control, _) => {
                self.sequence.push(byte);
                State::Control
            }
            (State::Text, 0x07) | (State::TextEscape, b'\\') => {
                answers.extend(colour(&self.sequence).into_iter().flatten());
                State::Ground
            }
            (State::Text, 0x1b) => State::TextEscape,
            (State::Text | State::TextEscape, _) => {
                self.sequence.push(byte);
                State::Text
            }
        }
    }

    fn end_control(&mut self, letter: u8, answers: &mut Vec<u8>) {
        match (letter, self.sequence.as_slice()) {
            // Where the cursor is, and what kind of terminal this is: programs wait for both.
            (b'n', b"6") => answers.extend_from_slice(b"\x1b[1;1R"),
            (b'c', b"" | b"0") => answers.extend_from_slice(b"\x1b[?62;22c"),
            // What stands elsewhere is another word, or another line.
            (b'C' | b'G', _) => self.text.push(' '),
            (b'H' | b'f' | b'd' | b'A' | b'B' | b'E' | b'F', _) => self.text.push('\n'),
            _ => {}
        }
    }

    fn put(&mut self, byte: u8) {
        if byte < 0x80 {
            self.pending.clear();
            self.text.push(char::from(byte));
            return;
        }
        if byte >= 0xc0 {
            self.pending.clear();
        }
        self.pending.push(byte);
        if let Ok(text) = std::str::from_utf8(&self.pending) {
            self.text.push_str(text);
            self.pending.clear();
        }
    }
}

/// The answer to the question for the text or the background colour.
fn colour(sequence: &[u8]) -> Option<Vec<u8>> {
    let which = sequence.strip_suffix(b";?")?;
    let shade = match which {
        b"10" => "ffff",
        b"11" => "0000",
        _ => return None,
    };
    Some(format!("\x1b]{};rgb:{shade}/{shade}/{shade}\x1b\\", String::from_utf8_lossy(which)).into_bytes())
}

/// Without blanks: a program that draws may put a cursor movement for each.
pub(crate) fn squeezed(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_titles_are_taken_out_and_movements_are_blanks() {
        let mut plain = Plain::default();
        plain.take("\x1b]0;title\x07\x1b[1;31mred\x1b[0m\x1b[3Cword \u{2714}\x1b[2;1Hnext".as_bytes());
        assert_eq!(plain.text, "red word \u{2714}\nnext");
        assert_eq!(squeezed(&plain.text), "redword\u{2714}next");
    }

    #[test]
    fn a_sequence_may_come_in_pieces() {
        let mut plain = Plain::default();
        for byte in "a\x1b[38;5;1mb\u{e9}".as_bytes() {
            plain.take(&[*byte]);
        }
        assert_eq!(plain.text, "ab\u{e9}");
    }

    #[test]
    fn questions_to_the_terminal_are_answered() {
        let mut plain = Plain::default();
        assert_eq!(plain.take(b"\x1b[6n"), b"\x1b[1;1R");
        assert_eq!(plain.take(b"\x1b[c"), b"\x1b[?62;22c");
        assert_eq!(plain.take(b"\x1b]11;?\x07"), b"\x1b]11;rgb:0000/0000/0000\x1b\\");
        assert_eq!(plain.take(b"\x1b[?u"), b"");
    }
}
