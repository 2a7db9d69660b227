//! `sandbox clean --all`: removes everything that Cofferdam has of this user. Owns the order: what lies elsewhere for a session
//! first, then the state, then settings, then what was kept in projects. Called by `clean`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_host::Homes;
use cofferdam_host::policy_files::approvals::Approvals;
use cofferdam_supervisor::{finish_killed, live_sessions, release_killed};
use cofferdam_wire::session::short;
use cofferdam_workspace::transaction;
use serde_json::json;

use crate::args::clean::CleanArgs;
use crate::commands::clean::found::{Fate, look};
use crate::commands::clean::{CleanError, can_ask, trees};
use crate::commands::setup::completions_written;
use crate::confirm::is_confirmed;
use crate::environment::environment;
use crate::render::exit::{NOTHING, OUR_FAILURE};
use crate::render::output::{bytes, escaped, print, print_json, say};
use crate::waiting::all;

/// What `persist` writes beside a project's kept answers, and nothing else has.
const IGNORED: &str = "/.gitignore\n/policy.local.toml\n";

pub(super) fn leave(state: &Path, args: &CleanArgs) -> Result<ExitCode, CleanError> {
    refuse_if_used(state, args)?;
    let left = Left::look(state)?;
    if !args.json {
        print(&left.text(args));
    }
    if left.is_nothing() {
        return Ok(if args.json { print_json(&left.report(args, false, &[])) } else { ExitCode::SUCCESS });
    }
    let asks = |question: &str| args.yes || (can_ask(args) && is_confirmed(question));
    let takes_state = !args.dry_run && asks("remove the state, with the audit log, for good?");
    // The settings are the operator's own words: asked about by themselves.
    let takes_settings =
        takes_state && !left.settings.is_empty() && asks("remove your settings and what agents inside kept, too?");
    let takes_projects = takes_state
        && !left.projects.is_empty()
        && (args.projects
            || (can_ask(args) && !args.yes && is_confirmed("remove the answers kept in these projects, too?")));
    let mut failures = Vec::new();
    if takes_projects {
        left.projects.iter().for_each(|file| failures.extend(remove_kept(file).err()));
    }
    if takes_state {
        // It may have begun while it was asked.
        refuse_if_used(state, args)?;
        failures.extend(remove_state(state));
        left.completions.iter().for_each(|file| failures.extend(failed(file, std::fs::remove_file(file))));
    }
    if takes_settings {
        left.settings.iter().for_each(|directory| failures.extend(failed(directory, trees::remove(directory))));
    }
    if takes_state {
        left.remove_empty_parents(state);
    }
    if args.json {
        print_json(&left.report(args, takes_state, &failures));
    } else if !takes_state {
        say!("sandbox: nothing was removed; `sandbox clean --all --yes` does it without a question");
    } else if failures.is_empty() {
        print("removed; what is left: the programs themselves, and package caches that `sandbox setup` made\n");
    }
    for failure in failures.iter().filter(|_| !args.json) {
        say!("sandbox: {}", escaped(failure));
    }
    Ok(match (takes_state, failures.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (false, _) => ExitCode::from(NOTHING),
        (true, false) => ExitCode::from(OUR_FAILURE),
    })
}

/// A session that runs, and work that was never committed: both are told by name.
fn refuse_if_used(state: &Path, args: &CleanArgs) -> Result<(), CleanError> {
    let unread = |errno: rustix::io::Errno| CleanError::State { path: state.to_path_buf(), source: errno.into() };
    let sessions: Vec<String> =
        live_sessions(state).map_err(unread)?.iter().map(|session| short(&session.id).to_owned()).collect();
    if !sessions.is_empty() {
        return Err(CleanError::Runs { sessions });
    }
    if !args.transactions {
        let sessions: Vec<String> = look(state)
            .into_iter()
            .filter(|item| item.fate == Fate::Work)
            .map(|item| item.path.file_name().and_then(|name| name.to_str()).map_or("", short).to_owned())
            .collect();
        if !sessions.is_empty() {
            return Err(CleanError::Waits { sessions });
        }
    }
    Ok(())
}

/// Below the home: where presets of agents keep settings, logins and conversations.
const AGENTS: &str = ".local/share/cofferdam/agents";

/// All that is there.
struct Left {
    home: PathBuf,
    state: Option<PathBuf>,
    bytes: u64,
    settings: Vec<PathBuf>,
    completions: Vec<PathBuf>,
    /// Kept answers of projects.
    projects: Vec<PathBuf>,
}

