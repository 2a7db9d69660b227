//! The way to the supervisor: questions and their answers, and records of what was carried. Owns the socket and the tally;
//! never drops a record, so a supervisor that does not read holds back new connections. Used by everything that decides.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use cofferdam_kernel::socket;
use cofferdam_policy::Host;
use cofferdam_reach::decide::{Decided, Denial};
use cofferdam_reach::message::{Said, Told};
use cofferdam_wire::{NetworkOutcome, Reached};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::oneshot;

use crate::session::limits::Rate;

/// An answer as the task that asked gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    /// For the rest of the session as well.
    pub(crate) kept: bool,
    pub(crate) origin: String,
}

/// Connections that differ in nothing that is recorded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    address: Option<IpAddr>,
    /// Without its counts.
    reached: Reached,
}

impl Case {
    pub(crate) fn denied(host: &Host, port: u16, denial: &Denial) -> Case {
        let origin = denial.origin.as_ref().map(ToString::to_string).unwrap_or_default();
        Case::of(host, port, NetworkOutcome::Denied, [&denial.why, &origin, &denial.remedy])
    }

    pub(crate) fn failed(host: &Host, port: u16, why: &str) -> Case {
        Case::of(host, port, NetworkOutcome::Failed, [why, "", ""])
    }

    pub(crate) fn allowed(host: &Host, port: u16, address: IpAddr, decided: &Decided) -> Case {
        let texts: [&str; 3] = [&decided.rule, &decided.origin.to_string(), ""];
        Case { address: Some(address), ..Case::of(host, port, NetworkOutcome::Allowed, texts) }
    }

    fn of(host: &Host, port: u16, verdict: NetworkOutcome, texts: [&str; 3]) -> Case {
        let (host, [why, origin, remedy]) = (host.to_string(), texts.map(brief));
        Case { address: None, reached: Reached { host, port, verdict, why, origin, remedy, ..Reached::default() } }
    }
}

