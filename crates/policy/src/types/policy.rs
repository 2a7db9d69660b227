//! The resolved policy: what the sandbox will be asked to enforce, every part with the rule that set it.
//! Owns the types and their strictest defaults; parsing lives in `format`, merging in `resolve`, mechanism in `plan`.
//! Read by `plan` and rendered by `cli`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::language::path::PathExpr;
use crate::language::quantity::{Quantum, Retention};
use crate::types::files::{Access, FileRule, Hold, Stand};
use crate::types::limit::Limits;
use crate::types::names::display_as;
use crate::types::network::{Network, SecretSource};
use crate::types::origin::{Origin, Ruled};

/// How strongly the command is kept apart from the host. Ordered: weaker first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// No sandbox at all. Only where the org layer allows it.
    None,
    /// Own process, mount and IPC view, the same file rules and system-call filter; the host's network stack,
    /// with internet sockets refused.
    Process,
    /// Everything: all namespaces, own root, loopback-only network.
    #[default]
    Full,
}

/// When a path is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// At start: read-only host view, deny list, writable carve-outs. No questions.
    #[default]
    Static,
    /// At first access: the call blocks until the operator decides.
    Dynamic,
}

/// What happens at the first access to a path that no rule is about, in dynamic mode. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OnUnknown {
    /// It fails, and the end of the session says what failed.
    Deny,
    /// The call blocks until a person decides.
    #[default]
    Ask,
    /// It succeeds and is recorded. Secrets stay hidden.
    AllowAndLog,
}

/// What can be seen of a path that is not decided yet. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Metadata {
    /// Its name answers, its size and times do not.
    Hidden,
    /// Name, size and times, as `ls -l` shows them.
    #[default]
    Visible,
}

/// What becomes of a session when a host program takes a cover off. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KeeperMode {
    /// It ends.
    #[default]
    Strict,
    /// The name is covered again and its fall reported; the session ends where it may have got hold of what was covered.
    Report,
}

/// What an indicator of the level CRITICAL does. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OnCritical {
    /// The session ends at once.
    #[default]
    End,
    /// It is refused and recorded, and counts as a violation.
    Record,
}

/// What becomes of what a session writes in the project. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transaction {
    /// It is kept apart until the operator has looked at it.
    #[default]
    Review,
    /// It is kept apart while the session runs, and applied at its end.
    Auto,
    /// It is written directly.
    Off,
}

impl Transaction {
    /// A switch is the short form: on means that the operator looks.
    pub(crate) const fn of_switch(is_on: bool) -> Self {
        if is_on { Transaction::Review } else { Transaction::Off }
    }

    pub fn is_on(self) -> bool {
        self != Transaction::Off
    }
}

/// What a transaction is written to. Ordered: stricter first; a copy costs the host time and space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TransactionMode {
    /// A layer over the project, which refuses to rename its directories.
    #[default]
    Overlay,
    /// A copy of the project, made at the start.
    Copy,
}

struct TransactionNotation;

impl Visitor<'_> for TransactionNotation {
    type Value = Transaction;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`true`, `false`, \"review\", \"auto\" or \"off\"")
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<Transaction, E> {
        Ok(Transaction::of_switch(is_on))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Transaction, E> {
        Transaction::from_name(word).ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
    }
}

impl<'de> Deserialize<'de> for Transaction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TransactionNotation)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Transaction {
    fn schema_name() -> Cow<'static, str> {
        "Transaction".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "What becomes of what a session writes in the project; `true` is `review`, `false` is `off`.",
            "enum": [true, false, "review", "auto", "off"],
        })
    }
}

display_as!(Isolation { None => "none", Process => "process", Full => "full" });
display_as!(Mode { Static => "static", Dynamic => "dynamic" });
display_as!(OnUnknown { Deny => "deny", Ask => "ask", AllowAndLog => "allow-and-log" });
display_as!(Metadata { Hidden => "hidden", Visible => "visible" });
display_as!(KeeperMode { Strict => "strict", Report => "report" });
display_as!(OnCritical { End => "end", Record => "record" });
display_as!(Transaction { Review => "review", Auto => "auto", Off => "off" });
display_as!(TransactionMode { Overlay => "overlay", Copy => "copy" });
display_as!(SyscallMode { AllowList => "allow-list", DenyList => "deny-list" });
display_as!(EnvMode { Explicit => "explicit", Clean => "clean", Inherit => "inherit" });

