//! A name server whose answers a test programs: addresses, aliases, services, failures, answers that alternate or come
//! late. Owns the messages on the wire, written without the product's parser so that both do not share a mistake.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::log::{Log, Query};

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const ANY: u16 = 255;

/// Longer chains are a mistake of the test.
const LONGEST_CHAIN: usize = 16;

/// What a name has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Records {
    /// Both families; each question gets those of its own.
    Addresses(Vec<IpAddr>),
    Alias(String),
    Service {
        port: u16,
        target: String,
    },
    /// NXDOMAIN.
    Missing,
    /// SERVFAIL.
    Failure,
    /// REFUSED.
    Refusal,
    /// No answer at all.
    Silence,
}

/// One answer; `Answer::addresses(["93.184.216.34"]).ttl(0)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub records: Records,
    pub ttl: u32,
    pub after: Duration,
}

impl Answer {
    pub fn of(records: Records) -> Self {
        Answer { records, ttl: 60, after: Duration::ZERO }
    }

    /// Panics at what is no address: tests write them down.
    pub fn addresses<const N: usize>(addresses: [&str; N]) -> Self {
        let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("`{text}` is no address"));
        Answer::of(Records::Addresses(addresses.into_iter().map(parse).collect()))
    }

    pub fn alias(name: &str) -> Self {
        Answer::of(Records::Alias(name.to_owned()))
    }

    #[must_use]
    pub fn ttl(self, seconds: u32) -> Self {
        Answer { ttl: seconds, ..self }
    }

    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Answer { after: delay, ..self }
    }
}

/// What a server knows; names that it does not know are missing.
#[derive(Debug, Default)]
pub(crate) struct Zones {
    names: BTreeMap<String, Vec<Answer>>,
    /// How often each name was asked for, by type.
    asked: HashMap<(String, u16), usize>,
}

impl Zones {
    /// Answers that take turns, for each type by itself.
    pub(crate) fn set(&mut self, name: &str, turns: Vec<Answer>) {
        self.names.insert(canonical(name), turns);
    }

    fn next(&mut self, name: &str, kind: u16) -> Option<Answer> {
        let turns = self.names.get(name).filter(|turns| !turns.is_empty())?;
        let count = self.asked.entry((name.to_owned(), kind)).or_default();
        let answer = turns.get(*count % turns.len()).cloned();
        *count += 1;
        answer
    }
}

fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// A server for one name on loopback, for programs that are measured; it runs until the process ends.
pub fn serve_one(name: &str, address: IpAddr) -> io::Result<SocketAddr> {
    let log = Log::open(Path::new("/dev/null"))?;
    let (server, bound) = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), log)?;
    server.set(name, vec![Answer::of(Records::Addresses(vec![address]))]);
    Ok(bound)
}

/// A server that runs until the process ends.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    zones: Arc<Mutex<Zones>>,
    log: Log,
    label: String,
}

impl Server {
    /// On UDP and TCP, on the same port of one address.
    pub(crate) fn start(bind: SocketAddr, log: Log) -> io::Result<(Self, SocketAddr)> {
        let tcp = TcpListener::bind(bind)?;
        let address = tcp.local_addr()?;
        let udp = UdpSocket::bind(address)?;
        let server = Server { zones: Arc::default(), log, label: address.to_string() };
        let (for_udp, for_tcp) = (server.clone(), server.clone());
        thread::spawn(move || for_udp.serve_udp(&udp));
        thread::spawn(move || for_tcp.serve_tcp(&tcp));
        Ok((server, address))
    }

    pub(crate) fn set(&self, name: &str, turns: Vec<Answer>) {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner).set(name, turns);
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let Some((reply, delay)) = self.reply(&buffer[..length], "udp", from) else { continue };
            let Ok(socket) = socket.try_clone() else { continue };
            let send = move || {
                thread::sleep(delay);
                // The client that asked may be gone.
                socket.send_to(&reply, from).is_ok()
            };
            if delay.is_zero() {
                send();
            } else {
                thread::spawn(send);
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            let server = self.clone();
            thread::spawn(move || server.converse(stream));
        }
    }

    fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        let from = stream.peer_addr()?;
        loop {
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut message)?;
            let Some((reply, delay)) = self.reply(&message, "tcp", from) else { return Ok(()) };
            thread::sleep(delay);
            let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes()[..], &reply].concat())?;
        }
    }

    fn reply(&self, message: &[u8], transport: &str, from: SocketAddr) -> Option<(Vec<u8>, Duration)> {
        let question = Question::parse(message)?;
        self.log.query(Query {
            server: self.label.clone(),
            name: question.name.clone(),
            kind: kind_name(question.kind),
            transport: transport.to_owned(),
            from,
        });
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        question.reply(message, &mut zones)
    }
}

