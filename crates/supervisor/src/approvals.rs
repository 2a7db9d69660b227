//! How questions reach a person and answers come back: the control socket with its clients and hooks, the prompt on the user's
//! terminal, notifications of the desktop, the open questions about hosts, answers that are kept. Decides nothing itself; the loop brings them together.

pub(crate) mod burst;
pub(crate) mod control_socket;
pub(crate) mod desktop;
pub(crate) mod host_questions;
pub(crate) mod kept_answers;
pub(crate) mod prompt;

use cofferdam_wire::{QuestionId, Settled};

use crate::approvals::control_socket::ControlSocket;
use crate::approvals::desktop::Desktop;
use crate::approvals::host_questions::HostQuestions;
use crate::approvals::kept_answers::Keeping;

/// What a session has of these.
#[derive(Default)]
pub(crate) struct Approvals {
    /// Where clients answer, once the session has a directory.
    pub(crate) control: Option<ControlSocket>,
    pub(crate) hosts: HostQuestions,
    /// What was granted for this session, to be kept on request.
    pub(crate) granted: Vec<Settled>,
    /// The last question that a line on stderr told of.
    pub(crate) told: QuestionId,
    /// Answers on their way to a policy.
    pub(crate) keeping: Keeping,
    pub(crate) desktop: Desktop,
}
