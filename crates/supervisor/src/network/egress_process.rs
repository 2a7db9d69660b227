//! The egress process of a session, as the supervisor sees it: started beside the set-up, heard and told over a socket, ended
//! with the session. Owns that process and the way to it; what it decides is its own business, what it asks goes where all
//! questions go. Called by `launch` and the loop.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_kernel::best_effort;
use cofferdam_kernel::timing::time_until;
use cofferdam_kernel::{exec, network, process, signal, socket};
use cofferdam_plan::EgressPlan;
use cofferdam_reach::message::{Said, Told};
use cofferdam_reach::start::{
    AgentStart, LONGEST, NetworkStart, PROGRAM, PublishedPort, START, StartMessage, Terminates, VERSION,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use zeroize::Zeroizing;

use crate::error::LaunchError;

/// How long the last records may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long each of its first words may take: that it is ready, and where it makes an authority, the certificates to trust.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// Words that wait for it. It reads beside everything else that it does: with more it is broken, or an attacker's by now.
const MOST_UNREAD: usize = 1024;

/// What the egress process could reach if it were under the workload's control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Hosts,
    /// It is in a network namespace of its own.
    Nothing,
}

/// The program and the ends of the sockets, before the egress process was started.
pub(crate) struct Ends {
    program: PathBuf,
    /// For the child, which makes what hears connections.
    catcher: Option<OwnedFd>,
    given: Given,
    link: OwnedFd,
    ours: OwnedFd,
    /// The end of the process that connects inside, where ports are published.
    dials: Option<OwnedFd>,
}

/// What goes to the egress process with its start, and is this process's no longer then.
struct Given {
    /// Where it gets the sockets that were made inside.
    sockets: OwnedFd,
    published: Vec<(TcpListener, PublishedPort)>,
    dialer: Option<OwnedFd>,
}

impl Ends {
    /// Opens what the host is to reach as well, and looks for the program: a port that is taken, or a half of an installation,
    /// is no session's fault, and told before there is one.
    pub(crate) fn new(plan: &EgressPlan, program: Option<&Path>) -> Result<Ends, LaunchError> {
        let program = program.unwrap_or(Path::new(PROGRAM));
        check(program)?;
        let mut published = Vec::new();
        for wanted in &plan.network.publish {
            let (host_port, port) = (wanted.value.host_port, wanted.value.port);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, host_port));
            let listener = listener.map_err(|error| LaunchError::Publish {
                port: host_port,
                origin: Box::new(wanted.origin.clone()),
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })?;
            published.push((listener, PublishedPort { port, origin: wanted.origin.clone() }));
        }
        let pair = || socket::pair().map_err(LaunchError::Supervise);
        let (catcher, sockets) = pair()?;
        let (ours, link) = pair()?;
        let (dialer, dials) = if published.is_empty() { None } else { Some(pair()?) }.unzip();
        let given = Given { sockets, published, dialer };
        Ok(Ends { program: program.to_path_buf(), catcher: Some(catcher), given, link, ours, dials })
    }

    pub(crate) fn catcher(&mut self) -> Option<OwnedFd> {
        self.catcher.take()
    }

    /// For a session of which every host is refused. A missing program is told when one is asked for.
    pub(crate) fn refusing(program: PathBuf) -> Result<Ends, Errno> {
        let (catcher, sockets) = socket::pair()?;
        let (ours, link) = socket::pair()?;
        let given = Given { sockets, published: Vec::new(), dialer: None };
        Ok(Ends { program, catcher: Some(catcher), given, link, ours, dials: None })
    }

    pub(crate) fn check_program(&self) -> Result<(), LaunchError> {
        check(&self.program)
    }

    /// Where the sockets come from that were made inside.
    pub(crate) fn sockets(&self) -> BorrowedFd<'_> {
        self.given.sockets.as_fd()
    }

    /// Takes the place of where they come from.
    pub(crate) fn take_sockets_from(&mut self, sockets: OwnedFd) {
        self.given.sockets = sockets;
    }

    /// Starts the program, which has nothing of this process but the link.
    pub(crate) fn start(self, reach: Reach) -> Result<Starting, LaunchError> {
        let Ends { program, catcher, given, link, ours, dials } = self;
        drop(catcher);
        let argv = CString::new(program.as_os_str().as_bytes());
        let argv = [argv.map_err(|_| LaunchError::EgressProgram { path: program.clone(), errno: Errno::INVAL })?];
        let Some(pid) = process::fork().map_err(LaunchError::Supervise)? else {
            let left = leave_everything(&link).and_then(|()| match reach {
                Reach::Hosts => Ok(()),
                Reach::Nothing => network::leave(),
            });
            let errno = left.err().unwrap_or_else(|| exec::execute(&argv, &[], ""));
            if let Ok(bytes) = serde_json::to_vec(&Said::NotExecuted { errno: errno.raw_os_error() }) {
                best_effort(socket::send(rustix::stdio::stdin(), &bytes, None), "its end is heard instead");
            }
            process::exit_now(1);
        };
        let process = Pid::from_raw(pid).ok_or(LaunchError::Supervise(Errno::SRCH))?;
        let egress = Egress { program, link: Some(ours), process: Some(process), dials, unread: VecDeque::new() };
        Ok(Starting { egress, given })
    }
}

