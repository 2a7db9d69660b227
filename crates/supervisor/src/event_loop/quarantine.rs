//! Further commands and the quarantine, in the loop: each is looked for in the list before it is started, as the session's own was.
//! Owns how the session sees the file that one comes from; the list is `host`'s.

use std::os::fd::AsFd as _;
use std::rc::Rc;

use cofferdam_host::quarantine;
use cofferdam_host::quarantine::subject::{Starting, Subject};
use cofferdam_launcher::join::JoinRequest;

use crate::event_loop::Running;

impl Running<'_> {
    /// The file that a further command comes from, unless that may not run.
    pub(super) fn checked_subject(&self, request: &JoinRequest) -> Result<Option<Rc<Subject>>, String> {
        let command = &self.plan.command;
        let own = request.environment.iter().find(|(name, _)| name == "PATH");
        // In a transaction the session may have written it itself.
        let views = self.checkpoints.as_ref().map_or(&self.views, |all| &all.views);
        let overlays = self.plan.kept_overlays();
        let views: Vec<_> = overlays.iter().map(|one| one.target).zip(views.iter().map(|view| view.as_fd())).collect();
        let subject = Subject::of(&Starting {
            argv: &request.argv,
            cwd: request.cwd.as_deref().unwrap_or(&command.cwd),
            search: own.map_or_else(|| command.search(), |(_, value)| value),
            views: &views,
        });
        if let Some(state) = &self.options.state {
            quarantine::check(state, subject.as_ref()).map_err(|error| error.to_string())?;
        }
        Ok(subject.map(Rc::new))
    }
}
