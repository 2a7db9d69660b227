//! Policy: plain data that says what may be asked. Owns types, parsing, layers, merge and explanation of origins;
//! refuses to own I/O (callers hand in file contents) and mechanism (`plan` turns a policy into kernel steps).
//! Called by `plan`, `cli` and `xtask`.
#![forbid(unsafe_code)]

pub mod origin;
pub mod path;
pub mod types;

pub use origin::{Layer, Origin, Ruled};
pub use path::{PathExpr, Places};
pub use types::{
    Access, Env, EnvMode, FileRule, HeldBack, Isolation, Limits, Mode, NetworkMode, Policy, Process, Stand,
    SyscallMode, Syscalls,
};
