//! The shipped lists and presets as finished tables. Owns turning them into rules, cheaply, at every start;
//! their content is `profiles/`, their checks are the build script's. Called by `resolve`, `decide` and `report`.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use crate::language::case_fold::folded;
use crate::language::endpoint::{Endpoint, Ports, Target};
use crate::language::path::{Base, PathExpr, Piece, Places, Shipped, StaticBase, StaticPath};
use crate::secret_text::names_secret;
use crate::types::files::{Access, FileRule, Hold, ObeyedClass, ObeyedName, Stand};
use crate::types::network::{Credential, NetworkMode, SecretSource};
use crate::types::network_part::{DEFAULT_CREDENTIAL_PORT, HostRule, NetworkPart};
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::policy::{
    EnvMode, Isolation, KeeperMode, Metadata, Mode, OnUnknown, Policy, SyscallMode, Transaction,
};
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;

/// A named set of settings that a user can ask for.
#[derive(Debug)]
pub struct Preset {
    pub name: &'static str,
    pub description: &'static str,
    source: &'static str,
    settings: &'static [(u32, StaticSetting)],
    most: &'static [(u32, Scalar)],
}

#[derive(Debug)]
struct StaticRule {
    path: StaticPath,
    access: Access,
    text: Option<Piece>,
    hold: StaticHold,
    only_missing: bool,
    reason: Piece,
    source: Piece,
    line: u32,
}

#[derive(Debug)]
enum StaticHold {
    Nothing,
    Directory,
    Socket,
    File(Piece),
}

#[derive(Debug)]
enum StaticSetting {
    Scalar(Scalar),
    /// On the ports of the web.
    Allow {
        target: StaticTarget,
        reason: &'static str,
    },
    File {
        access: Access,
        path: StaticPath,
        optional: bool,
        reason: &'static str,
    },
    /// A variable of the caller that may be set; the host is asked on the port of TLS.
    Credential {
        host: &'static str,
        variable: &'static str,
        header: &'static str,
        env: &'static str,
    },
    EnvSet {
        name: &'static str,
        value: &'static str,
    },
}

#[derive(Debug)]
enum StaticTarget {
    Host(&'static str),
    Below(&'static str),
    AtAndBelow(&'static str),
}

/// Programs that reach hosts, and which of their first words say so; where empty, all do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandHosts {
    pub(crate) programs: &'static [&'static str],
    pub(crate) words: &'static [&'static str],
    pub(crate) hosts: UsualHosts,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UsualHosts {
    /// As a policy would list them.
    These(&'static [&'static str]),
    /// All that the preset allows.
    Preset(&'static str),
    /// Those that its arguments name.
    Arguments,
}

include!(concat!(env!("OUT_DIR"), "/profiles.rs"));

const SHIPPED: Shipped = Shipped { text: TEXT, defaults: DEFAULTS };

/// The preset that every policy starts from.
pub const DEFAULT_PRESET: &str = "default";

impl Preset {
    pub fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    pub(crate) fn settings(&'static self) -> impl Iterator<Item = Ruled<Setting>> {
        self.settings.iter().map(|(line, setting)| {
            let setting = match setting {
                StaticSetting::Scalar(scalar) => Setting::Scalar(scalar.clone()),
                StaticSetting::Allow { target, reason } => {
                    let endpoint = Endpoint { target: target.target(), ports: Ports::Web, at: Vec::new() };
                    let rule = HostRule { reason: Cow::Borrowed(reason), ..HostRule::whole(endpoint) };
                    Setting::NetworkPart(NetworkPart::Allow(rule))
                }
                StaticSetting::File { access, path, optional, reason } => Setting::File {
                    access: *access,
                    path: PathExpr::from_static(path, SHIPPED),
                    optional: *optional,
                    reason: Cow::Borrowed(reason),
                },
                StaticSetting::Credential { host, variable, header, env } => {
                    Setting::NetworkPart(NetworkPart::Credential(Credential {
                        host: (*host).to_owned(),
                        port: DEFAULT_CREDENTIAL_PORT,
                        variable: (*variable).to_owned(),
                        header: (*header).to_owned(),
                        source: SecretSource::Environment((*env).to_owned()),
                        optional: true,
                    }))
                }
                StaticSetting::EnvSet { name, value } => Setting::EnvSet((*name).to_owned(), (*value).to_owned()),
            };
            Ruled::new(setting, Origin::built_in(self.source, *line))
        })
    }

    /// Whether it brings a credential of the user's, as an agent's does.
    pub(crate) fn is_for_owners(&self) -> bool {
        self.settings.iter().any(|(_, setting)| matches!(setting, StaticSetting::Credential { .. }))
    }

