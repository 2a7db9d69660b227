//! Rules of the files that answers are kept in, and taking one out again. Owns which rules those are: whole rules about paths and
//! hosts, of the user's own file and of the project's local one. Called by `sandbox policy revoke` and the inbox.

use std::path::PathBuf;

use cofferdam_policy::{NetworkPart, Setting, parse};
use cofferdam_wire::Keep;

use super::{Editor, PersistError, Saved, Target, edit, store};
use crate::policy_files::PolicyFilesError;
use crate::survey::Surroundings;

/// A rule that stands in one of these files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRule {
    pub keep: Keep,
    pub file: PathBuf,
    pub line: Option<u32>,
    pub setting: Setting,
}

impl KeptRule {
    /// As `sandbox policy show` has it.
    pub fn rule(&self) -> String {
        self.setting.to_string()
    }

    /// For an answer: the day and the program that asked. The operator may have written anything else.
    pub fn reason(&self) -> &str {
        match &self.setting {
            Setting::File { reason, .. } => reason,
            Setting::NetworkPart(NetworkPart::Allow(rule) | NetworkPart::Deny(rule)) => &rule.reason,
            _ => "",
        }
    }
}

/// Those of the user, and of the project where there is one.
pub fn kept(around: &Surroundings, environment: &[(String, String)]) -> Result<Vec<KeptRule>, PersistError> {
    let scopes = [Keep::User].into_iter().chain(around.project.as_ref().map(|_| Keep::Project));
    let mut rules = Vec::new();
    for keep in scopes {
        let target = Target::of(keep, around, environment)?;
        let Some(text) = store::read(&target.file, target.place)? else { continue };
        let name = target.file.display().to_string();
        let parsed = parse(target.layer, &name, &text).map_err(PolicyFilesError::from)?;
        let answers = parsed.settings.into_iter().filter(|ruled| is_answer(&ruled.value));
        rules.extend(answers.map(|ruled| {
            let line = ruled.origin.line;
            KeptRule { keep, file: target.file.clone(), line, setting: ruled.value }
        }));
    }
    Ok(rules)
}

fn is_answer(setting: &Setting) -> bool {
    match setting {
        Setting::File { .. } => true,
        Setting::NetworkPart(NetworkPart::Allow(rule) | NetworkPart::Deny(rule)) => {
            rule.methods.is_empty() && rule.paths.is_empty()
        }
        _ => false,
    }
}

/// Takes the rule out of its file, if it still stands there.
pub fn revoke(around: &Surroundings, environment: &[(String, String)], rule: &KeptRule) -> Result<Saved, PersistError> {
    let editor = Editor::begin(Target::of(rule.keep, around, environment)?, around, environment)?;
    let text = edit::take_out(&editor.text, &rule.setting).map_err(|key| editor.no_list(key))?;
    if editor.target.file != rule.file || text == editor.text {
        return Err(PersistError::Changed { file: rule.file.clone() });
    }
    editor.finish(&text, &[])
}
