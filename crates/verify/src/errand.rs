//! What the process that launches and the probe are told, as one argument of each, and what the former leaves for the trial. Owns
//! these two documents; both are written and read by one build of this program.

use std::path::PathBuf;

use cofferdam_wire::End;
use serde::{Deserialize, Serialize};

use crate::report::Fact;
use crate::scratch::Scratch;
use crate::walls::Wall;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Walls {
    Standing,
    /// As the negative control of the check says.
    Away,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Errand {
    pub(crate) check: String,
    pub(crate) walls: Walls,
    /// What this run was told to leave out of every session.
    pub(crate) switched_off: Vec<Wall>,
    /// The process of the run.
    pub(crate) run: u32,
    pub(crate) root: PathBuf,
    /// The copy of this program that is shown inside.
    pub(crate) program: PathBuf,
    pub(crate) token: String,
    /// Of the listeners outside.
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
    /// The process outside that is a canary.
    pub(crate) process: u32,
    /// The namespaces outside, as the links of /proc have them.
    pub(crate) namespaces: Vec<String>,
}

/// What canaries of a check are called: files, and an abstract socket.
pub(crate) fn file_name(token: &str, check: &str) -> String {
    format!("cofferdam-verify-{token}-{check}")
}

impl Errand {
    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::at(&self.root)
    }

    /// The name of what lies outside the scratch root: an abstract socket, files in memory and temporary ones.
    pub(crate) fn file_name(&self) -> String {
        file_name(&self.token, &self.check)
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How a launch went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Launched {
    /// Why there was no session.
    pub(crate) error: Option<String>,
    pub(crate) end: Option<End>,
    /// Calls that the supervisor was told about.
    pub(crate) blocked: Vec<String>,
    pub(crate) posture: Vec<Fact>,
    /// Rules of the policy whose path the scratch root lacks.
    pub(crate) not_tried: Vec<String>,
    /// Whether unknown paths were decided at first access.
    pub(crate) asks: bool,
}
