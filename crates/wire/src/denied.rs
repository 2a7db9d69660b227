//! Paths that were not given, with their reason as a value. Told by `supervisor` at the end of a session; `cli` has the words.

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::question::{Cause, Op};

/// A path that was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub path: String,
    pub denial: Denial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// A question ended so, or none was asked.
    Unapproved { op: Op, cause: Cause },
    /// A call that changes names, by its own: nothing waits for an answer about it.
    CannotBeAsked { call: &'static str },
    /// A rule hides it, from there.
    Hidden { origin: String },
}

impl Denial {
    /// What was tried, in one word.
    pub fn op(&self) -> &'static str {
        match self {
            Denial::Unapproved { op, .. } => op.word(),
            Denial::CannotBeAsked { call } => call,
            Denial::Hidden { .. } => "find",
        }
    }
}

impl Serialize for Denied {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let why = match &self.denial {
            Denial::Unapproved { cause, .. } => cause.word(),
            Denial::CannotBeAsked { .. } => "cannot be asked",
            Denial::Hidden { origin } => origin,
        };
        let mut object = serializer.serialize_struct("Denied", 3)?;
        object.serialize_field("op", self.denial.op())?;
        object.serialize_field("path", &self.path)?;
        object.serialize_field("why", why)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_reads_as_three_words() {
        let denials = [
            (Denial::Unapproved { op: Op::Read, cause: Cause::OnUnknown }, "read", "on-unknown"),
            (Denial::CannotBeAsked { call: "mkdir" }, "mkdir", "cannot be asked"),
            (Denial::Hidden { origin: "built-in: secrets".to_owned() }, "find", "built-in: secrets"),
        ];
        for (denial, op, why) in denials {
            let denied = Denied { path: "/p".to_owned(), denial };
            let json = serde_json::to_value(&denied).expect("plain text");
            assert_eq!(json, serde_json::json!({ "op": op, "path": "/p", "why": why }));
        }
    }
}
