//! What a session makes in places that are not given (decision 0056): a directory exists for the session alone until something
//! is opened below it, a file that an answer made is the session's to rename and remove. Owns which change of a name is
//! allowed, and what a first open below a new directory comes to; the changes themselves are the trigger's. Part of `Gate`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use cofferdam_policy::{Access as RuleAccess, OnUnknown};
use cofferdam_wire::{Cause, Keep, Op, QuestionId, Reach, Verdict};
use rustix::fs::Mode;
use rustix::io::Errno;

use super::{Caches, Expected, Gate, News, object, parent};
use crate::broker::orders::{Order, Outcome};
use crate::host_files;
use crate::open_questions::{Stage, asked_path};
use crate::path_rules::Standing;
use crate::session_answers::{Gives, Grant};
use crate::triggers::fuse::made::{MadeFile, saved_as};
use crate::triggers::{Access, Answer, CallId, Change, Refused};

/// Orders to write to the disk that are on their way at once: the broker must always have room for the next order.
const MOST_SYNCS: usize = 8;
/// New directories that one answer makes, and the bytes of their names.
const MOST_AT_ONCE: usize = 512;
const MOST_BYTES: usize = 64 << 10;

impl Gate {
    /// The lock of a directory is held meanwhile: answered at once, by rules and by what was answered before.
    pub(super) fn change(&mut self, change: Change) -> Result<(), Errno> {
        let answer = self.may_change(&change).map_or_else(Answer::Refuse, |()| Answer::Go);
        if answer == Answer::Refuse(Errno::ROFS) {
            let Change { what, path, thread, .. } = change;
            self.tell_refused(Refused { what, path, thread });
        }
        self.reply(change.call, answer)
    }

    fn may_change(&self, change: &Change) -> Result<(), Errno> {
        let path = change.to.as_ref().map_or(&change.path, |to| &to.path);
        // What lies in a directory moves along: each of its names is one that could have been made there.
        for (along, _) in change.to.iter().flat_map(|_| self.made_in(&change.path, &change.path)) {
            self.may_be_called(&path.join(along))?;
        }
        self.may_be_called(path)?;
        let standing = self.rules.standing(self.rules.ruling(path));
        match (standing, &change.to) {
            // A cache is given for the session alone; what else is known is for reading.
            (Standing::Readable, Some(to)) if to.is_file => Err(Errno::ROFS),
            (Standing::Readable, _) if !self.is_cache(path) && !self.rules.is_on_the_way(path) => Err(Errno::ROFS),
            (_, Some(to)) if to.is_file => {
                let is_known = to.replaces
                    || self.answers.granted(path, Op::Create).is_some()
                    || change.path.file_name().and_then(saved_as).as_deref() == path.file_name();
                // A name that the operator was not told: the program can copy, which is asked about.
                if is_known { Ok(()) } else { Err(Errno::XDEV) }
            }
            // What is mounted below would move along.
            (_, Some(_)) if self.rules.is_on_the_way(&change.path) => Err(Errno::BUSY),
            (Standing::Unknown, _) if self.plan.verdict != OnUnknown::Ask && !self.rules.is_on_the_way(path) => {
                Err(Errno::ROFS)
            }
            _ => Ok(()),
        }
    }

    /// Rules and what was denied say no to some names, whatever a change is.
    fn may_be_called(&self, path: &Path) -> Result<(), Errno> {
        match self.rules.standing(self.rules.ruling(path)) {
            Standing::Hidden | Standing::Masked => Err(Errno::ACCESS),
            Standing::Protected => Err(Errno::ROFS),
            _ if self.answers.is_denied(path, Op::Create) => Err(Errno::ACCESS),
            _ => Ok(()),
        }
    }

    fn is_cache(&self, path: &Path) -> bool {
        self.rules.rule(self.rules.ruling(path)).is_some_and(|rule| rule.access == RuleAccess::Overlay)
    }

