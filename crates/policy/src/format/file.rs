//! The policy file: TOML text to settings with origins. Owns what lists mean, the checks and the error positions; the keys are
//! those of `types::table`. Does not merge or judge (see `layers`), and reads no file (callers hand in the text).
//! Called by `layers`, by the build script for the presets, and by the edge to check a file.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use crate::format::spanned::{At, Lines};
use crate::format::tables::{
    EnvTable, FilesTable, MostTable, NetworkTable, PolicyFile, ProcessTable, ResponseTable, SyscallsTable, Table,
    UnknownTable,
};
use crate::language::path::PathExpr;
use crate::types::error::{PolicyError, did_you_mean};
use crate::types::files::Access;
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;
use crate::types::validate;

/// What a file says, in the order of the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    pub description: Option<String>,
    pub settings: Vec<Ruled<Setting>>,
    /// The maxima of a preset: limits and `process.max`.
    pub most: Vec<Ruled<Setting>>,
}

/// Reads one policy file. `source` is the name under which the user knows it.
pub fn parse(layer: Layer, source: &str, text: &str) -> Result<Parsed, PolicyError> {
    let lines = Lines::new(text);
    let file: PolicyFile = from_toml(source, text, &lines)?;
    let mut reader = Reader { layer, source, lines, settings: Vec::new() };
    reader.top(&file)?;
    reader.files(file.files)?;
    reader.unknown(file.unknown)?;
    reader.process(file.process)?;
    reader.network(file.network)?;
    reader.scalars(file.limits.every_scalar())?;
    reader.syscalls(file.syscalls)?;
    reader.response(file.response)?;
    reader.scalars(file.audit.scalars())?;
    reader.env(file.env)?;
    let settings = std::mem::take(&mut reader.settings);
    reader.most(file.most)?;
    let most = reader.settings;
    for setting in settings.iter().chain(&most) {
        validate::check(setting)?;
    }
    Ok(Parsed { description: file.description, settings, most })
}

/// Deserialises with our error positions and hints.
pub(crate) fn from_toml<T: DeserializeOwned>(source: &str, text: &str, lines: &Lines) -> Result<T, PolicyError> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = lines.position(error.span().map_or(0, |span| span.start));
        let message = error.message().to_owned();
        let hint = hint_for(&message);
        PolicyError::Syntax { file: source.to_owned(), line, column, message, hint }
    })
}

/// serde says: unknown field `x`, expected one of `a`, `b`.
fn hint_for(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown ")?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    did_you_mean(quoted.next()?, quoted)
}

struct Reader<'a> {
    layer: Layer,
    source: &'a str,
    lines: Lines,
    settings: Vec<Ruled<Setting>>,
}

