//! Words for files that programs of the host obey and that were changed or made while a session ran. Owns the lines and their
//! length; what happened is `host::obeyed`'s. Called by `run` at the end of a session.

use std::os::unix::ffi::OsStrExt as _;

use cofferdam_gate::shown_short;
use cofferdam_host::obeyed::{Obeyed, ObeyedFile, Unseen};
use cofferdam_policy::ObeyedClass;

/// Named on a line; `--json` and the log have more.
const MOST_TOLD: usize = 5;
/// Columns of a path: the workload chooses names.
const LONGEST_PATH: usize = 120;

/// A line for each class, and one where not everything was looked at.
pub(crate) fn lines(obeyed: &Obeyed) -> Vec<String> {
    let classes = [
        (ObeyedClass::Opens, "obey as soon as the project is opened or entered"),
        (ObeyedClass::Runs, "obey when they run"),
    ];
    let mut lines = Vec::new();
    let mut more = obeyed.more;
    // What was left out is of the last class that is there.
    for (class, obey) in classes.into_iter().rev() {
        let files: Vec<&ObeyedFile> = obeyed.files.iter().filter(|file| file.class == class).collect();
        if files.is_empty() {
            continue;
        }
        let name = |file: &&ObeyedFile| {
            format!("{} ({})", shown_short(file.path.as_os_str().as_bytes(), LONGEST_PATH), file.why)
        };
        let named: Vec<String> = files.iter().take(MOST_TOLD).map(name).collect();
        let count = files.len().saturating_sub(MOST_TOLD) + std::mem::take(&mut more);
        let rest = if count > 0 { format!(", and {count} more") } else { String::new() };
        lines.push(format!(
            "the session changed or made files that programs on this machine {obey}: {}{rest}; look at them first",
            named.join(", "),
        ));
    }
    lines.reverse();
    lines.extend(obeyed.unseen.map(|unseen| {
        let why = match unseen {
            Unseen::Entries => "it has too many files",
            Unseen::Time => "it takes too long",
            Unseen::Depth => "it is too deep",
            Unseen::OtherFileSystem => "a directory is on another mount",
            Unseen::Unreadable => "a directory cannot be read",
        };
        format!("not all of the project was searched for files that programs on this machine obey ({why}): there may be others that the session changed or made")
    }));
    lines
}
