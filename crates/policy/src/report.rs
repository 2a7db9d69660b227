//! What is told about policies: explanations, exports, differences, the policy that a run would need, hints about commands.
//! Owns content and wording; changes no policy, and colours and JSON are the edge's. Called by `cli` and `supervisor`.

pub(crate) mod command_hints;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod learn;

#[cfg(test)]
mod tests;
