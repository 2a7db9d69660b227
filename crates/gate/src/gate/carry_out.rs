//! Carrying an answer out: what is mounted for it, what must not show in a tree that is given, and when all of it is there.
//! Owns the orders of one approval; whether it is asked and what is answered is the parent's. Called by `gate`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cofferdam_kernel::bound;
use cofferdam_policy::Access as RuleAccess;
use cofferdam_wire::{Cause, Keep, Op, Question, QuestionId, Reach, Verdict};
use rustix::io::Errno;

use super::{Expected, Gate, ONCE, Progress, object, parent};
use crate::broker::orders::{Cover, How, Order, Outcome};
use crate::host_files;
use crate::host_files::named::Names;
use crate::open_questions::{Stage, asked_path, tree_of};
use crate::path_rules::Standing;
use crate::session_answers::{Gives, Grant};

impl Gate {
    /// Orders what an approval needs; where that is nothing, the calls are answered at once.
    pub(super) fn carry_out(&mut self, id: QuestionId, reach: Reach, keep: Keep) -> Result<(), Errno> {
        let Some(case) = self.open.get(id) else { return Ok(()) };
        let question = case.question.clone();
        let write = question.op.is_write();
        self.progress.push(Progress { id, ..Progress::default() });
        if let Some(tree) = case.tree.clone() {
            self.give_new(id, asked_path(&question), &tree);
            return self.begun(id);
        }
        let is_narrowed = reach == Reach::Dir && self.why_alone(&tree_of(&question), write).is_some();
        let reach = if is_narrowed { Reach::File } else { reach };
        if let Some(Stage::Settling { verdict: Verdict::Allow { reach: settled, .. }, .. }) =
            self.open.get_mut(id).map(|case| &mut case.stage)
        {
            *settled = reach;
        }
        match reach {
            Reach::Toolchain if question.toolchain.is_some() && !write => {
                let places = self.rules.places_of(question.toolchain.as_deref().unwrap_or_default());
                // A variable may lead a place anywhere.
                let is_fit = |place: &PathBuf| !self.is_too_wide(place) && host_files::stat(place).is_ok();
                let places: Vec<PathBuf> = places.into_iter().filter(is_fit).collect();
                for place in places {
                    self.next_hold += 1;
                    let hold = self.next_hold;
                    self.order(&Order::Hold { id: hold, path: place.clone() }, Expected::Nothing);
                    self.mount(id, hold, place, Gives::Tree { write: false });
                    self.order(&Order::Release { id: hold }, Expected::Nothing);
                }
            }
            Reach::Dir => {
                let tree = tree_of(&question);
                let held = if tree == asked_path(&question) { object(id) } else { parent(id) };
                // What is to be covered is known once the directories of the session alone are on the host.
                if !write || !self.make_all_in(id, held, &tree) {
                    self.mount(id, held, tree, Gives::Tree { write });
                }
            }
            Reach::File | Reach::Toolchain | Reach::Group => {
                if let Err(errno) = self.give_file(id, &question, keep) {
                    self.progress.retain(|progress| progress.id != id);
                    return self.close(id, Verdict::DENY_ONCE, Cause::Failed, Vec::new(), errno);
                }
            }
        }
        self.begun(id)
    }

    /// The orders are on their way; where there are none, all is there.
    fn begun(&mut self, id: QuestionId) -> Result<(), Errno> {
        self.lose_broken()?;
        if self.progress.iter().any(|progress| progress.id == id && progress.left == 0) {
            return self.finish(id);
        }
        Ok(())
    }

