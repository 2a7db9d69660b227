//! Writing to the terminal. A reader that went away is no error: `sandbox explain | head` ends quietly.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use cofferdam_policy::is_unseen;

use crate::render::exit::OUR_FAILURE;

pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(OUR_FAILURE),
    }
}

/// Control and invisible characters as `\u{...}`: a path must not be able to draw on the user's screen.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// JSON that a terminal can show: what [`escaped`] escapes outside of strings, `\\uXXXX` says inside them. The value that a
/// parser reads stays the same.
pub(crate) fn json_text(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // Outside of strings JSON has no such character but the end of a line.
        if is_unseen(c) && c != '\n' {
            let mut units = [0u16; 2];
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// One JSON object on a line of stdout.
pub(crate) fn print_json(value: &serde_json::Value) -> ExitCode {
    print(&format!("{}\n", json_text(&value.to_string())))
}

/// A word that a person can paste into a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-+@".contains(&byte);
    if text.bytes().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// The same of a path behind a flag: its name may be the workload's choice.
pub(crate) fn flag_path(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

/// A size as a person reads it.
pub(crate) fn bytes(count: u64) -> String {
    cofferdam_plan::Bytes(count).to_string()
}

/// Writes to stderr. A reader that went away is no reason to end with anything but the command's own code.
pub(crate) fn say_text(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap_or_default();
}

/// A line to stderr, in the manner of `eprintln!`.
macro_rules! say {
    ($($argument:tt)*) => { $crate::render::output::say_text(&(format!($($argument)*) + "\n")) };
}
pub(crate) use say;
