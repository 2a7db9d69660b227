//! What is asked of a session, as a document that can be handed to its supervisor (docs/decisions/0042): where, with which flags and
//! variables, which command first, how long it lives. Says what was asked, never what was decided of it: the process that
//! enforces a policy resolves it. Read by `sandbox supervise`, made by its clients and by `sandbox run` for itself.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::exec::ExecRequest;

pub const ORDER_VERSION: u32 = 1;
/// Longest order that is read.
pub const MOST_ORDER_BYTES: usize = 4 << 20;
/// What is kept of each stream of each exec, unless the order says otherwise, and the most that it can say.
pub const KEPT_BYTES: usize = 1 << 20;
pub const MOST_KEPT_BYTES: usize = 64 << 20;
/// A day.
pub const MOST_LINGER_SECONDS: u64 = 86_400;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub version: u32,
    /// Where it is given; where the process itself stands, if it is not handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// The variables of who gives it: what the policy lets through of them is the session's.
    pub environment: Vec<(String, String)>,
    /// As on the command line of `sandbox run`.
    #[serde(default)]
    pub flags: Vec<Given>,
    #[serde(default, skip_serializing_if = "Chosen::is_nothing")]
    pub chosen: Chosen,
    /// The session exists without one, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecRequest>,
    pub lifetime: Lifetime,
    /// Whether a client will answer questions; else they are denied, unless a layer of the policy says otherwise.
    #[serde(default)]
    pub can_ask: bool,
    #[serde(default = "kept_bytes")]
    pub kept_bytes: usize,
}

fn kept_bytes() -> usize {
    KEPT_BYTES
}

/// What is said by name instead of being found: the project, where the command starts, further policy files of the operator's, what
/// the session is called. Relative paths are meant from where the order is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chosen {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_in: Option<PathBuf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Chosen {
    fn is_nothing(&self) -> bool {
        *self == Chosen::default()
    }
}

/// A flag with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    pub flag: String,
    #[serde(with = "text")]
    pub value: OsString,
}

/// When a session ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Lifetime {
    /// With the first exec. What it wrote can be read so long afterwards.
    WithFirstExec { linger_seconds: u64 },
    /// When the descriptor over which the order came is closed on the other side.
    WithClient,
    /// Not before it is told to.
    UntilEnded,
}

impl Order {
    /// A document from a client, or why it is none.
    pub fn parse(document: &[u8]) -> Result<Order, String> {
        let order: Order = serde_json::from_slice(document).map_err(|error| error.to_string())?;
        if order.version != ORDER_VERSION {
            return Err(format!("version {} is not known here, but {ORDER_VERSION}", order.version));
        }
        if order.cwd.as_ref().is_none_or(|cwd| !cwd.is_absolute()) {
            return Err("`cwd` must be an absolute path".to_owned());
        }
        if order.kept_bytes > MOST_KEPT_BYTES {
            return Err(format!("`kept_bytes` is at most {MOST_KEPT_BYTES}"));
        }
        if order
            .environment
            .iter()
            .any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
        {
            return Err("`environment` has a variable without a name or with a zero byte".to_owned());
        }
        if matches!(order.lifetime, Lifetime::WithFirstExec { linger_seconds } if linger_seconds > MOST_LINGER_SECONDS)
        {
            return Err(format!("`linger_seconds` is at most {MOST_LINGER_SECONDS}"));
        }
        match (&order.exec, order.lifetime) {
            (Some(exec), _) => exec.check()?,
            (None, Lifetime::WithFirstExec { .. }) => return Err("it ends with its first exec and has none".to_owned()),
            (None, _) => {}
        }
        Ok(order)
    }

    /// The document, one line with its end; none where a value is no text.
    pub fn document(&self) -> Result<Vec<u8>, String> {
        let mut document = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        document.push(b'\n');
        Ok(document)
    }
}

mod text {
    use std::ffi::OsString;

