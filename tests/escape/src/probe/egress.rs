//! What a program inside says on the network, as the row wrote it down, and what it hears. Judges nothing: the outcomes go
//! back to the row.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::thread;
use std::time::Duration;

use cofferdam_testkit::Place;

use crate::row::Finding;
use crate::talk::{PROXY, RESOLVER, Talk, Way, question};
use crate::words;

/// Longer than anything takes that is not held on purpose.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every conversation of the file `talks`, all at once; what came of each goes to `outcomes`.
pub(super) fn talk(place: &Place) -> Finding {
    let text = fs::read_to_string(place.project().join("talks")).unwrap_or_default();
    let talks: Option<Vec<Talk>> = text.lines().map(Talk::parse).collect();
    let Some(talks) = talks.filter(|talks| !talks.is_empty()) else {
        return Finding::Broken("there is nothing to say".to_owned());
    };
    let relay = match relay() {
        Ok(relay) => relay,
        Err(error) => return Finding::Broken(format!("no relay: {error}")),
    };
    let running: Vec<_> = talks.into_iter().map(|talk| thread::spawn(move || outcome(&talk, relay))).collect();
    let outcomes: Vec<String> = running.into_iter().map(|one| one.join().unwrap_or_default()).collect();
    match fs::write(place.project().join("outcomes"), outcomes.join("\n")) {
        Ok(()) => Finding::Contained(String::new()),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

/// A listener of our own that leads to the proxy.
fn relay() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || -> io::Result<()> {
                let server = TcpStream::connect(PROXY)?;
                let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
                thread::spawn(move || io::copy(&mut from, &mut to));
                let (mut from, mut to) = (server, client);
                io::copy(&mut from, &mut to)?;
                to.shutdown(Shutdown::Both)
            });
        }
    });
    Ok(port)
}

fn outcome(talk: &Talk, relay: u16) -> String {
    let stream = match &talk.way {
        Way::Proxy => connect(PROXY),
        Way::Relay => connect(&format!("127.0.0.1:{relay}")),
        Way::Address(address) => connect(&address.to_string()),
        Way::Name(name) => connect(name),
        Way::Lookup(name) => return told(ask(name)),
        Way::LookupByStream(name) => return told(ask_by_stream(name)),
    };
    stream.and_then(|stream| converse(stream, &talk.parts)).unwrap_or_else(|error| named(&error))
}

fn told(answer: io::Result<String>) -> String {
    answer.unwrap_or_else(|error| named(&error))
}

fn named(error: &io::Error) -> String {
    match (error.raw_os_error(), error.kind()) {
        (_, ErrorKind::TimedOut | ErrorKind::WouldBlock) => "silence".to_owned(),
        (_, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => "closed by a reset".to_owned(),
        (_, ErrorKind::UnexpectedEof) => "closed".to_owned(),
        (Some(number), _) => words::errno(number),
        (None, _) => format!("unknown: {error}"),
    }
}

pub(super) fn connect(to: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    for address in to.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn converse(mut stream: TcpStream, parts: &[Vec<u8>]) -> io::Result<String> {
    let mut outcome = String::new();
    for part in parts {
        stream.write_all(part)?;
        let heard = hear(&mut stream)?;
        outcome = summary(&heard, part);
        let goes_on = heard.starts_with(b"HTTP/1.1 200") || heard.starts_with(&[5, 0]);
        if !goes_on {
            break;
        }
    }
    Ok(outcome)
}

/// The head of a response, or whatever comes first.
fn hear(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk)?;
        heard.extend_from_slice(&chunk[..length]);
        let is_half = heard.starts_with(b"HTTP/") && !heard.windows(4).any(|four| four == b"\r\n\r\n");
        if length == 0 || !is_half {
            return Ok(heard);
        }
    }
}

fn summary(heard: &[u8], said: &[u8]) -> String {
    if heard.is_empty() {
        return "closed".to_owned();
    }
    if let [5, reply, ..] = heard
        && said.first() == Some(&5)
    {
        return format!("socks {reply}");
    }
    let text = String::from_utf8_lossy(heard);
    if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
        let why = text.lines().find_map(|line| line.strip_prefix("x-cofferdam-denied: ")).unwrap_or_default();
        return format!("{} {why}", rest.get(..3).unwrap_or_default()).trim_end().to_owned();
    }
    if heard == said { "echo" } else { "data" }.to_owned()
}

fn ask(name: &str) -> io::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send_to(&question(name), RESOLVER)?;
    let mut answer = [0; 4096];
    let length = socket.recv(&mut answer)?;
    Ok(code(&answer[..length]))
}

fn ask_by_stream(name: &str) -> io::Result<String> {
    let mut stream = connect(RESOLVER)?;
    let question = question(name);
    let length = u16::try_from(question.len()).unwrap_or(0).to_be_bytes();
    stream.write_all(&[&length[..], &question].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(code(&answer))
}

fn code(answer: &[u8]) -> String {
    match answer {
        [_, _, _, flags, _, _, high, low, ..] => match (flags & 15, [*high, *low]) {
            (0, [0, 0]) => "nothing".to_owned(),
            (0, _) => "address".to_owned(),
            (3, _) => "nxdomain".to_owned(),
            (other, _) => format!("code {other}"),
        },
        _ => "closed".to_owned(),
    }
}
