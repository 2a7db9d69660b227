//! The gate of one session: decides what an access is to be asked, asks, and has the answer carried out. Owns the order of
//! verdicts (what a rule hides, what this session was denied or granted, what a rule gives, then the question) and the
//! cases on their way. Driven by `supervisor::event_loop`: `wanted`, `turn`, `check_clock`, `answer`, `news`.

mod askers;
mod carry_out;
mod groups;
mod interrupted;
mod made;

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_kernel::seccomp::{Listener, Notification};
use cofferdam_kernel::timing::seconds_now;
use cofferdam_plan::{GatePlan, GateRule, MountFact};
use cofferdam_policy::{OnUnknown, Places};
use cofferdam_wire::{Asker, Cause, Keep, Op, Question, QuestionId, Reach, Settled, Subject, Verdict};
use rustix::io::Errno;

use crate::broker::orders::{Cover, Order, Outcome};
use crate::broker::queue::Queue;
use crate::host_files;
use crate::host_files::late_mounts::LateMounts;
use crate::host_files::stale::Stale;
use crate::open_questions::{OpenQuestions, Stage, asked_path, tree_of};
use crate::path_rules::{PathRules, RulesInHome, Standing};
use crate::requester::Processes;
use crate::session_answers::{Denial, Gives, Grant, SessionAnswers};
use crate::siblings::Siblings;
use crate::triggers::fuse::Fuse;
use crate::triggers::fuse::made::MadeFile;
use crate::triggers::notify::Notify;
use crate::triggers::{Access, Answer, CallId, Noticed, Trigger};

/// Between two looks whether a thread that was sent a signal is being killed.
const SECOND_LOOK: Duration = Duration::from_millis(10);
/// For how long a mount that is meant for one call stays: it has to be met by that call, which was let go already.
const ONCE: Duration = Duration::from_millis(100);
/// Walks that are to begin again and are remembered.
const MOST_SENT_AGAIN: usize = 1024;
/// Paths that are told about although the operator was not asked; a program that tries more learns nothing by it.
const MOST_TOLD: usize = 4096;
/// The same where all that is touched is to be known.
const MOST_LEARNED: usize = 1 << 16;

/// What happened since the last time the event loop asked.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A new question, or one that more calls wait for now.
    Asked(Box<Question>),
    Settled(Box<Settled>),
    /// Refused at once: a change that cannot be asked about.
    Refused {
        what: &'static str,
        path: PathBuf,
        asker: Asker,
    },
    /// A process looked for a path that a rule hides.
    Hidden {
        path: PathBuf,
        rule: Box<GateRule>,
        asker: Asker,
    },
    /// A cache that was not there is a directory of the session's own, which goes with it.
    ThrownAway(PathBuf),
    /// From here on questions are denied unasked, until a minute has fewer of them.
    OverBudget,
}

/// A tree that an answer gave for writing, with covers on names of the host.
#[derive(Debug)]
pub struct Given {
    pub tree: PathBuf,
    /// The sandbox's view of it.
    pub view: OwnedFd,
    pub covers: Vec<Cover>,
    /// The covered names at which nothing was when the tree was put together.
    pub absent: HashSet<PathBuf>,
    pub exec: bool,
}

/// What the keeper of covers has to know.
#[derive(Debug)]
pub enum Trees {
    Given(Given),
    Taken(PathBuf),
}

/// Descriptors that the supervisor polls for the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    Trigger,
    Broker,
    Replaced,
}

/// Which outcome of the broker comes next.
#[derive(Debug)]
enum Expected {
    Object(QuestionId),
    Mounted {
        id: QuestionId,
        grant: Grant,
        covers: Vec<Cover>,
        absent: HashSet<PathBuf>,
    },
    /// Directories are in a tree that is to be given for writing.
    Made {
        id: QuestionId,
        held: u64,
        tree: PathBuf,
    },
    /// A mount is off.
    Removed,
    /// Part of a series whose last order tells.
    Step(QuestionId),
    /// A file is on the disk.
    Synced(CallId),
    Nothing,
}

