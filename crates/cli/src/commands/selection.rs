//! What a person chooses of a session's changes. Owns which changes are decided together, what a decision takes or leaves, and the
//! note of what was left out; asking is `interactive`'s and `review`'s, comparing and committing `workspace`'s.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_policy::ObeyedClass;
use cofferdam_workspace::diff::{self, Difference, Hunk};
use cofferdam_workspace::{
    Change, Changes, Choice, CommitError, Conflict, Entry, Kind, Manifest, Part, Parts, Transaction, What,
    patch as format,
};
use rustix::io::Errno;
use thiserror::Error;

use crate::commands::kept_commits;
use crate::render::changes::{self as lines, is_object, name};
use crate::render::exit::NOT_SO;
use crate::render::output::{print, say};
use crate::render::patch::{self, Reader};
use crate::waiting::Classes;

/// Of what was left out, for the agent: a workload can make a change of any size.
const LARGEST_NOTE: usize = 4 << 20;
/// Of what host programs obey, in a question.
const MOST_NAMED: usize = 8;

/// Why what was chosen was not taken.
#[derive(Debug, Error)]
pub(crate) enum SelectionError {
    #[error("what was left out cannot be written")]
    Note(#[source] Errno),
    #[error("the host changed {name} while it was reviewed: nothing was committed")]
    Moved { name: String },
    #[error("what changed cannot be read")]
    Read(#[source] Errno),
    #[error(transparent)]
    Commit(CommitError),
}

/// Changes with one decision.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub(crate) tree: usize,
    /// The one that it is named by.
    pub(crate) change: &'a Change,
    /// What goes with it: what lies below a name that comes or goes as a whole, or the rest of the git directory.
    pub(crate) with: Vec<&'a Change>,
    /// Refs, `HEAD`, index and objects go together.
    pub(crate) is_repository: bool,
    /// Those that host programs obey without being asked; the item needs a yes of its own.
    pub(crate) opened: Vec<&'a Change>,
    /// Host programs obey one of them when they are run.
    pub(crate) is_run: bool,
}

impl<'a> Item<'a> {
    fn new(classes: &Classes<'_>, tree: usize, change: &'a Change, with: Vec<&'a Change>) -> Self {
        let mut item = Item { tree, change, with, is_repository: false, opened: Vec::new(), is_run: false };
        let classed: Vec<(&'a Change, ObeyedClass)> =
            item.all().filter_map(|one| Some((one, classes.obeyed(tree, one)?.class))).collect();
        item.is_run = classed.iter().any(|(_, class)| *class == ObeyedClass::Runs);
        item.opened =
            classed.into_iter().filter(|(_, class)| *class == ObeyedClass::Opens).map(|(one, _)| one).collect();
        item
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &'a Change> + '_ {
        std::iter::once(self.change).chain(self.with.iter().copied())
    }

    /// Such an item cannot be taken.
    pub(crate) fn conflict(&self) -> Option<Conflict> {
        self.all().find_map(|change| change.conflict)
    }

    /// Those about which there may be something to say; of a repository's refs in conflict the first stands for all.
    pub(crate) fn to_tell(&self) -> Vec<&'a Change> {
        let mut has_ref = false;
        let mut is_new = |change: &&Change| {
            let is_ref = change.conflict == Some(Conflict::Repository);
            !is_ref || !std::mem::replace(&mut has_ref, true)
        };
        let all = self.all().filter(|change| !self.is_repository || change.conflict.is_some());
        all.filter(|change| is_new(change)).collect()
    }

    /// The first of what host programs obey in it.
    pub(crate) fn obeyed_names(&self) -> String {
        let names: Vec<String> = self.opened.iter().take(MOST_NAMED).map(|change| name(&change.path)).collect();
        let rest = if self.opened.len() > names.len() { ", ..." } else { "" };
        format!("{}{rest}", names.join(", "))
    }

    /// The permissions of a file before and after, where they differ.
    pub(crate) fn modes(&self) -> Option<(u32, u32)> {
        let mode = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.mode);
        mode(&self.change.before).zip(mode(&self.change.after)).filter(|(old, new)| old != new)
    }

