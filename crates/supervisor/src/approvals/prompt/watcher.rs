//! Follows what a program writes to its terminal, as far as a question between two of its words needs: whether a sequence is
//! complete, which screen it draws on, whether it hides the cursor. Changes nothing and keeps no picture. Called by `prompt`.

/// The longest list of parameters that is looked at; longer ones name no mode of interest.
const MOST_PARAMETERS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Ground,
    /// Bytes of a character that are still to come.
    Character(u8),
    Escape,
    /// `ESC (` and the like: one more byte.
    Designate,
    Sequence(Vec<u8>),
    /// A text for the terminal itself (a title, say), until its terminator; true after an escape in it.
    Text(bool),
}

#[expect(clippy::struct_excessive_bools, reason = "each is a mode of the terminal, independent of the others")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watcher {
    state: State,
    alternate: bool,
    region: bool,
    cursor_hidden: bool,
    saved: bool,
    margins: bool,
}

impl Watcher {
    pub(super) fn new() -> Self {
        Watcher {
            state: State::Ground,
            alternate: false,
            region: false,
            cursor_hidden: false,
            saved: false,
            margins: false,
        }
    }

    /// Whether something of ours can be written now without tearing something of the program's apart.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Ground
    }

    /// Whether the program draws wherever it likes, rather than line after line.
    pub(super) fn is_full_screen(&self) -> bool {
        self.alternate || self.region
    }

    pub(super) fn hides_cursor(&self) -> bool {
        self.cursor_hidden
    }

    /// Whether it has asked the terminal to remember a position and not gone back to it yet.
    pub(super) fn has_saved(&self) -> bool {
        self.saved
    }

    /// Whether lines end before the last column.
    pub(super) fn has_margins(&self) -> bool {
        self.margins
    }

    pub(super) fn follow(&mut self, byte: u8) {
        let state = std::mem::replace(&mut self.state, State::Ground);
        self.state = match (state, byte) {
            // Cancels whatever was begun.
            (_, 0x18 | 0x1a) => State::Ground,
            (State::Text(_), 0x1b) => State::Text(true),
            (State::Text(true), b'\\') | (State::Text(_), 0x07) => State::Ground,
            (State::Text(true), other) => self.escape(other),
            (State::Text(false), _) => State::Text(false),
            (_, 0x1b) => State::Escape,
            (State::Escape, other) => self.escape(other),
            (State::Designate, _) => State::Ground,
            (State::Sequence(parameters), 0x40..=0x7e) => {
                self.sequence(&parameters, byte);
                State::Ground
            }
            (State::Sequence(mut parameters), 0x20..=0x3f) => {
                if parameters.len() < MOST_PARAMETERS {
                    parameters.push(byte);
                }
                State::Sequence(parameters)
            }
            // Control characters count also within a sequence.
            (State::Sequence(parameters), 0x00..=0x1f) => State::Sequence(parameters),
            (State::Character(left), 0x80..=0xbf) if left > 1 => State::Character(left - 1),
            (_, 0xc2..=0xdf) => State::Character(1),
            (_, 0xe0..=0xef) => State::Character(2),
            (_, 0xf0..=0xf4) => State::Character(3),
            _ => State::Ground,
        };
    }

    fn escape(&mut self, byte: u8) -> State {
        match byte {
            b'[' => return State::Sequence(Vec::new()),
            b']' | b'P' | b'X' | b'^' | b'_' => return State::Text(false),
            0x20..=0x2f => return State::Designate,
            b'7' => self.saved = true,
            b'8' => self.saved = false,
            b'c' => *self = Watcher::new(),
            _ => {}
        }
        State::Ground
    }

    fn sequence(&mut self, parameters: &[u8], last: u8) {
        let numbers = |text: &[u8]| -> Vec<u32> {
            let numbers = text.split(|byte| *byte == b';');
            numbers.map(|number| str::from_utf8(number).ok().and_then(|text| text.parse().ok()).unwrap_or(0)).collect()
        };
        match (parameters.strip_prefix(b"?"), last) {
            (Some(modes), b'h' | b'l') => {
                let on = last == b'h';
                for mode in numbers(modes) {
                    match mode {
                        47 | 1047 | 1049 => self.alternate = on,
                        69 => self.margins = on,
                        25 => self.cursor_hidden = !on,
                        _ => {}
                    }
                }
            }
            // From the first line on is what programs say that want the whole screen.
            (None, b'r') => self.region = numbers(parameters).first().is_some_and(|top| *top > 1),
            (None, b's') => self.saved = true,
            (None, b'u') => self.saved = false,
            (None, b'p') if parameters == b"!" => (self.region, self.cursor_hidden) = (false, false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> Watcher {
        let mut watcher = Watcher::new();
        text.bytes().for_each(|byte| watcher.follow(byte));
        watcher
    }

    #[test]
    fn the_screen_that_is_drawn_on_is_known() {
        for (text, full_screen) in [
            ("plain\r\n", false),
            ("\x1b[?1049h", true),
            ("\x1b[?1049h\x1b[1;24r\x1b[?1049l", false),
            ("\x1b[?25;1049h", true),
            ("\x1b]0;?1049h\x07", false),
            // An escape ends a title early, in terminals as well.
            ("\x1b]0;\x1b[?1049h\x07", true),
            ("\x1b[2;10r", true),
            ("\x1b[2;10r\x1b[r", false),
            ("\x1b[?1049h\x1bc", false),
            ("\x1b[1049h", false),
        ] {
            assert_eq!(after(text).is_full_screen(), full_screen, "{text:?}");
        }
        assert!(after("\x1b[?25l").hides_cursor());
        assert!(!after("\x1b[?25l\x1b[?25h").hides_cursor());
        assert!(after("\x1b7").has_saved() && !after("\x1b7\x1b8").has_saved());
    }

    #[test]
    fn what_is_torn_apart_is_noticed() {
        for whole in [
            "",
            "a",
            "\u{f6}",
            "\u{6771}",
            "\x1b[31m",
            "\x1b]0;t\x07",
            "\x1b]0;t\x1b\\",
            "\x1b(B",
            "\x1b7",
            "\x1bP1\x1b\\",
        ] {
            assert!(after(whole).is_between(), "{whole:?}");
        }
        for torn in ["\x1b", "\x1b[", "\x1b[31", "\x1b]0;t", "\x1b]0;t\x1b", "\x1b(", "\x1bP1"] {
            assert!(!after(torn).is_between(), "{torn:?}");
        }
        let mut watcher = Watcher::new();
        "\u{6771}".bytes().take(2).for_each(|byte| watcher.follow(byte));
        assert!(!watcher.is_between());
    }
}
