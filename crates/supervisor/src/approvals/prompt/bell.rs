//! The bell of the terminal. Owns when it rings: at a question, and no sooner than ten seconds after the last time. Called by `prompt`.

use std::time::{Duration, Instant};

use cofferdam_wire::QuestionId;

/// A person who heard it looks; another one soon after tells nothing new.
const BURST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Bell {
    is_on: bool,
    /// The newest question that it rang for, or would have.
    rang: QuestionId,
    at: Option<Instant>,
}

impl Bell {
    pub(crate) fn new(is_on: bool) -> Self {
        Bell { is_on, rang: 0, at: None }
    }

    /// What is written where this question is shown.
    pub(super) fn ring(&mut self, id: QuestionId, now: Instant) -> &'static str {
        let is_new = id > self.rang;
        self.rang = self.rang.max(id);
        let is_burst = self.at.is_some_and(|at| now.saturating_duration_since(at) < BURST);
        if !self.is_on || !is_new || is_burst {
            return "";
        }
        self.at = Some(now);
        "\x07"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_questions_rings_once() {
        let (mut bell, now) = (Bell::new(true), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let rings = [(1, 0), (2, 1), (3, 9), (3, 30), (4, 40), (5, 41), (5, 60)];
        let rang = rings.map(|(id, seconds)| !bell.ring(id, at(seconds)).is_empty());
        assert_eq!(rang, [true, false, false, false, true, false, false]);
        // A stream of them neither rings at each nor keeps the bell silent.
        let rang = (0..60).filter(|second| !bell.ring(100 + second, at(100 + second)).is_empty()).count();
        assert_eq!(rang, 6);
        assert_eq!(Bell::new(false).ring(1, now), "");
    }
}