    use serde::de::Deserialize as _;
    use serde::ser::Error as _;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &OsString, serializer: S) -> Result<S::Ok, S::Error> {
        let text =
            value.to_str().ok_or_else(|| S::Error::custom(format!("`{}` is no text", value.to_string_lossy())))?;
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OsString, D::Error> {
        String::deserialize(deserializer).map(OsString::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_read_from_a_changed_document_is_within_bounds_and_reads_the_same_again(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
        ) {
            let mut document = order().document().expect("it is text");
            for (at, byte, how) in changes {
                let at = at.index(document.len());
                // A digit, a letter or a mark of JSON keeps more documents whole than any byte does.
                let byte = match byte % 4 {
                    0 => byte,
                    1 => b'0' + byte % 10,
                    2 => b'a' + byte % 26,
                    _ => b"{}[],:\"\\/ "[usize::from(byte) % 10],
                };
                match how {
                    0 => document[at] = byte,
                    1 => document.insert(at, byte),
                    _ => drop(document.remove(at)),
                }
            }
            if let Ok(read) = Order::parse(&document) {
                prop_assert!(read.cwd.as_ref().is_some_and(|cwd| cwd.is_absolute()));
                prop_assert!(read.kept_bytes <= MOST_KEPT_BYTES);
                prop_assert_eq!(Order::parse(&read.document().expect("it was text")), Ok(read));
            }
        }

        #[test]
        fn bytes_that_are_no_document_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Order::parse(&bytes).is_err());
        }
    }

    fn order() -> Order {
        Order {
            version: ORDER_VERSION,
            cwd: Some("/work".into()),
            environment: vec![("HOME".to_owned(), "/home/dev".to_owned())],
            flags: vec![Given { flag: "--ro".to_owned(), value: "/data".into() }],
            chosen: Chosen { project: Some("/work".into()), name: Some("nightly".to_owned()), ..Chosen::default() },
            exec: Some(ExecRequest { argv: vec!["make".to_owned()], ..ExecRequest::default() }),
            lifetime: Lifetime::WithFirstExec { linger_seconds: 60 },
            can_ask: false,
            kept_bytes: 4096,
        }
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let document = order().document().expect("it is text");
        assert_eq!(Order::parse(&document), Ok(order()));
    }

    #[test]
    fn an_order_that_cannot_be_followed_is_refused() {
        let text = String::from_utf8(order().document().expect("it is text")).expect("JSON is text");
        for (from, to) in [
            (r#""version":1"#, r#""version":2"#),
            (r#""cwd":"/work""#, r#""cwd":"work""#),
            (r#""cwd":"/work","#, ""),
            (r#""kept_bytes":4096"#, r#""kept_bytes":9999999999"#),
            (r#""argv":["make"]"#, r#""argv":[]"#),
            (r#""argv":["make"]"#, r#""argv":["ma\u0000ke"]"#),
            (r#"["HOME","/home/dev"]"#, r#"["","x"]"#),
            (r#"["HOME","/home/dev"]"#, r#"["A=B","x"]"#),
            (r#""can_ask":false"#, r#""can_ask":false,"root":true"#),
            (r#""linger_seconds":60"#, r#""linger_seconds":-1"#),
            (r#""linger_seconds":60"#, r#""linger_seconds":86401"#),
            (r#""argv":["make"]"#, r#""argv":["make"],"cwd":"sub""#),
            (r#""exec":{"argv":["make"],"has_input":false},"#, ""),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from} is in it");
            assert!(Order::parse(changed.as_bytes()).is_err(), "{changed}");
        }
        assert!(Order::parse(&text.as_bytes()[..text.len() - 2]).is_err());
    }

    #[test]
    fn a_value_that_is_no_text_cannot_be_handed_over() {
        use std::os::unix::ffi::OsStringExt as _;
        let flags = vec![Given { flag: "--ro".to_owned(), value: OsString::from_vec(vec![b'/', 0xff]) }];
        assert!(Order { flags, ..order() }.document().is_err());
    }
}
