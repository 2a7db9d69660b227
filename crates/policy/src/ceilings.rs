//! What no layer may ask for more than: the org's requirements, and the maxima of chosen presets. Owns the format of
//! `requirements.toml` and the check of a merged policy; it cuts nothing off a request (that is an error), and reads
//! no file. Called by `layers` last.
//!
//! What nobody asked for (a built-in value) follows the ceiling silently; what somebody asked for and goes beyond is
//! refused with both origins.

mod hold;

use std::borrow::Cow;

use serde::Deserialize;

use crate::at::{At, Lines};
use crate::builtin::{DEFAULT_PRESET, Preset};
use crate::check::check;
use crate::endpoint::Endpoint;
use crate::error::PolicyError;
use crate::file::from_toml;
use crate::file_limits::LimitsTable;
use crate::file_network::HostEntry;
use crate::file_values::PathEntry;
use crate::network_part::{HostRule, NetworkPart};
use crate::origin::{Layer, Origin, Ruled};
use crate::path::PathExpr;
use crate::setting::Setting;
use crate::types::{Isolation, Limits, Mode, NetworkMode, OnUnknown, SyscallMode};

/// Ceilings, each with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ceilings {
    /// At least this.
    pub isolation: Option<Ruled<Isolation>>,
    /// The mode that every run has.
    pub mode: Option<Ruled<Mode>>,
    /// At most this at a path that no rule is about.
    pub unknown: Option<Ruled<OnUnknown>>,
    /// At most this.
    pub network: Option<Ruled<NetworkMode>>,
    /// Hosts that are denied for good.
    pub deny_hosts: Vec<Ruled<HostRule>>,
    /// Where not empty: what is allowed of the network lies within these.
    pub hosts_within: Vec<Ruled<Endpoint>>,
    /// Whether debugging inside may be on.
    pub debug: Option<Ruled<bool>>,
    /// The presets that may be named; `default` always may.
    pub presets: Option<Ruled<Vec<String>>>,
    /// Denied for good.
    pub deny: Vec<Ruled<(PathExpr, String)>>,
    /// Write and overlay grants lie at or below these.
    pub write_within: Vec<Ruled<PathExpr>>,
    pub max_processes: Option<Ruled<u32>>,
    pub limits: Limits,
    pub syscalls: Option<Ruled<SyscallMode>>,
    /// Globs of variables that no `pass` may name.
    pub never_pass: Vec<Ruled<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RequirementsFile {
    version: Option<At<u32>>,
    isolation: Option<At<Isolation>>,
    mode: Option<At<Mode>>,
    unknown: Option<At<OnUnknown>>,
    network: Option<At<NetworkMode>>,
    network_hosts: HostsTable,
    debug: Option<At<bool>>,
    presets: Option<At<Vec<String>>>,
    files: FilesTable,
    process: ProcessTable,
    limits: LimitsTable,
    syscalls: SyscallsTable,
    env: EnvTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FilesTable {
    deny: Vec<At<PathEntry>>,
    write_within: Vec<At<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostsTable {
    deny: Vec<At<HostEntry>>,
    within: Vec<At<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProcessTable {
    max: Option<At<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SyscallsTable {
    mode: Option<At<SyscallMode>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EnvTable {
    never_pass: Vec<At<String>>,
}

impl Ceilings {
    /// Reads `requirements.toml`. `source` is the name under which the user knows it.
    pub fn parse(source: &str, text: &str) -> Result<Ceilings, PolicyError> {
        let lines = Lines::new(text);
        let file: RequirementsFile = from_toml(source, text, &lines)?;
        let place = Place { source, lines };
        if let Some(version) = file.version.as_ref().filter(|version| version.value != 1) {
            return Err(PolicyError::Version { version: version.value, origin: place.origin(version.offset) });
        }
        let mut deny = Vec::new();
        for At { value: entry, offset } in file.files.deny {
            let path = place.path("files.deny", &entry.path, offset)?;
            deny.push(Ruled::new((path, entry.reason), place.origin(offset)));
        }
        let mut write_within = Vec::new();
        for At { value, offset } in file.files.write_within {
            let path = place.path("files.write_within", &value, offset)?;
            if !path.is_one_path() {
                let (setting, expected) = ("files.write_within".to_owned(), "a path without `*`".to_owned());
                return Err(PolicyError::Value { setting, value, expected, origin: place.origin(offset) });
            }
            write_within.push(Ruled::new(path, place.origin(offset)));
        }
        let deny_hosts = place.denied_hosts(file.network_hosts.deny)?;
        let hosts_within = place.endpoints(file.network_hosts.within)?;
        let max_processes = file.process.max.map(|at| place.ruled(at));
        if let Some(most) = &max_processes {
            check(&most.map(Setting::MaxProcesses))?;
        }
        let mut limits = Limits::default();
        for most in file.limits.limits().map(|at| place.ruled(at)) {
            check(&most.map(Setting::Limit))?;
            limits.set(most.value, most.origin);
        }
        Ok(Ceilings {
            isolation: file.isolation.map(|at| place.ruled(at)),
            mode: file.mode.map(|at| place.ruled(at)),
            unknown: file.unknown.map(|at| place.ruled(at)),
            network: file.network.map(|at| place.ruled(at)),
            deny_hosts,
            hosts_within,
            debug: file.debug.map(|at| place.ruled(at)),
            presets: file.presets.map(|at| place.ruled(at)),
            deny,
            write_within,
            max_processes,
            limits,
            syscalls: file.syscalls.mode.map(|at| place.ruled(at)),
            never_pass: file.env.never_pass.into_iter().map(|at| place.ruled(at)).collect(),
        })
    }

    /// Lowers these to the maxima of a preset: of two about the same limit the tighter counts, so that it is the one named.
    pub(crate) fn lower_to(&mut self, preset: &Preset) {
        if let Some(most) = preset.most_processes()
            && self.max_processes.as_ref().is_none_or(|now| most.value < now.value)
        {
            self.max_processes = Some(most);
        }
        for most in preset.most() {
            self.limits.lower(most);
        }
    }

    pub(crate) fn allows_preset(&self, name: &str) -> bool {
        name == DEFAULT_PRESET
            || self.presets.as_ref().is_none_or(|allowed| allowed.value.iter().any(|one| one == name))
    }
}

struct Place<'a> {
    source: &'a str,
    lines: Lines,
}

impl Place<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let (line, _) = self.lines.position(offset);
        Origin { layer: Layer::Requirements, source: Cow::Owned(self.source.to_owned()), line: Some(line) }
    }

    fn ruled<T>(&self, at: At<T>) -> Ruled<T> {
        Ruled::new(at.value, self.origin(at.offset))
    }

    fn denied_hosts(&self, entries: Vec<At<HostEntry>>) -> Result<Vec<Ruled<HostRule>>, PolicyError> {
        let rules = entries.into_iter().map(|At { value, offset }| {
            let rule = Ruled::new(value.deny("network_hosts.deny", || self.origin(offset))?, self.origin(offset));
            check(&rule.map(|rule| Setting::NetworkPart(NetworkPart::Deny(rule))))?;
            Ok(rule)
        });
        rules.collect()
    }

    fn endpoints(&self, entries: Vec<At<String>>) -> Result<Vec<Ruled<Endpoint>>, PolicyError> {
        let endpoints = entries.into_iter().map(|At { value, offset }| {
            let (setting, origin) = ("network_hosts.within", self.origin(offset));
            match Endpoint::parse(&value) {
                Ok(endpoint) => Ok(Ruled::new(endpoint, origin)),
                Err(cause) => Err(PolicyError::Host { setting, origin, cause }),
            }
        });
        endpoints.collect()
    }

    fn path(&self, setting: &'static str, text: &str, offset: usize) -> Result<PathExpr, PolicyError> {
        PathExpr::parse(text).map_err(|cause| PolicyError::Path { setting, origin: self.origin(offset), cause })
    }
}
