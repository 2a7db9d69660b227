//! Compiles `profiles/` into static tables, so that no TOML is parsed when a sandbox starts. Owns the generated code
//! and stops the build at any entry that the real parser refuses; the meaning of entries is the library's.
//! Run by cargo; the output is included by `src/builtin.rs`.
#![expect(dead_code, unreachable_pub, reason = "modules of the library are compiled in for their parsers only")]

#[path = "src/format"]
mod format {
    pub(crate) mod file;
    mod network;
    pub(crate) mod profile;
    pub(crate) mod spanned;
    mod tables;
    mod values;
}

#[path = "src/language"]
mod language {
    pub(crate) mod cpu_set;
    pub(crate) mod endpoint;
    pub(crate) mod host;
    pub(crate) mod path;
    pub(crate) mod path_entry;
    pub(crate) mod quantity;

    /// Its tables take long to compile, and shipped names are plain; a test holds them to the public suffixes.
    pub(crate) mod name_data {
        pub(crate) fn to_ascii(_: &str) -> Option<String> {
            None
        }

        pub(crate) fn is_well_formed(_: &str) -> bool {
            true
        }

        pub(crate) fn is_public_suffix(_: &str) -> bool {
            false
        }
    }
}

#[path = "src/types"]
mod types {
    pub(crate) mod always_denied;
    pub(crate) mod error;
    pub(crate) mod files;
    pub(crate) mod limit;
    mod names;
    pub(crate) mod network;
    pub(crate) mod network_part;
    pub(crate) mod origin;
    pub(crate) mod policy;
    pub(crate) mod scalar;
    pub(crate) mod setting;
    pub(crate) mod table;
    pub(crate) mod validate;
}

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use format::spanned::At;
use format::{file, profile};
use language::endpoint::{Endpoint, Ports, Target};
use language::path::{Base, PathExpr};
use types::files::ObeyedClass;
use types::network::{Credential, SecretSource};
use types::network_part::{DEFAULT_CREDENTIAL_PORT, HostRule, NetworkPart};
use types::origin::{Layer, Ruled};
use types::scalar::Scalar;
use types::setting::Setting;
use types::table::settings;
use types::validate;

const PRESETS: &[&str] = &[
    "default",
    "aider",
    "cargo",
    "claude",
    "codex",
    "gemini",
    "go",
    "java",
    "node",
    "opencode",
    "process-tool",
    "python",
    "registries",
    "tool",
];

fn main() -> Result<(), Box<dyn Error>> {
    let profiles = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../profiles");
    println!("cargo::rerun-if-changed=../../profiles");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    let mut code = Code::default();
    secrets(&profiles, &mut code)?;
    protects(&profiles, &mut code)?;
    known(&profiles, &mut code)?;
    dependencies(&profiles, &mut code)?;
    environment(&profiles, &mut code)?;
    commands(&profiles, &mut code)?;
    presets(&profiles, &mut code)?;
    let Code { mut program, text, defaults } = code;
    writeln!(program, "static DEFAULTS: &[StaticPath] = &[{}];", defaults.join(", "))?;
    writeln!(program, "static TEXT: &str = {text:?};")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("profiles.rs"), program)?;
    Ok(())
}

/// The program so far, and what its tables refer to by number.
#[derive(Default)]
struct Code {
    program: String,
    text: String,
    defaults: Vec<String>,
}

impl Code {
    /// The string among all others.
    fn piece(&mut self, text: &str) -> String {
        let at = self.text.find(text).unwrap_or_else(|| {
            self.text.push_str(text);
            self.text.len() - text.len()
        });
        format!("Piece({at}, {})", text.len())
    }

    fn path(&mut self, path: &PathExpr) -> Result<String, String> {
        let base = match &path.base {
            Base::Root => "StaticBase::Root".to_owned(),
            Base::Home => "StaticBase::Home".to_owned(),
            Base::Project => "StaticBase::Project".to_owned(),
            Base::Git => "StaticBase::Git".to_owned(),
            Base::Variable { name, default } => {
                let default = self.path(default)?;
                let at = self.defaults.iter().position(|known| *known == default).unwrap_or_else(|| {
                    self.defaults.push(default);
                    self.defaults.len() - 1
                });
                format!("StaticBase::Variable {{ name: {}, default: {at} }}", self.piece(name))
            }
        };
        let rest = path.rest.to_str().ok_or_else(|| format!("`{path}` is not UTF-8"))?;
        let (rest, text, except) = (self.piece(rest), self.piece(path.as_str()), self.piece(path.except()));
        let (glob, deep) = (path.is_glob(), path.is_deep());
        Ok(format!(
            "StaticPath {{ base: {base}, rest: {rest}, glob: {glob}, deep: {deep}, except: {except}, text: {text} }}"
        ))
    }

