//! Where the programs of a test run are. Decided at run time: an archive of tests is unpacked elsewhere, by another user.

use std::path::PathBuf;

/// A program built with the tests: nextest names it, else it lies beside or above the running one.
pub fn program(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(format!("NEXTEST_BIN_EXE_{name}")).map(PathBuf::from);
    named.filter(|path| path.is_file()).or_else(|| sibling(name))
}

/// Beside the running program, or in the directory above (`target/debug/deps/test` and `target/debug/name`).
pub fn sibling(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file())
}
