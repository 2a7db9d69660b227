//! Policy: plain data that says what may be asked. Owns types, parsing, layers, merge and explanation of origins;
//! refuses to own I/O (callers hand in file contents) and mechanism (`plan` turns a policy into kernel steps).
//! Called by `plan`, `cli` and `xtask`.
#![forbid(unsafe_code)]

pub mod always_denied;
mod at;
mod builtin;
mod ceilings;
mod check;
mod cpu_set;
pub mod decide;
mod diff;
mod draft;
mod endpoint;
mod environment;
mod error;
mod explain;
mod export;
mod file;
mod file_limits;
mod file_network;
mod file_values;
mod fold;
mod host;
pub mod layers;
mod learn;
mod limit;
mod merge;
mod name_data;
mod network;
mod network_part;
pub mod origin;
mod overrides;
pub mod path;
mod prediction;
mod quantity;
pub mod secret_text;
mod setting;
mod tighten;
pub mod types;
mod unbuilt;
mod variables;

pub use always_denied::{ALWAYS_DENIED, is_always_denied};
pub use builtin::{DEFAULT_PRESET, PRESETS, Preset, dependency_directories, obeyed_names, registries, toolchains};
pub use ceilings::Ceilings;
pub use cpu_set::parse_cpu_set;
pub use decide::index::{PlacedRule, RuleIndex, Ruling};
pub use diff::{Difference, Direction, differences};
pub use draft::{Draft, quoted};
pub use endpoint::{Cidr, Endpoint, EndpointError, Ports, Target, WEB_PORTS};
pub use error::PolicyError;
pub use explain::explain;
pub use export::export;
#[cfg(feature = "schema")]
pub use file::json_schema;
pub use file::{Parsed, parse};
pub use fold::{fold_hash, folded, folds_alike, folds_at_or_below, is_unseen};
pub use host::{Host, HostError, parse_authority, with_port};
pub use layers::{ExpandedRule, Inputs, LayerInput, hold_of, index_of, resolve, rules_in_force};
pub use learn::{Accessed, Learned, Touch, learn};
pub use limit::Limit;
pub use network::{AgentUse, Credential, HOLDS_A_SECRET, Network, NetworkRule, Publish, SecretSource, SocketGrant};
pub use network_part::{HostRule, NetworkPart};
pub use origin::{Layer, Origin, Ruled};
pub use overrides::Overrides;
pub use path::{PathExpr, Places};
pub use prediction::Prediction;
pub use quantity::{parse_count, parse_cpus, parse_size, parse_time};
pub use setting::Setting;
pub use types::{
    Access, Env, EnvMode, FileRule, HeldBack, Hold, Isolation, KeeperMode, Limits, Metadata, Mode, NetworkMode,
    ObeyedClass, ObeyedName, OnUnknown, Policy, Process, Stand, SyscallMode, Syscalls, Unknown,
};
