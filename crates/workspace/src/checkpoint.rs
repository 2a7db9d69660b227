//! Checkpoints of a transaction: what its upper layers held at moments of the session, so that each step of it can be taken back.
//! Owns the copies, the records and what one differs in from another; when one is taken and that no process writes meanwhile is
//! `supervisor`'s, putting one back is `restore`'s, and what is left of one that was killed meanwhile `interrupted`'s.
//!
//! ```text
//!   checkpoints/N/record.json   what changed since the one before, who made it, and a label
//!   checkpoints/putting-back.json   one is being put back, or was when the process was killed
//!   checkpoints/N/K             content of file K of it; later ones refer to it for as long as the file stays the same
//! ```
//!
//! Number 0 is the beginning, when the layers were empty. A copy is made only of what changed: of a file whose inode and time of the
//! last change are those of the checkpoint before, the copy of then counts.

mod before_commit;
mod interrupted;
mod layer;
pub(crate) mod note;
mod record;
mod restore;
mod squash;
mod taking;

pub use self::before_commit::before_commit;
pub use self::interrupted::take_back;
pub use self::note::Interrupted;
pub use self::record::{By, Record};
pub use self::restore::{Difference, Restored, Would};
pub use self::taking::{Checkpoints, Pending};
