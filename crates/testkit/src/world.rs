//! An internet of a test's own: a network namespace in which every address is local, with name servers, web servers and
//! real programs at whatever addresses the test likes; nothing leaves the machine. Owns the namespace and the process
//! (`serve`) in which the servers live; both end with the `World`. Knows nothing of sandboxes: tests run those in it.
//!
//!     let world = World::start()?;
//!     world.dns().name("example.test", Answer::addresses(["93.184.216.34"]));
//!     world.http("93.184.216.34:80");
//!     world.command("curl").arg("http://example.test/").output()?;
//!     assert_eq!(world.queries("example.test").len(), 2);

mod certificates;
mod credulous;
pub mod dns;
mod http;
pub mod log;
mod real;
mod serve;

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Scene, program};
use certificates::Authority;
pub use dns::{Answer, Records};
use log::{Connection, Handshake, Query, Record, Request};
pub use real::{Postgres, Ssh};
pub use serve::serve;
use serve::{Account, Order, Program, Ready};

/// Lo is up and everything is behind it. Who is not root needs a user namespace to have a network namespace; root does
/// not, and keeps all users, whom PostgreSQL and sshd need.
/// A route lets any process reach an IPv6 address, but not listen at it: that takes the setting.
const ENTER: &str = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo \
                     && echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind && exec \"$@\"";
const TLS: &str = include_str!("world/tls.py");
const PATIENCE: Duration = Duration::from_secs(10);

/// Servers, and where they are.
#[derive(Debug)]
pub struct World {
    scene: Scene,
    child: Child,
    conversation: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    place: Where,
    authority: Mutex<Option<Authority>>,
    /// What belongs to the user who runs the real programs.
    given: PathBuf,
    account: Option<Account>,
    /// Where our own last connections came from.
    knocks: Mutex<Vec<SocketAddr>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In a namespace of its own; of a user too, or root's.
    Apart {
        user: bool,
    },
    Loopback,
}

/// The programs of this list that are not installed, as the reason of a skipped test.
pub fn lacks(programs: &[&str]) -> Option<String> {
    let places: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    let sbin = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    let found = |name: &&&str| !places.iter().chain(&sbin).any(|place| place.join(name).is_file());
    programs.iter().find(found).map(|name| format!("`{name}` is not installed"))
}

impl World {
    /// In a network namespace where every address is local.
    pub fn start() -> io::Result<Self> {
        let user = !rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        command.arg("--net");
        if user {
            // What listens at low ports needs a capability.
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        command.args(["--", "sh", "-c", ENTER, "sh"]);
        World::with(command, Where::Apart { user })
    }

    /// On this machine's loopback: ask for port 0 and take the address that the server says.
    pub fn on_loopback() -> io::Result<Self> {
        World::with(Command::new("env"), Where::Loopback)
    }

    fn with(mut command: Command, place: Where) -> io::Result<Self> {
        let servers = program("test-world").ok_or_else(|| io::Error::other("`test-world` is not built"))?;
        let scene = Scene::new()?;
        let log = scene.root().join("log");
        std::fs::write(&log, "")?;
        std::fs::write(scene.root().join("tls.py"), TLS)?;
        let account = real::account();
        let given = real::give(&scene.name(), account)?;
        command.env("PATH", real::path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.arg(servers).arg(log).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take().map(BufReader::new));
        let (authority, knocks) = (Mutex::default(), Mutex::default());
        let world = World { scene, child, conversation: Mutex::new(pipes), place, authority, given, account, knocks };
        // The answer says that the namespace is there.
        world.order(&Order::Program(world.program(&["true"], Ready::Ended)))?;
        Ok(world)
    }

    fn order(&self, order: &Order) -> io::Result<String> {
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        let (orders, replies) = conversation.as_mut().ok_or_else(|| io::Error::other("the world has ended"))?;
        writeln!(orders, "{}", serde_json::to_string(order).map_err(io::Error::other)?)?;
        let mut line = String::new();
        if replies.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the world does not answer: can namespaces be made here?"));
        }
        let reply: Result<String, String> = serde_json::from_str(&line).map_err(io::Error::other)?;
        reply.map_err(io::Error::other)
    }

