//! What a session may use of the network: connections, queries a second, bytes, and how long nothing may happen.
//! Owns the counting; the numbers are policy's. Asked by everything that carries something.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// The bytes of a session, in both directions.
#[derive(Debug)]
pub(crate) struct Traffic {
    bytes: Cell<u64>,
    most: Option<u64>,
    /// Whole seconds since the start: what the sweep looks at.
    now: Rc<Cell<u64>>,
    last: Cell<u64>,
    /// Nothing of the program's is on its way any more.
    settled: Cell<bool>,
    session: Option<Rc<Traffic>>,
}

impl Traffic {
    pub(crate) fn of_session(most: Option<u64>) -> Rc<Traffic> {
        let now = Rc::new(Cell::new(0));
        Rc::new(Traffic {
            bytes: Cell::new(0),
            most,
            last: Cell::new(0),
            now,
            settled: Cell::new(false),
            session: None,
        })
    }

    fn of_connection(session: &Rc<Traffic>) -> Rc<Traffic> {
        let now = Rc::clone(&session.now);
        let last = Cell::new(now.get());
        let settled = Cell::new(false);
        Rc::new(Traffic { bytes: Cell::new(0), most: None, now, last, settled, session: Some(Rc::clone(session)) })
    }

    /// Whether everything that the program sent so far was sent on.
    pub(crate) fn settle(&self, is_settled: bool) {
        self.settled.set(is_settled);
    }

    pub(crate) fn add(&self, bytes: u64) -> io::Result<()> {
        self.last.set(self.now.get());
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if self.most.is_some_and(|most| self.bytes.get() > most) {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the session's bytes are used up"));
        }
        self.session.as_ref().map_or(Ok(()), |session| session.add(bytes))
    }
}

/// One connection, and how to end it.
type Entry = (Rc<Traffic>, Option<AbortHandle>);

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Connections {
    open: RefCell<BTreeMap<u64, Entry>>,
    next: Cell<u64>,
    most: usize,
    idle: Duration,
    started: Instant,
    session: Rc<Traffic>,
}

/// A place among the open connections, free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    pub(crate) traffic: Rc<Traffic>,
    connections: Rc<Connections>,
}

impl Connections {
    pub(crate) fn new(most: usize, idle: Duration, bytes: Option<u64>) -> Rc<Connections> {
        Rc::new(Connections {
            open: RefCell::default(),
            next: Cell::new(0),
            most,
            idle,
            started: Instant::now(),
            session: Traffic::of_session(bytes),
        })
    }

    /// None when there are as many as there may be.
    pub(crate) fn enter(self: &Rc<Self>) -> Option<Place> {
        let mut open = self.open.borrow_mut();
        if open.len() >= self.most {
            return None;
        }
        let id = self.next.get();
        self.next.set(id + 1);
        let traffic = Traffic::of_connection(&self.session);
        open.insert(id, (Rc::clone(&traffic), None));
        Some(Place { id, traffic, connections: Rc::clone(self) })
    }

    /// What to end when this connection has been idle for too long.
    pub(crate) fn watch(&self, id: u64, task: AbortHandle) {
        if let Some(entry) = self.open.borrow_mut().get_mut(&id) {
            entry.1 = Some(task);
        }
    }

    /// Whether something that a program sent may not be sent on yet.
    pub(crate) fn is_owing(&self) -> bool {
        self.open.borrow().values().any(|(traffic, _)| !traffic.settled.get())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Ends them all. What each carried is known once its task is gone, at the next turn of the event loop.
    pub(crate) fn end(&self) {
        let tasks: Vec<AbortHandle> = self.open.borrow().values().filter_map(|(_, task)| task.clone()).collect();
        for task in tasks {
            task.abort();
        }
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Once a second: the clock goes on, and who was silent for too long is ended.
    pub(crate) fn sweep(&self) {
        let now = self.started.elapsed().as_secs();
        self.session.now.set(now);
        let idle = self.idle.as_secs();
        let silent: Vec<AbortHandle> = {
            let open = self.open.borrow();
            let silent = open.values().filter(|(traffic, _)| now.saturating_sub(traffic.last.get()) > idle);
            silent.filter_map(|(_, task)| task.clone()).collect()
        };
        for task in silent {
            task.abort();
        }
    }
}

impl Place {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(&self.id);
    }
}

/// So many a second, and as many at once.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: u32,
    left: Cell<f64>,
    at: Cell<Instant>,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Rate {
        Rate { per_second, left: Cell::new(f64::from(per_second)), at: Cell::new(Instant::now()) }
    }

    pub(crate) fn take(&self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at.get()).as_secs_f64();
        self.at.set(now);
        let most = f64::from(self.per_second);
        let left = (self.left.get() + since * most).min(most);
        let allowed = left >= 1.0;
        self.left.set(if allowed { left - 1.0 } else { left });
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_its_number_and_then_what_time_brings() {
        let rate = Rate::new(10);
        let start = Instant::now();
        let taken = (0..100).filter(|_| rate.take(start)).count();
        assert_eq!(taken, 10);
        assert!(rate.take(start + Duration::from_millis(150)));
        assert!(!rate.take(start + Duration::from_millis(151)));
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_is_gone() {
        let connections = Connections::new(1, Duration::from_secs(1), None);
        let place = connections.enter().expect("there is room");
        assert!(connections.enter().is_none());
        drop(place);
        assert!(connections.enter().is_some());
    }

    #[test]
    fn the_bytes_of_all_connections_count_together() {
        let connections = Connections::new(8, Duration::from_secs(1), Some(10));
        let (one, other) = (connections.enter().expect("room"), connections.enter().expect("room"));
        one.traffic.add(6).expect("within");
        other.traffic.add(5).expect_err("eleven of ten");
    }
}
