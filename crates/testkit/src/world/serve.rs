//! The process in which a world's servers live: it takes orders, a line of JSON each, from its standard input and ends,
//! with everything it started, when that closes. Owns threads and programs; what is wanted of them is `World`'s.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, setrlimit};
use serde::{Deserialize, Serialize};

use super::log::{self, Connection, Log, Record};
use super::{credulous, dns, http};

/// Long for a busy machine's sake.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a program gets to end by itself.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Dns {
        bind: SocketAddr,
    },
    /// Answers of the name server at this address.
    Name {
        server: SocketAddr,
        name: String,
        turns: Vec<dns::Answer>,
    },
    Http {
        bind: SocketAddr,
        /// For the log, where it is not the address.
        label: Option<String>,
        repositories: PathBuf,
        user: Option<Account>,
    },
    Listen {
        bind: SocketAddr,
        banner: String,
    },
    Keep {
        bind: SocketAddr,
    },
    CredulousProxy {
        bind: SocketAddr,
    },
    /// Connects to a listener, until its line is in the log; the reply is where from.
    Knock {
        address: SocketAddr,
    },
    Program(Program),
}

/// Another user, for programs that do not run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) directory: PathBuf,
    pub(crate) user: Option<Account>,
    pub(crate) ready: Ready,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ready {
    /// When it has ended, with success.
    Ended,
    /// When it has printed a line, which is the reply.
    Says,
    /// When it accepts connections.
    Accepts(SocketAddr),
}

/// What `test-world` does, with the path of the log.
pub fn serve(log_file: &Path) -> io::Result<()> {
    // Some tests connect very often.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let mut servers = Servers {
        log: Log::open(log_file)?,
        log_file: log_file.to_owned(),
        dns: BTreeMap::new(),
        programs: Vec::new(),
    };
    for line in io::stdin().lines() {
        let reply: Result<String, String> = serde_json::from_str(&line?)
            .map_err(io::Error::other)
            .and_then(|order| servers.carry_out(order))
            .map_err(|error| error.to_string());
        let line = serde_json::to_string(&reply).map_err(io::Error::other)?;
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}")?;
        stdout.flush()?;
    }
    Ok(())
}

struct Servers {
    log: Log,
    log_file: PathBuf,
    dns: BTreeMap<SocketAddr, dns::Server>,
    programs: Vec<Child>,
}

impl Servers {
    fn carry_out(&mut self, order: Order) -> io::Result<String> {
        let at = |bind: SocketAddr| move |error: io::Error| io::Error::other(format!("{bind}: {error}"));
        match order {
            Order::Dns { bind } => {
                let (server, address) = dns::Server::start(bind, self.log.clone()).map_err(at(bind))?;
                self.dns.insert(address, server);
                Ok(address.to_string())
            }
            Order::Name { server, name, turns } => {
                let server = self.dns.get(&server).ok_or_else(|| io::Error::other("no such name server"))?;
                server.set(&name, turns);
                Ok(String::new())
            }
            Order::Http { bind, label, repositories, user } => {
                let listener = TcpListener::bind(bind).map_err(at(bind))?;
                let address = listener.local_addr()?.to_string();
                let label = label.unwrap_or_else(|| address.clone());
                http::Server { label, log: self.log.clone(), repositories, user }.start(listener);
                Ok(address)
            }
            Order::Listen { bind, banner } => {
                let listener = TcpListener::bind(bind).map_err(at(bind))?;
                let address = listener.local_addr()?.to_string();
                listen(listener, address.clone(), banner, self.log.clone());
                Ok(address)
            }
            Order::Keep { bind } => {
                let listener = TcpListener::bind(bind).map_err(at(bind))?;
                let address = listener.local_addr()?.to_string();
                keep(listener, address.clone(), self.log.clone());
                Ok(address)
            }
            Order::CredulousProxy { bind } => {
                let listener = TcpListener::bind(bind).map_err(at(bind))?;
                let address = listener.local_addr()?.to_string();
                credulous::start(listener);
                Ok(address)
            }
            Order::Knock { address } => self.knock(address),
            Order::Program(program) => self.start(&program),
        }
    }

