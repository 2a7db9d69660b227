//! Keeps an answer for good: edits the policy file of its scope so that the question is not asked again. Owns which file
//! that is, what must hold before and after, and the approval of what it wrote; the text is `edit`'s, the disk `store`'s.
//! See docs/decisions/0020. Called by whoever answered a question, and by `sandbox policy`.

mod edit;
mod store;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use cofferdam_gate::{Keep, Op, Reach, Settled, Verdict};
use cofferdam_launcher::Surroundings;
use cofferdam_policy::{
    Access, Draft, Endpoint, ExpandedRule, HostRule, Layer, LayerInput, NetworkPart, Origin, PathExpr, Places, Policy,
    RuleIndex, Setting,
};
use thiserror::Error;

use crate::audit;
use crate::output::escaped;
use crate::policy_files::{ORG_POLICY, Sources, places, project_files, real_rules, user_config};
use crate::render::Failure;
use crate::trust::{Approvals, LOCK};
pub(crate) use store::Lock;
use store::Place;

/// One answer about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) allow: bool,
    pub(crate) op: Op,
    /// Real and absolute: what was asked about.
    pub(crate) path: PathBuf,
    /// Who asked, for the reason that is written beside the rule.
    pub(crate) program: String,
}

/// What was written where. The diff is empty where every path was decided already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) file: PathBuf,
    pub(crate) diff: String,
    /// What an import says and the file says otherwise: the file's word counts.
    pub(crate) kept: Vec<String>,
}

/// Why an answer could not be kept.
#[derive(Debug, Error)]
pub(crate) enum PersistError {
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
    #[error("`{file}` is a link")]
    Link { file: PathBuf },
    #[error("`{key}` in `{file}` is no list of paths")]
    NoList { file: PathBuf, key: String },
    #[error("another process has been writing policies for too long")]
    Busy,
}

impl PersistError {
    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            PersistError::NotTrusted { .. } => {
                "look at it and approve it with `sandbox trust`, then answer again".to_owned()
            }
            PersistError::NoProject => "keep it for the user, or run in a project directory".to_owned(),
            PersistError::Unwritable { .. } => "name a directory above it, without `*` in its name".to_owned(),
            PersistError::OnlyNames { .. } => {
                "keep it for the session, or answer for the directory and everything below it".to_owned()
            }
            PersistError::TooWide { .. } => "name a directory below it".to_owned(),
            PersistError::Overruled { .. } => "change that rule, or keep the answer in its layer".to_owned(),
            PersistError::Link { .. } => "edit the file it leads to by hand, or replace the link".to_owned(),
            PersistError::Busy | PersistError::NotKept | PersistError::NoList { .. } => return None,
        })
    }
}

/// Writes the answers to the policy file of that scope.
pub(crate) fn save(
    around: &Surroundings,
    environment: &[(String, String)],
    keep: Keep,
    changes: &[Change],
) -> Result<Saved, Failure> {
    let target = Target::of(keep, around, environment)?;
    let editor = Editor::begin(target, around, environment)?;
    let today = edit::date(std::time::SystemTime::now());
    let entries = editor.entries(changes, &today)?;
    let text = edit::edit(&editor.text, &entries, &editor.places).map_err(|key| editor.no_list(key))?;
    editor.finish(&text, changes)
}

/// Writes a whole file of settings to a scope that has none yet, or adds its paths to one that has.
pub(crate) fn save_draft(
    around: &Surroundings,
    environment: &[(String, String)],
    keep: Keep,
    draft: &Draft,
) -> Result<Saved, Failure> {
    let editor = Editor::begin(Target::of(keep, around, environment)?, around, environment)?;
    if editor.text.trim().is_empty() {
        return editor.finish(&draft.to_toml(), &[]);
    }
    let (text, kept) = edit::add_settings(&editor.text, draft).map_err(|key| editor.no_list(key))?;
    let entries: Vec<edit::Entry> = draft.settings.iter().filter_map(edit::Entry::of).collect();
    let text = edit::edit(&text, &entries, &editor.places).map_err(|key| editor.no_list(key))?;
    Ok(Saved { kept, ..editor.finish(&text, &[])? })
}

