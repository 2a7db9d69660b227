//! Turns `profiles/indicators.toml` into static tables, so that a session parses nothing. A call that is named twice, or a
//! field that is missing, fails the build; that the filter reports what is CRITICAL is held by a test of `indicator`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    indicator: Vec<Entry>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Of what is no call.
    name: Option<String>,
    #[serde(default)]
    calls: Vec<String>,
    source: Source,
    r#type: Wall,
    level: Level,
    description: String,
    reason: String,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    Filter,
    Gate,
    Kernel,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Wall {
    Filesystem,
    Network,
    Process,
    Syscall,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Level {
    Low,
    Medium,
    High,
    Critical,
}

fn main() {
    let profiles = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../profiles");
    let file = profiles.join("indicators.toml");
    println!("cargo::rerun-if-changed={}", file.display());
    let text = fs::read_to_string(file).expect("the list of indicators");
    let table: Table = toml::from_str(&text).expect("indicators.toml parses");
    let (mut calls, mut out) = (BTreeMap::new(), String::new());
    for entry in &table.indicator {
        assert!(!entry.reason.is_empty() && !entry.description.is_empty(), "an entry without words");
        assert!(entry.name.is_some() == entry.calls.is_empty(), "an entry has a name or calls");
        let Entry { source, r#type: wall, level, description, .. } = entry;
        let value = format!(
            "Indicator {{ source: Source::{source:?}, wall: Wall::{wall:?}, level: Level::{level:?}, description: {description:?} }}"
        );
        for call in &entry.calls {
            assert!(calls.insert(call.clone(), value.clone()).is_none(), "{call} is listed twice");
        }
        if let Some(name) = &entry.name {
            let name = name.replace('-', "_").to_uppercase();
            writeln!(out, "pub(crate) const {name}: Indicator = {value};").expect("writing to a string");
        }
    }
    out.push_str("\nstatic CALLS: &[(&str, Indicator)] = &[\n");
    for (call, value) in &calls {
        writeln!(out, "    ({call:?}, {value}),").expect("writing to a string");
    }
    out.push_str("];\n");
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("indicators.rs");
    fs::write(target, out).expect("writing the generated table");
}
