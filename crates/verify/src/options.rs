//! What `sandbox-verify` was told, and what it does with it. Owns the one definition of its flags, the forms of a report and the exit
//! codes. Called by the program's `main`.

use std::fs;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cofferdam_audit::{Stamp, statement};
use cofferdam_host::Surroundings;
use cofferdam_host::policy_files::user_config;
use cofferdam_kernel::process;

use crate::answer::Answer;
use crate::errand::Errand;
use crate::progress::Progress;
use crate::report::Report;
use crate::verification::{Wanted, verify};
use crate::walls::Wall;
use crate::{html, launching, markdown, probe, signing, text};

/// A required wall does not hold, or a report is not to be believed.
const FAILED: u8 = 1;
/// A report is to be believed, and does not show that every required wall of its host holds.
const SHOWS_LESS: u8 = 2;
/// Wrong usage, or nothing could be verified.
const OUR_FAILURE: u8 = 125;

/// Try the walls of this host, kernel and policy, each with its negative control
///
/// Each check runs inside a session of its own, on a scratch project with canaries, and again without its wall, where it has to get
/// through: a check that cannot proves nothing and is reported as such. Ends with 1 when a required wall does not hold.
#[derive(Debug, Parser)]
#[command(name = "sandbox verify", bin_name = "sandbox verify", version, args_conflicts_with_subcommands = true)]
struct Typed {
    #[command(subcommand)]
    errand: Option<Inner>,
    /// Verify with this file as the user's policy, instead of the user's own
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Print the signed report as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Write the report as a page to FILE
    #[arg(long, value_name = "FILE", group = "form")]
    html: Option<PathBuf>,
    /// Print the report as Markdown
    #[arg(long, group = "form")]
    markdown: bool,
    /// Check a JSON report instead: its signature, its age, and whether it shows that every required wall holds
    #[arg(long, value_name = "REPORT", conflicts_with_all = ["policy", "form", "switch_off", "only"])]
    check: Option<PathBuf>,
    /// The public key that signed it; else this user's own
    #[arg(long, value_name = "HEX", requires = "check")]
    key: Option<String>,
    /// Make only this check, and answer no checklist
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Leave a wall out of every session, to see that this is noticed
    #[arg(long, value_name = "WALL")]
    switch_off: Vec<Wall>,
}

/// What this program starts itself as.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
enum Inner {
    #[command(hide = true)]
    Launch { errand: String },
    #[command(hide = true)]
    Probe { name: String, errand: String },
    #[command(hide = true)]
    Stand {
        /// To be seen in its command line.
        token: String,
    },
}

/// The whole program.
pub fn run() -> ExitCode {
    match Typed::try_parse() {
        Ok(Typed { errand: Some(errand), .. }) => inner(&errand),
        Ok(typed) => outer(&typed).unwrap_or_else(|why| {
            say(&format!("error: {why}\n"));
            ExitCode::from(OUR_FAILURE)
        }),
        Err(error) => {
            let code = if error.use_stderr() { OUR_FAILURE } else { 0 };
            say_or_print(&error);
            ExitCode::from(code)
        }
    }
}