impl Reader<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let (line, _) = self.lines.position(offset);
        Origin { layer: self.layer, source: Cow::Owned(self.source.to_owned()), line: Some(line) }
    }

    fn add(&mut self, offset: usize, setting: Setting) {
        let origin = self.origin(offset);
        self.settings.push(Ruled::new(setting, origin));
    }

    fn scalars(&mut self, scalars: impl IntoIterator<Item = At<Scalar>>) -> Result<(), PolicyError> {
        for At { value: scalar, offset } in scalars {
            if scalar.only_layer().is_some_and(|layer| layer != self.layer) {
                return Err(PolicyError::OrgOnly { setting: scalar.name(), origin: self.origin(offset) });
            }
            self.add(offset, Setting::Scalar(scalar));
        }
        Ok(())
    }

    fn top(&mut self, file: &PolicyFile) -> Result<(), PolicyError> {
        if let Some(version) = file.version.as_ref().filter(|version| version.value != 1) {
            return Err(PolicyError::Version { version: version.value, origin: self.origin(version.offset) });
        }
        for preset in file.preset.iter().flat_map(|at| at.value.0.iter().map(move |name| (at.offset, name))) {
            self.add(preset.0, Setting::Preset(preset.1.clone()));
        }
        self.scalars(file.scalars())
    }

    fn files(&mut self, files: FilesTable) -> Result<(), PolicyError> {
        let lists = [
            ("files.read", Access::Read, files.read),
            ("files.write", Access::Write, files.write),
            ("files.overlay", Access::Overlay, files.overlay),
            ("files.deny", Access::Deny, files.deny),
            ("files.protect", Access::Protect, files.protect),
        ];
        for (setting, access, entries) in lists {
            for At { value: entry, offset } in entries {
                let path = PathExpr::parse(&entry.path).map_err(|cause| PolicyError::Path {
                    setting,
                    origin: self.origin(offset),
                    cause,
                })?;
                let reason = Cow::Owned(entry.reason);
                self.add(offset, Setting::File { access, path, optional: entry.optional, reason });
            }
        }
        Ok(())
    }

    fn unknown(&mut self, unknown: UnknownTable) -> Result<(), PolicyError> {
        self.scalars(unknown.scalars())?;
        if let Some(At { value: argv, offset }) = unknown.hook {
            // It runs outside, answers, and may tell a server: approved or not, a repository does not name it.
            if self.layer.is_untrusted() {
                let setting = "unknown.hook".to_owned();
                return Err(PolicyError::NotForProjects { setting, origin: self.origin(offset) });
            }
            self.add(offset, Setting::Hook(argv));
        }
        Ok(())
    }

    fn process(&mut self, process: ProcessTable) -> Result<(), PolicyError> {
        self.scalars(process.scalars())?;
        if let Some(At { value: names, offset }) = process.executables {
            self.add(offset, Setting::Executables(names));
        }
        Ok(())
    }

    fn network(&mut self, network: NetworkTable) -> Result<(), PolicyError> {
        self.scalars(network.scalars())?;
        for At { value, offset } in network.parts(self.layer, |offset| self.origin(offset))? {
            self.add(offset, Setting::NetworkPart(value));
        }
        Ok(())
    }

    fn syscalls(&mut self, syscalls: SyscallsTable) -> Result<(), PolicyError> {
        self.scalars(syscalls.scalars())?;
        for At { value: call, offset } in syscalls.allow {
            self.add(offset, Setting::SyscallAllow(call));
        }
        for At { value: call, offset } in syscalls.deny {
            self.add(offset, Setting::SyscallDeny(call));
        }
        Ok(())
    }

    fn response(&mut self, response: ResponseTable) -> Result<(), PolicyError> {
        self.scalars(response.scalars())?;
        if let Some(At { value: argv, offset }) = response.hook {
            // It runs outside, with the user's rights: approved or not, a repository does not name it.
            if self.layer.is_untrusted() {
                let setting = "response.hook".to_owned();
                return Err(PolicyError::NotForProjects { setting, origin: self.origin(offset) });
            }
            self.add(offset, Setting::AlertHook(argv));
        }
        Ok(())
    }

    fn env(&mut self, env: EnvTable) -> Result<(), PolicyError> {
        self.scalars(env.scalars())?;
        for At { value: name, offset } in env.pass {
            self.add(offset, Setting::EnvPass(name));
        }
        for At { value: name, offset } in env.block {
            self.add(offset, Setting::EnvBlock(name));
        }
        for (name, At { value, offset }) in env.set {
            self.add(offset, Setting::EnvSet(name, value));
        }
        Ok(())
    }

    fn most(&mut self, most: Option<At<MostTable>>) -> Result<(), PolicyError> {
        let Some(At { value: most, offset }) = most else { return Ok(()) };
        if self.layer != Layer::BuiltIn {
            return Err(PolicyError::PresetOnly { setting: "most", origin: self.origin(offset) });
        }
        self.scalars(most.process.max.map(|at| at.map(Scalar::MaxProcesses)))?;
        self.scalars(most.limits.every_scalar())
    }
}

/// The JSON Schema of policy files, for editors.
#[cfg(feature = "schema")]
pub fn json_schema() -> String {
    format!("{:#}\n", schemars::schema_for!(PolicyFile).to_value())
}
