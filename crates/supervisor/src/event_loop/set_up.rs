//! Reports of the set-up child, in the loop: each descriptor goes to the component that needs it.

use std::os::fd::AsFd;

use cofferdam_kernel::seccomp::Listener;
use cofferdam_launcher::report::{JOINED, Message};
use cofferdam_plan::Trigger;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::event_loop::Running;
use crate::network::no_route::Counters;
use crate::network::port_dialer::Dialer;
use crate::records::startup::Task;
use crate::terminal::input::Input;

impl Running<'_> {
    pub(crate) fn take_reports(&mut self) -> Result<(), Errno> {
        while self.socket.is_some() && readable(self.socket.as_ref())? {
            self.take_report()?;
        }
        Ok(())
    }

    /// The set-up child reports; it closes its end once the command runs.
    fn take_report(&mut self) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let (bytes, mut fds) = match cofferdam_kernel::socket::receive_now(socket) {
            // It was taken earlier in this turn.
            Err(Errno::AGAIN) => return Ok(()),
            other => other?,
        };
        if bytes == Message::Namespaces.encode() {
            self.network.counters = fds.drain(JOINED.len().min(fds.len())..).next().map(Counters::of);
            if let Some(way) = self.network.egress.as_mut().and_then(|egress| egress.dials.take()) {
                self.network.dialer = Some(Dialer::start(&way, &fds)?);
            }
            self.attached.namespaces = Some(fds);
            return Ok(());
        }
        match (Message::decode(&bytes), fds.pop()) {
            (None, _) => {
                self.socket = None;
                let is_set_up = self.set_up || !self.plan.namespaces.pid;
                if is_set_up && self.reports.is_empty() && self.options.ordered.is_some() {
                    self.begin_order()?;
                } else if is_set_up && self.reports.is_empty() {
                    self.startup.add(Task::Started);
                }
            }
            (Some(Message::Listener), Some(fd)) => {
                self.set_up = true;
                if let Some(gate) = &mut self.gate {
                    gate.listen(Listener::from_fd(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?));
                }
                self.listener = Some(Listener::from_fd(fd));
                self.startup.add(Task::Entered);
                if self.streams.relay.is_some() {
                    // The prompt on the terminal has to be there before the first output.
                    self.finish_startup()?;
                }
            }
            (Some(Message::Processes), Some(fd)) => {
                if let Some(gate) = &mut self.gate {
                    // A reported call comes with the number that its process has out here.
                    let reported = self.plan.gate.as_ref().is_some_and(|gate| gate.trigger == Trigger::Notify);
                    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    gate.know(if reported {
                        rustix::fs::open("/proc", flags, Mode::empty())?
                    } else {
                        rustix::io::fcntl_dupfd_cloexec(&fd, 3)?
                    });
                }
                if let Some(keeper) = &mut self.keeper {
                    keeper.know(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?);
                }
                if self.plan.limits.counts_processes() {
                    self.monitor.count_in(fd);
                }
            }
            (Some(Message::Gate), Some(fd)) => {
                match (&mut self.gate, self.plan.gate.as_ref().map(|gate| gate.trigger)) {
                    (Some(gate), Some(Trigger::Fuse)) => gate.serve(fd),
                    (Some(gate), Some(Trigger::Notify)) => gate.serve_calls(fd)?,
                    _ => {}
                }
            }
            (Some(Message::Mounts), Some(fd)) => {
                if let Some(gate) = &mut self.gate {
                    gate.mount_in(fd);
                }
            }
            (Some(Message::Tree), Some(fd)) => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.enter(fd)?;
                }
            }
            (Some(Message::Segments), Some(fd)) => self.monitor.count_segments(fd),
            (Some(Message::Terminal), Some(fd)) => {
                if let Some(relay) = &mut self.streams.relay {
                    relay.open(fd)?;
                }
            }
            (Some(Message::Input), Some(fd)) => self.streams.input = Some(Input::new(fd)?),
            (Some(message), _) => self.reports.push(message),
        }
        Ok(())
    }
}

fn readable(fd: Option<&impl AsFd>) -> Result<bool, Errno> {
    let Some(fd) = fd else { return Ok(false) };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!fds[0].revents().is_empty())
}
