//! Keeps an answer for good: edits the policy file of its scope so that the question is not asked again. Owns which file
//! that is, what must hold before and after, and the approval of what it wrote; the text is `edit`'s, the disk `store`'s.
//! See docs/decisions/0020. Called when a question was answered, and by `learn` and `sandbox policy`.

mod edit;
mod kept;
mod store;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use cofferdam_audit::JournalError;
use cofferdam_policy::{
    Access, Draft, Endpoint, ExpandedRule, HostRule, Layer, LayerInput, NetworkPart, Origin, PathExpr, Places, Policy,
    RuleIndex, Setting, is_unseen,
};
use cofferdam_wire::{Group, Keep, Op, Reach, Settled, Subject, Verdict};
use thiserror::Error;

pub use self::kept::{KeptRule, kept, revoke};
use self::store::Place;
pub use self::store::StoreError;
use crate::policy_files::approvals::Approvals;
use crate::policy_files::lock::{Lock, LockError};
use crate::policy_files::record::{PolicyChange, record};
use crate::policy_files::text::{ReadError, WriteError};
use crate::policy_files::{ORG_POLICY, PolicyFilesError, Sources, places, project_files, real_rules, user_config};
use crate::survey::Surroundings;

/// One answer about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub allow: bool,
    pub op: Op,
    /// Real and absolute: what was asked about.
    pub path: PathBuf,
    /// The program that asked, for the reason that is written beside the rule.
    pub program: String,
}

/// What was written where. The diff is empty where every path was decided already.
#[derive(Debug)]
pub struct Saved {
    pub file: PathBuf,
    pub diff: String,
    /// What an import says and the file says otherwise: the file's word counts.
    pub kept: Vec<String>,
    /// It is written, and the audit log does not say so.
    pub unrecorded: Option<JournalError>,
}

/// What a draft would make of the file of a scope, to be looked at first.
#[derive(Debug)]
pub struct Proposal {
    pub file: PathBuf,
    /// Empty where the file says so already.
    pub diff: String,
    /// What the file says otherwise: its word counts.
    pub kept: Vec<String>,
    before: String,
    after: String,
}

