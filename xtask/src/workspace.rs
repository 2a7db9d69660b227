//! The workspace as cargo sees it, and its files. Owns finding packages, dependencies and sources; judges nothing.
//! Called by the checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::problems::Problems;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    Dev,
    Build,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for a normal dependency.
    pub(crate) kind: Option<DependencyKind>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    #[serde(default)]
    version: String,
    repository: Option<String>,
    manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    /// Directory below the root, with `/` between components.
    #[serde(skip)]
    pub(crate) dir: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self, Problems> {
        let text = cargo(&["metadata", "--format-version", "1", "--no-deps"])?;
        let mut workspace: Workspace =
            serde_json::from_str(&text).map_err(|e| Problems::one(format!("cannot read cargo metadata: {e}")))?;
        for package in &mut workspace.packages {
            let dir = package.manifest_path.parent().unwrap_or(Path::new(""));
            package.dir = dir.strip_prefix(&workspace.root).unwrap_or(dir).to_string_lossy().into_owned();
        }
        workspace.packages.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(workspace)
    }

    pub(crate) fn read(&self, path: &str) -> Result<String, Problems> {
        read(&self.root.join(path))
    }

    /// All packages have the same.
    pub(crate) fn version(&self) -> Result<&str, Problems> {
        self.packages.first().map(|package| &*package.version).ok_or_else(|| Problems::one("the workspace is empty"))
    }

    pub(crate) fn repository(&self) -> Result<&str, Problems> {
        let found = self.packages.first().and_then(|package| package.repository.as_deref());
        found.ok_or_else(|| Problems::one("Cargo.toml names no repository"))
    }

    /// The `.rs` files of a package, as (path below the root, content), in a stable order.
    pub(crate) fn sources(&self, package: &Package) -> Result<Vec<(String, String)>, Problems> {
        let mut files = Vec::new();
        collect_rust_files(&self.root.join(&package.dir), &mut files)?;
        files.sort();
        files
            .into_iter()
            .map(|file| {
                let name = file.strip_prefix(&self.root).unwrap_or(&file).to_string_lossy().into_owned();
                Ok((name, read(&file)?))
            })
            .collect()
    }
}

/// Run cargo and hand back its standard output; its standard error goes to ours.
pub(crate) fn cargo(arguments: &[&str]) -> Result<String, Problems> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let shown = arguments.join(" ");
    let output = Command::new(program)
        .args(arguments)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| Problems::one(format!("cannot run `cargo {shown}`: {e}")))?;
    if !output.status.success() {
        return Err(Problems::one(format!("`cargo {shown}` failed: {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|e| Problems::one(format!("`cargo {shown}` printed no UTF-8: {e}")))
}

pub(crate) fn read(path: &Path) -> Result<String, Problems> {
    fs::read_to_string(path).map_err(|e| Problems::one(format!("cannot read {}: {e}", path.display())))
}

fn collect_rust_files(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Problems> {
    let unreadable = |e: std::io::Error| Problems::one(format!("cannot list {}: {e}", dir.display()));
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let kind = entry.file_type().map_err(unreadable)?;
        let path = entry.path();
        if kind.is_dir() && entry.file_name() != "target" {
            collect_rust_files(&path, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
