//! Both ends of the egress bench, plain sockets with large buffers, so that what lies between them is what is measured:
//!
//!     egress-load serve                          prints its address; ends when standard input does
//!     egress-load relay ADDRESS                  leads there and judges nothing; prints its address; ends likewise
//!     egress-load names NAME ADDRESS             a name server that knows one name; prints its address; ends likewise
//!     egress-load up|down ADDRESS MIB [PROXY]    prints MiB/s through one connection; by CONNECT where there is a proxy
//!     egress-load connect ADDRESS COUNT THREADS  prints connections/s: connect, a byte each way, close
//!
//! Run by `cargo xtask bench egress`, the clients inside whatever is measured. The start of a client is in no figure.
#![forbid(unsafe_code)]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use cofferdam_testkit::relay;
use cofferdam_testkit::world::dns;

const BUFFER: usize = 128 << 10;
/// More than the clients have threads, so that no client waits for a server's thread.
const SERVERS: usize = 16;
const MIB: u64 = 1 << 20;

const UP: u8 = b'u';
const DOWN: u8 = b'd';
const PING: u8 = b'p';

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("egress-load {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> io::Result<()> {
    match words {
        ["serve"] => {
            println!("{}", serve()?);
            wait_for_end()
        }
        ["relay", address] => {
            println!("{}", relay::start(resolved(address)?, SERVERS)?);
            wait_for_end()
        }
        ["names", name, address] => {
            println!("{}", dns::serve_one(name, address.parse().map_err(io::Error::other)?)?);
            wait_for_end()
        }
        ["up", address, mib] => print(up(connect(address, None)?, number(mib)?)),
        ["up", address, mib, proxy] => print(up(connect(address, Some(proxy))?, number(mib)?)),
        ["down", address, mib] => print(down(connect(address, None)?, number(mib)?)),
        ["down", address, mib, proxy] => print(down(connect(address, Some(proxy))?, number(mib)?)),
        ["connect", address, count, threads] => {
            print(connections(resolved(address)?, number(count)?, number(threads)?))
        }
        _ => Err(io::Error::other("wrong usage")),
    }
}

fn print(figure: io::Result<f64>) -> io::Result<()> {
    println!("{:.3}", figure?);
    Ok(())
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(io::Error::other)
}

fn wait_for_end() -> io::Result<()> {
    io::copy(&mut io::stdin(), &mut io::sink()).map(|_| ())
}

fn resolved(address: &str) -> io::Result<SocketAddr> {
    // What is measured is one path, so that a name with addresses of both families is no race.
    let first = |mut addresses: std::vec::IntoIter<SocketAddr>| addresses.find(SocketAddr::is_ipv4);
    address.to_socket_addrs().map(first)?.ok_or_else(|| io::Error::other(format!("{address} has no address")))
}

fn connect(address: &str, proxy: Option<&str>) -> io::Result<TcpStream> {
    let Some(proxy) = proxy else { return TcpStream::connect(resolved(address)?) };
    let mut stream = TcpStream::connect(resolved(proxy)?)?;
    write!(stream, "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let status = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    if status.split(' ').nth(1) == Some("200") { Ok(stream) } else { Err(io::Error::other(status)) }
}

/// From the first byte to the server's word that it has the last.
fn up(mut stream: TcpStream, mib: u64) -> io::Result<f64> {
    let buffer = vec![b'x'; BUFFER];
    let before = Instant::now();
    stream.write_all(&[&[UP][..], &(mib * MIB).to_be_bytes()].concat())?;
    let mut left = mib * MIB;
    while left > 0 {
        let part = usize::try_from(left).map_or(BUFFER, |left| left.min(BUFFER));
        stream.write_all(&buffer[..part])?;
        left -= part as u64;
    }
    stream.read_exact(&mut [0])?;
    Ok(rate(mib, before))
}

fn down(mut stream: TcpStream, mib: u64) -> io::Result<f64> {
    let mut buffer = vec![0; BUFFER];
    let before = Instant::now();
    stream.write_all(&[&[DOWN][..], &(mib * MIB).to_be_bytes()].concat())?;
    let mut left = mib * MIB;
    while left > 0 {
        let length = stream.read(&mut buffer)? as u64;
        if length == 0 {
            return Err(io::Error::other(format!("it ended {left} bytes early")));
        }
        left = left.saturating_sub(length);
    }
    Ok(rate(mib, before))
}

fn connections(address: SocketAddr, count: u64, threads: u64) -> io::Result<f64> {
    let each = count.div_ceil(threads);
    let ping = move || -> io::Result<()> {
        for _ in 0..each {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(&[PING])?;
            stream.read_exact(&mut [0])?;
        }
        Ok(())
    };
    let before = Instant::now();
    let running: Vec<_> = (0..threads).map(|_| thread::spawn(ping)).collect();
    for thread in running {
        thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
    }
    Ok(rate(each * threads, before))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn rate(count: u64, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    for _ in 0..SERVERS {
        let listener = listener.try_clone()?;
        thread::spawn(move || {
            let mut buffer = vec![b'y'; BUFFER];
            // A client that fails says so itself.
            listener.incoming().flatten().filter(|stream| answer(stream, &mut buffer).is_ok()).count()
        });
    }
    Ok(address)
}

fn answer(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut what = [0];
    stream.read_exact(&mut what)?;
    if what[0] == PING {
        return stream.write_all(&what);
    }
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut left = u64::from_be_bytes(length);
    while left > 0 {
        let part = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let done = if what[0] == UP { stream.read(&mut buffer[..part])? } else { stream.write(&buffer[..part])? };
        if done == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= done as u64;
    }
    if what[0] == UP { stream.write_all(&what) } else { Ok(()) }
}
