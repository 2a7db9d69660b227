//! Which keys were meant. Owns that text which was pasted, or typed for a shell, answers nothing: a key that approves counts once no
//! other has followed it for a moment, and what comes faster than a person reads counts not at all. Pure: the time is handed in.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Of text, the next letter comes sooner.
const ALONE: Duration = Duration::from_millis(250);
/// So long after text nothing is an answer.
const QUIET: Duration = Duration::from_millis(700);
const APPROVING: [char; 4] = ['y', 's', 'p', 'u'];

#[derive(Debug, Default)]
pub(super) struct Typed {
    /// Approves, unless another letter follows.
    held: Option<(KeyEvent, Instant)>,
    text_until: Option<Instant>,
}

impl Typed {
    /// When a key that is held back counts.
    pub(super) fn until(&self) -> Option<Instant> {
        self.held.map(|(_, until)| until)
    }

    /// The keys that count now, of those that came since the last time.
    pub(super) fn meant(&mut self, keys: Vec<KeyEvent>, takes_answers: bool, now: Instant) -> Vec<KeyEvent> {
        let mut meant = Vec::new();
        if !takes_answers {
            *self = Typed::default();
            return keys;
        }
        let letters = keys.iter().filter(|key| is_letter(key)).count();
        for key in keys {
            let is_text = self.held.is_some() || letters > 2 || self.text_until.is_some_and(|until| now < until);
            match letter(&key) {
                None => meant.push(key),
                Some(_) if is_text => {
                    self.held = None;
                    self.text_until = Some(now + QUIET);
                }
                Some(letter) if APPROVING.contains(&letter) => self.held = Some((key, now + ALONE)),
                Some(_) => meant.push(key),
            }
        }
        if self.held.is_some_and(|(_, until)| now >= until) {
            meant.extend(self.held.take().map(|(key, _)| key));
        }
        meant
    }
}

fn is_letter(key: &KeyEvent) -> bool {
    letter(key).is_some()
}

/// With control it is none: it interrupts.
fn letter(key: &KeyEvent) -> Option<char> {
    match key.code {
        KeyCode::Char(letter) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => Some(letter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<KeyEvent> {
        text.chars().map(|letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)).collect()
    }

    /// What counts of keys that come at these milliseconds, as text.
    fn counted(typed: &[(u64, &str)]) -> String {
        let (mut state, start, mut all) = (Typed::default(), Instant::now(), String::new());
        let end = typed.last().map_or(0, |(at, _)| at + 2000);
        for at in (0..end).step_by(10) {
            let now: String = typed.iter().filter(|(when, _)| *when == at).map(|(_, text)| *text).collect();
            let meant = state.meant(keys(&now), true, start + Duration::from_millis(at));
            all.extend(meant.iter().filter_map(letter));
        }
        all
    }

    #[test]
    fn a_key_alone_counts_and_text_does_not() {
        for (typed, expected) in [
            (&[(0, "y")][..], "y"),
            (&[(0, "s"), (1000, "y")], "sy"),
            (&[(0, "d"), (100, "s")], "ds"),
            (&[(0, "n"), (50, "N")], "nN"),
            (&[(0, "yes please run this")], ""),
            (&[(0, "s"), (120, "a"), (240, "n"), (360, "d"), (480, "b"), (600, "o"), (720, "x"), (840, "s")], ""),
            (&[(0, "su")], ""),
            (&[(0, "yes"), (2000, "y")], "y"),
        ] {
            assert_eq!(counted(typed), expected, "{typed:?}");
        }
    }

    #[test]
    fn other_keys_and_a_filter_pass() {
        let mut typed = Typed::default();
        let enter = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(typed.meant(vec![enter, interrupt], true, Instant::now()), [enter, interrupt]);
        assert_eq!(typed.meant(keys("yes"), false, Instant::now()), keys("yes"));
    }
}
