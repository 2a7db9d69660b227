//! What the licences of others ask for: the crates that are linked into the programs, each with its licence and that licence's text.
//! Owns finding them; which licences may be linked is deny.toml's to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::problems::Problems;
use crate::shipped::{PACKAGES, TARGET};
use crate::vm::files::cannot;
use crate::workspace::cargo;

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

#[derive(Debug, Deserialize)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// None for those of this workspace.
    source: Option<String>,
}

const FILES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

pub(super) fn text() -> Result<String, Problems> {
    let metadata = cargo(&["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET])?;
    let metadata: Metadata =
        serde_json::from_str(&metadata).map_err(|e| Problems::one(format!("cannot read cargo metadata: {e}")))?;
    let linked = linked()?;
    let mut list = Vec::new();
    // Most crates have the same few texts.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in &metadata.packages {
        let name = format!("{} {}", one.name, one.version);
        if one.source.is_none() || !linked.contains(&name) {
            continue;
        }
        list.push(format!("{name}: {}\n", one.license.as_deref().unwrap_or("see its text")));
        for text in texts_of(one.manifest_path.parent().unwrap_or(Path::new("")))? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    if list.is_empty() {
        return Err(Problems::one("no crate of others is linked: cargo metadata and cargo tree do not agree"));
    }
    let texts = texts.iter().map(|(text, names)| format!("\n--- {}\n\n{}\n", names.join(", "), text.trim_end()));
    let head =
        "The programs contain musl (MIT), Rust's standard library (MIT OR Apache-2.0) and these crates of others.\n\n";
    Ok(std::iter::once(head.to_owned()).chain(list).chain(texts).collect())
}

/// `name version` of what is in the programs, and of what their macros are made of.
fn linked() -> Result<BTreeSet<String>, Problems> {
    let tree = ["tree", "--locked", "--edges", "normal", "--prefix", "none", "--no-dedupe", "--target", TARGET];
    let tree = cargo(&[&tree[..], &PACKAGES].concat())?;
    let linked = tree.lines().filter(|line| !line.contains("(proc-macro)"));
    let linked = linked.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
    });
    Ok(linked.collect())
}

fn texts_of(dir: &Path) -> Result<Vec<String>, Problems> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| cannot("list", dir, &e))? {
        let path = entry.map_err(|e| cannot("list", dir, &e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && FILES.iter().any(|start| name.starts_with(start)) {
            let text = fs::read(&path).map_err(|e| cannot("read", &path, &e))?;
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    texts.sort();
    Ok(texts)
}
