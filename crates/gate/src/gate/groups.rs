//! Groups of siblings in the gate: which one a question offers, and what one that was granted covers. Owns that rules stay above a
//! group: none is offered that a rule would take a name of, and each access is ruled by itself first. Part of `Gate`.

use std::path::Path;

use cofferdam_policy::{Access as RuleAccess, folded};
use cofferdam_wire::{Cause, Group, Keep, Op, QuestionId, Reach, Verdict};
use rustix::io::Errno;

use super::Gate;
use crate::open_questions::asked_path;
use crate::triggers::Access;

impl Gate {
    /// Completes a question that is about to be asked: what an answer can be about besides, as it stays from then on.
    pub(super) fn offer(&mut self, id: QuestionId) {
        let Some(case) = self.open.get(id) else { return };
        let (question, call) = (&case.question, case.calls.first());
        let (op, path) = (question.op, asked_path(question).to_path_buf());
        let is_alone = question.is_alone;
        let is_file = !question.is_dir && case.tree.is_none();
        let group = call.filter(|_| is_file).and_then(|call| self.group_of(op, &path, is_alone, call));
        if is_file {
            self.siblings.asked(op, &path);
        }
        if let Some(case) = self.open.get_mut(id) {
            case.question.group = group;
        }
    }

    fn group_of(&self, op: Op, path: &Path, is_alone: bool, call: &Access) -> Option<Group> {
        let saved_as = |path: &Path| self.saved_name(&Access { path: path.to_path_buf(), ..call.clone() });
        let names =
            self.siblings.names(op, path, saved_as).filter(|group| op != Op::Exec && self.rules_allow(op, group));
        names.or_else(|| self.siblings.directory(op, path).filter(|_| !is_alone))
    }

    fn saved_name(&self, access: &Access) -> Option<String> {
        self.saved_as(access).and_then(|path| Some(path.file_name()?.to_str()?.to_owned()))
    }

    /// Whether no rule in the directory could be about a name that begins and ends so: what is said is given. Rougher than the
    /// rules themselves, which each access meets first.
    fn rules_allow(&self, op: Op, group: &Group) -> bool {
        let Group::Names { directory, prefix, suffix, saved_as } = group else { return true };
        let (prefix, suffix) = (folded(prefix), folded(suffix));
        let directory = Path::new(directory);
        let is_about = |place: &Path| {
            let name = place.strip_prefix(directory).ok().and_then(|below| below.iter().next()).or(place.file_name());
            let name = name.unwrap_or_default().to_string_lossy();
            let name = folded(&name);
            match name.split_once('*') {
                Some((begin, _)) => begin.starts_with(&*prefix) || prefix.starts_with(begin),
                None => name.starts_with(&*prefix) && name.ends_with(&*suffix),
            }
        };
        let rules = self.rules.covers_below(directory);
        let mut rules = rules.iter().filter(|(rule, _)| op.is_write() || rule.access != RuleAccess::Protect);
        let is_saved_freely = saved_as.as_ref().is_none_or(|name| self.is_unknown(&directory.join(name)));
        is_saved_freely && !rules.any(|(rule, place)| is_about(place) || is_about(&rule.path))
    }

    /// The question whose answer about a group covers this.
    pub(super) fn granted_by_group(&self, access: &Access) -> Option<QuestionId> {
        self.answers.group_that_covers(&access.path, access.op, self.saved_name(access).as_deref())
    }

    /// Remembers a group that was allowed.
    pub(super) fn grant_group(&mut self, id: QuestionId) {
        let question = self.open.get(id).map(|case| &case.question);
        if let Some((group, op)) = question.and_then(|question| Some((question.group.clone()?, question.op))) {
            self.answers.grant_group(group, op, id);
        }
    }

    /// Open questions that the answer to question `by` is about as well.
    pub(super) fn settle_covered(&mut self, by: QuestionId) -> Result<(), Errno> {
        let calls = self.open.asked().filter_map(|case| Some((case.question.id, case.calls.first()?.clone())));
        let covered: Vec<QuestionId> =
            calls.filter(|(_, call)| self.granted_by_group(call) == Some(by)).map(|(id, _)| id).collect();
        for id in covered {
            if let Some(case) = self.open.get_mut(id) {
                case.question.by = Some(by);
            }
            let verdict = Verdict::Allow { reach: Reach::File, keep: Keep::Session };
            self.settle(id, verdict, Cause::Grant)?;
        }
        Ok(())
    }
}
