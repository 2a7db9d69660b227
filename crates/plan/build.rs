//! Turns `profiles/seccomp.toml` and the syscall number table into static Rust tables, so that a launch parses nothing.
//! A call that is named twice, or that has no number, fails the build.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    group: Vec<Group>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    reason: String,
    verdict: String,
    errno: Option<String>,
    calls: Vec<String>,
}

fn main() {
    let profiles = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../profiles");
    let numbers_file = profiles.join("syscalls-x86_64.txt");
    let table_file = profiles.join("seccomp.toml");
    println!("cargo::rerun-if-changed={}", numbers_file.display());
    println!("cargo::rerun-if-changed={}", table_file.display());

    let numbers = read_numbers(&fs::read_to_string(numbers_file).expect("the syscall number table"));
    let table: Table =
        toml::from_str(&fs::read_to_string(table_file).expect("the seccomp table")).expect("seccomp.toml parses");

    let mut out = String::from("pub static NUMBERS: &[(&str, u32)] = &[\n");
    for (name, number) in &numbers {
        writeln!(out, "    ({name:?}, {number}),").expect("writing to a string");
    }
    out.push_str("];\n\npub static TABLE: &[(u32, Listed)] = &[\n");
    for (number, listed) in listed_calls(&table, &numbers) {
        writeln!(out, "    ({number}, {listed}),").expect("writing to a string");
    }
    out.push_str("];\n");
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("seccomp_tables.rs");
    fs::write(target, out).expect("writing the generated table");
}

fn read_numbers(text: &str) -> BTreeMap<String, u32> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (name, number) = line.split_once(' ').expect("`name number`");
            (name.to_owned(), number.parse().expect("a syscall number"))
        })
        .collect()
}

fn listed_calls(table: &Table, numbers: &BTreeMap<String, u32>) -> BTreeMap<u32, String> {
    let mut listed = BTreeMap::new();
    for group in &table.group {
        assert!(!group.reason.is_empty(), "a group without a reason");
        let errno = group.errno.as_deref().unwrap_or("EPERM");
        let verdict = match group.verdict.as_str() {
            "allow" => "Listed::Allow".to_owned(),
            "check" => "Listed::Check".to_owned(),
            "debug" => "Listed::Debug".to_owned(),
            "refuse" => format!("Listed::Refuse(errno::{errno})"),
            "record" => format!("Listed::Record(errno::{errno})"),
            "notify" => format!("Listed::Notify(errno::{errno})"),
            other => panic!("unknown verdict {other}"),
        };
        for call in &group.calls {
            let number = *numbers.get(call).unwrap_or_else(|| panic!("no number for {call}"));
            assert!(listed.insert(number, verdict.clone()).is_none(), "{call} is listed twice");
        }
    }
    listed
}
