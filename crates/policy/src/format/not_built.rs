//! Settings whose enforcement does not exist yet. Owns the one list of them, so that work which builds one deletes
//! its line; a setting listed here is refused, never ignored. Asked by `by_hand`.

use crate::types::error::PolicyError;
use crate::types::origin::Origin;

const SESSIONS: &str = "it arrives with sessions that outlive a run";

/// The setting as it is written, and why it is refused.
const UNBUILT: &[(&str, &str)] = &[("COFFERDAM_ROOT", SESSIONS), ("COFFERDAM_TTL", SESSIONS)];

/// Refuses `name` if it is on the list.
pub(crate) fn check_name(name: &str, origin: &Origin) -> Result<(), PolicyError> {
    match UNBUILT.iter().find(|(listed, _)| *listed == name) {
        Some((_, message)) => Err(PolicyError::Unbuilt { setting: name.to_owned(), message, origin: origin.clone() }),
        None => Ok(()),
    }
}
