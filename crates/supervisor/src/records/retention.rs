//! Which records of the audit log have to stay: those since the beginning of the oldest session that runs, or whose changes wait for
//! the operator. Owns that and carrying out the setting `audit.keep`; what is old is `audit`'s to find. Called by the supervisor's
//! loop in a moment with nothing else to do, and by `sandbox audit prune`.

use std::path::Path;
use std::time::Duration;

use cofferdam_audit::{Stamp, prune};
use cofferdam_host::state::{kept_in, sessions_in};
use cofferdam_wire::session::LOCAL_CELL;
use cofferdam_workspace::transaction;
use rustix::io::Errno;
use uuid::Uuid;

use crate::store::registry::live_sessions;

/// A session whose records have to stay, and since when it has some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spared {
    pub since: Stamp,
    pub session: String,
    /// Otherwise its changes wait.
    pub runs: bool,
}

/// The oldest of them: the log is cut at its beginning alone.
pub fn oldest_spared(state: &Path) -> Result<Option<Spared>, Errno> {
    let waiting = [kept_in(state), sessions_in(state)].into_iter().flat_map(|directory| transaction::list(&directory));
    let waiting = waiting.filter(|(_, _, at)| at.waits()).map(|(_, manifest, _)| (manifest.session, false));
    let running = live_sessions(state)?.into_iter().map(|session| (session.id, true));
    let spared = running.chain(waiting).map(|(session, runs)| Spared { since: beginning(&session), session, runs });
    Ok(spared.min_by_key(|spared| spared.since))
}

/// Its id has the time in it. Where it has none, nothing is old.
fn beginning(session: &str) -> Stamp {
    let id = session.strip_prefix(LOCAL_CELL).and_then(|id| Uuid::parse_str(id.strip_prefix('-')?).ok());
    let time = id.and_then(|id| id.get_timestamp()).map(|time| time.to_unix());
    time.map_or(Stamp(0), |(seconds, nanoseconds)| Stamp(seconds * 1_000_000 + u64::from(nanoseconds) / 1000))
}

/// What goes wrong is left for the next session: nothing of this one depends on it.
pub(crate) fn retain(state: &Path, time: Duration) {
    let Ok(spared) = oldest_spared(state) else { return };
    prune::retain(state, time, spared.map(|spared| spared.since)).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_begins_when_its_id_was_made() {
        let before = Stamp::now();
        let begun = beginning(&crate::store::session_dir::new_id());
        let after = Stamp::now();
        assert!(before.0 / 1000 <= begun.0 / 1000 && begun <= after, "{before} {begun} {after}");
        for other in ["", "local", "local-", "elsewhere-0198", "local-6b1f0e92-d7c4-4c3e-8a51-6b1f0e92d7c4"] {
            assert_eq!(beginning(other), Stamp(0), "{other}");
        }
    }
}
