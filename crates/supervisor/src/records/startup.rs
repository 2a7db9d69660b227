//! What is written down about a session: its directory, its socket, its first records. Owns their order and that they are
//! done while no process waits: the child is answered first, for every name of its root that it asks for, and what the command
//! causes is written down after them. Called by the supervisor's loop.

use std::collections::VecDeque;

use rustix::io::Errno;

use crate::store::session_dir::SessionDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// The session's directory.
    Directory,
    /// The client to ask, where there can be questions.
    OpenApprovals,
    /// What others are told of it. A session that is listed has its socket.
    List,
    Created,
    /// The walls stand.
    Entered,
    Started,
}

#[derive(Debug)]
pub(crate) struct Startup {
    /// What is still to be done, in this order.
    pub(crate) tasks: VecDeque<Task>,
    /// The session's, made where no overlay needed it before the clone.
    pub(crate) directory: Option<SessionDir>,
    /// Whether others find this session.
    pub(crate) is_listed: bool,
    /// There is no operator to ask.
    pub(crate) failed: Option<Errno>,
}

impl Startup {
    pub(crate) fn at_start(directory: Option<SessionDir>) -> Self {
        Startup {
            tasks: VecDeque::from([Task::Directory, Task::OpenApprovals, Task::List, Task::Created]),
            directory,
            is_listed: true,
            failed: None,
        }
    }

    pub(crate) fn add(&mut self, task: Task) {
        self.tasks.push_back(task);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.tasks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_listed_has_its_socket() {
        let tasks = Startup::at_start(None).tasks;
        let at = |task| tasks.iter().position(|known| *known == task).expect("it is done");
        assert!(at(Task::OpenApprovals) < at(Task::List), "{tasks:?}");
    }
}
