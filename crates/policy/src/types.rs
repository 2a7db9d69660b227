//! The resolved policy: what the sandbox will be asked to enforce, every part with the rule that set it.
//! Owns the types and their strictest defaults; parsing lives in `file`, merging in `layers`, mechanism in `plan`.
//! Read by `plan` and rendered by `cli`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::network::{AgentUse, Network};
use crate::origin::{Origin, Ruled};
use crate::path::{PathExpr, Places};

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
    /// At first access: the call blocks until someone decides.
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

/// What can be seen of a path that nobody has decided about. Ordered: stricter first.
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

/// What a rule does to a path and everything below it. Ordered: stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Content is absent: a directory looks empty, a file cannot be opened.
    Deny,
    /// Read-only, without the values of secret names in it. Shipped lists alone say so.
    #[serde(skip_deserializing)]
    Mask,
    /// Read-only, and if the name does not exist it cannot be created either.
    Protect,
    /// Read-only.
    Read,
    /// Looks writable; writes go to the session and never to the host.
    Overlay,
    /// Writable for real.
    Write,
}

macro_rules! display_as {
    ($type:ident { $($variant:ident => $text:literal),+ $(,)? }) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($type::$variant => $text),+ })
            }
        }

        impl $type {
            /// The words that name a value, in files, flags and variables alike.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some($type::$variant),)+ _ => None }
            }
        }
    };
}

display_as!(Isolation { None => "none", Process => "process", Full => "full" });
display_as!(OnUnknown { Deny => "deny", Ask => "ask", AllowAndLog => "allow-and-log" });
display_as!(KeeperMode { Strict => "strict", Report => "report" });
display_as!(Metadata { Hidden => "hidden", Visible => "visible" });
display_as!(Mode { Static => "static", Dynamic => "dynamic" });
display_as!(Access { Deny => "deny", Mask => "mask", Protect => "protect", Read => "read", Overlay => "overlay", Write => "write" });
display_as!(NetworkMode { None => "none", Egress => "egress", Host => "host" });
display_as!(AgentUse { Off => "off", Ask => "ask", Allow => "allow" });
display_as!(SyscallMode { AllowList => "allow-list", DenyList => "deny-list" });
display_as!(EnvMode { Explicit => "explicit", Clean => "clean", Inherit => "inherit" });

/// What a denied or held file shows instead of its content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stand {
    /// Opening it fails with EACCES.
    #[default]
    Refuse,
    /// Opening it gives this text: for files that tools insist on reading.
    Text(String),
}

/// What keeps a missing name from being created inside a writable directory, for as long as the sandbox runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Nothing does: the rule counts only where the path exists.
    #[default]
    Nothing,
    /// An empty directory stands in.
    Directory,
    /// A socket node stands in: git neither opens it nor shows it.
    Socket,
    /// A file with this text stands in.
    File(Cow<'static, str>),
}

/// When programs of the host obey a name in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObeyedClass {
    /// Without being asked for: on `cd`, when the project is opened, at `git status`, when an agent starts.
    Opens,
    /// When a person runs the program that reads it.
    Runs,
}

/// A name in a project that programs of the host obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObeyedName {
    /// Names with slashes between them, the last a pattern if `is_glob`.
    pub name: &'static str,
    /// Below a `.git`.
    pub in_git: bool,
    pub is_glob: bool,
    /// A directory of that name is obeyed by what other entries name in it.
    pub only_files: bool,
    pub class: ObeyedClass,
    /// What obeys it, and how.
    pub why: &'static str,
}

/// One rule about one path. The rule with the longest path that contains a file decides about that file;
/// on the same path the later layer wins, within a layer the stricter access.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct FileRule {
    pub path: PathExpr,
    pub access: Access,
    pub stand: Stand,
    pub hold: Hold,
    /// The rule is about the name while nothing is there: what exists at the path keeps the access it has without it.
    pub only_missing: bool,
    /// A missing path is no error (lists of well-known places).
    pub optional: bool,
    /// Never overridden by a longer path or a later layer (org requirements).
    pub is_final: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    pub origin: Origin,
}

