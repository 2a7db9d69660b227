//! The first records of a session, in the loop: done one by one in idle moments, or all before what is written after them.

use cofferdam_kernel::best_effort;
use rustix::io::Errno;

use crate::event_loop::Running;
use crate::records::log::Log;
use crate::records::startup::Task;
use crate::store::registry;
use crate::store::session_dir::SessionDir;

impl<'a> Running<'a> {
    pub(crate) fn do_startup_task(&mut self) -> Result<(), Errno> {
        if let Some(task) = self.startup.tasks.pop_front() {
            self.do_task(task);
        }
        self.startup.failed.map_or(Ok(()), Err)
    }

    pub(crate) fn finish_startup(&mut self) -> Result<(), Errno> {
        while !self.startup.is_done() {
            self.do_startup_task()?;
        }
        Ok(())
    }

    /// The log, with everything in it that comes before what is written now.
    pub(crate) fn log(&mut self) -> &mut Log<'a> {
        while let Some(task) = self.startup.tasks.pop_front() {
            self.do_task(task);
        }
        &mut self.log
    }

    fn do_task(&mut self, task: Task) {
        match task {
            Task::Directory => self.make_directory(),
            Task::List => self.list(),
            Task::OpenApprovals => {
                if let (Some(gate), Some(directory)) = (&self.plan.gate, &self.startup.directory) {
                    let path = directory.path.clone();
                    self.startup.failed = self.open_approvals(&path, gate.hook.as_deref()).err();
                } else if let Some(path) = self.startup.directory.as_ref().map(|directory| directory.path.clone()) {
                    // There is nothing to ask, but a client may want to attach.
                    best_effort(self.open_control_socket(&path, None), "then no client can attach");
                }
            }
            Task::Created => self.log.created(self.plan, self.options),
            Task::Entered => self.log.entered(self.plan),
            Task::Started => self.log.command_started(self.plan),
        }
    }

    fn make_directory(&mut self) {
        let Some(state) = &self.options.state else {
            let told = self.gate.as_mut().map_or(Ok(()), |gate| gate.keep_caches_in(None));
            self.startup.failed = self.startup.failed.or(told.err());
            return;
        };
        let session = self.log.session();
        self.startup.directory =
            self.startup.directory.take().or_else(|| SessionDir::create(state, session, 0, &[]).ok());
        let path = self.startup.directory.as_ref().map(|directory| directory.path.clone());
        if let Some(gate) = &mut self.gate {
            self.startup.failed = self.startup.failed.or(gate.keep_caches_in(path.as_deref()).err());
        }
    }

    /// A session that cannot be listed runs all the same, and says so at its end.
    fn list(&mut self) {
        if self.options.state.is_some() {
            let list =
                |directory: &SessionDir| registry::list(self.plan, self.options, self.log.session(), &directory.claim);
            self.startup.is_listed = self.startup.directory.as_ref().is_some_and(|directory| list(directory).is_ok());
        }
    }
}