    /// Whether choosing this preset sets maxima.
    pub(crate) fn has_maxima(&self) -> bool {
        !self.most.is_empty()
    }

    /// Most that a request may ask for, of each setting that has a maximum.
    pub(crate) fn most(&self) -> impl Iterator<Item = Ruled<Scalar>> {
        self.most.iter().map(|(line, most)| Ruled::new(most.clone(), Origin::built_in(self.source, *line)))
    }

    /// Whether `rule` comes from a preset rather than from a list.
    pub(crate) fn gave(rule: &FileRule) -> bool {
        // Asked for every rule at every start, so the common case ends at the first comparison.
        rule.origin.source.starts_with("profiles/presets/") && PRESETS.iter().any(|preset| preset.gave_this(rule))
    }

    /// Whether `rule` comes from the preset `name`.
    pub(crate) fn gave_by(rule: &FileRule, name: &str) -> bool {
        Preset::named(name).is_some_and(|preset| preset.gave_this(rule))
    }

    fn gave_this(&self, rule: &FileRule) -> bool {
        rule.origin.layer == Layer::BuiltIn && rule.origin.source == self.source
    }
}

/// The presets that make a place writable for real that is thrown away without them.
pub fn presets_that_keep(path: &Path, places: &Places) -> Vec<&'static str> {
    let keeps = |preset: &&'static Preset| {
        preset.settings().any(|setting| match setting.value {
            Setting::File { access: Access::Write, path: kept, .. } => {
                kept.expand(places).iter().any(|kept| kept == path)
            }
            _ => false,
        })
    };
    PRESETS.iter().filter(keeps).map(|preset| preset.name).collect()
}

/// How files end that hold keys.
const KEY_FILES: [&str; 12] =
    ["pem", "key", "p12", "pfx", "jks", "kdbx", "gpg", "asc", "keytab", "ovpn", "ppk", "wallet"];

/// Whether a file is called like one that holds secrets: its name says so, it ends like a key (`server.key.1`), or it begins like a name
/// that the shipped list hides (`.env.1`, `id_rsa.2`). Rather takes too much for a secret than too little.
pub fn is_called_like_a_secret(name: &str) -> bool {
    let name = folded(name);
    let is_listed = |rule: &StaticRule| {
        let path = rule.rule().path;
        let Some(known) = path.rest.file_name().and_then(|known| known.to_str()).map(folded) else { return false };
        let is_dotted = known.starts_with('.');
        let part = if is_dotted { known.trim_matches('*') } else { known.split(['.', '*']).next().unwrap_or_default() };
        (is_dotted || path.base == Base::Project) && part.len() >= 4 && name.starts_with(part)
    };
    names_secret(&name)
        || name
            .split('.')
            .any(|part| KEY_FILES.contains(&part) || part.starts_with("tfvars") || part.starts_with("tfstate"))
        || SECRETS.iter().any(is_listed)
}

/// The hosts of the preset `registries`: what package managers are known to reach.
pub fn registries() -> impl Iterator<Item = Endpoint> {
    hosts_of_preset("registries")
}

fn hosts_of_preset(name: &str) -> impl Iterator<Item = Endpoint> {
    let settings = Preset::named(name).into_iter().flat_map(Preset::settings);
    settings.filter_map(|setting| match setting.value {
        Setting::NetworkPart(NetworkPart::Allow(rule)) => Some(rule.endpoint),
        _ => None,
    })
}

/// What programs usually reach (`profiles/commands.toml`).
pub(crate) fn commands() -> &'static [CommandHosts] {
    COMMANDS
}

impl CommandHosts {
    /// The hosts that do not depend on its arguments.
    pub(crate) fn fixed(&self) -> Vec<Endpoint> {
        match self.hosts {
            UsualHosts::These(names) => names.iter().filter_map(|name| Endpoint::parse(name).ok()).collect(),
            UsualHosts::Preset(name) => hosts_of_preset(name).collect(),
            UsualHosts::Arguments => Vec::new(),
        }
    }

    /// What a person would call it, such as `npm install`.
    pub(crate) fn name(&self) -> String {
        let words = self.programs.first().into_iter().chain(self.words.first());
        words.copied().collect::<Vec<_>>().join(" ")
    }
}

impl StaticTarget {
    fn target(&self) -> Target {
        match self {
            StaticTarget::Host(name) => Target::Host((*name).to_owned()),
            StaticTarget::Below(name) => Target::Below((*name).to_owned()),
            StaticTarget::AtAndBelow(name) => Target::AtAndBelow((*name).to_owned()),
        }
    }
}