impl Left {
    fn look(state: &Path) -> Result<Self, CleanError> {
        let environment = environment();
        let home = Homes::look(&environment)?.first;
        let config = environment.iter().find(|(name, value)| name == "XDG_CONFIG_HOME" && value.starts_with('/'));
        let config = config.map_or_else(|| home.join(".config"), |(_, value)| PathBuf::from(value)).join("cofferdam");
        let approvals = Approvals::load(state).unwrap_or_default();
        let is_kept = |file: &PathBuf| {
            file.file_name().is_some_and(|name| name == "policy.local.toml")
                && file.symlink_metadata().is_ok_and(|it| it.is_file())
        };
        Ok(Left {
            state: state.symlink_metadata().is_ok().then(|| state.to_path_buf()),
            bytes: trees::bytes(state),
            settings: [config, home.join(AGENTS)].into_iter().filter(|path| path.symlink_metadata().is_ok()).collect(),
            completions: completions_written(&home),
            projects: approvals.files().map(PathBuf::from).filter(is_kept).collect(),
            home,
        })
    }

    fn is_nothing(&self) -> bool {
        self.state.is_none() && self.settings.is_empty() && self.completions.is_empty()
    }

    fn text(&self, args: &CleanArgs) -> String {
        let mut out = String::new();
        let mut line = |word: &str, path: &Path, what: &str| {
            writeln!(out, "  {word:<5} {}  {what}", escaped(&path.display().to_string())).unwrap_or_default();
        };
        if let Some(state) = &self.state {
            line("goes", state, &format!("sessions, approvals, the audit log ({})", bytes(self.bytes)));
        }
        self.completions.iter().for_each(|file| line("goes", file, "completions"));
        for directory in &self.settings {
            let is_of_agents = directory.ends_with(AGENTS);
            line(
                "goes",
                directory,
                if is_of_agents { "what agents inside kept, logins too" } else { "your settings and profiles" },
            );
        }
        let word = if args.projects || can_ask(args) && !args.yes { "goes" } else { "stays" };
        self.projects.iter().for_each(|file| line(word, file, "answers kept in a project (`--projects`)"));
        if self.is_nothing() {
            out.push_str("nothing is there\n");
        }
        out
    }

    fn report(&self, args: &CleanArgs, removed: bool, failures: &[String]) -> serde_json::Value {
        json!({
            "version": 1, "state": self.state, "bytes": self.bytes, "settings": self.settings,
            "completions": self.completions, "projects": self.projects, "dry_run": args.dry_run, "removed": removed,
            "failures": failures,
        })
    }

    /// Those that were made on the way, where nothing else is in them.
    fn remove_empty_parents(&self, state: &Path) {
        let paths = [state].into_iter().chain(self.settings.iter().chain(&self.completions).map(PathBuf::as_path));
        for path in paths {
            let above =
                path.ancestors().skip(1).take_while(|above| *above != self.home && above.starts_with(&self.home));
            for directory in above {
                if rustix::fs::rmdir(directory).is_err() {
                    break;
                }
            }
        }
    }
}

fn failed(path: &Path, done: std::io::Result<()>) -> Option<String> {
    done.err().map(|error| format!("{}: {error}", path.display()))
}

/// What a session has outside of the state goes first: names that it holds in projects, and what a commit staged beside them.
fn remove_state(state: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    if state.symlink_metadata().is_err() {
        return failures;
    }
    finish_killed(state);
    match release_killed(state) {
        Ok(0) => {}
        Ok(left) => {
            failures.push(format!("names that {left} killed sessions hold in projects could not be given back"));
        }
        Err(errno) => failures.push(format!("names that sessions hold in projects: {errno}")),
    }
    for one in all(state) {
        let dropped = if one.state.waits() { transaction::roll_back(&one.path) } else { Ok(()) };
        let pruned =
            dropped.and_then(|()| if one.path.exists() { transaction::prune(&one.path).map(drop) } else { Ok(()) });
        failures.extend(pruned.err().map(|error| format!("{}: {error}", one.path.display())));
    }
    if failures.is_empty() {
        failures.extend(failed(state, trees::remove(state)));
    }
    failures
}

/// A repository's own files stay.
fn remove_kept(file: &Path) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", file.display());
    let Some(directory) = file.parent() else { return Ok(()) };
    if trees::own(directory).map_err(told)?.is_none() {
        return Ok(());
    }
    std::fs::remove_file(file).map_err(told)?;
    let ignore = directory.join(".gitignore");
    if ignore.symlink_metadata().is_ok_and(|about| about.is_file())
        && std::fs::read(&ignore).is_ok_and(|text| text == IGNORED.as_bytes())
    {
        std::fs::remove_file(&ignore).map_err(told)?;
    }
    // Where the repository has a policy of its own, it is not empty.
    rustix::fs::rmdir(directory)
        .or_else(|errno| if errno == rustix::io::Errno::NOTEMPTY { Ok(()) } else { Err(told(errno.into())) })
}
