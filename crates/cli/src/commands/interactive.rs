//! `sandbox commit --interactive`: a question about each change, of text files about each hunk. Owns the questions and their answers;
//! what an answer chooses is `selection`'s. Called by `commands::changes`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use cofferdam_workspace::diff::Hunk;
use cofferdam_workspace::{Change, Changes, Transaction};

use crate::commands::changes::ChangesError;
use crate::commands::selection::{Item, Items, Selection};
use crate::render::changes::{name, remarks};
use crate::render::output::say;
use crate::render::patch::{self, Reader};
use crate::waiting::Classes;

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

/// The questions so far.
struct Questions<'a> {
    transaction: &'a Transaction,
    classes: Classes<'a>,
    reader: Reader,
    selection: Selection,
    has_ended: bool,
}

pub(crate) fn commit(
    mut transaction: Transaction,
    changes: &[Changes],
    asked: &[(usize, &Change)],
) -> Result<ExitCode, ChangesError> {
    let mut input = std::io::stdin().lock();
    // Answers may come from a pipe; where there are none, nothing can be asked.
    if !input.is_terminal() && input.fill_buf().is_ok_and(<[u8]>::is_empty) {
        return Err(ChangesError::NoAnswers);
    }
    drop(input);
    let classes = Classes::of(&transaction);
    let all = Items::of(&classes, &transaction.manifest, asked);
    let selection = Items::selection(changes);
    let reader = Reader::of_stdout();
    let mut questions = Questions { transaction: &transaction, classes, reader, selection, has_ended: false };
    for item in &all.items {
        questions.ask(item).map_err(|source| ChangesError::Write { source })?;
    }
    let selection = questions.selection;
    let committed = selection.commit(&mut transaction, changes, asked);
    committed.map_err(|error| ChangesError::of_selection(transaction.id(), error))
}

impl Questions<'_> {
    fn ask(&mut self, item: &Item<'_>) -> std::io::Result<()> {
        if item.conflict().is_some() {
            for change in item.to_tell().into_iter().filter(|change| change.conflict.is_some()) {
                for remark in remarks(&self.classes, item.tree, change) {
                    say!("sandbox: {}: {remark}", name(&change.path));
                }
            }
            return Ok(());
        }
        if self.has_ended {
            return Ok(());
        }
        let hunks = item.hunks(self.transaction);
        if !hunks.is_empty() {
            return self.ask_about_hunks(item, &hunks);
        }
        let answer = if item.is_repository {
            prompt("Take what the session did in the git directory (commits, branches, index) [y,n,q,?]? ", false)
        } else {
            self.show_whole(item)?;
            ask_about_whole(item)
        };
        match answer {
            Answer::Take | Answer::TakeRest => self.selection.take(item),
            Answer::Leave | Answer::LeaveRest => self.selection.leave(self.transaction, item)?,
            Answer::Quit => self.has_ended = true,
        }
        Ok(())
    }

    fn show_whole(&self, item: &Item<'_>) -> std::io::Result<()> {
        let mut shown = Vec::new();
        let one = Changes { changes: vec![item.change.clone()], ..Changes::default() };
        let mut all: Vec<Changes> = (0..item.tree).map(|_| Changes::default()).collect();
        all.push(one);
        patch::write(self.transaction, &all, self.reader, &mut shown)?;
        show(&shown);
        Ok(())
    }

    fn ask_about_hunks(&mut self, item: &Item<'_>, hunks: &[Hunk]) -> std::io::Result<()> {
        let path = name(&item.change.path);
        let mut rest: Option<Answer> = None;
        let mut ask = |shown: &[u8], question: String| {
            let answer = rest.unwrap_or_else(|| {
                show(shown);
                prompt(&question, false)
            });
            if matches!(answer, Answer::TakeRest | Answer::LeaveRest | Answer::Quit) {
                rest = Some(answer);
            }
            self.has_ended |= answer == Answer::Quit;
            match answer {
                Answer::Take | Answer::TakeRest => Some(true),
                Answer::Leave | Answer::LeaveRest => Some(false),
                Answer::Quit => None,
            }
        };
        let is_mode_wanted = item.modes().and_then(|(old, new)| {
            ask(&[], format!("Take the mode {new:o} of {path}, which has {old:o} [y,n,a,d,q,?]? "))
        });
        let mut is_wanted: Vec<Option<bool>> = Vec::new();
        for (at, hunk) in hunks.iter().enumerate() {
            let mut shown = Vec::new();
            patch::write_hunk(hunk, self.reader, &mut shown)?;
            let question = format!("Take this hunk of {path} ({} of {}) [y,n,a,d,q,?]? ", at + 1, hunks.len());
            is_wanted.push(ask(&shown, question));
        }
        self.selection.take_hunks(self.transaction, item, hunks, &is_wanted, is_mode_wanted)
    }
}

fn ask_about_whole(item: &Item<'_>) -> Answer {
    let (path, below) = (name(&item.change.path), item.with.len());
    if item.opened.is_empty() {
        let more = if below == 0 { String::new() } else { format!(" with {below} names in it") };
        return prompt(&format!("Take {path}{more} [y,n,q,?]? "), false);
    }
    // A key that is pressed once too often takes nothing that host programs obey.
    let whole = if below == 0 { "it".to_owned() } else { format!("{path} with {below} names in it") };
    let question =
        format!("Host programs obey {} without being asked. Take {whole}? Type `yes`, or n, q: ", item.obeyed_names());
    prompt(&question, true)
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
