//! `sandbox commit --interactive`: a question about each change, of text files about each hunk. Owns the questions, what an answer
//! chooses and the note of what was left out; committing is `workspace`'s. Called by `commands::changes`.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_workspace::diff::{self, Difference, Hunk};
use cofferdam_workspace::{Change, Changes, Choice, Entry, Kind, Parts, Transaction, What, patch as format};

use crate::commands::changes::ChangesError;
use crate::commands::kept_commits;
use crate::render::changes::{self as lines, is_object, name, remarks};
use crate::render::exit::NOT_SO;
use crate::render::output::{print, say};
use crate::render::patch::{self, Reader};
use crate::waiting::Classes;

/// Of what was left out, for the agent: a workload can make a change of any size.
const LARGEST_NOTE: usize = 4 << 20;

const HELP: &str = "y - take this\nn - leave this\na - take this and what is left of the file\nd - leave this and what is left of the file\n\
                    q - leave this and everything after it\n? - this list\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Take,
    Leave,
    TakeRest,
    LeaveRest,
    Quit,
}

impl Answer {
    fn takes(self) -> bool {
        matches!(self, Answer::Take | Answer::TakeRest)
    }

    fn leaves(self) -> bool {
        matches!(self, Answer::Leave | Answer::LeaveRest)
    }
}

/// A text file that was changed, as it was read once: hunks are shown and taken of the same content.
struct Text {
    before: Vec<u8>,
    hunks: Vec<Hunk>,
    /// Its permissions before and after, where they differ.
    modes: Option<(u32, u32)>,
}

/// What was chosen so far.
struct Review<'a> {
    transaction: &'a Transaction,
    classes: Classes<'a>,
    reader: Reader,
    choices: Vec<Choice>,
    parts: Vec<Parts>,
    /// Files taken in part that get the session's permissions.
    modes: Vec<HashSet<PathBuf>>,
    rejected: Vec<u8>,
    /// Names of which something was left out.
    left: Vec<(usize, PathBuf)>,
    /// An answer about the git directory of each tree holds for all of it.
    repository: HashMap<usize, bool>,
    has_ended: bool,
}

pub(crate) fn commit(
    mut transaction: Transaction,
    changes: &[Changes],
    asked: &[(usize, &Change)],
) -> Result<ExitCode, ChangesError> {
    let id = transaction.id().to_owned();
    let trees = changes.len();
    let mut review = Review {
        transaction: &transaction,
        classes: Classes::of(&transaction.manifest),
        reader: Reader::of_stdout(),
        choices: vec![Choice::default(); trees],
        parts: vec![Parts::new(); trees],
        modes: vec![HashSet::new(); trees],
        rejected: Vec::new(),
        left: Vec::new(),
        repository: HashMap::new(),
        has_ended: false,
    };
    review.ask_all(asked).map_err(|source| ChangesError::Write { source })?;
    let Review { choices, parts, modes, rejected, left, repository, .. } = review;
    for (tree, path) in &left {
        if let Some(object) = object_of(&transaction, changes, *tree, path) {
            say!(
                "sandbox: {}: an object of git that the session made ({object}) still holds it, and commits that name it",
                name(path)
            );
        }
    }
    let places = if rejected.is_empty() {
        Vec::new()
    } else {
        let read = |source| ChangesError::Read { id: id.clone(), source };
        transaction.write_rejected(&rejected).map_err(read)?
    };
    let committed = transaction
        .commit_parts_and_modes(changes, choices, &parts, &modes)
        .map_err(|source| ChangesError::Commit { id: id.clone(), source })?;
    let taken: HashSet<(usize, &Path)> = committed.taken.iter().map(|(tree, path)| (*tree, path.as_path())).collect();
    let waiting = asked.iter().filter(|(tree, change)| !taken.contains(&(*tree, change.path.as_path())));
    let waiting: Vec<(usize, &Change)> = waiting.copied().collect();
    print(&lines::committed(&transaction, &committed, &waiting));
    if repository.values().any(|is_taken| *is_taken) {
        for line in kept_commits::keep(&transaction, asked) {
            say!("sandbox: {line}");
        }
    }
    for place in &places {
        say!("sandbox: what you left out is written in {}", name(place));
    }
    Ok(if waiting.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) })
}

/// The object in which git holds the session's version of a file, where the session made it.
fn object_of(transaction: &Transaction, changes: &[Changes], tree: usize, path: &Path) -> Option<String> {
    let (_, after) = transaction.contents(tree, path, format::LARGEST);
    let id = format::blob_id(&after?);
    let object = Path::new("objects").join(&id[..2]).join(&id[2..]);
    let made = changes.iter().flat_map(|found| &found.changes);
    made.into_iter().any(|change| change.path.ends_with(&object)).then(|| id[..12].to_owned())
}

