//! The values that a policy is made of: settings as layers say them, the resolved policy, and origins. Owns the types, their
//! strictest defaults and what one value may be; does not read text (`format`) or combine layers (`resolve`). Used by every
//! other module of this crate, and by the build script.

pub(crate) mod always_denied;
pub(crate) mod ceilings;
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
