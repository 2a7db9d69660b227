//! The open questions: which calls wait for which answer, until when, and whether one more may be asked at all. Owns
//! grouping, numbering, the budget and the clock; reaches nothing outside, so time is handed in. Used by `Gate`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_wire::{Cause, Op, Question, QuestionId, Verdict};

use crate::triggers::{Access, CallId};

const MINUTE: Duration = Duration::from_mins(1);

/// A person reads and answers no question sooner.
const READ_IN: Duration = Duration::from_millis(700);

/// How far a case has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The broker opens what it is about.
    Holding,
    /// The operator has to answer.
    Asked,
    /// It was answered and is being carried out.
    Settling { verdict: Verdict, cause: Cause },
}

/// A question and the calls that wait for it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) question: Question,
    pub(crate) calls: Vec<Access>,
    pub(crate) stage: Stage,
    /// Device and inode of what it is about.
    pub(crate) identity: Option<(u64, u64)>,
    /// The outermost directory of the session alone that this would make.
    pub(crate) tree: Option<PathBuf>,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

/// Why a question was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverBudget {
    /// The first one of a series is told about, the rest are not.
    pub(crate) is_first: bool,
}

#[derive(Debug)]
pub(crate) struct OpenQuestions {
    next: QuestionId,
    cases: BTreeMap<QuestionId, Case>,
    recent: VecDeque<Instant>,
    is_over: bool,
    /// When an answer last made room for a question.
    last_room: Option<Instant>,
    per_minute: usize,
    timeout: Duration,
}

impl OpenQuestions {
    pub(crate) fn new(per_minute: u32, timeout: Duration) -> Self {
        OpenQuestions {
            next: 1,
            cases: BTreeMap::new(),
            recent: VecDeque::new(),
            is_over: false,
            last_room: None,
            per_minute: usize::try_from(per_minute).unwrap_or(usize::MAX),
            timeout,
        }
    }

    pub(crate) fn number(&mut self) -> QuestionId {
        let number = self.next;
        self.next += 1;
        number
    }

    /// The case that an access can wait for: about the same directory and the same kind of access, not answered yet.
    pub(crate) fn joinable(&mut self, access: &Access) -> Option<&mut Case> {
        let joins = |case: &&mut Case| {
            let question = &case.question;
            let is_same = asked_path(question) == access.path && question.op == access.op;
            let is_beside = !is_listing(question.op)
                && !is_listing(access.op)
                && question.op.is_write() == access.op.is_write()
                && directory(asked_path(question)) == directory(&access.path);
            !matches!(case.stage, Stage::Settling { .. }) && (is_same || is_beside)
        };
        self.cases.values_mut().find(joins)
    }

    /// The case that carries out an approval of the same access.
    pub(crate) fn settling(&mut self, access: &Access) -> Option<&mut Case> {
        self.cases.values_mut().find(|case| {
            let is_approved = matches!(case.stage, Stage::Settling { verdict, .. } if verdict.is_allow());
            let (question, is_old) = (&case.question, case.tree.is_none());
            is_approved && is_old && question.op == access.op && asked_path(question) == access.path
        })
    }

    /// The new directory that an open case is about and that this path lies in: it may be on the host by now.
    pub(crate) fn new_above(&self, path: &Path) -> Option<PathBuf> {
        let trees = self.cases.values().filter_map(|case| case.tree.as_deref());
        trees.filter(|tree| path.starts_with(tree)).min().map(Path::to_path_buf)
    }

    /// The case that makes this place, in whatever stage: a second one would make it again.
    pub(crate) fn joinable_new(&mut self, tree: &Path, path: &Path) -> Option<&mut Case> {
        self.cases.values_mut().find(|case| case.tree.as_deref() == Some(tree) && asked_path(&case.question) == path)
    }

    /// Whether one more question may be asked now.
    pub(crate) fn spend(&mut self, now: Instant) -> Result<(), OverBudget> {
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= MINUTE) {
            self.recent.pop_front();
        }
        if self.recent.len() >= self.per_minute {
            let is_first = !self.is_over;
            self.is_over = true;
            return Err(OverBudget { is_first });
        }
        self.is_over = false;
        self.recent.push_back(now);
        Ok(())
    }

    /// A person who answers is not cut off: each answer makes room for one more question, as fast as a person reads one. A client
    /// that answers for a person in no time makes none.
    pub(crate) fn answered_by_person(&mut self, now: Instant) {
        if self.last_room.is_none_or(|last| now.duration_since(last) >= READ_IN) {
            self.last_room = Some(now);
            self.recent.pop_front();
        }
    }

    pub(crate) fn add(&mut self, question: Question, access: Access, stage: Stage, now: Instant) {
        let until = now + self.timeout;
        let case = Case { calls: vec![access], stage, identity: None, tree: None, since: now, until, question };
        self.cases.insert(case.question.id, case);
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn get(&self, id: QuestionId) -> Option<&Case> {
        self.cases.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: QuestionId) -> Option<&mut Case> {
        self.cases.get_mut(&id)
    }

    pub(crate) fn take(&mut self, id: QuestionId) -> Option<Case> {
        self.cases.remove(&id)
    }

    pub(crate) fn asked(&self) -> impl Iterator<Item = &Case> {
        self.cases.values().filter(|case| case.stage == Stage::Asked)
    }

    pub(crate) fn ids(&self) -> Vec<QuestionId> {
        self.cases.keys().copied().collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.asked().map(|case| case.until).min()
    }

    pub(crate) fn expired(&self, now: Instant) -> Vec<QuestionId> {
        self.asked().filter(|case| case.until <= now).map(|case| case.question.id).collect()
    }

    /// Takes a call out of its case. The case's number, and whether no call waits for it any more.
    pub(crate) fn withdraw(&mut self, call: CallId) -> Option<(QuestionId, Access, bool)> {
        for (id, case) in &mut self.cases {
            if let Some(at) = case.calls.iter().position(|access| access.call == call) {
                let access = case.calls.remove(at);
                case.question.waiting = u32::try_from(case.calls.len()).unwrap_or(u32::MAX);
                return Some((*id, access, case.calls.is_empty()));
            }
        }
        None
    }
}

