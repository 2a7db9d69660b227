//! Help, completions and manual page, all from the one definition of flags in `args`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use cofferdam_host::policy_files::text::WriteError;
use cofferdam_policy::did_you_mean;

use crate::args::Cli;
use crate::render::exit::OUR_FAILURE;
use crate::render::output::{print, say_text};
use crate::render::report;

/// What clap says about a command line it does not take. Help and version are no failures.
pub(crate) fn usage(mut error: clap::Error) -> ExitCode {
    if error.use_stderr() {
        let hint = hint(&mut error);
        say_text(&format!("{}{}", error.render(), hint.unwrap_or_default()));
        let words: Vec<OsString> = std::env::args_os().collect();
        if let Some(object) = report::misused(&words, &error, OUR_FAILURE) {
            report::say_json(&object);
        }
        ExitCode::from(OUR_FAILURE)
    } else {
        print(&error.render().to_string())
    }
}

/// What other tools call what is called otherwise here.
const CALLED_HERE: &[(&[&str], &str)] = &[
    (&["exec", "enter", "shell"], "sandbox attach SESSION -- COMMAND"),
    (&["list", "ls", "status", "sessions"], "sandbox ps"),
    (&["stop", "end", "rm"], "sandbox kill SESSION"),
    (&["prune", "clean", "discard", "drop"], "sandbox changes, and sandbox rollback --session SESSION"),
    (&["apply", "accept", "merge"], "sandbox commit"),
    (&["config", "show", "profile", "profiles"], "sandbox policy show"),
    (&["monitor", "stats", "htop"], "sandbox top"),
    (&["check", "test"], "sandbox doctor, or sandbox policy check FILE"),
    (&["log", "history"], "sandbox logs last, or sandbox audit"),
];

/// Likeness of letters alone suggests `run` for `prune`: what means the same is told, and otherwise only what a slip of a finger makes.
fn hint(error: &mut clap::Error) -> Option<String> {
    let kinds = match error.kind() {
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(kinds.0).cloned() else { return None };
    let is_slip = |suggested: &ContextValue| match suggested {
        ContextValue::String(one) => did_you_mean(&word, [one.as_str()]).is_some(),
        ContextValue::Strings(all) => did_you_mean(&word, all.iter().map(String::as_str)).is_some(),
        _ => true,
    };
    if error.get(kinds.1).is_some_and(|suggested| !is_slip(suggested)) {
        error.remove(kinds.1);
    }
    let called = CALLED_HERE.iter().find(|(words, _)| words.contains(&word.as_str()));
    let (_, here) = called.filter(|_| error.kind() == ErrorKind::InvalidSubcommand)?;
    Some(format!("hint: that is `{here}` here\n"))
}

pub(crate) fn completions(shell: clap_complete::Shell) -> ExitCode {
    print(&completion_script(shell))
}

pub(crate) fn completion_script(shell: clap_complete::Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sandbox", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

pub(crate) fn manual() -> Result<ExitCode, WriteError> {
    let mut text = Vec::new();
    let write = |source| WriteError { path: "the manual page".into(), source };
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut text).map_err(write)?;
    pages(&command, "sandbox", &mut text).map_err(write)?;
    Ok(print(&String::from_utf8_lossy(&text)))
}

/// A page for each command below, and for those below it.
fn pages(command: &clap::Command, above: &str, text: &mut Vec<u8>) -> std::io::Result<()> {
    for subcommand in command.get_subcommands() {
        let name = format!("{above} {}", subcommand.get_name());
        let renamed = subcommand.clone().name(name.replace(' ', "-")).bin_name(name.clone());
        clap_mangen::Man::new(renamed).render(text)?;
        pages(subcommand, &name, text)?;
    }
    Ok(())
}