/// Keeps the answer to a question for as long as it says.
pub(crate) fn save_answer(
    around: &Surroundings,
    environment: &[(String, String)],
    settled: &Settled,
) -> Result<Saved, Failure> {
    let question = &settled.question;
    let (allow, reach, keep) = match settled.verdict {
        Verdict::Allow { reach, keep } => (true, reach, keep),
        Verdict::Deny { reach, keep } => (false, reach, keep),
    };
    if question.op == Op::Connect {
        let text = question.path.to_string_lossy();
        let unwritable = || PersistError::Unwritable { path: question.path.clone() };
        let rule = HostRule::whole(Endpoint::parse_allow(&text).map_err(|_| unwritable())?);
        let part = if allow { NetworkPart::Allow(rule) } else { NetworkPart::Deny(rule) };
        let draft = Draft { settings: vec![Setting::NetworkPart(part)], ..Draft::default() };
        return save_draft(around, environment, keep, &draft);
    }
    if question.op == Op::Sign {
        return Err(PersistError::NotKept.into());
    }
    if allow && reach == Reach::File && question.is_dir {
        return Err(PersistError::OnlyNames { path: question.path.clone() }.into());
    }
    let own = match (reach, question.path.parent()) {
        (Reach::Dir, Some(parent)) if !question.is_dir => parent.to_path_buf(),
        _ => question.path.clone(),
    };
    let paths = if allow && !settled.granted.is_empty() { settled.granted.clone() } else { vec![own] };
    let program = question.asker.program.exe.clone();
    let change = |path| Change { allow, op: question.op, path, program: program.clone() };
    save(around, environment, keep, &paths.into_iter().map(change).collect::<Vec<_>>())
}

/// The file of a scope.
struct Target {
    layer: Layer,
    file: PathBuf,
    place: Place,
    lock: PathBuf,
}

impl Target {
    fn of(keep: Keep, around: &Surroundings, environment: &[(String, String)]) -> Result<Self, Failure> {
        let lock = around.state.join(LOCK);
        match keep {
            Keep::Once | Keep::Session => Err(PersistError::NotKept.into()),
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

    /// Its lock is beside it and readable for its owner alone: whoever can hold a lock can keep others waiting.
    fn org(file: &Path) -> Self {
        let lock = file.with_file_name(".policy.lock");
        Target { layer: Layer::Org, file: file.to_path_buf(), place: Place::Own, lock }
    }
}

/// One edit, under the lock of its scope.
struct Editor<'a> {
    target: Target,
    _lock: Lock,
    around: &'a Surroundings,
    sources: Sources,
    /// What the file says now.
    text: String,
    existed: bool,
    places: Places,
}

impl<'a> Editor<'a> {
    fn begin(target: Target, around: &'a Surroundings, environment: &[(String, String)]) -> Result<Self, Failure> {
        let lock = Lock::take(&target.lock)?;
        let text = store::read(&target.file, target.place)?;
        let existed = text.is_some();
        let text = text.unwrap_or_default();
        if existed && target.layer.is_untrusted() && !Approvals::load(&around.state)?.covers(&target.file, &text) {
            return Err(PersistError::NotTrusted { file: target.file }.into());
        }
        let sources = Sources::read(around, environment)?;
        let without_git = around.places();
        let places = places(&sources.resolve(&without_git)?, around, environment);
        Ok(Editor { target, _lock: lock, around, sources, text, existed, places })
    }

    fn no_list(&self, key: String) -> Failure {
        PersistError::NoList { file: self.target.file.clone(), key }.into()
    }

    /// The rules that count without the layers after this scope's: a project's rule does not spare another project the
    /// question.
    fn rules_so_far(&self, with_unapproved: bool) -> Result<RuleIndex<ExpandedRule>, Failure> {
        let counts = |input: &&LayerInput| {
            input.layer <= self.target.layer && (with_unapproved || input.trusted || !input.layer.is_untrusted())
        };
        let layers = self.sources.layers.iter().filter(counts).cloned().collect();
        let policy = Sources { layers, requirements: self.sources.requirements.clone() }.resolve(&self.places)?;
        Ok(real_rules(&policy, &self.places))
    }

