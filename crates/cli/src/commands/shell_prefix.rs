//! `sandbox shell-prefix`: the program that an agent outside puts before each command of its shell tool. Owns that program, a script
//! that calls this command again, and how such a call reads; the session is `sandbox run`'s. Called by `main`, which runs what comes
//! back.

use std::fs::{DirBuilder, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_host::{HomeError, Surroundings, SurveyError};
use cofferdam_policy::BY_HAND;
use cofferdam_wire::order::Given;
use thiserror::Error;

use crate::args::policy_flags::PolicyArgs;
use crate::args::run::{ChosenArgs, RunArgs, ShellPrefixArgs};
use crate::environment::{environment, own_home, own_state};
use crate::render::output::{print, say};

/// Why there is no such program.
#[derive(Debug, Error)]
pub(crate) enum ShellPrefixError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error("cannot write `{path}`")]
    Write { path: PathBuf, source: io::Error },
    #[error("`{cwd}` is not in the project that this prefix is for, `{project}`")]
    Elsewhere { cwd: PathBuf, project: PathBuf },
}

/// What `sandbox run` is to do; without a command there is only the program's path to print.
pub(crate) fn order(args: ShellPrefixArgs) -> Result<Option<RunArgs>, ShellPrefixError> {
    let ShellPrefixArgs { mut policy, chosen, words } = args;
    let around = Surroundings::chosen(&environment(), &chosen.chosen())?;
    if words.is_empty() {
        if around.project.is_none() {
            say!("{NO_PROJECT}");
        }
        print(&format!("{}\n", script(&policy, &chosen, &around)?.display()));
        return Ok(None);
    }
    // The agent says where its shell stands: it does not choose what is the project.
    if let Some(project) = around.project.filter(|project| chosen.names_project() && !around.cwd.starts_with(project)) {
        return Err(ShellPrefixError::Elsewhere { cwd: around.cwd, project });
    }
    if let [line] = words.as_slice() {
        let snapshot = snapshot(line, &own_home()?);
        policy.0.extend(snapshot.map(|path| Given { flag: "--ro".to_owned(), value: path.into_os_string() }));
    }
    Ok(Some(RunArgs { chosen, ..RunArgs::of(policy, false, argv(words)) }))
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

/// Said where it is made, and by each command: printing nothing would have the agent run its commands outside.
const NO_PROJECT: &str = "sandbox shell-prefix: this prefix runs nothing, it was made outside of a project: make it there, or with --project DIR";

/// Agents take one word, without options: each project and each set of options is a script of its own, where no session writes.
fn script(policy: &PolicyArgs, chosen: &ChosenArgs, around: &Surroundings) -> Result<PathBuf, ShellPrefixError> {
    let program = std::env::current_exe().map_err(|source| ShellPrefixError::Write { path: PathBuf::new(), source })?;
    let mut text = b"#!/bin/sh\n".to_vec();
    if let Some(project) = &around.project {
        let mut words = vec![program.into_os_string().into_encoded_bytes(), b"shell-prefix".to_vec()];
        words.push([b"--project=", project.as_os_str().as_bytes()].concat());
        words.extend(
            chosen
                .files(&around.cwd)
                .into_iter()
                .map(|(flag, value)| [flag.as_bytes(), b"=", value.as_bytes()].concat()),
        );
        words.extend(policy.0.iter().map(|given| option(given, &around.cwd)));
        text.extend_from_slice(b"exec");
        for word in words {
            text.push(b' ');
            text.extend(quoted(&word));
        }
        text.extend_from_slice(b" -- \"$@\"\n");
    } else {
        text.extend_from_slice(b"echo ");
        text.extend(quoted(NO_PROJECT.as_bytes()));
        text.extend_from_slice(b" >&2\nexit 126\n");
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let directory = own_state()?.join("shell-prefix");
    let path = directory.join(format!("{:016x}", hasher.finish()));
    write(&directory, &path, &text).map_err(|source| ShellPrefixError::Write { path: path.clone(), source })?;
    Ok(path)
}

/// A path that was typed here means the same wherever the agent's shell stands.
fn option(given: &Given, cwd: &Path) -> Vec<u8> {
    let known = BY_HAND.iter().find(|known| known.flag == given.flag);
    let is_switch = known.is_some_and(|known| known.value.is_empty());
    let is_path = known.is_some_and(|known| known.value == "PATH");
    let typed = given.value.as_bytes();
    if is_switch {
        return given.flag.clone().into_bytes();
    }
    let is_relative = is_path && !typed.starts_with(b"/") && !typed.starts_with(b"~") && !typed.starts_with(b"$");
    let value = if is_relative { cwd.join(&given.value).into_os_string() } else { given.value.clone() };
    [given.flag.as_bytes(), b"=", value.as_bytes()].concat()
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