/// Carrying out an answer.
#[derive(Debug, Default)]
struct Progress {
    id: QuestionId,
    left: usize,
    failed: bool,
    granted: Vec<PathBuf>,
}

/// Files that are to be on the disk before their programs go on.
#[derive(Debug, Default)]
struct Syncs {
    under_way: usize,
    waiting: VecDeque<(CallId, Rc<MadeFile>)>,
}

/// Where directories of the session's own can be made.
#[derive(Debug, Default)]
enum Caches {
    /// Not known yet; these wait for it.
    #[default]
    Unknown,
    In(PathBuf, usize),
    Nowhere,
}

#[derive(Debug)]
pub struct Gate {
    plan: GatePlan,
    rules: PathRules,
    trigger: Option<Box<dyn Trigger>>,
    namespace: Option<OwnedFd>,
    broker: Option<Queue>,
    /// The broker was there and is not any more: nothing can be granted.
    is_broken: bool,
    processes: Option<Processes>,
    open: OpenQuestions,
    answers: SessionAnswers,
    siblings: Siblings,
    expected: VecDeque<Expected>,
    progress: Vec<Progress>,
    next_hold: u64,
    signalled: Vec<(CallId, u32)>,
    look_again: Option<Instant>,
    stale: Stale,
    /// Mounts for one call, and when they go.
    passing: Vec<(Instant, PathBuf)>,
    news: Vec<News>,
    told: HashSet<PathBuf>,
    late: LateMounts,
    trees: Vec<Trees>,
    syncs: Syncs,
    caches: Caches,
    waiting_for_caches: Vec<Access>,
    /// Threads that were to walk again, and to what.
    sent_again: VecDeque<(u32, PathBuf)>,
    /// The trigger has something to look at again.
    is_due: bool,
}

/// Number under which the broker holds what a question is about.
fn object(id: QuestionId) -> u64 {
    id * 2
}

/// And the directory that it lies in.
fn parent(id: QuestionId) -> u64 {
    id * 2 + 1
}

impl Gate {
    /// `mounted` is what the set-up mounts, `own` the directories with file systems of the sandbox's own, `known` the host's
    /// mounts that the rules were made with.
    pub fn new(
        plan: GatePlan,
        rules: Vec<GateRule>,
        in_home: RulesInHome,
        places: Places,
        mounted: Vec<PathBuf>,
        own: HashSet<PathBuf>,
        known: &[MountFact],
    ) -> Gate {
        let mut rules = PathRules::new(rules, in_home, places, own);
        for path in &mounted {
            rules.pass(path);
        }
        Gate {
            open: OpenQuestions::new(plan.per_minute, plan.timeout),
            rules,
            answers: SessionAnswers::new(mounted),
            siblings: Siblings::default(),
            plan,
            trigger: None,
            namespace: None,
            broker: None,
            is_broken: false,
            processes: None,
            expected: VecDeque::new(),
            progress: Vec::new(),
            next_hold: 1 << 62,
            signalled: Vec::new(),
            look_again: None,
            stale: Stale::default(),
            passing: Vec::new(),
            news: Vec::new(),
            told: HashSet::new(),
            late: LateMounts::new(known),
            trees: Vec::new(),
            syncs: Syncs::default(),
            caches: Caches::default(),
            waiting_for_caches: Vec::new(),
            sent_again: VecDeque::new(),
            is_due: false,
        }
    }

    /// Whether an idle moment is well spent with [`Gate::learn`]: a process inside can ask by now.
    pub fn has_to_learn(&self) -> bool {
        self.trigger.is_some() && self.rules.has_to_learn()
    }

    /// Makes now what the first look into the home would have to wait for.
    pub fn learn(&self) {
        self.rules.learn();
    }

    /// Serves the FUSE root from now on.
    pub fn serve(&mut self, device: OwnedFd) {
        self.trigger = Some(Box::new(Fuse::new(device, self.plan.metadata)));
    }

    /// Decides about reported calls from now on; `root` is the sandbox's root as it can be changed from outside.
    pub fn serve_calls(&mut self, root: OwnedFd) -> Result<(), Errno> {
        self.trigger = Some(Box::new(Notify::new(root)?));
        Ok(())
    }

