//! What is written down about a session: its directory, its socket, its first records. Owns their order and that they are
//! done while nobody waits: the child is answered first, for every name of its root that it asks for, and what the command
//! causes is written down after them. Called by the supervisor's loop.

use std::collections::VecDeque;

use rustix::io::Errno;

use crate::events::Log;
use crate::message::best_effort;
use crate::roster::Session;
use crate::session::SessionDir;
use crate::supervisor::Running;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chore {
    /// The session's directory, with what others are told of it.
    List,
    /// Somebody to ask, where there can be questions.
    OpenFaces,
    Created,
    /// The walls stand.
    Entered,
    Started,
}

/// What is still to be done, in this order.
#[derive(Debug)]
pub(crate) struct Paperwork {
    chores: VecDeque<Chore>,
    /// Nobody can be asked.
    failed: Option<Errno>,
}

impl Paperwork {
    pub(crate) fn at_start() -> Self {
        Paperwork { chores: VecDeque::from([Chore::List, Chore::OpenFaces, Chore::Created]), failed: None }
    }

    pub(crate) fn add(&mut self, chore: Chore) {
        self.chores.push_back(chore);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.chores.is_empty()
    }
}

impl<'a> Running<'a> {
    pub(crate) fn do_one_chore(&mut self) -> Result<(), Errno> {
        if let Some(chore) = self.paperwork.chores.pop_front() {
            self.do_chore(chore);
        }
        self.paperwork.failed.map_or(Ok(()), Err)
    }

    pub(crate) fn do_all_chores(&mut self) -> Result<(), Errno> {
        while !self.paperwork.is_done() {
            self.do_one_chore()?;
        }
        Ok(())
    }

    /// The log, with everything in it that comes before what is written now.
    pub(crate) fn log(&mut self) -> &mut Log<'a> {
        while let Some(chore) = self.paperwork.chores.pop_front() {
            self.do_chore(chore);
        }
        &mut self.log
    }

    fn do_chore(&mut self, chore: Chore) {
        match chore {
            Chore::List => self.list(),
            Chore::OpenFaces => {
                if let (Some(gate), Some(directory)) = (&self.plan.gate, &self.directory) {
                    let path = directory.path.clone();
                    self.paperwork.failed = self.open_faces(&path, gate.hook.as_deref()).err();
                } else if let Some(path) = self.directory.as_ref().map(|directory| directory.path.clone()) {
                    // There is nothing to ask, but somebody may want in.
                    best_effort(self.open_desk(&path, None), "then nobody can attach");
                }
            }
            Chore::Created => self.log.created(self.plan, self.options),
            Chore::Entered => self.log.entered(self.plan),
            Chore::Started => self.log.command_started(self.plan),
        }
    }

    /// A session that nobody can list runs all the same, and says so at its end.
    fn list(&mut self) {
        let Some(state) = &self.options.state else { return };
        let session = self.log.session();
        let made = self.directory.take().or_else(|| SessionDir::create(state, session, 0, &[]).ok());
        let says = Session::of(self.plan, self.options, session);
        self.is_listed = made.as_ref().is_some_and(|directory| says.write(&directory.claim).is_ok());
        self.directory = made;
    }
}
