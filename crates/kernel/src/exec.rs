//! Replacing this process by a program. Owns the PATH search, so that the program found is the one inside the new root.
//! Called by the workload side of `launcher`.

use std::ffi::CString;

use rustix::io::Errno;

use crate::raw;

/// Runs `argv[0]`, looked up in `path` unless it contains a slash. Returns only on failure.
pub fn execute(argv: &[CString], environment: &[CString], path: &str) -> Errno {
    // An empty name would become the directories of `path` themselves.
    let Some(program) = argv.first().filter(|program| !program.is_empty()) else { return Errno::NOENT };
    if program.as_bytes().contains(&b'/') {
        return raw::process::execve(program, argv, environment);
    }
    let mut refused = None;
    for directory in path.split(':').filter(|d| d.starts_with('/')) {
        let Ok(candidate) = CString::new([directory.as_bytes(), b"/", program.as_bytes()].concat()) else { continue };
        match raw::process::execve(&candidate, argv, environment) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => refused = Some(Errno::ACCESS),
            errno => return errno,
        }
    }
    refused.unwrap_or(Errno::NOENT)
}
