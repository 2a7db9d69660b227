//! Further commands in the loop: hears their helpers and answers their notified calls as the session's own.

use rustix::io::Errno;

use crate::attach::{News, Ready};
use crate::event_loop::Running;
use crate::event_loop::notified_calls::give;

impl Running<'_> {
    pub(crate) fn see_to(&mut self, which: usize, ready: Ready) -> Result<(), Errno> {
        let notification = match self.attached.turn(which, ready)? {
            Some(News::Call(notification)) => notification,
            Some(News::Executed(exec)) => return self.executed(exec),
            None => return Ok(()),
        };
        let Some(answer) = self.answer_to(&notification, Some(which))? else { return Ok(()) };
        self.attached.listener(which).map_or(Ok(()), |listener| give(answer, listener, &notification))
    }
}
