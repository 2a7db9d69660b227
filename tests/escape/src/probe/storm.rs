//! Floods from inside: names that change under the client, thousands of connections, requests that never end, and a program
//! that only wants to work beside all that. Owns what is done and its figures; `storm` outside judges.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_testkit::Place;
use serde_json::json;

use super::egress::connect;
use crate::raw;
use crate::row::Finding;
use crate::storm::{ECHO, HOLD, NAMES, TURN, Turn, WINDOWS};
use crate::talk::{PROXY, RESOLVER, hello, question};

const THREADS: usize = 16;

fn wanted(place: &Place) -> Vec<usize> {
    let text = fs::read_to_string(place.project().join("wanted")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn written(place: &Place, figures: &serde_json::Value) -> Finding {
    match fs::write(place.project().join("figures"), figures.to_string()) {
        Ok(()) => Finding::Contained(String::new()),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

#[derive(Debug, Default)]
struct Count {
    through: AtomicUsize,
    refused: AtomicUsize,
    failed: AtomicUsize,
}

/// Looks up and connects, half of the time through the proxy.
pub(super) fn rebinding(place: &Place) -> Finding {
    let [lookups] = wanted(place)[..] else { return Finding::Broken("how many?".to_owned()) };
    let (count, next) = (Arc::new(Count::default()), Arc::new(AtomicUsize::new(0)));
    let running: Vec<_> = (0..THREADS)
        .map(|_| {
            let (count, next) = (Arc::clone(&count), Arc::clone(&next));
            thread::spawn(move || -> Option<String> {
                let mut last = None;
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= lookups {
                        return last;
                    }
                    let name = format!("n{}.storm.test", turn % NAMES);
                    let done = if turn % 2 == 0 { by_proxy(&name) } else { by_address(&name) };
                    match done {
                        Ok(true) => count.through.fetch_add(1, Ordering::Relaxed),
                        Ok(false) => count.refused.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            last = Some(error.to_string());
                            count.failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
            })
        })
        .collect();
    let errors: Vec<String> = running.into_iter().filter_map(|one| one.join().unwrap_or_default()).collect();
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let (through, refused, failed) = (of(&count.through), of(&count.refused), of(&count.failed));
    written(place, &json!({"through": through, "refused": refused, "failed": failed, "errors": errors.first()}))
}

fn by_proxy(name: &str) -> io::Result<bool> {
    let mut stream = connect(PROXY)?;
    at_once(&stream);
    stream.write_all(format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n").as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    match &answer {
        b"HTTP/1.1 200" => Ok(true),
        b"HTTP/1.1 403" => Ok(false),
        other => Err(io::Error::other(String::from_utf8_lossy(other).into_owned())),
    }
}

fn by_address(name: &str) -> io::Result<bool> {
    let Some(address) = address_of(name)? else { return Ok(false) };
    let mut stream = TcpStream::connect((address, 443))?;
    at_once(&stream);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // What is refused is closed, before or after the greeting.
    let closed = |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    let said = stream.write_all(&hello(Some(name))).and_then(|()| stream.read(&mut [0; 512]));
    match said {
        Ok(length) => Ok(length > 0),
        Err(error) if closed(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// None where there is none. A lost question is asked again.
fn address_of(name: &str) -> io::Result<Option<Ipv4Addr>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(3)))?;
    for _ in 0..4 {
        socket.send_to(&question(name), RESOLVER)?;
        let mut answer = [0; 1024];
        let Ok(length) = socket.recv(&mut answer) else { continue };
        let has_answer = length > 16 && answer[3].trailing_zeros() >= 4 && answer[7] > 0;
        return Ok(has_answer.then(|| {
            let [.., a, b, c, d] = answer[..length] else { return Ipv4Addr::UNSPECIFIED };
            Ipv4Addr::new(a, b, c, d)
        }));
    }
    Err(io::Error::other("nobody answered"))
}

/// A close leaves nothing behind: ports would run out.
fn at_once(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let number = |value: i32| usize::try_from(value).unwrap_or(usize::MAX);
    let arguments = [
        number(stream.as_raw_fd()),
        number(libc::SOL_SOCKET),
        number(libc::SO_LINGER),
        (&raw const linger) as usize,
        size_of::<libc::linger>(),
        0,
    ];
    // Where it fails, the ports run out, which shows.
    let _set = raw::syscall(libc::SYS_setsockopt, arguments);
}

/// Thousands of connections that say nothing, requests that never end, and a neighbour beside them that works in windows when it is told to.
pub(super) fn crowd(place: &Place) -> Finding {
    let [idle, slow, rounds, seconds] = wanted(place)[..] else { return Finding::Broken("how many?".to_owned()) };
    match crowded(place, idle, slow, rounds, Duration::from_secs(seconds as u64)) {
        Ok(figures) => written(place, &figures),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

fn crowded(place: &Place, idle: usize, slow: usize, rounds: usize, limit: Duration) -> io::Result<serde_json::Value> {
    let echo: SocketAddr = connect(ECHO)?.peer_addr()?;
    // The first rounds wake everything up.
    work(echo, rounds / 4)?;
    let kept = keep(idle)?;
    let began = Instant::now();
    let slowed = half_open(slow)?;
    let over = Arc::new(AtomicBool::new(false));
    let trickle = {
        let (over, ways) = (Arc::clone(&over), clones(&slowed)?);
        thread::spawn(move || trickle(&ways, &over))
    };
    fs::write(Turn::full(place), "")?;
    let windows: io::Result<Vec<f64>> =
        (0..WINDOWS).map(|index| window(place, index, echo, rounds / WINDOWS)).collect();
    let was_held = began.elapsed() < limit;
    let still_open = kept.iter().filter(|stream| is_open(stream)).count();
    let closed = slowed.into_iter().filter(|stream| ends_by(stream, began + limit + Duration::from_secs(10))).count();
    let took = began.elapsed();
    over.store(true, Ordering::Relaxed);
    let trickled = trickle.join().unwrap_or(0);
    let after = kept.iter().filter(|stream| is_open(stream)).count();
    Ok(json!({
        "idle": kept.len(), "idle_open_beside": still_open, "idle_open_after": after, "slow": slow, "slow_closed": closed,
        "slow_seconds": took.as_secs_f64(), "slow_held_while_measured": was_held, "trickled": trickled,
        "p99_us": windows?,
    }))
}

/// The 99th percentile of one window, when it is this session's turn.
fn window(place: &Place, index: usize, echo: SocketAddr, rounds: usize) -> io::Result<f64> {
    let turn = Turn::of(place, index);
    let patience = Instant::now() + TURN;
    while !turn.given.exists() {
        if Instant::now() > patience {
            return Err(io::Error::other(format!("turn {index} did not come")));
        }
        thread::sleep(Duration::from_millis(5));
    }
    let took = work(echo, rounds)?;
    fs::write(turn.taken, "")?;
    Ok(percentile(took))
}

fn percentile(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds.get((rounds.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
}

/// Connects, says a word and hears it again; microseconds each.
fn work(echo: SocketAddr, rounds: usize) -> io::Result<Vec<f64>> {
    let mut took = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = Instant::now();
        let mut stream = TcpStream::connect(echo)?;
        at_once(&stream);
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"word")?;
        stream.read_exact(&mut [0; 4])?;
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(took)
}

/// Each has heard the server's greeting, so it leads all the way.
fn keep(count: usize) -> io::Result<Vec<TcpStream>> {
    let address = connect(HOLD)?.peer_addr()?;
    let open = move |count: usize| -> io::Result<Vec<TcpStream>> {
        let one = |_| {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.read_exact(&mut [0])?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        (0..count).map(one).collect()
    };
    let running: Vec<_> = (0..THREADS).map(|index| thread::spawn(move || open((count + index) / THREADS))).collect();
    let mut kept = Vec::with_capacity(count);
    for thread in running {
        kept.extend(thread.join().map_err(|_| io::Error::other("a thread panicked"))??);
    }
    Ok(kept)
}

fn half_open(count: usize) -> io::Result<Vec<TcpStream>> {
    let one = |_| {
        let mut stream = TcpStream::connect(PROXY)?;
        stream.write_all(b"GET http://echo.test/ HTTP/1.1\r\nX-Slow: ")?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(stream)
    };
    (0..count).map(one).collect()
}

fn clones(streams: &[TcpStream]) -> io::Result<Vec<TcpStream>> {
    streams.iter().map(TcpStream::try_clone).collect()
}

/// A byte for each, again and again.
fn trickle(streams: &[TcpStream], over: &AtomicBool) -> usize {
    let mut sent = 0;
    while !over.load(Ordering::Relaxed) {
        sent += streams.iter().filter(|stream| { *stream }.write_all(b"x").is_ok()).count();
        thread::sleep(Duration::from_secs(1));
    }
    sent
}

fn is_open(mut stream: &TcpStream) -> bool {
    stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Whether it is refused and closed in time.
fn ends_by(mut stream: &TcpStream, end: Instant) -> bool {
    let mut heard = Vec::new();
    while Instant::now() < end {
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk) {
            Ok(0) => return heard.starts_with(b"HTTP/1.1 408"),
            Ok(length) => heard.extend_from_slice(&chunk[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // What came after the answer is answered with a reset.
            Err(_) => return true,
        }
    }
    false
}