    /// The reply as an address; a server that a test cannot start is the end of the test.
    #[track_caller]
    fn started(&self, order: &Order) -> SocketAddr {
        let reply = self.order(order).and_then(|reply| reply.parse().map_err(io::Error::other));
        reply.unwrap_or_else(|error| panic!("cannot start {order:?}: {error}"))
    }

    /// What stands before a command to run it in the world: with the caller's user and groups, and no capability that the
    /// caller lacks.
    pub fn entering(&self) -> Vec<String> {
        let target = format!("--target={}", self.child.id());
        let words: &[&str] = match self.place {
            Where::Loopback => &["env"],
            Where::Apart { user: false } => &["nsenter", &target, "--net", "--"],
            Where::Apart { user: true } => &["nsenter", &target, "--user", "--preserve-credentials", "--net", "--"],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let words = self.entering();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
        command
    }

    /// A directory of the world's own, below the caller's home; removed with it.
    pub fn directory(&self) -> &Path {
        self.scene.root()
    }

    /// A name server at port 53 of every IPv4 address, so that any `/etc/resolv.conf` leads to it.
    #[track_caller]
    pub fn dns(&self) -> Dns<'_> {
        self.dns_at("0.0.0.0:53")
    }

    #[track_caller]
    pub fn dns_at(&self, bind: &str) -> Dns<'_> {
        Dns { world: self, address: self.started(&Order::Dns { bind: parsed(bind) }) }
    }

    /// A web server; what its paths mean is told in `world/http.rs`.
    #[track_caller]
    pub fn http(&self, bind: &str) -> SocketAddr {
        self.web(parsed(bind), None)
    }

    /// A directory whose `HOST/PATH` every web server of this world serves for requests to that host.
    #[track_caller]
    pub fn files(&self) -> PathBuf {
        let files = self.given.join("files");
        std::fs::create_dir_all(&files).unwrap_or_else(|error| panic!("{}: {error}", files.display()));
        files
    }

    #[track_caller]
    fn web(&self, bind: SocketAddr, label: Option<String>) -> SocketAddr {
        self.started(&Order::Http { bind, label, repositories: self.repositories(), user: self.account })
    }

    /// The same over TLS, with a certificate for these names by the world's own authority.
    #[track_caller]
    pub fn https(&self, bind: &str, names: &[&str]) -> SocketAddr {
        let bind = parsed(bind);
        let label = if bind.port() == 0 { None } else { Some(bind.to_string()) };
        let plain = self.web(parsed("127.0.0.1:0"), label.clone());
        let certificate = self.with_authority(|authority| authority.issue(names));
        let words = [
            "python3".to_owned(),
            self.scene.root().join("tls.py").display().to_string(),
            bind.ip().to_string(),
            bind.port().to_string(),
            plain.port().to_string(),
            certificate.chain.display().to_string(),
            certificate.key.display().to_string(),
            self.scene.root().join("log").display().to_string(),
            label.unwrap_or_default(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut program = self.program(&words, Ready::Says);
        program.user = None;
        let port = self.order(&Order::Program(program)).unwrap_or_else(|error| panic!("no TLS at {bind}: {error}"));
        SocketAddr::new(bind.ip(), port.parse().unwrap_or_else(|_| panic!("`{port}` is no port")))
    }

    /// The certificate that vouches for all others of this world.
    #[track_caller]
    pub fn authority(&self) -> PathBuf {
        self.with_authority(|authority| Ok(authority.certificate()))
    }

    #[track_caller]
    fn with_authority<T>(&self, what: impl FnOnce(&mut Authority) -> io::Result<T>) -> T {
        let mut authority = self.authority.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match authority.take() {
            Some(known) => Ok(known),
            None => Authority::make(&self.scene.root().join("certificates")),
        };
        let done = made.and_then(|made| what(authority.insert(made)));
        done.unwrap_or_else(|error| panic!("no certificate: {error}"))
    }

    /// Counts connections and says again what it is told.
    #[track_caller]
    pub fn listener(&self, bind: &str) -> SocketAddr {
        self.banner(bind, "")
    }

    /// The same, but it speaks first.
    #[track_caller]
    pub fn banner(&self, bind: &str, banner: &str) -> SocketAddr {
        self.started(&Order::Listen { bind: parsed(bind), banner: banner.to_owned() })
    }

    /// Greets with one byte and keeps every connection without a word more, in one thread.
    #[track_caller]
    pub fn keeper(&self, bind: &str) -> SocketAddr {
        self.started(&Order::Keep { bind: parsed(bind) })
    }

    /// A proxy that checks nothing.
    #[track_caller]
    pub fn credulous_proxy(&self, bind: &str) -> SocketAddr {
        self.started(&Order::CredulousProxy { bind: parsed(bind) })
    }

    /// Makes an address this world's own: one that an interface has.
    pub fn own_address(&self, address: &str) -> io::Result<()> {
        let words = ["ip", "address", "add", address, "dev", "lo"];
        let mut program = self.program(&words, Ready::Ended);
        program.user = None;
        self.order(&Order::Program(program)).map(|_| ())
    }

    /// Everything that the servers saw so far.
    #[track_caller]
    pub fn records(&self) -> Vec<Record> {
        log::read(&self.scene.root().join("log")).unwrap_or_else(|error| panic!("no log: {error}"))
    }

    /// Questions about a name and everything below it; about everything for the empty name.
    #[track_caller]
    pub fn queries(&self, name: &str) -> Vec<Query> {
        let below = format!(".{name}");
        let about = |query: &Query| name.is_empty() || query.name == name || query.name.ends_with(&below);
        let query = |record| if let Record::Query(query) = record { Some(query) } else { None };
        self.records().into_iter().filter_map(query).filter(about).collect()
    }

    #[track_caller]
    pub fn requests(&self, server: &str) -> Vec<Request> {
        let request = |record| if let Record::Request(request) = record { Some(request) } else { None };
        self.records().into_iter().filter_map(request).filter(|request| request.server == server).collect()
    }

    /// Connections to a web server or a listener.
    #[track_caller]
    pub fn connections(&self, server: &str) -> Vec<Connection> {
        let connection = |record| if let Record::Connection(connection) = record { Some(connection) } else { None };
        self.records().into_iter().filter_map(connection).filter(|one| one.server == server).collect()
    }

    /// Connections to a listener, those included that it had yet to accept: a last one is made, and is seen after all others.
    /// This is how to be sure that there was none.
    #[track_caller]
    pub fn dials(&self, listener: &str) -> Vec<Connection> {
        let own = self.started(&Order::Knock { address: parsed(listener) });
        let known = self.connections(listener);
        let end = known.iter().rposition(|one| one.from == own).unwrap_or_else(|| panic!("{listener} hears nobody"));
        let mut knocks = self.knocks.lock().unwrap_or_else(PoisonError::into_inner);
        knocks.push(own);
        known.into_iter().take(end).filter(|one| !knocks.contains(&one.from)).collect()
    }

    /// What the servers saw, once it is that many: they may write it down after a client has ended.
    #[track_caller]
    pub fn until<T>(&self, count: usize, seen: impl Fn(&World) -> Vec<T>) -> Vec<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = seen(self);
            if found.len() >= count {
                return found;
            }
            assert!(Instant::now() < end, "{} of {count} seen", found.len());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub fn handshakes(&self, server: &str) -> Vec<Handshake> {
        let handshake = |record| if let Record::Handshake(handshake) = record { Some(handshake) } else { None };
        self.records().into_iter().filter_map(handshake).filter(|one| one.server == server).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The servers end when the test can give no orders any more.
        *self.conversation.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let end = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            eprintln!("the world did not end by itself");
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                eprintln!("and cannot be ended: {error}");
            }
        }
        if let Err(error) = std::fs::remove_dir_all(&self.given) {
            eprintln!("{} stays: {error}", self.given.display());
        }
    }
}

/// A name server.
#[derive(Debug, Clone, Copy)]
pub struct Dns<'a> {
    world: &'a World,
    pub address: SocketAddr,
}

impl Dns<'_> {
    #[track_caller]
    pub fn name(&self, name: &str, answer: Answer) -> &Self {
        self.turns(name, vec![answer])
    }

    /// Answers that take turns, for each type of question by itself.
    #[track_caller]
    pub fn turns(&self, name: &str, turns: Vec<Answer>) -> &Self {
        let order = Order::Name { server: self.address, name: name.to_owned(), turns };
        self.world.order(&order).unwrap_or_else(|error| panic!("cannot answer for {name}: {error}"));
        self
    }
}

#[track_caller]
fn parsed(bind: &str) -> SocketAddr {
    bind.parse().unwrap_or_else(|_| panic!("`{bind}` is no address with a port"))
}