    /// A thread that only looks at a directory of the session alone is told; one that goes in would stay below what is
    /// mounted there later, so it waits for that. One that is on its way to what is mounted already only passes.
    pub(super) fn entered(&mut self, access: Access) -> Result<(), Errno> {
        let rule = self.rules.rule(self.rules.ruling(&access.path)).map(|rule| rule.access);
        let comes_to_something = match rule {
            None => self.plan.verdict == OnUnknown::Ask,
            Some(rule) => matches!(rule, RuleAccess::Overlay | RuleAccess::Write),
        };
        let waits = comes_to_something
            && !self.rules.is_on_the_way(&access.path)
            && self.processes.as_ref().is_some_and(|processes| processes.is_going_in(access.thread));
        if waits { self.consider(access) } else { self.reply(access.call, Answer::Go) }
    }

    /// The first open below a directory of the session alone, whose outermost one is `tree`.
    pub(super) fn consider_new(&mut self, access: Access, tree: &Path) -> Result<(), Errno> {
        let rule = self.rules.rule(self.rules.ruling(&access.path));
        let given = rule.map(|rule| (rule.access, rule.path.components().count()));
        match given {
            Some((RuleAccess::Overlay, _)) if matches!(self.caches, Caches::Unknown) => {
                self.waiting_for_caches.push(access);
                Ok(())
            }
            Some((RuleAccess::Overlay | RuleAccess::Write, depth)) => {
                let depth = depth.max(tree.components().count());
                let place: PathBuf = access.path.components().take(depth).collect();
                let verdict = Verdict::Allow { reach: Reach::File, keep: Keep::Session };
                let stage = Stage::Settling { verdict, cause: Cause::Rule };
                let access = Access { path: place, ..access };
                match self.open.joinable_new(tree, &access.path) {
                    Some(case) => case.join(access),
                    None => return self.open_new(access, tree, stage),
                }
                Ok(())
            }
            // As in a known place that is there: it is read-only, and programs go on without.
            Some((RuleAccess::Read, _)) => self.reply(access.call, Answer::Refuse(Errno::ROFS)),
            Some(_) => self.deny_unasked(&access, Cause::Rule),
            None if self.plan.verdict != OnUnknown::Ask => self.deny_unasked(&access, Cause::OnUnknown),
            None => self.ask_new(Access { path: tree.to_path_buf(), ..access }, tree),
        }
    }

    fn ask_new(&mut self, access: Access, tree: &Path) -> Result<(), Errno> {
        if self.answers.is_denied(tree, Op::Create) {
            return self.reply(access.call, Answer::Refuse(Errno::ACCESS));
        }
        if let Some(case) = self.open.joinable_new(tree, tree) {
            case.join(access);
            if case.stage == Stage::Asked {
                self.news.push(News::Asked(Box::new(case.question.clone())));
            }
            return Ok(());
        }
        if self.spend() {
            self.open_new(access, tree, Stage::Holding)
        } else {
            self.deny_unasked(&access, Cause::Budget)
        }
    }

    /// As `open_case`; what is held is the directory of the host that the outermost new one is made in.
    fn open_new(&mut self, access: Access, tree: &Path, stage: Stage) -> Result<(), Errno> {
        if !self.has_broker() {
            return self.deny_unasked(&access, Cause::Failed);
        }
        let id = self.open.number();
        let mut question = self.question(id, &access);
        // A rule may give one file of it.
        question.is_dir = self.is_new_directory(&access.path);
        (question.is_alone, question.hint) = (false, None);
        self.open.add(question, access, stage, Instant::now());
        if let Some(case) = self.open.get_mut(id) {
            case.tree = Some(tree.to_path_buf());
        }
        let directory = tree.parent().unwrap_or(tree).to_path_buf();
        self.order(&Order::Hold { id: parent(id), path: directory.clone() }, Expected::Nothing);
        self.order(&Order::Hold { id: object(id), path: directory }, Expected::Object(id));
        self.lose_broken()
    }

    fn is_new_directory(&self, path: &Path) -> bool {
        self.trigger.as_ref().is_some_and(|trigger| !trigger.made_in(path).is_empty())
    }

    /// The directories of the session alone at or below `tree`, by their names below `above`.
    fn made_in(&self, tree: &Path, above: &Path) -> Vec<(PathBuf, u32)> {
        let made = self.trigger.as_ref().map(|trigger| trigger.made_in(tree)).unwrap_or_default();
        let named =
            made.into_iter().filter_map(|(path, mode)| Some((path.strip_prefix(above).ok()?.to_path_buf(), mode)));
        named.filter(|(path, _)| !path.as_os_str().is_empty()).collect()
    }

