//! How single values are written: paths, hosts and endpoints, amounts, lists of CPUs. Owns parsing, printing and matching of
//! one value; knows no settings, layers or files. Called by `types`, `format` and everything that compares paths or hosts.

pub(crate) mod case_fold;
pub(crate) mod cpu_set;
pub(crate) mod endpoint;
pub(crate) mod host;
pub(crate) mod name_data;
pub mod path;
pub(crate) mod path_entry;
pub(crate) mod quantity;
