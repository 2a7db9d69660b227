//! Secrets in text: which names announce one, which words look like one, and a configuration file without them. Called by
//! `gate::host_files::masked` and `supervisor::records`.

mod configuration;
mod names;

pub use self::configuration::masked;
pub use self::names::{REDACTED, is_scheme, names_secret, redacted};

#[cfg(test)]
mod tests;