    fn knock(&self, address: SocketAddr) -> io::Result<String> {
        let stream = TcpStream::connect(address)?;
        let own = stream.local_addr()?;
        let seen = Record::Connection(Connection { server: address.to_string(), from: own });
        let end = Instant::now() + PATIENCE;
        while !log::read(&self.log_file)?.contains(&seen) {
            if Instant::now() > end {
                return Err(io::Error::other(format!("{address} does not accept")));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(own.to_string())
    }

    fn start(&mut self, program: &Program) -> io::Result<String> {
        let mut command = Command::new("setpriv");
        // It goes with us, whatever ends us.
        command.args(["--pdeathsig", "KILL", "--"]).args(&program.argv);
        command.current_dir(&program.directory).env("HOME", &program.directory).process_group(0);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        if let Some(user) = program.user {
            command.uid(user.uid).gid(user.gid);
        }
        let named = |what: String| io::Error::other(format!("{}: {what}", program.argv.join(" ")));
        match program.ready {
            Ready::Ended => {
                let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
                if output.status.success() {
                    return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
                }
                Err(named(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))))
            }
            Ready::Says => {
                let mut child = command.stdout(Stdio::piped()).spawn()?;
                let stdout = child.stdout.take();
                self.programs.push(child);
                let mut line = String::new();
                stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line))?;
                if line.is_empty() { Err(named("it ended".to_owned())) } else { Ok(line.trim().to_owned()) }
            }
            Ready::Accepts(address) => {
                let mut child = command.stdout(Stdio::null()).spawn()?;
                let end = Instant::now() + PATIENCE;
                while TcpStream::connect(address).is_err() {
                    if let Some(status) = child.try_wait()? {
                        return Err(named(status.to_string()));
                    }
                    if Instant::now() > end {
                        self.programs.push(child);
                        return Err(named(format!("nobody listens at {address}")));
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                self.programs.push(child);
                Ok(address.to_string())
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // SIGINT: at SIGTERM, PostgreSQL waits for the clients that are connected.
        for program in &self.programs {
            signal(program, Signal::INT);
        }
        let end = Instant::now() + GRACE;
        for program in &mut self.programs {
            while matches!(program.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(Duration::from_millis(10));
            }
            if matches!(program.try_wait(), Ok(None)) {
                signal(program, Signal::KILL);
            }
            if let Err(error) = program.wait() {
                eprintln!("a program of the world cannot be waited for: {error}");
            }
        }
    }
}

fn signal(program: &Child, signal: Signal) {
    let Some(group) = i32::try_from(program.id()).ok().and_then(Pid::from_raw) else { return };
    match kill_process_group(group, signal) {
        // It may have ended by itself.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => eprintln!("a program of the world cannot be ended: {error}"),
    }
}

/// Speaks first where there is a banner, then says everything again until the other side has had enough.
fn listen(listener: TcpListener, label: String, banner: String, log: Log) {
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if let Ok(from) = stream.peer_addr() {
                log.connection(&label, from);
            }
            let banner = banner.clone();
            thread::spawn(move || -> io::Result<()> {
                stream.write_all(banner.as_bytes())?;
                let mut buffer = [0; 4096];
                loop {
                    let length = stream.read(&mut buffer)?;
                    if length == 0 {
                        return Ok(());
                    }
                    stream.write_all(&buffer[..length])?;
                }
            });
        }
    });
}

/// Until the process ends.
fn keep(listener: TcpListener, label: String, log: Log) {
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            if let Ok(from) = stream.peer_addr() {
                log.connection(&label, from);
            }
            // A client that is gone already is kept like the others.
            if stream.write_all(b"k").is_ok() {
                kept.push(stream);
            }
        }
    });
}
