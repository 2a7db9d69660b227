//! A proxy that believes what it is told: it reads hosts as leniently as programs do, checks nothing and sends requests on
//! as they came. What a strict proxy refuses must work here, or refusing it proves nothing. Speaks HTTP and SOCKS 5.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::thread;

const SOCKS: u8 = 5;
const LONGEST_HEAD: usize = 64 << 10;

/// Runs until the process ends.
pub(crate) fn start(listener: TcpListener) {
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || serve(client));
        }
    });
}

fn serve(mut client: TcpStream) -> io::Result<()> {
    let mut first = [0];
    if client.peek(&mut first)? == 1 && first[0] == SOCKS {
        return serve_socks(client);
    }
    let mut head = Vec::new();
    while !has_ended(&head) {
        let mut chunk = [0; 4096];
        let length = client.read(&mut chunk)?;
        if length == 0 || head.len() > LONGEST_HEAD {
            return Ok(());
        }
        head.extend_from_slice(&chunk[..length]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut words = text.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let host = text.lines().filter_map(|line| line.strip_prefix("Host:")).next_back().unwrap_or_default();
    let after_scheme = target.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    if method == "CONNECT" {
        let server = connect(target)?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        return splice(client, server);
    }
    let mut server = connect(after_scheme.unwrap_or_else(|| host.trim()))?;
    server.write_all(&head)?;
    splice(client, server)
}

fn has_ended(head: &[u8]) -> bool {
    head.windows(2).any(|two| two == b"\n\n") || head.windows(4).any(|four| four == b"\r\n\r\n")
}

fn serve_socks(mut client: TcpStream) -> io::Result<()> {
    let mut start = [0; 2];
    client.read_exact(&mut start)?;
    client.read_exact(&mut vec![0; usize::from(start[1])])?;
    client.write_all(&[SOCKS, 0])?;
    let mut request = [0; 5];
    client.read_exact(&mut request)?;
    let mut rest = vec![0; if request[3] == 1 { 5 } else { usize::from(request[4]) + 2 }];
    client.read_exact(&mut rest)?;
    let succeeded = [SOCKS, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    if request[1] != 1 {
        return client.write_all(&succeeded);
    }
    let (host, port) = rest.split_at(rest.len() - 2);
    let host = if request[3] == 1 {
        format!("{}.{}.{}.{}", request[4], host[0], host[1], host[2])
    } else {
        // As a program in C reads it.
        String::from_utf8_lossy(host.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    };
    let server = connect(&format!("{host}:{}", u16::from_be_bytes([port[0], port[1]])))?;
    client.write_all(&succeeded)?;
    splice(client, server)
}

fn connect(authority: &str) -> io::Result<TcpStream> {
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.split('%').next().unwrap_or_default(), port.trim_start_matches(':')),
        None => authority.rsplit_once(':').unwrap_or((authority, "80")),
    };
    let port = port.parse().unwrap_or(80);
    let found: Vec<SocketAddr> = match lenient(host) {
        Some(address) => vec![(IpAddr::V4(address), port).into()],
        None => (host.trim_end_matches('.'), port).to_socket_addrs()?.collect(),
    };
    TcpStream::connect(&*found)
}

/// Decimal, octal and hexadecimal, in one to four parts.
fn lenient(host: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, before) = parts.split_last()?;
    let mut address = *last;
    for (part, shift) in before.iter().zip([24, 16, 8]) {
        address |= part << shift;
    }
    Some(Ipv4Addr::from(address))
}

fn splice(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || -> io::Result<()> {
        io::copy(&mut from, &mut to)?;
        to.shutdown(Shutdown::Write)
    });
    let (mut from, mut to) = (server, client);
    io::copy(&mut from, &mut to)?;
    to.shutdown(Shutdown::Write)
}
