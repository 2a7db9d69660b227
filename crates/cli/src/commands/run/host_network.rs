//! The host's own network has no walls, so a flag or a file of the user is not enough for it (R2.17): the organisation's
//! word, or one answer at the terminal before anything starts. Owns that question; what was answered goes into the
//! session's first record. Called by `run` and `learn`.

use cofferdam_host::preparation::Prepared;
use cofferdam_policy::{Isolation, OnUnknown, Origin};
use cofferdam_supervisor::NetworkApproval;
use rustix::stdio::stdin;
use rustix::termios::{QueueSelector, tcflush};
use thiserror::Error;

use crate::environment::has_terminal;
use crate::render::output::say;

/// The host's network was not approved.
#[derive(Debug, Error)]
#[error("the host's own network needs an approval, and {why}", why = cause.words())]
pub(crate) struct HostNetworkError {
    pub(crate) cause: NotApproved,
    /// Where the mode `host` was chosen.
    pub(crate) origin: Box<Origin>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotApproved {
    NoTerminal,
    QuestionsAreDenied,
    Answered,
}

impl NotApproved {
    fn words(self) -> &'static str {
        match self {
            NotApproved::NoTerminal => "there is no terminal to ask at",
            NotApproved::QuestionsAreDenied => "questions are denied here",
            NotApproved::Answered => "the answer was no",
        }
    }
}

/// By whom it was approved; nothing where the session has a network of its own.
pub(crate) fn approve(prepared: &Prepared) -> Result<Option<NetworkApproval>, HostNetworkError> {
    let policy = &prepared.known.policy;
    if prepared.plan.isolation != Isolation::Full || prepared.plan.namespaces.net {
        return Ok(None);
    }
    if let Some(origin) = &policy.host_network_approved {
        return Ok(Some(NetworkApproval::Organisation(origin.clone())));
    }
    let refused = |cause| HostNetworkError { cause, origin: Box::new(policy.network.mode.origin.clone()) };
    if !has_terminal() {
        return Err(refused(NotApproved::NoTerminal));
    }
    if policy.unknown.verdict.value == OnUnknown::Deny {
        return Err(refused(NotApproved::QuestionsAreDenied));
    }
    say!("sandbox: this session would have the host's own network, unfiltered: services on localhost, the local");
    say!("sandbox: network and the internet, with nothing recorded. Type `yes` to allow it for this session:");
    if answer().as_deref() == Some("yes") {
        return Ok(Some(NetworkApproval::Operator));
    }
    Err(refused(NotApproved::Answered))
}

/// One line, typed after the question was asked. Byte by byte: what follows is the command's.
fn answer() -> Option<String> {
    tcflush(stdin(), QueueSelector::IFlush).ok()?;
    let mut line = Vec::new();
    let mut byte = [0u8];
    while rustix::io::read(stdin(), &mut byte).ok()? == 1 && byte[0] != b'\n' && line.len() < 64 {
        line.push(byte[0]);
    }
    String::from_utf8(line).ok().map(|line| line.trim().to_owned())
}