/// Whether it is there, and may be executed by this process.
pub(crate) fn check(program: &Path) -> Result<(), LaunchError> {
    let missing = |errno| LaunchError::EgressProgram { path: program.to_path_buf(), errno };
    if !program.is_absolute() {
        return Err(missing(Errno::NOENT));
    }
    rustix::fs::access(program, Access::EXEC_OK).map_err(missing)?;
    if is_trusted(program).map_err(missing)? {
        return Ok(());
    }
    Err(LaunchError::EgressOwner { path: program.to_path_buf() })
}

/// The command may lie where every user can put a file, as a download does. A program beside it counts only if it belongs to
/// root, to this user or to the owner of the command, and no other user can write to it.
pub fn is_trusted(program: &Path) -> Result<bool, Errno> {
    // A link that another user made leads to what that user chose.
    let (entry, found) = (rustix::fs::lstat(program)?, rustix::fs::stat(program)?);
    let own = rustix::fs::stat("/proc/self/exe").map(|own| own.st_uid);
    let owners = [Ok(0), Ok(rustix::process::geteuid().as_raw()), own];
    let is_owned = [entry.st_uid, found.st_uid].iter().all(|owner| owners.contains(&Ok(*owner)));
    Ok(is_owned && !Mode::from_raw_mode(found.st_mode).contains(Mode::WOTH))
}

/// In the child: the link as standard input, and no other thing that was open. Signals of a terminal are for the command; the
/// egress process ends with its supervisor.
fn leave_everything(link: &OwnedFd) -> Result<(), Errno> {
    signal::block_all()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(link)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    process::keep_only(&[])
}

/// The process was forked: it says that it is ready, or why the program could not be executed.
pub(crate) struct Starting {
    egress: Egress,
    given: Given,
}

impl Starting {
    /// Hands over everything that it works with, once it is the right program and cannot be traced. Secrets are forgotten here.
    pub(crate) fn give(self, plan: &EgressPlan, terminates: Option<Terminates>) -> Result<Egress, LaunchError> {
        let Starting { mut egress, given: Given { sockets, published, dialer } } = self;
        let (said, _) = egress.first_word().map_err(|why| match why {
            NoWord::NotExecuted(errno) => LaunchError::EgressProgram { path: egress.program.clone(), errno },
            other => egress.failed(&other),
        })?;
        let Said::Ready { version } = said else {
            return Err(egress.failed(&"it said something else first"));
        };
        if version != VERSION {
            return Err(LaunchError::EgressVersion { path: egress.program.clone(), said: version, expected: VERSION });
        }
        let (listeners, published): (Vec<TcpListener>, Vec<PublishedPort>) = published.into_iter().unzip();
        let agent = plan.agent.as_ref();
        let message = StartMessage {
            version: VERSION.to_owned(),
            network: NetworkStart::of(plan.network.clone()),
            unknown: plan.unknown.clone(),
            agent: agent.map(|agent| AgentStart { socket: agent.socket.clone(), usage: agent.usage, asks: agent.asks }),
            published,
            terminates,
        };
        let document = document(&message).map_err(|error| egress.failed(&error))?;
        drop(message);
        let mut all = vec![document.as_fd(), sockets.as_fd()];
        all.extend(dialer.as_ref().map(AsFd::as_fd));
        all.extend(listeners.iter().map(AsFd::as_fd));
        egress.send(&all).map_err(|errno| egress.failed(&errno))?;
        Ok(egress)
    }
}

