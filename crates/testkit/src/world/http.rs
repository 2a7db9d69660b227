//! A web server for tests, HTTP/1.1 with connections that stay open: it shows the request as it came, redirects, is slow,
//! takes and gives any number of bytes, and serves git repositories. Owns what the paths mean:
//!
//! ```text
//! /redirect?to=URL     302 with that location
//! /slow?bytes=N&ms=M   N bytes, one every M milliseconds
//! /bytes/N             N bytes
//! /sink                reads the body and says how long it was
//! /git/NAME/...        the repository NAME, through git's own backend
//! a path of World::files  that file
//! anything else        the request's head, byte by byte
//! ```

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::log::{Log, Request};
use super::serve::Account;

const LONGEST_HEAD: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Server {
    /// What the log calls it.
    pub(crate) label: String,
    pub(crate) log: Log,
    /// Where its repositories are.
    pub(crate) repositories: PathBuf,
    /// Whose they are, where they are not ours.
    pub(crate) user: Option<Account>,
}

impl Server {
    /// Runs until the process ends.
    pub(crate) fn start(self, listener: TcpListener) {
        let server = Arc::new(self);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                thread::spawn(move || server.converse(&stream));
            }
        });
    }

    fn converse(&self, stream: &TcpStream) -> io::Result<()> {
        let from = stream.peer_addr()?;
        stream.set_nodelay(true)?;
        self.log.connection(&self.label, from);
        let mut reader = BufReader::new(stream);
        for number in 1.. {
            let Some(head) = Head::read(&mut reader)? else { break };
            if head.is("expect", "100-continue") {
                (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let keeps_body = head.target.starts_with("/git/");
            let (body, body_bytes) = head.read_body(&mut reader, keeps_body)?;
            self.log.request(Request {
                server: self.label.clone(),
                method: head.method.clone(),
                target: head.target.clone(),
                head: head.text.clone(),
                body_bytes,
                number,
                from,
            });
            self.answer(stream, &head, &body, body_bytes)?;
            if head.is("connection", "close") || head.text.lines().next().is_some_and(|l| l.ends_with("/1.0")) {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, mut stream: &TcpStream, head: &Head, body: &[u8], body_bytes: u64) -> io::Result<()> {
        let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
        if let Some(rest) = path.strip_prefix("/git/") {
            return stream.write_all(&self.git(rest, query, head, body)?);
        }
        if path == "/redirect" {
            let location = format!("location: {}\r\n", decoded(parameter(query, "to").unwrap_or_default()));
            return reply(stream, "302 Found", &location, b"");
        }
        if path == "/sink" {
            return reply(stream, "200 OK", "", format!("{body_bytes}\n").as_bytes());
        }
        if path == "/slow" {
            let number = |name| parameter(query, name).and_then(|text| text.parse().ok()).unwrap_or(1);
            let (bytes, pause) = (number("bytes"), Duration::from_millis(number("ms")));
            stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").as_bytes())?;
            for _ in 0..bytes {
                thread::sleep(pause);
                stream.write_all(b"s")?;
            }
            return Ok(());
        }
        if let Some(bytes) = path.strip_prefix("/bytes/").and_then(|number| number.parse::<u64>().ok()) {
            stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").as_bytes())?;
            io::copy(&mut io::repeat(b'b').take(bytes), &mut stream)?;
            return Ok(());
        }
        let host = head.value("host").unwrap_or_default();
        if !path.contains("..")
            && let Ok(file) = std::fs::read(self.repositories.join("files").join(format!("{host}{path}")))
        {
            return reply(stream, "200 OK", "", &file);
        }
        reply(stream, "200 OK", "content-type: text/plain\r\n", head.text.as_bytes())
    }

    /// What git's backend says, as a whole reply. Every client may push.
    fn git(&self, path: &str, query: &str, head: &Head, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut command = Command::new("git");
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        let mut child = command
            .arg("http-backend")
            .env("HOME", &self.repositories)
            .env("GIT_PROJECT_ROOT", &self.repositories)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REQUEST_METHOD", &head.method)
            .env("PATH_INFO", format!("/{path}"))
            .env("QUERY_STRING", query)
            .env("CONTENT_TYPE", head.value("content-type").unwrap_or_default())
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", head.value("content-encoding").unwrap_or_default())
            .env("GIT_PROTOCOL", head.value("git-protocol").unwrap_or_default())
            .env("REMOTE_USER", "somebody")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take();
        let body = body.to_vec();
        // A backend that refuses reads nothing.
        let writer = thread::spawn(move || stdin.take().is_some_and(|mut stdin| stdin.write_all(&body).is_ok()));
        let output = child.wait_with_output()?.stdout;
        writer.join().map_err(|_| io::Error::other("the writer panicked"))?;
        let split = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(output.len().saturating_sub(4));
        let headers = String::from_utf8_lossy(&output[..split]).into_owned();
        let status = headers.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
        let body = &output[split + 4..];
        let head = format!("HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {}\r\n\r\n", body.len());
        Ok([head.as_bytes(), body].concat())
    }
}

fn reply(mut stream: &TcpStream, status: &str, headers: &str, body: &[u8]) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat())
}

struct Head {
    method: String,
    target: String,
    text: String,
}

impl Head {
    /// None at the end of the connection.
    fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Head>> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            if reader.by_ref().take(1 << 16).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            if bytes.len() > LONGEST_HEAD {
                return Err(io::Error::other("the head is too long"));
            }
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned();
        let mut words = text.split_whitespace().map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Ok(Some(Head { method, target, text }))
    }

    fn value(&self, name: &str) -> Option<&str> {
        let headers = self.text.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.value(name).is_some_and(|known| known.eq_ignore_ascii_case(value))
    }

    /// The body where it is wanted, and its length.
    fn read_body(&self, reader: &mut BufReader<&TcpStream>, keep: bool) -> io::Result<(Vec<u8>, u64)> {
        let mut body = Vec::new();
        let mut part = |reader: &mut BufReader<&TcpStream>, length: u64| {
            let mut part = reader.by_ref().take(length);
            if keep {
                part.read_to_end(&mut body).map(|_| ())
            } else {
                io::copy(&mut part, &mut io::sink()).map(|_| ())
            }
        };
        let mut total = 0;
        if self.is("transfer-encoding", "chunked") {
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let length = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                part(reader, length)?;
                reader.read_line(&mut line)?;
                if length == 0 {
                    break;
                }
                total += length;
            }
        } else if let Some(length) = self.value("content-length") {
            total = length.parse().map_err(io::Error::other)?;
            part(reader, total)?;
        }
        Ok((body, total))
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        if let (b'%', Some(byte)) = (first, hex) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