    /// Of a text file that was there before; none of what is taken as a whole.
    pub(crate) fn hunks(&self, transaction: &Transaction) -> Vec<Hunk> {
        let change = self.change;
        let is_file = change.what == What::Modified && change.kind() == Kind::File && !is_object(change);
        if !is_file || self.is_repository || !self.opened.is_empty() || self.conflict().is_some() {
            return Vec::new();
        }
        let (before, after) = transaction.contents(self.tree, &change.path, diff::LARGEST);
        match (before, after) {
            (Some(before), Some(after)) => match diff::compare(Some(&before), Some(&after)) {
                Difference::Text { hunks, .. } => hunks,
                Difference::Binary => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

/// All that is to be decided, in the order of its names.
pub(crate) struct Items<'a> {
    pub(crate) items: Vec<Item<'a>>,
}

impl<'a> Items<'a> {
    pub(crate) fn of(classes: &Classes<'_>, manifest: &Manifest, asked: &[(usize, &'a Change)]) -> Self {
        let mut found = Items { items: Vec::new() };
        // The item of each tree's git directory: what can be taken of it, and what is in conflict.
        let mut repositories: HashMap<(usize, bool), usize> = HashMap::new();
        let mut at = 0;
        while let Some((tree, change)) = asked.get(at).copied() {
            let is_below = |other: &&(usize, &Change)| other.0 == tree && other.1.path.starts_with(&change.path);
            let below = asked[at + 1..].iter().take_while(is_below).count();
            at += 1;
            if change.what == What::Added && change.kind() == Kind::Directory && below > 0 {
                // It comes with what is taken in it.
                continue;
            }
            // What goes or comes as a whole is one decision.
            let count = if matches!(change.what, What::Deleted | What::Replaced) { below } else { 0 };
            let with = asked[at..at + count].iter().map(|(_, change)| *change).collect();
            at += count;
            let mut item = Item::new(classes, tree, change, with);
            item.is_repository = item.opened.is_empty() && is_of_repository(manifest, tree, change);
            let key = (tree, item.conflict().is_some());
            let repository = repositories.get(&key).filter(|_| item.is_repository);
            if let Some(repository) = repository.and_then(|at| found.items.get_mut(*at)) {
                repository.is_run |= item.is_run;
                repository.with.extend(item.all());
                continue;
            }
            if item.is_repository {
                repositories.insert(key, found.items.len());
            }
            found.items.push(item);
        }
        found
    }

    /// Nothing is chosen yet. New directories come with what is taken in them, also those above what was asked about.
    pub(crate) fn selection(changes: &[Changes]) -> Selection {
        let is_new = |change: &Change| change.what == What::Added && change.conflict.is_none();
        let is_carrier = |change: &&Change| is_new(change) && change.kind() == Kind::Directory;
        let carriers = |found: &Changes| found.changes.iter().filter(is_carrier).map(|one| one.path.clone()).collect();
        let choices =
            changes.iter().map(|found| Choice { allowed: carriers(found), ..Choice::default() }).collect::<Vec<_>>();
        let trees = choices.len();
        Selection {
            choices,
            parts: vec![Parts::new(); trees],
            modes_alone: HashSet::new(),
            told_modes: Vec::new(),
            rejected: Vec::new(),
            left: Vec::new(),
            takes_repository: false,
        }
    }
}

fn is_of_repository(manifest: &Manifest, tree: usize, change: &Change) -> bool {
    manifest.trees[tree].is_repository || change.path.iter().any(|name| name == ".git")
}

/// The decision about a changed mode; none where it waits.
#[derive(Debug)]
struct ToldMode {
    path: PathBuf,
    mode: u32,
    is_wanted: Option<bool>,
}

/// What was chosen so far.
#[derive(Debug)]
pub(crate) struct Selection {
    choices: Vec<Choice>,
    parts: Vec<Parts>,
    /// Those of which no hunk is taken.
    modes_alone: HashSet<(usize, PathBuf)>,
    /// What became of the changed modes of files with hunks; nothing else says it.
    told_modes: Vec<ToldMode>,
    rejected: Vec<u8>,
    /// Names of which something was left out.
    left: Vec<(usize, PathBuf)>,
    /// Objects come with it, and branches that the host has moved get names of their own.
    takes_repository: bool,
}

impl Selection {
    pub(crate) fn take(&mut self, item: &Item<'_>) {
        if item.conflict().is_some() {
            return;
        }
        self.takes_repository |= item.is_repository;
        for change in item.all() {
            self.choices[item.tree].chosen.insert(change.path.clone());
            self.choices[item.tree].allowed.insert(change.path.clone());
        }
    }

