//! Programs of the user's that the supervisor starts: hooks. Owns how one is started and ended; what it is told and what its answer is
//! worth is the caller's. Used by `response` and `approvals`.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::file::in_memory;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// Where programs are looked for: nowhere that a session writes. PATH may begin with a virtual environment in the project.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that say who and where the operator is. Any other may lead a program to what a session wrote (PYTHONPATH, LD_PRELOAD).
const KEPT: [&str; 15] = [
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// No shell, no directory or variable that a project chose, and a group of its own. It reads what it is told, and says nothing.
pub(crate) fn command(argv: &[String], told: &[u8]) -> Result<Command, std::io::Error> {
    let (program, arguments) = argv.split_first().ok_or(Errno::INVAL)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").process_group(0).stdin(Stdio::from(in_memory(told)?));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let kept = KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(kept).env("PATH", PATH);
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
