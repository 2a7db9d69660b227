//! What this session was granted and denied, and what is mounted where. Owns the memory of answers; asks no operator. Used
//! by `Gate`, which also remembers here what the set-up had mounted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_wire::{Group, Op, QuestionId};

use crate::siblings::is_of_form;

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
    /// Groups of names, for one kind of access, with the question that each was offered by.
    groups: Vec<(Group, Op, QuestionId)>,
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

    pub(crate) fn grant_group(&mut self, group: Group, op: Op, by: QuestionId) {
        self.groups.push((group, op, by));
    }

    /// The question whose answer gave a group that has this name, where it is saved as was said.
    pub(crate) fn group_that_covers(&self, path: &Path, op: Op, saved: Option<&str>) -> Option<QuestionId> {
        let (above, name) = (path.parent()?, path.file_name()?.to_str()?);
        let covers = |(group, granted, _): &&(Group, Op, QuestionId)| match group {
            Group::Names { directory, prefix, suffix, saved_as } => {
                let directory = if directory.is_empty() { "/" } else { directory };
                let is_same = *granted == op && above == Path::new(directory) && saved_as.as_deref() == saved;
                is_same && is_of_form(name, prefix, suffix)
            }
            Group::Hosts { .. } | Group::Directory { .. } => false,
        };
        self.groups.iter().find(covers).map(|(_, _, by)| *by)
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
    fn a_group_covers_names_of_its_form_in_its_directory_for_its_access() {
        let mut answers = SessionAnswers::default();
        let group = |directory: &str, saved_as: Option<&str>| Group::Names {
            directory: directory.to_owned(),
            prefix: "app.tmp.".to_owned(),
            suffix: String::new(),
            saved_as: saved_as.map(str::to_owned),
        };
        answers.grant_group(group("/h", None), Op::Create, 3);
        answers.grant_group(group("/h/s", Some("app")), Op::Create, 4);
        answers.grant_group(group("", None), Op::Read, 5);
        for (path, op, saved, by) in [
            ("/h/app.tmp.1", Op::Create, None, Some(3)),
            ("/h/app.tmp.1", Op::Create, Some("app"), None),
            ("/h/app.tmp.1", Op::Write, None, None),
            ("/h/app.tmp.1", Op::Read, None, None),
            ("/h/app.tmp.word", Op::Create, None, None),
            ("/h/x/app.tmp.1", Op::Create, None, None),
            ("/h/app.tmp.1/x", Op::Create, None, None),
            ("/h/s/app.tmp.1", Op::Create, Some("app"), Some(4)),
            ("/h/s/app.tmp.1", Op::Create, Some("other"), None),
            ("/app.tmp.1", Op::Read, None, Some(5)),
        ] {
            assert_eq!(answers.group_that_covers(Path::new(path), op, saved), by, "{op:?} {path}");
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