    pub fn listen(&mut self, listener: Listener) {
        if let Some(trigger) = &mut self.trigger {
            trigger.listen(listener);
        }
    }

    /// A reported call that opens, starts or looks at something.
    pub fn notified(&mut self, notification: Notification) -> Result<(), Errno> {
        if let Some(trigger) = &mut self.trigger {
            trigger.take(notification);
        }
        self.notice()?;
        self.catch_up()
    }

    fn catch_up(&mut self) -> Result<(), Errno> {
        while std::mem::take(&mut self.is_due) {
            self.notice()?;
        }
        Ok(())
    }

    /// Where directories of the session's own can be made, once that is known; none where there is no such place.
    pub fn keep_caches_in(&mut self, directory: Option<&Path>) -> Result<(), Errno> {
        self.caches = directory.map_or(Caches::Nowhere, |directory| Caches::In(directory.to_path_buf(), 0));
        std::mem::take(&mut self.waiting_for_caches).into_iter().try_for_each(|access| self.consider(access))
    }

    /// The sandbox's mount namespace, which grants are mounted in.
    pub fn mount_in(&mut self, namespace: OwnedFd) {
        self.namespace = Some(namespace);
    }

    /// The sandbox's /proc.
    pub fn know(&mut self, processes: OwnedFd) {
        self.processes = Some(Processes(processes));
    }

    /// No process is left that could ask. The process that lets go of the namespace last takes it apart, so that goes first.
    pub fn let_go(mut self) {
        self.namespace = None;
        self.broker = None;
    }

    pub fn wanted(&self) -> Vec<(BorrowedFd<'_>, Ready)> {
        let trigger = self.trigger.as_ref().and_then(|trigger| Some((trigger.as_fd()?, Ready::Trigger)));
        let broker = self.broker.as_ref().map(|broker| (broker.as_fd(), Ready::Broker));
        let stale = self.stale.as_fd().map(|fd| (fd, Ready::Replaced));
        [trigger, broker, stale].into_iter().flatten().collect()
    }

    pub fn turn(&mut self, ready: Ready) -> Result<(), Errno> {
        match ready {
            Ready::Trigger => self.notice(),
            Ready::Broker => self.hear(),
            Ready::Replaced => self.take_off_stale(),
        }?;
        self.catch_up()
    }

    pub fn deadline(&self) -> Option<Instant> {
        let passing = self.passing.iter().map(|(at, _)| *at).min();
        [self.open.next_deadline(), self.look_again, passing].into_iter().flatten().min()
    }

    pub fn check_clock(&mut self, now: Instant) -> Result<(), Errno> {
        for id in self.open.expired(now) {
            self.settle(id, Verdict::DENY_ONCE, Cause::Timeout)?;
        }
        if self.look_again.is_some_and(|at| at <= now) {
            self.look_after_signals(now)?;
        }
        self.take_off_passing(now)?;
        self.catch_up()
    }

    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Trees that came and went since the last time this was asked.
    pub fn trees(&mut self) -> Vec<Trees> {
        std::mem::take(&mut self.trees)
    }

    /// Every process that could ask is gone: whatever is still open ends so.
    pub fn end(&mut self) -> Result<(), Errno> {
        self.is_broken = true;
        self.tell_unmade();
        for id in self.open.ids() {
            self.close(id, Verdict::DENY_ONCE, Cause::Gone, Vec::new(), Errno::INTR)?;
        }
        Ok(())
    }