/// How questions at first access are asked, in dynamic mode.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Unknown {
    pub verdict: Ruled<OnUnknown>,
    pub metadata: Ruled<Metadata>,
    /// A question without an answer by then is denied.
    pub timeout: Ruled<Duration>,
    /// Past this many questions in a minute the rest are denied.
    pub per_minute: Ruled<u32>,
    /// Whether the terminal rings where a question is asked on it.
    pub bell: Ruled<bool>,
    /// Whether the desktop shows a notification of a question.
    pub desktop: Ruled<bool>,
    /// A program that is told of every question and may answer it.
    pub hook: Option<Ruled<Vec<String>>>,
}

/// Rules about starting programs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Process {
    /// Most processes and threads alive at once.
    pub max: Option<Ruled<u32>>,
    pub allow_fork: Ruled<bool>,
    pub allow_exec: Ruled<bool>,
    /// Where not empty: only these programs can be executed (names are looked up in PATH).
    pub executables: Vec<Ruled<String>>,
}

/// What becomes of system calls that no table names. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SyscallMode {
    /// What is not listed is refused.
    #[default]
    AllowList,
    /// What is not listed is allowed; the dangerous calls stay refused.
    DenyList,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Syscalls {
    pub mode: Ruled<SyscallMode>,
    /// Added to the built-in table. A call of the always-denied list is refused here by the parser.
    pub allow: Vec<Ruled<String>>,
    pub deny: Vec<Ruled<String>>,
    /// The session ends once this many notable calls were refused.
    pub max_violations: Ruled<u32>,
}

/// What follows when the workload tries what is a sign of an escape (`profiles/indicators.toml`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Response {
    pub critical: Ruled<OnCritical>,
    /// The session ends past this many indicators of the level MEDIUM or above. Without it they are counted.
    pub max_medium: Option<Ruled<u32>>,
    /// A program outside that is told when a session was ended for what it tried.
    pub hook: Option<Ruled<Vec<String>>>,
}

/// Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EnvMode {
    /// Only `pass` and `set`: nothing comes along by itself.
    Explicit,
    /// The built-in list of harmless variables, and `pass` and `set`.
    #[default]
    Clean,
    /// Everything but what the block list names.
    Inherit,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Env {
    pub mode: Ruled<EnvMode>,
    /// Names or globs let through although the mode would not.
    pub pass: Vec<Ruled<String>>,
    pub set: Vec<Ruled<(String, String)>>,
    /// Globs that never come along unless `pass` names the variable exactly.
    pub block: Vec<Ruled<Cow<'static, str>>>,
    /// Globs that `clean` lets through.
    pub clean: Vec<Ruled<Cow<'static, str>>>,
}

/// A rule of an unapproved project policy that would widen access, and so does not count yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct HeldBack {
    /// The rule as a person would write it, e.g. `files.write = "/opt"`.
    pub rule: String,
    pub origin: Origin,
}

/// Why the session cannot see a file.
pub const HOLDS_A_SECRET: &str = "a credential of the session is read from it";