    /// Makes the directories for real, or for a cache that is thrown away in the session's own, and mounts what was asked.
    pub(super) fn give_new(&mut self, id: QuestionId, path: &Path, tree: &Path) {
        let above = tree.parent().unwrap_or(tree);
        if self.is_cache(path) {
            let Ok(source) = self.new_cache(path) else { return self.fail(id) };
            self.order(&Order::Hold { id: object(id), path: source }, Expected::Nothing);
            self.news.push(News::ThrownAway(path.to_path_buf()));
            return self.mount_own(id, path);
        }
        let is_directory = self.is_new_directory(path);
        let place = if is_directory { path } else { path.parent().unwrap_or(path) };
        let is_whole = !is_directory || self.may_be_given_whole(id, path);
        // Of the directories around it only those on the way.
        let mut directories = self.made_in(tree, above);
        directories.retain(|(made, _)| {
            let made = above.join(made);
            place.starts_with(&made) || is_directory && is_whole && made.starts_with(place)
        });
        let hold = place.strip_prefix(above).unwrap_or(place).to_path_buf();
        // The session has removed it meanwhile, or the host has made one: that is another directory than was asked about.
        let is_another = directories.first().is_none_or(|(made, _)| above.join(made) != tree);
        if is_another || is_too_much(&directories) {
            return self.fail(id);
        }
        self.order(&Order::MakeDirectories { id: object(id), directories, hold }, Expected::Step(id));
        self.more(id);
        if !is_whole {
            // It is there from then on, and what comes into it is asked about.
            return self.gave(id, path.to_path_buf());
        }
        if is_directory {
            return self.mount(id, object(id), path.to_path_buf(), Gives::Tree { write: true });
        }
        let name = PathBuf::from(path.file_name().unwrap_or_default());
        let mode = self.open.get(id).and_then(|case| case.calls.first()).map_or(0o600, |call| call.mode);
        self.order(&Order::Make { id: object(id), name, mode }, Expected::Step(id));
        self.more(id);
        self.mount(id, object(id), path.to_path_buf(), Gives::File { write: true });
    }

    fn may_be_given_whole(&self, id: QuestionId, path: &Path) -> bool {
        self.is_of_rule(id) || self.why_alone(path, true).is_none() && !self.is_for_once(id)
    }

