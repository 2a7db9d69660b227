//! News of the gate in the loop: recorded, asked of the clients, told to them when settled.

use cofferdam_gate::{Gate, News};
use rustix::io::Errno;

use crate::event_loop::Running;

impl Running<'_> {
    pub(super) fn pass_news(&mut self) -> Result<(), Errno> {
        self.keep_trees()?;
        // An answer makes news of its own.
        loop {
            let news = self.gate.as_mut().map(Gate::news).unwrap_or_default();
            if news.is_empty() {
                return Ok(());
            }
            for news in news {
                self.summary.news(&news);
                self.log().news(&news);
                match &news {
                    News::Asked(question) => self.ask(question)?,
                    News::Settled(settled) => self.settled(settled)?,
                    News::Refused { .. } | News::Hidden { .. } | News::ThrownAway(_) | News::OverBudget => {}
                }
            }
        }
    }
}
