//! The end of a session, as the operator reads it whether or not the command succeeded: what the sandbox itself could not do,
//! and where things are. Owns those lines and the exit code; why a command failed is `denials`'s. Called by `run` and `learn`.

use cofferdam_host::preparation::Prepared;
use cofferdam_plan::Searched;
use cofferdam_policy::Transaction;
use cofferdam_supervisor::Outcome;
use cofferdam_workspace as workspace;

use crate::commands::changes::{apply_auto, close};
use crate::render::output::{escaped, say};
use crate::render::{changes, fallen_covers, obeyed};

/// A command that succeeded while its output was lost has not: programs that see the error say so themselves.
pub(crate) fn code_of(outcome: &Outcome) -> u8 {
    match outcome.end.exit_code() {
        0 if outcome.output_failed.is_some() => 1,
        code => code,
    }
}

/// What waits for a person, or was applied.
fn of_transaction(prepared: &Prepared, outcome: &Outcome) -> Vec<String> {
    let Some(path) = &outcome.transaction else {
        return prepared.plan.transaction.is_on().then(|| changes::nothing_changed(&[])).into_iter().collect();
    };
    if outcome.end.is_for_safety() {
        return vec![changes::untouched(&outcome.session)];
    }
    if prepared.plan.transaction == Transaction::Auto {
        return match apply_auto(path) {
            Ok((done, left)) => changes::after_auto(&outcome.session, &done, &left),
            Err(error) => vec![format!("{}: the changes wait in {}", escaped(&error.to_string()), path.display())],
        };
    }
    let found = workspace::Transaction::look(path).ok();
    match found.as_ref().and_then(|transaction| Some((transaction, transaction.changes().ok()?))) {
        Some((transaction, found)) if found.iter().all(workspace::Changes::is_without_work) => {
            if transaction.has_checkpoints() {
                return vec![changes::only_steps(transaction.id())];
            }
            close(path);
            vec![changes::nothing_changed(&found)]
        }
        Some((transaction, found)) => changes::after_session(transaction, &found),
        None => vec![format!("what was changed is in {}", path.display())],
    }
}

/// What the sandbox itself could not do, and where things are.
pub(crate) fn tell_of_session(prepared: &Prepared, outcome: &Outcome) {
    for line in of_transaction(prepared, outcome) {
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
    for told in &outcome.summary.answers {
        for line in told.lines() {
            say!("sandbox: {}", escaped(line));
        }
    }
    if let Some(path) = &outcome.left_behind {
        say!("sandbox: {} is not removed yet; later sessions go on with it", path.display());
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
}