    fn give_file(&mut self, id: QuestionId, question: &Question, keep: Keep) -> Result<(), Errno> {
        let path = asked_path(question).to_path_buf();
        let can_serve = self.trigger.as_ref().is_some_and(|trigger| trigger.can_serve());
        match question.op {
            // Directories that a rule gives.
            Op::List | Op::Read | Op::Exec | Op::Write | Op::Create if self.is_of_rule(id) && question.is_dir => {
                let ruling = self.rules.ruling(&path);
                let write = self.rules.standing(ruling) == Standing::Writable;
                self.mount(id, object(id), path, Gives::Tree { write });
            }
            Op::List if keep != Keep::Once => self.answers.grant(Grant { path, gives: Gives::Names }),
            Op::List => {}
            Op::Read | Op::Exec if keep == Keep::Once && can_serve => {}
            Op::Exec if can_serve && !is_script(&path) => self.answers.grant(Grant { path, gives: Gives::Start }),
            Op::Read | Op::Exec => {
                // It may be opened for writing next.
                let ruling = self.rules.ruling(&path);
                let is_writable = self.is_of_rule(id) && self.rules.standing(ruling) == Standing::Writable;
                let asked = Grant { path: path.clone(), gives: Gives::File { write: true } };
                let write = is_writable || self.answers.holds(&asked);
                self.mount(id, object(id), path, Gives::File { write });
            }
            Op::Write => self.mount(id, object(id), path, Gives::File { write: true }),
            // Carried out elsewhere.
            Op::Connect | Op::Sign => {}
            // As long as it is served, it can be renamed and removed.
            Op::Create if self.make_served(id, keep)? => {}
            Op::Create => {
                let name = PathBuf::from(path.file_name().unwrap_or_default());
                let mode = self.open.get(id).and_then(|case| case.calls.first()).map_or(0o600, |call| call.mode);
                self.order(&Order::Make { id: object(id), name, mode }, Expected::Step(id));
                self.more(id);
                self.mount(id, object(id), path, Gives::File { write: true });
            }
        }
        Ok(())
    }

    pub(super) fn is_for_once(&self, id: QuestionId) -> bool {
        let stage = self.open.get(id).map(|case| case.stage);
        matches!(stage, Some(Stage::Settling { verdict: Verdict::Allow { keep: Keep::Once, .. }, .. }))
    }

    pub(super) fn is_of_rule(&self, id: QuestionId) -> bool {
        let stage = self.open.get(id).map(|case| case.stage);
        matches!(stage, Some(Stage::Settling { cause: Cause::Rule, .. }))
    }

    pub(super) fn more(&mut self, id: QuestionId) {
        if let Some(progress) = self.progress.iter_mut().find(|progress| progress.id == id) {
            progress.left += 1;
        }
    }

    /// Nothing is mounted for it: the calls are to look again.
    pub(super) fn gave(&mut self, id: QuestionId, path: PathBuf) {
        if let Some(progress) = self.progress.iter_mut().find(|progress| progress.id == id) {
            progress.granted.push(path);
        }
    }

    pub(super) fn fail(&mut self, id: QuestionId) {
        if let Some(progress) = self.progress.iter_mut().find(|progress| progress.id == id) {
            progress.failed = true;
        }
    }

    pub(super) fn mount(&mut self, id: QuestionId, held: u64, target: PathBuf, gives: Gives) {
        let is_covered = self.answers.granted(&target, Op::List).is_some_and(|grant| grant.gives == gives);
        if is_covered && self.answers.is_mounted(&target) {
            return;
        }
        let write = matches!(gives, Gives::File { write: true } | Gives::Tree { write: true });
        let (covers, children) = match gives {
            Gives::Tree { .. } => (self.covers_in(&target, write), self.answers.children(&target)),
            _ => (Ok(Vec::new()), Vec::new()),
        };
        // Where it cannot be known what to hide, nothing is given.
        let Ok(covers) = covers else { return self.fail(id) };
        if self.late.show(&target) != Ok(false) {
            return self.fail(id);
        }
        let exec = self.plan.exec;
        // Before the order: what goes from now on was there.
        let is_absent = |path: &&PathBuf| matches!(host_files::stat(path), Err(Errno::NOENT | Errno::NOTDIR));
        let absent = covers.iter().map(|cover| &cover.path).filter(is_absent).cloned().collect();
        let order = Order::Mount { id: held, target: target.clone(), write, exec, covers: covers.clone(), children };
        self.order(&order, Expected::Mounted { id, grant: Grant { path: target, gives }, covers, absent });
        self.more(id);
    }

