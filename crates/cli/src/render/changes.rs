//! What sessions wrote in transactions, as lines and as JSON. Owns those words; which changes there are is `workspace`'s, which
//! are taken is `commands::changes`'s.

use std::fmt::Write as _;
use std::path::Path;

use cofferdam_policy::ObeyedClass;
use cofferdam_wire::session::short;
use cofferdam_workspace::diff::{self, Difference};
use cofferdam_workspace::{Change, Changes, Committed, Conflict, Entry, Kind, Manifest, State, Transaction, What, Why};
use serde_json::{Value, json};

use crate::render::output::escaped;
use crate::waiting::{Classes, Found};

/// Named one by one after a session; the rest is counted.
const MOST_NAMED: usize = 12;

pub(crate) fn name(path: &Path) -> String {
    escaped(&path.display().to_string())
}

pub(crate) fn letter(what: What) -> char {
    match what {
        What::Added => 'A',
        What::Modified => 'M',
        What::Deleted => 'D',
        What::Replaced => 'T',
    }
}

fn why(conflict: Conflict) -> &'static str {
    match conflict {
        Conflict::Changed => "the host changed it meanwhile",
        Conflict::Removed => "the host removed it meanwhile, or worked in the directory that it was moved to",
        Conflict::Repository => {
            "the host has worked in the repository, too: its branches and its index stay, and the session's commits get a branch of their own when you commit; `sandbox rollback` drops the rest afterwards"
        }
        Conflict::Unit => "it goes with something that is in conflict",
        Conflict::Held => "something in it stays: a hidden name, another file system, or what cannot be read",
        Conflict::LeavesTree => "a link that leads out would take the place of something",
    }
}

/// What can be done about conflicts: said once, below all of them.
fn ways_out<'a>(changes: impl Iterator<Item = &'a Change>) -> Option<&'static str> {
    let (mut has_both, mut has_any) = (false, false);
    for change in changes {
        has_both |= change.conflict == Some(Conflict::Changed) && change.what == What::Modified;
        has_any |= matches!(change.conflict, Some(Conflict::Changed | Conflict::Removed));
    }
    match (has_both, has_any) {
        (true, _) => Some(
            "The host's version of a conflict stays: `sandbox commit --merge PATH` merges both, where they changed other lines of a text; `sandbox commit --overwrite PATH` takes the session's.",
        ),
        (false, true) => {
            Some("The host's version of a conflict stays: `sandbox commit --overwrite PATH` takes the session's.")
        }
        _ => None,
    }
}

fn skipped(why: Why) -> &'static str {
    match why {
        Why::Device => "a device",
        Why::Fifo => "a pipe",
        Why::Lock => "a lock of git that its process left",
        Why::Socket => "a socket",
        Why::Hidden => "a name that the policy hides",
        Why::TooDeep => "too deep",
        Why::TooLarge => "too large",
        Why::Unreadable => "it cannot be read",
        Why::OtherMount => "another file system is mounted there",
        Why::Unseen => "the host's, and not in the copy that the session worked on",
    }
}

/// What a person must know about a change besides its name.
pub(crate) fn remarks(classes: &Classes<'_>, tree: usize, change: &Change) -> Vec<String> {
    remarks_where(classes, tree, change, "needs --opens")
}

/// The same where other words say how a person takes what host programs obey without being asked.
pub(crate) fn remarks_where(classes: &Classes<'_>, tree: usize, change: &Change, opens: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(obeyed) = classes.obeyed(tree, change) {
        let when = match obeyed.class {
            ObeyedClass::Opens => opens,
            ObeyedClass::Runs => "runs when asked",
        };
        remarks.push(format!("{when}: {}", obeyed.why));
    }
    remarks.extend(change.conflict.map(|conflict| format!("conflict: {}", why(conflict))));
    if change.leaves_tree() {
        remarks.push("leads out of the project".to_owned());
    }
    let mode = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.mode);
    match (mode(&change.before), mode(&change.after)) {
        (Some(old), Some(new)) if old != new && change.kind() != Kind::Link => {
            remarks.push(format!("mode {old:o} to {new:o}"));
        }
        _ => {}
    }
    remarks
}

