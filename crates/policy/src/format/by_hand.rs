//! Settings that are given by hand: on the command line or by a `COFFERDAM_*` variable. Owns the one table of them, with flag,
//! variable, notation and help, and refuses variables it does not know, so that a misspelt restriction is no silence; reads no
//! environment and no directory itself. Called by `layers`, by `host::flags`, and by `cli`, which makes its flags and their help of the table.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;

use crate::format::not_built;
use crate::language::endpoint::{Endpoint, EndpointError};
use crate::language::path::{PathError, PathExpr};
use crate::language::quantity::{COUNT, CPUS, SIZE, TIME, parse_count, parse_cpus, parse_size, parse_time};
use crate::types::error::{PolicyError, did_you_mean};
use crate::types::files::Access;
use crate::types::network::{AgentUse, NetworkMode, Publish, SocketGrant};
use crate::types::network_part::{HostRule, NetworkPart};
use crate::types::origin::{Origin, Ruled};
use crate::types::policy::{Isolation, Mode, OnUnknown, Transaction};
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;

const NETWORK: &str = "Network";
const LIMITS: &str = "Limits";

/// In the order of help. A setting that is given by hand is added here and nowhere else.
pub const BY_HAND: &[ByHand] = &[
    text(
        "--mode",
        "MODE",
        "When paths are decided: dynamic (at first access, by asking) or static (at start)",
        |text| named(Mode::from_name(text), Mode::NAMES, Scalar::Mode),
    )
    .variable("COFFERDAM_MODE"),
    text(
        "--on-unknown",
        "VERDICT",
        "What happens at the first access to an unknown path: ask, deny, allow-and-log (dynamic mode)",
        |text| named(OnUnknown::from_name(text), OnUnknown::NAMES, Scalar::UnknownVerdict),
    )
    .variable("COFFERDAM_ON_UNKNOWN"),
    text("--ask-timeout", "TIME", "Deny a question that was not answered after this time (90s, 10m)", |text| {
        read(parse_time(text), TIME, Scalar::UnknownTimeout)
    }),
    text("--isolation", "LEVEL", "How strong the walls are: full, process, none", |text| {
        named(Isolation::from_name(text), Isolation::NAMES, Scalar::Isolation)
    })
    .variable("COFFERDAM_ISOLATION"),
    text(
        "--preset",
        "NAME",
        "Add a preset: cargo, node, python, go, java (their caches become writable), registries (they can be reached), claude, \
         codex, gemini, opencode, aider (agents), tool, process-tool (tight limits)",
        |text| Ok(Setting::Preset(text.to_owned())),
    )
    .list()
    .variable("COFFERDAM_PRESET"),
    path("--rw", "Make a path writable", |path| file(Access::Write, path)).variable("COFFERDAM_RW"),
    path("--ro", "Make a path readable (also one that is hidden by default)", |path| file(Access::Read, path))
        .variable("COFFERDAM_RO"),
    path("--overlay", "Make a directory look writable; changes go to the session's own directory", |path| {
        file(Access::Overlay, path)
    })
    .variable("COFFERDAM_OVERLAY"),
    text(
        "--transaction",
        "WHEN",
        "Keep what is written in the project apart: review (until you looked at it; so without a value), auto (until the \
         end), off",
        |text| match text {
            "1" | "true" => Ok(Scalar::Transaction(Transaction::of_switch(true)).into()),
            "0" | "false" => Ok(Scalar::Transaction(Transaction::of_switch(false)).into()),
            word => named(Transaction::from_name(word), Transaction::NAMES, Scalar::Transaction),
        },
    )
    .switch("review")
    .variable("COFFERDAM_TRANSACTION"),
    path("--blacklist", "Hide a path", |path| file(Access::Deny, path)).variable("COFFERDAM_BLACKLIST"),
    text("--env", "NAME[=VALUE]", "Let a variable through, or set one", |text| {
        Ok(match text.split_once('=') {
            Some((name, value)) => Setting::EnvSet(name.to_owned(), value.to_owned()),
            None => Setting::EnvPass(text.to_owned()),
        })
    })
    .list(),
    text("--no-debug", "", "Processes inside may not trace each other", |text| match text {
        "1" | "true" => Ok(Scalar::Debug(true).into()),
        "0" | "false" => Ok(Scalar::Debug(false).into()),
        _ => Err(NoValue::OneOf(&["1", "true", "0", "false"])),
    })
    .switch("false")
    .variable("COFFERDAM_DEBUG"),
    text(
        "--network",
        "MODE",
        "What can be reached: none, egress (the allowed hosts), host (all, unfiltered)",
        |text| named(NetworkMode::from_name(text), NetworkMode::NAMES, Scalar::Network),
    )
    .below(NETWORK)
    .variable("COFFERDAM_NETWORK"),
    host(
        "--allow-host",
        "Let a host be reached, on ports 80 and 443 or on PORT: x.org, *.x.org, **.x.org, 10.1.2.3:5432; \
         x.org:443@10.1.2.3 where it leads to that address",
        Endpoint::parse_allow,
        NetworkPart::Allow,
    )
    .variable("COFFERDAM_ALLOW_HOST"),
    host("--deny-host", "Refuse a host, on every port or on PORT", Endpoint::parse, NetworkPart::Deny)
        .variable("COFFERDAM_DENY_HOST"),
    text("--publish", "[HOST_PORT:]PORT", "Make a port of the session reachable from this host's loopback", |text| {
        read(Publish::parse(text), "ports such as `8080:80` or `8080`", NetworkPart::Publish)
    })
    .below(NETWORK)
    .list(),
    text("--host-port", "PORT", "Let a port of this host's loopback be reached", |text| {
        let port = parse_count(text).and_then(|port| u16::try_from(port).ok());
        read(port, "a port such as `5432`", NetworkPart::HostPort)
    })
    .below(NETWORK)
    .list(),
    text("--ssh-agent", "MODE", "Whether keys of your ssh-agent sign for the session: off, ask, allow", |text| {
        named(AgentUse::from_name(text), AgentUse::NAMES, Scalar::SshAgent)
    })
    .below(NETWORK)
    .variable("COFFERDAM_SSH_AGENT"),
    path("--socket", "Let a socket of this host be connected to, under its own path", |path| {
        NetworkPart::Socket(SocketGrant { path, optional: false, reason: Cow::Borrowed("") }).into()
    })
    .below(NETWORK),
    text("--timeout", "TIME", "End the command after this time (90s, 10m, 2h)", |text| {
        read(parse_time(text), TIME, Scalar::Timeout)
    })
    .below(LIMITS)
    .variable("COFFERDAM_TIMEOUT"),
    text("--memory", "SIZE", "Memory of all processes of the session together, at most (512M, 2G)", |text| {
        read(parse_size(text), SIZE, Scalar::Memory)
    })
    .below(LIMITS)
    .variable("COFFERDAM_MEMORY"),
    text("--cpus", "NUMBER", "CPUs used at once, at most (2, 0.5)", |text| read(parse_cpus(text), CPUS, Scalar::CpuMillis))
        .below(LIMITS)
        .variable("COFFERDAM_CPUS"),
    text("--cpu-time", "TIME", "CPU time of all processes of the session together, at most (90s, 10m)", |text| {
        read(parse_time(text), TIME, |time| Scalar::CpuSeconds(time.as_secs()))
    })
    .below(LIMITS),
    text("--max-processes", "NUMBER", "Processes and threads of the session, at most", |text| {
        read(parse_count(text).and_then(|count| u32::try_from(count).ok()), COUNT, Scalar::MaxProcesses)
    })
    .below(LIMITS)
    .variable("COFFERDAM_PROCESSES"),
    text("--open-files", "NUMBER", "Open descriptors of each process, at most", |text| {
        read(parse_count(text), COUNT, Scalar::OpenFiles)
    })
    .below(LIMITS),
    text("--storage", "SIZE", "What may be added to any file system of this machine, at most (500M, 2G)", |text| {
        read(parse_size(text), SIZE, Scalar::Storage)
    })
    .below(LIMITS),
    text("--max-output", "SIZE", "What may be written to stdout and stderr together, at most (1M)", |text| {
        read(parse_size(text), SIZE, Scalar::Output)
    })
    .below(LIMITS)
    .variable("COFFERDAM_OUTPUT"),
];

