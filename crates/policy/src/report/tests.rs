//! That every row of the table of settings is in all that is made of a policy. A new row is covered by being there; a new list
//! needs a sample.

use std::borrow::Cow;

use crate::format::file::parse;
use crate::language::cpu_set::CpuSet;
use crate::language::path::Places;
use crate::language::quantity::{Cpus, Quantum, Retention, Size, Time};
use crate::report::diff::differences;
use crate::report::explain::explain;
use crate::report::export::export;
use crate::resolve::layers::{Inputs, LayerInput, resolve};
use crate::types::files::Access;
use crate::types::network::{AgentUse, NetworkMode};
use crate::types::origin::Layer;
use crate::types::policy::{
    EnvMode, Isolation, KeeperMode, Metadata, Mode, OnCritical, OnUnknown, Policy, SyscallMode, Transaction,
    TransactionMode,
};
use crate::types::setting::Setting;
use crate::types::table::settings;

/// A key of a policy file, with two values as a file has them.
struct Row {
    table: &'static str,
    key: String,
    only_org: bool,
    values: [Cow<'static, str>; 2],
}

impl Row {
    fn name(&self) -> String {
        if self.table.is_empty() { self.key.clone() } else { format!("{}.{}", self.table, self.key) }
    }

    fn text(&self, value: &str) -> String {
        format!("{} = {value}", self.name())
    }

    fn layer(&self) -> Layer {
        if self.only_org { Layer::Org } else { Layer::User }
    }

