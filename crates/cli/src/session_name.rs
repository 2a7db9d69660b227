//! A session by a part of its name. Owns when that is clear; which sessions there are is the caller's to know. Called
//! by the commands about running and recorded sessions.

use cofferdam_wire::session_id::can_mean;
use thiserror::Error;

/// Among which sessions a name is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionKind {
    Live,
    Recorded,
}

impl std::fmt::Display for SessionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SessionKind::Live => "live",
            SessionKind::Recorded => "recorded",
        })
    }
}

#[derive(Debug, Error)]
pub(crate) enum SessionNameError {
    #[error("no {kind} session is called `{name}`")]
    Unknown { kind: SessionKind, name: String },
    #[error("several sessions are called `{name}`: {sessions}", sessions = sessions.join(", "))]
    Several { name: String, sessions: Vec<String> },
}

/// The one session that is meant.
pub(crate) fn choose<'a>(names: &[&'a str], name: &str, kind: SessionKind) -> Result<&'a str, SessionNameError> {
    if name == "last" {
        return names.last().copied().ok_or(SessionNameError::Unknown { kind, name: name.to_owned() });
    }
    if let Some(whole) = names.iter().find(|id| **id == name) {
        return Ok(whole);
    }
    let meant: Vec<&str> = names.iter().copied().filter(|id| can_mean(name, id)).collect();
    match meant.as_slice() {
        [one] => Ok(one),
        [] => Err(SessionNameError::Unknown { kind, name: name.to_owned() }),
        _ => Err(SessionNameError::Several {
            name: name.to_owned(),
            sessions: meant.iter().map(|id| (*id).to_owned()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_meant_by_a_part_of_its_name_if_that_is_clear() {
        let names = ["aa1", "aa2", "b", "bb"];
        assert_eq!(choose(&names, "aa2", SessionKind::Live).ok(), Some("aa2"));
        assert_eq!(choose(&names, "b", SessionKind::Live).ok(), Some("b"));
        assert_eq!(choose(&names, "last", SessionKind::Live).ok(), Some("bb"));
        assert!(matches!(choose(&names, "aa", SessionKind::Live), Err(SessionNameError::Several { .. })));
        assert_eq!(choose(&names, "a2", SessionKind::Live).ok(), Some("aa2"));
        assert!(matches!(choose(&names, "c", SessionKind::Live), Err(SessionNameError::Unknown { .. })));
        assert!(matches!(choose(&[], "last", SessionKind::Live), Err(SessionNameError::Unknown { .. })));
    }
}