/// A setting with its flag, and perhaps a variable.
#[derive(Debug)]
pub struct ByHand {
    pub flag: &'static str,
    /// What help writes for the value.
    pub value: &'static str,
    pub help: &'static str,
    pub heading: Option<&'static str>,
    /// Whether it can be given more than once.
    pub is_list: bool,
    /// The value that the flag alone stands for; it can be another one where help writes one for it.
    pub switch: Option<&'static str>,
    variable: Option<&'static str>,
    takes: Takes,
}

#[derive(Debug)]
enum Takes {
    Text(fn(&str) -> Result<Setting, NoValue>),
    Path(fn(PathExpr) -> Setting),
    Host(fn(&str) -> Result<Endpoint, EndpointError>, fn(HostRule) -> NetworkPart),
}

/// Why a text is no value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoValue {
    Expected(&'static str),
    OneOf(&'static [&'static str]),
    Path(PathError),
    Host(EndpointError),
}

const fn made(flag: &'static str, value: &'static str, help: &'static str, takes: Takes) -> ByHand {
    ByHand { flag, value, help, heading: None, is_list: false, switch: None, variable: None, takes }
}

const fn text(
    flag: &'static str,
    value: &'static str,
    help: &'static str,
    read: fn(&str) -> Result<Setting, NoValue>,
) -> ByHand {
    made(flag, value, help, Takes::Text(read))
}