    /// Questions that wait for an answer.
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.open.asked().map(|case| &case.question)
    }

    /// A person answered a question of this session, also one that is not the gate's.
    pub fn answered_by_person(&mut self) {
        self.open.answered_by_person(Instant::now());
    }

    /// Whether there is such a question; an answer to any other is dropped.
    pub fn answer(&mut self, id: QuestionId, verdict: Verdict, cause: Cause) -> Result<bool, Errno> {
        if !self.open.get(id).is_some_and(|case| case.stage == Stage::Asked) {
            return Ok(false);
        }
        self.settle(id, verdict, cause)?;
        self.catch_up()?;
        Ok(true)
    }

    fn reply(&mut self, call: CallId, answer: Answer) -> Result<(), Errno> {
        match &mut self.trigger {
            Some(trigger) => {
                self.is_due |= !trigger.can_serve() && answer == Answer::Again;
                trigger.answer(call, answer, &self.rules)
            }
            None => Ok(()),
        }
    }

    fn notice(&mut self) -> Result<(), Errno> {
        let Some(trigger) = &mut self.trigger else { return Ok(()) };
        // The set-up sends the way to /proc before it starts the command. A turn that answers the last request of the one must
        // not take the first of the other: who asks would not be known.
        let most = if self.processes.is_some() { usize::MAX } else { 1 };
        let noticed = match trigger.turn(&self.rules, most) {
            Ok(noticed) => noticed,
            // The file system is gone, and with it every process that could ask.
            Err(Errno::NODEV) => {
                self.trigger = None;
                return Ok(());
            }
            Err(errno) => return Err(errno),
        };
        for noticed in noticed {
            match noticed {
                Noticed::Access(access) => self.consider(access)?,
                Noticed::Change(change) => self.change(change)?,
                Noticed::Entered(access) => self.entered(access)?,
                Noticed::Sync(call, file) => self.sync(call, file)?,
                Noticed::Refused(refused) => self.tell_refused(refused),
                Noticed::Hidden { path, thread } => self.tell_hidden(path, thread),
                Noticed::Interrupted(call) => self.interrupted(call)?,
            }
        }
        Ok(())
    }

    /// A number for one more question about a host or a key: no two questions of a session have the same, and all of them
    /// count in one budget. None where that is spent.
    pub fn number(&mut self) -> Option<QuestionId> {
        self.spend().then(|| self.open.number())
    }

    /// Whether one more question may be asked now; the first of a series that may not is told.
    fn spend(&mut self) -> bool {
        let spent = self.open.spend(Instant::now());
        if spent.is_err_and(|over| over.is_first) {
            self.news.push(News::OverBudget);
        }
        spent.is_ok()
    }

    /// What becomes of an access, in the order in which verdicts count.
    fn consider(&mut self, access: Access) -> Result<(), Errno> {
        let (path, op) = (access.path.clone(), access.op);
        let ruling = self.rules.ruling(&path);
        let standing = self.rules.standing(ruling);
        let is_bare = path == Path::new("/") || standing == Standing::Hidden && self.rules.is_on_the_way(&path);
        if op == Op::List && is_bare {
            return self.reply(access.call, Answer::Serve { identity: None });
        }
        if standing == Standing::Hidden {
            self.tell_hidden(path, access.thread);
            return self.reply(access.call, Answer::Refuse(Errno::ACCESS));
        }
        if standing == Standing::Masked {
            return self.show_masked(&access);
        }
        if self.answers.is_denied(&path, op) {
            return self.reply(access.call, Answer::Refuse(Errno::ACCESS));
        }
        let trigger = self.trigger.as_ref();
        if op != Op::List && trigger.is_some_and(|trigger| trigger.is_made(&path)) {
            return self.reply(access.call, Answer::Serve { identity: None });
        }
        let new = || trigger.and_then(|trigger| trigger.made_directory(&path)).or_else(|| self.open.new_above(&path));
        let tree = (op == Op::Create).then(new).flatten();
        if let Some(grant) = self.answers.granted(&path, op).cloned() {
            return self.give_again(access, &grant);
        }
        if let Some(tree) = tree {
            return self.consider_new(access, &tree);
        }
        let gives = match standing {
            Standing::Writable => true,
            Standing::Readable => !op.is_write(),
            _ => false,
        };
        if gives {
            return self.give_by_rule(&access, ruling);
        }
        if op.is_write() && matches!(standing, Standing::Protected | Standing::Readable) {
            return self.deny_unasked(&access, Cause::Rule);
        }
        // Programs look there for settings of what lies around a project: a question about it each time would say nothing.
        let is_way = op == Op::List && self.rules.is_on_the_way(&path) && self.rules.holds_a_home(&path);
        match self.plan.verdict {
            OnUnknown::Ask | OnUnknown::Deny if is_way => self.reply(access.call, Answer::Way),
            OnUnknown::Ask => self.ask(access),
            OnUnknown::Deny => self.deny_unasked(&access, Cause::OnUnknown),
            OnUnknown::AllowAndLog if self.plan.learns && !op.is_write() => self.let_through(&access),
            // Nothing is written for real because no operator was there to ask.
            OnUnknown::AllowAndLog if op.is_write() => self.deny_unasked(&access, Cause::OnUnknown),
            OnUnknown::AllowAndLog => self.give_unasked(access, Cause::OnUnknown, None),
        }
    }

    /// Where content cannot go through the trigger, what is masked was mounted at the start. What was not there then is hidden.
    fn show_masked(&mut self, access: &Access) -> Result<(), Errno> {
        let can_serve = self.trigger.as_ref().is_some_and(|trigger| trigger.can_serve());
        match access.op {
            Op::Read if can_serve => self.reply(access.call, Answer::Serve { identity: None }),
            _ => self.deny_unasked(access, Cause::Rule),
        }
    }

    /// Something that was granted is met here all the same: a file that was replaced on the host, or a directory that
    /// a process stood in before it was covered by the grant.
    fn give_again(&mut self, access: Access, grant: &Grant) -> Result<(), Errno> {
        if matches!(grant.gives, Gives::Tree { .. }) {
            // The path leads to what is mounted by now. A walk that does not meet that begins at a descriptor from before.
            let can_serve = self.trigger.as_ref().is_some_and(|trigger| trigger.can_serve());
            if can_serve && !self.was_sent_again(&access) {
                return self.send_again(&access);
            }
            // What the host has at this name by now was not asked about.
            if !self.is_still_there(&grant.path) {
                return self.reply(access.call, Answer::Refuse(Errno::ACCESS));
            }
            if access.op == Op::Create {
                return self.make_below(&access);
            }
        }
        let is_gone = matches!(grant.gives, Gives::File { .. }) && !self.answers.is_mounted(&grant.path);
        if is_gone || grant.gives == Gives::Make {
            return self.give_unasked(access, Cause::Grant, None);
        }
        self.serve_now(&access)
    }

    /// Carries out what was given before. Where that is on its way already, a second mount of it would stay below the first.
    fn give_unasked(&mut self, access: Access, cause: Cause, by: Option<QuestionId>) -> Result<(), Errno> {
        if let Some(case) = self.open.settling(&access) {
            case.calls.push(access);
            return Ok(());
        }
        let verdict = Verdict::Allow { reach: Reach::File, keep: Keep::Session };
        self.open_case(access, Stage::Settling { verdict, cause }, by)
    }

    /// Whether this walk was to begin again already.
    fn was_sent_again(&mut self, access: &Access) -> bool {
        let same = |(thread, path): &(u32, PathBuf)| *thread == access.thread && access.path.starts_with(path);
        let at = self.sent_again.iter().position(same);
        at.and_then(|at| self.sent_again.remove(at)).is_some()
    }

    fn send_again(&mut self, access: &Access) -> Result<(), Errno> {
        self.sent_again.push_front((access.thread, access.path.clone()));
        self.sent_again.truncate(MOST_SENT_AGAIN);
        self.reply(access.call, Answer::Again)
    }

    /// Whether the host has at this name what was mounted there. Where nothing goes through the trigger, nothing is met but the mount.
    fn is_still_there(&self, path: &Path) -> bool {
        let can_serve = self.trigger.as_ref().is_some_and(|trigger| trigger.can_serve());
        let Some(object) = self.answers.mounted_object(path).filter(|_| can_serve) else { return true };
        host_files::stat(path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == object)
    }

    fn serve_now(&mut self, access: &Access) -> Result<(), Errno> {
        if access.op.is_write() {
            return self.reply(access.call, Answer::Refuse(Errno::ROFS));
        }
        let identity = host_files::stat(&access.path).ok().map(|stat| (stat.st_dev, stat.st_ino));
        self.reply(access.call, Answer::Serve { identity })
    }

    /// A rule gives a path that was not there when the session began.
    fn give_by_rule(&mut self, access: &Access, ruling: Option<usize>) -> Result<(), Errno> {
        let place = self.rules.rule(ruling).filter(|rule| !rule.is_glob).map(|rule| rule.path.clone());
        match place {
            Some(place) if !self.answers.is_mounted(&place) => {
                self.give_unasked(Access { path: place, ..access.clone() }, Cause::Rule, None)
            }
            _ => self.serve_now(access),
        }
    }

    fn deny_unasked(&mut self, access: &Access, cause: Cause) -> Result<(), Errno> {
        if self.is_news(&access.path) {
            let mut question = self.question(0, access);
            question.until = None;
            let settled =
                Settled { question, verdict: Verdict::DENY_ONCE, cause, granted: Vec::new(), waited: Duration::ZERO };
            self.news.push(News::Settled(Box::new(settled)));
        }
        self.reply(access.call, Answer::Refuse(Errno::ACCESS))
    }

    /// Served and told, and nothing is mounted: what is written later must meet no mount.
    fn let_through(&mut self, access: &Access) -> Result<(), Errno> {
        if !self.trigger.as_ref().is_some_and(|trigger| trigger.can_serve()) {
            return self.give_unasked(access.clone(), Cause::OnUnknown, None);
        }
        if self.is_news(&access.path) {
            let verdict = Verdict::Allow { reach: Reach::File, keep: Keep::Once };
            let question = Question { until: None, ..self.question(0, access) };
            let (cause, granted, waited) = (Cause::OnUnknown, Vec::new(), Duration::ZERO);
            self.news.push(News::Settled(Box::new(Settled { question, verdict, cause, granted, waited })));
        }
        self.serve_now(access)
    }

    fn ask(&mut self, access: Access) -> Result<(), Errno> {
        if let Some(by) = self.answers.group_that_covers(&access.path, access.op) {
            return self.give_unasked(access, Cause::Grant, Some(by));
        }
        if let Some(case) = self.open.joinable(&access) {
            case.join(access);
            if case.stage == Stage::Asked {
                self.news.push(News::Asked(Box::new(case.question.clone())));
            }
            return Ok(());
        }
        if self.spend() {
            self.open_case(access, Stage::Holding, None)
        } else {
            self.deny_unasked(&access, Cause::Budget)
        }
    }

    fn question(&self, id: QuestionId, access: &Access) -> Question {
        let asked = seconds_now();
        let directory = if access.op == Op::List { Some(access.path.as_path()) } else { access.path.parent() };
        let alone = directory.and_then(|directory| self.why_alone(directory, access.op.is_write()));
        Question {
            id,
            op: access.op,
            subject: Subject::Path(access.path.clone()),
            is_dir: access.op == Op::List,
            size: 0,
            flags: access.flags,
            asker: self.asker(access.thread),
            toolchain: self.rules.toolchain_of(&access.path).map(str::to_owned),
            group: None,
            by: None,
            // What a file of this name is saved as: an answer that makes it is about that as well.
            also: self.saved_as(access).into_iter().collect(),
            is_alone: alone.is_some(),
            hint: alone,
            waiting: 1,
            asked,
            until: Some(asked + self.open.timeout().as_secs_f64()),
        }
    }

    /// From here on the broker holds what is asked about.
    fn open_case(&mut self, access: Access, stage: Stage, by: Option<QuestionId>) -> Result<(), Errno> {
        if !self.has_broker() {
            return self.deny_unasked(&access, Cause::Failed);
        }
        let id = self.open.number();
        let question = Question { by, ..self.question(id, &access) };
        let path = access.path.clone();
        let directory = path.parent().unwrap_or(&path).to_path_buf();
        let is_new = access.op == Op::Create;
        self.open.add(question, access, stage, Instant::now());
        let held = if is_new { directory.clone() } else { path };
        self.order(&Order::Hold { id: parent(id), path: directory }, Expected::Nothing);
        self.order(&Order::Hold { id: object(id), path: held }, Expected::Object(id));
        self.lose_broken()
    }

    fn has_broker(&mut self) -> bool {
        if self.broker.is_none() && !self.is_broken {
            let started = self.namespace.as_ref().ok_or(Errno::NOENT).and_then(|fd| Queue::start(fd.as_fd()));
            self.is_broken = started.is_err();
            self.broker = started.ok();
        }
        self.broker.is_some()
    }

    fn order(&mut self, order: &Order, expected: Expected) {
        let sent = self.broker.as_mut().ok_or(Errno::PIPE).and_then(|broker| broker.send(order, None));
        match sent {
            Ok(()) => self.expected.push_back(expected),
            Err(_) => self.is_broken = true,
        }
    }

    /// Without a broker nothing can be granted: every call that waits for it is refused.
    fn lose_broken(&mut self) -> Result<(), Errno> {
        if !self.is_broken {
            return Ok(());
        }
        self.broker = None;
        let sent = std::mem::take(&mut self.expected).into_iter().filter_map(|expected| match expected {
            Expected::Synced(call) => Some(call),
            _ => None,
        });
        let waiting = std::mem::take(&mut self.syncs).waiting.into_iter().map(|(call, _)| call);
        for call in sent.chain(waiting).collect::<Vec<_>>() {
            self.reply(call, Answer::Refuse(Errno::IO))?;
        }
        self.progress.clear();
        for id in self.open.ids() {
            self.close(id, Verdict::DENY_ONCE, Cause::Failed, Vec::new(), Errno::ACCESS)?;
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), Errno> {
        let Some(broker) = &mut self.broker else { return Ok(()) };
        let (Ok((outcome, view)), Some(expected)) = (broker.receive(), self.expected.pop_front()) else {
            self.is_broken = true;
            return self.lose_broken();
        };
        match expected {
            Expected::Nothing => Ok(()),
            Expected::Object(id) => self.held(id, outcome),
            Expected::Step(id) => self.done(id, outcome, None),
            Expected::Synced(call) => self.synced(call, outcome),
            Expected::Made { id, held, tree } => {
                // Those that could not be made are missing below the mount, and nothing else.
                self.mount(id, held, tree, Gives::Tree { write: true });
                self.done(id, Outcome::Done, None)?;
                self.lose_broken()
            }
            Expected::Removed => match outcome {
                // What is not there needs no removing. What stays although it must not ends the session.
                Outcome::Failed(errno) if !matches!(errno, Errno::INVAL | Errno::NOENT) => Err(errno),
                _ => Ok(()),
            },
            Expected::Mounted { id, grant, covers, absent } => {
                if let Some(view) = view {
                    let given = Given { tree: grant.path.clone(), view, covers, absent, exec: self.plan.exec };
                    self.trees.push(Trees::Given(given));
                }
                let object = match outcome {
                    Outcome::Held { device, inode, .. } => Some((device, inode)),
                    _ => None,
                };
                self.done(id, outcome, Some((grant, object)))
            }
        }
    }

    fn held(&mut self, id: QuestionId, outcome: Outcome) -> Result<(), Errno> {
        let Some(case) = self.open.get_mut(id) else {
            self.release(id);
            return Ok(());
        };
        let Outcome::Held { device, inode, mode, size } = outcome else {
            let errno = if let Outcome::Failed(errno) = outcome { errno } else { Errno::ACCESS };
            return self.close(id, Verdict::DENY_ONCE, Cause::Failed, Vec::new(), errno);
        };
        if case.calls.is_empty() {
            // The process that wanted it was killed meanwhile: the operator is not to be asked.
            return self.close(id, Verdict::DENY_ONCE, Cause::Gone, Vec::new(), Errno::INTR);
        }
        case.identity = Some((device, inode));
        if case.question.op != Op::Create {
            case.question.size = size;
            case.question.is_dir = mode & 0o170_000 == 0o040_000;
        }
        match case.stage {
            Stage::Settling { verdict, cause } => self.settle(id, verdict, cause),
            Stage::Holding | Stage::Asked => {
                if std::mem::replace(&mut case.stage, Stage::Asked) == Stage::Holding {
                    self.offer(id);
                }
                if !self.trigger.as_ref().is_none_or(|trigger| trigger.can_serve()) {
                    self.look_again.get_or_insert_with(|| Instant::now() + SECOND_LOOK);
                }
                let question = self.open.get(id).map(|case| Box::new(case.question.clone()));
                self.news.extend(question.map(News::Asked));
                Ok(())
            }
        }
    }

    fn settle(&mut self, id: QuestionId, verdict: Verdict, cause: Cause) -> Result<(), Errno> {
        let Some(case) = self.open.get_mut(id) else { return Ok(()) };
        let verdict = case.question.meant(verdict);
        case.stage = Stage::Settling { verdict, cause };
        match verdict {
            Verdict::Deny { reach, keep } => {
                let question = &case.question;
                if keep != Keep::Once {
                    let is_tree = reach != Reach::File;
                    let path = if is_tree { tree_of(question) } else { asked_path(question).to_path_buf() };
                    self.answers.deny(Denial { path, is_tree, only_write: question.op.is_write() });
                }
                self.close(id, verdict, cause, Vec::new(), Errno::ACCESS)
            }
            Verdict::Allow { reach: Reach::Group, keep } => {
                self.grant_group(id);
                self.carry_out(id, Reach::Group, keep)
            }
            Verdict::Allow { reach, keep } => self.carry_out(id, reach, keep),
        }
    }

    /// Ends a case: every call that waited for it is answered, or asked again where the answer was not about it.
    fn close(
        &mut self,
        id: QuestionId,
        verdict: Verdict,
        cause: Cause,
        granted: Vec<PathBuf>,
        errno: Errno,
    ) -> Result<(), Errno> {
        let Some(case) = self.open.take(id) else { return Ok(()) };
        if !verdict.is_allow() {
            // An answer that could not be carried out gave no group.
            self.answers.forget_group(id);
        }
        let mut left = Vec::new();
        for call in case.calls {
            self.signalled.retain(|(waiting, _)| *waiting != call.call);
            let is_given = granted.iter().any(|given| call.path.starts_with(given));
            let is_asked = call.path == asked_path(&case.question) && call.op == case.question.op;
            let is_made_alone = is_given && !granted.iter().any(|given| self.answers.is_mounted(given));
            // Nothing is mounted that a walk could meet, and the kernel walks again only once.
            let opened = self.trigger.as_ref().filter(|_| is_made_alone).and_then(|trigger| trigger.opened(call.call));
            match verdict {
                Verdict::Deny { .. } => self.reply(call.call, Answer::Refuse(errno))?,
                Verdict::Allow { .. } if opened.is_some() => {
                    left.extend(opened.map(|path| Access { path, ..call }));
                }
                Verdict::Allow { .. } if is_given || cause == Cause::Rule && !granted.is_empty() => {
                    self.send_again(&call)?;
                }
                Verdict::Allow { .. } if is_asked => {
                    self.reply(call.call, Answer::Serve { identity: case.identity })?;
                }
                // It waited beside: what was shown was not this.
                Verdict::Allow { .. } => left.push(call),
            }
        }
        if !self.is_broken {
            self.release(id);
        }
        let waited = case.since.elapsed();
        let settled = Settled { question: case.question, verdict, cause, granted, waited };
        self.news.push(News::Settled(Box::new(settled)));
        for call in left {
            self.consider(call)?;
        }
        Ok(())
    }

    /// What was mounted for one call goes again; the call has what it opened.
    fn take_off_passing(&mut self, now: Instant) -> Result<(), Errno> {
        let (over, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.passing).into_iter().partition(|(at, _)| *at <= now);
        self.passing = left;
        for (_, target) in over {
            self.answers.unmount(&target);
            self.trees.push(Trees::Taken(target.clone()));
            self.order(&Order::Remove { target }, Expected::Removed);
        }
        self.lose_broken()
    }

    /// Files that were granted and replaced on the host: the old one is taken off, the next open mounts the new one.
    fn take_off_stale(&mut self) -> Result<(), Errno> {
        for path in self.stale.read()? {
            if self.answers.is_mounted(&path) && self.has_broker() {
                self.answers.unmount(&path);
                self.order(&Order::Remove { target: path }, Expected::Removed);
            }
        }
        self.lose_broken()
    }
}
