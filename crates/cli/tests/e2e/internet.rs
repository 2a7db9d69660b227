//! A home and an internet of its own (`testkit`'s world), and the command run in both. Owns the hosts that tests of egress
//! meet: `allowed.test`, which their flags allow, and `other.test`, which they do not.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use cofferdam_testkit::world::{Answer, Dns, Records, World, lacks};

use crate::support::{Place, Ran, Running, binary, finish};

pub(crate) const ALLOWED: &str = "93.184.216.34";
pub(crate) const OTHER: &str = "93.184.216.35";
/// Where a network of one's own would have a server.
pub(crate) const PRIVATE: &str = "10.0.0.5";
pub(crate) const SECOND: &str = "10.0.0.6";

/// Programs find no proxy in their environment.
const UNSET: &str = "unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY; ";

pub(crate) struct Internet {
    pub(crate) place: Place,
    pub(crate) world: World,
}

impl Internet {
    /// If these programs are installed and namespaces can be made; else says why the test is skipped.
    pub(crate) fn with(programs: &[&str]) -> Option<Internet> {
        Internet::naming(programs, &[])
    }

    /// The same with further names, each of one address.
    pub(crate) fn naming(programs: &[&str], names: &[(&str, &str)]) -> Option<Internet> {
        let needed = [&["unshare", "nsenter", "ip", "openssl", "python3"], programs].concat();
        if let Some(why) = lacks(&needed) {
            println!("skipped: {why}");
            return None;
        }
        let world = match World::start() {
            Ok(world) => world,
            Err(error) => {
                println!("skipped: no network namespace of its own: {error}");
                return None;
            }
        };
        let internet = Internet { place: Place::new(), world };
        internet.config("");
        let dns = internet.dns();
        dns.name("allowed.test", Answer::addresses([ALLOWED]));
        dns.name("other.test", Answer::addresses([OTHER]));
        // A name that a preset allows.
        dns.name("api.anthropic.com", Answer::addresses([ALLOWED]));
        // Names that lead where no workload should get by them.
        dns.name("private.test", Answer::addresses([PRIVATE]));
        dns.name("second.test", Answer::addresses([SECOND]));
        dns.name("mixed.test", Answer::addresses([ALLOWED, PRIVATE]));
        dns.name("six.test", Answer::addresses([ALLOWED, "fd00::5"]));
        dns.name("alias.test", Answer::of(Records::Alias("private.test".to_owned())));
        dns.name("loop.test", Answer::addresses(["127.0.0.1"]));
        dns.name("metadata.test", Answer::addresses(["169.254.169.254"]));
        for (name, address) in names {
            dns.name(name, Answer::addresses([*address]));
        }
        dns.turns("turns.test", vec![Answer::addresses([ALLOWED]).ttl(0), Answer::addresses([PRIVATE]).ttl(0)]);
        Some(internet)
    }

    /// With a web server at port 80 of both hosts, and at port 8080 of the first.
    pub(crate) fn with_web(programs: &[&str]) -> Option<Internet> {
        let internet = Internet::with(programs)?;
        for server in [format!("{ALLOWED}:80"), format!("{ALLOWED}:8080"), format!("{OTHER}:80")] {
            internet.world.http(&server);
        }
        Some(internet)
    }

    /// Serves TLS at port 443 of both hosts. The certificate that vouches for them is the project's `authority.pem`.
    pub(crate) fn with_tls(&self) {
        self.world.https(&format!("{ALLOWED}:443"), &["allowed.test"]);
        self.world.https(&format!("{OTHER}:443"), &["other.test"]);
        let text = std::fs::read_to_string(self.world.authority()).expect("it was made");
        self.place.write("authority.pem", &text);
    }

    fn dns(&self) -> Dns<'_> {
        self.world.dns()
    }

    /// The user's configuration: the resolver, and this.
    pub(crate) fn config(&self, text: &str) {
        let config = format!("[network]\nresolvers = [\"9.9.9.9:53\"]\n{text}");
        self.place.write("home:.config/cofferdam/config.toml", &config);
    }

    /// A program in the world, with the place's environment.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let words = self.world.entering();
        let mut command = self.place.command(&words[0]);
        command.args(&words[1..]).arg(program).stdin(Stdio::null());
        command
    }

    pub(crate) fn sandbox(&self, arguments: &[&str]) -> Ran {
        finish(self.command(binary()).args(arguments), b"")
    }

    /// `sandbox run FLAGS -- bash -c SCRIPT`.
    pub(crate) fn run(&self, flags: &[&str], script: &str) -> Ran {
        self.sandbox(&[&["run"], flags, &["--", "bash", "-c", script]].concat())
    }

    /// The same without the variables that tell of the proxy.
    pub(crate) fn direct(&self, flags: &[&str], script: &str) -> Ran {
        self.run(flags, &format!("{UNSET}{script}"))
    }

    /// Starts such a session beside the test, and waits for the first line that it prints.
    pub(crate) fn start(&self, flags: &[&str], script: &str) -> Running {
        let mut command = self.command(binary());
        command.arg("run").args(flags).args(["--", "bash", "-c", script]);
        self.place.begin_session(command)
    }

    /// Whether any process connected to this server or asked for this name.
    #[track_caller]
    pub(crate) fn assert_untouched(&self, server: &str, name: &str) {
        assert!(self.world.connections(server).is_empty(), "{server} was reached");
        assert!(self.world.queries(name).is_empty(), "{name} was asked for");
    }
}
