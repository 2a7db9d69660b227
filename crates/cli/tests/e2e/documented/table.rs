//! The rows beside a document: what has to be there before a command is typed, what is answered, and what has to come of it. Owns the
//! form of `documented/*.toml`, one file for a document and one line for a row; `prepare.sh` has what several rows call. A section's
//! rows stand below its heading, and each section is a terminal of its own in a new home.

use serde::Deserialize;

/// Where a section is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Start {
    #[default]
    Alone,
    /// In an internet of its own, with the hosts that the documents name.
    Online,
    /// The same with a PostgreSQL at every address.
    Served,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(default)]
    pub(super) section: Vec<Section>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    pub(super) heading: String,
    #[serde(default)]
    pub(super) start: Start,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub(super) struct Row {
    /// A command as in the document, without the remark.
    pub(super) run: Option<String>,
    /// The beginning of a message of ours, which comes of `typed`.
    pub(super) shown: Option<String>,
    /// Why it cannot run here.
    pub(super) not_here: Option<String>,
    /// The remark behind the command, which the expectations are about.
    pub(super) remark: Option<String>,
    /// What is typed instead of the line.
    pub(super) typed: Option<String>,
    /// Programs without which it is skipped.
    pub(super) needs: Vec<String>,
    /// A script before it.
    pub(super) before: String,
    /// Words of the line that stand for something, and the script that prints it.
    pub(super) filled: Vec<(String, String)>,
    /// What is waited for, and the keys that are pressed then, by tmux's names; after a `>` a line is typed, after a
    /// `!` a script is run meanwhile.
    pub(super) answers: Vec<(String, String)>,
    pub(super) code: i32,
    pub(super) says: Vec<String>,
    pub(super) lacks: Vec<String>,
    /// A script that has to succeed afterwards.
    pub(super) then: String,
}

impl Row {
    /// What it begins with in the document.
    pub(super) fn line(&self) -> &str {
        self.run.as_deref().or(self.shown.as_deref()).unwrap_or_default()
    }
}
