//! The terminal of an interactive session: an own pty inside, raw mode outside, bytes copied in between.
//! Owns termios and window size on both sides; the copying is `supervisor`'s. Called by `init` and `join`, and by `supervisor`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_plan::Terminal;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, Winsize};

/// Of a window, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// The host's terminal as it was at start.
#[derive(Debug, Clone)]
pub struct Outer {
    termios: Termios,
    size: Winsize,
    /// Which of the standard streams it is.
    stream: Stream,
    is_input: bool,
    /// Other programs of a pipeline may write to it and read from it while the session runs.
    is_shared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Input,
    Output,
    Error,
}

impl Stream {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Stream::Input => rustix::stdio::stdin(),
            Stream::Output => rustix::stdio::stdout(),
            Stream::Error => rustix::stdio::stderr(),
        }
    }
}

impl Outer {
    pub fn look(terminal: Terminal) -> Result<Option<Self>, Errno> {
        let stream = match terminal {
            Terminal { stdin: true, .. } => Stream::Input,
            Terminal { stdout: true, .. } => Stream::Output,
            Terminal { stderr: true, .. } => Stream::Error,
            _ => return Ok(None),
        };
        let termios = rustix::termios::tcgetattr(stream.fd())?;
        let size = rustix::termios::tcgetwinsize(stream.fd())?;
        let is_shared = !terminal.stdin || !terminal.stdout;
        Ok(Some(Outer { termios, size, stream, is_input: terminal.stdin, is_shared }))
    }

    pub fn is_input(&self) -> bool {
        self.is_input
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether another program has taken the terminal for keys of its own, as a pager does.
    pub fn is_taken(&self) -> bool {
        !is_line_mode(self.stream.fd())
    }

    /// Whether this process may change the terminal now (it is not in the background).
    pub fn in_foreground(&self) -> bool {
        rustix::termios::tcgetpgrp(self.stream.fd()).is_ok_and(|group| group == rustix::process::getpgrp())
    }

    /// Returns how many bytes were typed before.
    pub fn make_raw(&self) -> Result<usize, Errno> {
        let mut raw = self.termios.clone();
        raw.make_raw();
        if self.is_shared {
            // Others write here too, and the sandbox's terminal leaves the carriage returns to this one.
            raw.output_modes = self.termios.output_modes;
        }
        rustix::termios::tcsetattr(self.stream.fd(), OptionalActions::Now, &raw)?;
        let waiting = rustix::io::ioctl_fionread(self.stream.fd())?;
        Ok(usize::try_from(waiting).unwrap_or(usize::MAX))
    }

    /// The key that ends input.
    pub fn end_of_input(&self) -> u8 {
        self.termios.special_codes[SpecialCodeIndex::VEOF]
    }

    pub fn restore(&self) -> Result<(), Errno> {
        rustix::termios::tcsetattr(self.stream.fd(), OptionalActions::Drain, &self.termios)
    }

    /// Copies the present window size to the sandbox's terminal, which tells the programs inside.
    /// With `rows` instead of its own where others need some.
    pub fn resize(&self, master: BorrowedFd<'_>, rows: Option<u16>) -> Result<(), Errno> {
        let mut size = rustix::termios::tcgetwinsize(self.stream.fd())?;
        size.ws_row = rows.unwrap_or(size.ws_row);
        rustix::termios::tcsetwinsize(master, size)
    }

    /// The sandbox's terminal begins as the user's own is.
    pub fn pass_on_to(&self, terminal: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut termios = self.termios.clone();
        if self.is_shared {
            // The host's terminal stays in its normal mode: it adds the carriage returns and echoes what is typed itself.
            termios.output_modes.remove(OutputModes::OPOST);
            termios.local_modes.remove(LocalModes::ECHO);
        }
        rustix::termios::tcsetattr(terminal, OptionalActions::Now, &termios)?;
        rustix::termios::tcsetwinsize(terminal, self.size)
    }

    /// The present window size.
    pub fn size(&self) -> Result<Size, Errno> {
        let size = rustix::termios::tcgetwinsize(self.stream.fd())?;
        Ok(Size { rows: size.ws_row, columns: size.ws_col })
    }
}

/// Where the sandbox's terminal output goes.
pub fn output(terminal: Terminal) -> BorrowedFd<'static> {
    match terminal {
        Terminal { stdout: true, .. } => rustix::stdio::stdout(),
        Terminal { stderr: true, .. } => rustix::stdio::stderr(),
        _ => rustix::stdio::stdin(),
    }
}

/// The same terminal on a descriptor of its own, non-blocking. O_NONBLOCK on the inherited one would hit the shell too.
pub fn reopen(terminal: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&terminal));
    rustix::fs::openat(CWD, path, access | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

/// Whether a terminal gathers lines; programs that want single keys switch that off.
pub fn is_line_mode(terminal: BorrowedFd<'_>) -> bool {
    rustix::termios::tcgetattr(terminal).is_ok_and(|termios| termios.local_modes.contains(LocalModes::ICANON))
}

/// The side of a pty that programs use, without making it the caller's controlling terminal.
pub fn open_other_side(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::pty::ioctl_tiocgptpeer(master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
}

/// Inside, for a command that joins: a pty of the sandbox's own devpts, as controlling terminal of the caller's session.
pub fn open_for_joined() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::openat(CWD, c"/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let slave = open_other_side(&master)?;
    rustix::process::ioctl_tiocsctty(&slave)?;
    Ok((master, slave))
}

/// Inside, before the command starts: a pty of the sandbox's own devpts, as controlling terminal of pid 1's session.
pub fn open_inside(outer: &Outer) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::openat(CWD, c"/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let slave = open_other_side(&master)?;
    outer.pass_on_to(slave.as_fd())?;
    rustix::process::ioctl_tiocsctty(&slave)?;
    Ok((master, slave))
}
