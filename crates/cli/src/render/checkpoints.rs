//! The steps of a transaction as lines: the list of checkpoints, and what would come back and go. Owns those words; used by
//! `commands::checkpoints`.

use std::fmt::Write as _;
use std::path::Path;

use cofferdam_audit::Stamp;
use cofferdam_wire::session::short;
use cofferdam_workspace::Manifest;
use cofferdam_workspace::checkpoint::{By, Difference, Record, Would};

use crate::render::output::escaped;

/// Named one by one; the rest is counted.
const MOST_NAMED: usize = 40;

fn by(record: &Record) -> &'static str {
    match record.by {
        By::Exec => "command ended",
        By::Workload => "workload",
        By::Child => "child ended",
        By::Operator => "operator",
        By::Undo => "undo",
    }
}

/// As the log writes it, to the second.
fn time(seconds: u64) -> String {
    let text = Stamp(seconds.saturating_mul(1_000_000)).to_string();
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

pub(crate) fn list(records: &[Record]) -> String {
    if records.is_empty() {
        return "no checkpoint was taken yet\n".to_owned();
    }
    let mut text =
        format!("{:>4}  {:<19}  {:<13}  {:>5}  {}\n", "NO.", "TIME (UTC)", "BY", "NAMES", "LABEL, AND WHAT CHANGED");
    for record in records {
        let mut names: Vec<String> =
            record.first.iter().take(3).map(|path| escaped(&path.display().to_string())).collect();
        if record.names > names.len() {
            names.push("...".to_owned());
        }
        let label = escaped(&record.label);
        let gap = if label.is_empty() { "" } else { ": " };
        // Writing to a string does not fail.
        writeln!(
            text,
            "{:>4}  {}  {:<13}  {:>5}  {label}{gap}{}",
            record.number,
            time(record.made),
            by(record),
            record.names,
            names.join(", ")
        )
        .unwrap_or_default();
    }
    text
}

/// Where no checkpoint was taken.
pub(crate) fn nothing_new(last: usize, label: Option<&str>) -> String {
    let label = label.map_or_else(String::new, |label| format!(", and none is called `{}`", escaped(label)));
    let since = if last == 0 { "the session began".to_owned() } else { format!("checkpoint {last}") };
    format!("nothing has changed since {since}: no checkpoint was taken{label}\n")
}

pub(crate) fn preview(to: usize, differences: &[Difference], here: &Path) -> String {
    let at = if to == 0 { "the beginning of the session".to_owned() } else { format!("checkpoint {to}") };
    if differences.is_empty() {
        return format!("everything is as at {at} already\n");
    }
    let mut text = format!("back to {at}:\n");
    text.push_str(&named(differences, here));
    text
}

fn named(differences: &[Difference], here: &Path) -> String {
    let mut text = String::new();
    for one in differences.iter().take(MOST_NAMED) {
        let word = match one.would {
            Would::ComeBack => "comes back",
            Would::Go => "goes",
            Would::Change => "changes back",
        };
        let path = one.path.strip_prefix(here).unwrap_or(&one.path);
        writeln!(text, "  {word:<12}  {}", escaped(&path.display().to_string())).unwrap_or_default();
    }
    if differences.len() > MOST_NAMED {
        writeln!(text, "  and {} more", differences.len() - MOST_NAMED).unwrap_or_default();
    }
    text
}

pub(crate) fn before_commit(manifest: &Manifest, differences: &[Difference], here: &Path) -> String {
    let command = escaped(&manifest.command.join(" "));
    format!(
        "back to before the last commit to this directory: that of session {} ({command})\n{}",
        short(&manifest.session),
        named(differences, here)
    )
}

/// After an undo of which nothing is left to commit.
pub(crate) fn nothing_left(session: &str) -> String {
    let id = short(session);
    format!("nothing of session {id} is left to commit; `sandbox rollback --session {id}` closes it for good\n")
}

pub(crate) fn put_back(session: &str, before: usize, said: &str) -> String {
    let said = if said.is_empty() { String::new() } else { format!("{}\n", escaped(said)) };
    format!("{said}done; `sandbox rollback --to {before} --session {}` takes this back\n", short(session))
}
