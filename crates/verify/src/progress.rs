//! How far a run is, as one line of a terminal that is written over. Owns the line, and that nothing is written where no terminal
//! is. Used by `options`.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// To the start of the line, and nothing on it.
const CLEAR: &[u8] = b"\r\x1b[K";

#[derive(Debug)]
pub(crate) struct Progress<W: Write>(Mutex<Option<W>>);

impl<W: Write> Progress<W> {
    pub(crate) fn on(terminal: W, is_terminal: bool) -> Self {
        Progress(Mutex::new(is_terminal.then_some(terminal)))
    }

    pub(crate) fn tell(&self, done: usize, all: usize) {
        self.write(&[CLEAR, format!("{done} of {all} checks").as_bytes()].concat());
    }

    /// Takes the line away.
    pub(crate) fn end(&self) {
        self.write(CLEAR);
    }

    fn write(&self, bytes: &[u8]) {
        let mut terminal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(terminal) = terminal.as_mut() else { return };
        if terminal.write_all(bytes).and_then(|()| terminal.flush()).is_err() {
            // Only a line of progress is lost.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_one_line_that_is_gone_at_the_end_and_a_file_has_none() {
        let line = "\r\x1b[K1 of 2 checks\r\x1b[K2 of 2 checks\r\x1b[K";
        for (is_terminal, expected) in [(true, line), (false, "")] {
            let mut written = Vec::new();
            let progress = Progress::on(&mut written, is_terminal);
            progress.tell(1, 2);
            progress.tell(2, 2);
            progress.end();
            assert_eq!(String::from_utf8_lossy(&written), expected);
        }
    }
}
