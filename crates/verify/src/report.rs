//! What `sandbox verify` found, as data. Owns the format `cofferdam.verify/1`; renders nothing and judges nothing. Filled by the
//! trials, signed, then written as JSON, as text, as Markdown or as a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The format's name and version.
pub const SCHEMA: &str = "cofferdam.verify/1";

/// Names of the facts that say in what a run was less than a whole one.
pub(crate) const SWITCHED_OFF: &str = "switched off";
pub(crate) const ONLY: &str = "checks";
/// The name of the fact that says which rules of the policy had nothing to be about.
pub(crate) const NOT_TRIED: &str = "rules that were not tried";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub schema: String,
    /// RFC 3339, in UTC.
    pub generated: String,
    pub host: Host,
    pub versions: BTreeMap<String, String>,
    pub policy: PolicyUsed,
    pub posture: Vec<Fact>,
    pub checks: Vec<Check>,
    pub summary: Summary,
    pub signature: Option<Signature>,
}

impl Report {
    /// Rules of the policy that scratch roots have no path for.
    pub(crate) fn not_tried(&self) -> impl Iterator<Item = &Fact> {
        self.posture.iter().filter(|fact| fact.name == NOT_TRIED)
    }

    /// What the operator left out of this run, or switched off in it.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = &Fact> {
        self.posture.iter().filter(|fact| fact.name == SWITCHED_OFF || fact.name == ONLY)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    pub kernel: String,
    pub distribution: String,
    pub machine: String,
    pub user: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyUsed {
    /// Where it came from: files, or what is built in.
    pub source: String,
    pub digest: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

/// One wall that was tried, or one line of a checklist that several of them answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub id: String,
    pub title: String,
    pub group: String,
    pub required: bool,
    pub result: Outcome,
    /// Why it could not be checked, or what was reached.
    pub why: Option<String>,
    pub evidence: String,
    pub control: Control,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Contained,
    NotContained,
    CannotCheck,
}

/// The same probe with the wall away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    pub what: String,
    pub result: ControlResult,
    pub evidence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResult {
    /// The probe reached what the wall keeps from it: the check can tell a wall from none.
    Fell,
    /// It did not, so the check proves nothing here.
    Held,
    NotRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub contained: u32,
    pub not_contained: u32,
    pub cannot_check: u32,
    /// Required ones that do not hold, or whose trial gave no answer.
    pub required_failed: u32,
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    pub algorithm: String,
    /// The public key, in hexadecimal.
    pub key_id: String,
    pub value: String,
}

/// One of each, for tests.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    let control = |result| Control { what: "without <walls> & all".to_owned(), result, evidence: "read".to_owned() };
    let check = |id: &str, result, control_result| Check {
        id: id.to_owned(),
        title: "a `|` and <b>".to_owned(),
        group: "files".to_owned(),
        required: true,
        result,
        why: (result != Outcome::Contained).then(|| "why | <i>".to_owned()),
        evidence: "\"quoted\" <script>".to_owned(),
        control: control(control_result),
    };
    Report {
        schema: SCHEMA.to_owned(),
        generated: "2026-11-18T10:00:00.000000Z".to_owned(),
        host: Host {
            kernel: "6.12.0".to_owned(),
            distribution: "Debian".to_owned(),
            machine: "x86_64".to_owned(),
            user: "uid 1000".to_owned(),
        },
        versions: BTreeMap::from([("sandbox".to_owned(), "0.1.0".to_owned())]),
        policy: PolicyUsed { source: "built-in".to_owned(), digest: "sha256:00".to_owned() },
        posture: vec![Fact { name: "files".to_owned(), value: "enforced".to_owned() }],
        checks: vec![
            check("A1", Outcome::Contained, ControlResult::Fell),
            check("A2", Outcome::NotContained, ControlResult::NotRun),
            check("A3", Outcome::CannotCheck, ControlResult::Held),
        ],
        summary: Summary { contained: 1, not_contained: 1, cannot_check: 1, required_failed: 1, seconds: 12.3 },
        signature: None,
    }
}