    fn policy(&self, value: &str) -> Policy {
        resolved(&[(self.layer(), true, &self.text(value))])
    }
}

/// Two values of a notation.
trait Samples {
    fn samples() -> [Cow<'static, str>; 2];
}

macro_rules! samples {
    ($($type:ty: $first:literal $second:literal),+) => {
        $(impl Samples for $type {
            fn samples() -> [Cow<'static, str>; 2] {
                [$first.into(), $second.into()]
            }
        })+
    };
}

samples!(bool: "false" "true", u32: "100" "200", u64: "100" "200", Size: "\"512M\"" "\"1G\"", Time: "\"10m\"" "\"2h\"");
samples!(Retention: "\"30d\"" "\"90d\"", Quantum: "\"1s\"" "\"100ms\"", Cpus: "0.5" "2", CpuSet: "\"0-1\"" "\"0-3\"");

macro_rules! words {
    ($($type:ty),+) => {
        $(impl Samples for $type {
            /// The last two: the first of some is refused in a file.
            fn samples() -> [Cow<'static, str>; 2] {
                let word = |from_end: usize| Cow::from(format!("{:?}", Self::NAMES[Self::NAMES.len() - from_end]));
                [word(2), word(1)]
            }
        })+
    };
}

words!(
    Access,
    AgentUse,
    EnvMode,
    Isolation,
    KeeperMode,
    OnCritical,
    Metadata,
    Mode,
    NetworkMode,
    OnUnknown,
    SyscallMode,
    Transaction,
    TransactionMode
);

macro_rules! rows {
    ($($(#[$about:meta])* $struct:ident $table:literal $prefix:literal {
        $($(#[$help:meta])+ $key:ident: $notation:ty => $variant:ident($kept:ty) in $($place:ident).+
            $(, shown $shown:literal)? $(, least $least:expr => $expected:expr)* $(, only $layer:ident)?;)*
    } lists { $($(#[$list_help:meta])* $list:ident: $type:ty,)* })+) => {
        fn rows() -> Vec<Row> {
            vec![$($(Row {
                table: $table,
                key: concat!($prefix, stringify!($key)).to_owned(),
                only_org: [$(Layer::$layer)?].contains(&Layer::Org),
                values: <$notation>::samples(),
            },)*)+]
        }

        /// Table and key of what holds no single value.
        const LISTS: &[(&str, &str)] = &[$($(($table, stringify!($list)),)*)+];

        /// Struct and field of every key.
        #[cfg(feature = "schema")]
        const FIELDS: &[(&str, &str)] = &[$($((stringify!($struct), stringify!($key)),)*)+];
    };
}

settings!(rows);

/// An entry of each list, in a policy file, and a word of it.
const ENTRIES: &[(&str, &str, &str, &str)] = &[
    ("", "preset", "\"cargo\"", "cargo"),
    ("files", "read", "[\"~/a\"]", "~/a"),
    ("files", "write", "[\"~/a\"]", "~/a"),
    ("files", "overlay", "[\"~/a\"]", "~/a"),
    ("files", "deny", "[\"~/a\"]", "~/a"),
    ("files", "protect", "[\"~/a\"]", "~/a"),
    ("unknown", "hook", "[\"/bin/answer\"]", "hook"),
    ("response", "hook", "[\"/bin/alert\"]", "alert"),
    ("process", "executables", "[\"make\"]", "make"),
    ("network", "allow", "[\"x.org\"]", "x.org"),
    ("network", "deny", "[\"x.org\"]", "x.org"),
    ("network", "resolvers", "[\"127.0.0.1:5353\"]", "127.0.0.1:5353"),
    ("network", "publish", "[\"8080:80\"]", "8080:80"),
    ("network", "host_ports", "[5432]", "5432"),
    ("network", "sockets", "[\"/run/x.sock\"]", "/run/x.sock"),
    ("network", "credentials", "[{ host = \"x.org\", variable = \"A\", env = \"B\" }]", "x.org"),
    ("syscalls", "allow", "[\"personality\"]", "personality"),
    ("syscalls", "deny", "[\"socket\"]", "socket"),
    ("env", "pass", "[\"NAME\"]", "NAME"),
    ("env", "block", "[\"NAME_*\"]", "NAME_*"),
    ("env", "set", "{ NAME = \"1\" }", "NAME"),
];

/// Keys that are no settings: what the file is, and tables of their own.
const NO_SETTINGS: &[(&str, &str)] = &[
    ("", "version"),
    ("", "description"),
    ("", "files"),
    ("", "unknown"),
    ("", "process"),
    ("", "network"),
    ("", "limits"),
    ("limits", "io"),
    ("", "syscalls"),
    ("", "response"),
    ("", "audit"),
    ("", "env"),
    ("", "most"),
];

fn resolved(layers: &[(Layer, bool, &str)]) -> Policy {
    let layers: Vec<LayerInput> = layers
        .iter()
        .map(|(layer, trusted, text)| LayerInput {
            layer: *layer,
            source: "x.toml".to_owned(),
            text: (*text).to_owned(),
            trusted: *trusted,
        })
        .collect();
    let inputs = Inputs { layers: &layers, ..Inputs::default() };
    resolve(&inputs).unwrap_or_else(|error| panic!("{error}: {layers:?}"))
}

fn places() -> Places {
    Places { home: "/home/u".into(), project: Some("/home/u/p".into()), ..Places::default() }
}

#[test]
fn every_row_is_read_from_a_file_and_written_as_it_is_read() {
    for row in rows() {
        for value in &row.values {
            let parsed = parse(row.layer(), "x.toml", &row.text(value)).expect("a value of the row");
            let [setting] = &parsed.settings[..] else { panic!("{}: {parsed:?}", row.name()) };
            assert!(matches!(&setting.value, Setting::Scalar(scalar) if scalar.name() == row.name()), "{setting:?}");
            assert_eq!(setting.value.to_string(), row.text(value));
            assert_eq!(setting.origin.line, Some(1));
        }
    }
}

#[test]
fn every_row_is_exported_compared_and_explained() {
    for row in rows() {
        let (before, after) = (row.policy(&row.values[0]), row.policy(&row.values[1]));
        let value = row.values[1].trim_matches('"');

        let file = export(&after, &places()).to_toml();
        let line = format!("{} = {}\n", row.key, row.values[1]);
        let is_written =
            if row.only_org { file.contains("approved by the organisation") } else { file.contains(&line) };
        assert!(is_written, "{}: {file}", row.name());

        // The project's directory is compared as a path.
        let what = if row.key == "project" { ".".to_owned() } else { row.name() };
        let found = differences(&before, &after, &places());
        assert!(found.iter().any(|one| one.what == what && one.after == value), "{what}: {found:?}");
        assert_eq!(differences(&after, &after, &places()), []);

        let lines = explain(&after, false);
        let origin = format!("{}: x.toml:1", row.layer());
        let says = |line: &&String| line.ends_with(&origin) && (row.only_org || line.contains(value));
        assert!(lines.iter().any(|line| says(&line)), "{}: {lines:#?}", row.name());
    }
}

#[test]
fn an_unapproved_file_widens_no_row() {
    for row in rows().into_iter().filter(|row| !row.only_org) {
        for (user, project) in [(&row.values[0], &row.values[1]), (&row.values[1], &row.values[0])] {
            let (user, project) = (row.text(user), row.text(project));
            let before = resolved(&[(Layer::User, true, &user)]);
            let policy = resolved(&[(Layer::User, true, &user), (Layer::Project, false, &project)]);
            let parsed = parse(Layer::Project, "x.toml", &project).expect("a value of the row");
            let Setting::Scalar(asked) = &parsed.settings[0].value else { panic!("{project}") };
            let (was, is) = (before.same(asked).expect("set"), policy.same(asked).expect("set"));
            assert!(is.value.is_within(&was.value), "{user}, then {project}: {is:?}");
            // Where it was not taken, it is shown.
            assert_eq!(is.value != *asked, policy.held_back.iter().any(|held| held.rule == project), "{project}");
        }
    }
}

#[test]
fn every_list_is_exported_compared_and_explained() {
    for list in LISTS.iter().filter(|list| !NO_SETTINGS.contains(list)) {
        let is_of = |entry: &&(&str, &str, &str, &str)| (entry.0, entry.1) == *list;
        let Some((table, key, entry, word)) = ENTRIES.iter().find(is_of) else { panic!("no sample of {list:?}") };
        let text = if table.is_empty() { format!("{key} = {entry}") } else { format!("{table}.{key} = {entry}") };
        let (before, after) = (resolved(&[]), resolved(&[(Layer::User, true, &text)]));
        let file = export(&after, &places()).to_toml();
        assert!(file.contains(word), "{text}: {file}");
        assert!(!differences(&before, &after, &places()).is_empty(), "{text}");
        let lines = explain(&after, false);
        assert!(lines.iter().any(|line| line.contains(word) && line.contains("x.toml:1")), "{text}: {lines:#?}");
    }
}

#[cfg(feature = "schema")]
#[test]
fn every_row_has_its_help_in_the_schema() {
    let schema = schemars::schema_for!(crate::format::tables::PolicyFile).to_value();
    for (table, key) in FIELDS {
        let at = if *table == "PolicyFile" { String::new() } else { format!("/$defs/{table}") };
        let help = schema.pointer(&format!("{at}/properties/{key}/description"));
        assert!(help.and_then(|help| help.as_str()).is_some_and(|help| help.len() > 5), "{table} {key}: {help:?}");
    }
}
