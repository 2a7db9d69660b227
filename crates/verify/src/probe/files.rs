//! Files: reading secrets, writing where the host would notice.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Attempts;
use crate::answer::Answer;
use crate::canaries::PRIVATE;
use crate::errand::Errand;
use crate::scratch::{AGENT_FILES, GIT_FILES, HOME_SECRETS, PROJECT_SECRETS, SHELL_FILES, contains};

/// Reached if the token is in one of them.
fn read(errand: &Errand, paths: impl IntoIterator<Item = PathBuf>) -> Answer {
    let mut attempts = Attempts::default();
    for path in paths {
        let name = path.strip_prefix(&errand.root).unwrap_or(&path).display().to_string();
        match fs::read(&path) {
            Ok(text) if contains(&text, &errand.token) => attempts.reached.push(format!("{name} was read")),
            Ok(text) => attempts.refused.push(format!("{name}: {} bytes without the canary", text.len())),
            Err(error) => attempts.refused.push(format!("{name}: {error}")),
        }
    }
    attempts.answer()
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())
}

fn write(errand: &Errand, paths: impl IntoIterator<Item = PathBuf>) -> Answer {
    let mut attempts = Attempts::default();
    for path in paths {
        let name = path.strip_prefix(&errand.root).unwrap_or(&path).display().to_string();
        attempts.add(&name, append(&path, &format!("# {}\n", errand.token)));
    }
    attempts.answer()
}

fn below<'a>(directory: PathBuf, names: &'a [&'a str]) -> impl Iterator<Item = PathBuf> + 'a {
    names.iter().map(move |name| directory.join(name))
}

pub(super) fn read_outside(errand: &Errand) -> Answer {
    read(errand, [errand.scratch().canary()])
}

pub(super) fn read_home_secrets(errand: &Errand) -> Answer {
    read(errand, below(errand.scratch().home(), HOME_SECRETS))
}

pub(super) fn read_project_secrets(errand: &Errand) -> Answer {
    read(errand, below(errand.scratch().project(), PROJECT_SECRETS))
}

pub(super) fn read_by_link(errand: &Errand) -> Answer {
    read(errand, [errand.scratch().project().join("link-secret")])
}

pub(super) fn read_private(errand: &Errand) -> Answer {
    read(errand, PRIVATE.iter().map(|directory| Path::new(directory).join(errand.file_name())))
}

pub(super) fn write_outside(errand: &Errand) -> Answer {
    let scratch = errand.scratch();
    write(errand, [scratch.outside().join("made"), scratch.canary()])
}

pub(super) fn write_by_traversal(errand: &Errand) -> Answer {
    let outside = errand.scratch().outside();
    let from_root = outside.strip_prefix("/").unwrap_or(&outside).join("by-root");
    let dots = errand.scratch().project().join("../../outside/by-dots");
    write(errand, [dots, Path::new("/proc/self/root").join(from_root), "/proc/self/cwd/../../outside/by-cwd".into()])
}

pub(super) fn write_by_link(errand: &Errand) -> Answer {
    write(errand, [errand.scratch().project().join("link-out/made")])
}

pub(super) fn hard_link(errand: &Errand) -> Answer {
    let scratch = errand.scratch();
    let link = scratch.project().join("hard-link");
    let mut attempts = Attempts::default();
    let linked = fs::hard_link(scratch.canary(), &link).and_then(|()| append(&link, "written by a hard link\n"));
    attempts.add("a hard link to the canary", linked);
    attempts.answer()
}

pub(super) fn write_git(errand: &Errand) -> Answer {
    write(errand, below(errand.scratch().project(), GIT_FILES))
}

pub(super) fn write_agents(errand: &Errand) -> Answer {
    write(errand, below(errand.scratch().project(), AGENT_FILES))
}

pub(super) fn write_shell_files(errand: &Errand) -> Answer {
    write(errand, below(errand.scratch().home(), SHELL_FILES))
}

pub(super) fn set_user_id(errand: &Errand) -> Answer {
    let mut attempts = Attempts::default();
    let file = errand.scratch().project().join("plain");
    attempts.add("chmod u+s", fs::set_permissions(file, fs::Permissions::from_mode(0o4755)));
    attempts.answer()
}
