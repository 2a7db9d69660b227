//! The user's ssh-agent for programs inside: their requests are read, signatures are decided one by one, and only what was
//! allowed is passed on. Owns the connections to both sides; the agent's own socket and its keys are never inside.
//! Started by `process::accept`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_policy::AgentUse;
use cofferdam_reach::start::AgentStart;
use cofferdam_wire::NetworkOutcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::session::supervisor_link::{Answer, Link};
use crate::wire::Progress;
use crate::wire::agent::{self, Purpose, Request, SignRequest};

/// Programs that may use the agent at once.
const MOST: usize = 64;
/// How long the agent may take: it may ask for a touch of a token.
const AGENT_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(crate) struct Agent {
    start: AgentStart,
    link: Rc<Link>,
    /// Keys with purposes that were decided for the session.
    decided: RefCell<Decided>,
}

#[derive(Debug, Default)]
struct Decided {
    allowed: BTreeSet<String>,
    denied: BTreeSet<String>,
}

pub(crate) async fn serve(agent: Rc<Agent>, listener: UnixListener) {
    let room = Arc::new(tokio::sync::Semaphore::new(MOST));
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let agent = Rc::clone(&agent);
        tokio::task::spawn_local(async move {
            // A program that goes away needs no answer.
            drop(agent.relay(client).await);
            drop(place);
        });
    }
}

impl Agent {
    pub(crate) fn new(start: AgentStart, link: Rc<Link>) -> Agent {
        Agent { start, link, decided: RefCell::default() }
    }

    /// One program, one connection to the agent: what is bound to a session stays with it.
    async fn relay(&self, mut client: UnixStream) -> io::Result<()> {
        let process = client.peer_cred().ok().and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok());
        let mut real = UnixStream::connect(&self.start.socket).await?;
        let mut bytes = Vec::new();
        loop {
            let length = match agent::message(&bytes) {
                Progress::Done(_, length) => length,
                Progress::Bad(..) => return client.write_all(&agent::FAILURE).await,
                Progress::Partial => {
                    bytes.reserve(4096);
                    if client.read_buf(&mut bytes).await? == 0 {
                        return Ok(());
                    }
                    continue;
                }
            };
            let whole: Vec<u8> = bytes.drain(..length).collect();
            let allowed = match agent::classify(whole.get(4..).unwrap_or_default()) {
                Request::Identities | Request::SessionBind { .. } => true,
                Request::Sign(request) => self.decide(&request, process).await,
                Request::Refused { .. } => false,
            };
            if allowed {
                let answer = tokio::time::timeout(AGENT_TIMEOUT, exchange(&mut real, &whole)).await;
                client.write_all(&answer.map_err(|_| io::ErrorKind::TimedOut)??).await?;
            } else {
                client.write_all(&agent::FAILURE).await?;
            }
        }
    }

    async fn decide(&self, request: &SignRequest<'_>, process: Option<u32>) -> bool {
        let subject = subject_of(request);
        let known = {
            let decided = self.decided.borrow();
            match self.start.usage {
                _ if decided.denied.contains(&subject) => Some(false),
                AgentUse::Off => Some(false),
                AgentUse::Allow => Some(true),
                AgentUse::Ask if decided.allowed.contains(&subject) => Some(true),
                AgentUse::Ask if !self.start.asks => Some(false),
                AgentUse::Ask => None,
            }
        };
        let allowed = match known {
            Some(allowed) => allowed,
            None => match self.link.ask_to_sign(&subject, process).await {
                Some(Answer { allowed, kept, .. }) => {
                    // It is not known what else such an answer would cover.
                    if kept && !subject.ends_with(UNREADABLE) {
                        let mut decided = self.decided.borrow_mut();
                        let list = if allowed { &mut decided.allowed } else { &mut decided.denied };
                        list.insert(subject.clone());
                    }
                    allowed
                }
                None => false,
            },
        };
        self.link.signed(subject, if allowed { NetworkOutcome::Allowed } else { NetworkOutcome::Denied }).await;
        allowed
    }
}

/// What a signature could be good for anything with.
const UNREADABLE: &str = "something that cannot be read";

/// What is signed and with which key, as a person is asked.
fn subject_of(request: &SignRequest<'_>) -> String {
    /// Of a name that a program chose: a longer one tells nothing, and a question must fit a message.
    const MOST_NAME: usize = 100;
    let key = agent::fingerprint(request.key);
    let what = match request.purpose {
        Purpose::Signature { namespace: name } | Purpose::Login { user: name, .. } if name.len() > MOST_NAME => {
            UNREADABLE.to_owned()
        }
        Purpose::Signature { namespace } => format!("a `{namespace}` signature"),
        Purpose::Login { user, host_key: Some(host), .. } => {
            format!("a login as `{user}` at the host with key {}", agent::fingerprint(host))
        }
        Purpose::Login { user, .. } => format!("a login as `{user}`"),
        Purpose::Unknown => UNREADABLE.to_owned(),
    };
    format!("{key} for {what}")
}

async fn exchange(real: &mut UnixStream, message: &[u8]) -> io::Result<Vec<u8>> {
    real.write_all(message).await?;
    let length = real.read_u32().await?;
    let wanted = usize::try_from(length).ok().filter(|length| *length <= agent::MESSAGE_MAX);
    let mut answer = vec![0; wanted.ok_or(io::ErrorKind::InvalidData)?];
    real.read_exact(&mut answer).await?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&answer);
    Ok(framed)
}