/// Programs choose the paths that a reason tells of, and a record must fit a message: a longer one would end the way to the
/// supervisor.
fn brief(text: &str) -> String {
    const MOST: usize = 300;
    match text.get(..text.floor_char_boundary(MOST)) {
        Some(kept) if kept.len() < text.len() => format!("{kept}...({} more bytes)", text.len() - kept.len()),
        _ => text.to_owned(),
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    connections: u64,
    up: u64,
    down: u64,
    is_said: bool,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// Of messages; only its readiness is tokio's business.
    socket: UnixDatagram,
    next: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<Answer>>>,
    tally: RefCell<BTreeMap<Case, Count>>,
    queries: RefCell<BTreeMap<(String, String, NetworkOutcome), u64>>,
    apart: Rate,
}

/// New kinds of refused connections that are written down one by one in a second. A program that tries every address there is
/// must not fill the disk.
const REFUSED_APART: u32 = 50;
/// Kinds of connections that are counted apart; past it they are written down at once.
const MOST_CASES: usize = 4096;

/// Hosts that have no record of their own.
const OTHERS: &str = "(others)";
const TOO_MANY: &str = "too many to be written down one by one";

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> std::io::Result<Rc<Link>> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Rc::new(Link {
            socket: UnixDatagram::from_std(socket.into())?,
            next: Cell::new(1),
            waiting: RefCell::default(),
            tally: RefCell::default(),
            queries: RefCell::default(),
            apart: Rate::new(REFUSED_APART),
        }))
    }

    async fn say(&self, said: &Said) {
        // What cannot be written as JSON does not exist: text and numbers.
        let Ok(bytes) = serde_json::to_vec(said) else { return };
        let sent = self.socket.async_io(Interest::WRITABLE, || Ok(socket::send(self.socket.as_fd(), &bytes, None)?));
        if sent.await.is_err() {
            // Without a supervisor nothing is allowed any more, and there is no process to tell.
            std::process::exit(1);
        }
    }

    /// Waits for the supervisor to decide. One that is gone decides nothing.
    pub(crate) async fn ask(
        &self,
        host: &Host,
        port: u16,
        at: &[IpAddr],
        client: Option<SocketAddr>,
    ) -> Option<Answer> {
        self.ask_for(|id| Said::Ask { id, host: host.to_string(), port, at: at.to_vec(), client }).await
    }

    pub(crate) async fn ask_to_sign(&self, subject: &str, process: Option<u32>) -> Option<Answer> {
        self.ask_for(|id| Said::Sign { id, subject: subject.to_owned(), process }).await
    }

    async fn ask_for(&self, question: impl FnOnce(u64) -> Said) -> Option<Answer> {
        let id = self.next.get();
        self.next.set(id + 1);
        let (answered, answer) = oneshot::channel();
        self.waiting.borrow_mut().insert(id, answered);
        let _withdrawn = Withdrawn { link: self, id };
        self.say(&question(id)).await;
        answer.await.ok()
    }

    /// What became of a request for a signature.
    pub(crate) async fn signed(&self, subject: String, verdict: NetworkOutcome) {
        self.say(&Said::Signed { subject, verdict }).await;
    }

    pub(crate) async fn warn(&self, text: String) {
        self.say(&Said::Warn { text }).await;
    }

    /// The first of a kind is written down before anything else happens. What is dialled has its own record; of what is
    /// refused, too many at once share one.
    pub(crate) async fn open(&self, case: &Case) {
        if let Some(count) = self.tally.borrow_mut().get_mut(case).filter(|count| count.is_said) {
            count.connections += 1;
            return;
        }
        let is_apart = case.reached.verdict == NetworkOutcome::Allowed || self.apart.take(Instant::now());
        let case = if is_apart {
            case.clone()
        } else {
            let (host, why) = (OTHERS.to_owned(), TOO_MANY.to_owned());
            let reached = Reached { host, why, verdict: case.reached.verdict, ..Reached::default() };
            Case { address: None, reached }
        };
        let is_new = {
            let mut tally = self.tally.borrow_mut();
            let count = tally.entry(case.clone()).or_default();
            count.connections += 1;
            !count.is_said
        };
        if is_new {
            self.flush_case(&case).await;
        }
    }

    pub(crate) fn close(&self, case: &Case, up: u64, down: u64) {
        let mut tally = self.tally.borrow_mut();
        if !tally.contains_key(case) {
            tally.insert(case.clone(), Count::default());
        }
        if let Some(count) = tally.get_mut(case) {
            count.up += up;
            count.down += down;
        }
    }

    pub(crate) fn queried(&self, name: &str, kind: &str, verdict: NetworkOutcome) {
        let mut queries = self.queries.borrow_mut();
        *queries.entry((name.to_owned(), kind.to_owned(), verdict)).or_default() += 1;
    }

    async fn flush_case(&self, case: &Case) {
        let said = {
            let mut tally = self.tally.borrow_mut();
            let Some(count) = tally.get_mut(case) else { return };
            if count.connections == 0 && count.up == 0 && count.down == 0 {
                return;
            }
            let Count { connections, up, down, .. } =
                std::mem::replace(count, Count { is_said: true, ..Count::default() });
            let reached = Reached { connections, up, down, ..case.reached.clone() };
            Said::Connections { address: case.address, reached }
        };
        self.say(&said).await;
    }

    /// Everything that was counted since the last time.
    pub(crate) async fn flush(&self) {
        let cases: Vec<Case> = {
            let mut tally = self.tally.borrow_mut();
            if tally.len() > MOST_CASES {
                // Quiet ones start anew.
                tally.retain(|_, count| count.connections + count.up + count.down > 0);
            }
            let used = tally.iter().filter(|(_, count)| count.connections + count.up + count.down > 0);
            used.map(|(case, _)| case.clone()).collect()
        };
        for case in cases {
            self.flush_case(&case).await;
        }
        let queries = std::mem::take(&mut *self.queries.borrow_mut());
        for ((name, kind, verdict), count) in queries {
            self.say(&Said::Queries { name, kind, verdict, count }).await;
        }
    }

    /// The next word of the supervisor; None when it is gone.
    pub(crate) async fn hear(&self) -> Option<Told> {
        loop {
            let received = self.socket.async_io(Interest::READABLE, || Ok(socket::receive_now(&self.socket)?)).await;
            let (bytes, _) = received.ok().filter(|(bytes, _)| !bytes.is_empty())?;
            if let Ok(told) = serde_json::from_slice(&bytes) {
                return Some(told);
            }
        }
    }

    /// The task that waits for this answer goes on.
    pub(crate) fn answer(&self, id: u64, answer: Answer) {
        if let Some(waiting) = self.waiting.borrow_mut().remove(&id) {
            // The task that asked may be gone.
            drop(waiting.send(answer));
        }
    }

    /// From a place that cannot wait.
    fn withdraw(&self, id: u64) {
        if self.waiting.borrow_mut().remove(&id).is_none() {
            return;
        }
        let Ok(bytes) = serde_json::to_vec(&Said::Withdraw { id }) else { return };
        match socket::send(self.socket.as_fd(), &bytes, None) {
            // An answer to a question that was taken back is dropped when it comes.
            Ok(()) | Err(Errno::AGAIN) => {}
            Err(_) => std::process::exit(1),
        }
    }
}

/// Takes a question back when the task that asked ends.
struct Withdrawn<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.link.withdraw(self.id);
    }
}
