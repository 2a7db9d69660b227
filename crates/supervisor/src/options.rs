//! What a caller may ask of a launch besides the plan. Plain values and callbacks; read by `launch` and the loop.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use cofferdam_host::preparation::Known;
use cofferdam_host::quarantine::subject::Subject;
use cofferdam_policy::Origin;
use cofferdam_wire::exec::ExecRequest;
use cofferdam_wire::order::Lifetime;
use cofferdam_wire::{Question, Settled, Verdict};

/// What a caller may ask of a launch besides the plan.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where state and logs are kept; none for tests that want nothing on disk.
    pub state: Option<PathBuf>,
    /// The file that the command comes from; an order's commands have their own.
    pub subject: Option<Rc<Subject>>,
    /// What the operator called it; whether it is free is the caller's to know.
    pub name: Option<String>,
    /// Pipes without a name that this process was started with and that the command gets under their numbers.
    pub descriptors: Vec<i32>,
    pub timing: bool,
    pub returns: Returns,
    /// What the plan was made from; a plan with a gate needs it.
    pub known: Option<Rc<Known>>,
    /// A callback in this process, asked before every client.
    pub decider: Option<Decider>,
    /// Keeps answers that outlive the session.
    pub memory: Option<Memory>,
    /// Who approved the host's own network, where the session has it: written down with its start.
    pub network_approved: Option<NetworkApproval>,
    /// The program of the egress process. A plan without a way out needs none.
    pub egress_program: Option<PathBuf>,
    /// What its order says, where it is not the command of this process's own terminal.
    pub ordered: Option<Ordered>,
}

#[derive(Debug, Clone)]
pub enum NetworkApproval {
    Organisation(Origin),
    Operator,
}

/// A session whose commands are execs, and the client that ordered it.
#[derive(Debug, Clone)]
pub struct Ordered {
    /// Hears that it runs; its end can be the session's.
    pub client: Rc<OwnedFd>,
    pub exec: Option<ExecRequest>,
    pub lifetime: Lifetime,
    /// Of each stream of each exec.
    pub kept_bytes: usize,
}

/// Writes an answer to the policy that it is to be kept in. What it did, or why it could not, is told at the end.
#[derive(Clone)]
pub struct Memory(pub Rc<KeepAnswer>);

pub type KeepAnswer = dyn Fn(&Settled) -> Result<String, String>;

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

/// Answers questions at once, or leaves them to others.
#[derive(Clone)]
pub struct Decider(pub Rc<Decide>);

pub type Decide = dyn Fn(&Question) -> Option<Verdict>;

impl std::fmt::Debug for Decider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decider")
    }
}

/// How long a caller waits at the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Returns {
    /// Until pid 1 is reaped and the namespaces are gone.
    #[default]
    WhenTakenApart,
    /// Until no process but pid 1 is left inside. The kernel takes the rest apart meanwhile; the process that inherits this one's
    /// children reaps pid 1.
    WhenAllEnded,
}
