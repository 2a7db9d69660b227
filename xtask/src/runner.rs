//! Brings the escape suite's runner to a user and runs it there. Owns building, copying and becoming that user; what is run, its
//! figures and its targets are the runner's. Called by `storm` and `stress`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::account::User;
use crate::problems::Problems;
use crate::shipped;
use crate::workspace::{Workspace, cargo};

const PROGRAMS: [&str; 4] = ["escape-runner", "escape-probe", "test-world", shipped::EGRESS];

/// `escape-runner ARGUMENTS...` with optimisations, as each of these users.
pub(crate) fn run(workspace: &Workspace, users: &[User], arguments: &[String]) -> Result<String, Problems> {
    let packages = ["--package", "cofferdam-escape", "--package", "cofferdam-testkit", "--package", "cofferdam-egress"];
    cargo(&[&["build", "--quiet", "--profile", "fast"][..], &packages].concat())?;
    let mut problems = Problems::default();
    for user in users {
        println!("as {}:", user.name);
        if let Err(why) = one(workspace, user, arguments) {
            problems.add(format!("{} as {}: {why}", arguments.first().map_or("", String::as_str), user.name));
        }
    }
    problems.or(String::new())
}

/// The target directory may be readable by its owner only, so the programs are brought to the user.
fn one(workspace: &Workspace, user: &User, arguments: &[String]) -> Result<(), String> {
    let place = user.home.join(format!("cofferdam-storm-{}", std::process::id()));
    let done = brought(workspace, user, arguments, &place);
    fs::remove_dir_all(&place).map_err(|e| format!("cannot remove {}: {e}", place.display()))?;
    done
}

fn brought(workspace: &Workspace, user: &User, arguments: &[String], place: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot prepare {}: {e}", place.display());
    fs::create_dir(place).map_err(failed)?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    for program in PROGRAMS {
        fs::copy(workspace.target.join("fast").join(program), place.join(program)).map_err(failed)?;
    }
    let mut command = Command::new(place.join("escape-runner"));
    command.args(arguments).env("HOME", &user.home).current_dir(place);
    // A cache directory of the caller's is not this user's.
    command.env_remove("XDG_CACHE_HOME");
    if user.uid != rustix::process::getuid().as_raw() {
        command.uid(user.uid).gid(user.gid);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the storm was not stood ({status})")),
        Err(e) => Err(format!("cannot run it: {e}")),
    }
}
