//! What guests run: the workspace's tests, built here, on a disk image of their own. Owns building, collecting and the
//! image; every guest boots with the same one and writes to a copy that ends with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::problems::Problems;
use crate::vm::files::{cannot, fresh_dir, make_dir, remove_dir};
use crate::vm::{run_tool, tool};
use crate::workspace::{Workspace, cargo};

const SIZE: &str = "3G";

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) disk: PathBuf,
    /// Where the Rust toolchain lies on this machine, for tests that compile.
    pub(crate) toolchain: String,
}

impl Stage {
    /// Builds the tests and puts them on a disk: `/home/ci` is what `guest/guest.sh` runs.
    pub(crate) fn build(workspace: &Workspace, dir: &Path) -> Result<Stage, Problems> {
        let listing = ["nextest", "list", "--locked", "--workspace", "--list-type", "binaries-only"];
        let binaries = cargo(&[&listing[..], &["--message-format", "json"]].concat())?;
        let metadata = cargo(&["metadata", "--locked", "--format-version", "1"])?;

        let tree = fresh_dir(dir.join("tree"))?;
        let ci = tree.join("home/ci");
        copy_binaries(workspace, &binaries, &ci.join("target"))?;
        write(&ci.join("binaries.json"), &binaries)?;
        write(&ci.join("cargo.json"), &metadata)?;
        copy_sources(workspace, &ci.join("source"))?;
        copy(&nextest()?, &ci.join("bin/cargo-nextest"))?;

        let disk = dir.join("disk.img");
        make_disk(&tree, &disk)?;
        remove_dir(&tree)?;
        let toolchain = tool(Command::new("rustc").args(["--print", "sysroot"]).current_dir(&workspace.root))?;
        Ok(Stage { disk, toolchain: toolchain.trim().to_owned() })
    }
}

/// The test programs, and those of the product that tests start, at the paths below `target` that they were built at.
fn copy_binaries(workspace: &Workspace, list: &str, to: &Path) -> Result<(), Problems> {
    let list: Value = serde_json::from_str(list)
        .map_err(|e| Problems::one(format!("cannot read nextest's list of binaries: {e}")))?;
    let tests = list["rust-binaries"].as_object().into_iter().flat_map(|all| all.values());
    let tests = tests.filter_map(|test| test["binary-path"].as_str()).map(PathBuf::from);
    let others = list["rust-build-meta"]["non-test-binaries"].as_object().into_iter().flat_map(|all| all.values());
    let others = others.filter_map(Value::as_array).flatten().filter_map(|other| other["path"].as_str());
    let others = others.map(|path| workspace.target.join(path));
    for from in tests.chain(others) {
        let below = from
            .strip_prefix(&workspace.target)
            .map_err(|_| Problems::one(format!("{} does not lie in {}", from.display(), workspace.target.display())))?;
        copy_stripped(&from, &to.join(below))?;
    }
    Ok(())
}

/// Without what only debuggers read, nine tenths of a program: each row of the escape suite copies its probe.
fn copy_stripped(from: &Path, to: &Path) -> Result<(), Problems> {
    make_dir(to.parent().unwrap_or(to))?;
    run_tool(Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(from)).map(drop)
}

/// As they are now, changes that are not committed yet included.
fn copy_sources(workspace: &Workspace, to: &Path) -> Result<(), Problems> {
    let mut git = Command::new("git");
    let list = tool(git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(&workspace.root))?;
    for file in list.lines() {
        let from = workspace.root.join(file);
        // A file that was deleted and not committed is listed still.
        if from.exists() {
            copy(&from, &to.join(file))?;
        }
    }
    Ok(())
}

fn nextest() -> Result<PathBuf, Problems> {
    let found = tool(Command::new("sh").args(["-c", "command -v cargo-nextest"]))?;
    Ok(PathBuf::from(found.trim()))
}

/// With project quotas, which tests of disk limits need, and without a journal: the image is thrown away.
fn make_disk(tree: &Path, disk: &Path) -> Result<(), Problems> {
    if disk.exists() {
        fs::remove_file(disk).map_err(|e| cannot("remove", disk, &e))?;
    }
    let mut mkfs = Command::new("/sbin/mkfs.ext4");
    mkfs.args(["-q", "-O", "quota,project,^has_journal", "-E", "quotatype=prjquota", "-d"]);
    run_tool(mkfs.arg(tree).arg(disk).arg(SIZE)).map(drop)
}

fn copy(from: &Path, to: &Path) -> Result<(), Problems> {
    make_dir(to.parent().unwrap_or(to))?;
    fs::copy(from, to).map(drop).map_err(|e| cannot("copy", from, &e))
}

fn write(path: &Path, text: &str) -> Result<(), Problems> {
    fs::write(path, text).map_err(|e| cannot("write", path, &e))
}