/// In memory, sealed. What is written is measured before: a buffer that grows would leave secrets behind.
fn document(message: &StartMessage) -> std::io::Result<File> {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, message)?;
    if length.0 > LONGEST {
        return Err(std::io::Error::other(format!("its start is longer than {LONGEST} bytes")));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(length.0));
    serde_json::to_writer(&mut *text, message)?;
    let mut file = File::from(rustix::fs::memfd_create("start", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(&text)?;
    std::io::Seek::rewind(&mut file)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Counts what is written to it.
struct Length(usize);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Why one of its first words was not heard.
#[derive(Debug, thiserror::Error)]
enum NoWord {
    #[error("it took too long")]
    Late,
    #[error("{0}")]
    Warned(String),
    #[error("it cannot be executed: {0}")]
    NotExecuted(Errno),
    #[error("it ended without a word")]
    Ended,
    #[error("{0}")]
    Kernel(Errno),
}

/// What programs inside are to believe in TLS.
pub(crate) struct Authorities {
    pub(crate) pem: Vec<u8>,
    pub(crate) java: Vec<u8>,
}

/// The running process.
pub(crate) struct Egress {
    program: PathBuf,
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

    /// Waits for what programs inside are to believe, with the authority that it made.
    pub(crate) fn authorities(&mut self) -> Result<Authorities, LaunchError> {
        let (said, files) = self.first_word().map_err(|why| self.failed(&why))?;
        let (Said::Authority, Ok([pem, java])) = (said, <[OwnedFd; 2]>::try_from(files)) else {
            return Err(self.failed(&"it told of no authority"));
        };
        let read = |file: OwnedFd| content_of(file).map_err(|error| self.failed(&error));
        Ok(Authorities { pem: read(pem)?, java: read(java)? })
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> LaunchError {
        LaunchError::Egress { path: self.program.clone(), why: why.to_string() }
    }

    /// Waits for a word before there is a session.
    fn first_word(&mut self) -> Result<(Said, Vec<OwnedFd>), NoWord> {
        let deadline = Instant::now() + FIRST_WORD;
        let process = self.process.ok_or(NoWord::Ended)?;
        // The child of the clone has a copy of the link's other end for a while, so that its end is not that of the process.
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).map_err(NoWord::Kernel)?;
        loop {
            let link = self.link.as_ref().ok_or(NoWord::Ended)?;
            let mut fds = [PollFd::new(link, PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
            match poll(&mut fds, Some(&time_until(deadline))) {
                Ok(0) => return Err(NoWord::Late),
                Ok(_) if fds[0].revents().is_empty() => return Err(NoWord::Ended),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(NoWord::Kernel(errno)),
            }
            match socket::receive_now(link) {
                Ok((bytes, _)) if bytes.is_empty() => self.link = None,
                Ok((bytes, files)) => match serde_json::from_slice(&bytes) {
                    Ok(Said::NotExecuted { errno }) => {
                        return Err(NoWord::NotExecuted(Errno::from_raw_os_error(errno)));
                    }
                    Ok(Said::Warn { text }) => return Err(NoWord::Warned(text)),
                    Ok(said) => return Ok((said, files)),
                    Err(_) => return Err(NoWord::Warned("it said what this version does not know".to_owned())),
                },
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(NoWord::Kernel(errno)),
            }
        }
    }

    /// Descriptors of the start, as many as a message carries.
    fn send(&self, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let link = self.link.as_ref().ok_or(Errno::PIPE)?;
        let mut some = descriptors.chunks(socket::MOST_DESCRIPTORS);
        some.try_for_each(|some| socket::send_all(link.as_fd(), START, some))
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

    /// Never waits: the process reads what the workload and servers send, and may be under their control.
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
        // One that never stops to talk has no more time than one that says nothing.
        while let Some(link) = self.link.as_ref().filter(|_| Instant::now() < deadline) {
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

/// Of a file in memory, which never has to be waited for.
fn content_of(file: OwnedFd) -> std::io::Result<Vec<u8>> {
    // Anything but a memfd has no seals.
    rustix::fs::fcntl_get_seals(&file)?;
    let length = usize::try_from(rustix::fs::fstat(&file)?.st_size).ok().filter(|length| *length <= LONGEST);
    let mut content = vec![0; length.ok_or(Errno::FBIG)?];
    File::from(file).read_exact_at(&mut content, 0)?;
    Ok(content)
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
        let mut egress = Egress {
            program: PathBuf::new(),
            link: Some(ours),
            process: Some(pid),
            dials: None,
            unread: VecDeque::new(),
        };
        let began = Instant::now();
        for id in 0..5_000 {
            egress.tell(&Told::Answer { id, allowed: false, keep: Vec::new(), origin: "a test".to_owned() });
        }
        assert!(egress.process.is_none() && egress.unread.len() <= MOST_UNREAD);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        drop(theirs);
        assert!(matches!(egress.hear(), Heard::Gone));
    }

    #[test]
    fn certificates_are_read_from_nothing_that_has_to_be_waited_for() {
        let waits = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        assert!(content_of(waits).is_err());
        let mut file = File::from(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd"));
        file.write_all(b"certificate").expect("it is written");
        assert_eq!(content_of(file.into()).expect("it is read"), b"certificate");
    }

    #[test]
    fn a_process_that_never_stops_to_talk_does_not_keep_the_session() {
        let (ours, theirs) = socket::pair().expect("a pair");
        // Bounded, so that a loop that hears it to its end fails.
        let until = Instant::now() + 4 * LAST_WORDS;
        let word = serde_json::to_vec(&Said::Warn { text: "and".to_owned() }).expect("a word");
        let talks =
            std::thread::spawn(
                move || {
                    while Instant::now() < until && socket::send(theirs.as_fd(), &word, None).is_ok() {}
                },
            );
        let mut egress =
            Egress { program: PathBuf::new(), link: Some(ours), process: None, dials: None, unread: VecDeque::new() };
        let began = Instant::now();
        // Records take time, in which the next words come.
        egress.end(|_| std::thread::sleep(Duration::from_millis(5)));
        assert!(began.elapsed() < LAST_WORDS + Duration::from_secs(2), "{:?}", began.elapsed());
        talks.join().expect("its link is gone");
    }
}