    /// Left out, and told to the agent.
    pub(crate) fn leave(&mut self, transaction: &Transaction, item: &Item<'_>) -> io::Result<()> {
        if item.is_repository || self.rejected.len() >= LARGEST_NOTE {
            return Ok(());
        }
        let rejected = &mut self.rejected;
        let mut sink = |_: format::Part, line: &[u8]| {
            rejected.extend_from_slice(line);
            rejected.push(b'\n');
            Ok(())
        };
        format::write(transaction, item.tree, item.change, &mut sink)?;
        self.rejected.truncate(LARGEST_NOTE);
        self.left.push((item.tree, item.change.path.clone()));
        Ok(())
    }

    /// Of the hunks of a file and its mode what is wanted is taken and what is not is told to the agent; the rest waits.
    pub(crate) fn take_hunks(
        &mut self,
        transaction: &Transaction,
        item: &Item<'_>,
        hunks: &[Hunk],
        is_wanted: &[Option<bool>],
        is_mode_wanted: Option<bool>,
    ) -> io::Result<()> {
        let of = |answer: bool| hunks.iter().zip(is_wanted).filter(move |(_, wanted)| **wanted == Some(answer));
        let wanted: Vec<&Hunk> = of(true).map(|(hunk, _)| hunk).collect();
        let takes_mode = is_mode_wanted == Some(true);
        if let Some((_, mode)) = item.modes().filter(|_| is_mode_wanted.is_some() || !wanted.is_empty()) {
            self.told_modes.push(ToldMode { path: item.change.path.clone(), mode, is_wanted: is_mode_wanted });
        }
        let is_whole = wanted.len() == hunks.len() && (takes_mode || item.modes().is_none());
        if !wanted.is_empty() || takes_mode {
            self.take(item);
            if !is_whole {
                let (before, _) = transaction.contents(item.tree, &item.change.path, diff::LARGEST);
                let before = before.ok_or_else(|| io::Error::other("a file was changed while it was reviewed"))?;
                if wanted.is_empty() {
                    self.modes_alone.insert((item.tree, item.change.path.clone()));
                }
                let part = Part { content: diff::with_hunks(&before, wanted), takes_mode, is_whole: false };
                self.parts[item.tree].insert(item.change.path.clone(), part);
            }
        }
        let others: Vec<&Hunk> = of(false).map(|(hunk, _)| hunk).collect();
        let left_mode = item.modes().filter(|_| is_mode_wanted == Some(false));
        if others.is_empty() && left_mode.is_none() {
            return Ok(());
        }
        self.left.push((item.tree, item.change.path.clone()));
        self.note(item.change, left_mode, &others)
    }

    /// What was left out of a file that is taken in part.
    fn note(&mut self, change: &Change, modes: Option<(u32, u32)>, hunks: &[&Hunk]) -> io::Result<()> {
        let (old, new) = (format::quoted("a/", &change.path), format::quoted("b/", &change.path));
        writeln!(self.rejected, "diff --git {old} {new}")?;
        if let Some((before, after)) = modes {
            writeln!(self.rejected, "old mode 100{before:o}\nnew mode 100{after:o}")?;
        }
        if !hunks.is_empty() {
            writeln!(self.rejected, "--- {old}\n+++ {new}")?;
        }
        for hunk in hunks {
            patch::write_hunk(hunk, Reader::Program, &mut self.rejected)?;
        }
        self.rejected.truncate(LARGEST_NOTE);
        Ok(())
    }

