//! The egress process of a session, as the supervisor sees it: started beside the set-up, heard and told over a socket, ended
//! with the session. Owns that process and the way to it; what it decides is its own business, what it asks goes where all
//! questions go. Called by `launch` and the loop.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_egress::message::{Said, Told};
use cofferdam_egress::{AgentStart, Published, Start, Terminates, serve};
use cofferdam_kernel::best_effort;
use cofferdam_kernel::timing::time_until;
use cofferdam_kernel::{process, signal, socket};
use cofferdam_plan::EgressPlan;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::error::LaunchError;

/// How long the last records may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long it may take to make an authority.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// Words that wait for it. It reads beside everything else that it does: with more it is broken, or an attacker's by now.
const MOST_UNREAD: usize = 1024;

/// The ends of the sockets, before the egress process was started.
pub(crate) struct Ends {
    /// For the child, which makes what hears connections.
    catcher: Option<OwnedFd>,
    sockets: OwnedFd,
    link: OwnedFd,
    ours: OwnedFd,
    published: Vec<Published>,
    /// Both ends, where ports are published.
    dialer: Option<(OwnedFd, OwnedFd)>,
}

impl Ends {
    /// Opens what the host is to reach as well: a port that is taken is no session's fault, and told before there is one.
    pub(crate) fn new(plan: &EgressPlan) -> Result<Ends, LaunchError> {
        let mut published = Vec::new();
        for wanted in &plan.network.publish {
            let (host_port, port) = (wanted.value.host_port, wanted.value.port);
            let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, host_port));
            let listener = listener.map_err(|error| LaunchError::Publish {
                port: host_port,
                origin: Box::new(wanted.origin.clone()),
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })?;
            published.push(Published { listener, port, origin: wanted.origin.clone() });
        }
        let pair = || socket::pair().map_err(LaunchError::Supervise);
        let (catcher, sockets) = pair()?;
        let (ours, link) = pair()?;
        let dialer = if published.is_empty() { None } else { Some(pair()?) };
        Ok(Ends { catcher: Some(catcher), sockets, link, ours, published, dialer })
    }

    pub(crate) fn catcher(&mut self) -> Option<OwnedFd> {
        self.catcher.take()
    }

    /// Starts the process. It has nothing of this one but its ends, and what is given to it; that is forgotten here.
    pub(crate) fn start(self, plan: &EgressPlan, terminates: Option<Terminates>) -> Result<Egress, Errno> {
        let Ends { catcher, sockets, link, ours, published, dialer } = self;
        drop(catcher);
        let (asks, dials) = dialer.unzip();
        let Some(pid) = process::fork()? else {
            drop(ours);
            let start = Start {
                network: plan.network.clone(),
                unknown: plan.unknown.clone(),
                published,
                dialer: asks,
                agent: plan.agent.as_ref().map(|agent| AgentStart {
                    socket: agent.socket.clone(),
                    usage: agent.usage,
                    asks: agent.asks,
                }),
                sockets,
                link,
                terminates,
            };
            process::exit_now(i32::from(run(start).is_err()));
        };
        let process = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
        Ok(Egress { link: Some(ours), process: Some(process), dials, unread: VecDeque::new() })
    }
}

/// The life of the egress process.
fn run(start: Start) -> Result<(), String> {
    // Signals of a terminal are for the command; this process ends with its supervisor.
    signal::block_all().map_err(|errno| errno.to_string())?;
    let mut kept = vec![start.sockets.as_fd(), start.link.as_fd()];
    kept.extend(start.published.iter().map(|one| one.listener.as_fd()));
    kept.extend(start.dialer.as_ref().map(AsFd::as_fd));
    leave_everything(&kept).map_err(|errno| errno.to_string())?;
    let last = start.link.try_clone().map_err(|error| error.to_string())?;
    let served = serve(start);
    if let Err(why) = &served
        && let Ok(bytes) = serde_json::to_vec(&Said::Warn { text: format!("nothing outside can be reached: {why}") })
    {
        best_effort(socket::send(last.as_fd(), &bytes, None), "the supervisor may be gone already");
    }
    served
}

/// Keeps these, and nothing else that was open.
fn leave_everything(kept: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    process::keep_only(kept)
}