    fn line(&mut self, line: &str) {
        self.program.push_str(line);
        self.program.push('\n');
    }
}

fn load(profiles: &Path, name: &str) -> Result<(String, String), Box<dyn Error>> {
    let text = fs::read_to_string(profiles.join(name)).map_err(|error| format!("profiles/{name}: {error}"))?;
    Ok((format!("profiles/{name}"), text))
}

fn secrets(profiles: &Path, code: &mut Code) -> Result<(), Box<dyn Error>> {
    let (source, text) = load(profiles, "secrets.toml")?;
    let (list, lines) = profile::read::<profile::Secrets>(&source, &text)?;
    code.line("static SECRETS: &[StaticRule] = &[");
    let source_piece = code.piece(&source);
    for At { value: secret, offset } in &list.secret {
        let (line, _) = lines.position(*offset);
        let mut path = profile::checked_path(&source, line, &secret.path, &secret.reason)?;
        if !secret.except.is_empty() {
            let left = path.leaving_out(&secret.except);
            path = left.ok_or_else(|| format!("{source}:{line}: `except` needs a pattern, and plain names"))?;
        }
        let path = code.path(&path)?;
        if secret.mask && secret.text.is_some() {
            return Err(format!("{source}:{line}: `mask` shows the file's own text, so there is no `text`").into());
        }
        let access = if secret.mask { "Mask" } else { "Deny" };
        let text = secret.text.as_ref().map_or("None".to_owned(), |text| format!("Some({})", code.piece(text)));
        let reason = code.piece(&secret.reason);
        code.line(&format!(
            "    StaticRule {{ path: {path}, access: Access::{access}, text: {text}, hold: StaticHold::Nothing, \
             only_missing: false, reason: {reason}, source: {source_piece}, line: {line} }},"
        ));
    }
    code.line("];");
    Ok(())
}

fn protects(profiles: &Path, code: &mut Code) -> Result<(), Box<dyn Error>> {
    let (source, text) = load(profiles, "protect.toml")?;
    let (list, lines) = profile::read::<profile::Protects>(&source, &text)?;
    let (mut protected, mut reported) = (String::new(), String::new());
    let source_piece = code.piece(&source);
    for At { value: protect, offset } in &list.protect {
        let (line, _) = lines.position(*offset);
        if !protect.is_consistent() {
            let path = &protect.path;
            return Err(
                format!("{source}:{line}: `{path}`: class `runs` is for `./` and `{{git}}/`, without `hold`").into()
            );
        }
        let path = code.path(&profile::checked_path(&source, line, &protect.path, &protect.reason)?)?;
        let hold = protect.hold.as_deref().unwrap_or("directory");
        let (table, hold) = match hold.split_once(':') {
            _ if protect.class == ObeyedClass::Runs => (&mut reported, "StaticHold::Nothing".to_owned()),
            None if hold == "none" => (&mut protected, "StaticHold::Nothing".to_owned()),
            None if hold == "directory" => (&mut protected, "StaticHold::Directory".to_owned()),
            None if hold == "socket" => (&mut protected, "StaticHold::Socket".to_owned()),
            Some(("file", text)) => (&mut protected, format!("StaticHold::File({})", code.piece(text))),
            _ => return Err(format!("{source}:{line}: unknown hold `{hold}`").into()),
        };
        let (only_missing, reason) = (protect.only_missing, code.piece(&protect.reason));
        writeln!(
            table,
            "    StaticRule {{ path: {path}, access: Access::Protect, text: None, hold: {hold}, \
             only_missing: {only_missing}, reason: {reason}, source: {source_piece}, line: {line} }},"
        )?;
    }
    code.line(&format!("static PROTECTED: &[StaticRule] = &[\n{protected}];"));
    code.line(&format!("/// Only reported: no rule of a policy.\nstatic REPORTED: &[StaticRule] = &[\n{reported}];"));
    Ok(())
}

fn known(profiles: &Path, code: &mut Code) -> Result<(), Box<dyn Error>> {
    let (source, text) = load(profiles, "known.toml")?;
    let (list, lines) = profile::read::<profile::KnownPlaces>(&source, &text)?;
    let (mut rules, mut groups) = (String::new(), String::new());
    let source_piece = code.piece(&source);
    for (given, At { value: known, offset }) in
        list.known.iter().map(|known| (true, known)).chain(list.asked.iter().map(|known| (false, known)))
    {
        let (line, _) = lines.position(*offset);
        let path = code.path(&profile::checked_path(&source, line, &known.path, &known.reason)?)?;
        if given {
            let reason = code.piece(&known.reason);
            writeln!(
                rules,
                "    StaticRule {{ path: {path}, access: Access::Read, text: None, hold: StaticHold::Nothing, \
                 only_missing: false, reason: {reason}, source: {source_piece}, line: {line} }},"
            )?;
        }
        match &known.toolchain {
            Some(name) => writeln!(groups, "    ({}, {path}),", code.piece(name))?,
            None if !given => return Err(format!("{source}:{line}: `{}` has no toolchain", known.path).into()),
            None => {}
        }
    }
    code.line(&format!("static KNOWN: &[StaticRule] = &[\n{rules}];"));
    code.line(&format!("static TOOLCHAINS: &[(Piece, StaticPath)] = &[\n{groups}];"));
    Ok(())
}

