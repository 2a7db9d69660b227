//! `sandbox review`: what a session changed on one screen, decided file by file and hunk by hunk. Owns the loop and what becomes of the
//! decisions; the state is `model`'s, the picture `screen`'s, what is read `content`'s. Called by `main` and at the end of `run`.

mod content;
mod model;
mod screen;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_wire::session::short;
use cofferdam_workspace::{Change, Changes, Transaction};
use ratatui::DefaultTerminal;

use crate::args::changes::{ReviewArgs, WhichArgs};
use crate::commands::changes::{ChangesError, Wanted, drop_all, open, warn_of_attempt};
use crate::commands::review::model::{Effect, Mark, Review};
use crate::commands::selection::{Items, Selection};
use crate::full_screen::{next_key, on_whole_screen};
use crate::render::changes::after_review;
use crate::render::exit::NOT_SO;
use crate::render::output::{print, say};
use crate::render::patch::Reader;
use crate::waiting::Classes;

/// The picture is drawn again when a key comes, and so often for a window of another size.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) fn review(args: &ReviewArgs) -> Result<ExitCode, ChangesError> {
    let mut transaction = open(&args.which)?;
    let id = transaction.id().to_owned();
    let changes = transaction.changes().map_err(|source| ChangesError::Read { id: id.clone(), source })?;
    let wanted = Wanted::new(&args.paths, &transaction.manifest, &changes)?;
    let all = changes.iter().enumerate().flat_map(|(tree, found)| found.changes.iter().map(move |one| (tree, one)));
    let asked: Vec<(usize, &Change)> = all.filter(|(tree, change)| wanted.is_wanted(*tree, &change.path)).collect();
    let decided = decide(&transaction, &changes, &asked).map_err(|source| ChangesError::NoScreen { source })?;
    match decided {
        Decided::Commit(selection) => {
            let committed = selection.commit(&mut transaction, &changes, &asked);
            committed.map_err(|error| ChangesError::of_selection(&id, error))
        }
        Decided::Leave { had_marks } => {
            print(&after_review(&id));
            if had_marks {
                say!("sandbox: what was marked in this review is not kept");
            }
            Ok(ExitCode::from(NOT_SO))
        }
        Decided::RollBack => {
            // Its lock is taken again.
            drop(transaction);
            drop_all(&WhichArgs { session: Some(id) })
        }
    }
}

enum Decided {
    Commit(Selection),
    Leave { had_marks: bool },
    RollBack,
}

fn decide(transaction: &Transaction, changes: &[Changes], asked: &[(usize, &Change)]) -> io::Result<Decided> {
    let classes = Classes::of(transaction);
    let mut all = Items::of(&classes, &transaction.manifest, asked);
    let mut selection = Items::selection(changes);
    let mut review = Review::new(std::mem::take(&mut all.items));
    warn_of_attempt(transaction.id());
    let left: usize = changes.iter().map(|found| found.skipped.len()).sum();
    if left > 0 {
        review.message = format!("{left} names are left out of every commit: see `sandbox diff --stat`");
    }
    let unshown = changes.iter().map(|found| found.changes.len()).sum::<usize>().saturating_sub(asked.len());
    match on_whole_screen(|terminal| turn(terminal, transaction, &classes, &mut review, unshown))? {
        Effect::RollBack => return Ok(Decided::RollBack),
        Effect::Commit => {}
        Effect::Leave | Effect::Nothing => return Ok(Decided::Leave { had_marks: review.has_marks() }),
    }
    for entry in &review.entries {
        match (entry.mark(), entry.parts()) {
            (Some(Mark::Accepted), _) => selection.take(&entry.item),
            (Some(Mark::Rejected), _) => selection.leave(transaction, &entry.item)?,
            (None, Some((hunks, marks))) => {
                let is_wanted: Vec<Option<bool>> = marks.iter().map(|mark| wanted(*mark)).collect();
                // A changed mode goes with the whole file; of a part it waits.
                selection.take_hunks(transaction, &entry.item, hunks, &is_wanted, None)?;
            }
            (Some(Mark::Open | Mark::Reviewed) | None, _) => {}
        }
    }
    Ok(Decided::Commit(selection))
}

fn wanted(mark: Mark) -> Option<bool> {
    match mark {
        Mark::Accepted => Some(true),
        Mark::Rejected => Some(false),
        Mark::Open | Mark::Reviewed => None,
    }
}

fn turn(
    terminal: &mut DefaultTerminal,
    transaction: &Transaction,
    classes: &Classes<'_>,
    review: &mut Review<'_>,
    unshown: usize,
) -> io::Result<Effect> {
    let title = format!("sandbox review {}", short(transaction.id()));
    let is_coloured = matches!(Reader::of_stdout(), Reader::Person { is_coloured: true });
    let picture = screen::Picture { title: &title, is_coloured, unshown };
    loop {
        // A window of another size is folded anew.
        terminal.autoresize()?;
        let (columns, rows) = screen::room(review, terminal.get_frame().area());
        review.set_room(columns, rows);
        if let Some(item) = review.unread() {
            let content = content::read(transaction, classes, item);
            review.show(content);
        }
        terminal.draw(|frame| screen::draw(frame, review, &picture))?;
        let Some(key) = next_key(LOOK)? else { continue };
        match review.key(key.code, key.modifiers) {
            Effect::Nothing => {}
            effect => return Ok(effect),
        }
    }
}