/// The running process.
pub(crate) struct Egress {
    link: Option<OwnedFd>,
    process: Option<Pid>,
    /// The end of the dialer, which connects inside, until there is one.
    pub(crate) dials: Option<OwnedFd>,
    /// What it was to be told and has no room for yet.
    unread: VecDeque<Vec<u8>>,
}

impl Egress {
    pub(crate) fn wanted(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let flags = if self.unread.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        self.link.as_ref().map(|link| (link.as_fd(), flags))
    }

    /// Waits for the certificate of its authority.
    pub(crate) fn authority(&mut self) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + FIRST_WORD;
        while let Some(link) = &self.link {
            let mut fds = [PollFd::new(link, PollFlags::IN)];
            match poll(&mut fds, Some(&time_until(deadline))) {
                Ok(0) => return Err("it took too long to start".to_owned()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.to_string()),
            }
            match self.hear() {
                Heard::Said(Said::Authority { certificate }) => return Ok(certificate),
                Heard::Said(Said::Warn { text }) => return Err(text),
                Heard::Said(_) | Heard::Nothing | Heard::Gone => {}
            }
        }
        Err("it ended".to_owned())
    }

    /// The next word of it, if there is one now. It is gone when nothing more can come.
    pub(crate) fn hear(&mut self) -> Heard {
        self.send_unread();
        let Some(link) = &self.link else { return Heard::Gone };
        match socket::receive_now(link) {
            Ok((bytes, _)) if bytes.is_empty() => {
                self.link = None;
                Heard::Gone
            }
            Ok((bytes, _)) => serde_json::from_slice(&bytes).map_or(Heard::Nothing, Heard::Said),
            Err(Errno::AGAIN) => Heard::Nothing,
            Err(_) => {
                self.link = None;
                Heard::Gone
            }
        }
    }

    /// Never waits: the process reads strangers' bytes, and may be theirs.
    pub(crate) fn tell(&mut self, told: &Told) {
        let Ok(bytes) = serde_json::to_vec(told) else { return };
        self.unread.push_back(bytes);
        self.send_unread();
        if self.unread.len() > MOST_UNREAD {
            // Its end is heard, and nothing outside is reached any more.
            self.unread.clear();
            self.reap();
        }
    }

    fn send_unread(&mut self) {
        while let (Some(link), Some(bytes)) = (&self.link, self.unread.front()) {
            match socket::send_now(link.as_fd(), bytes) {
                Err(Errno::AGAIN) => return,
                // An error is that of its end, which is heard.
                _ => self.unread.pop_front(),
            };
        }
    }

    /// Asks for the last records and waits for them, each given to `take`.
    pub(crate) fn end(&mut self, mut take: impl FnMut(Said)) {
        let deadline = Instant::now() + LAST_WORDS;
        if let Some(link) = &self.link {
            best_effort(rustix::net::shutdown(link, Shutdown::Write), "it may be gone already");
        }
        while let Some(link) = &self.link {
            let mut fds = [PollFd::new(link, PollFlags::IN)];
            match poll(&mut fds, Some(&time_until(deadline))) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if let Heard::Said(said) = self.hear() {
                take(said);
            }
        }
        self.link = None;
        self.reap();
    }

    fn reap(&mut self) {
        let Some(process) = self.process.take() else { return };
        // It has nothing more to do; where it hangs, it does not keep the session.
        best_effort(rustix::process::kill_process(process, Signal::KILL), "it may be gone already");
        while matches!(rustix::process::waitpid(Some(process), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.reap();
    }
}

/// What came from the egress process.
pub(crate) enum Heard {
    Said(Said),
    Nothing,
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_read_is_ended_and_the_supervisor_does_not_wait_for_it() {
        let (ours, theirs) = socket::pair().expect("a pair");
        let child = process::fork().expect("it can be made");
        let Some(pid) = child else {
            // Reads nothing.
            std::thread::sleep(Duration::from_mins(1));
            process::exit_now(0);
        };
        let pid = Pid::from_raw(pid).expect("a pid");
        let mut egress = Egress { link: Some(ours), process: Some(pid), dials: None, unread: VecDeque::new() };
        let began = Instant::now();
        for id in 0..5_000 {
            egress.tell(&Told::Answer { id, allowed: false, keep: None, origin: "a test".to_owned() });
        }
        assert!(egress.process.is_none() && egress.unread.len() <= MOST_UNREAD);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        drop(theirs);
        assert!(matches!(egress.hear(), Heard::Gone));
    }
}
