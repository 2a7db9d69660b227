//! Long text at a terminal, a screen at a time. Owns which program shows it; text that goes to a pipe or a file is written as it is.
//! Called by `commands::changes`.

use std::io::{self, IsTerminal as _, Write};
use std::process::{Child, Command, Stdio};

/// Gives `write` the pager at a terminal, and else stdout. A reader that goes away before the end is no error.
pub(crate) fn paged<T: Default>(write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let quiet = |result: io::Result<T>| match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(T::default()),
        other => other,
    };
    let started = if io::stdout().is_terminal() { start() } else { None };
    let Some(mut pager) = started else {
        let mut out = io::BufWriter::new(io::stdout().lock());
        return quiet(write(&mut out).and_then(|written| out.flush().map(|()| written)));
    };
    let written = match pager.stdin.take() {
        Some(input) => {
            let mut out = io::BufWriter::new(input);
            write(&mut out).and_then(|written| out.flush().map(|()| written))
        }
        None => Ok(T::default()),
    };
    pager.wait()?;
    quiet(written)
}

/// `PAGER`, else `less`; none where that is `cat`, empty or not there.
fn start() -> Option<Child> {
    let wanted = std::env::var("PAGER").ok();
    let mut command = match wanted.as_deref() {
        Some("" | "cat") => return None,
        Some(wanted) => {
            let mut command = Command::new("sh");
            command.args(["-c", wanted]);
            command
        }
        None => Command::new("less"),
    };
    if std::env::var_os("LESS").is_none() {
        // It ends by itself where everything fits, shows colours, and leaves the text on the screen.
        command.env("LESS", "FRX");
    }
    command.stdin(Stdio::piped()).spawn().ok()
}
