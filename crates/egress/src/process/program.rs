//! The program `sandbox-egress` until it serves: its first steps, its word to the supervisor, and its start. Owns what it takes
//! from the process that executed it, which is one socket as its standard input; what it does then is `service`'s.
//! Called by `main`.
//!
//! Executing a program makes a process dumpable again, so that comes first, and no secret is in this process before the
//! supervisor was told so: rules, secrets and sockets all come over the link, after its [`Said::Ready`] (decision 0047).

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

use cofferdam_kernel::{best_effort, privilege, process, socket};
use cofferdam_reach::message::Said;
use cofferdam_reach::start::{LONGEST, START, StartMessage, VERSION};
use rustix::io::Errno;
use rustix::net::SocketType;
use serde::Deserialize;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::connections::published::Published;
use crate::process::service::{Start, serve};

/// Why nothing was served. Told to the supervisor where there is one.
#[derive(Debug, Error)]
pub enum NotStarted {
    #[error("this program is started by `sandbox`, over a socket")]
    ByHand,
    #[error("it must not be installed set-user-ID or with file capabilities")]
    RaisedPrivilege,
    #[error("the kernel refused {what}: {errno}")]
    Kernel { what: &'static str, errno: Errno },
    #[error("`sandbox` is of version {theirs}, `sandbox-egress` of version {VERSION}")]
    Version { theirs: String },
    #[error("the start cannot be read: {0}")]
    Document(String),
    #[error("{0}")]
    Service(String),
}

/// From the first step to the end of the session.
pub fn run() -> Result<(), NotStarted> {
    let kernel = |what| move |errno| NotStarted::Kernel { what, errno };
    process::forbid_tracing().map_err(kernel("to keep other processes from tracing it"))?;
    process::die_with_parent().map_err(kernel("the parent-death signal"))?;
    if process::has_raised_privilege() {
        return Err(NotStarted::RaisedPrivilege);
    }
    // Root's are not needed either: it connects, and is given everything else.
    privilege::drop_own_capabilities().map_err(kernel("to give up its capabilities"))?;
    let link = take_link()?;
    // For the lists of processes that operators read.
    best_effort(rustix::thread::set_name(c"sandbox-egress"), "a name changes nothing");
    let started = begin(&link).and_then(|start| {
        let link = link.try_clone().map_err(|error| NotStarted::Service(error.to_string()))?;
        serve(start, link).map_err(NotStarted::Service)
    });
    if let Err(why) = &started {
        say(&link, &Said::Warn { text: format!("nothing outside can be reached: {why}") });
    }
    started
}

/// The socket that is its standard input, where /dev/null is from then on.
fn take_link() -> Result<OwnedFd, NotStarted> {
    match rustix::net::sockopt::socket_type(rustix::stdio::stdin()) {
        Ok(SocketType::SEQPACKET) => {}
        Ok(_) | Err(_) => return Err(NotStarted::ByHand),
    }
    process::inherited(0).map_err(|errno| NotStarted::Kernel { what: "the link", errno })
}

fn say(link: &OwnedFd, said: &Said) {
    if let Ok(bytes) = serde_json::to_vec(said) {
        best_effort(socket::send(link.as_fd(), &bytes, None), "the supervisor may be gone already");
    }
}

/// Says that it is ready, and takes its start.
fn begin(link: &OwnedFd) -> Result<Start, NotStarted> {
    say(link, &Said::Ready { version: VERSION.to_owned() });
    let mut received = receive(link)?.into_iter();
    let document = received.next().ok_or_else(|| NotStarted::Document("it came without a document".to_owned()))?;
    let message = understood(&text_of(document)?)?;
    let mut descriptors: Vec<OwnedFd> = received.collect();
    while descriptors.len() < message.descriptors() {
        descriptors.extend(receive(link)?);
    }
    with_descriptors(message, descriptors)
}

/// The next descriptors of the start; at least one.
fn receive(link: &OwnedFd) -> Result<Vec<OwnedFd>, NotStarted> {
    let received = socket::receive_all(link).map_err(|errno| NotStarted::Kernel { what: "the start", errno })?;
    match received {
        (word, descriptors) if word == START && !descriptors.is_empty() => Ok(descriptors),
        // An empty word is the supervisor's end.
        (_, _) => Err(NotStarted::Document("another message came".to_owned())),
    }
}

fn text_of(document: OwnedFd) -> Result<Zeroizing<Vec<u8>>, NotStarted> {
    let unreadable = |error: std::io::Error| NotStarted::Document(error.to_string());
    let file = File::from(document);
    let length = file.metadata().map_err(unreadable)?.len();
    let room = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
    let room = room.ok_or_else(|| NotStarted::Document(format!("it is longer than {LONGEST} bytes")))?;
    // No byte more than was allocated: a secret that was moved in memory would be left behind.
    let mut bytes = Zeroizing::new(vec![0; room]);
    (&file).read_exact(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// The version is looked at first: a start of another one may have any form.
fn understood(text: &[u8]) -> Result<StartMessage, NotStarted> {
    #[derive(Deserialize)]
    struct Versioned {
        version: String,
    }
    let unreadable = |error: serde_json::Error| NotStarted::Document(error.to_string());
    let Versioned { version } = serde_json::from_slice(text).map_err(unreadable)?;
    if version != VERSION {
        return Err(NotStarted::Version { theirs: version });
    }
    serde_json::from_slice(text).map_err(unreadable)
}

fn with_descriptors(message: StartMessage, descriptors: Vec<OwnedFd>) -> Result<Start, NotStarted> {
    let wanted = message.descriptors();
    let StartMessage { version: _, network, unknown, agent, published, terminates } = message;
    if descriptors.len() != wanted {
        return Err(NotStarted::Document(format!("{} descriptors came, not {wanted}", descriptors.len())));
    }
    let mut descriptors = descriptors.into_iter();
    let sockets = descriptors.next().ok_or_else(|| NotStarted::Document("no sockets came".to_owned()))?;
    let dialer = descriptors.next();
    let published = published.into_iter().zip(descriptors).map(|(one, listener)| Published {
        listener: listener.into(),
        port: one.port,
        origin: one.origin,
    });
    Ok(Start {
        network: network.into_network(),
        unknown,
        agent,
        published: published.collect(),
        dialer,
        sockets,
        terminates,
    })
}