const fn path(flag: &'static str, help: &'static str, setting: fn(PathExpr) -> Setting) -> ByHand {
    made(flag, "PATH", help, Takes::Path(setting)).list()
}

const fn host(
    flag: &'static str,
    help: &'static str,
    parse: fn(&str) -> Result<Endpoint, EndpointError>,
    part: fn(HostRule) -> NetworkPart,
) -> ByHand {
    made(flag, "HOST[:PORT]", help, Takes::Host(parse, part)).below(NETWORK).list()
}

fn read<T, S: Into<Setting>>(
    value: Option<T>,
    expected: &'static str,
    setting: impl FnOnce(T) -> S,
) -> Result<Setting, NoValue> {
    value.map(|value| setting(value).into()).ok_or(NoValue::Expected(expected))
}

fn named<T>(
    value: Option<T>,
    names: &'static [&'static str],
    scalar: impl FnOnce(T) -> Scalar,
) -> Result<Setting, NoValue> {
    value.map(|value| scalar(value).into()).ok_or(NoValue::OneOf(names))
}

/// It must exist.
fn file(access: Access, path: PathExpr) -> Setting {
    Setting::File { access, path, optional: false, reason: Cow::Borrowed("") }
}

impl ByHand {
    const fn below(mut self, heading: &'static str) -> Self {
        self.heading = Some(heading);
        self
    }

    const fn list(mut self) -> Self {
        self.is_list = true;
        self
    }

    const fn switch(mut self, value: &'static str) -> Self {
        self.switch = Some(value);
        self
    }

    const fn variable(mut self, name: &'static str) -> Self {
        self.variable = Some(name);
        self
    }

    pub fn is_path(&self) -> bool {
        matches!(self.takes, Takes::Path(_))
    }

    /// The setting that the flag stands for with this value; a path is literal, and was made absolute by the caller.
    pub fn of_flag(&self, value: &OsStr) -> Result<Ruled<Setting>, NoValue> {
        let setting = match self.takes {
            Takes::Path(setting) => PathExpr::literal(Path::new(value)).map(setting).map_err(NoValue::Path),
            _ => self.of_text(value.to_str().ok_or(NoValue::Expected("text in UTF-8"))?),
        };
        setting.map(|setting| Ruled::new(setting, Origin::flag(self.flag)))
    }

