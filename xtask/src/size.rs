//! `cargo xtask size`: what a user downloads. Owns building the shipped programs, the check that they are static, and their
//! sizes, relocations and numbers of crates; sets no limit.

use std::collections::BTreeSet;
use std::fs;

use crate::elf::{Linkage, linkage, relocations};
use crate::problems::Problems;
use crate::shipped::{self, COMMAND, EGRESS, TARGET, VERIFY};
use crate::workspace::{Workspace, cargo};

pub(crate) fn measure(workspace: &Workspace) -> Result<String, Problems> {
    shipped::build()?;
    let programs = [(COMMAND, "cofferdam-cli"), (EGRESS, "cofferdam-egress"), (VERIFY, "cofferdam-verify")];
    let lines: Vec<String> =
        programs.iter().map(|(name, package)| one(workspace, name, package)).collect::<Result<_, _>>()?;
    Ok(lines.join("\n"))
}

fn one(workspace: &Workspace, name: &str, package: &str) -> Result<String, Problems> {
    let path = shipped::path(workspace, name);
    let file = fs::read(&path).map_err(|e| Problems::one(format!("cannot read {}: {e}", path.display())))?;
    let wrong = |reason: &str| Problems::one(format!("{}: {reason}", path.display()));
    match linkage(&file) {
        Ok(Linkage::Static) => {}
        Ok(Linkage::Dynamic) => return Err(wrong("it asks for a dynamic loader")),
        Err(reason) => return Err(wrong(reason)),
    }
    let relocations = relocations(&file).map_err(wrong)?;
    let tree =
        ["tree", "--edges", "normal", "--prefix", "none", "--no-dedupe", "--target", TARGET, "--package", package];
    let crates = Crates::of(&cargo(&tree)?);
    Ok(format!(
        "{name}: {} bytes, static, {relocations} relocations; {} crates ({} of this workspace, {} from outside, {} of them macros that run at build time)",
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
