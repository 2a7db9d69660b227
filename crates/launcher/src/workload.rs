//! The last steps of the untrusted side: own process group, standard streams, working directory, exec.
//! Owns what happens between fork and exec; everything here runs under the sandbox's filter already. Called by `init`.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::{exec, process, signal, socket};
use cofferdam_plan::LaunchPlan;
use rustix::io::Errno;

use crate::inheritance::Inheritance;
use crate::report::Message;
use crate::streams;

/// Never returns: becomes the command, or reports why not and ends. `wait` comes last.
pub(crate) fn become_command(inheritance: &Inheritance<'_>, terminal: Option<&OwnedFd>, wait: impl Fn()) -> ! {
    let plan = inheritance.plan;
    let message = prepare(inheritance, terminal).err().unwrap_or_else(|| {
        wait();
        inheritance.marks.mark(crate::marks::EXECUTE);
        Message::NotExecuted { errno: execute(plan).raw_os_error() }
    });
    let code = match message {
        Message::NotExecuted { errno } if errno == Errno::NOENT.raw_os_error() => 127,
        Message::NotExecuted { .. } => 126,
        _ => 125,
    };
    let sent = socket::send(inheritance.parent.as_fd(), &message.encode(), None);
    best_effort(sent, "the exit code says the same");
    process::exit_now(code)
}

fn prepare(inheritance: &Inheritance<'_>, terminal: Option<&OwnedFd>) -> Result<(), Message> {
    let plan = inheritance.plan;
    let failed = |text: &str| {
        let text = text.to_owned();
        move |errno: Errno| Message::Failed { step: u16::MAX, errno: errno.raw_os_error(), text }
    };
    // Without a pid namespace this process leads its session already, and its group with it.
    if plan.namespaces.pid {
        rustix::process::setpgid(None, None).map_err(failed("the process group"))?;
    }
    if let Some(terminal) = terminal {
        take_terminal(plan, terminal.as_fd()).map_err(failed("the terminal"))?;
    }
    streams::take_own_devices(&inheritance.kinds).map_err(failed("the streams"))?;
    inheritance.writers.become_streams().map_err(failed("the output"))?;
    process::close_at_exec_from(3).map_err(failed("descriptors"))?;
    for number in inheritance.descriptors {
        process::keep_at_exec(*number).map_err(failed("descriptors"))?;
    }
    signal::reset().map_err(failed("signals"))?;
    rustix::process::chdir(&plan.command.cwd).map_err(|errno| Message::NoDirectory { errno: errno.raw_os_error() })?;
    Ok(())
}

/// Streams that were terminals of the host become the sandbox's own; others stay what they are.
fn take_terminal(plan: &LaunchPlan, terminal: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::termios::tcsetpgrp(terminal, rustix::process::getpgrp())?;
    if plan.terminal.stdin {
        rustix::stdio::dup2_stdin(terminal)?;
    }
    if plan.terminal.stdout {
        rustix::stdio::dup2_stdout(terminal)?;
    }
    if plan.terminal.stderr {
        rustix::stdio::dup2_stderr(terminal)?;
    }
    Ok(())
}

fn execute(plan: &LaunchPlan) -> Errno {
    let strings = |values: Vec<String>| values.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    let environment: Vec<String> =
        plan.command.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (Ok(argv), Ok(environment)) = (strings(plan.command.argv.clone()), strings(environment)) else {
        return Errno::INVAL;
    };
    let path = plan.command.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
    exec::execute(&argv, &environment, path)
}
