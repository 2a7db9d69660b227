//! `cargo xtask size`: what a user downloads. Owns building the shipped binary, the check that it is static, and its
//! size and number of crates; sets no limit.

use std::collections::BTreeSet;
use std::fs;

use crate::elf::{Linkage, linkage};
use crate::problems::Problems;
use crate::workspace::{Workspace, cargo};

const TARGET: &str = "x86_64-unknown-linux-musl";
const PACKAGE: &str = "cofferdam-cli";
const BINARY: &str = "sandbox";

pub(crate) fn measure(workspace: &Workspace) -> Result<String, Problems> {
    cargo(&["build", "--release", "--target", TARGET, "--package", PACKAGE])?;
    let path = workspace.target.join(TARGET).join("release").join(BINARY);
    let file = fs::read(&path).map_err(|e| Problems::one(format!("cannot read {}: {e}", path.display())))?;
    match linkage(&file) {
        Ok(Linkage::Static) => {}
        Ok(Linkage::Dynamic) => return Err(Problems::one(format!("{} asks for a dynamic loader", path.display()))),
        Err(reason) => return Err(Problems::one(format!("{}: {reason}", path.display()))),
    }
    let tree = cargo(&[
        "tree",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--no-dedupe",
        "--target",
        TARGET,
        "--package",
        PACKAGE,
    ])?;
    let crates = Crates::of(&tree);
    Ok(format!(
        "size: {} bytes, static\ncrates: {} ({} of this workspace, {} from outside, {} of them macros that run at build time)",
        file.len(),
        crates.own + crates.outside,
        crates.own,
        crates.outside,
        crates.macros,
    ))
}

#[derive(Debug, PartialEq, Eq)]
struct Crates {
    own: usize,
    outside: usize,
    macros: usize,
}

impl Crates {
    /// Lines of `cargo tree --prefix none`: `name vX.Y.Z [(proc-macro)] [(path)] [(*)]`.
    fn of(tree: &str) -> Self {
        let lines: BTreeSet<_> =
            tree.lines().map(|l| l.trim_end_matches(" (*)").trim()).filter(|l| !l.is_empty()).collect();
        let own = lines.iter().filter(|l| l.starts_with("cofferdam-")).count();
        let macros = lines.iter().filter(|l| l.contains("(proc-macro)")).count();
        Crates { own, outside: lines.len() - own, macros }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_counts_once() {
        let tree =
            "cofferdam-cli v0.1.0 (/src/cli)\nserde v1.0.0\nserde_derive v1.0.0 (proc-macro)\nserde v1.0.0 (*)\n\n";
        assert_eq!(Crates::of(tree), Crates { own: 1, outside: 2, macros: 1 });
    }
}