fn dependencies(profiles: &Path, code: &mut Code) -> Result<(), Box<dyn Error>> {
    let (source, text) = load(profiles, "dependencies.toml")?;
    let (list, lines) = profile::read::<profile::Dependencies>(&source, &text)?;
    let mut names: Vec<&str> = Vec::new();
    for At { value: directory, offset } in &list.directory {
        let (line, _) = lines.position(*offset);
        let is_plain = !directory.name.is_empty() && !directory.name.contains(['/', '*']);
        if !is_plain || directory.reason.trim().is_empty() || names.contains(&directory.name.as_str()) {
            return Err(format!("{source}:{line}: `{}` needs a plain name, once, and a reason", directory.name).into());
        }
        names.push(&directory.name);
    }
    let names: Vec<String> = names.into_iter().map(|name| code.piece(name)).collect();
    code.line(&format!("static DEPENDENCIES: &[Piece] = &[{}];", names.join(", ")));
    Ok(())
}

fn environment(profiles: &Path, code: &mut Code) -> Result<(), Box<dyn Error>> {
    let (source, text) = load(profiles, "environment.toml")?;
    let (list, lines) = profile::read::<profile::Environment>(&source, &text)?;
    for (table, entries) in [("ENV_CLEAN", &list.clean), ("ENV_BLOCK", &list.block)] {
        code.line(&format!("static {table}: &[(Piece, Piece, u32)] = &["));
        let source_piece = code.piece(&source);
        for At { value: variable, offset } in entries {
            let (line, _) = lines.position(*offset);
            if variable.reason.trim().is_empty() || !validate::is_variable_name(&variable.name) {
                return Err(format!("{source}:{line}: `{}` needs a usable name and a reason", variable.name).into());
            }
            let name = code.piece(&variable.name);
            code.line(&format!("    ({name}, {source_piece}, {line}),"));
        }
        code.line("];");
    }
    Ok(())
}

fn commands(profiles: &Path, code: &mut Code) -> Result<(), Box<dyn Error>> {
    let (source, text) = load(profiles, "commands.toml")?;
    let (list, lines) = profile::read::<profile::Commands>(&source, &text)?;
    code.line("static COMMANDS: &[CommandHosts] = &[");
    for At { value: command, offset } in &list.command {
        let (line, _) = lines.position(*offset);
        let refused = |why: &str| format!("{source}:{line}: {why}");
        if !command.is_consistent() {
            return Err(
                refused("a command has programs, a reason, and one of `hosts`, `preset`, `in_arguments`").into()
            );
        }
        for host in &command.hosts {
            let endpoint = Endpoint::parse(host).map_err(|error| refused(&error.to_string()))?;
            if endpoint.ports != Ports::Web || !endpoint.at.is_empty() || matches!(endpoint.target, Target::Net(_)) {
                return Err(refused(&format!("`{host}` is no plain name")).into());
            }
        }
        let hosts = match &command.preset {
            Some(preset) if !PRESETS.contains(&preset.as_str()) => return Err(refused("no such preset").into()),
            Some(preset) => format!("UsualHosts::Preset({preset:?})"),
            None if command.in_arguments => "UsualHosts::Arguments".to_owned(),
            None => format!("UsualHosts::These(&{:?})", command.hosts),
        };
        let (programs, words) = (&command.programs, &command.words);
        code.line(&format!("    CommandHosts {{ programs: &{programs:?}, words: &{words:?}, hosts: {hosts} }},"));
    }
    code.line("];");
    Ok(())
}

fn presets(profiles: &Path, code: &mut Code) -> Result<(), Box<dyn Error>> {
    code.line(
        "#[expect(clippy::unreadable_literal, clippy::duration_suboptimal_units, reason = \"no person writes these\")]",
    );
    code.line("pub static PRESETS: &[Preset] = &[");
    for name in PRESETS {
        let (source, text) = load(profiles, &format!("presets/{name}.toml"))?;
        let parsed = file::parse(Layer::BuiltIn, &source, &text)?;
        let description = parsed.description.ok_or_else(|| format!("{source}: no description"))?;
        code.line(&format!(
            "    Preset {{ name: {name:?}, description: {description:?}, source: {source:?}, settings: &["
        ));
        for setting in parsed.settings {
            let line = setting.origin.line.unwrap_or(0);
            let value = static_setting(&setting.value, code).map_err(|error| format!("{source}:{line}: {error}"))?;
            code.line(&format!("        ({line}, {value}),"));
        }
        let most = static_maxima(&source, &parsed.most)?;
        code.line(&format!("    ], most: &[{most}] }},"));
    }
    code.line("];");
    Ok(())
}

