//! The policy file: TOML text to settings with origins. Owns the format, its checks and its error positions;
//! does not merge or judge (see `layers`), and reads no file (callers hand in the text).
//! Called by `layers`, by the build script for the presets, and by the edge to check a file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::format::limits::LimitsTable;
use crate::format::network::NetworkTable;
use crate::format::spanned::{At, Lines};
use crate::format::values::{PathEntry, Texts};
use crate::language::path::PathExpr;
use crate::language::quantity::Time;
use crate::types::error::{PolicyError, did_you_mean};
use crate::types::files::Access;
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::policy::{EnvMode, Isolation, KeeperMode, Metadata, Mode, OnUnknown, SyscallMode};
use crate::types::setting::Setting;
use crate::types::validate;

/// A policy file. Everything is optional: what is absent is left to the layers below.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicyFile {
    /// Version of this format; 1 where absent.
    version: Option<At<u32>>,
    /// What the policy is for, in a sentence.
    description: Option<String>,
    /// Presets to apply on top of `default`: one name or a list.
    preset: Option<At<Texts>>,
    /// How strongly the command is kept apart from the host.
    isolation: Option<At<Isolation>>,
    /// When a path is decided.
    mode: Option<At<Mode>>,
    /// Whether processes inside may trace each other.
    debug: Option<At<bool>>,
    /// What becomes of the session when a host program takes a cover off: `report` or `strict`.
    keeper: Option<At<KeeperMode>>,
    /// How the project directory is given: `read`, `overlay` or `write`.
    project: Option<At<Access>>,
    /// Whether `isolation = "none"` may be asked for. Counts in the org's policy only.
    allow_isolation_none: Option<At<bool>>,
    /// Whether sessions get the host's own network without an approval; counts in the org's policy only.
    allow_network_host: Option<At<bool>>,
    files: FilesTable,
    unknown: UnknownTable,
    process: ProcessTable,
    network: NetworkTable,
    limits: LimitsTable,
    syscalls: SyscallsTable,
    env: EnvTable,
    /// Counts in shipped presets only; those of an organisation are `requirements.toml`.
    #[cfg_attr(feature = "schema", schemars(skip))]
    most: Option<At<MostTable>>,
}

/// Paths. The rule with the longest path that contains a file decides about it.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct FilesTable {
    /// Readable.
    read: Vec<At<PathEntry>>,
    /// Writable for real.
    write: Vec<At<PathEntry>>,
    /// Looks writable; nothing reaches the host.
    overlay: Vec<At<PathEntry>>,
    /// Content is absent.
    deny: Vec<At<PathEntry>>,
    /// Read-only, and cannot be created where missing.
    protect: Vec<At<PathEntry>>,
}

/// What happens at the first access to a path that no rule is about, in dynamic mode.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct UnknownTable {
    /// `ask`, `deny` or `allow-and-log`.
    verdict: Option<At<OnUnknown>>,
    /// What can be seen of a path that is not decided yet.
    metadata: Option<At<Metadata>>,
    /// A question without an answer by then is denied.
    timeout: Option<At<Time>>,
    /// Past this many questions in a minute the rest are denied.
    per_minute: Option<At<u32>>,
    /// A program that is told of every question and may answer it. Counts in the policies of user and org only.
    hook: Option<At<Vec<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct ProcessTable {
    /// Most processes and threads alive at once.
    max: Option<At<u32>>,
    allow_fork: Option<At<bool>>,
    allow_exec: Option<At<bool>>,
    /// Where given: only these programs can be executed.
    executables: Option<At<Vec<String>>>,
}