/// A new object of the project's own repository: named by what it holds, and of no use to a reader.
pub(crate) fn is_object(change: &Change) -> bool {
    let Ok(inside) = change.path.strip_prefix(".git/objects") else { return false };
    let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
    let is_hex = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_named = match parts.as_slice() {
        [directory, rest] if is_hex(directory, 2) => is_hex(rest, 38) || is_hex(rest, 62),
        ["pack", pack] => pack.starts_with("pack-") && [".pack", ".idx", ".rev"].iter().any(|end| pack.ends_with(end)),
        [directory] => is_hex(directory, 2) && change.kind() == Kind::Directory,
        _ => false,
    };
    let is_plain = matches!(change.kind(), Kind::File | Kind::Directory);
    is_named && is_plain && change.what == What::Added && inside.iter().count() == parts.len()
}

/// Refs, `HEAD` and index where both sides have commits: they are told in one line, and none can be taken by its name.
fn is_held_ref(change: &Change) -> bool {
    change.conflict == Some(Conflict::Repository)
}

fn held_refs(count: usize) -> String {
    format!("  M {} of git's refs, HEAD and index\n      conflict: {}", names(count), why(Conflict::Repository))
}

fn counts(changes: &[Changes]) -> (usize, usize, usize, usize) {
    let all = || changes.iter().flat_map(|found| &found.changes);
    let of = |what: &[What]| all().filter(|change| what.contains(&change.what)).count();
    let conflicts = all().filter(|change| change.conflict.is_some()).count();
    (of(&[What::Added]), of(&[What::Modified, What::Replaced]), of(&[What::Deleted]), conflicts)
}

