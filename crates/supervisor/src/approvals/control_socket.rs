//! The control socket, where clients answer questions: a UNIX socket in the session's directory, one JSON object a line
//! (docs/decisions/0019), and the hook. Owns connections and the rule that an answer is to one open question, once; what an
//! answer does is the gate's business. Driven by the loop, and never waits: a client that does not read is dropped.

mod hook;
mod peer;

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_host::state::{make_all, sessions_in};
use cofferdam_kernel::best_effort;
use cofferdam_kernel::timing::seconds_now;
use cofferdam_launcher::join::JoinRequest;
use cofferdam_wire::exec::{ExecId, ExecRequest, OutputStream};
use cofferdam_wire::protocol::{
    Command, Event, FsRequest, MOST_COMMAND_BYTES, PolicyScope, SessionStatus, VERSION, command, line,
};
use cofferdam_wire::{Cause, Group, Keep, Question, QuestionId, Reach, Settled, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::approvals::control_socket::hook::Hooks;
use crate::store::session_dir::short_socket;

/// The name of the socket in a session's directory.
pub(crate) const SOCKET: &str = "socket";

const MOST_CLIENTS: usize = 32;

/// What a command can come with.
const MOST_DESCRIPTORS: usize = 4;

/// What may wait for a client that does not read.
const MOST_UNREAD: usize = 4 << 20;

/// The longest that a client takes to say hello.
const GREETING: Duration = Duration::from_secs(5);

/// After an error at accepting, as when descriptors are used up.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(u64);

/// What `poll` has to say about the socket's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Listener,
    Client(ClientId),
    Hook(hook::Ready),
}

/// What a client or a hook outside decided or wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// To be settled by the gate; no other client or hook can answer the same question any more.
    Answer {
        id: QuestionId,
        verdict: Verdict,
        cause: Cause,
    },
    /// To be answered with [`ControlSocket::ok`] or [`ControlSocket::refuse`].
    Save(ClientId, PolicyScope),
    Kill,
    /// To be fetched with [`ControlSocket::take_join_request`], and answered.
    Attach(ClientId),
    /// To be answered with [`ControlSocket::status`].
    Status(ClientId),
    /// These are to be answered by what becomes of them.
    Exec(ClientId, ExecRequest),
    Output {
        client: ClientId,
        exec: ExecId,
        stream: OutputStream,
        from: u64,
        follow: bool,
    },
    Input {
        client: ClientId,
        exec: ExecId,
        data: Vec<u8>,
        end: bool,
    },
    Signal {
        client: ClientId,
        exec: ExecId,
        signal: i32,
    },
    Wait(ClientId, ExecId),
    Checkpoint {
        client: ClientId,
        label: String,
    },
    PutBack {
        client: ClientId,
        to: usize,
        seen: Option<usize>,
    },
}

pub(crate) struct ControlSocket {
    directory: OwnedFd,
    /// Where the socket is, if its name in the directory is a link.
    short: Option<PathBuf>,
    listener: OwnedFd,
    session: String,
    clients: Vec<Client>,
    next_client: u64,
    open: Vec<Open>,
    /// The largest id that was asked: a smaller one that is not open was answered.
    newest: QuestionId,
    hooks: Option<Hooks>,
    /// When to listen again.
    deaf_until: Option<Instant>,
}

/// A question that waits for an answer.
struct Open {
    id: QuestionId,
    line: Vec<u8>,
    has_toolchain: bool,
    group: Option<Group>,
    /// A client or a hook answered, and the gate is about to settle it.
    answered: bool,
}

struct Client {
    id: ClientId,
    socket: OwnedFd,
    /// Until it has said hello.
    stranger_until: Option<Instant>,
    heard: Vec<u8>,
    /// Came along with what was heard.
    descriptors: Vec<OwnedFd>,
    request: Option<JoinRequest>,
    unsent: Vec<u8>,
    /// Nothing more is heard; closed when all is sent.
    leaving: bool,
    gone: bool,
}

