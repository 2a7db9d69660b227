//! Other tools' configurations as policies. Owns which format a file has; what the keys of a format mean is its module's,
//! and that every key becomes a setting or a remark is `configuration`'s. Called by `sandbox policy
//! import`.

mod agents;
mod build_yaml;
mod command_line;
mod configuration;
mod hosts;
mod notation;
mod proxy;
#[cfg(test)]
mod tests;
mod tool_json;
mod yaml;

use std::path::{Path, PathBuf};

use cofferdam_host::flags::FlagError;
use cofferdam_policy::Draft;
use serde_json::Value;
use thiserror::Error;

use self::configuration::Import;

/// Why a file became no policy.
#[derive(Debug, Error)]
pub(crate) enum ImportError {
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error("cannot make a policy of `{file}`: {message}", file = file.display())]
    Notation { file: PathBuf, message: String },
    #[error("cannot make a policy of `{file}`: its format is not known", file = file.display())]
    UnknownFormat { file: PathBuf },
}

/// Takes every key that it knows.
type Format = fn(&mut Import);

const FORMATS: &[(&str, Format)] = &[
    ("tool-json", tool_json::read),
    ("proxy", proxy::read),
    ("build-yaml", build_yaml::read),
    ("claude", agents::claude),
    ("codex", agents::codex),
    ("cursor", agents::cursor),
    ("srt", agents::srt),
];

/// Takes every option that it knows of a command line.
type Words = fn(&mut Import, &[String]);

const COMMANDS: &[(&str, Words)] = &[("bwrap", command_line::bwrap), ("firejail", command_line::firejail)];

/// The policy that another sandbox's command line means.
pub(crate) fn import_words(words: &[String], from: &str) -> Result<Draft, ImportError> {
    let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    let wanted = if from == "auto" { program } else { from };
    let Some((format, read)) = COMMANDS.iter().find(|(known, _)| *known == wanted) else {
        let names: Vec<&str> = COMMANDS.iter().map(|(known, _)| *known).collect();
        return Err(FlagError::one_of("--from", wanted, &names).into());
    };
    let mut import = Import { left: Value::Null, draft: Draft::default() };
    read(&mut import, words);
    import.draft.title = vec![format!("Imported from a command line of {format}.")];
    Ok(import.finish())
}

/// The policy that a configuration means.
pub(crate) fn import(file: &Path, text: &str, from: &str) -> Result<Draft, ImportError> {
    let value =
        notation::parse(file, text).map_err(|message| ImportError::Notation { file: file.to_path_buf(), message })?;
    let format = match from {
        "auto" => detected(file, &value).ok_or_else(|| ImportError::UnknownFormat { file: file.to_path_buf() })?,
        from => from,
    };
    let Some((format, read)) = FORMATS.iter().find(|(known, _)| *known == format) else {
        let names: Vec<&str> = ["auto"].into_iter().chain(FORMATS.iter().map(|(known, _)| *known)).collect();
        return Err(FlagError::one_of("--from", from, &names).into());
    };
    let mut import = Import { left: value, draft: Draft::default() };
    read(&mut import);
    import.draft.title = vec![format!("Imported from {} ({format}).", file.display())];
    Ok(import.finish())
}

fn detected(file: &Path, value: &Value) -> Option<&'static str> {
    let has = |path: &str| value.pointer(path).is_some();
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension {
        "toml" => Some("codex"),
        "yaml" | "yml" => Some("build-yaml"),
        _ if ["allowWrite", "denyWrite", "denyRead", "allowRead"]
            .iter()
            .any(|key| has(&format!("/filesystem/{key}")))
            || has("/network/allowedDomains") =>
        {
            Some("srt")
        }
        _ if has("/isolationLevel") || has("/filesystem") && has("/process") => Some("tool-json"),
        _ if has("/additionalReadwritePaths") || has("/additionalReadonlyPaths") || has("/networkPolicy") => {
            Some("cursor")
        }
        _ if has("/permissions")
            || has("/sandbox/filesystem")
            || has("/sandbox/network")
            || has("/sandbox/enabled") =>
        {
            Some("claude")
        }
        _ if has("/sandbox/bash") || has("/sandbox/images") || has("/allowlist") || has("/allowedPaths") => {
            Some("proxy")
        }
        _ if has("/sandbox_config") => Some("build-yaml"),
        _ => None,
    }
}
