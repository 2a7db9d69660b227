//! What was written to a policy file, as the operator reads it. Owns those lines; called by the commands that keep answers.

use std::process::ExitCode;

use cofferdam_audit::JournalError;
use cofferdam_host::persist::Saved;

use crate::render::output::{escaped, print, say};

/// The difference, on stdout.
pub(crate) fn tell_saved(saved: &Saved) -> ExitCode {
    tell_unrecorded(saved.unrecorded.as_ref());
    if saved.diff.is_empty() {
        return print(&format!("{} says so already\n", escaped(&saved.file.display().to_string())));
    }
    print(&saved.diff.lines().map(|line| escaped(line) + "\n").collect::<String>())
}

/// The change is made: a log that cannot be written is told, no more.
pub(crate) fn tell_unrecorded(error: Option<&JournalError>) {
    if let Some(error) = error {
        say!("sandbox: {}", escaped(&unrecorded(error)));
    }
}

pub(crate) fn unrecorded(error: &JournalError) -> String {
    format!("{error}: {}", error.errno)
}
