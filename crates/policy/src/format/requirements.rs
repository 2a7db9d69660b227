//! The file `requirements.toml`: TOML text to ceilings with origins. Owns its format and error positions; holding a policy to
//! the ceilings is `resolve::ceilings`', and reading the file the caller's. Called by the edge.

use std::borrow::Cow;

use serde::Deserialize;

use crate::format::file::from_toml;
use crate::format::spanned::{At, Lines};
use crate::format::tables::{AuditTable, LimitsTable, MostProcessTable};
use crate::format::values::{HostEntry, PathEntry};
use crate::language::endpoint::{Endpoint, EndpointError};
use crate::language::path::PathExpr;
use crate::types::ceilings::Ceilings;
use crate::types::error::PolicyError;
use crate::types::network::NetworkMode;
use crate::types::network_part::{HostRule, NetworkPart};
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::policy::{Isolation, Mode, OnCritical, OnUnknown, SyscallMode, Transaction};
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;
use crate::types::validate::check;

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
    transaction: Option<At<Transaction>>,
    presets: Option<At<Vec<String>>>,
    files: FilesTable,
    process: MostProcessTable,
    limits: LimitsTable,
    syscalls: SyscallsTable,
    response: ResponseTable,
    audit: AuditTable,
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
struct SyscallsTable {
    mode: Option<At<SyscallMode>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResponseTable {
    critical: Option<At<OnCritical>>,
    max_medium: Option<At<u32>>,
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
        let modes = [
            file.isolation.map(|at| at.map(Scalar::Isolation)),
            file.network.map(|at| at.map(Scalar::Network)),
            file.debug.map(|at| at.map(Scalar::Debug)),
            file.transaction.map(|at| at.map(Scalar::Transaction)),
            file.syscalls.mode.map(|at| at.map(Scalar::SyscallMode)),
            file.response.critical.map(|at| at.map(Scalar::OnCritical)),
            file.response.max_medium.map(|at| at.map(Scalar::MaxMedium)),
            file.audit.keep.map(|at| at.map(Scalar::AuditKeep)),
            file.mode.map(|at| at.map(Scalar::Mode)),
            file.unknown.map(|at| at.map(Scalar::UnknownVerdict)),
            file.process.max.map(|at| at.map(Scalar::MaxProcesses)),
        ];
        let mut most = Vec::new();
        for at in modes.into_iter().flatten().chain(file.limits.every_scalar()) {
            let ceiling = place.ruled(at);
            check(&ceiling.map(Setting::Scalar))?;
            most.push(ceiling);
        }
        Ok(Ceilings {
            most,
            deny_hosts,
            hosts_within,
            presets: file.presets.map(|at| place.ruled(at)),
            deny,
            write_within,
            never_pass: file.env.never_pass.into_iter().map(|at| place.ruled(at)).collect(),
        })
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
                // Names are held to it before it is known where they lead.
                Ok(endpoint) if !endpoint.at.is_empty() => {
                    Err(PolicyError::Host { setting, origin, cause: EndpointError::Ceiling(value) })
                }
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
