//! Turns `profiles/seccomp.toml` and the numbers of the machine that is built for (`profiles/syscalls-MACHINE.txt`) into static
//! Rust tables, so that a launch parses nothing. A call that is named twice, or that has a number on no machine, fails the build.
//! So does a machine without numbers.

use std::collections::{BTreeMap, BTreeSet};
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

/// Machines with their numbers: `std::env::consts::ARCH` and the calls by name.
type Machines = BTreeMap<String, BTreeMap<String, u32>>;

/// From this number on a call has the same one on every machine.
const SAME_EVERYWHERE: u32 = 424;

fn main() {
    let profiles = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../profiles");
    let table_file = profiles.join("seccomp.toml");
    println!("cargo::rerun-if-changed={}", table_file.display());

    let machines = read_machines(&profiles);
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let Some(numbers) = machines.get(&machine) else { panic!("there is no profiles/syscalls-{machine}.txt") };
    let known: BTreeSet<&String> = machines.values().flat_map(BTreeMap::keys).collect();
    let table: Table =
        toml::from_str(&fs::read_to_string(table_file).expect("the seccomp table")).expect("seccomp.toml parses");

    let mut out = String::from("pub static NUMBERS: &[(&str, u32)] = &[\n");
    for (name, number) in numbers {
        writeln!(out, "    ({name:?}, {number}),").expect("writing to a string");
    }
    out.push_str("];\n\npub static TABLE: &[(u32, Listed)] = &[\n");
    for (number, listed) in listed_calls(&table, numbers, &known) {
        writeln!(out, "    ({number}, {listed}),").expect("writing to a string");
    }
    let elsewhere: Vec<_> = known.iter().filter(|name| !numbers.contains_key(**name)).collect();
    writeln!(out, "];\n\nstatic ELSEWHERE: &[&str] = &{elsewhere:?};").expect("writing to a string");
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("seccomp_tables.rs");
    fs::write(target, out).expect("writing the generated table");
}

fn read_machines(profiles: &Path) -> Machines {
    let machines: Machines = ["aarch64", "x86_64"]
        .into_iter()
        .map(|machine| {
            let file = profiles.join(format!("syscalls-{machine}.txt"));
            println!("cargo::rerun-if-changed={}", file.display());
            (machine.to_owned(), read_numbers(&fs::read_to_string(file).expect("the syscall number table")))
        })
        .collect();
    let common = |numbers: &BTreeMap<String, u32>| -> Vec<(String, u32)> {
        let common = numbers.iter().filter(|(_, number)| **number >= SAME_EVERYWHERE);
        common.map(|(name, number)| (name.clone(), *number)).collect()
    };
    let mut all = machines.values().map(common);
    let first = all.next();
    assert!(all.all(|other| Some(other) == first), "machines differ in a number from {SAME_EVERYWHERE} on");
    machines
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

/// A call of other machines alone is left out.
fn listed_calls(table: &Table, numbers: &BTreeMap<String, u32>, known: &BTreeSet<&String>) -> BTreeMap<u32, String> {
    let (mut listed, mut named) = (BTreeMap::new(), BTreeSet::new());
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
            assert!(known.contains(call), "no number for {call}");
            assert!(named.insert(call), "{call} is listed twice");
            listed.extend(numbers.get(call).map(|number| (*number, verdict.clone())));
        }
    }
    listed
}
