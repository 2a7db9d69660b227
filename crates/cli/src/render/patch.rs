//! Changes as a patch: for a program the bytes that `git apply` takes, for a person at a terminal the same with colours and without
//! anything that could draw on the screen. Owns the remarks around it and what stands in it only to be read. Called by
//! `commands::changes` and `commands::export`.

use std::io::{self, IsTerminal as _, Write};

use cofferdam_workspace::diff::{Hunk, Tag};
use cofferdam_workspace::patch::{self, Held, Part};
use cofferdam_workspace::{Change, Changes, Kind, Transaction, What};

use crate::render::changes::{is_object, name, remarks};
use crate::render::output::escaped;
use crate::waiting::Classes;

/// Of a patch: a workload can make one of any size with links to one file.
const MOST_WRITTEN: usize = 1 << 30;

/// Whom a patch is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Program,
    Person { is_coloured: bool },
}

impl Reader {
    pub(crate) fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Reader::Program;
        }
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Reader::Person { is_coloured: !is_refused && !is_dumb }
    }
}

/// What is not in a patch although it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Too large, or not to be read.
    pub(crate) left: Vec<String>,
    pub(crate) is_cut: bool,
}

impl Missing {
    pub(crate) fn is_none(&self) -> bool {
        self.left.is_empty() && !self.is_cut
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .left
            .iter()
            .map(|name| format!("{name} is not in it: too large for a patch, or not readable"))
            .collect();
        if self.is_cut {
            lines.push("there is more than a patch holds: name paths, or use `sandbox export --tar`".to_owned());
        }
        lines
    }
}

/// Writes what was changed in each file.
pub(crate) fn write(
    transaction: &Transaction,
    changes: &[Changes],
    reader: Reader,
    out: &mut dyn Write,
) -> io::Result<Missing> {
    let classes = Classes::of(transaction);
    let mut missing = Missing::default();
    let mut page = Page { reader, out, is_to_read: false, written: 0 };
    // Names of two directories cannot be told apart in one patch: the others are there to be read.
    let is_of_project = |tree: usize| !transaction.manifest.trees[tree].is_repository;
    let applied = (0..changes.len()).find(|tree| is_of_project(*tree) && !changes[*tree].changes.is_empty());
    for (tree, found) in changes.iter().enumerate() {
        if changes.iter().filter(|found| !found.changes.is_empty()).count() > 1 && !found.changes.is_empty() {
            page.remark(&format!("in {}", name(&transaction.manifest.trees[tree].lower)))?;
        }
        for change in found.changes.iter().filter(|change| !is_object(change)) {
            if page.written > MOST_WRITTEN {
                missing.is_cut = true;
                return Ok(missing);
            }
            let path = name(&change.path);
            for remark in remarks(&classes, tree, change) {
                page.remark(&format!("{path}: {remark}"))?;
            }
            page.is_to_read = applied != Some(tree) || patch::is_refused_by_git(change);
            let held = patch::write(transaction, tree, change, &mut |part, line| page.line(part, line))?;
            page.is_to_read = false;
            match held {
                Held::Whole => {}
                Held::Nothing => page.remark_directory(change, &path)?,
                Held::Left => {
                    page.remark(&format!("{path}: not in this patch, too large or not readable"))?;
                    missing.left.push(path);
                }
            }
        }
    }
    Ok(missing)
}

/// One hunk, as in a patch.
pub(crate) fn write_hunk(hunk: &Hunk, reader: Reader, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page { reader, out, is_to_read: false, written: 0 };
    page.line(Part::Position, hunk.position().as_bytes())?;
    hunk.lines.iter().try_for_each(|line| patch::write_line(line, &mut |part, text| page.line(part, text)))
}

struct Page<'a> {
    reader: Reader,
    out: &'a mut dyn Write,
    /// Not to be applied: a program gets it as remarks.
    is_to_read: bool,
    written: usize,
}

impl Page<'_> {
    fn line(&mut self, part: Part, line: &[u8]) -> io::Result<()> {
        let code = match part {
            // A person reads nothing in it.
            Part::Binary if self.is_to_read || self.reader != Reader::Program => return Ok(()),
            Part::Header | Part::Binary => "1",
            Part::Position => "36",
            Part::Line(Tag::Added) => "32",
            Part::Line(Tag::Removed) => "31",
            Part::Line(Tag::Context) => "",
        };
        self.written += line.len() + 1;
        match self.reader {
            Reader::Program => {
                if self.is_to_read {
                    self.out.write_all(b"# ")?;
                }
                self.out.write_all(line)?;
                self.out.write_all(b"\n")
            }
            Reader::Person { is_coloured } => {
                let text = String::from_utf8_lossy(line);
                let text = text.split('\t').map(escaped).collect::<Vec<_>>().join("\t");
                if is_coloured && !code.is_empty() {
                    writeln!(self.out, "\x1b[{code}m{text}\x1b[m")
                } else {
                    writeln!(self.out, "{text}")
                }
            }
        }
    }

    /// Stands before a patch, where `git apply` reads over it.
    fn remark(&mut self, text: &str) -> io::Result<()> {
        self.written += text.len() + 3;
        match self.reader {
            Reader::Person { is_coloured: true } => writeln!(self.out, "\x1b[33m# {text}\x1b[m"),
            _ => writeln!(self.out, "# {text}"),
        }
    }

    fn remark_directory(&mut self, change: &Change, path: &str) -> io::Result<()> {
        if change.kind() != Kind::Directory {
            return Ok(());
        }
        let what = match change.what {
            What::Added => "new",
            What::Modified | What::Replaced => "changed",
            What::Deleted => "removed",
        };
        self.remark(&format!("{path}: {what} directory"))
    }
}