    fn entries(&self, changes: &[Change], today: &str) -> Result<Vec<edit::Entry>, Failure> {
        let rules = self.rules_so_far(true)?;
        // The next version of a file that nobody approved may say something else.
        let approved = self.rules_so_far(false)?;
        let mut entries: Vec<edit::Entry> = Vec::new();
        for change in changes {
            if change.allow && self.places.holds_a_home(&change.path) {
                return Err(PersistError::TooWide { path: change.path.clone() }.into());
            }
            let access = |rules: &RuleIndex<ExpandedRule>| rules.deciding(&change.path).map(|rule| rule.rule.access);
            let now = access(&rules);
            if [now, access(&approved)].iter().all(|now| now.is_some_and(|now| is_decided(change, now))) {
                continue;
            }
            let path = self.written(&change.path)?;
            let word = if change.allow { "approved" } else { "denied" };
            let reason = format!("{word} {today}: {}", shortened(&change.program));
            entries.push(edit::Entry { access: access_for(change, now), path, optional: true, reason });
        }
        Ok(entries)
    }

    /// Only the project's own policy says `./`: elsewhere that would be every project.
    fn written(&self, path: &Path) -> Result<PathExpr, Failure> {
        let project = self.places.project.clone().filter(|_| self.target.layer.is_untrusted());
        let places = Places { project, ..self.places.clone() };
        PathExpr::for_path(path, &places).ok_or_else(|| PersistError::Unwritable { path: path.to_path_buf() }.into())
    }

    /// Writes the text, if it means what was answered.
    fn finish(self, text: &str, changes: &[Change]) -> Result<Saved, Failure> {
        let file = self.target.file.clone();
        if text == self.text {
            return Ok(Saved { file, diff: String::new(), kept: Vec::new() });
        }
        let policy = self.policy_with(text)?;
        self.refuse_overruled(&policy, changes)?;
        store::write(&file, self.target.place, text)?;
        audit::policy_changed(&self.around.state, &file, "edited", Some(text));
        if self.target.layer.is_untrusted() {
            let mut approvals = Approvals::load(&self.around.state)?;
            approvals.approve(&file, text);
            approvals.save(&self.around.state)?;
        }
        let before = if self.existed { file.display().to_string() } else { "/dev/null".to_owned() };
        let diff = similar::TextDiff::from_lines(self.text.as_str(), text);
        let diff = diff.unified_diff().header(&before, &file.display().to_string()).to_string();
        Ok(Saved { file, diff, kept: Vec::new() })
    }

    /// The policy of the next run: a mistake or a ceiling shows now, not then.
    fn policy_with(&self, text: &str) -> Result<Policy, Failure> {
        let layer = self.target.layer;
        let source = self.target.file.display().to_string();
        let mut layers: Vec<LayerInput> =
            self.sources.layers.iter().filter(|input| input.layer != layer).cloned().collect();
        layers.push(LayerInput { layer, source, text: text.to_owned(), trusted: true });
        Sources { layers, requirements: self.sources.requirements.clone() }.resolve(&self.places)
    }

    fn refuse_overruled(&self, policy: &Policy, changes: &[Change]) -> Result<(), Failure> {
        let rules = real_rules(policy, &self.places);
        for change in changes {
            match rules.deciding(&change.path) {
                Some(rule) if !is_decided(change, rule.rule.access) => {
                    let (file, path) = (self.target.file.clone(), change.path.clone());
                    return Err(PersistError::Overruled { file, path, origin: rule.rule.origin.clone() }.into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a rule with this access gives the answer.
fn is_decided(change: &Change, now: Access) -> bool {
    match (change.allow, change.op.is_write()) {
        (true, true) => now >= Access::Overlay,
        (true, false) => now > Access::Mask,
        (false, true) => now <= Access::Read,
        (false, false) => now == Access::Deny,
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
    escaped(program).chars().take(LONGEST).collect()
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