impl FileRule {
    /// The absolute paths this is about. A rule that closes is about every home, one that gives about the first: a second
    /// home widens nothing.
    pub fn expand(&self, places: &Places) -> Vec<PathBuf> {
        match self.access {
            Access::Deny | Access::Mask | Access::Protect => self.path.expand_in_homes(places),
            Access::Read | Access::Overlay | Access::Write => self.path.expand(places),
        }
    }
}

/// How questions at first access are asked, in dynamic mode.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Unknown {
    pub verdict: Ruled<OnUnknown>,
    pub metadata: Ruled<Metadata>,
    /// A question that nobody has answered by then is denied.
    pub timeout: Ruled<Duration>,
    /// Past this many questions in a minute the rest are denied.
    pub per_minute: Ruled<u32>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// An own loopback and nothing else.
    #[default]
    None,
    /// Named hosts through the supervisor.
    Egress,
    /// The host's network.
    Host,
}

/// How much of the machine a session may use. What enforces each is the plan's business; nothing here is a promise.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
pub struct Limits {
    /// Wall-clock time for the whole run.
    pub timeout: Option<Ruled<Duration>>,
    /// CPU seconds of all processes together.
    pub cpu_seconds: Option<Ruled<u64>>,
    /// Thousandths of a CPU that may be used at once: 1500 is one and a half.
    pub cpu_millis: Option<Ruled<u32>>,
    /// The CPUs that may be used, as the kernel writes a list: `0-3,6`.
    pub cpu_set: Option<Ruled<String>>,
    /// Memory of all processes together, in bytes; swap is never used.
    pub memory: Option<Ruled<u64>>,
    /// Memory above which the session is slowed down, in bytes.
    pub memory_high: Option<Ruled<u64>>,
    /// Bytes and operations a second, for each disk that the session can write to.
    pub io_read: Option<Ruled<u64>>,
    pub io_write: Option<Ruled<u64>>,
    pub io_read_ops: Option<Ruled<u64>>,
    pub io_write_ops: Option<Ruled<u64>>,
    pub open_files: Option<Ruled<u64>>,
    /// Largest single file, in bytes.
    pub file_size: Option<Ruled<u64>>,
    /// Size of each private temporary file system, in bytes, and how many files it holds.
    pub tmp_size: Option<Ruled<u64>>,
    pub tmp_inodes: Option<Ruled<u64>>,
    /// What the session may add to each file system of the host that it can write to: bytes and files.
    pub storage: Option<Ruled<u64>>,
    pub inodes: Option<Ruled<u64>>,
    /// Bytes written to stdout and stderr together.
    pub output: Option<Ruled<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
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

/// The resolved policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Policy {
    pub isolation: Ruled<Isolation>,
    pub mode: Ruled<Mode>,
    /// How the project directory itself is given.
    pub project: Ruled<Access>,
    pub files: Vec<FileRule>,
    pub unknown: Unknown,
    pub process: Process,
    pub network: Network,
    pub limits: Limits,
    pub syscalls: Syscalls,
    pub env: Env,
    /// Whether processes inside may trace each other.
    pub debug: Ruled<bool>,
    /// What becomes of the session when a host program takes a cover off.
    pub keeper: Ruled<KeeperMode>,
    /// Whether org policy permits `isolation = "none"`.
    pub none_approved: Option<Origin>,
    /// Where the org allows the host's own network without asking each time.
    pub host_network_approved: Option<Origin>,
    /// Where not empty: the org's requirements allow write and overlay grants only below these. `layers` has checked
    /// the names; whoever resolves links on the real file system must check the result again.
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
            files: Vec::new(),
            unknown: Unknown {
                verdict: Ruled::default_of(OnUnknown::Deny),
                metadata: Ruled::default_of(Metadata::Hidden),
                timeout: Ruled::default_of(Duration::from_mins(5)),
                per_minute: Ruled::default_of(30),
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
            env: Env {
                mode: Ruled::default_of(EnvMode::Explicit),
                pass: Vec::new(),
                set: Vec::new(),
                block: Vec::new(),
                clean: Vec::new(),
            },
            debug: Ruled::default_of(false),
            keeper: Ruled::default_of(KeeperMode::Strict),
            none_approved: None,
            host_network_approved: None,
            write_within: Vec::new(),
            presets: Vec::new(),
            held_back: Vec::new(),
        }
    }
}