fn inner(errand: &Inner) -> ExitCode {
    let parsed = |text: &str| serde_json::from_str::<Errand>(text);
    match errand {
        Inner::Launch { errand } => {
            parsed(errand).map_or(ExitCode::from(OUR_FAILURE), |errand| launching::launch(&errand))
        }
        Inner::Probe { name, errand } => {
            let answer = parsed(errand).map_or_else(
                |error| Answer::Unclear(format!("no errand: {error}")),
                |errand| probe::run(name, &errand),
            );
            print(&format!("{}\n", answer.line()))
        }
        Inner::Stand { .. } => {
            // A canary that any process of this user may trace, also where only children can be.
            let open = rustix::process::set_ptracer(rustix::process::PTracer::Any);
            cofferdam_kernel::best_effort(open, "a kernel without Yama has no such rule");
            let until_closed = std::io::stdin().read_to_end(&mut Vec::new());
            if until_closed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn outer(typed: &Typed) -> Result<ExitCode, String> {
    if process::has_raised_privilege() {
        return Err("sandbox-verify must not be installed set-user-ID or with file capabilities".to_owned());
    }
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let around = Surroundings::look(&environment).map_err(|error| error.to_string())?;
    if let Some(file) = &typed.check {
        return check(file, typed.key.as_deref(), &around.state);
    }
    let own_policy = Some(user_config(&around, &environment)).filter(|path| path.exists());
    let wanted = Wanted {
        policy: typed.policy.clone().or(own_policy),
        only: typed.only.clone(),
        switched_off: typed.switch_off.clone(),
        home: around.home.clone(),
    };
    let progress = Progress::on(std::io::stderr(), std::io::stderr().is_terminal());
    let report = verify(&wanted, &|done, all| progress.tell(done, all));
    progress.end();
    let mut report = report.map_err(|error| in_words(&error))?;
    signing::sign(&mut report, &around.state).map_err(|errno| format!("the report cannot be signed: {errno}"))?;
    let told = tell(typed, &report)?;
    Ok(if holds(&report) { told } else { ExitCode::from(FAILED) })
}

/// A run that showed nothing shows no wall.
fn holds(report: &Report) -> bool {
    report.summary.required_failed == 0 && report.summary.contained > 0
}

fn tell(typed: &Typed, report: &Report) -> Result<ExitCode, String> {
    if let Some(file) = &typed.html {
        fs::write(file, html::page(report)).map_err(|error| format!("cannot write `{}`: {error}", file.display()))?;
        return Ok(print(&format!("{}\n", text::summary(report))));
    }
    Ok(print(&match (typed.json, typed.markdown) {
        (true, _) => signing::text(report),
        (false, true) => markdown::page(report),
        (false, false) => text::table(report),
    }))
}

fn check(file: &Path, key: Option<&str>, state: &Path) -> Result<ExitCode, String> {
    let mut bytes = Vec::new();
    let read = fs::File::open(file).and_then(|file| file.take(signing::MOST_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read `{}`: {error}", file.display()))?;
    let own = || statement::public_key(state).map_err(|errno| format!("this user's key cannot be read: {errno}"));
    let key = match key {
        Some(key) => key.to_owned(),
        None => own()?.ok_or("this user has no key; name the one that signed with --key")?,
    };
    Ok(match signing::checked(&bytes, &key) {
        Ok(report) => {
            let printed = print(&text::checked(&report, &key, Stamp::now()));
            let is_whole = report.left_out().next().is_none();
            if is_whole && holds(&report) { printed } else { ExitCode::from(SHOWS_LESS) }
        }
        Err(why) => {
            say(&format!(
                "error: `{}` is not to be believed: {why}\n",
                crate::answer::printable(&file.to_string_lossy())
            ));
            ExitCode::from(FAILED)
        }
    })
}

fn in_words(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// A reader that went away is no failure of ours.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::from(OUR_FAILURE),
        _ => ExitCode::SUCCESS,
    }
}

fn say(text: &str) {
    if std::io::stderr().write_all(text.as_bytes()).is_err() {
        // There is no other place to say it.
    }
}

fn say_or_print(error: &clap::Error) {
    if error.print().is_err() {
        // The same.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_one_form_and_a_check_is_nothing_else() {
        let parse = |words: &[&str]| Typed::try_parse_from([&["x"], words].concat()).map_err(|error| error.kind());
        assert!(parse(&["--json", "--policy", "p.toml", "--switch-off", "filter"]).is_ok());
        assert!(parse(&["--check", "r.json", "--key", "00"]).is_ok());
        for wrong in
            [&["--json", "--markdown"][..], &["--check", "r", "--json"], &["--key", "00"], &["--switch-off", "x"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_run_that_shows_nothing_does_not_hold() {
        let mut report = crate::report::sample();
        report.summary.required_failed = 0;
        assert!(holds(&report));
        report.summary.contained = 0;
        assert!(!holds(&report));
    }
}
