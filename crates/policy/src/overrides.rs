//! What the command line asks for, already typed. Owns the mapping from flags to settings; parsing of arguments is
//! the edge's. Read by `layers` as the last layer before the requirements.

use std::borrow::Cow;
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::limit::Limit;
use crate::network::{AgentUse, Publish, SocketGrant};
use crate::network_part::{HostRule, NetworkPart};
use crate::origin::{Origin, Ruled};
use crate::path::PathExpr;
use crate::setting::Setting;
use crate::types::{Access, EnvMode, Isolation, Mode, NetworkMode, OnUnknown};

/// Flags; an absent one leaves the layers below as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    pub presets: Vec<String>,
    pub isolation: Option<Isolation>,
    pub mode: Option<Mode>,
    pub on_unknown: Option<OnUnknown>,
    pub ask_timeout: Option<Duration>,
    pub debug: Option<bool>,
    pub project: Option<Access>,
    pub network: Option<NetworkMode>,
    /// The mode was not named, but follows from `--allow-host`.
    pub network_is_implied: bool,
    pub allow_host: Vec<Endpoint>,
    pub deny_host: Vec<Endpoint>,
    pub publish: Vec<Publish>,
    pub host_ports: Vec<u16>,
    pub ssh_agent: Option<AgentUse>,
    pub sockets: Vec<PathExpr>,
    pub rw: Vec<PathExpr>,
    pub ro: Vec<PathExpr>,
    pub overlay: Vec<PathExpr>,
    pub blacklist: Vec<PathExpr>,
    pub timeout: Option<Duration>,
    pub memory: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu_millis: Option<u32>,
    pub cpu_time: Option<Duration>,
    pub max_processes: Option<u32>,
    pub open_files: Option<u64>,
    pub storage: Option<u64>,
    pub output: Option<u64>,
    pub env_mode: Option<EnvMode>,
    pub env_pass: Vec<String>,
    pub env_set: Vec<(String, String)>,
}

impl Overrides {
    pub(crate) fn settings(&self) -> Vec<Ruled<Setting>> {
        let mut settings = Vec::new();
        let mut add = |flag: &'static str, setting| settings.push(Ruled::new(setting, Origin::flag(flag)));
        for name in &self.presets {
            add("--preset", Setting::Preset(name.clone()));
        }
        if let Some(level) = self.isolation {
            add("--isolation", Setting::Isolation(level));
        }
        if let Some(mode) = self.mode {
            add("--mode", Setting::Mode(mode));
        }
        if let Some(verdict) = self.on_unknown {
            add("--on-unknown", Setting::UnknownVerdict(verdict));
        }
        if let Some(time) = self.ask_timeout {
            add("--ask-timeout", Setting::UnknownTimeout(time));
        }
        if let Some(on) = self.debug {
            add(if on { "--debug" } else { "--no-debug" }, Setting::Debug(on));
        }
        if let Some(access) = self.project {
            add("--project", Setting::Project(access));
        }
        if let Some(mode) = self.network {
            add(if self.network_is_implied { "--allow-host" } else { "--network" }, Setting::Network(mode));
        }
        for (flag, part) in self.network_parts() {
            add(flag, Setting::NetworkPart(part));
        }
        let lists = [
            ("--rw", Access::Write, &self.rw),
            ("--ro", Access::Read, &self.ro),
            ("--overlay", Access::Overlay, &self.overlay),
            ("--blacklist", Access::Deny, &self.blacklist),
        ];
        for (flag, access, paths) in lists {
            for path in paths {
                add(flag, file(access, path.clone()));
            }
        }
        if let Some(count) = self.max_processes {
            add("--max-processes", Setting::MaxProcesses(count));
        }
        let limits = [
            ("--timeout", self.timeout.map(Limit::Timeout)),
            ("--memory", self.memory.map(Limit::Memory)),
            ("--cpus", self.cpu_millis.map(Limit::CpuMillis)),
            ("--cpu-time", self.cpu_time.map(|time| Limit::CpuSeconds(time.as_secs()))),
            ("--open-files", self.open_files.map(Limit::OpenFiles)),
            ("--storage", self.storage.map(Limit::Storage)),
            ("--max-output", self.output.map(Limit::Output)),
        ];
        for (flag, limit) in limits {
            if let Some(limit) = limit {
                add(flag, Setting::Limit(limit));
            }
        }
        if let Some(mode) = self.env_mode {
            add("--env-mode", Setting::EnvMode(mode));
        }
        for name in &self.env_pass {
            add("--env", Setting::EnvPass(name.clone()));
        }
        for (name, value) in &self.env_set {
            add("--env", Setting::EnvSet(name.clone(), value.clone()));
        }
        settings
    }

    fn network_parts(&self) -> impl Iterator<Item = (&'static str, NetworkPart)> {
        let rule = |endpoint: &Endpoint| HostRule::whole(endpoint.clone());
        let allow = self.allow_host.iter().map(move |host| ("--allow-host", NetworkPart::Allow(rule(host))));
        let deny = self.deny_host.iter().map(move |host| ("--deny-host", NetworkPart::Deny(rule(host))));
        let publish = self.publish.iter().map(|publish| ("--publish", NetworkPart::Publish(*publish)));
        let ports = self.host_ports.iter().map(|port| ("--host-port", NetworkPart::HostPort(*port)));
        let agent = self.ssh_agent.iter().map(|use_| ("--ssh-agent", NetworkPart::SshAgent(*use_)));
        let sockets = self.sockets.iter().map(|path| ("--socket", NetworkPart::Socket(named_by_hand(path))));
        allow.chain(deny).chain(publish).chain(ports).chain(agent).chain(sockets)
    }
}

fn named_by_hand(path: &PathExpr) -> SocketGrant {
    SocketGrant { path: path.clone(), optional: false, reason: Cow::Borrowed("") }
}

/// A path that someone named by hand: it must exist.
pub(crate) fn file(access: Access, path: PathExpr) -> Setting {
    Setting::File { access, path, optional: false, reason: Cow::Borrowed("") }
}
