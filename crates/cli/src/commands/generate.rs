//! Help, completions and manual page, all from the one definition of flags in `args`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use cofferdam_host::policy_files::text::WriteError;

use crate::args::Cli;
use crate::render::exit::OUR_FAILURE;
use crate::render::output::{escaped, print, say_text};
use crate::render::report;

/// What clap says about a command line it does not take. Help and version are no failures.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        say_text(&format!("{}{}", error.render(), hint(error).unwrap_or_default()));
        let words: Vec<OsString> = std::env::args_os().collect();
        if let Some(object) = report::misused(&words, error, OUR_FAILURE) {
            report::say_json(&object);
        }
        ExitCode::from(OUR_FAILURE)
    } else {
        print(&error.render().to_string())
    }
}

/// `sandbox run npm test` is what most people type first.
fn hint(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_command = error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-');
    is_command.then(|| format!("hint: put `--` before the command: `sandbox run -- {} ...`\n", escaped(word)))
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
