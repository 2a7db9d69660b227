//! Questions that come in quick succession. Owns of which ones the operator is called: the first of a burst. Used by the bell and by the
//! notifications of the desktop.

use std::time::{Duration, Instant};

use cofferdam_wire::QuestionId;

/// A person who was called looks; another call soon after tells nothing new.
const BURST: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Burst {
    newest: QuestionId,
    called: Option<Instant>,
}

impl Burst {
    /// Whether this question begins one.
    pub(crate) fn begins(&mut self, id: QuestionId, now: Instant) -> bool {
        let is_new = id > self.newest;
        self.newest = self.newest.max(id);
        let begins = is_new && self.called.is_none_or(|at| now.saturating_duration_since(at) >= BURST);
        if begins {
            self.called = Some(now);
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_questions_begins_once() {
        let (mut burst, now) = (Burst::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let questions = [(1, 0), (2, 1), (3, 9), (3, 30), (4, 40), (5, 41), (5, 60)];
        let begins = questions.map(|(id, seconds)| burst.begins(id, at(seconds)));
        assert_eq!(begins, [true, false, false, false, true, false, false]);
        // Of a stream of them neither each one calls nor is none heard.
        assert_eq!((0..60).filter(|second| burst.begins(100 + second, at(100 + second))).count(), 6);
    }
}
