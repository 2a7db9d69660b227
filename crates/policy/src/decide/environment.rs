//! Which variables come along. Owns the verdict about one name; building the environment is `plan`'s.
//! Called by `plan` and `explain`.

use crate::language::path::{name_matches, name_matches_ignoring_case};
use crate::types::origin::Origin;
use crate::types::policy::{Env, EnvMode};

impl Env {
    /// Whether the caller's variable `name` comes along. A block wins over everything but its exact name in `pass`.
    pub fn lets_through(&self, name: &str) -> bool {
        if self.pass.iter().any(|pass| pass.value == name) {
            return true;
        }
        let wanted = match self.mode.value {
            EnvMode::Inherit => true,
            EnvMode::Clean => {
                self.clean.iter().any(|glob| name_matches(&glob.value, name))
                    || self.pass.iter().any(|glob| name_matches(&glob.value, name))
            }
            EnvMode::Explicit => self.pass.iter().any(|glob| name_matches(&glob.value, name)),
        };
        wanted && self.blocked_by(name).is_none()
    }

    /// The rule that blocks `name`, if any.
    pub fn blocked_by(&self, name: &str) -> Option<&Origin> {
        let first = name.as_bytes().first().map(u8::to_ascii_lowercase);
        // The list is long and asked for every variable: most of it fails at its first byte.
        let starts_alike = |glob: &str| match glob.as_bytes().first() {
            Some(b'*') => true,
            other => other.map(u8::to_ascii_lowercase) == first,
        };
        let matches = |glob: &str| starts_alike(glob) && name_matches_ignoring_case(glob, name);
        self.block.iter().find(|glob| matches(&glob.value)).map(|glob| &glob.origin)
    }
}
