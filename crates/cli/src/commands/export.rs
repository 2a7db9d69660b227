//! `sandbox export`: what a session changed, as a file for elsewhere. Owns which of it is written and where to; the two formats are
//! `workspace`'s, which session is meant `commands::changes`'s.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write};
use std::process::ExitCode;

use cofferdam_workspace::{Changes, Transaction, archive};

use crate::args::changes::ExportArgs;
use crate::commands::changes::{ChangesError, looked_at};
use crate::render::changes::name;
use crate::render::exit::NOT_SO;
use crate::render::output::say;
use crate::render::patch::{self, Reader};
use crate::waiting::Classes;

pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode, ChangesError> {
    let (transaction, mut changes) = looked_at(&args.which, &args.paths)?;
    let mut notes = if args.opens { Vec::new() } else { without_opened(&transaction, &mut changes) };
    if args.tar && args.output.is_none() && std::io::stdout().is_terminal() {
        return Err(ChangesError::Terminal);
    }
    let write = |source| ChangesError::Write { source };
    let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(match &args.output {
        // What has the name stays.
        Some(path) => Box::new(File::create_new(path).map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => ChangesError::Exists { path: path.clone() },
            _ => write(source),
        })?),
        None => Box::new(std::io::stdout().lock()),
    });
    let written = if args.tar {
        written_as_tar(&transaction, &changes, &mut out)
    } else {
        patch::write(&transaction, &changes, Reader::Program, &mut out).map(|missing| missing.lines())
    };
    notes.extend(written.and_then(|lines| out.flush().map(|()| lines)).map_err(write)?);
    for note in &notes {
        say!("sandbox: {note}");
    }
    Ok(if notes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_SO) })
}

/// What host programs obey without being asked is exported by a word of its own, as it is committed by one.
fn without_opened(transaction: &Transaction, changes: &mut [Changes]) -> Vec<String> {
    let classes = Classes::of(transaction);
    let mut notes = Vec::new();
    for (tree, found) in changes.iter_mut().enumerate() {
        found.changes.retain(|change| {
            let is_left = classes.is_opened(tree, change);
            if is_left {
                notes.push(format!("{} is not in it: it needs --opens", name(&change.path)));
            }
            !is_left
        });
    }
    notes
}

/// Names of two directories cannot be told apart in one archive: the first with a change is written.
fn written_as_tar(transaction: &Transaction, changes: &[Changes], out: &mut dyn Write) -> std::io::Result<Vec<String>> {
    let Some(tree) = changes.iter().position(|found| !found.changes.is_empty()) else { return Ok(Vec::new()) };
    let not_held = archive::write(transaction, tree, &changes[tree].changes, out)?;
    let removed =
        not_held.removed.iter().map(|path| format!("{} was removed, which an archive does not say", name(path)));
    let left = not_held.left.iter().map(|path| format!("{} is not in it: too large, or not readable", name(path)));
    let others = changes.iter().enumerate().skip(tree + 1).filter(|(_, found)| !found.changes.is_empty());
    let others = others.map(|(other, _)| {
        format!("{} is not in it: name it to export it", name(&transaction.manifest.trees[other].lower))
    });
    Ok(removed.chain(left).chain(others).collect())
}