/// `2 new, 1 changed`, or none.
fn counted(changes: &[Changes]) -> String {
    let (added, modified, deleted, conflicts) = counts(changes);
    let parts = [(added, "new"), (modified, "changed"), (deleted, "removed"), (conflicts, "in conflict")];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// `sandbox changes`.
pub(crate) fn table(found: &[Found], changes: &[Option<Vec<Changes>>], is_all: bool) -> String {
    if found.is_empty() && is_all {
        return "No changes wait, and none that were committed or dropped are kept.\n".to_owned();
    }
    if found.is_empty() {
        return "No changes wait.\n".to_owned();
    }
    let mut text = format!("{:<14} {:<11} {:<36} COMMAND\n", "SESSION", "STATE", "CHANGES");
    for (one, changes) in found.iter().zip(changes) {
        let what = match (changes, one.state) {
            (_, State::Lost) => "lost with the machine".to_owned(),
            (_, State::Committed) => "none wait: all were taken".to_owned(),
            (_, State::RolledBack) => "none wait: the rest was dropped".to_owned(),
            // It was undone: a session that changed nothing is not kept.
            (Some(changes), State::Open) => counted(changes),
            (Some(changes), _) if changes.iter().all(|found| found.changes.is_empty()) => {
                "nothing; `rollback --session` closes it".to_owned()
            }
            (Some(changes), _) => counted(changes),
            (None, _) => "cannot be read".to_owned(),
        };
        let (id, command) = (short(&one.manifest.session), escaped(&one.manifest.command.join(" ")));
        // Writing to a string does not fail.
        writeln!(text, "{id:<14} {:<11} {what:<36} {command}", one.state.name()).unwrap_or_default();
        for tree in &one.manifest.trees {
            writeln!(text, "{:<14} in {}", "", name(&tree.lower)).unwrap_or_default();
        }
    }
    text
}

fn counts_of(changes: &[Changes]) -> Value {
    let (added, modified, deleted, conflicts) = counts(changes);
    json!({ "added": added, "modified": modified, "deleted": deleted, "conflicts": conflicts })
}

/// What waits at the end of a session, and how many names were applied without a question.
pub(crate) fn counts_json(waiting: &[Changes], applied: usize) -> Value {
    let mut counts = counts_of(waiting);
    counts["applied"] = json!(applied);
    counts
}

pub(crate) fn listed(found: &Found, changes: Option<&[Changes]>) -> Value {
    let counts = changes.map(counts_of);
    let trees: Vec<String> =
        found.manifest.trees.iter().map(|tree| tree.lower.to_string_lossy().into_owned()).collect();
    json!({
        "session": found.manifest.session, "state": found.state.name(), "command": found.manifest.command,
        "began": found.manifest.began, "auto": found.manifest.is_auto, "trees": trees, "changes": counts,
    })
}

pub(crate) fn difference(transaction: &Transaction, tree: usize, change: &Change) -> Difference {
    let (before, after) = transaction.contents(tree, &change.path, diff::LARGEST);
    let is_file = |entry: &Option<Entry>| entry.as_ref().is_some_and(|e| e.kind == Kind::File);
    // A file that is there and was not read is too large, or cannot be read.
    if is_file(&change.before) && before.is_none() || is_file(&change.after) && after.is_none() {
        return Difference::Binary;
    }
    diff::compare(before.as_deref(), after.as_deref())
}

/// A line for each name.
pub(crate) fn stat(transaction: &Transaction, changes: &[Changes]) -> String {
    let classes = Classes::of(transaction);
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for (tree, found) in changes.iter().enumerate() {
        line(format!("In {}:", name(&transaction.manifest.trees[tree].lower)));
        let (objects, named): (Vec<&Change>, Vec<&Change>) = found.changes.iter().partition(|change| is_object(change));
        let (held, named): (Vec<&Change>, Vec<&Change>) = named.into_iter().partition(|change| is_held_ref(change));
        for change in named {
            let slash = if change.kind() == Kind::Directory { "/" } else { "" };
            let lines = match (change.kind(), difference(transaction, tree, change)) {
                (Kind::File, Difference::Text { added, removed, .. }) => format!("  +{added} -{removed}"),
                (Kind::File, Difference::Binary) => "  binary".to_owned(),
                (Kind::Link, _) => change
                    .after
                    .as_ref()
                    .and_then(|after| after.target.as_deref())
                    .map_or_else(String::new, |target| format!(" -> {}", name(target))),
                _ => String::new(),
            };
            line(format!("  {} {}{slash}{lines}", letter(change.what), name(&change.path)));
            for remark in remarks(&classes, tree, change) {
                line(format!("      {remark}"));
            }
        }
        if !objects.is_empty() {
            line(format!("  A {} of git's objects", names(objects.len())));
        }
        if !held.is_empty() {
            line(held_refs(held.len()));
        }
        for left in &found.skipped {
            line(format!("  - {}  left out: {}", name(&left.path), skipped(left.why)));
        }
        if found.is_cut {
            line("  there are more changes than are listed: nothing of this can be committed".to_owned());
        }
    }
    ways_out(changes.iter().flat_map(|found| &found.changes)).map(str::to_owned).map(&mut line);
    line(counted(changes));
    text
}

pub(crate) fn json(transaction: &Transaction, changes: &[Changes]) -> Value {
    let classes = Classes::of(transaction);
    let one = |tree: usize, change: &Change| {
        let (added, removed) = match difference(transaction, tree, change) {
            Difference::Text { added, removed, .. } if change.kind() == Kind::File => (Some(added), Some(removed)),
            _ => (None, None),
        };
        let obeyed = classes.obeyed(tree, change);
        let mode = |entry: &Option<Entry>| entry.as_ref().map(|entry| format!("{:o}", entry.mode));
        json!({
            "path": change.path.to_string_lossy(), "what": change.what, "kind": change.kind(), "mode_before": mode(&change.before), "mode_after": mode(&change.after),
            "conflict": change.conflict, "leaves_tree": change.leaves_tree(), "added": added, "removed": removed,
            "class": obeyed.map(|obeyed| obeyed.class), "why": obeyed.map(|obeyed| obeyed.why),
        })
    };
    let trees: Vec<Value> = changes
        .iter()
        .enumerate()
        .map(|(tree, found)| {
            json!({
                "lower": transaction.manifest.trees[tree].lower.to_string_lossy(),
                "changes": found.changes.iter().map(|change| one(tree, change)).collect::<Vec<_>>(),
                "skipped": found.skipped.iter()
                    .map(|left| json!({ "path": left.path.to_string_lossy(), "why": left.why })).collect::<Vec<_>>(),
                "is_cut": found.is_cut,
            })
        })
        .collect();
    json!({ "session": transaction.id(), "state": transaction.state().name(), "trees": trees })
}

/// After a commit that was killed.
pub(crate) fn finished_commit(session: &str) -> String {
    format!("an interrupted commit of session {session} was brought to its end")
}

/// After a checkpoint was put back in part only.
pub(crate) fn put_back(kept: &Path, to: usize) -> String {
    format!(
        "{}: checkpoint {to} was put back in part only when the session was killed; what was there before is there again",
        name(kept)
    )
}

/// What a commit did, and what waits.
pub(crate) fn committed(transaction: &Transaction, done: &Committed, waiting: &[(usize, &Change)]) -> String {
    let classes = Classes::of(transaction);
    let parts = match done.parts.len() {
        0 => String::new(),
        count => format!(" and hunks of {}", if count == 1 { "1 file".to_owned() } else { format!("{count} files") }),
    };
    let mut text = format!("{}{parts} committed to {}", names(done.taken.len()), places(&transaction.manifest));
    if waiting.is_empty() {
        text.push('\n');
        return text;
    }
    writeln!(text, ", {} of session {} wait:", names(waiting.len()), short(transaction.id())).unwrap_or_default();
    let held = waiting.iter().filter(|(_, change)| is_held_ref(change)).count();
    let named: Vec<_> = waiting.iter().filter(|(_, change)| !is_held_ref(change)).collect();
    for (tree, change) in named.iter().take(MOST_NAMED) {
        writeln!(text, "  {} {}", letter(change.what), name(&change.path)).unwrap_or_default();
        for remark in remarks(&classes, *tree, change) {
            writeln!(text, "      {remark}").unwrap_or_default();
        }
    }
    if named.len() > MOST_NAMED {
        writeln!(text, "  and {} more", named.len() - MOST_NAMED).unwrap_or_default();
    }
    if held > 0 {
        writeln!(text, "{}", held_refs(held)).unwrap_or_default();
    }
    if let Some(ways) = ways_out(waiting.iter().map(|(_, change)| *change)) {
        writeln!(text, "{ways}").unwrap_or_default();
    }
    text
}

pub(crate) fn committed_json(transaction: &Transaction, done: &Committed, waiting: &[(usize, &Change)]) -> Value {
    let taken: Vec<_> = done.taken.iter().map(|(_, path)| path.to_string_lossy()).collect();
    let waiting: Vec<_> = waiting.iter().map(|(_, change)| change.path.to_string_lossy()).collect();
    json!({
        "session": transaction.id(), "state": transaction.state().name(), "committed": taken, "waiting": waiting,
    })
}

/// What taking a commit back did.
pub(crate) fn undone(transaction: &Transaction, done: &Committed, kept: &Path) -> String {
    let (taken, place) = (names(done.taken.len() + done.parts.len()), places(&transaction.manifest));
    let mut text =
        format!("{taken} taken back in {place}: the changes of session {} wait again\n", short(transaction.id()));
    if !done.left.is_empty() {
        text.push_str("The host has changed these since, and they stay; what the commit replaced is kept in ");
        writeln!(text, "{}:", name(kept)).unwrap_or_default();
        for (_, path) in done.left.iter().take(MOST_NAMED) {
            writeln!(text, "  {}", name(path)).unwrap_or_default();
        }
        if done.left.len() > MOST_NAMED {
            writeln!(text, "  and {} more", done.left.len() - MOST_NAMED).unwrap_or_default();
        }
    }
    text
}

pub(crate) fn undone_json(transaction: &Transaction, done: &Committed) -> Value {
    let texts = |names: &[(usize, std::path::PathBuf)]| -> Vec<String> {
        names.iter().map(|(_, path)| path.to_string_lossy().into_owned()).collect()
    };
    json!({
        "session": transaction.id(), "state": transaction.state().name(), "undone": texts(&done.taken),
        "parts": texts(&done.parts), "left": texts(&done.left),
    })
}

pub(crate) fn pruned(count: usize) -> String {
    format!("what {} kept is removed\n", if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") })
}

pub(crate) fn names(count: usize) -> String {
    if count == 1 { "1 name".to_owned() } else { format!("{count} names") }
}

/// The directories of a transaction.
fn places(manifest: &Manifest) -> String {
    manifest.trees.iter().map(|tree| name(&tree.lower)).collect::<Vec<_>>().join(" and ")
}

pub(crate) fn rolled_back(manifest: &Manifest) -> String {
    format!("what waited of session {} is dropped; {} stays as it is\n", short(&manifest.session), places(manifest))
}

/// Before everything of a session is dropped.
pub(crate) fn would_drop(manifest: &Manifest, waits: Option<(&Transaction, &[Changes])>) -> String {
    let (id, command) = (short(&manifest.session), escaped(&manifest.command.join(" ")));
    let Some((transaction, changes)) = waits else {
        return format!("all of session {id} ({command}); what it changed cannot be read\n");
    };
    let mut text = format!("all that waits of session {id} ({command}): {}\n", counted(changes));
    let all = || changes.iter().enumerate().flat_map(|(tree, found)| found.changes.iter().map(move |one| (tree, one)));
    let named = all().filter(|(_, change)| !is_object(change));
    for (tree, change) in named.take(MOST_NAMED) {
        let path = if transaction.manifest.trees.len() == 1 {
            name(&change.path)
        } else {
            name(&transaction.manifest.trees[tree].lower.join(&change.path))
        };
        writeln!(text, "  {} {path}", letter(change.what)).unwrap_or_default();
    }
    let count = all().count();
    if count > MOST_NAMED {
        writeln!(text, "  and {} more", count - MOST_NAMED).unwrap_or_default();
    }
    text
}

/// After a review in which nothing was committed or dropped.
pub(crate) fn after_review(id: &str) -> String {
    format!("everything of session {} waits as before\n", short(id))
}

/// After a look at a session that ran, or still does.
pub(crate) fn after_live(id: &str, has_ended: bool) -> String {
    if has_ended { format!("session {} has ended\n", short(id)) } else { format!("session {} still runs\n", short(id)) }
}

/// After a session of which every step was taken back.
pub(crate) fn only_steps(session: &str) -> String {
    format!(
        "no changes wait, and what was undone is kept: `sandbox checkpoint --list` lists it, `sandbox rollback --to NUMBER` puts it back, `sandbox rollback` forgets it (session {})",
        short(session)
    )
}

/// After a session: what waits, and the commands about it.
pub(crate) fn after_session(transaction: &Transaction, changes: &[Changes], also: bool) -> Vec<String> {
    let trees = transaction.manifest.trees.iter().zip(changes).filter(|(_, found)| !found.changes.is_empty());
    let trees: Vec<String> = trees.map(|(tree, _)| name(&tree.lower)).collect();
    vec![
        format!(
            "changes to {} wait: {}; nothing there is touched until you decide",
            trees.join(" and "),
            counted(changes)
        ),
        commands(transaction.id(), also),
    ]
}

/// Where one was asked for and nothing is written directly.
pub(crate) fn no_transaction(directory: &Path) -> String {
    format!(
        "there was no transaction: {} is no project that is written (a home, a system or a temporary directory, or one given in another way), so nothing waits; run it in a project directory",
        name(directory)
    )
}

/// Where nothing waits; what the session wrote besides is left out of every commit.
pub(crate) fn nothing_changed(changes: &[Changes]) -> String {
    let left: Vec<String> = changes.iter().flat_map(|found| &found.skipped).map(|left| name(&left.path)).collect();
    match left.as_slice() {
        [] => "no changes wait".to_owned(),
        [first, ..] => format!("no changes wait that can be committed; left out: {first} ({} in all)", left.len()),
    }
}

/// Where the session was ended for what it tried: nothing is applied, also where it would have been without a question.
pub(crate) fn untouched(id: &str, also: bool) -> String {
    format!("nothing that it wrote in its transaction is applied; {}", commands(id, also))
}

/// The same where what needs no question was applied.
pub(crate) fn after_auto(id: &str, done: &Committed, left: &[Changes], also: bool) -> Vec<String> {
    let mut lines = vec![format!("{} applied to the project", names(done.taken.len()))];
    if left.iter().any(|found| !found.changes.is_empty()) {
        lines.push(format!("{} wait for you", counted(left)));
        lines.push(commands(id, also));
    }
    lines
}

/// What can be done about what waits; with its name where the changes of another session wait here, too.
fn commands(id: &str, also: bool) -> String {
    let id = short(id);
    let which = if also { format!(" --session {id}") } else { String::new() };
    format!(
        "`sandbox diff{which}` shows them, `sandbox review{which}` goes through them, `sandbox commit{which}` takes them over, `sandbox rollback{which}` drops them (session {id})"
    )
}