    /// What must not show in a tree that is given as a whole. What is mounted in it has its own covers.
    fn covers_in(&mut self, tree: &Path, write: bool) -> Result<Vec<Cover>, Errno> {
        let mut covers = Vec::new();
        let mut names = Names::default();
        for (rule, place) in self.rules.covers_below(tree) {
            let seals = rule.access == RuleAccess::Protect;
            if seals && !write || self.answers.children(tree).iter().any(|child| place.starts_with(child)) {
                continue;
            }
            for path in names.named_by(rule, tree, &place)?.into_iter().filter_map(|path| behind_links(path, tree)) {
                // A longer rule may lift it again.
                let ruling = self.rules.ruling(&path);
                let still = self.rules.standing(ruling);
                let how = match still {
                    Standing::Hidden => How::Hide,
                    Standing::Masked => How::Mask,
                    _ if seals => How::Seal,
                    _ => continue,
                };
                covers.push(Cover { path, how });
            }
        }
        // A host program may listen in it by now that did not at the start.
        let mounted = self.answers.children(tree);
        let own = |path: &Path| mounted.iter().any(|child| path.starts_with(child));
        let sockets =
            bound::sockets(&[tree], |path| path.starts_with(tree) && !own(path)).map_err(|_| Errno::TOOBIG)?;
        covers.extend(sockets.into_iter().map(|socket| Cover { path: socket.path, how: How::Hide }));
        // What was mounted since the start may show what is hidden under another name.
        let late = self.late.points()?.iter().filter(|point| point.starts_with(tree) && *point != tree && !own(point));
        covers.extend(late.map(|point| Cover { path: point.clone(), how: How::Hide }));
        if write {
            let pinned = pins(tree, covers.iter().map(|cover| &cover.path).chain(&mounted));
            covers.extend(pinned);
        }
        // Outer ones first, and nothing inside of what is hidden already.
        covers.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| (a.how == How::Pin).cmp(&(b.how == How::Pin))));
        let mut kept: Vec<Cover> = Vec::new();
        for cover in covers {
            let is_hidden = kept.iter().any(|outer| outer.how == How::Hide && cover.path.starts_with(&outer.path));
            let is_held = cover.how == How::Pin && kept.iter().any(|other| other.path == cover.path);
            if !is_hidden && !is_held && !kept.contains(&cover) {
                kept.push(cover);
            }
        }
        Ok(kept)
    }

    /// The root, the home directory and what lies above it are never given as a whole by an answer.
    pub(super) fn is_too_wide(&self, tree: &Path) -> bool {
        self.rules.holds_a_home(tree) || tree == Path::new("/") || self.rules.is_own(tree)
    }

    /// Why an answer about this directory is about the one path in it.
    pub(super) fn why_alone(&self, tree: &Path, write: bool) -> Option<String> {
        if self.is_too_wide(tree) {
            return Some("no answer gives all of this directory: too much lies below it".to_owned());
        }
        let missing = write.then(|| self.missing_name_in(tree)).flatten()?;
        let name = missing.display();
        Some(format!(
            "no answer gives all of this directory for writing: rules protect {name}, which is missing or a link"
        ))
    }

    /// Covers need names to lie on: of what rules refuse below a directory, something that is missing, or a link, which can be
    /// replaced. What the session moves there would be under no cover until the keeper sees it.
    pub(super) fn missing_name_in(&self, tree: &Path) -> Option<PathBuf> {
        let mounted = self.answers.children(tree);
        let named = self
            .rules
            .covers_below(tree)
            .into_iter()
            .filter(|(rule, place)| rule.tail == 0 && !mounted.iter().any(|child| place.starts_with(child)));
        // Of a pattern, the directory: what it matches is seen when it comes.
        let mut names = named
            .filter_map(|(rule, place)| if rule.is_glob { place.parent().map(Path::to_path_buf) } else { Some(place) });
        let is_missing = |path: &PathBuf| host_files::stat(path).is_err() || host_files::link(path).is_ok();
        names.find(is_missing)
    }

    pub(super) fn done(
        &mut self,
        id: QuestionId,
        outcome: Outcome,
        grant: Option<(Grant, Option<(u64, u64)>)>,
    ) -> Result<(), Errno> {
        let failed = matches!(outcome, Outcome::Failed(_));
        if let Some((grant, object)) = grant.filter(|_| !failed) {
            self.rules.pass(&grant.path);
            self.answers.mount(grant.path.clone(), object);
            if matches!(grant.gives, Gives::File { .. }) {
                self.stale.watch(&grant.path);
            }
            if let Some(progress) = self.progress.iter_mut().find(|progress| progress.id == id) {
                progress.granted.push(grant.path.clone());
            }
            if self.is_for_once(id) {
                self.passing.push((Instant::now() + ONCE, grant.path));
            } else {
                self.answers.grant(grant);
            }
        }
        let Some(progress) = self.progress.iter_mut().find(|progress| progress.id == id) else { return Ok(()) };
        progress.failed |= failed;
        progress.left = progress.left.saturating_sub(1);
        if progress.left == 0 { self.finish(id) } else { Ok(()) }
    }

    /// Everything that an approval needed is there.
    pub(super) fn finish(&mut self, id: QuestionId) -> Result<(), Errno> {
        let Some(at) = self.progress.iter().position(|progress| progress.id == id) else { return Ok(()) };
        let progress = self.progress.remove(at);
        let Some(Stage::Settling { verdict, cause }) = self.open.get(id).map(|case| case.stage) else {
            return Ok(());
        };
        // Of several places one that cannot be given does not take the others along.
        let is_nothing_mounted = progress.granted.iter().all(|given| !self.answers.is_mounted(given));
        if progress.failed && is_nothing_mounted {
            return self.close(id, Verdict::DENY_ONCE, Cause::Failed, Vec::new(), Errno::ACCESS);
        }
        self.close(id, verdict, cause, progress.granted, Errno::ACCESS)
    }

    pub(super) fn release(&mut self, id: QuestionId) {
        for held in [object(id), parent(id)] {
            self.order(&Order::Release { id: held }, Expected::Nothing);
        }
    }
}

