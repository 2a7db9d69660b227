//! What the egress process says, in the loop: its questions go where all questions go, its records into the log.

use cofferdam_kernel::best_effort;
use cofferdam_policy::{Host, Prediction, with_port};
use cofferdam_reach::message::Said;
use cofferdam_wire::{NetworkOutcome, Subject};
use rustix::io::Errno;

use crate::approvals::host_questions::{Asked, Who};
use crate::event_loop::Running;
use crate::network::egress_process::Heard;

impl Running<'_> {
    pub(crate) fn hear_egress(&mut self) -> Result<(), Errno> {
        // No more at once than leaves time for the rest.
        for _ in 0..64 {
            let Some(egress) = &mut self.network.egress else { break };
            match egress.hear() {
                Heard::Said(said) => self.take_word(said)?,
                Heard::Nothing => break,
                Heard::Gone => {
                    let text = "the process that carries connections ended: nothing outside can be reached any more";
                    self.warn(text.to_owned());
                    break;
                }
            }
        }
        Ok(())
    }

    /// Its last records, once no process is inside that could cause more.
    pub(crate) fn end_egress(&mut self) {
        let Some(mut egress) = self.network.egress.take() else { return };
        let mut last = Vec::new();
        egress.end(|said| last.push(said));
        for said in last {
            best_effort(self.take_word(said), "what it says now changes nothing");
        }
    }

    fn take_word(&mut self, said: Said) -> Result<(), Errno> {
        match said {
            Said::Ask { id, host, port, client } => {
                self.ask_about_host(Asked {
                    id,
                    subject: Subject::Host(subject_of(&host, port)),
                    who: Who::Client(client),
                    hint: hint_about(&host, port, &self.plan.command.argv),
                })?;
            }
            // Waited for before the session begins.
            Said::NotExecuted { .. } | Said::Ready { .. } | Said::Authority => {}
            Said::Sign { id, subject, process } => {
                self.ask_about_host(Asked {
                    id,
                    subject: Subject::Key(subject),
                    who: Who::Process(process),
                    hint: None,
                })?;
            }
            Said::Signed { subject, verdict } => self.log().signed(&subject, verdict),
            Said::Withdraw { id } => self.withdraw_host(id)?,
            Said::Connections { address, reached } => {
                self.log().connections(address, &reached);
                self.summary.reached(reached);
            }
            Said::Queries { name, kind, verdict, count } => {
                self.log().queries(&name, &kind, verdict, count);
                if verdict == NetworkOutcome::Denied && kind == "A" {
                    self.summary.refused_name(name, count);
                }
            }
            Said::Warn { text } => self.warn(text),
        }
        Ok(())
    }
}

/// As policy writes it.
fn subject_of(host: &str, port: u16) -> String {
    Host::parse(host).map_or_else(|_| format!("{host}:{port}"), |host| with_port(&host, port))
}

/// What is known of a host without asking the user or a server.
fn hint_about(host: &str, port: u16, argv: &[String]) -> Option<String> {
    let host = Host::parse(host).ok()?;
    let registry =
        cofferdam_policy::registries().any(|endpoint| endpoint.target.covers(&host) && endpoint.allows(&host, port));
    let registry = registry.then(|| "listed in the preset `registries`".to_owned());
    let usual = Prediction::of(argv).and_then(|prediction| prediction.hint(&host, port));
    [usual, registry].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"))
}