fn static_maxima(source: &str, most: &[Ruled<Setting>]) -> Result<String, Box<dyn Error>> {
    let mut maxima = String::new();
    for Ruled { value, origin } in most {
        let line = origin.line.unwrap_or(0);
        let Setting::Scalar(scalar) = value else {
            return Err(format!("{source}:{line}: `{value}` has no maximum").into());
        };
        let scalar = static_scalar(scalar).map_err(|error| format!("{source}:{line}: {error}"))?;
        write!(maxima, "({line}, {scalar}), ")?;
    }
    Ok(maxima)
}

/// The settings that presets use; another one is a build error until it is added here and in `builtin`.
fn static_setting(setting: &Setting, code: &mut Code) -> Result<String, String> {
    Ok(match setting {
        Setting::Scalar(scalar) => format!("StaticSetting::Scalar({})", static_scalar(scalar)?),
        Setting::NetworkPart(NetworkPart::Allow(rule)) => static_host(rule)?,
        Setting::NetworkPart(NetworkPart::Credential(credential)) => static_credential(credential)?,
        Setting::EnvSet(name, value) => format!("StaticSetting::EnvSet {{ name: {name:?}, value: {value:?} }}"),
        Setting::File { access, path, optional, reason } => {
            if reason.trim().is_empty() {
                return Err(format!("`{path}` has no reason"));
            }
            let path = code.path(path)?;
            format!(
                "StaticSetting::File {{ access: Access::{access:?}, path: {path}, optional: {optional}, \
                 reason: {reason:?} }}"
            )
        }
        other => return Err(format!("`{other}` is not for presets yet")),
    })
}

fn static_host(rule: &HostRule) -> Result<String, String> {
    let HostRule { endpoint, methods, paths, reason } = rule;
    if reason.trim().is_empty() {
        return Err(format!("`{endpoint}` has no reason"));
    }
    let target = match &endpoint.target {
        _ if !methods.is_empty() || !paths.is_empty() || endpoint.ports != Ports::Web || !endpoint.at.is_empty() => {
            return Err(format!("`{endpoint}`: rules of presets are about hosts and the ports of the web"));
        }
        Target::Host(name) => format!("StaticTarget::Host({name:?})"),
        Target::Below(name) => format!("StaticTarget::Below({name:?})"),
        Target::AtAndBelow(name) => format!("StaticTarget::AtAndBelow({name:?})"),
        Target::Net(_) => return Err(format!("`{endpoint}`: presets do not know the network")),
    };
    Ok(format!("StaticSetting::Allow {{ target: {target}, reason: {reason:?} }}"))
}

/// What a user may have, and without which the preset is good for something, too.
fn static_credential(credential: &Credential) -> Result<String, String> {
    let Credential { host, port, variable, header, source, optional } = credential;
    match source {
        SecretSource::Environment(env) if *optional && *port == DEFAULT_CREDENTIAL_PORT => Ok(format!(
            "StaticSetting::Credential {{ host: {host:?}, variable: {variable:?}, header: {header:?}, env: {env:?} }}"
        )),
        _ => Err(format!("`{variable}`: credentials of presets are optional, come from `env`, and go to port 443")),
    }
}

macro_rules! static_scalars {
    ($($(#[$about:meta])* $struct:ident $table:literal $prefix:literal {
        $($(#[$help:meta])+ $key:ident: $notation:ty => $variant:ident($kept:ident) in $($place:ident).+
            $(, shown $shown:literal)? $(, least $least:expr => $expected:expr)* $(, only $layer:ident)?;)*
    } lists { $($lists:tt)* })+) => {
        /// The value as an expression.
        fn static_scalar(scalar: &Scalar) -> Result<String, String> {
            let (variant, kept, value) = match scalar {
                $($(Scalar::$variant(value) => (stringify!($variant), stringify!($kept), format!("{value:?}")),)*)+
            };
            let value = match kept {
                "u32" | "u64" | "bool" => value,
                "Duration" => format!("Duration::from_secs({})", value.trim_end_matches('s')),
                "String" => return Err(format!("`{scalar}` is not for presets: they do not know the machine")),
                words => format!("{words}::{value}"),
            };
            Ok(format!("Scalar::{variant}({value})"))
        }
    };
}

settings!(static_scalars);
