//! Directories and completion scripts that `sandbox setup` makes in the home. Owns that
//! nothing is replaced but a script of the same name; decides nothing. Called by `setup`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use cofferdam_host::home_directories;
use cofferdam_host::policy_files::text::WriteError;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::commands::generate::completion_script;

/// Makes what is missing of a directory below the home.
pub(super) fn directory(home: &Path, path: &Path) -> Result<OwnedFd, WriteError> {
    home_directories::make(home, path).map_err(|errno| WriteError { path: path.to_path_buf(), source: errno.into() })
}

/// Shells, and where each looks for completions of this user.
const COMPLETIONS: [(&str, Shell, &str); 3] = [
    ("bash", Shell::Bash, ".local/share/bash-completion/completions/sandbox"),
    ("zsh", Shell::Zsh, ".local/share/zsh/site-functions/_sandbox"),
    ("fish", Shell::Fish, ".config/fish/completions/sandbox.fish"),
];

/// Where a shell looks for completions of this user, and the script for it; None where it has no such place or says so already.
pub(super) fn completions(shell: &OsStr, home: &Path) -> Option<(PathBuf, String)> {
    let name = Path::new(shell).file_name()?.to_str()?;
    let (_, shell, place) = COMPLETIONS.into_iter().find(|(known, _, _)| *known == name)?;
    let (path, script) = (home.join(place), completion_script(shell));
    let is_there = std::fs::read(&path).is_ok_and(|text| text == script.as_bytes());
    (!is_there).then_some((path, script))
}

/// Those that are there, of this version or another: completions of another program of the name are none.
pub(crate) fn completions_written(home: &Path) -> Vec<PathBuf> {
    let written = |(_, _, place): (&str, Shell, &str)| {
        let path = home.join(place);
        let is_ours = || std::fs::read_to_string(&path).is_ok_and(|text| text.contains("shell-prefix"));
        (path.symlink_metadata().is_ok_and(|about| about.is_file()) && is_ours()).then_some(path)
    };
    COMPLETIONS.into_iter().filter_map(written).collect()
}

/// Replaces the script as a whole.
pub(super) fn write(home: &Path, path: &Path, text: &str) -> Result<(), WriteError> {
    let failed = |errno: Errno| WriteError { path: path.to_path_buf(), source: errno.into() };
    let parent = directory(home, path.parent().unwrap_or(home))?;
    let name = path.file_name().unwrap_or_default();
    let new = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&parent, &new, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
    let written = File::from(file).write_all(text.as_bytes());
    let written = written.map_err(|source| WriteError { path: path.to_path_buf(), source });
    let renamed = written.and_then(|()| rustix::fs::renameat(&parent, &new, &parent, name).map_err(failed));
    if renamed.is_err() && rustix::fs::unlinkat(&parent, &new, AtFlags::empty()).is_err() {
        // The error that is told is the first one.
    }
    renamed
}
