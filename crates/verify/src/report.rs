//! What `sandbox verify` found, as data. Owns the format `cofferdam.verify/1`; renders nothing and judges nothing. Filled by the
//! trials, signed, then written as JSON, as text, as Markdown or as a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The format's name and version.
pub const SCHEMA: &str = "cofferdam.verify/1";

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