    /// Commits what was taken, writes what was left out where the agent reads it, and says both.
    pub(crate) fn commit(
        self,
        transaction: &mut Transaction,
        changes: &[Changes],
        asked: &[(usize, &Change)],
    ) -> Result<ExitCode, SelectionError> {
        // A person takes minutes: what is a unit with something that the host has changed since must not be torn.
        for (tree, found) in transaction.changes().map_err(SelectionError::Read)?.iter().enumerate() {
            let chosen = |change: &&Change| self.choices[tree].chosen.contains(&change.path);
            if let Some(moved) = found.changes.iter().filter(chosen).find(|change| change.conflict.is_some()) {
                return Err(SelectionError::Moved { name: name(&moved.path) });
            }
        }
        let places = if self.rejected.is_empty() {
            Vec::new()
        } else {
            transaction.write_rejected(&self.rejected).map_err(SelectionError::Note)?
        };
        transaction.leave_out(&self.left).map_err(SelectionError::Note)?;
        let mut committed =
            transaction.commit_parts(changes, self.choices, &self.parts).map_err(SelectionError::Commit)?;
        let taken: HashSet<(usize, &Path)> =
            committed.taken.iter().map(|(tree, path)| (*tree, path.as_path())).collect();
        let waiting = asked.iter().filter(|(tree, change)| !taken.contains(&(*tree, change.path.as_path())));
        let waiting: Vec<(usize, &Change)> = waiting.copied().collect();
        // What waits of a file of which a part was taken is less than before. The commit is done, also where that cannot be read.
        let left = transaction.changes().unwrap_or_default();
        let all = left.iter().enumerate().flat_map(|(tree, found)| found.changes.iter().map(move |one| (tree, one)));
        let left: HashMap<(usize, &Path), &Change> = all.map(|(tree, one)| ((tree, one.path.as_path()), one)).collect();
        let as_left = |(tree, change): &(usize, &Change)| Some((*tree, *left.get(&(*tree, change.path.as_path()))?));
        let shown: Vec<(usize, &Change)> = waiting.iter().map(|one| as_left(one).unwrap_or(*one)).collect();
        let taken_in_part = committed.parts.clone();
        committed.parts.retain(|one| !self.modes_alone.contains(one));
        print(&lines::committed(transaction, &committed, &shown));
        let done: HashSet<&Path> =
            committed.taken.iter().chain(&taken_in_part).map(|(_, path)| path.as_path()).collect();
        for ToldMode { path, mode, is_wanted } in &self.told_modes {
            let became = match is_wanted {
                Some(true) if done.contains(path.as_path()) => "was taken",
                Some(false) => "was left out, and waits",
                Some(true) | None => "waits",
            };
            say!("sandbox: the mode {mode:o} of {} {became}", name(path));
        }
        let classes = Classes::of(transaction);
        let opened = waiting.iter().filter(|(tree, change)| classes.is_opened(*tree, change));
        let opened = opened.map(|(tree, change)| (*tree, change.path.as_path()));
        let left: BTreeSet<(usize, &Path)> =
            self.left.iter().map(|(tree, path)| (*tree, path.as_path())).chain(opened).collect();
        for line in kept_commits::held(transaction, left.into_iter()) {
            say!("sandbox: {line}");
        }
        if self.takes_repository {
            for line in kept_commits::keep(transaction, asked) {
                say!("sandbox: {line}");
            }
        }
        if !places.is_empty() {
            let places: Vec<String> = places.iter().map(|place| name(place)).collect();
            say!("sandbox: what you rejected is kept as a patch in {}", places.join(" and "));
        }
        Ok(if waiting.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) })
    }
}
