//! Groups of siblings in the gate: the files that a question offers besides its own, and what a group that was granted covers. Owns that
//! a group is a list of names that are there when the question is asked, and that rules stay above it: no name is on the list that a
//! rule is about or that was denied, and each access is ruled by itself first. Part of `Gate`.

use std::path::Path;

use cofferdam_policy::is_called_like_a_secret;
use cofferdam_policy::secret_text::names_secret;
use cofferdam_wire::{Group, Op, QuestionId};
use rustix::fs::FileType;

use super::Gate;
use crate::host_files;
use crate::open_questions::asked_path;
use crate::path_rules::Standing;

/// More names than a person reads before an answer.
const MOST_NAMES: usize = 16;
/// In a directory with more, looking for them would keep the session waiting.
const MOST_THERE: usize = 10_000;

impl Gate {
    /// Completes a question that is about to be asked: which files an answer can be about besides, as they stay from then on.
    pub(super) fn offer(&mut self, id: QuestionId) {
        let Some(case) = self.open.get(id) else { return };
        let (op, path) = (case.question.op, asked_path(&case.question).to_path_buf());
        if case.question.is_dir || case.tree.is_some() || !matches!(op, Op::Read | Op::Write) {
            return;
        }
        let group = self.siblings_of(op, &path);
        self.siblings.asked(op, &path);
        if let Some(case) = self.open.get_mut(id) {
            case.question.group = group;
        }
    }

    /// None where there is no other, or so many that they are not read.
    fn siblings_of(&self, op: Op, path: &Path) -> Option<Group> {
        let form = self.siblings.form(op, path)?;
        let (directory, asked) = (path.parent()?, path.file_name()?.to_str()?);
        let there = host_files::names_up_to(directory, MOST_THERE).ok()??;
        let there = there.into_iter().filter_map(|name| String::from_utf8(name).ok());
        let listed = there.filter(|name| form.has(name) && self.may_be_listed(op, directory, name));
        let mut names: Vec<String> = listed.take(MOST_NAMES + 1).collect();
        names.sort();
        let is_more = names.len() > 1 && names.len() <= MOST_NAMES && names.iter().any(|name| name == asked);
        is_more.then(|| directory.to_str().map(|directory| Group::Files { directory: directory.to_owned(), names }))?
    }

    /// Whether it is a file that would be asked about like the one of the question. What is called like a secret is asked about alone.
    fn may_be_listed(&self, op: Op, directory: &Path, name: &str) -> bool {
        let path = &directory.join(name);
        let is_file =
            || host_files::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        let is_secret = || {
            is_called_like_a_secret(name) || directory.to_str().is_none_or(|above| above.split('/').any(names_secret))
        };
        let is_made = || self.trigger.as_ref().is_some_and(|trigger| trigger.is_made(path));
        self.rules.standing(self.rules.ruling(path)) == Standing::Unknown
            && !self.answers.is_denied(path, op)
            && !is_secret()
            && !is_made()
            && is_file()
    }

    /// Remembers a group that was allowed.
    pub(super) fn grant_group(&mut self, id: QuestionId) {
        let question = self.open.get(id).map(|case| &case.question);
        let group = question.and_then(|question| Some((question.group.as_ref()?.paths(), question.op)));
        if let Some((paths, op)) = group {
            self.answers.grant_group(paths, op, id);
        }
    }
}
