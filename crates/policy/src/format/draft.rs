//! A policy file that is yet to be written: settings and remarks, as TOML in the order of the format. Owns the notation
//! of every setting in a file; where the settings come from is the caller's. Used by `export` and `learn`, and by the
//! edge for imports.

use std::fmt::Write as _;

use crate::language::case_fold::is_unseen;
use crate::language::path_entry::path_entry;
use crate::types::files::Access;
use crate::types::setting::Setting;

/// What a file will say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Draft {
    /// Comments at the top.
    pub title: Vec<String>,
    pub settings: Vec<Setting>,
    /// Comments at the end: what could not be said as a setting.
    pub remarks: Vec<String>,
}

/// Tables in the order of the format; keys without a table come first.
const TABLES: &[&str] =
    &["", "files", "unknown", "process", "network", "limits", "syscalls", "response", "audit", "env", "env.set"];

/// One key of a table with what it holds.
struct Key {
    table: &'static str,
    name: String,
    value: Value,
}

enum Value {
    /// The later one wins.
    One(String),
    /// Entries of a list, which add up.
    Many(Vec<String>),
}

impl Draft {
    /// The file. Reading it gives these settings, in the order of the format.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        comments(&mut out, &self.title);
        let keys = gathered(&self.settings);
        for table in TABLES {
            let mut keys = keys.iter().filter(|key| key.table == *table).peekable();
            if keys.peek().is_none() {
                continue;
            }
            if !out.is_empty() {
                out.push('\n');
            }
            if !table.is_empty() {
                writeln!(out, "[{table}]").unwrap_or_default();
            }
            for key in keys {
                write_key(&mut out, key);
            }
        }
        if !self.remarks.is_empty() && !out.is_empty() {
            out.push('\n');
        }
        comments(&mut out, &self.remarks);
        out
    }
}

fn comments(out: &mut String, lines: &[String]) {
    for line in lines.iter().flat_map(|text| text.lines()) {
        // A comment holds no control character but the tab, and nothing that hides.
        let plain: String = line.chars().map(|c| if is_unseen(c) && c != '\t' { '\u{fffd}' } else { c }).collect();
        writeln!(out, "# {plain}").unwrap_or_default();
    }
}

fn write_key(out: &mut String, key: &Key) {
    match &key.value {
        Value::One(value) => writeln!(out, "{} = {value}", key.name).unwrap_or_default(),
        Value::Many(entries) if key.table == "files" || entries.iter().any(|entry| entry.starts_with('{')) => {
            writeln!(out, "{} = [", key.name).unwrap_or_default();
            for entry in entries {
                writeln!(out, "  {entry},").unwrap_or_default();
            }
            out.push_str("]\n");
        }
        Value::Many(entries) => writeln!(out, "{} = [{}]", key.name, entries.join(", ")).unwrap_or_default(),
    }
}

fn gathered(settings: &[Setting]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for key in settings.iter().map(key_of) {
        match keys.iter_mut().find(|other| other.table == key.table && other.name == key.name) {
            None => keys.push(key),
            Some(known) => match (&mut known.value, key.value) {
                (Value::Many(entries), Value::Many(more)) => {
                    for entry in more {
                        if !entries.contains(&entry) {
                            entries.push(entry);
                        }
                    }
                }
                (value, later) => *value = later,
            },
        }
    }
    keys
}

fn key_of(setting: &Setting) -> Key {
    let one = |table, name: &str, value: String| Key { table, name: name.to_owned(), value: Value::One(value) };
    let many = |table, name: &str, entry: Vec<String>| Key { table, name: name.to_owned(), value: Value::Many(entry) };
    let texts = |names: &[String]| names.iter().map(|name| quoted(name)).collect();
    match setting {
        Setting::Scalar(scalar) => one(scalar.table(), scalar.key(), scalar.value(quoted)),
        Setting::Preset(name) => many("", "preset", vec![quoted(name)]),
        Setting::File { access, path, optional, reason } => {
            many("files", list_of(*access), vec![path_entry(path.as_str(), *optional, reason, quoted)])
        }
        Setting::Hook(argv) => one("unknown", "hook", list(argv)),
        Setting::AlertHook(argv) => one("response", "hook", list(argv)),
        Setting::Executables(names) => many("process", "executables", texts(names)),
        Setting::NetworkPart(part) => many("network", part.key(), vec![part.value(quoted)]),
        Setting::SyscallAllow(call) => many("syscalls", "allow", vec![quoted(call)]),
        Setting::SyscallDeny(call) => many("syscalls", "deny", vec![quoted(call)]),
        Setting::EnvPass(name) => many("env", "pass", vec![quoted(name)]),
        Setting::EnvBlock(name) => many("env", "block", vec![quoted(name)]),
        Setting::EnvSet(name, value) => one("env.set", &key(name), quoted(value)),
    }
}

fn list_of(access: Access) -> &'static str {
    match access {
        // No file can ask for a mask: what is written down instead is stricter.
        Access::Deny | Access::Mask => "deny",
        Access::Protect => "protect",
        Access::Read => "read",
        Access::Overlay => "overlay",
        Access::Write => "write",
    }
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

/// A key as it is, where TOML takes it bare.
fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { name.to_owned() } else { quoted(name) }
}

/// A text as a basic string of TOML.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_unseen(c) && u32::from(c) > 0xffff => write!(out, "\\U{:08X}", u32::from(c)).unwrap_or_default(),
            c if is_unseen(c) => write!(out, "\\u{:04X}", u32::from(c)).unwrap_or_default(),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