    fn of_text(&self, text: &str) -> Result<Setting, NoValue> {
        match self.takes {
            Takes::Text(read) => read(text),
            Takes::Path(setting) => PathExpr::parse(text).map(setting).map_err(NoValue::Path),
            Takes::Host(parse, part) => {
                parse(text).map(|endpoint| part(HostRule::whole(endpoint)).into()).map_err(NoValue::Host)
            }
        }
    }

    /// Lists stand between `:`, hosts between commas: a colon belongs to a port.
    fn parts<'a>(&self, value: &'a str) -> Vec<&'a str> {
        match self.takes {
            Takes::Host(..) => value.split(',').map(str::trim).filter(|text| !text.is_empty()).collect(),
            _ if self.is_list => parts(value).collect(),
            _ => vec![value],
        }
    }
}

/// `--allow-host` alone means that the others are not reached: a network that follows the list.
pub(crate) fn with_implied(mut flags: Vec<Ruled<Setting>>) -> Vec<Ruled<Setting>> {
    let is_host = |flag: &Ruled<Setting>| matches!(flag.value, Setting::NetworkPart(NetworkPart::Allow(_)));
    let has_mode = flags.iter().any(|flag| matches!(flag.value, Setting::Scalar(Scalar::Network(_))));
    if let Some(host) = flags.iter().position(is_host).filter(|_| !has_mode) {
        let origin = flags[host].origin.clone();
        flags.insert(host, Ruled::new(Scalar::Network(NetworkMode::Egress).into(), origin));
    }
    flags
}

const PREFIX: &str = "COFFERDAM_";

/// Set by the sandbox for the command inside; no policy.
const MARKERS: &[&str] = &["COFFERDAM_SESSION"];

/// The settings of the environment. Variables of other names are not looked at.
pub(crate) fn of_variables(environment: &[(String, String)]) -> Result<Vec<Ruled<Setting>>, PolicyError> {
    let ours = environment.iter().filter(|(name, _)| name.starts_with(PREFIX) && !MARKERS.contains(&name.as_str()));
    let mut settings = Vec::new();
    for (name, value) in ours {
        let origin = Origin::variable(name.clone());
        not_built::check_name(name, &origin)?;
        let Some((known, by_hand)) = known_variables().find(|(known, _)| known == name) else {
            let hint = did_you_mean(name, known_variables().map(|(known, _)| known));
            return Err(PolicyError::UnknownVariable { name: name.clone(), hint });
        };
        for part in by_hand.parts(value) {
            let setting = by_hand.of_text(part).map_err(|error| error.of_variable(known, value, &origin))?;
            settings.push(Ruled::new(setting, origin.clone()));
        }
    }
    Ok(settings)
}

fn known_variables() -> impl Iterator<Item = (&'static str, &'static ByHand)> {
    BY_HAND.iter().filter_map(|by_hand| by_hand.variable.map(|name| (name, by_hand)))
}

impl NoValue {
    fn of_variable(self, setting: &'static str, value: &str, origin: &Origin) -> PolicyError {
        let origin = origin.clone();
        let expected = match self {
            NoValue::Path(cause) => return PolicyError::Path { setting, origin, cause },
            NoValue::Host(cause) => return PolicyError::Host { setting, origin, cause },
            NoValue::Expected(expected) => expected.to_owned(),
            NoValue::OneOf(names) => format!("one of {}", names.join(", ")),
        };
        PolicyError::Value { setting: setting.to_owned(), value: value.to_owned(), expected, origin }
    }

    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            NoValue::Expected(expected) => format!("write {expected}"),
            NoValue::OneOf(names) => format!("it is one of: {}", names.join(", ")),
            NoValue::Path(error) => error.to_string(),
            NoValue::Host(error) => {
                std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
            }
        }
    }
}

/// The parts between `:`, where `${NAME:-default}` is one part.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let outside = move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ':' && depth == 0
    };
    value.split(outside).filter(|part| !part.is_empty())
}
