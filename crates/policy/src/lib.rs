//! Policy: plain data that says what may be asked. Owns types, parsing, layers, merge and explanation of origins;
//! refuses to own I/O (callers hand in file contents) and mechanism (`plan` turns a policy into kernel steps).
//! Called by `plan`, `cli` and `xtask`.
//!
//! Each module uses those before it: `language`, `types`, `format` and `builtin`, `decide`, `resolve`, `report`.
//! `secret_text` stands alone.
#![forbid(unsafe_code)]

mod builtin;
pub mod decide;
mod format;
mod language;
mod report;
mod resolve;
pub mod secret_text;
mod types;

pub use builtin::{
    DEFAULT_PRESET, PRESETS, Preset, dependency_directories, is_called_like_a_secret, obeyed_names, presets_that_keep,
    registries, toolchains,
};
pub use decide::files::{ExpandedRule, hold_of, index_of, rules_in_force};
pub use decide::index::{PlacedRule, RuleIndex, Ruling};
pub use format::by_hand::{BY_HAND, ByHand, NoValue};
pub use format::draft::{Draft, quoted};
#[cfg(feature = "schema")]
pub use format::file::json_schema;
pub use format::file::{Parsed, parse};
pub use language::case_fold::{fold_hash, folded, folds_alike, folds_at_or_below, is_unseen};
pub use language::cpu_set::parse_cpu_set;
pub use language::endpoint::{Cidr, Endpoint, EndpointError, Ports, Target, WEB_PORTS};
pub use language::host::{Host, HostError, parse_authority, with_port};
pub use language::path;
pub use language::path::{PathExpr, Places};
pub use language::quantity::{Quantum, Retention, parse_count, parse_cpus, parse_size, parse_time};
pub use report::command_hints::{HostGroup, Prediction};
pub use report::diff::{Difference, Direction, differences};
pub use report::explain::explain;
pub use report::export::export;
pub use report::learn::{Accessed, Learned, Touch, learn};
pub use resolve::layers;
pub use resolve::layers::{Circumstances, Inputs, LayerInput, resolve};
pub use types::always_denied::{ALWAYS_DENIED, is_always_denied};
pub use types::ceilings::Ceilings;
pub use types::error::{PolicyError, did_you_mean};
pub use types::files::{Access, FileRule, Hold, ObeyedClass, ObeyedName, Stand};
pub use types::limit::Limits;
pub use types::network::{AgentUse, Credential, Network, NetworkMode, NetworkRule, Publish, SecretSource, SocketGrant};
pub use types::network_part::{HostRule, NetworkPart};
pub use types::origin::{Layer, Origin, Ruled};
pub use types::policy::{
    Env, EnvMode, HOLDS_A_SECRET, HeldBack, Isolation, KeeperMode, Metadata, Mode, OnCritical, OnUnknown, Policy,
    Process, SyscallMode, Syscalls, Transaction, TransactionMode, Unknown,
};
pub use types::scalar::Scalar;
pub use types::setting::Setting;
