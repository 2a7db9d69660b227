//! What the servers of a world saw, one JSON object a line. Owns the file; the world reads it on the test's behalf.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A question to a name server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    pub server: String,
    /// In lower case, without a dot at the end.
    pub name: String,
    /// `A`, `AAAA`, `CNAME`, `SRV` or `TYPEn`.
    pub kind: String,
    /// `udp` or `tcp`.
    pub transport: String,
    pub from: SocketAddr,
}

/// A request to a web server, once its body was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub server: String,
    pub method: String,
    pub target: String,
    /// As it came, the empty line left out.
    pub head: String,
    pub body_bytes: u64,
    /// The how manieth request of its connection, from 1 on.
    pub number: u64,
    pub from: SocketAddr,
}

/// A connection that a server accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    pub server: String,
    pub from: SocketAddr,
}

/// A handshake with a TLS server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    pub server: String,
    /// The name that the client asked for.
    pub name: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Record {
    Query(Query),
    Request(Request),
    Connection(Connection),
    Handshake(Handshake),
}

#[derive(Debug, Clone)]
pub(crate) struct Log(Arc<Mutex<File>>);

impl Log {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Log(Arc::new(Mutex::new(file))))
    }

    pub(crate) fn query(&self, query: Query) {
        self.write(&Record::Query(query));
    }

    pub(crate) fn request(&self, request: Request) {
        self.write(&Record::Request(request));
    }

    pub(crate) fn connection(&self, server: &str, from: SocketAddr) {
        self.write(&Record::Connection(Connection { server: server.to_owned(), from }));
    }

    /// One write for each line: a TLS server appends to the same file.
    fn write(&self, record: &Record) {
        let line = serde_json::to_string(record).unwrap_or_default() + "\n";
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            // A test that counts nothing would pass for the wrong reason.
            eprintln!("the world cannot write its log: {error}");
            std::process::abort();
        }
    }
}

/// The records so far. A line that is not complete yet is left for the next look.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Record>> {
    let text = std::fs::read_to_string(path)?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}
