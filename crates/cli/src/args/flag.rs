//! A flag whose value is not taken. Owns the error and the parsing that flags share; what a flag means is its command's.
//! Called by `args` and the commands.

use thiserror::Error;

#[derive(Debug, Error)]
#[error("`{flag}` cannot be `{value}`")]
pub(crate) struct FlagError {
    pub(crate) flag: &'static str,
    pub(crate) value: String,
    pub(crate) hint: String,
}

impl FlagError {
    pub(crate) fn new(flag: &'static str, value: &str, hint: impl Into<String>) -> Self {
        FlagError { flag, value: value.to_owned(), hint: hint.into() }
    }
}

/// The value is none of these names.
pub(crate) fn one_of(flag: &'static str, value: &str, names: &[&str]) -> FlagError {
    FlagError::new(flag, value, format!("it is one of: {}", names.join(", ")))
}
