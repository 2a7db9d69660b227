//! `cargo xtask stress egress`: floods of one session's network, as root and as a user. Owns building and who runs it; the
//! storms, their figures and their targets are the escape runner's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::account::User;
use crate::problems::Problems;
use crate::workspace::{Workspace, cargo};

/// What the storms consist of.
const PROGRAMS: [&str; 3] = ["escape-runner", "escape-probe", "test-world"];

pub(crate) fn run(workspace: &Workspace, users: &[User], json: bool) -> Result<String, Problems> {
    let packages = ["--package", "cofferdam-escape", "--package", "cofferdam-testkit"];
    cargo(&[&["build", "--quiet", "--profile", "fast"][..], &packages].concat())?;
    let mut problems = Problems::default();
    for user in users {
        println!("as {}:", user.name);
        if let Err(why) = one(workspace, user, json) {
            problems.add(format!("egress as {}: {why}", user.name));
        }
    }
    problems.or(String::new())
}

/// The target directory may be nobody else's to read, so the programs are brought to the user.
fn one(workspace: &Workspace, user: &User, json: bool) -> Result<(), String> {
    let place = user.home.join(format!("cofferdam-storm-{}", std::process::id()));
    let done = brought(workspace, user, json, &place);
    fs::remove_dir_all(&place).map_err(|e| format!("cannot remove {}: {e}", place.display()))?;
    done
}

fn brought(workspace: &Workspace, user: &User, json: bool, place: &std::path::Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot prepare {}: {e}", place.display());
    fs::create_dir(place).map_err(failed)?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    for program in PROGRAMS {
        fs::copy(workspace.target.join("fast").join(program), place.join(program)).map_err(failed)?;
    }
    let mut command = Command::new(place.join("escape-runner"));
    command.arg("storm").args(json.then_some("--json")).env("HOME", &user.home);
    if user.uid != rustix::process::getuid().as_raw() {
        command.uid(user.uid).gid(user.gid);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the storm was not stood ({status})")),
        Err(e) => Err(format!("cannot run it: {e}")),
    }
}
