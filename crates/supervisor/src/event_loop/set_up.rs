//! Reports of the set-up child, in the loop: each descriptor goes to the component that needs it.

use std::os::fd::OwnedFd;

use cofferdam_kernel::seccomp::Listener;
use cofferdam_launcher::report::{JOINED, Message};
use cofferdam_plan::Trigger;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::event_loop::Running;
use crate::network::no_route::Counters;
use crate::network::port_dialer::Dialer;
use crate::records::startup::Task;
use crate::terminal::input::Input;

impl Running<'_> {
    pub(crate) fn take_reports(&mut self) -> Result<(), Errno> {
        while let Some((bytes, fds)) = self.set_up.next()? {
            self.take_report(&bytes, fds)?;
        }
        Ok(())
    }

    fn take_report(&mut self, bytes: &[u8], mut fds: Vec<OwnedFd>) -> Result<(), Errno> {
        if bytes == Message::Namespaces.encode() {
            self.network.counters = fds.drain(JOINED.len().min(fds.len())..).next().map(Counters::of);
            if let Some(way) = self.network.egress.as_mut().and_then(|egress| egress.dials.take()) {
                self.network.dialer = Some(Dialer::start(&way, &fds)?);
            }
            self.attached.namespaces = Some(fds);
            return Ok(());
        }
        match (Message::decode(bytes), fds.pop()) {
            (None, _) => {
                self.set_up.socket = None;
                let runs = self.set_up.is_done(self.plan) && self.set_up.reports.is_empty();
                match self.options.ordered {
                    Some(_) if runs => self.begin_order()?,
                    None if runs => self.startup.add(Task::Started),
                    _ => {}
                }
            }
            (Some(Message::Listener), Some(fd)) => {
                self.set_up.stands = true;
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
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.processes = Some(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?);
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
            (Some(Message::View), Some(fd)) => {
                self.checkpoints.as_mut().map_or(&mut self.views, |checkpoints| &mut checkpoints.views).push(fd);
            }
            (Some(Message::Checkpoints), Some(fd)) => {
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.pipe = Some(fd);
                }
            }
            (Some(Message::Segments), Some(fd)) => self.monitor.count_segments(fd),
            (Some(Message::Terminal), Some(fd)) => {
                if let Some(relay) = &mut self.streams.relay {
                    relay.open(fd)?;
                }
            }
            (Some(Message::Input), Some(fd)) => self.streams.input = Some(Input::new(fd)?),
            (Some(message), _) => self.set_up.reports.push(message),
        }
        Ok(())
    }
}
