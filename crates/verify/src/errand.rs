//! What the process that launches and the probe are told, as one argument of each, and what the former leaves for the trial. Owns
//! these two documents; both are written and read by one build of this program.

use std::path::{Path, PathBuf};

use cofferdam_wire::End;
use serde::{Deserialize, Serialize};

use crate::report::Fact;
use crate::scratch::Scratch;
use crate::walls::Wall;

/// Where the directories of runs are, below a home.
pub(crate) const SCRATCH: &str = ".cache/cofferdam-verify";
/// The copy of this program that is shown inside, below the directory of a run.
pub(crate) const PROBE: &str = "bin/sandbox-verify";

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

impl Errand {
    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::at(&self.root)
    }

    /// The name of what lies outside the scratch root: an abstract socket, files in memory and temporary ones.
    pub(crate) fn file_name(&self) -> String {
        format!("cofferdam-verify-{}-{}", self.token, self.check)
    }

    /// Whether it is about a root that a run made, and about the copy of this program beside it.
    pub(crate) fn is_on_scratch(&self) -> bool {
        let run = self.root.parent();
        let is_below = run.and_then(Path::parent).is_some_and(|directory| directory.ends_with(SCRATCH));
        is_below && run.is_some_and(|run| self.program == run.join(PROBE))
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
    /// Whether unknown paths were decided at first access.
    pub(crate) asks: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walls_are_left_away_on_scratch_roots_only() {
        let errand = |root: &str, program: &str| Errand {
            check: "A1".to_owned(),
            walls: Walls::Away,
            switched_off: Vec::new(),
            root: root.into(),
            program: program.into(),
            token: String::new(),
            tcp: 0,
            udp: 0,
            process: 0,
            namespaces: Vec::new(),
        };
        let run = "/home/a/.cache/cofferdam-verify/1";
        assert!(errand(&format!("{run}/A1-away"), &format!("{run}/bin/sandbox-verify")).is_on_scratch());
        for (root, program) in [
            ("/home/a/project".to_owned(), format!("{run}/bin/sandbox-verify")),
            (format!("{run}/A1-away"), "/bin/sh".to_owned()),
            (format!("{run}/A1-away/home"), format!("{run}/bin/sandbox-verify")),
            ("/".to_owned(), "/bin/sandbox-verify".to_owned()),
        ] {
            assert!(!errand(&root, &program).is_on_scratch(), "{root} {program}");
        }
    }
}
