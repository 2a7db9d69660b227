//! DNS as the stub resolvers of a session speak it: one question in, one answer out.
//! Owns the form of queries and answers and the look for tunnels; which names exist for a session, and what they
//! resolve to, is not decided here. `names::dns_server` calls it with a datagram, or with a TCP message without its length.
//!
//! Nothing of a query but name and type is handed on, so EDNS options and odd headers cannot carry data out.

use std::net::IpAddr;

use hickory_proto::op::{self, Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

mod tunnel;

#[cfg(test)]
mod tests;

pub(crate) use tunnel::looks_tunnelled;

/// The longest query that is read; one name and a few options need far less.
pub(crate) const QUERY_MAX: usize = 4096;
/// The smallest and largest datagram that a client's word is taken for.
const DATAGRAM: std::ops::RangeInclusive<u16> = 512..=4096;
/// How long, in seconds, a client may remember that there is nothing. Short: a rule may change at any moment.
const NEGATIVE_TTL: u32 = 5;
/// The longest explanation in an answer.
const TEXT_MAX: usize = 200;

/// How a query came, which bounds its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// What is asked about a name, as far as answers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    A,
    Aaaa,
    /// HTTPS and SVCB: would hand out addresses and keys past the table of names.
    Service,
    Srv,
    Ptr,
    Mx,
    Txt,
    Other(u16),
}

/// What a client says with EDNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EdnsInfo {
    pub udp_size: u16,
    pub dnssec_ok: bool,
}

/// A query that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub id: u16,
    /// Lower case, without the trailing dot; empty for the root.
    pub name: String,
    pub kind: Kind,
    pub edns: Option<EdnsInfo>,
    /// As it was written: clients that vary the case of letters compare it.
    question: op::Query,
    recursion_desired: bool,
    transport: Transport,
}

/// A query that is not answered as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct BadQuery {
    pub reason: &'static str,
    /// What to send back; nothing where an answer could itself be taken for a query's.
    pub reply: Option<Vec<u8>>,
}

/// Why an answer is negative, for the people who look: the codes of RFC 8914.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Extended {
    /// Asked for by the client's side: the session's policy.
    Filtered = 17,
}

/// Reads a query.
pub(crate) fn parse(message: &[u8], transport: Transport) -> Result<Query, BadQuery> {
    let Some(&header) = message.first_chunk::<12>() else {
        return Err(BadQuery { reason: "shorter than a header", reply: None });
    };
    let bad = |reason, code| BadQuery { reason, reply: Some(header_only(header, code)) };
    let malformed = |reason| bad(reason, FORMAT_ERROR);
    if header[2] & 0x80 != 0 {
        return Err(BadQuery { reason: "a response, not a query", reply: None });
    }
    if header[2] & 0x78 != 0 {
        return Err(bad("not a standard query", NOT_IMPLEMENTED));
    }
    // One question, no answers, no authorities, at most one addition.
    if header[4..11] != [0, 1, 0, 0, 0, 0, 0] || header[11] > 1 {
        return Err(malformed("not exactly one question"));
    }
    if message.len() > QUERY_MAX {
        return Err(malformed("query too long"));
    }
    let mut decoder = BinDecoder::new(message);
    let Ok(parsed) = Message::read(&mut decoder) else { return Err(malformed("malformed query")) };
    if !decoder.is_empty() || !parsed.additionals.is_empty() {
        return Err(malformed("bytes after the question"));
    }
    let Some(question) = parsed.queries.first().cloned() else { return Err(malformed("not exactly one question")) };
    let query = Query {
        id: parsed.metadata.id,
        name: String::new(),
        kind: kind_of(question.query_type),
        edns: parsed.edns.as_ref().map(|edns| EdnsInfo {
            udp_size: edns.max_payload().clamp(*DATAGRAM.start(), *DATAGRAM.end()),
            dnssec_ok: edns.flags().dnssec_ok,
        }),
        question,
        recursion_desired: parsed.metadata.recursion_desired,
        transport,
    };
    if parsed.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        let reply = query.encode(&query.response(ResponseCode::BADVERS));
        return Err(BadQuery { reason: "unknown version of EDNS", reply: Some(reply) });
    }
    if query.question.query_class != DNSClass::IN {
        return Err(BadQuery { reason: "not of class IN", reply: Some(query.refused(None)) });
    }
    match canonical(&query.question.name) {
        Some(name) => Ok(Query { name, ..query }),
        None => Err(BadQuery { reason: "a name with other bytes than a host's", reply: Some(query.refused(None)) }),
    }
}

const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NOT_IMPLEMENTED: u8 = 4;

