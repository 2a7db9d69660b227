//! Settings whose enforcement does not exist yet. Owns the one list of them, so that work which builds one deletes
//! its line; a setting listed here is refused, never ignored. Asked by `file`, `variables` and `layers`.

use crate::error::PolicyError;
use crate::origin::{Origin, Ruled};
use crate::setting::Setting;

const EGRESS: &str = "it arrives with egress";
const SESSIONS: &str = "it arrives with sessions that outlive a run";

/// The setting as it is written, and why it is refused.
const UNBUILT: &[(&str, &str)] = &[
    ("network.mode = \"egress\"", EGRESS),
    ("network.mode = \"host\"", EGRESS),
    ("network.allow", EGRESS),
    ("network.deny", EGRESS),
    ("COFFERDAM_ROOT", SESSIONS),
    ("COFFERDAM_TTL", SESSIONS),
];

/// Refuses `name` if it is on the list.
pub(crate) fn check_name(name: &str, origin: &Origin) -> Result<(), PolicyError> {
    match UNBUILT.iter().find(|(listed, _)| *listed == name) {
        Some((_, message)) => Err(PolicyError::Unbuilt { setting: name.to_owned(), message, origin: origin.clone() }),
        None => Ok(()),
    }
}

pub(crate) fn check(setting: &Ruled<Setting>) -> Result<(), PolicyError> {
    // Only these can be on the list with their value; rendering every setting would cost the launch path.
    match setting.value {
        Setting::Network(_) => check_name(&setting.value.to_string(), &setting.origin),
        _ => Ok(()),
    }
}
