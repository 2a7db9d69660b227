//! A session by its id, by the end of it or by the beginning of the group that is shown. Owns when that is clear; which sessions there
//! are is the caller's to know. Called by the commands about running and recorded sessions.

use cofferdam_wire::session::short;
use thiserror::Error;

/// Among which sessions a name is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionKind {
    Live,
    Recorded,
    /// Its changes wait for a person.
    Waiting,
}

impl std::fmt::Display for SessionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SessionKind::Live => "live",
            SessionKind::Recorded => "recorded",
            SessionKind::Waiting => "waiting",
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

/// With fewer the operator hits another session by chance, once the one that was meant has ended.
const FEWEST_LETTERS: usize = 6;

/// Whether an operator who says `name` can mean this session. The beginning of an id is the time: all sessions of one minute
/// begin alike, so only its last group counts, which is what is shown.
pub(crate) fn can_mean(name: &str, id: &str) -> bool {
    id == name || name.len() >= FEWEST_LETTERS && (id.ends_with(name) || short(id).starts_with(name))
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
    fn a_session_is_meant_by_letters_of_the_group_that_is_shown_if_that_is_clear() {
        let names = ["local-01-aa11ff", "local-02-aa22ff", "local-02-bb22ff77", "lo"];
        let choose = |name: &str| choose(&names, name, SessionKind::Live);
        for (name, meant) in [
            ("local-01-aa11ff", "local-01-aa11ff"),
            ("aa22ff", "local-02-aa22ff"),
            ("-bb22ff77", "local-02-bb22ff77"),
            ("bb22ff", "local-02-bb22ff77"),
            ("22ff77", "local-02-bb22ff77"),
            ("lo", "lo"),
            ("last", "lo"),
        ] {
            assert_eq!(choose(name).ok(), Some(meant), "{name}");
        }
        for unknown in ["", "f", "a11ff", "bb22f", "b22ff7", "local-01", "local-01-aa11f", "locale"] {
            assert!(matches!(choose(unknown), Err(SessionNameError::Unknown { .. })), "{unknown}");
        }
        let alike = ["local-01-aa22ff", "local-02-aa22ff"];
        let several = super::choose(&alike, "aa22ff", SessionKind::Live);
        assert!(matches!(several, Err(SessionNameError::Several { .. })));
        assert!(matches!(super::choose(&[], "last", SessionKind::Live), Err(SessionNameError::Unknown { .. })));
    }
}
