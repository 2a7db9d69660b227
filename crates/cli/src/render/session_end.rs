//! The end of a session, as the operator reads it whether or not the command succeeded: what the sandbox itself could not do,
//! and where things are. Owns those lines and the exit code; why a command failed is `denials`'s. Called by `run` and `learn`.

use cofferdam_host::preparation::Prepared;
use cofferdam_plan::Searched;
use cofferdam_policy::{Transaction, presets_that_keep};
use cofferdam_supervisor::Outcome;
use cofferdam_workspace::{self as workspace, Changes};
use serde_json::Value;

use crate::commands::changes::{apply_auto, close};
use crate::render::output::{escaped, flag_path, say};
use crate::render::{changes, fallen_covers, obeyed};
use crate::waiting::others_wait;

/// A command that succeeded while its output was lost has not: programs that see the error say so themselves.
pub(crate) fn code_of(outcome: &Outcome) -> u8 {
    match outcome.end.exit_code() {
        0 if outcome.output_failed.is_some() => 1,
        code => code,
    }
}

/// What became of a transaction at the end of its session.
#[derive(Debug, Default)]
pub(crate) struct TransactionEnd {
    lines: Vec<String>,
    /// For programs; none where there was no transaction.
    pub(crate) counts: Option<Value>,
    /// A person may be asked about what waits.
    pub(crate) is_open: bool,
}

/// What waits for a person, or was applied.
fn of_transaction(prepared: &Prepared, outcome: &Outcome) -> TransactionEnd {
    let told = |lines: Vec<String>, waiting: &[Changes], applied: usize| TransactionEnd {
        lines,
        counts: Some(changes::counts_json(waiting, applied)),
        is_open: waiting.iter().any(|found| !found.changes.is_empty()),
    };
    let unread = |line: String| TransactionEnd { lines: vec![line], ..TransactionEnd::default() };
    let Some(path) = &outcome.transaction else {
        if prepared.plan.transaction.is_on() {
            return told(vec![changes::nothing_changed(&[])], &[], 0);
        }
        let is_asked = prepared.known.policy.transaction.value.is_on();
        let lines = is_asked.then(|| changes::no_transaction(&prepared.plan.command.cwd));
        return TransactionEnd { lines: lines.into_iter().collect(), ..TransactionEnd::default() };
    };
    let also = others_wait(&prepared.around.state, &outcome.session);
    if prepared.plan.transaction == Transaction::Auto && !outcome.end.is_for_safety() {
        return match apply_auto(path) {
            Ok((done, left)) => {
                told(changes::after_auto(&outcome.session, &done, &left, also), &left, done.taken.len())
            }
            Err(error) => unread(format!("{}: the changes wait in {}", escaped(&error.to_string()), path.display())),
        };
    }
    let found = workspace::Transaction::look(path).ok();
    let found = found.as_ref().and_then(|transaction| Some((transaction, transaction.changes().ok()?)));
    match found {
        found if outcome.end.is_for_safety() => {
            let waiting = found.map(|(_, waiting)| waiting).unwrap_or_default();
            // Nothing that it made is taken by a key.
            TransactionEnd { is_open: false, ..told(vec![changes::untouched(&outcome.session, also)], &waiting, 0) }
        }
        Some((transaction, found)) if found.iter().all(Changes::is_without_work) => {
            if transaction.has_checkpoints() {
                return told(vec![changes::only_steps(transaction.id())], &found, 0);
            }
            close(path);
            told(vec![changes::nothing_changed(&found)], &found, 0)
        }
        Some((transaction, found)) => told(changes::after_session(transaction, &found, also), &found, 0),
        None => unread(format!("what was changed is in {}", path.display())),
    }
}

/// Of a session whose changes are left as they are.
pub(crate) fn waiting_counts(outcome: &Outcome) -> Option<Value> {
    let transaction = workspace::Transaction::look(outcome.transaction.as_ref()?).ok()?;
    Some(changes::counts_json(&transaction.changes().ok()?, 0))
}

/// What the sandbox itself could not do, and where things are.
pub(crate) fn tell_of_session(prepared: &Prepared, outcome: &Outcome) -> TransactionEnd {
    let transaction = of_transaction(prepared, outcome);
    for line in &transaction.lines {
        say!("sandbox: {line}");
    }
    if let Some(entry) = &outcome.summary.quarantined {
        let path = entry.path.display().to_string();
        say!(
            "sandbox: {} may not run any more; `sandbox quarantine release {} --reason TEXT` lets it",
            escaped(&path),
            &entry.hash[..12]
        );
    }
    for exposed in &outcome.exposed {
        say!("sandbox: {}", escaped(exposed));
    }
    for fallen in &outcome.fallen {
        say!("sandbox: {}", escaped(&fallen_covers::line(fallen)));
    }
    for line in obeyed::lines(&outcome.obeyed) {
        say!("sandbox: {line}");
    }
    if let Some(line) = thrown_away(prepared, outcome) {
        say!("sandbox: {}", escaped(&line));
    }
    for told in &outcome.summary.answers {
        for line in told.lines() {
            say!("sandbox: {}", escaped(line));
        }
    }
    if let Some(path) = &outcome.left_behind {
        say!("sandbox: {} could not be removed in time; the next sessions go on removing it", path.display());
    }
    let unseen = prepared.known.facts.searched.as_ref().and_then(Searched::tell_unseen);
    if let Some(unseen) = unseen {
        say!("sandbox: names to hide were not looked for everywhere: {}", escaped(&unseen));
    }
    for directory in &prepared.known.facts.unlisted {
        let directory = directory.display().to_string();
        say!(
            "sandbox: {} was not looked through to the end: what matches patterns there, and what links in it lead to, may not be protected",
            escaped(&directory)
        );
    }
    for file in &prepared.known.facts.unfollowed {
        let file = file.display().to_string();
        say!("sandbox: {} includes more files than are followed: the others may not be protected", escaped(&file));
    }
    if let Some(errno) = outcome.output_failed {
        say!("sandbox: output could not be written: {}", std::io::Error::from_raw_os_error(errno));
    }
    if outcome.log_failed {
        say!("sandbox: the log in {} could not be written", prepared.around.state.display());
    }
    if outcome.is_unlisted {
        say!(
            "sandbox: `sandbox ps` did not list this session: {} could not be written",
            prepared.around.state.display()
        );
    }
    transaction
}

/// Which caches the next session will not find, and what keeps them.
fn thrown_away(prepared: &Prepared, outcome: &Outcome) -> Option<String> {
    if outcome.thrown_away.is_empty() || prepared.plan.gate.as_ref().is_some_and(|gate| gate.learns) {
        return None;
    }
    let places = prepared.known.facts.places();
    let mut flags: Vec<String> = Vec::new();
    for path in &outcome.thrown_away {
        let preset = presets_that_keep(path, &places).first().map(|preset| format!("--preset {preset}"));
        let flag = preset.unwrap_or_else(|| format!("--rw {}", flag_path(path)));
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    let written: Vec<String> = outcome.thrown_away.iter().map(|path| path.display().to_string()).collect();
    Some(format!("written for this session only: {}; {} keeps it", written.join(", "), flags.join(" ")))
}