/// What a question of this crate is about: the ones about hosts and keys are asked elsewhere.
pub(crate) fn asked_path(question: &Question) -> &Path {
    question.subject.path().unwrap_or(Path::new(""))
}

/// The directory that an answer with reach `dir` is about.
pub(crate) fn tree_of(question: &Question) -> PathBuf {
    let path = asked_path(question);
    if question.is_dir { path.to_path_buf() } else { path.parent().unwrap_or(path).to_path_buf() }
}

impl Case {
    pub(crate) fn join(&mut self, access: Access) {
        let is_new = access.path != asked_path(&self.question) && !self.question.also.contains(&access.path);
        if is_new {
            self.question.also.push(access.path.clone());
        }
        self.calls.push(access);
        self.question.waiting = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
    }
}

fn is_listing(op: Op) -> bool {
    op == Op::List
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_wire::{Asker, Subject};

    fn access(call: u64, op: Op, path: &str) -> Access {
        Access { call: CallId(call), op, path: path.into(), mode: 0, flags: 0, thread: 7 }
    }

    fn question(id: QuestionId, op: Op, path: &str) -> Question {
        Question {
            id,
            op,
            subject: Subject::Path(path.into()),
            is_dir: false,
            size: 0,
            flags: 0,
            asker: Asker::default(),
            toolchain: None,
            group: None,
            by: None,
            also: Vec::new(),
            is_alone: false,
            hint: None,
            waiting: 1,
            asked: 0.0,
            until: None,
        }
    }

    fn open() -> (OpenQuestions, Instant) {
        let (mut open, now) = (OpenQuestions::new(2, Duration::from_secs(10)), Instant::now());
        let id = open.number();
        open.add(question(id, Op::Read, "/h/a"), access(1, Op::Read, "/h/a"), Stage::Asked, now);
        (open, now)
    }

    #[test]
    fn what_lies_in_one_directory_is_one_question() {
        let (mut open, _) = open();
        for (op, path, joins) in [
            (Op::Read, "/h/a", true),
            (Op::Read, "/h/b", true),
            (Op::Exec, "/h/b", true),
            (Op::Write, "/h/b", false),
            (Op::List, "/h/b", false),
            (Op::Read, "/h/sub/b", false),
        ] {
            assert_eq!(open.joinable(&access(2, op, path)).is_some(), joins, "{op:?} {path}");
        }
    }

    #[test]
    fn an_answered_question_takes_no_further_calls() {
        let (mut open, _) = open();
        let settling = Stage::Settling { verdict: Verdict::DENY_ONCE, cause: Cause::Person };
        open.get_mut(1).expect("open").stage = settling;
        assert!(open.joinable(&access(2, Op::Read, "/h/a")).is_none());
        assert_eq!(open.next_deadline(), None);
    }

    #[test]
    fn the_budget_is_of_a_minute_and_told_once() {
        let (mut open, now) = open();
        assert_eq!(open.spend(now), Ok(()));
        assert_eq!(open.spend(now), Ok(()));
        assert_eq!(open.spend(now), Err(OverBudget { is_first: true }));
        assert_eq!(open.spend(now), Err(OverBudget { is_first: false }));
        assert_eq!(open.spend(now + MINUTE), Ok(()));
    }

    #[test]
    fn a_person_who_answers_is_asked_on() {
        let (mut open, now) = open();
        let mut at = now;
        for _ in 0..100 {
            assert_eq!(open.spend(at), Ok(()));
            open.answered_by_person(at);
            at += Duration::from_millis(700);
        }
        // The controls: without answers the budget counts, and so it does where they come faster than a question is read.
        let at = at + MINUTE;
        assert_eq!((open.spend(at), open.spend(at)), (Ok(()), Ok(())));
        assert!(open.spend(at).is_err());
        open.answered_by_person(at);
        assert_eq!(open.spend(at), Ok(()));
        open.answered_by_person(at);
        assert!(open.spend(at).is_err());
    }

    #[test]
    fn time_runs_out_and_numbers_never_come_back() {
        let (mut open, now) = open();
        assert!(open.expired(now).is_empty());
        assert_eq!(open.expired(now + Duration::from_secs(10)), [1]);
        let withdrawn = open.withdraw(CallId(1)).expect("it waits");
        assert_eq!((withdrawn.0, withdrawn.2), (1, true));
        assert!(open.take(1).is_some());
        assert!(open.take(1).is_none());
        assert_eq!(open.number(), 2);
    }
}