/// Binds to a name that leads to `socket` in the session's directory; returns where the socket is, if not there. A socket's name has
/// 107 bytes at most. One that begins at a descriptor leads elsewhere in every process, and each start of a session would look
/// for it where any process stands: that one comes last.
fn bind(listener: &OwnedFd, session_dir: &Path, session: &str, directory: &OwnedFd) -> Result<Option<PathBuf>, Errno> {
    if let Ok(address) = SocketAddrUnix::new(session_dir.join(SOCKET).as_path()) {
        return rustix::net::bind(listener, &address).map(|()| None);
    }
    let state = session_dir.ancestors().nth(2).filter(|state| session_dir.parent() == Some(&sessions_in(state)));
    if let Some(short) = state.map(|state| short_socket(state, session))
        && let Ok(address) = SocketAddrUnix::new(short.as_path())
        && make_all(short.parent().unwrap_or(&short)).and_then(|()| rustix::net::bind(listener, &address)).is_ok()
    {
        rustix::fs::symlinkat(&short, directory, SOCKET)?;
        return Ok(Some(short));
    }
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))?;
    rustix::net::bind(listener, &address).map(|()| None)
}

impl ControlSocket {
    /// Listens on `socket` in the session's directory. `hook` is a program with its arguments.
    pub(crate) fn open(session_dir: &Path, session: &str, hook: Option<&[String]>) -> Result<ControlSocket, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, session_dir, flags, Mode::empty())?;
        let listener = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        let short = bind(&listener, session_dir, session, &directory)?;
        // Fails if the socket is not in this directory.
        rustix::fs::chmodat(&directory, SOCKET, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        rustix::net::listen(&listener, 16)?;
        Ok(ControlSocket {
            directory,
            short,
            listener,
            session: session.to_owned(),
            clients: Vec::new(),
            next_client: 1,
            open: Vec::new(),
            newest: 0,
            hooks: hook.map(Hooks::new).transpose()?,
            deaf_until: None,
        })
    }

    /// What to poll for, besides errors.
    pub(crate) fn wanted(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Ready)> {
        let mut wanted = Vec::with_capacity(self.clients.len() + 1);
        if self.deaf_until.is_none() {
            wanted.push((self.listener.as_fd(), PollFlags::IN, Ready::Listener));
        }
        for client in &self.clients {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !client.leaving);
            flags.set(PollFlags::OUT, !client.unsent.is_empty());
            wanted.push((client.socket.as_fd(), flags, Ready::Client(client.id)));
        }
        let hooked = self.hooks.iter().flat_map(Hooks::wanted);
        wanted.extend(hooked.map(|(fd, ready)| (fd, PollFlags::IN, Ready::Hook(ready))));
        wanted
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.clients.iter().filter_map(|client| client.stranger_until).chain(self.deaf_until).min()
    }

    pub(crate) fn check_clock(&mut self, now: Instant) {
        self.deaf_until = self.deaf_until.filter(|until| now < *until);
        // What a client said in time is heard first: this process may have had no turn meanwhile.
        self.clients
            .retain(|client| client.stranger_until.is_none_or(|until| now < until) || client.has_said_something());
    }

    pub(crate) fn turn(&mut self, ready: Ready) -> Result<Vec<Said>, Errno> {
        let said = match ready {
            Ready::Listener => {
                self.welcome();
                Vec::new()
            }
            Ready::Client(id) => self.listen_to(id),
            Ready::Hook(ready) => self.ask_hook(ready)?,
        };
        self.clients.retain(|client| !(client.gone || client.leaving && client.unsent.is_empty()));
        Ok(said)
    }

    /// Every client is told of a question, new or changed, and the hook of a new one.
    pub(crate) fn ask(&mut self, question: &Question) {
        let line = line(&Event::FsRequest(Box::new(FsRequest::from(question))));
        self.tell_all(&line);
        let (has_toolchain, group) = (question.toolchain.is_some(), question.group.clone());
        if let Some(open) = self.open.iter_mut().find(|open| open.id == question.id) {
            (open.line, open.has_toolchain, open.group) = (line, has_toolchain, group);
            return;
        }
        if let Some(hooks) = &mut self.hooks {
            hooks.ask(question.id, line.clone());
        }
        self.newest = self.newest.max(question.id);
        self.open.push(Open { id: question.id, line, has_toolchain, group, answered: false });
    }

    /// Every client is told how a question ended, also one that never was asked.
    pub(crate) fn settled(&mut self, settled: &Settled) {
        let id = settled.question.id;
        self.open.retain(|open| open.id != id);
        self.newest = self.newest.max(id);
        if let Some(hooks) = &mut self.hooks {
            hooks.over(id);
        }
        self.tell_all(&line(&Event::settled(settled, seconds_now())));
    }

    pub(crate) fn ok(&mut self, client: ClientId, message: &str) {
        self.tell(client, &Event::Done { message: message.to_owned() });
    }

    pub(crate) fn refuse(&mut self, client: ClientId, message: &str) {
        self.tell(client, &Event::Refused { message: message.to_owned() });
    }

    pub(crate) fn status(&mut self, client: ClientId, status: SessionStatus) {
        self.tell(client, &Event::Session(Box::new(status)));
    }

    pub(crate) fn take_join_request(&mut self, client: ClientId) -> Option<JoinRequest> {
        self.clients.iter_mut().find(|known| known.id == client)?.request.take()
    }

    pub(crate) fn open_questions(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn has(&self, client: ClientId) -> bool {
        self.clients.iter().any(|known| known.id == client)
    }

    pub(crate) fn has_sent_all(&self) -> bool {
        self.clients.iter().all(|client| client.unsent.is_empty())
    }

    pub(crate) fn tell(&mut self, client: ClientId, event: &Event) {
        if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
            client.tell(&line(event));
        }
    }

    fn tell_all(&mut self, line: &[u8]) {
        for client in self.clients.iter_mut().filter(|client| client.stranger_until.is_none()) {
            client.tell(line);
        }
        self.clients.retain(|client| !client.gone);
    }

    fn welcome(&mut self) {
        loop {
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.admit(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => {
                    self.deaf_until = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let refusal = if self.clients.len() >= MOST_CLIENTS {
            Some("too many connections".to_owned())
        } else {
            peer::check(socket.as_fd()).err().map(|refusal| refusal.to_string())
        };
        let id = ClientId(self.next_client);
        self.next_client += 1;
        let mut client = Client::new(id, socket);
        match refusal {
            // One attempt: who is refused at the door has no claim to be waited for.
            Some(message) => client.tell(&line(&Event::Refused { message })),
            None => self.clients.push(client),
        }
    }

    fn listen_to(&mut self, id: ClientId) -> Vec<Said> {
        let Some(at) = self.clients.iter().position(|client| client.id == id) else { return Vec::new() };
        self.clients[at].send();
        let mut said = Vec::new();
        for line in self.clients[at].hear() {
            if self.clients[at].leaving || self.clients[at].gone {
                break;
            }
            if self.clients[at].stranger_until.is_some() {
                self.greet(at, &line);
            } else {
                said.extend(self.obey(at, &line));
            }
        }
        said
    }

    /// The first line of a connection; the answer to a good one is every open question.
    fn greet(&mut self, at: usize, first: &[u8]) {
        let client = &mut self.clients[at];
        match command(first) {
            Ok(Command::Hello { version: VERSION, .. }) => {
                client.stranger_until = None;
                client.tell(&line(&Event::Hello { version: VERSION, session: self.session.clone() }));
                self.open.iter().for_each(|open| client.tell(&open.line));
            }
            Ok(Command::Hello { version, .. }) => {
                client.dismiss(format!("version {version} is not spoken here, but {VERSION}"));
            }
            Ok(_) => client.dismiss("say hello first".to_owned()),
            Err(error) => client.dismiss(error),
        }
    }

    fn obey(&mut self, at: usize, line: &[u8]) -> Option<Said> {
        let client = self.clients[at].id;
        let taken = command(line).and_then(|command| match command {
            Command::Hello { .. } => Err("hello was said already".to_owned()),
            Command::Status {} => Ok(Said::Status(client)),
            Command::Kill {} => Ok(Said::Kill),
            Command::Attach { argv, terminal } => {
                self.clients[at].request(argv, terminal).map(|()| Said::Attach(client))
            }
            Command::PolicySave { scope } => Ok(Said::Save(client, scope)),
            Command::Exec { request } => Ok(Said::Exec(client, request)),
            Command::Output { exec, stream, from, follow } => Ok(Said::Output { client, exec, stream, from, follow }),
            Command::Input { exec, data, end } => Ok(Said::Input { client, exec, data, end }),
            Command::Signal { exec, signal } => Ok(Said::Signal { client, exec, signal }),
            Command::Wait { exec } => Ok(Said::Wait(client, exec)),
            Command::Checkpoint { label } => Ok(Said::Checkpoint { client, label }),
            Command::PutBack { to, seen } => Ok(Said::PutBack { client, to, seen }),
            Command::Approve { .. } | Command::Deny { .. } => self.answer(&command, Cause::Person),
        });
        match taken {
            Ok(said) => {
                if matches!(said, Said::Kill | Said::Answer { .. }) {
                    self.ok(client, "");
                }
                Some(said)
            }
            Err(message) => {
                self.refuse(client, &message);
                None
            }
        }
    }

    /// An answer to a question that is open, and that no client or hook has answered yet.
    fn answer(&mut self, command: &Command, cause: Cause) -> Result<Said, String> {
        let (id, verdict) = command.verdict().ok_or("no answer")?;
        let Some(open) = self.open.iter_mut().find(|open| open.id == id && !open.answered) else {
            let why = if id <= self.newest && id > 0 { "is answered already" } else { "was never asked" };
            return Err(format!("question {id} {why}"));
        };
        let (Verdict::Allow { reach, .. } | Verdict::Deny { reach, .. }) = verdict;
        if reach == Reach::Toolchain && !open.has_toolchain {
            return Err(format!("question {id} is about no toolchain"));
        }
        if reach == Reach::Group {
            can_be_answered(open.group.as_ref(), verdict).map_err(|why| format!("question {id}: {why}"))?;
        }
        open.answered = true;
        Ok(Said::Answer { id, verdict, cause })
    }

    fn ask_hook(&mut self, ready: hook::Ready) -> Result<Vec<Said>, Errno> {
        let Some(hooks) = &mut self.hooks else { return Ok(Vec::new()) };
        let Some(command) = hooks.turn(ready)? else { return Ok(Vec::new()) };
        // An answer that is refused is no answer: others may still give one.
        Ok(self.answer(&command, Cause::Hook).into_iter().collect())
    }
}

/// Whether an answer about a group can be carried out as it was said.
fn can_be_answered(group: Option<&Group>, verdict: Verdict) -> Result<(), &'static str> {
    match (group, verdict) {
        (None, _) => Err("it offers no group"),
        (_, Verdict::Deny { .. }) => Err("a group can be allowed, not denied"),
        (_, Verdict::Allow { keep: Keep::Once, .. }) => Err("a group is allowed for the session or longer"),
        (Some(Group::Files { .. }), Verdict::Allow { keep, .. }) if keep > Keep::Session => {
            Err("a group of files is allowed for the session")
        }
        _ => Ok(()),
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.tell_all(&line(&Event::End {}));
        let removed = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
        best_effort(removed, "the whole directory goes with the session");
        best_effort(self.short.as_deref().map_or(Ok(()), rustix::fs::unlink), "the next session sweeps it");
    }
}

impl Client {
    fn new(id: ClientId, socket: OwnedFd) -> Self {
        let stranger_until = Some(Instant::now() + GREETING);
        Client {
            id,
            socket,
            stranger_until,
            heard: Vec::new(),
            descriptors: Vec::new(),
            request: None,
            unsent: Vec::new(),
            leaving: false,
            gone: false,
        }
    }

    fn tell(&mut self, line: &[u8]) {
        if self.unsent.len() + line.len() > MOST_UNREAD {
            self.gone = true;
            return;
        }
        self.unsent.extend_from_slice(line);
        self.send();
    }

    fn request(&mut self, argv: Vec<String>, terminal: [bool; 3]) -> Result<(), String> {
        let descriptors = <[OwnedFd; 4]>::try_from(std::mem::take(&mut self.descriptors));
        let Ok([input, output, error, channel]) = descriptors else {
            return Err("four descriptors must come along: three streams and a socket".to_owned());
        };
        if argv.is_empty() {
            return Err("no command".to_owned());
        }
        let streams = [input, output, error];
        let (environment, limits) = (Vec::new(), Vec::new());
        self.request = Some(JoinRequest { argv, cwd: None, environment, limits, terminal, streams, channel });
        Ok(())
    }

    fn dismiss(&mut self, message: String) {
        self.tell(&line(&Event::Refused { message }));
        self.leaving = true;
    }

    fn send(&mut self) {
        while !self.unsent.is_empty() && !self.gone {
            match rustix::net::send(&self.socket, &self.unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.gone = true,
            }
        }
    }

    fn has_said_something(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let is_ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1);
        is_ready && !fds[0].revents().contains(PollFlags::HUP)
    }

    /// The lines that are complete now, without their ends.
    fn hear(&mut self) -> Vec<Vec<u8>> {
        match cofferdam_kernel::socket::receive_now(&self.socket) {
            Ok((bytes, _)) if bytes.is_empty() => self.gone = true,
            Ok((bytes, descriptors)) => {
                self.heard.extend_from_slice(&bytes);
                self.descriptors.extend(descriptors);
                self.descriptors.truncate(MOST_DESCRIPTORS);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.gone = true,
        }
        let mut lines = Vec::new();
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            lines.push(self.heard.drain(..=end).take(end).collect());
        }
        if self.heard.len() > MOST_COMMAND_BYTES {
            self.dismiss(format!("a line has at most {MOST_COMMAND_BYTES} bytes"));
        }
        lines
    }
}

#[cfg(test)]
mod tests;
