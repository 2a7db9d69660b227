//! Values of policy files that can be written in more than one way. Owns their notations and messages;
//! knows nothing of settings or layers. Used by `tables` and `requirements`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// `"path"` or `{ path = "...", optional = true, reason = "..." }`.
#[derive(Debug)]
pub(crate) struct PathEntry {
    pub(crate) path: String,
    pub(crate) optional: bool,
    pub(crate) reason: String,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct PathTable {
    path: String,
    /// A missing path is no error.
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    reason: String,
}

/// `"host"` or `{ host = "...", methods = [...], paths = [...], reason = "..." }`.
#[derive(Debug)]
pub(crate) struct HostEntry(pub(crate) HostTable);

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct HostTable {
    pub(crate) host: String,
    /// Methods of HTTP; all where absent.
    #[serde(default)]
    pub(crate) methods: Vec<String>,
    /// Paths of HTTP: `/a/*` is one segment, `/a/**` everything below `/a/`. All where absent.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default)]
    pub(crate) reason: String,
}

/// A secret for one host. Exactly one of `env`, `file` and `command` says where it comes from.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialTable {
    /// The host's own name, without wildcard.
    pub(crate) host: String,
    /// 443 where absent.
    pub(crate) port: Option<u16>,
    /// The variable that holds a placeholder inside.
    pub(crate) variable: String,
    /// The header in which the placeholder is replaced; `authorization` where absent.
    pub(crate) header: Option<String>,
    /// A variable of yours that holds the secret.
    pub(crate) env: Option<String>,
    /// A file whose first line is the secret.
    pub(crate) file: Option<String>,
    /// A program that prints the secret, and its arguments.
    pub(crate) command: Option<Vec<String>>,
    /// Beside `env`: no error where that variable is not set.
    #[serde(default)]
    pub(crate) optional: bool,
}

/// One text or a list of texts.
#[derive(Debug, Default)]
pub(crate) struct Texts(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for PathEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = PathEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or a table with `path`")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<PathEntry, E> {
                Ok(PathEntry { path: path.to_owned(), optional: false, reason: String::new() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PathEntry, A::Error> {
                let PathTable { path, optional, reason } = PathTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PathEntry { path, optional, reason })
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

impl<'de> Deserialize<'de> for HostEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = HostEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host, or a table with `host`")
            }

            fn visit_str<E: Error>(self, host: &str) -> Result<HostEntry, E> {
                let (methods, paths) = (Vec::new(), Vec::new());
                Ok(HostEntry(HostTable { host: host.to_owned(), methods, paths, reason: String::new() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HostEntry, A::Error> {
                HostTable::deserialize(MapAccessDeserializer::new(map)).map(HostEntry)
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a list of names")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Texts, E> {
                Ok(Texts(vec![name.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Texts, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = names.next_element()? {
                    all.push(name);
                }
                Ok(Texts(all))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
    use std::borrow::Cow;

    impl JsonSchema for super::PathEntry {
        fn schema_name() -> Cow<'static, str> {
            "PathEntry".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let table = generator.subschema_for::<super::PathTable>();
            json_schema!({ "anyOf": [{ "type": "string" }, table] })
        }
    }

    impl JsonSchema for super::HostEntry {
        fn schema_name() -> Cow<'static, str> {
            "HostEntry".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let table = generator.subschema_for::<super::HostTable>();
            json_schema!({ "anyOf": [{ "type": "string" }, table] })
        }
    }

    impl JsonSchema for super::Texts {
        fn schema_name() -> Cow<'static, str> {
            "Texts".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
        }
    }
}