/// A directory on the way to what is covered or mounted can be renamed away and replaced, unless it is a mount point itself.
fn pins<'a>(tree: &Path, below: impl Iterator<Item = &'a PathBuf>) -> Vec<Cover> {
    let inside = |parent: &&Path| *parent != tree && parent.starts_with(tree);
    let parents: BTreeSet<&Path> = below.flat_map(|path| path.ancestors().skip(1).take_while(inside)).collect();
    let there = parents.into_iter().filter(|parent| host_files::stat(parent).is_ok());
    there.map(|parent| Cover { path: parent.to_path_buf(), how: How::Pin }).collect()
}

/// Whether the kernel would start an interpreter, which then reads the file itself.
fn is_script(path: &Path) -> bool {
    let stat = host_files::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let mut magic = [0u8; 2];
    let read =
        stat.and_then(|id| host_files::open_same(path, id)).and_then(|file| rustix::io::pread(&file, &mut magic, 0));
    read.is_ok() && magic == *b"#!"
}

/// A name that is a link is covered where it leads to, if that is in the tree: the link itself says no more than its name.
fn behind_links(path: PathBuf, tree: &Path) -> Option<PathBuf> {
    match host_files::link(&path) {
        Ok(_) => path.canonicalize().ok().filter(|real| real.starts_with(tree)),
        Err(_) => Some(path),
    }
}
