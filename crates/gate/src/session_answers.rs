//! What this session was granted and denied, and what is mounted where. Owns the memory of answers; asks no operator. Used
//! by `Gate`, which also remembers here what the set-up had mounted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_wire::{Op, QuestionId};

/// What a grant gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gives {
    File {
        write: bool,
    },
    Tree {
        write: bool,
    },
    /// The names in a directory, nothing of what they stand for.
    Names,
    /// A program that can be started and not be read.
    Start,
    /// A file of this name can be made where there is none; what is there is not given.
    Make,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) path: PathBuf,
    pub(crate) gives: Gives,
}

impl Grant {
    fn covers(&self, path: &Path, op: Op) -> bool {
        match self.gives {
            Gives::File { write } => path == self.path && op != Op::List && (write || !op.is_write()),
            Gives::Tree { write } => path.starts_with(&self.path) && (write || !op.is_write()),
            Gives::Names => path == self.path && op == Op::List,
            Gives::Start => path == self.path && op == Op::Exec,
            Gives::Make => path == self.path && op == Op::Create,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) path: PathBuf,
    pub(crate) is_tree: bool,
    pub(crate) only_write: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SessionAnswers {
    grants: Vec<Grant>,
    denials: Vec<Denial>,
    /// Groups of files, for one kind of access, with the question that each was offered by.
    groups: Vec<(Vec<PathBuf>, Op, QuestionId)>,
    /// With device and inode of what was mounted by an answer: as long as it is mounted, nothing else has them.
    mounted: BTreeMap<PathBuf, Option<(u64, u64)>>,
}

impl SessionAnswers {
    pub(crate) fn new(mounted: impl IntoIterator<Item = PathBuf>) -> Self {
        SessionAnswers { mounted: mounted.into_iter().map(|path| (path, None)).collect(), ..SessionAnswers::default() }
    }

    pub(crate) fn grant(&mut self, grant: Grant) {
        if !self.grants.contains(&grant) {
            self.grants.push(grant);
        }
    }

    pub(crate) fn grant_group(&mut self, paths: Vec<PathBuf>, op: Op, by: QuestionId) {
        self.groups.push((paths, op, by));
    }

    pub(crate) fn forget_group(&mut self, by: QuestionId) {
        self.groups.retain(|(_, _, question)| *question != by);
    }

    /// The question whose answer gave a group that has this file.
    pub(crate) fn group_that_covers(&self, path: &Path, op: Op) -> Option<QuestionId> {
        let has = |(paths, granted, _): &&(Vec<PathBuf>, Op, QuestionId)| {
            *granted == op && paths.iter().any(|granted| granted == path)
        };
        self.groups.iter().find(has).map(|(_, _, by)| *by)
    }

    pub(crate) fn deny(&mut self, denial: Denial) {
        if !self.denials.contains(&denial) {
            self.denials.push(denial);
        }
    }

    pub(crate) fn granted(&self, path: &Path, op: Op) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.covers(path, op))
    }

    /// Whether this very grant was given, and not only one that covers it.
    pub(crate) fn holds(&self, grant: &Grant) -> bool {
        self.grants.contains(grant)
    }

    pub(crate) fn is_denied(&self, path: &Path, op: Op) -> bool {
        self.denials.iter().any(|denial| {
            let is_about = if denial.is_tree { path.starts_with(&denial.path) } else { path == denial.path };
            is_about && (op.is_write() || !denial.only_write)
        })
    }

    pub(crate) fn is_mounted(&self, path: &Path) -> bool {
        self.mounted.contains_key(path)
    }

    pub(crate) fn mounted_object(&self, path: &Path) -> Option<(u64, u64)> {
        self.mounted.get(path).copied().flatten()
    }

    pub(crate) fn mount(&mut self, path: PathBuf, object: Option<(u64, u64)>) {
        self.mounted.insert(path, object);
    }

    pub(crate) fn unmount(&mut self, path: &Path) {
        self.mounted.remove(path);
    }

    /// The outermost of what is mounted below `path`: a mount there would cover them.
    pub(crate) fn children(&self, path: &Path) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for below in self.mounted.keys().filter(|below| *below != path && below.starts_with(path)) {
            if !found.iter().any(|outer| below.starts_with(outer)) {
                found.push(below.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_gives_what_it_says_and_no_more() {
        let mut answers = SessionAnswers::default();
        for (path, gives) in [
            ("/h/f", Gives::File { write: false }),
            ("/h/w", Gives::File { write: true }),
            ("/h/t", Gives::Tree { write: false }),
            ("/h/l", Gives::Names),
            ("/h/x", Gives::Start),
            ("/h/m", Gives::Make),
        ] {
            answers.grant(Grant { path: path.into(), gives });
        }
        for (path, op, covered) in [
            ("/h/f", Op::Read, true),
            ("/h/f", Op::Exec, true),
            ("/h/f", Op::Write, false),
            ("/h/f/x", Op::Read, false),
            ("/h/w", Op::Write, true),
            ("/h/t", Op::List, true),
            ("/h/t/a/b", Op::Read, true),
            ("/h/t/a/b", Op::Create, false),
            ("/h/tt", Op::Read, false),
            ("/h/l", Op::List, true),
            ("/h/l/a", Op::Read, false),
            ("/h/x", Op::Exec, true),
            ("/h/x", Op::Read, false),
            ("/h/m", Op::Create, true),
            ("/h/m", Op::Write, false),
            ("/h/m", Op::Read, false),
        ] {
            assert_eq!(answers.granted(Path::new(path), op).is_some(), covered, "{op:?} {path}");
        }
    }

    #[test]
    fn a_group_covers_its_files_for_its_access() {
        let mut answers = SessionAnswers::default();
        answers.grant_group(["/h/app.1", "/h/app.2"].map(PathBuf::from).to_vec(), Op::Read, 3);
        answers.grant_group(vec![PathBuf::from("/h/app.1")], Op::Write, 4);
        for (path, op, by) in [
            ("/h/app.1", Op::Read, Some(3)),
            ("/h/app.2", Op::Read, Some(3)),
            ("/h/app.1", Op::Write, Some(4)),
            ("/h/app.2", Op::Write, None),
            ("/h/app.2", Op::Create, None),
            ("/h/app.3", Op::Read, None),
            ("/h/app.1/x", Op::Read, None),
            ("/h", Op::Read, None),
        ] {
            assert_eq!(answers.group_that_covers(Path::new(path), op), by, "{op:?} {path}");
        }
    }

    #[test]
    fn children_are_the_outermost_mounts_below() {
        let mounted = ["/h/p", "/h/p/.git", "/h/pp", "/h", "/proc"].map(PathBuf::from);
        let answers = SessionAnswers::new(mounted);
        assert_eq!(answers.children(Path::new("/h")), [PathBuf::from("/h/p"), PathBuf::from("/h/pp")]);
        assert!(answers.children(Path::new("/proc")).is_empty());
    }
}
