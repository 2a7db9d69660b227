//! Policy: plain data that says what may be asked. Owns types, parsing, layers, merge and explanation of origins;
//! refuses to own I/O (callers hand in file contents) and mechanism (`plan` turns a policy into kernel steps).
//! Called by `plan`, `cli` and `xtask`.
#![forbid(unsafe_code)]

pub mod always_denied;
mod at;
mod builtin;
mod error;
mod file;
mod file_values;
mod merge;
pub mod origin;
pub mod path;
mod quantity;
mod setting;
pub mod types;
mod unbuilt;

pub use always_denied::{ALWAYS_DENIED, is_always_denied};
pub use builtin::{DEFAULT_PRESET, PRESETS, Preset};
pub use error::PolicyError;
#[cfg(feature = "schema")]
pub use file::json_schema;
pub use file::{Parsed, parse};
pub use origin::{Layer, Origin, Ruled};
pub use path::{PathExpr, Places};
pub use quantity::{parse_size, parse_time};
pub use setting::Setting;
pub use types::{
    Access, Env, EnvMode, FileRule, HeldBack, Hold, Isolation, Limits, Mode, NetworkMode, Policy, Process, Stand,
    SyscallMode, Syscalls,
};