/// Why an answer could not be kept.
#[derive(Debug, Error)]
pub enum PersistError {
    #[error("an answer for this session only is written nowhere")]
    NotKept,
    #[error("there is no project here to keep it for")]
    NoProject,
    #[error("`{file}` is not approved as it is, so nothing is added to it")]
    NotTrusted { file: PathBuf },
    #[error("a rule about `{path}` would give everything below it, not its names alone")]
    OnlyNames { path: PathBuf },
    #[error("`{path}` holds everything of yours: no answer opens it")]
    TooWide { path: PathBuf },
    #[error("no rule of a policy file can name `{path}`")]
    Unwritable { path: PathBuf },
    #[error("a rule in `{file}` would not decide about `{path}`: another one does ({origin})")]
    Overruled { file: PathBuf, path: PathBuf, origin: Origin },
    #[error("`{file}` was changed meanwhile")]
    Changed { file: PathBuf },
    #[error("`{key}` in `{file}` is no list of paths")]
    NoList { file: PathBuf, key: String },
    #[error(transparent)]
    Files(#[from] PolicyFilesError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes the answers to the policy file of that scope.
pub fn save(
    around: &Surroundings,
    environment: &[(String, String)],
    keep: Keep,
    changes: &[Change],
) -> Result<Saved, PersistError> {
    let target = Target::of(keep, around, environment)?;
    let editor = Editor::begin(target, around, environment)?;
    let today = cofferdam_audit::Stamp::now().day();
    let entries = editor.entries(changes, &today)?;
    let text = edit::edit(&editor.text, &entries, &editor.places).map_err(|key| editor.no_list(key))?;
    editor.finish(&text, changes)
}

/// Writes a whole file of settings to a scope that has none yet, or adds its paths to one that has.
pub fn save_draft(
    around: &Surroundings,
    environment: &[(String, String)],
    keep: Keep,
    draft: &Draft,
) -> Result<Saved, PersistError> {
    let editor = Editor::begin(Target::of(keep, around, environment)?, around, environment)?;
    let (text, kept) = editor.with_draft(draft)?;
    Ok(Saved { kept, ..editor.finish(&text, &[])? })
}

/// What [`save_draft`] would write. Writes nothing, and waits for no other writer.
pub fn propose_draft(
    around: &Surroundings,
    environment: &[(String, String)],
    keep: Keep,
    draft: &Draft,
) -> Result<Proposal, PersistError> {
    let editor = Editor::look(Target::of(keep, around, environment)?, None, around, environment)?;
    let (after, kept) = editor.with_draft(draft)?;
    editor.policy_with(&after)?;
    let diff = if after == editor.text { String::new() } else { editor.diff(&after) };
    Ok(Proposal { file: editor.target.file, diff, kept, before: editor.text, after })
}

/// Writes what was proposed, if the file still says what it said then.
pub fn save_proposal(
    around: &Surroundings,
    environment: &[(String, String)],
    keep: Keep,
    proposal: &Proposal,
) -> Result<Saved, PersistError> {
    let editor = Editor::begin(Target::of(keep, around, environment)?, around, environment)?;
    if editor.target.file != proposal.file || editor.text != proposal.before {
        return Err(PersistError::Changed { file: editor.target.file });
    }
    editor.finish(&proposal.after, &[])
}

/// Keeps the answer to a question for as long as it says.
pub fn save_answer(
    around: &Surroundings,
    environment: &[(String, String)],
    settled: &Settled,
) -> Result<Saved, PersistError> {
    let question = &settled.question;
    let (allow, reach, keep) = match settled.verdict {
        Verdict::Allow { reach, keep } => (true, reach, keep),
        Verdict::Deny { reach, keep } => (false, reach, keep),
    };
    let path = match &question.subject {
        Subject::Path(path) => path,
        Subject::Host(host) => {
            let hosts = match &question.group {
                Some(Group::Hosts { hosts, .. }) if allow && reach == Reach::Group => hosts,
                _ => std::slice::from_ref(host),
            };
            return save_draft(around, environment, keep, &hosts_draft(hosts, allow)?);
        }
        Subject::Key(_) => return Err(PersistError::NotKept),
    };
    if allow && !question.op.can_be_kept(question.is_dir, reach) {
        return Err(PersistError::OnlyNames { path: path.clone() });
    }
    let own = match (reach, path.parent()) {
        (Reach::Dir, Some(parent)) if !question.is_dir => parent.to_path_buf(),
        _ => path.clone(),
    };
    let paths = if allow && !settled.granted.is_empty() { settled.granted.clone() } else { vec![own] };
    let program = question.asker.program.exe.clone();
    let change = |path| Change { allow, op: question.op, path, program: program.clone() };
    save(around, environment, keep, &paths.into_iter().map(change).collect::<Vec<_>>())
}

fn hosts_draft(hosts: &[String], allow: bool) -> Result<Draft, PersistError> {
    let part = |host: &String| {
        let endpoint = Endpoint::parse_allow(host).map_err(|_| PersistError::Unwritable { path: host.into() })?;
        let rule = HostRule::whole(endpoint);
        Ok(Setting::NetworkPart(if allow { NetworkPart::Allow(rule) } else { NetworkPart::Deny(rule) }))
    };
    let settings = hosts.iter().map(part).collect::<Result<Vec<_>, PersistError>>()?;
    Ok(Draft { settings, ..Draft::default() })
}

/// The file of a scope.
struct Target {
    layer: Layer,
    file: PathBuf,
    place: Place,
    lock: LockPlace,
}

/// Which lock a scope is written under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockPlace {
    State,
    BesideFile,
}

impl Target {
    fn of(keep: Keep, around: &Surroundings, environment: &[(String, String)]) -> Result<Self, PersistError> {
        let lock = LockPlace::State;
        match keep {
            Keep::Once | Keep::Session => Err(PersistError::NotKept),
            Keep::Project => {
                let (layer, file) = project_files(around).pop().ok_or(PersistError::NoProject)?;
                Ok(Target { layer, file, place: Place::Repository, lock })
            }
            Keep::User => {
                let file = user_config(around, environment);
                Ok(Target { layer: Layer::User, file, place: Place::Own, lock })
            }
            Keep::Org => Ok(Target::org(Path::new(ORG_POLICY))),
        }
    }

