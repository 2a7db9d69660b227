//! What the egress process says, in the loop: its questions go where all questions go, its records into the log.

use std::net::IpAddr;

use cofferdam_gate::shown;
use cofferdam_kernel::best_effort;
use cofferdam_policy::{Endpoint, Host, HostGroup, Prediction, Target, with_port};
use cofferdam_reach::address::special;
use cofferdam_reach::decide::{Rules, Verdict, allow_it};
use cofferdam_reach::message::Said;
use cofferdam_wire::{Group, NetworkOutcome, Subject};
use rustix::io::Errno;

use crate::approvals::host_questions::{Asked, Who};
use crate::event_loop::Running;
use crate::network::egress_process::Heard;
use crate::network::refuser;

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

    /// Where every host is refused: sockets of the session, or the first call at one of them.
    pub(crate) fn refuse(&mut self, ready: refuser::Ready) {
        let Some(mut refuser) = self.network.refuser.take() else { return };
        if ready == refuser::Ready::Sockets {
            refuser.take_sockets();
            self.network.refuser = Some(refuser);
            return;
        }
        // Where it does not start, the sockets are closed, and what is asked for is refused without a name.
        match self.plan.egress.as_ref().map(|plan| refuser.start(plan)) {
            Some(Ok(egress)) => self.network.egress = Some(egress),
            Some(Err(error)) => self.warn(format!("hosts are refused without their names: {error}")),
            None => {}
        }
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
            Said::Ask { id, host, port, at, client } => {
                let known = hint_about(&host, port, &self.plan.command.argv);
                let hint = [pair_in_words(&host, &at), known];
                let group = if at.is_empty() { self.hosts_around(&host, port) } else { None };
                self.ask_about_host(Asked {
                    id,
                    subject: Subject::Host(subject_of(&host, port, &at)),
                    who: Who::Client(client),
                    hint: hint.into_iter().flatten().reduce(joined),
                    group,
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
                    group: None,
                })?;
            }
            Said::Signed { subject, verdict } => self.log().signed(&subject, verdict),
            Said::Withdraw { id } => self.withdraw_host(id)?,
            Said::Connections { address, reached } => {
                // Where the flag alone allows it: a private address or a service of a cloud is told at the end, with its reason.
                let flag = Host::parse(&reached.host).map(|host| allow_it(&host, reached.port));
                if reached.verdict == NetworkOutcome::Denied && flag.is_ok_and(|flag| flag == reached.remedy) {
                    self.tell_refused(&reached.host, reached.port)?;
                }
                let has_network = self.plan.egress.as_ref().is_some_and(|egress| !egress.only_refuses);
                self.log().connections(address, &reached, has_network);
                self.summary.reached(reached);
            }
            Said::Queries { name, kind, verdict, count } => {
                self.log().queries(&name, &kind, verdict, count);
                if verdict == NetworkOutcome::Denied && kind == "A" {
                    // A name that reads as an address is one that the workload made up.
                    if matches!(Host::parse(&name), Ok(Host::Name(_))) {
                        self.tell_refused(&name, 0)?;
                    }
                    self.summary.refused_name(name, count);
                }
            }
            Said::Warn { text } => self.warn(text),
        }
        Ok(())
    }
}

/// Hosts of one session that are told at once; the end and the log have the others.
const MOST_TOLD: usize = 8;

impl Running<'_> {
    /// Where no layer said a word about the network and no person is asked, a program would try again and again in silence.
    fn tell_refused(&mut self, host: &str, port: u16) -> Result<(), Errno> {
        let is_unchosen = self.plan.egress.as_ref().is_some_and(|egress| egress.network.is_unchosen());
        let told = &mut self.summary.told_hosts;
        let is_known = told.iter().any(|(name, at)| name == host && (*at == port || *at == 0 || port == 0));
        if !is_unchosen || is_known || told.len() >= MOST_TOLD || self.options.ordered.is_some() {
            return Ok(());
        }
        told.push((host.to_owned(), port));
        let subject = if port == 0 { host.to_owned() } else { subject_of(host, port, &[]) };
        let line = format!("sandbox: no network here; to allow it: --allow-host {}", shown(subject.as_bytes()));
        self.streams.tell(&line, self.plan.terminal)
    }
}

impl Running<'_> {
    /// The hosts that one answer can be about with this one. Others only that would be asked about: what a rule denies no answer gives,
    /// and what a rule allows may be allowed in part.
    fn hosts_around(&self, host: &str, port: u16) -> Option<Group> {
        let asked = Host::parse(host).ok()?;
        let group = HostGroup::around(&asked, port, &self.plan.command.argv)?;
        let rules = Rules::new(&self.plan.egress.as_ref()?.network, Vec::new());
        let own = Endpoint::of(&asked, port);
        let would_be_asked = |endpoint: &Endpoint| match &endpoint.target {
            Target::Host(name) => {
                let verdict = Host::parse(name).map(|host| rules.host(&host, port));
                verdict.is_ok_and(|verdict| matches!(verdict, Verdict::Unknown))
                    && !self.approvals.hosts.denied.contains(&endpoint.to_string())
            }
            _ => false,
        };
        let hosts: Vec<Endpoint> =
            group.hosts.into_iter().filter(|host| *host == own || would_be_asked(host)).collect();
        let is_group = hosts.len() > 1 && hosts.contains(&own);
        let hosts = hosts.iter().map(Endpoint::to_string).collect();
        is_group.then_some(Group::Hosts { name: group.name, hosts })
    }
}

/// As policy writes it.
fn subject_of(host: &str, port: u16, at: &[IpAddr]) -> String {
    match Host::parse(host) {
        Ok(host) if at.is_empty() => with_port(&host, port),
        Ok(host) => Endpoint::at(&host, port, at).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

/// What a yes is about, where the name was allowed and the address is the question.
fn pair_in_words(host: &str, at: &[IpAddr]) -> Option<String> {
    let kind = |address: &IpAddr| {
        special(*address, &[])
            .map_or_else(|| format!("{address}"), |(class, _)| format!("{address}, a {class} address"))
    };
    let places = at.iter().map(kind).reduce(|one, other| format!("{one}, and to {other}"))?;
    Some(format!("{host} leads to {places}; the answer is about this pair"))
}

fn joined(one: String, other: String) -> String {
    [one, other].join("; ")
}

/// What is known of a host without asking the user or a server.
fn hint_about(host: &str, port: u16, argv: &[String]) -> Option<String> {
    let host = Host::parse(host).ok()?;
    let registry =
        cofferdam_policy::registries().any(|endpoint| endpoint.target.covers(&host) && endpoint.allows(&host, port));
    let registry = registry.then(|| "listed in the preset `registries`".to_owned());
    let usual = Prediction::of(argv).and_then(|prediction| prediction.hint(&host, port));
    [usual, registry].into_iter().flatten().reduce(joined)
}