    /// A directory of the session's own, with the directories in it that the session has made by now.
    fn new_cache(&mut self, path: &Path) -> Result<PathBuf, Errno> {
        let Caches::In(directory, count) = &mut self.caches else { return Err(Errno::NOENT) };
        let source = directory.join(format!("cache-{count}"));
        *count += 1;
        rustix::fs::mkdir(&source, Mode::RWXU)?;
        for (made, _) in self.made_in(path, path) {
            std::fs::create_dir_all(source.join(made))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(source)
    }

    /// What lies in it is the session's alone: nothing of it is covered.
    fn mount_own(&mut self, id: QuestionId, target: &Path) {
        let exec = self.plan.exec;
        let (covers, children) = (Vec::new(), self.answers.children(target));
        let order = Order::Mount { id: object(id), target: target.to_path_buf(), write: true, exec, covers, children };
        let grant = Grant { path: target.to_path_buf(), gives: Gives::Tree { write: true } };
        self.order(&order, Expected::Mounted { id, grant, covers: Vec::new(), absent: HashSet::new() });
        self.more(id);
    }

    /// In a tree that is given all of it: directories of the session alone would be gone below the mount, which comes once they
    /// are made. False where there are none.
    pub(super) fn make_all_in(&mut self, id: QuestionId, held: u64, tree: &Path) -> bool {
        let directories = self.made_in(tree, tree);
        let is_any = !directories.is_empty() && !is_too_much(&directories);
        if is_any {
            let order = Order::MakeDirectories { id: held, directories, hold: PathBuf::new() };
            self.order(&order, Expected::Made { id, held, tree: tree.to_path_buf() });
            self.more(id);
        }
        is_any
    }

    /// Makes the file that was asked about, so that its calls are served; false where it has to be mounted.
    pub(super) fn make_served(&mut self, id: QuestionId, keep: Keep) -> Result<bool, Errno> {
        let Some(case) = self.open.get(id) else { return Ok(false) };
        let (Some(directory), Some(call)) = (case.identity, case.calls.first().cloned()) else { return Ok(false) };
        if call.path != asked_path(&case.question) {
            return Ok(false);
        }
        let made =
            self.trigger.as_mut().map_or(Ok(false), |trigger| trigger.make(&call, directory, keep == Keep::Once))?;
        if made && keep != Keep::Once {
            for path in self.saved_as(&call).into_iter().chain([call.path]) {
                self.answers.grant(Grant { path, gives: Gives::Make });
            }
        }
        Ok(made)
    }

    pub(super) fn saved_as(&self, access: &Access) -> Option<PathBuf> {
        let can_serve = self.trigger.as_ref().is_some_and(|trigger| trigger.can_serve());
        let name = access.path.file_name().filter(|_| can_serve && access.op == Op::Create).and_then(saved_as)?;
        Some(access.path.with_file_name(name))
    }

    /// A process that stood in a directory before that was given makes a file there: it does not meet the mount.
    pub(super) fn make_below(&mut self, access: &Access) -> Result<(), Errno> {
        let standing = self.rules.standing(self.rules.ruling(&access.path));
        let is_free = matches!(standing, Standing::Unknown | Standing::Writable);
        let directory = access.path.parent().and_then(|directory| host_files::stat(directory).ok());
        let made = match (directory, &mut self.trigger) {
            (Some(directory), Some(trigger)) if is_free && self.late.show(&access.path) == Ok(false) => {
                trigger.make(access, (directory.st_dev, directory.st_ino), false)
            }
            _ => Ok(false),
        };
        let answer = match made {
            Ok(true) => Answer::Serve { identity: None },
            Ok(false) => Answer::Refuse(Errno::ROFS),
            Err(errno) => Answer::Refuse(errno),
        };
        self.reply(access.call, answer)
    }

    /// The broker does it: a disk may take long.
    pub(super) fn sync(&mut self, call: CallId, file: Rc<MadeFile>) -> Result<(), Errno> {
        self.syncs.waiting.push_back((call, file));
        self.sync_next()
    }

    fn sync_next(&mut self) -> Result<(), Errno> {
        while self.syncs.under_way < MOST_SYNCS {
            let Some((call, file)) = self.syncs.waiting.pop_front() else { break };
            if !self.has_broker() {
                self.reply(call, Answer::Refuse(Errno::IO))?;
                continue;
            }
            let Ok(file) = rustix::io::fcntl_dupfd_cloexec(&file.file, 3) else {
                self.reply(call, Answer::Refuse(Errno::NFILE))?;
                continue;
            };
            let sent = self.broker.as_mut().ok_or(Errno::PIPE).and_then(|broker| broker.send(&Order::Sync, Some(file)));
            match sent {
                Ok(()) => self.expected.push_back(Expected::Synced(call)),
                Err(_) => self.is_broken = true,
            }
            self.syncs.under_way += 1;
        }
        self.lose_broken()
    }

    pub(super) fn synced(&mut self, call: CallId, outcome: Outcome) -> Result<(), Errno> {
        self.syncs.under_way = self.syncs.under_way.saturating_sub(1);
        let answer = match outcome {
            Outcome::Failed(errno) => Answer::Refuse(errno),
            _ => Answer::Go,
        };
        self.reply(call, answer)?;
        self.sync_next()
    }

    /// Directories that stayed the session's alone are told: for the host nothing has come of them.
    pub(super) fn tell_unmade(&mut self) {
        let made = self.trigger.as_ref().map(|trigger| trigger.made_in(Path::new("/"))).unwrap_or_default();
        let mut told: Vec<PathBuf> = Vec::new();
        for (path, _) in made {
            let is_unknown = self.rules.standing(self.rules.ruling(&path)) == Standing::Unknown;
            let is_inside = told.iter().any(|outer| path.starts_with(outer));
            if is_unknown && !is_inside && !self.rules.is_on_the_way(&path) && host_files::stat(&path).is_err() {
                self.tell_refused(Refused { what: "make the directory", path: path.clone(), thread: 0 });
                told.push(path);
            }
        }
    }
}

/// More than one order to the broker can say.
fn is_too_much(directories: &[(PathBuf, u32)]) -> bool {
    directories.len() > MOST_AT_ONCE
        || directories.iter().map(|(path, _)| path.as_os_str().len()).sum::<usize>() > MOST_BYTES
}
