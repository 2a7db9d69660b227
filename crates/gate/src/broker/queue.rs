//! Orders for the broker that wait until there is room for them. Owns how many are on their way: the process that serves the FUSE
//! root never waits for room in the socket, because the broker may be waiting for an answer of that root. Used by `Gate`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::broker::Broker;
use crate::broker::orders::{Order, Outcome};

/// Bytes of orders that are on their way at once: a fraction of what a socket holds. A longer order goes alone.
const ROOM: usize = 48 << 10;
/// What the kernel counts for each message beside its bytes, at most.
const OVERHEAD: usize = 1024;

#[derive(Debug)]
pub(crate) struct Queue {
    broker: Broker,
    waiting: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    under_way: VecDeque<usize>,
}

impl Queue {
    /// `sandbox` is the sandbox's mount namespace.
    pub(crate) fn start(sandbox: BorrowedFd<'_>) -> Result<Queue, Errno> {
        let broker = Broker::start(sandbox)?;
        Ok(Queue { broker, waiting: VecDeque::new(), under_way: VecDeque::new() })
    }

    /// An outcome comes for each order, in the same order.
    pub(crate) fn send(&mut self, order: &Order, about: Option<OwnedFd>) -> Result<(), Errno> {
        self.waiting.push_back((order.encode(), about));
        self.pass_on()
    }

    pub(crate) fn receive(&mut self) -> Result<(Outcome, Option<OwnedFd>), Errno> {
        let received = self.broker.receive()?;
        self.under_way.pop_front();
        self.pass_on()?;
        Ok(received)
    }

    fn pass_on(&mut self) -> Result<(), Errno> {
        while let Some((bytes, about)) = self.waiting.front() {
            let taken = bytes.len() + OVERHEAD;
            if !self.under_way.is_empty() && self.under_way.iter().sum::<usize>() + taken > ROOM {
                break;
            }
            self.broker.send(bytes, about.as_ref().map(AsFd::as_fd))?;
            self.under_way.push_back(taken);
            self.waiting.pop_front();
        }
        Ok(())
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.broker.as_fd()
    }
}
