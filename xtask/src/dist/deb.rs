//! The Debian package. Owns what lies elsewhere there than below a prefix, and the package's own files, whose sources are in
//! `packaging/deb`; `dpkg-deb` writes it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::dist::{ZSH, copy, make_executable, plain_modes, put};
use crate::problems::Problems;
use crate::vm::files::{cannot, fresh_dir, make_dir};
use crate::vm::{run_tool, tool};
use crate::workspace::Workspace;

const SOURCES: &str = "packaging/deb";
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

pub(super) fn build(workspace: &Workspace, version: &str, tree: &Path, to: &Path, time: &str) -> Result<(), Problems> {
    let root = fresh_dir(tree.with_file_name("deb"))?;
    let usr = root.join("usr");
    run_tool(Command::new("cp").arg("--recursive").arg(tree).arg(&usr))?;
    move_to(&usr.join(ZSH).join("_sandbox"), &usr.join("share/zsh/vendor-completions/_sandbox"))?;
    remove_empty(&usr.join(ZSH))?;
    let documents = usr.join("share/doc/cofferdam");
    copy(&workspace.root.join("CHANGELOG.md"), &documents.join("changelog"))?;
    let homepage = workspace.repository()?;
    let copyright = workspace.read(&format!("{SOURCES}/copyright"))?.replace("@HOMEPAGE@", homepage);
    put(&documents.join("copyright"), copyright.as_bytes())?;
    for page in [usr.join("share/man/man1/sandbox.1"), documents.join("changelog")] {
        run_tool(Command::new("gzip").arg("-9n").arg(page))?;
    }
    plain_modes(&root)?;

    let size = tool(Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1K"]).arg(&usr))?;
    let control = workspace.read(&format!("{SOURCES}/control"))?;
    let control = control.replace("@VERSION@", version).replace("@HOMEPAGE@", homepage);
    let control = control.replace("@KIBIBYTES@", size.split_whitespace().next().unwrap_or_default());
    put(&root.join("DEBIAN/control"), control.as_bytes())?;
    // With them `dpkg --verify` tells what was changed since.
    let sums = "find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums";
    run_tool(Command::new("sh").args(["-ec", sums]).current_dir(&root))?;
    for script in SCRIPTS {
        let copied = root.join("DEBIAN").join(script);
        copy(&workspace.root.join(SOURCES).join(script), &copied)?;
        make_executable(&copied)?;
    }
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", time).args(["--build", "--root-owner-group", "-Zxz"]);
    run_tool(dpkg.arg(&root).arg(to)).map(drop)
}

fn move_to(from: &Path, to: &Path) -> Result<(), Problems> {
    make_dir(to.parent().unwrap_or(to))?;
    fs::rename(from, to).map_err(|e| cannot("move", from, &e))
}

fn remove_empty(dir: &Path) -> Result<(), Problems> {
    fs::remove_dir(dir).map_err(|e| cannot("remove", dir, &e))
}