/// A response without a question, for queries whose question was not understood.
fn header_only(query: [u8; 12], code: u8) -> Vec<u8> {
    let [high, low, flags, ..] = query;
    // QR set; opcode and RD as in the query; RA.
    vec![high, low, 0x80 | flags & 0x79, 0x80 | code, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn kind_of(kind: RecordType) -> Kind {
    match kind {
        RecordType::A => Kind::A,
        RecordType::AAAA => Kind::Aaaa,
        RecordType::HTTPS | RecordType::SVCB => Kind::Service,
        RecordType::SRV => Kind::Srv,
        RecordType::PTR => Kind::Ptr,
        RecordType::MX => Kind::Mx,
        RecordType::TXT => Kind::Txt,
        other => Kind::Other(other.into()),
    }
}

/// The name in lower case, when all labels are of letters, digits, hyphens and underscores.
fn canonical(name: &Name) -> Option<String> {
    let mut text = String::new();
    for label in name {
        if label.is_empty() || !label.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    Some(text)
}

impl Query {
    /// The addresses of the kind that was asked for; nodata when there is none among them.
    pub(crate) fn addresses(&self, addresses: &[IpAddr], ttl: u32) -> Vec<u8> {
        let name = &self.question.name;
        let records: Vec<Record> = addresses
            .iter()
            .filter_map(|address| match (self.kind, address) {
                (Kind::A, IpAddr::V4(address)) => Some(RData::A(A(*address))),
                (Kind::Aaaa, IpAddr::V6(address)) => Some(RData::AAAA(AAAA(*address))),
                _ => None,
            })
            .map(|data| Record::from_rdata(name.clone(), ttl, data))
            .collect();
        if records.is_empty() { self.nodata() } else { self.forward(&records) }
    }

    /// Records that were resolved outside: SRV, TXT, MX. The names in them are looked up, and decided about, in turn.
    pub(crate) fn forward(&self, records: &[Record]) -> Vec<u8> {
        let mut message = self.response(ResponseCode::NoError);
        message.answers = records.to_vec();
        self.encode(&message)
    }

    /// The name exists, without a record of this kind.
    pub(crate) fn nodata(&self) -> Vec<u8> {
        let mut message = self.response(ResponseCode::NoError);
        message.authorities.push(self.start_of_authority());
        self.encode(&message)
    }

    /// There is no such name in this session. With EDNS the answer says why.
    pub(crate) fn nxdomain(&self, why: Option<(Extended, &str)>) -> Vec<u8> {
        let mut message = self.response(ResponseCode::NXDomain);
        message.authorities.push(self.start_of_authority());
        explain(&mut message, why);
        self.encode(&message)
    }

    /// Not answered for reasons of policy.
    pub(crate) fn refused(&self, why: Option<(Extended, &str)>) -> Vec<u8> {
        let mut message = self.response(ResponseCode::Refused);
        explain(&mut message, why);
        self.encode(&message)
    }

    /// The name could not be resolved outside.
    pub(crate) fn servfail(&self) -> Vec<u8> {
        self.encode(&self.response(ResponseCode::ServFail))
    }

    fn response(&self, code: ResponseCode) -> Message {
        let mut message = Message::new(self.id, MessageType::Response, OpCode::Query);
        message.metadata.response_code = code;
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.recursion_available = true;
        message.add_query(self.question.clone());
        if let Some(info) = self.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(*DATAGRAM.end()).set_dnssec_ok(info.dnssec_ok);
            message.set_edns(edns);
        }
        message
    }

    /// What makes a negative answer one that may be remembered, for as long as it says (RFC 2308).
    fn start_of_authority(&self) -> Record {
        let server = Name::from_ascii("sandbox.invalid.").unwrap_or_default();
        let data = SOA::new(server.clone(), server, 1, 3600, 600, 86400, NEGATIVE_TTL);
        Record::from_rdata(self.question.name.clone(), NEGATIVE_TTL, RData::SOA(data))
    }

    /// The bytes of an answer; without its records and marked as cut where a datagram cannot hold it.
    fn encode(&self, message: &Message) -> Vec<u8> {
        let most = match (self.transport, self.edns) {
            (Transport::Tcp, _) => usize::from(u16::MAX),
            (Transport::Udp, Some(edns)) => usize::from(edns.udp_size),
            (Transport::Udp, None) => usize::from(*DATAGRAM.start()),
        };
        let whole = message.to_vec().ok().filter(|bytes| bytes.len() <= most);
        let cut = || message.truncate().to_vec().ok().filter(|bytes| bytes.len() <= most);
        whole.or_else(cut).unwrap_or_else(|| {
            let [high, low] = self.id.to_be_bytes();
            header_only([high, low, u8::from(self.recursion_desired), 0, 0, 0, 0, 0, 0, 0, 0, 0], SERVER_FAILURE)
        })
    }
}

/// Adds the explanation where the client can read one.
fn explain(message: &mut Message, why: Option<(Extended, &str)>) {
    let (Some((code, text)), Some(edns)) = (why, message.edns.as_mut()) else { return };
    let mut value = (code as u16).to_be_bytes().to_vec();
    let shown = text.chars().map(|c| if c.is_control() { '?' } else { c });
    for c in shown {
        if value.len() + c.len_utf8() > TEXT_MAX {
            break;
        }
        value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, value));
}

const EXTENDED_ERROR: u16 = 15;
