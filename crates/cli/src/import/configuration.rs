//! A configuration while it is read. Owns taking keys out of it, and that every key becomes a setting or a remark; which keys
//! there are is each format's to say. Called by the formats.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use cofferdam_plan::is_in_own_area;
use cofferdam_policy::{Access, Draft, Layer, PathExpr, Scalar, Setting, parse, parse_size, parse_time};
use serde_json::{Map, Value};

/// A configuration that is being read: what is taken becomes a setting or a remark, what is left becomes a remark.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) left: Value,
    pub(super) draft: Draft,
}

impl Import {
    /// Takes a value out, by its keys with dots between.
    pub(super) fn take(&mut self, path: &str) -> Option<Value> {
        let (parents, key) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = &mut self.left;
        for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
            at = at.get_mut(parent)?;
        }
        at.as_object_mut()?.remove(key)
    }

    pub(super) fn add(&mut self, setting: impl Into<Setting>) {
        self.draft.settings.push(setting.into());
    }

    pub(super) fn remark(&mut self, path: &str, value: &Value, why: &str) {
        self.draft.remarks.push(format!("{path} = {value}: {why}"));
    }

    /// Something that has no equal here.
    pub(super) fn no_equal(&mut self, path: &str, why: &str) {
        if let Some(value) = self.take(path) {
            self.remark(path, &value, why);
        }
    }

    pub(super) fn each(&mut self, path: &str, mut one: impl FnMut(&mut Self, &str)) {
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

    pub(super) fn paths(&mut self, key: &str, access: Access) {
        self.each(key, |import, path| import.path(key, path, access));
    }

    /// A path in the notation that most of these formats share: `/abs`, `~/home`, `./project`, `**` for everything below.
    pub(super) fn path(&mut self, key: &str, text: &str, access: Access) {
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

    pub(super) fn amount(&mut self, path: &str, scalar: impl FnOnce(u64) -> Option<Scalar>) {
        let Some(value) = self.take(path) else { return };
        let number = value.as_u64().or_else(|| value.as_str().and_then(parse_size));
        match number.and_then(scalar) {
            Some(scalar) => self.add(scalar),
            None => self.remark(path, &value, "is no amount that counts here"),
        }
    }

    /// An amount of which any counts.
    pub(super) fn scalar(&mut self, path: &str, scalar: fn(u64) -> Scalar) {
        self.amount(path, |number| Some(scalar(number)));
    }

    pub(super) fn time(&mut self, path: &str, scalar: fn(Duration) -> Scalar) {
        let Some(value) = self.take(path) else { return };
        let time = value.as_u64().map(Duration::from_secs).or_else(|| value.as_str().and_then(parse_time));
        match time {
            Some(time) => self.add(scalar(time)),
            None => self.remark(path, &value, "is no time"),
        }
    }

    /// Milliseconds become whole seconds, upwards.
    pub(super) fn milliseconds(&mut self, path: &str, scalar: fn(Duration) -> Scalar) {
        let seconds = |milliseconds: u64| scalar(Duration::from_secs(milliseconds.div_ceil(1000)));
        self.amount(path, |milliseconds| Some(seconds(milliseconds)));
    }

    pub(super) fn flag(&mut self, path: &str, scalar: fn(bool) -> Scalar) {
        match self.take(path) {
            Some(Value::Bool(on)) => self.add(scalar(on)),
            Some(value) => self.remark(path, &value, "is neither true nor false"),
            None => {}
        }
    }

    pub(super) fn finish(mut self) -> Draft {
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

pub(super) fn cpu_seconds(time: Duration) -> Scalar {
    Scalar::CpuSeconds(time.as_secs())
}

pub(super) fn small(count: u64) -> Option<u32> {
    u32::try_from(count).ok()
}

pub(super) fn is_object(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_object)
}

/// An object, where something else was expected to be one.
pub(super) fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