/// The resolved policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Policy {
    pub isolation: Ruled<Isolation>,
    pub mode: Ruled<Mode>,
    /// How the project directory itself is given.
    pub project: Ruled<Access>,
    /// What becomes of what is written there.
    pub transaction: Ruled<Transaction>,
    pub transaction_mode: Ruled<TransactionMode>,
    pub files: Vec<FileRule>,
    pub unknown: Unknown,
    pub process: Process,
    pub network: Network,
    pub limits: Limits,
    pub syscalls: Syscalls,
    pub response: Response,
    /// How long sessions keep the records of the audit log.
    pub audit_keep: Ruled<Retention>,
    pub env: Env,
    /// Whether processes inside may trace each other.
    pub debug: Ruled<bool>,
    /// What becomes of the session when a host program takes a cover off.
    pub keeper: Ruled<KeeperMode>,
    /// What the time until the end of a command is rounded up to, where it is.
    pub completion_quantum: Option<Ruled<Quantum>>,
    /// Whether org policy permits `isolation = "none"`.
    pub none_approved: Option<Origin>,
    /// Where the org allows the host's own network without asking each time.
    pub host_network_approved: Option<Origin>,
    /// Where not empty: the org's requirements allow write and overlay grants only below these. `resolve` has checked
    /// the names; `plan`, which knows where links lead, checks the result again.
    pub write_within: Vec<Ruled<PathExpr>>,
    pub presets: Vec<Ruled<String>>,
    pub held_back: Vec<HeldBack>,
}

impl Default for Policy {
    /// The strictest policy: full isolation, nothing writable, no debugging, no program but the command itself.
    fn default() -> Self {
        Policy {
            isolation: Ruled::default_of(Isolation::Full),
            mode: Ruled::default_of(Mode::Static),
            project: Ruled::default_of(Access::Read),
            transaction: Ruled::default_of(Transaction::Review),
            transaction_mode: Ruled::default_of(TransactionMode::Overlay),
            files: Vec::new(),
            unknown: Unknown {
                verdict: Ruled::default_of(OnUnknown::Deny),
                metadata: Ruled::default_of(Metadata::Hidden),
                timeout: Ruled::default_of(Duration::from_mins(5)),
                per_minute: Ruled::default_of(30),
                bell: Ruled::default_of(true),
                desktop: Ruled::default_of(false),
                hook: None,
            },
            process: Process {
                max: None,
                allow_fork: Ruled::default_of(false),
                allow_exec: Ruled::default_of(false),
                executables: Vec::new(),
            },
            network: Network::default(),
            limits: Limits::default(),
            syscalls: Syscalls {
                mode: Ruled::default_of(SyscallMode::AllowList),
                allow: Vec::new(),
                deny: Vec::new(),
                max_violations: Ruled::default_of(1),
            },
            response: Response { critical: Ruled::default_of(OnCritical::End), max_medium: None, hook: None },
            audit_keep: Ruled::default_of(Retention::FOREVER),
            env: Env {
                mode: Ruled::default_of(EnvMode::Explicit),
                pass: Vec::new(),
                set: Vec::new(),
                block: Vec::new(),
                clean: Vec::new(),
            },
            debug: Ruled::default_of(false),
            keeper: Ruled::default_of(KeeperMode::Strict),
            completion_quantum: None,
            none_approved: None,
            host_network_approved: None,
            write_within: Vec::new(),
            presets: Vec::new(),
            held_back: Vec::new(),
        }
    }
}

impl Policy {
    /// How the project directory is given once the transaction counts: what would be written directly is kept apart.
    pub fn project_access(&self) -> Access {
        match self.project.value {
            Access::Write if self.transaction.value.is_on() => Access::Overlay,
            access => access,
        }
    }

    /// Whether shipped protections are lifted in the transaction. Not by a project's file: it would open what it cannot open otherwise.
    pub fn transaction_lifts(&self) -> bool {
        self.transaction.value.is_on() && !self.transaction.origin.layer.is_untrusted()
    }

    /// Hides the files that secrets are read from, whatever other rules say about them. Not a rule of any layer.
    pub fn hide_secret_files(&mut self) {
        let rules = self.network.credentials.iter().filter_map(|credential| {
            let SecretSource::File(path) = &credential.value.source else { return None };
            Some(FileRule {
                path: path.clone(),
                access: Access::Deny,
                stand: Stand::Refuse,
                hold: Hold::Nothing,
                only_missing: false,
                optional: true,
                is_final: true,
                reason: Cow::Borrowed(HOLDS_A_SECRET),
                origin: credential.origin.clone(),
            })
        });
        self.files.extend(rules);
    }
}
