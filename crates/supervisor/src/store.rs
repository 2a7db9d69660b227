//! What a session has on disk: its directory and the lock on it, what other processes read of it, held names, overlays; and
//! removing all of that, also after sessions whose supervisor was killed. Nothing here outlives its session unasked.

pub(crate) mod held_names;
pub(crate) mod lock;
pub(crate) mod overlay_changes;
pub(crate) mod registry;
pub(crate) mod session_dir;
pub(crate) mod sweep;
