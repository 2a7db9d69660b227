//! What follows when the workload tries what is a sign of an escape. Owns the thresholds as the supervisor is given them; which act
//! is how grave is `profiles/indicators.toml`, and carrying it out is `supervisor`'s. Made by `plan()`.

use cofferdam_policy::{OnCritical, Policy};
use serde::Serialize;

/// What follows when the workload tries what is a sign of an escape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResponsePlan {
    /// Whether one critical indicator ends the session.
    pub ends_at_critical: bool,
    /// It ends past this many of the level MEDIUM or above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_medium: Option<u32>,
    /// A program outside that is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Vec<String>>,
}

impl ResponsePlan {
    pub(crate) fn of(policy: &Policy) -> Self {
        let response = &policy.response;
        ResponsePlan {
            ends_at_critical: response.critical.value == OnCritical::End,
            max_medium: response.max_medium.as_ref().map(|most| most.value),
            hook: response.hook.as_ref().map(|hook| hook.value.clone()),
        }
    }
}
