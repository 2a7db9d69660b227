//! Words for covers that host programs took off while a session ran. Owns the sentence about one name; what happened is
//! `supervisor::covers`'s. Called by `run` at the end of a session.

use cofferdam_plan::Covered;
use cofferdam_supervisor::{Fallen, Grounds, May};

pub(crate) fn line(fallen: &Fallen) -> String {
    let what = match fallen.covered {
        Covered::Hidden => "hidden",
        Covered::Masked => "masked",
        Covered::Protected => "protected",
        Covered::Held => "held",
        Covered::Socket => "a covered socket",
        Covered::Parent => "the directory of a covered name",
    };
    let may = match fallen.may {
        May::HaveBeenRead => "may have been read",
        May::HaveBeenChanged => "may have been changed",
        May::HaveBeenReadOrChanged => "may have been read or changed",
    };
    let times = match fallen.times {
        1 => format!("for {:.1} ms", fallen.worst_millis),
        times => format!("{times} times, for {:.1} ms at most", fallen.worst_millis),
    };
    let ended = fallen.ended.map_or("", |grounds| match grounds {
        Grounds::Held => "; a process of the session has it open: ended",
        Grounds::Linked => "; it has a second name: ended",
        Grounds::Moved => "; it was moved to another name: ended",
        Grounds::Changed => "; it was written to: ended",
        Grounds::Strict => "; ended, as the policy says (keeper = \"strict\")",
        Grounds::Uncovered => "; it could not be covered again: ended",
    });
    format!(
        "{} ({what}) was changed by a host program and lost its cover {times}: it {may}{ended}",
        fallen.path.display()
    )
}