impl Review<'_> {
    fn ask_all(&mut self, asked: &[(usize, &Change)]) -> std::io::Result<()> {
        let mut at = 0;
        while let Some((tree, change)) = asked.get(at).copied() {
            let is_below = |other: &&(usize, &Change)| other.0 == tree && other.1.path.starts_with(&change.path);
            let below = asked[at + 1..].iter().take_while(is_below).count();
            // What goes or comes as a whole is one question; a new directory comes with what is taken in it.
            let is_whole = matches!(change.what, What::Deleted | What::Replaced);
            let count = if is_whole { below } else { 0 };
            let is_in_new = change.what == What::Added && change.kind() == Kind::Directory && below > 0;
            if is_in_new {
                self.choices[tree].allowed.insert(change.path.clone());
            } else {
                self.ask(tree, change, &asked[at + 1..=at + count])?;
            }
            at += 1 + count;
        }
        Ok(())
    }

    fn ask(&mut self, tree: usize, change: &Change, below: &[(usize, &Change)]) -> std::io::Result<()> {
        let path = name(&change.path);
        if change.conflict.is_some() {
            for remark in remarks(&self.classes, tree, change) {
                say!("sandbox: {path}: {remark}");
            }
            return Ok(());
        }
        if self.has_ended {
            return Ok(());
        }
        // What lies below is taken with it.
        let opened: Vec<&Change> = std::iter::once(&(tree, change))
            .chain(below)
            .filter(|(tree, change)| self.classes.is_opened(*tree, change))
            .map(|(_, change)| *change)
            .collect();
        let is_opened = !opened.is_empty();
        if self.is_of_repository(tree, change) && !is_opened {
            self.ask_about_repository(tree, change);
            return Ok(());
        }
        if let Some(text) = self.text(tree, change).filter(|_| !is_opened) {
            return self.ask_about_hunks(tree, change, &text);
        }
        let mut shown = Vec::new();
        let one = Changes { changes: vec![change.clone()], ..Changes::default() };
        let mut all: Vec<Changes> = (0..tree).map(|_| Changes::default()).collect();
        all.push(one);
        patch::write(self.transaction, &all, self.reader, &mut shown)?;
        show(&shown);
        let answer = if is_opened {
            // A key that is pressed once too often takes nothing that host programs obey.
            let names: Vec<String> = opened.iter().take(8).map(|change| name(&change.path)).collect();
            let rest = if opened.len() > names.len() { ", ..." } else { "" };
            let obeyed = format!("{}{rest}", names.join(", "));
            let whole =
                if below.is_empty() { "it".to_owned() } else { format!("{path} with {} names in it", below.len()) };
            prompt(
                &format!("Host programs obey {obeyed} without being asked. Take {whole}? Type `yes`, or n, q: "),
                true,
            )
        } else {
            let more = if below.is_empty() { String::new() } else { format!(" with {} names in it", below.len()) };
            prompt(&format!("Take {path}{more} [y,n,q,?]? "), false)
        };
        match answer {
            Answer::Take | Answer::TakeRest => {
                self.take(tree, change);
                for (tree, change) in below {
                    self.take(*tree, change);
                }
                Ok(())
            }
            Answer::Leave | Answer::LeaveRest => self.leave(tree, change),
            Answer::Quit => {
                self.has_ended = true;
                Ok(())
            }
        }
    }

    fn is_of_repository(&self, tree: usize, change: &Change) -> bool {
        let record = &self.transaction.manifest.trees[tree];
        record.is_repository || change.path.iter().any(|name| name == ".git")
    }

    /// Refs, `HEAD`, index and objects go together.
    fn ask_about_repository(&mut self, tree: usize, change: &Change) {
        let is_taken = self.repository.get(&tree).copied().unwrap_or_else(|| {
            let question = "Take what the session did in the git directory (commits, branches, index) [y,n,q,?]? ";
            let answer = prompt(question, false);
            self.has_ended |= answer == Answer::Quit;
            matches!(answer, Answer::Take | Answer::TakeRest)
        });
        self.repository.insert(tree, is_taken);
        if is_taken {
            self.take(tree, change);
        }
    }

    /// Of a text file that was there before; none of what is taken as a whole.
    fn text(&self, tree: usize, change: &Change) -> Option<Text> {
        if change.what != What::Modified || change.kind() != Kind::File || is_object(change) {
            return None;
        }
        let (Some(before), Some(after)) = self.transaction.contents(tree, &change.path, diff::LARGEST) else {
            return None;
        };
        let Difference::Text { hunks, .. } = diff::compare(Some(&before), Some(&after)) else { return None };
        let mode = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.mode);
        let modes = mode(&change.before).zip(mode(&change.after)).filter(|(old, new)| old != new);
        (!hunks.is_empty()).then_some(Text { before, hunks, modes })
    }

    fn ask_about_hunks(&mut self, tree: usize, change: &Change, text: &Text) -> std::io::Result<()> {
        let path = name(&change.path);
        let mut rest: Option<Answer> = None;
        let mut ask = |shown: &[u8], question: String| {
            let answer = rest.unwrap_or_else(|| {
                show(shown);
                prompt(&question, false)
            });
            if matches!(answer, Answer::TakeRest | Answer::LeaveRest | Answer::Quit) {
                rest = Some(answer);
            }
            answer
        };
        let mode = text
            .modes
            .map(|(old, new)| ask(&[], format!("Take the mode {new:o} of {path}, which has {old:o} [y,n,a,d,q,?]? ")));
        let mut answers: Vec<Answer> = Vec::new();
        for (at, hunk) in text.hunks.iter().enumerate() {
            let mut shown = Vec::new();
            patch::write_hunk(hunk, self.reader, &mut shown)?;
            let question = format!("Take this hunk of {path} ({} of {}) [y,n,a,d,q,?]? ", at + 1, text.hunks.len());
            answers.push(ask(&shown, question));
        }
        self.has_ended |= mode.iter().chain(&answers).any(|answer| *answer == Answer::Quit);
        let with = |wanted: fn(Answer) -> bool| -> Vec<&Hunk> {
            text.hunks.iter().zip(&answers).filter(|(_, answer)| wanted(**answer)).map(|(hunk, _)| hunk).collect()
        };
        let (wanted, others) = (with(Answer::takes), with(Answer::leaves));
        let takes_mode = mode.is_some_and(Answer::takes);
        if !wanted.is_empty() || takes_mode {
            self.take(tree, change);
        }
        if (!wanted.is_empty() || takes_mode) && (wanted.len() < text.hunks.len() || mode.is_some() && !takes_mode) {
            self.parts[tree].insert(change.path.clone(), diff::with_hunks(&text.before, wanted));
            if takes_mode {
                self.modes[tree].insert(change.path.clone());
            }
        }
        let left_mode = text.modes.filter(|_| mode.is_some_and(Answer::leaves));
        if others.is_empty() && left_mode.is_none() {
            return Ok(());
        }
        self.left.push((tree, change.path.clone()));
        self.note(change, left_mode, &others)
    }

    /// What was left out of a file that is taken in part.
    fn note(&mut self, change: &Change, modes: Option<(u32, u32)>, hunks: &[&Hunk]) -> std::io::Result<()> {
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

    fn take(&mut self, tree: usize, change: &Change) {
        self.choices[tree].chosen.insert(change.path.clone());
        self.choices[tree].allowed.insert(change.path.clone());
    }

    fn leave(&mut self, tree: usize, change: &Change) -> std::io::Result<()> {
        if self.is_of_repository(tree, change) || self.rejected.len() >= LARGEST_NOTE {
            return Ok(());
        }
        let rejected = &mut self.rejected;
        let mut sink = |_: format::Part, line: &[u8]| {
            rejected.extend_from_slice(line);
            rejected.push(b'\n');
            Ok(())
        };
        format::write(self.transaction, tree, change, &mut sink)?;
        self.rejected.truncate(LARGEST_NOTE);
        self.left.push((tree, change.path.clone()));
        Ok(())
    }
}

fn show(text: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A reader that went away gives no answers either.
    out.write_all(text).and_then(|()| out.flush()).unwrap_or_default();
}

/// One answer from stdin; its end is the end of the review.
fn prompt(question: &str, needs_word: bool) -> Answer {
    loop {
        show(question.as_bytes());
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return Answer::Quit,
            Ok(_) => {}
        }
        match line.trim() {
            "yes" => return Answer::Take,
            "y" if !needs_word => return Answer::Take,
            "n" => return Answer::Leave,
            "a" if !needs_word => return Answer::TakeRest,
            "d" => return Answer::LeaveRest,
            "q" => return Answer::Quit,
            _ => show(HELP.as_bytes()),
        }
    }
}
