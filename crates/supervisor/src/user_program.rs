//! Programs of the user's that the supervisor starts: hooks. Owns how one is started and ended; what it is told and what its answer is
//! worth is the caller's. Used by `response` and `approvals`.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::file::in_memory;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// No shell, no directory that a project chose, and a group of its own. It reads what it is told, and says nothing.
pub(crate) fn command(argv: &[String], told: &[u8]) -> Result<Command, std::io::Error> {
    let (program, arguments) = argv.split_first().ok_or(Errno::INVAL)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").process_group(0).stdin(Stdio::from(in_memory(told)?));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

pub(crate) fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// With everything that it has started and that has not left its group. Before it is reaped: until then its number, and that of its
/// group, are no other process's.
pub(crate) fn kill_group(child: &Child) {
    if let Some(group) = pid_of(child) {
        best_effort(rustix::process::kill_process_group(group, Signal::KILL), "its processes may have ended");
    }
}
