//! `cargo xtask cross`: the shipped programs for aarch64, built on a machine of another kind. Owns what cargo has to be told for it:
//! a C compiler and the headers of musl, for the one dependency that has C in it; the linker is Rust's own (`.cargo/config.toml`).
//! Called by people, and by the guest of `cargo xtask vm --arch aarch64`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::elf::{AARCH64, Linkage, linkage, machine};
use crate::problems::Problems;
use crate::shipped::{COMMAND, EGRESS, PACKAGES, VERIFY};
use crate::vm::apt::{Packages, Release};
use crate::vm::{cache, tool};
use crate::workspace::{Workspace, cargo};

const TARGET: &str = "aarch64-unknown-linux-musl";
/// Of Debian's package gcc-aarch64-linux-gnu, whose own headers are glibc's.
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const ARCHIVER: &str = "aarch64-linux-gnu-ar";
/// The headers come from this release, for whatever one this machine has.
const DEBIAN: &str = "bookworm";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only check that they compile for it
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    if args.check {
        cargo_for_it(&[&["check", "--locked", "--target", TARGET][..], &PACKAGES].concat())?;
        return Ok(format!("the shipped programs compile for {TARGET}"));
    }
    let built = build(workspace)?;
    let lines = built.iter().map(|one| format!("{}: {} bytes, static, {}", one.name, one.size, one.path.display()));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// A program that was built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    size: usize,
}

pub(crate) fn build(workspace: &Workspace) -> Result<Vec<Built>, Problems> {
    cargo_for_it(&[&["build", "--locked", "--release", "--target", TARGET][..], &PACKAGES].concat())?;
    [COMMAND, EGRESS, VERIFY].into_iter().map(|name| built(workspace, name)).collect()
}

fn built(workspace: &Workspace, name: &'static str) -> Result<Built, Problems> {
    let path = workspace.target.join(TARGET).join("release").join(name);
    let wrong = |reason: &str| Problems::one(format!("{}: {reason}", path.display()));
    let file = fs::read(&path).map_err(|e| wrong(&e.to_string()))?;
    match linkage(&file).map_err(wrong)? {
        Linkage::Static => {}
        Linkage::Dynamic => return Err(wrong("it asks for a dynamic loader")),
    }
    if machine(&file) != Some(AARCH64) {
        return Err(wrong("it is not for aarch64"));
    }
    Ok(Built { name, path, size: file.len() })
}

fn cargo_for_it(arguments: &[&str]) -> Result<(), Problems> {
    let settings = if std::env::var_os(named("CC")).is_some() { Vec::new() } else { settings()? };
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--config", setting]).collect();
    cargo(&[&settings[..], arguments].concat()).map(drop)
}

/// The variable that says it for this target.
fn named(variable: &str) -> String {
    format!("{variable}_{}", TARGET.replace('-', "_"))
}

/// Debian's compiler with Debian's headers of musl.
fn settings() -> Result<Vec<String>, Problems> {
    let own = tool(Command::new(COMPILER).arg("-print-file-name=include")).map_err(|mut problems| {
        problems.add("Debian and Ubuntu have it in the package gcc-aarch64-linux-gnu".to_owned());
        problems
    })?;
    let musl =
        Release::of_machine(DEBIAN, "arm64", &cache()?).unpacked("musl", &Packages::Alone(&["musl-dev"]), false)?;
    let headers = musl.root.join("usr/include/aarch64-linux-musl");
    let flags = format!("-nostdinc -isystem {} -isystem {}", headers.display(), own.trim());
    let settings = [("CC", COMPILER), ("AR", ARCHIVER), ("CFLAGS", &flags)];
    Ok(settings.iter().map(|(name, value)| format!("env.{}={value:?}", named(name))).collect())
}