    fn org(file: &Path) -> Self {
        Target { layer: Layer::Org, file: file.to_path_buf(), place: Place::Own, lock: LockPlace::BesideFile }
    }
}

/// One edit, under the lock of its scope where something is written.
struct Editor<'a> {
    target: Target,
    _lock: Option<Lock>,
    around: &'a Surroundings,
    sources: Sources,
    /// What the file says now.
    text: String,
    existed: bool,
    places: Places,
}

impl<'a> Editor<'a> {
    fn begin(target: Target, around: &'a Surroundings, environment: &[(String, String)]) -> Result<Self, PersistError> {
        let lock = match target.lock {
            LockPlace::State => Lock::of_user(&around.state)?,
            LockPlace::BesideFile => Lock::beside(&target.file)?,
        };
        Editor::look(target, Some(lock), around, environment)
    }

    fn look(
        target: Target,
        lock: Option<Lock>,
        around: &'a Surroundings,
        environment: &[(String, String)],
    ) -> Result<Self, PersistError> {
        let text = store::read(&target.file, target.place)?;
        let existed = text.is_some();
        let text = text.unwrap_or_default();
        if existed && target.layer.is_untrusted() && !Approvals::load(&around.state)?.covers(&target.file, &text) {
            return Err(PersistError::NotTrusted { file: target.file });
        }
        let sources = Sources::read(around, environment)?;
        let without_git = around.places();
        let places = places(&sources.resolve(&without_git)?, around, environment);
        Ok(Editor { target, _lock: lock, around, sources, text, existed, places })
    }

    /// The text with a draft's settings, and what it says otherwise.
    fn with_draft(&self, draft: &Draft) -> Result<(String, Vec<String>), PersistError> {
        if self.text.trim().is_empty() {
            return Ok((draft.to_toml(), Vec::new()));
        }
        let (text, kept) = edit::add_settings(&self.text, draft).map_err(|key| self.no_list(key))?;
        let entries: Vec<edit::Entry> = draft.settings.iter().filter_map(edit::Entry::of).collect();
        let text = edit::edit(&text, &entries, &self.places).map_err(|key| self.no_list(key))?;
        Ok((text, kept))
    }

    fn diff(&self, text: &str) -> String {
        let file = self.target.file.display().to_string();
        let before = if self.existed { file.clone() } else { "/dev/null".to_owned() };
        let diff = similar::TextDiff::from_lines(self.text.as_str(), text);
        diff.unified_diff().header(&before, &file).to_string()
    }

    fn no_list(&self, key: String) -> PersistError {
        PersistError::NoList { file: self.target.file.clone(), key }
    }

    /// The rules that count without the layers after this scope's: a project's rule does not spare another project the
    /// question.
    fn rules_so_far(&self, with_unapproved: bool) -> Result<RuleIndex<ExpandedRule>, PersistError> {
        let counts = |input: &&LayerInput| {
            input.layer <= self.target.layer && (with_unapproved || input.trusted || !input.layer.is_untrusted())
        };
        let layers = self.sources.layers.iter().filter(counts).cloned().collect();
        let policy = Sources { layers, requirements: self.sources.requirements.clone() }.resolve(&self.places)?;
        Ok(real_rules(&policy, &self.places))
    }

    fn entries(&self, changes: &[Change], today: &str) -> Result<Vec<edit::Entry>, PersistError> {
        let rules = self.rules_so_far(true)?;
        // The next version of a file that is not approved may say something else.
        let approved = self.rules_so_far(false)?;
        let mut entries: Vec<edit::Entry> = Vec::new();
        for change in changes {
            if change.allow && self.places.holds_a_home(&change.path) {
                return Err(PersistError::TooWide { path: change.path.clone() });
            }
            if [&rules, &approved].into_iter().all(|rules| is_decided(change, rules)) {
                continue;
            }
            let now = rules.deciding(&change.path).map(|rule| rule.rule.access);
            let path = self.written(&change.path)?;
            let word = if change.allow { "approved" } else { "denied" };
            let reason = format!("{word} {today}: {}", shortened(&change.program));
            entries.push(edit::Entry { access: access_for(change, now), path, optional: true, reason });
        }
        Ok(entries)
    }

