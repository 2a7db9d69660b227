//! Covers in the loop: those of trees that answers give, and what the keeper found.

use std::os::fd::AsFd as _;

use cofferdam_gate::{Gate, Trees};
use cofferdam_launcher::report;
use cofferdam_wire::End;
use rustix::io::Errno;

use crate::covers::Surroundings;
use crate::event_loop::Running;

/// Names in one sentence.
const MOST_NAMED: usize = 3;

impl Running<'_> {
    /// Trees that answers gave for writing, or took back.
    pub(crate) fn keep_trees(&mut self) -> Result<(), Errno> {
        let trees = self.gate.as_mut().map(Gate::trees).unwrap_or_default();
        if trees.is_empty() {
            return Ok(());
        }
        for change in trees {
            let Some(keeper) = &mut self.keeper else { return Ok(()) };
            let kept = match change {
                Trees::Given(given) => keeper.adopt(given),
                Trees::Taken(tree) => {
                    keeper.names.leave(&tree);
                    Ok(())
                }
            };
            // A cover that cannot be watched would fall unnoticed.
            if let Err(errno) = kept {
                self.log().warned(&format!("covers of a granted tree cannot be watched ({errno}): ended"));
                return self.end(End::CoverFell);
            }
        }
        // What fell before it was watched.
        self.keep_covers()
    }

    /// The last look, once no process is inside: before the names are let go, and while the mounts are held.
    pub(crate) fn tell_last_falls(&mut self) {
        // Where a fall ended it, that is told.
        let can_look = self.attached.namespaces.is_some() && self.ending.reason != Some(End::CoverFell);
        let Some(keeper) = self.keeper.as_mut().filter(|_| can_look) else { return };
        let (falls, saw_all) = keeper.last_falls();
        for fall in &falls {
            keeper.remember(fall);
        }
        let made = keeper.made().take(MOST_NAMED).map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let count = keeper.made().count();
        for fall in &falls {
            self.log().fell(fall);
        }
        if count > 0 {
            let more = if count > MOST_NAMED { format!(" and {} more", count - MOST_NAMED) } else { String::new() };
            self.warn(format!(
                "{made}{more}: made by the session, hidden by the policy: covered, and no part of its changes"
            ));
        }
        if !saw_all {
            let text = "covered names in a directory that the session closed could not be looked at when it ended: what a host \
                        program put there meanwhile may have been read or changed";
            self.warn(text.to_owned());
        }
    }

    /// Something happened in a directory with covered names.
    pub(crate) fn keep_covers(&mut self) -> Result<(), Errno> {
        if self.is_putting_back() {
            // It comes after that: nothing inside runs meanwhile.
            return Ok(());
        }
        // What the set-up said came before.
        self.take_reports()?;
        let Some(mut keeper) = self.keeper.take() else { return Ok(()) };
        let Some(mounts) = self.attached.namespaces.as_ref().and_then(|all| all.get(report::MOUNTS)) else {
            self.keeper = Some(keeper);
            return Ok(());
        };
        let mut ends = Surroundings {
            first: self.first.as_fd(),
            mounts: mounts.as_fd(),
            cgroup: self.first.cgroup.as_ref(),
            has_question: self.gate.as_ref().is_some_and(|gate| gate.open_questions().next().is_some()),
            holds: &mut self.holds,
            holds_of_plan: &self.plan.holds,
        };
        let mut found = keeper.turn(&mut ends);
        if let Some(grounds) = found.grounds {
            self.end(End::CoverFell)?;
            found.falls.iter_mut().for_each(|fall| fall.ended = Some(grounds));
        }
        for fall in &found.falls {
            keeper.remember(fall);
            self.log().fell(fall);
        }
        if let Some((first, count)) = keeper.take_unwatched() {
            self.warn(format!(
                "{count} directories of the project are not watched, {} the first: names in them that the policy hides and that are \
                 made on the host while the session runs can be read",
                first.display()
            ));
        }
        self.keeper = Some(keeper);
        Ok(())
    }
}
