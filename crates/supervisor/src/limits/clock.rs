//! The time that a session has: near its end that is told, at its end the command is asked to end, and killed after a grace
//! period. Owns the moments; what they lead to is the loop's.

use std::time::{Duration, Instant};

/// Between SIGTERM and SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Clock {
    deadline: Option<Instant>,
    /// When to tell that the deadline comes near.
    near: Option<Instant>,
    kill_at: Option<Instant>,
}

/// What has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Struck {
    Near,
    TimeIsUp,
    GraceIsOver,
}

impl Clock {
    pub(crate) fn start(timeout: Option<Duration>) -> Self {
        let now = Instant::now();
        let near = timeout.map(|timeout| now + timeout / 5 * 4);
        Clock { deadline: timeout.map(|timeout| now + timeout), near, kill_at: None }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        [self.deadline, self.near, self.kill_at].into_iter().flatten().min()
    }

    pub(crate) fn check(&mut self, now: Instant) -> Vec<Struck> {
        let has_come = |at: &mut Option<Instant>| at.take_if(|at| now >= *at).is_some();
        let mut struck = Vec::new();
        if has_come(&mut self.near) {
            struck.push(Struck::Near);
        }
        if has_come(&mut self.deadline) {
            self.kill_at = Some(now + GRACE);
            struck.push(Struck::TimeIsUp);
        }
        if has_come(&mut self.kill_at) {
            struck.push(Struck::GraceIsOver);
        }
        struck
    }
}
