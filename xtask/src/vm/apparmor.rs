//! Profiles of AppArmor in the binary form that a kernel loads, for the guest that has none of its tools. Owns fetching Debian's parser,
//! which knows `userns`, and running it here; the profiles are the one that is shipped and one of a shell that may make no user
//! namespace. Called for guest 6.12.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::problems::Problems;
use crate::vm::apt::{Packages, Release};
use crate::vm::files::cannot;
use crate::vm::tool;

/// The first release whose parser is of AppArmor 4.
const DEBIAN: &str = "trixie";
const CONFINED: &str = "confined";
const SHIPPED: &str = "cofferdam";

/// Names, and what the kernel is given.
pub(crate) type Profiles = Vec<(&'static str, Vec<u8>)>;

pub(crate) fn profiles(source: &Path, cache: &Path, refresh: bool) -> Result<Profiles, Problems> {
    let packages = Packages::WithWhatTheyNeed(&["apparmor"]);
    let parser = Release::new(DEBIAN, cache).unpacked("apparmor", &packages, refresh)?;
    let sources = [
        (CONFINED, source.join("xtask/src/vm/guest/confined.apparmor")),
        (SHIPPED, source.join("packaging/apparmor/cofferdam")),
    ];
    sources.into_iter().map(|(name, text)| Ok((name, compiled(&parser.root, &text, &cache.join(name))?))).collect()
}

fn compiled(parser: &Path, profile: &Path, to: &PathBuf) -> Result<Vec<u8>, Problems> {
    let known = parser.join("etc/apparmor.d");
    let mut command = Command::new(parser.join("usr/lib64/ld-linux-x86-64.so.2"));
    command
        .arg("--library-path")
        .arg(parser.join("usr/lib/x86_64-linux-gnu"))
        .arg(parser.join("usr/sbin/apparmor_parser"));
    command.args(["--config-file", "/dev/null", "--skip-kernel-load", "--skip-cache", "--Include"]).arg(&known);
    // Of the kernel that loads it, not of this one: without them nothing is refused that older kernels do not know.
    command.arg("--kernel-features").arg(known.join("abi/4.0"));
    tool(command.arg("--base").arg(&known).arg("--ofile").arg(to).arg(profile))?;
    fs::read(to).map_err(|e| cannot("read", to, &e))
}
