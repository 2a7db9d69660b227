//! Questions about hosts: a connection to a place that no rule is about waits in the egress process for an
//! answer. Owns which connections wait for which one, and their clock; budget and numbers are the gate's, for all questions.
//! Called by the loop.

use std::net::SocketAddr;
use std::time::Instant;

use cofferdam_wire::{Question, QuestionId, Subject};

/// A question, and who waits for it.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) question: Question,
    /// As the egress process numbers them.
    pub(crate) waiting: Vec<u64>,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

/// The open questions of a session about hosts.
#[derive(Debug, Default)]
pub(crate) struct HostQuestions {
    pub(crate) open: Vec<Open>,
}

/// What is known of the program that asks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// The program's end of its connection.
    Client(Option<SocketAddr>),
    /// Its number as seen from outside.
    Process(Option<u32>),
}

/// One thing that the egress process asks.
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) subject: Subject,
    pub(crate) who: Who,
    pub(crate) hint: Option<String>,
}

impl HostQuestions {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.until).min()
    }

    pub(crate) fn take(&mut self, id: QuestionId) -> Option<Open> {
        let at = self.open.iter().position(|open| open.question.id == id)?;
        Some(self.open.remove(at))
    }
}
