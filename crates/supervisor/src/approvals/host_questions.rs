//! Questions about hosts: a connection to a place that no rule is about waits in the egress process for an
//! answer. Owns which connections wait for which one, and their clock; budget and numbers are the gate's, for all questions.
//! Called by the loop.

use std::net::SocketAddr;
use std::time::Instant;

use cofferdam_policy::Endpoint;
use cofferdam_wire::{Group, Question, QuestionId, Subject};

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
    /// What was denied for the session.
    pub(crate) denied: Vec<String>,
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
    pub(crate) group: Option<Group>,
}

impl HostQuestions {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.until).min()
    }

    /// Open questions about hosts of a group, as they stand in it.
    pub(crate) fn in_group(&self, hosts: &[String]) -> Vec<QuestionId> {
        let is_in = |open: &&Open| covers(hosts, &open.question.subject);
        self.open.iter().filter(is_in).map(|open| open.question.id).collect()
    }

    pub(crate) fn take(&mut self, id: QuestionId) -> Option<Open> {
        let at = self.open.iter().position(|open| open.question.id == id)?;
        Some(self.open.remove(at))
    }
}

/// Whether one of these is about the place of a question. A pair of name and address is asked about by itself.
fn covers(hosts: &[String], subject: &Subject) -> bool {
    let Subject::Host(asked) = subject else { return false };
    let Ok(asked) = Endpoint::parse(asked) else { return false };
    asked.at.is_empty() && hosts.iter().any(|host| Endpoint::parse(host).is_ok_and(|host| host.allows_all(&asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_covers_its_hosts_on_its_port() {
        let hosts = ["pypi.org:443", "**.rubygems.org:443"].map(str::to_owned);
        for (asked, covered) in [
            ("pypi.org:443", true),
            ("pypi.org:80", false),
            ("evil.pypi.org:443", false),
            ("index.rubygems.org:443", true),
            ("pypi.org:443@10.0.0.1", false),
        ] {
            assert_eq!(covers(&hosts, &Subject::Host(asked.to_owned())), covered, "{asked}");
        }
        assert!(!covers(&hosts, &Subject::Key("pypi.org:443".to_owned())));
    }
}