impl StaticRule {
    fn obeyed(&self, class: ObeyedClass) -> Option<ObeyedName> {
        let in_git = match self.path.base {
            StaticBase::Project => false,
            StaticBase::Git => true,
            StaticBase::Root | StaticBase::Home | StaticBase::Variable { .. } => return None,
        };
        let is_about_the_root = matches!(self.hold, StaticHold::Socket);
        (!is_about_the_root).then(|| ObeyedName {
            name: self.path.rest.of(SHIPPED),
            in_git,
            is_glob: self.path.glob,
            only_files: self.only_missing,
            class,
            why: self.reason.of(SHIPPED),
        })
    }

    fn rule(&self) -> FileRule {
        FileRule {
            path: PathExpr::from_static(&self.path, SHIPPED),
            access: self.access,
            stand: self.text.map_or(Stand::Refuse, |text| Stand::Text(text.of(SHIPPED).to_owned())),
            hold: match self.hold {
                StaticHold::Nothing => Hold::Nothing,
                StaticHold::Directory => Hold::Directory,
                StaticHold::Socket => Hold::Socket,
                StaticHold::File(text) => Hold::File(Cow::Borrowed(text.of(SHIPPED))),
            },
            only_missing: self.only_missing,
            optional: true,
            is_final: false,
            reason: Cow::Borrowed(self.reason.of(SHIPPED)),
            origin: Origin::built_in(self.source.of(SHIPPED), self.line),
        }
    }
}

impl Policy {
    /// The shipped lists on top of the strictest policy.
    pub(crate) fn lists_only() -> Policy {
        // Presets and the user's rules follow; growing the list would copy it.
        const ROOM_FOR_MORE: usize = 96;
        let mut policy = Policy::default();
        policy.files.reserve(SECRETS.len() + PROTECTED.len() + ROOM_FOR_MORE);
        policy.files.extend(SECRETS.iter().chain(PROTECTED).map(StaticRule::rule));
        policy.env.clean = variables(ENV_CLEAN);
        policy.env.block = variables(ENV_BLOCK);
        policy
    }
}

/// What dynamic mode gives without a question.
pub(crate) fn known_places() -> impl Iterator<Item = FileRule> {
    KNOWN.iter().map(StaticRule::rule)
}

/// The names in a project that programs of the host obey, at its root and below. Those that are held so that the root is no
/// repository mean nothing elsewhere.
pub fn obeyed_names() -> impl Iterator<Item = ObeyedName> {
    let classes = [(ObeyedClass::Opens, PROTECTED), (ObeyedClass::Runs, REPORTED)];
    classes.into_iter().flat_map(|(class, rules)| rules.iter().filter_map(move |rule| rule.obeyed(class)))
}

/// Names of directories that tools fill: rules about any directory of the project are not about what lies in them.
pub fn dependency_directories() -> impl Iterator<Item = &'static str> {
    DEPENDENCIES.iter().map(|name| name.of(SHIPPED))
}

/// Groups of places that belong to one toolchain.
pub fn toolchains() -> impl Iterator<Item = (&'static str, PathExpr)> {
    TOOLCHAINS.iter().map(|(name, path)| (name.of(SHIPPED), PathExpr::from_static(path, SHIPPED)))
}

fn variables(list: &[(Piece, Piece, u32)]) -> Vec<Ruled<Cow<'static, str>>> {
    let origin = |source: Piece, line| Origin::built_in(source.of(SHIPPED), line);
    list.iter()
        .map(|(name, source, line)| Ruled::new(Cow::Borrowed(name.of(SHIPPED)), origin(*source, *line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_called_like_a_secret_is_known() {
        for name in [
            "token-1",
            "api-key.2",
            "Passwords-2024.txt",
            "id_rsa.1",
            "ID_RSA.1",
            "id_ed25519-2",
            ".env.1",
            ".bash_history.1",
            ".netrc-2",
            "server.key.1",
            "cert-1.pem",
            "vault-2.kdbx",
            "terraform.tfstate.1",
            "eu-1.tfvars",
            "service-account-1.json",
            ".git-credentials.2",
            ".npmrc.1",
        ] {
            assert!(is_called_like_a_secret(name), "{name}");
        }
        for name in ["app.1", "report-2024.csv", "log.48271.1", "settings.json.tmp.1", "notes-1.txt", "IMG_4711.jpg"] {
            assert!(!is_called_like_a_secret(name), "{name}");
        }
    }
}