fn kind_name(kind: u16) -> String {
    match kind {
        A => "A".to_owned(),
        AAAA => "AAAA".to_owned(),
        CNAME => "CNAME".to_owned(),
        SRV => "SRV".to_owned(),
        other => format!("TYPE{other}"),
    }
}

struct Question {
    name: String,
    kind: u16,
    /// Where the question ends in the message.
    end: usize,
}

impl Question {
    fn parse(message: &[u8]) -> Option<Question> {
        let mut labels = Vec::new();
        let mut at = 12;
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            // No client compresses a question.
            let label = message.get(at..at + length).filter(|_| length < 64)?;
            labels.push(String::from_utf8_lossy(label).into_owned());
            at += length;
        }
        let kind = u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?);
        message.get(at + 2..at + 4)?;
        Some(Question { name: canonical(&labels.join(".")), kind, end: at + 4 })
    }

    /// The message and how long it is held back; none where the zone says silence.
    fn reply(&self, message: &[u8], zones: &mut Zones) -> Option<(Vec<u8>, Duration)> {
        let mut records: Vec<Vec<u8>> = Vec::new();
        let (mut name, mut delay, mut code) = (self.name.clone(), Duration::ZERO, 0u8);
        for _ in 0..LONGEST_CHAIN {
            let Some(answer) = zones.next(&name, self.kind) else {
                code = 3;
                break;
            };
            delay += answer.after;
            match answer.records {
                Records::Alias(target) => {
                    records.push(record(&name, CNAME, answer.ttl, &encoded(&target)));
                    name = canonical(&target);
                    if self.kind != CNAME {
                        continue;
                    }
                }
                Records::Addresses(addresses) => {
                    let data = addresses.iter().filter_map(|address| data_of(*address, self.kind));
                    records.extend(data.map(|(kind, data)| record(&name, kind, answer.ttl, &data)));
                }
                Records::Service { port, target } => {
                    if matches!(self.kind, SRV | ANY) {
                        let fixed = [[0, 0], [0, 0], port.to_be_bytes()].concat();
                        records.push(record(&name, SRV, answer.ttl, &[fixed, encoded(&target)].concat()));
                    }
                }
                Records::Missing => code = 3,
                Records::Failure => code = 2,
                Records::Refusal => code = 5,
                Records::Silence => return None,
            }
            break;
        }
        let count = u16::try_from(records.len()).ok()?.to_be_bytes();
        // A response, authoritative, with the wish for recursion as it came, and recursion available.
        let flags = [0x84 | (message[2] & 1), 0x80 | code];
        let header = [&message[..2], &flags, &[0, 1], &count, &[0; 4]].concat();
        Some(([header, message[12..self.end].to_vec(), records.concat()].concat(), delay))
    }
}

fn data_of(address: IpAddr, asked: u16) -> Option<(u16, Vec<u8>)> {
    let (kind, data) = match address {
        IpAddr::V4(address) => (A, address.octets().to_vec()),
        IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
    };
    (asked == kind || asked == ANY).then_some((kind, data))
}

fn record(name: &str, kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap_or_default().to_be_bytes();
    [&encoded(name)[..], &kind.to_be_bytes(), &[0, 1], &ttl.to_be_bytes(), &length, data].concat()
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(zones: &mut Zones, name: &str, kind: u16) -> Option<Vec<u8>> {
        let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let message = [&header[..], &encoded(name), &kind.to_be_bytes(), &[0, 1]].concat();
        Question::parse(&message)?.reply(&message, zones).map(|(reply, _)| reply)
    }

    #[test]
    fn answers_take_turns_for_each_type_by_itself() {
        let mut zones = Zones::default();
        zones.set("Two.test.", vec![Answer::addresses(["1.2.3.4"]), Answer::addresses(["10.0.0.1"])]);
        for last in [[1, 2, 3, 4], [10, 0, 0, 1], [1, 2, 3, 4]] {
            assert!(ask(&mut zones, "two.TEST", A).is_some_and(|reply| reply.ends_with(&last)));
            assert!(ask(&mut zones, "two.test", AAAA).is_some_and(|reply| reply[7] == 0));
        }
    }

    #[test]
    fn aliases_are_followed_and_unknown_names_are_missing() {
        let mut zones = Zones::default();
        zones.set("a.test", vec![Answer::alias("b.test")]);
        zones.set("b.test", vec![Answer::addresses(["10.0.0.1", "::1"])]);
        zones.set("quiet.test", vec![Answer::of(Records::Silence)]);
        let reply = ask(&mut zones, "a.test", A).unwrap_or_default();
        assert_eq!((reply[3] & 15, reply[7]), (0, 2));
        assert!(ask(&mut zones, "c.test", A).is_some_and(|reply| reply[3] & 15 == 3));
        assert_eq!(ask(&mut zones, "quiet.test", A), None);
    }
}