    /// Only the project's own policy says `./`: elsewhere that would be every project.
    fn written(&self, path: &Path) -> Result<PathExpr, PersistError> {
        let project = self.places.project.clone().filter(|_| self.target.layer.is_untrusted());
        let places = Places { project, ..self.places.clone() };
        PathExpr::for_path(path, &places).ok_or_else(|| PersistError::Unwritable { path: path.to_path_buf() })
    }

    /// Writes the text, if it means what was answered.
    fn finish(self, text: &str, changes: &[Change]) -> Result<Saved, PersistError> {
        let file = self.target.file.clone();
        if text == self.text {
            return Ok(Saved { file, diff: String::new(), kept: Vec::new(), unrecorded: None });
        }
        let policy = self.policy_with(text)?;
        self.refuse_overruled(&policy, changes)?;
        store::write(&file, self.target.place, text)?;
        // The change is made: a log that cannot be written is told, no more.
        let unrecorded = record(&self.around.state, &file, PolicyChange::Edited { text }).err();
        if self.target.layer.is_untrusted() {
            let mut approvals = Approvals::load(&self.around.state)?;
            approvals.approve(&file, text);
            approvals.save(&self.around.state)?;
        }
        let diff = self.diff(text);
        Ok(Saved { file, diff, kept: Vec::new(), unrecorded })
    }

    /// The policy of the next run: a mistake or a ceiling shows now, not then.
    fn policy_with(&self, text: &str) -> Result<Policy, PersistError> {
        let layer = self.target.layer;
        let source = self.target.file.display().to_string();
        let mut layers: Vec<LayerInput> =
            self.sources.layers.iter().filter(|input| input.layer != layer).cloned().collect();
        layers.push(LayerInput { layer, source, text: text.to_owned(), trusted: true });
        Sources { layers, requirements: self.sources.requirements.clone() }
            .resolve(&self.places)
            .map_err(PersistError::from)
    }

    fn refuse_overruled(&self, policy: &Policy, changes: &[Change]) -> Result<(), PersistError> {
        let rules = real_rules(policy, &self.places);
        for change in changes {
            if let Some(rule) = rules.deciding(&change.path).filter(|_| !is_decided(change, &rules)) {
                let (file, path) = (self.target.file.clone(), change.path.clone());
                return Err(PersistError::Overruled { file, path, origin: rule.rule.origin.clone() });
            }
        }
        Ok(())
    }
}

/// Whether these rules give the answer.
fn is_decided(change: &Change, rules: &RuleIndex<ExpandedRule>) -> bool {
    let now = rules.deciding(&change.path).map(|rule| rule.rule.access);
    match (change.allow, change.op.is_write()) {
        (true, true) => now >= Some(Access::Overlay),
        (true, false) => rules.deciding_reads(&change.path).is_some_and(|rule| rule.rule.access > Access::Mask),
        (false, true) => now.is_some_and(|now| now <= Access::Read),
        (false, false) => now == Some(Access::Deny),
    }
}

/// What may be read stays readable when only writing was denied.
fn access_for(change: &Change, now: Option<Access>) -> Access {
    match (change.allow, change.op.is_write()) {
        (true, true) => Access::Write,
        (true, false) => Access::Read,
        (false, true) if now.is_some() => Access::Read,
        (false, _) => Access::Deny,
    }
}

/// A program names itself: what it says is shown, not trusted.
fn shortened(program: &str) -> String {
    const LONGEST: usize = 80;
    let mut escaped = String::new();
    for c in program.chars() {
        if is_unseen(c) { escaped.extend(c.escape_unicode()) } else { escaped.push(c) }
    }
    escaped.chars().take(LONGEST).collect()
}

impl edit::Entry {
    /// The entry of a setting that is a rule about a path.
    fn of(setting: &Setting) -> Option<Self> {
        match setting {
            Setting::File { access, path, optional, reason } => Some(edit::Entry {
                access: *access,
                path: path.clone(),
                optional: *optional,
                reason: reason.clone().into_owned(),
            }),
            _ => None,
        }
    }
}
