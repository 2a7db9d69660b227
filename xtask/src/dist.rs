//! `cargo xtask dist`: what a user downloads: a tarball and a Debian package of the three programs, and their checksums. Owns which
//! files are released and where they lie below a prefix; what others' licences ask for is `dist::notices`, the package `dist::deb`.
//! The same programs, commit and tools give the same bytes.

mod deb;
mod notices;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::problems::Problems;
use crate::shipped::{self, COMMAND, EGRESS, VERIFY};
use crate::vm::files::{cannot, fresh_dir, make_dir};
use crate::vm::{run_tool, tool};
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the tarball, the package and SHA256SUMS go [default: target/dist]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const DOCUMENTS: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
const SUMS: &str = "SHA256SUMS";
/// Where Debian's zsh looks is not where others' does.
const ZSH: &str = "share/zsh/site-functions";

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    shipped::build()?;
    let version = workspace.version()?;
    let time = commit_time(workspace)?;
    let out = args.out.clone().unwrap_or_else(|| workspace.target.join("dist"));
    make_dir(&out)?;
    let stage = fresh_dir(workspace.target.join("dist-stage"))?;
    let name = format!("cofferdam-{version}-x86_64-linux");
    let tree = stage.join(&name);
    lay_out(workspace, &tree)?;

    let tarball = format!("{name}.tar.gz");
    archive(&tree, &out.join(&tarball), &time)?;
    let package = format!("cofferdam_{version}_amd64.deb");
    deb::build(workspace, version, &tree, &out.join(&package), &time)?;

    let sums = tool(Command::new("sha256sum").args([&tarball, &package]).current_dir(&out))?;
    put(&out.join(SUMS), sums.as_bytes())?;
    fs::remove_dir_all(&stage).map_err(|e| cannot("remove", &stage, &e))?;
    println!("{}", sums.trim_end());
    Ok(format!("dist: {}", out.display()))
}

/// The files below a prefix, as `/usr/local` or `~/.local` has them.
fn lay_out(workspace: &Workspace, tree: &Path) -> Result<(), Problems> {
    for program in [COMMAND, EGRESS, VERIFY] {
        copy(&shipped::path(workspace, program), &tree.join("bin").join(program))?;
    }
    let command = tree.join("bin").join(COMMAND);
    let generated = [
        ("share/man/man1/sandbox.1", &["man"][..]),
        ("share/bash-completion/completions/sandbox", &["completions", "bash"]),
        (&format!("{ZSH}/_sandbox"), &["completions", "zsh"]),
        ("share/fish/vendor_completions.d/sandbox.fish", &["completions", "fish"]),
    ];
    for (file, words) in generated {
        put(&tree.join(file), &run_tool(Command::new(&command).args(words))?)?;
    }
    let documents = tree.join("share/doc/cofferdam");
    for document in DOCUMENTS {
        copy(&workspace.root.join(document), &documents.join(document))?;
    }
    put(&documents.join("THIRD-PARTY.txt"), notices::text()?.as_bytes())?;
    let own = tree.join("share/cofferdam");
    copy(&workspace.root.join("packaging/apparmor/cofferdam"), &own.join("apparmor/cofferdam"))?;
    let hooks = workspace.root.join("profiles/hooks");
    for hook in fs::read_dir(&hooks).map_err(|e| cannot("list", &hooks, &e))? {
        let hook = hook.map_err(|e| cannot("list", &hooks, &e))?;
        copy(&hook.path(), &own.join("hooks").join(hook.file_name()))?;
    }
    plain_modes(tree)
}

/// The names in order, of root, at the time of the commit: nothing of the machine that packs.
fn archive(tree: &Path, to: &Path, time: &str) -> Result<(), Problems> {
    let (parent, name) = (tree.parent().unwrap_or(tree), tree.file_name().unwrap_or_default());
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=ustar", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{time}")).args(["--use-compress-program", "gzip -9n"]);
    run_tool(tar.arg("--file").arg(to).arg("--directory").arg(parent).arg(name)).map(drop)
}

/// What the umask of this machine made of them.
fn plain_modes(tree: &Path) -> Result<(), Problems> {
    run_tool(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(tree)).map(drop)
}

/// Seconds since 1970, as the tools of packagers take them from the environment.
fn commit_time(workspace: &Workspace) -> Result<String, Problems> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(time);
    }
    let mut git = Command::new("git");
    let time = tool(git.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root));
    let time = time.map_err(|_| Problems::one("no commit says when this was made: set SOURCE_DATE_EPOCH"))?;
    Ok(time.trim().to_owned())
}

fn put(path: &Path, content: &[u8]) -> Result<(), Problems> {
    make_dir(path.parent().unwrap_or(path))?;
    fs::write(path, content).map_err(|e| cannot("write", path, &e))
}

fn copy(from: &Path, to: &Path) -> Result<(), Problems> {
    make_dir(to.parent().unwrap_or(to))?;
    fs::copy(from, to).map(drop).map_err(|e| cannot("copy", from, &e))
}

fn make_executable(path: &Path) -> Result<(), Problems> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|e| cannot("change", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with the same files, made in another order and with other modes and times.
    fn tree(parent: &Path, names: [&str; 2], mode: u32) -> PathBuf {
        let tree = fresh_dir(parent.join("tree")).expect("a directory");
        for name in names {
            put(&tree.join(name), name.as_bytes()).expect("a file");
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
        }
        plain_modes(&tree).expect("modes");
        tree
    }

    #[test]
    fn an_archive_holds_nothing_of_the_machine_that_made_it() {
        let parent = std::env::temp_dir().join(format!("cofferdam-dist-{}", std::process::id()));
        let (one, two) = (parent.join("one.tar.gz"), parent.join("two.tar.gz"));
        archive(&tree(&parent, ["a/x", "b"], 0o600), &one, "1700000000").expect("an archive");
        archive(&tree(&parent, ["b", "a/x"], 0o664), &two, "1700000000").expect("an archive");
        let (first, second) = (fs::read(&one).expect("it"), fs::read(&two).expect("it"));
        archive(&tree(&parent, ["b", "a/y"], 0o644), &two, "1700000000").expect("an archive");
        let other = fs::read(&two).expect("it");
        fs::remove_dir_all(&parent).expect("removed");
        assert!(first == second, "the same files give different archives");
        assert!(first != other, "other files give the same archive");
    }
}
