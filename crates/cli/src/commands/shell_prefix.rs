//! `sandbox shell-prefix`: the program that an agent outside puts before each command of its shell tool. Owns that program, a script
//! that calls this command again, and how such a call reads; the session is `sandbox run`'s. Called by `main`, which runs what comes
//! back.

use std::fs::{DirBuilder, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_host::HomeError;
use cofferdam_policy::BY_HAND;
use cofferdam_wire::order::Given;
use thiserror::Error;

use crate::args::policy_flags::PolicyArgs;
use crate::args::run::{RunArgs, ShellPrefixArgs};
use crate::environment::{own_home, own_state};
use crate::render::output::print;

/// Why there is no such program.
#[derive(Debug, Error)]
pub(crate) enum ShellPrefixError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error("cannot write `{path}`")]
    Write { path: PathBuf, source: io::Error },
}

/// What `sandbox run` is to do; without a command there is only the program's path to print.
pub(crate) fn order(args: ShellPrefixArgs) -> Result<Option<RunArgs>, ShellPrefixError> {
    let ShellPrefixArgs { mut policy, words } = args;
    if words.is_empty() {
        print(&format!("{}\n", script(&policy)?.display()));
        return Ok(None);
    }
    if let [line] = words.as_slice() {
        let snapshot = snapshot(line, &own_home()?);
        policy.0.extend(snapshot.map(|path| Given { flag: "--ro".to_owned(), value: path.into_os_string() }));
    }
    Ok(Some(RunArgs::of(policy, false, argv(words))))
}

/// One word is a command line, as Claude Code says it; options are a shell's (`-c LINE`), and more words are a command.
fn argv(words: Vec<String>) -> Vec<String> {
    let of_shell: &[&str] = match words.as_slice() {
        [_] => &["bash", "-c"],
        [first, ..] if first.starts_with('-') => &["bash"],
        _ => &[],
    };
    of_shell.iter().map(|&word| word.to_owned()).chain(words).collect()
}

/// What Claude Code has its shell read first: functions, aliases and PATH of the user's shell, in a directory that is hidden because of
/// those of other projects. The line begins with it; what the model wrote comes later, in quotes.
fn snapshot(line: &str, home: &Path) -> Option<PathBuf> {
    let (path, _) = line.strip_prefix("source ")?.split_once(" 2>/dev/null || true && ")?;
    let own = std::env::var_os("CLAUDE_CONFIG_DIR").map_or_else(|| home.join(".claude"), PathBuf::from);
    let path = Path::new(path);
    let name = path.file_name()?.to_str()?;
    let is_one = name.starts_with("snapshot-") && path.extension().is_some_and(|end| end == "sh");
    let is_there = || path.symlink_metadata().is_ok_and(|about| about.is_file());
    (is_one && path.parent()? == own.join("shell-snapshots") && is_there()).then(|| path.to_path_buf())
}

/// Agents take one word, without options: each set of options is a script of its own, where no session writes.
fn script(policy: &PolicyArgs) -> Result<PathBuf, ShellPrefixError> {
    let program = std::env::current_exe().map_err(|source| ShellPrefixError::Write { path: PathBuf::new(), source })?;
    let mut text = b"#!/bin/sh\nexec ".to_vec();
    let option = |given: &Given| {
        let is_switch = BY_HAND.iter().any(|known| known.flag == given.flag && known.value.is_empty());
        let value: &[u8] = if is_switch { b"" } else { given.value.as_bytes() };
        let sign: &[u8] = if is_switch { b"" } else { b"=" };
        [given.flag.as_bytes(), sign, value].concat()
    };
    let words = [program.as_os_str().as_bytes().to_vec(), b"shell-prefix".to_vec()];
    for word in words.into_iter().chain(policy.0.iter().map(option)) {
        text.extend(quoted(&word));
        text.push(b' ');
    }
    text.extend_from_slice(b"-- \"$@\"\n");
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let directory = own_state()?.join("shell-prefix");
    let path = directory.join(format!("{:016x}", hasher.finish()));
    write(&directory, &path, &text).map_err(|source| ShellPrefixError::Write { path: path.clone(), source })?;
    Ok(path)
}

/// Under a name of its own first: an agent may be starting it.
fn write(directory: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    if std::fs::read(path).is_ok_and(|written| written == text) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let beside = path.with_extension(std::process::id().to_string());
    OpenOptions::new().write(true).create_new(true).mode(0o700).open(&beside)?.write_all(text)?;
    std::fs::rename(&beside, path)
}

/// One word for a shell.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_snapshot_that_the_line_begins_with_is_given() {
        let home = std::env::temp_dir().join(format!("cofferdam-prefix-{}", std::process::id()));
        let directory = home.join(".claude/shell-snapshots");
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let file = directory.join("snapshot-bash-1-a.sh");
        std::fs::write(&file, "").expect("writable");
        std::os::unix::fs::symlink("/etc/shadow", directory.join("snapshot-link.sh")).expect("a link");
        std::fs::write(home.join(".claude/snapshot-x.sh"), "").expect("writable");
        let given = |line: &str| snapshot(&line.replace('~', &home.display().to_string()), &home);
        let rest = "2>/dev/null || true && eval 'ls' < /dev/null";
        assert_eq!(given(&format!("source ~/.claude/shell-snapshots/snapshot-bash-1-a.sh {rest}")), Some(file));
        for other in [
            format!("source ~/.claude/shell-snapshots/snapshot-link.sh {rest}"),
            format!("source ~/.claude/snapshot-x.sh {rest}"),
            format!("source ~/.claude/shell-snapshots/../snapshot-x.sh {rest}"),
            format!("source ~/.ssh/id_ed25519 {rest}"),
            format!("eval 'source ~/.claude/shell-snapshots/snapshot-bash-1-a.sh {rest}'"),
        ] {
            assert_eq!(given(&other), None, "{other}");
        }
        std::fs::remove_dir_all(&home).expect("ours");
    }

    #[test]
    fn a_call_is_a_line_or_options_of_a_shell_or_a_command() {
        let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
        for (given, expected) in [("ls; pwd", "bash|-c|ls; pwd"), ("-lc|ls", "bash|-lc|ls"), ("git|log", "git|log")] {
            assert_eq!(argv(words(given)), words(expected));
        }
        assert_eq!(quoted(b"it's $HOME"), b"'it'\\''s $HOME'");
    }
}