/// What no request may exceed once the preset was chosen.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MostTable {
    process: MostProcessTable,
    limits: LimitsTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MostProcessTable {
    max: Option<At<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct SyscallsTable {
    mode: Option<At<SyscallMode>>,
    allow: Vec<At<String>>,
    deny: Vec<At<String>>,
    /// The session ends once this many notable calls were refused.
    max_violations: Option<At<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
struct EnvTable {
    mode: Option<At<EnvMode>>,
    /// Names or globs let through; only an exact name lifts a block.
    pass: Vec<At<String>>,
    /// Globs that never come along unless `pass` names the variable exactly.
    block: Vec<At<String>>,
    /// Variables with fixed values.
    set: BTreeMap<String, At<String>>,
}

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
    reader.unknown(&file.unknown);
    reader.process(&file.process);
    reader.network(file.network)?;
    reader.limits(file.limits);
    reader.syscalls(file.syscalls);
    reader.env(file.env);
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

    fn add_each<T>(&mut self, value: Option<&At<T>>, setting: impl Fn(&T) -> Setting) {
        if let Some(at) = value {
            self.add(at.offset, setting(&at.value));
        }
    }

    fn top(&mut self, file: &PolicyFile) -> Result<(), PolicyError> {
        if let Some(version) = file.version.as_ref().filter(|version| version.value != 1) {
            return Err(PolicyError::Version { version: version.value, origin: self.origin(version.offset) });
        }
        for preset in file.preset.iter().flat_map(|at| at.value.0.iter().map(move |name| (at.offset, name))) {
            self.add(preset.0, Setting::Preset(preset.1.clone()));
        }
        self.add_each(file.isolation.as_ref(), |level| Setting::Isolation(*level));
        self.add_each(file.mode.as_ref(), |mode| Setting::Mode(*mode));
        self.add_each(file.debug.as_ref(), |on| Setting::Debug(*on));
        self.add_each(file.keeper.as_ref(), |mode| Setting::Keeper(*mode));
        self.add_each(file.project.as_ref(), |access| Setting::Project(*access));
        if let Some(allowed) = &file.allow_isolation_none {
            self.add_of_org("allow_isolation_none", allowed, Setting::AllowIsolationNone)?;
        }
        if let Some(allowed) = &file.allow_network_host {
            self.add_of_org("allow_network_host", allowed, Setting::AllowNetworkHost)?;
        }
        Ok(())
    }

    /// What only the organisation may say.
    fn add_of_org(&mut self, setting: &str, at: &At<bool>, made: fn(bool) -> Setting) -> Result<(), PolicyError> {
        if self.layer != Layer::Org {
            return Err(PolicyError::OrgOnly { setting: setting.to_owned(), origin: self.origin(at.offset) });
        }
        self.add(at.offset, made(at.value));
        Ok(())
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

    fn unknown(&mut self, unknown: &UnknownTable) {
        self.add_each(unknown.verdict.as_ref(), |verdict| Setting::UnknownVerdict(*verdict));
        self.add_each(unknown.metadata.as_ref(), |metadata| Setting::UnknownMetadata(*metadata));
        self.add_each(unknown.timeout.as_ref(), |time| Setting::UnknownTimeout(time.0));
        self.add_each(unknown.per_minute.as_ref(), |count| Setting::QuestionsPerMinute(*count));
        self.add_each(unknown.hook.as_ref(), |argv| Setting::Hook(argv.clone()));
    }

    fn process(&mut self, process: &ProcessTable) {
        self.add_each(process.max.as_ref(), |count| Setting::MaxProcesses(*count));
        self.add_each(process.allow_fork.as_ref(), |on| Setting::AllowFork(*on));
        self.add_each(process.allow_exec.as_ref(), |on| Setting::AllowExec(*on));
        self.add_each(process.executables.as_ref(), |names| Setting::Executables(names.clone()));
    }

    fn network(&mut self, network: NetworkTable) -> Result<(), PolicyError> {
        for At { value, offset } in network.settings(self.layer, |offset| self.origin(offset))? {
            self.add(offset, value);
        }
        Ok(())
    }

    fn limits(&mut self, limits: LimitsTable) {
        for At { value: limit, offset } in limits.limits() {
            self.add(offset, Setting::Limit(limit));
        }
    }

    fn syscalls(&mut self, syscalls: SyscallsTable) {
        self.add_each(syscalls.mode.as_ref(), |mode| Setting::SyscallMode(*mode));
        for At { value: call, offset } in syscalls.allow {
            self.add(offset, Setting::SyscallAllow(call));
        }
        for At { value: call, offset } in syscalls.deny {
            self.add(offset, Setting::SyscallDeny(call));
        }
        self.add_each(syscalls.max_violations.as_ref(), |count| Setting::MaxViolations(*count));
    }

    fn env(&mut self, env: EnvTable) {
        self.add_each(env.mode.as_ref(), |mode| Setting::EnvMode(*mode));
        for At { value: name, offset } in env.pass {
            self.add(offset, Setting::EnvPass(name));
        }
        for At { value: name, offset } in env.block {
            self.add(offset, Setting::EnvBlock(name));
        }
        for (name, At { value, offset }) in env.set {
            self.add(offset, Setting::EnvSet(name, value));
        }
    }

    fn most(&mut self, most: Option<At<MostTable>>) -> Result<(), PolicyError> {
        let Some(At { value: most, offset }) = most else { return Ok(()) };
        if self.layer != Layer::BuiltIn {
            return Err(PolicyError::PresetOnly { setting: "most", origin: self.origin(offset) });
        }
        self.add_each(most.process.max.as_ref(), |count| Setting::MaxProcesses(*count));
        self.limits(most.limits);
        Ok(())
    }
}

/// The JSON Schema of policy files, for editors.
#[cfg(feature = "schema")]
pub fn json_schema() -> String {
    format!("{:#}\n", schemars::schema_for!(PolicyFile).to_value())
}
