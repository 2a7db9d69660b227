//! Other tools' configurations as policies. Owns which format a file has and that nothing of it is dropped in silence:
//! every key becomes a setting or a remark. What the keys of a format mean is its module's. Called by `sandbox policy
//! import`.

mod agents;
mod build_yaml;
mod hosts;
mod notation;
mod proxy;
#[cfg(test)]
mod tests;
mod tool_json;
mod yaml;

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use cofferdam_plan::is_in_own_area;
use cofferdam_policy::{Access, Draft, Layer, Limit, PathExpr, Setting, parse, parse_size, parse_time};
use serde_json::{Map, Value};

use crate::render::Failure;

/// Takes every key that it knows.
type Format = fn(&mut Import);

const FORMATS: &[(&str, Format)] = &[
    ("tool-json", tool_json::read),
    ("proxy", proxy::read),
    ("build-yaml", build_yaml::read),
    ("claude", agents::claude),
    ("codex", agents::codex),
    ("cursor", agents::cursor),
];

/// The policy that a configuration means.
pub(crate) fn import(file: &Path, text: &str, from: &str) -> Result<Draft, Failure> {
    let name = file.display().to_string();
    let failed = |message: String| Failure::Import { file: name.clone(), message };
    let value = notation::parse(file, text).map_err(failed)?;
    let format = match from {
        "auto" => detected(file, &value).ok_or_else(|| failed("its format is not known".to_owned()))?,
        from => from,
    };
    let Some((format, read)) = FORMATS.iter().find(|(known, _)| *known == format) else {
        let names: Vec<&str> = FORMATS.iter().map(|(known, _)| *known).collect();
        let hint = format!("it is one of: auto, {}", names.join(", "));
        return Err(Failure::Flag { flag: "--from", value: from.to_owned(), hint });
    };
    let mut import = Import { left: value, draft: Draft::default() };
    read(&mut import);
    import.draft.title = vec![format!("Imported from {name} ({format}).")];
    Ok(import.finish())
}

fn detected(file: &Path, value: &Value) -> Option<&'static str> {
    let has = |path: &str| value.pointer(path).is_some();
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension {
        "toml" => Some("codex"),
        "yaml" | "yml" => Some("build-yaml"),
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

/// A configuration that is being read: what is taken becomes a setting or a remark, what is left becomes a remark.
#[derive(Debug)]
struct Import {
    left: Value,
    draft: Draft,
}

impl Import {
    /// Takes a value out, by its keys with dots between.
    fn take(&mut self, path: &str) -> Option<Value> {
        let (parents, key) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = &mut self.left;
        for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
            at = at.get_mut(parent)?;
        }
        at.as_object_mut()?.remove(key)
    }

    fn add(&mut self, setting: Setting) {
        self.draft.settings.push(setting);
    }

    fn remark(&mut self, path: &str, value: &Value, why: &str) {
        self.draft.remarks.push(format!("{path} = {value}: {why}"));
    }

    /// Something that has no equal here.
    fn no_equal(&mut self, path: &str, why: &str) {
        if let Some(value) = self.take(path) {
            self.remark(path, &value, why);
        }
    }

    fn each(&mut self, path: &str, mut one: impl FnMut(&mut Self, &str)) {
        let value = self.take(path);
        let list = match value {
            Some(Value::Array(list)) => list,
            Some(value) => vec![value],
            None => return,
        };
        for entry in list {
            match entry.as_str() {
                Some(text) => one(self, text),
                None => self.remark(path, &entry, "is no text"),
            }
        }
    }

    fn paths(&mut self, key: &str, access: Access) {
        self.each(key, |import, path| import.path(key, path, access));
    }

    /// A path in the notation that most of these formats share: `/abs`, `~/home`, `./project`, `**` for everything below.
    fn path(&mut self, key: &str, text: &str, access: Access) {
        let value = Value::from(text);
        let plain = text.trim_end_matches("/**/*").trim_end_matches("/**");
        let plain = if plain.is_empty() { "/" } else { plain };
        if is_in_own_area(Path::new(plain)) {
            return self.remark(key, &value, "the sandbox has its own there");
        }
        match PathExpr::parse(plain) {
            Ok(path) if !plain.contains("**") => {
                let (optional, reason) = (access > Access::Protect, Cow::Owned(key.to_owned()));
                self.add(Setting::File { access, path, optional, reason });
            }
            Ok(_) => self.remark(key, &value, "`**` in the middle of a path has no equal"),
            Err(error) => self.remark(key, &value, &error.to_string()),
        }
    }

    fn amount(&mut self, path: &str, setting: impl FnOnce(u64) -> Option<Setting>) {
        let Some(value) = self.take(path) else { return };
        let number = value.as_u64().or_else(|| value.as_str().and_then(parse_size));
        match number.and_then(setting) {
            Some(setting) => self.add(setting),
            None => self.remark(path, &value, "is no amount that counts here"),
        }
    }

    fn time(&mut self, path: &str, limit: fn(Duration) -> Limit) {
        let Some(value) = self.take(path) else { return };
        let time = value.as_u64().map(Duration::from_secs).or_else(|| value.as_str().and_then(parse_time));
        match time {
            Some(time) => self.add(Setting::Limit(limit(time))),
            None => self.remark(path, &value, "is no time"),
        }
    }

    /// Milliseconds become whole seconds, upwards.
    fn milliseconds(&mut self, path: &str, limit: fn(Duration) -> Limit) {
        let seconds = |milliseconds: u64| Setting::Limit(limit(Duration::from_secs(milliseconds.div_ceil(1000))));
        self.amount(path, |milliseconds| Some(seconds(milliseconds)));
    }

    fn flag(&mut self, path: &str, setting: fn(bool) -> Setting) {
        match self.take(path) {
            Some(Value::Bool(on)) => self.add(setting(on)),
            Some(value) => self.remark(path, &value, "is neither true nor false"),
            None => {}
        }
    }

    fn finish(mut self) -> Draft {
        let left = std::mem::take(&mut self.left);
        self.leftovers("", left);
        self.drop_refused();
        self.draft
    }

    fn leftovers(&mut self, path: &str, value: Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                    self.leftovers(&path, value);
                }
            }
            Value::Null => {}
            value => self.remark(path, &value, "has no equal here"),
        }
    }

    /// What our own parser would not take becomes a remark with its reason, so that the result can be used as it is.
    fn drop_refused(&mut self) {
        let settings = std::mem::take(&mut self.draft.settings);
        for setting in settings {
            let alone = Draft { settings: vec![setting.clone()], ..Draft::default() };
            match parse(Layer::User, "the import", &alone.to_toml()) {
                Ok(_) => self.draft.settings.push(setting),
                Err(error) => self.draft.remarks.push(format!("{setting}: {error}")),
            }
        }
    }
}

fn cpu_seconds(time: Duration) -> Limit {
    Limit::CpuSeconds(time.as_secs())
}

fn small(count: u64) -> Option<u32> {
    u32::try_from(count).ok()
}

fn is_object(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_object)
}

/// An object, where something else was expected to be one.
fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
