//! The ways from a client to the server: none between, the sandbox, and the user-mode networks of others. Owns their command
//! lines. What is not the sandbox runs as the user who runs the bench, since /dev/net/tun may be root's alone.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::bench::egress::ground::{Ground, NAME, installed};
use crate::bench::egress::running::{Running, figure, output};
use crate::bench::report::Limit;

const CONNECTIONS: &str = "4000";
const THREADS: &str = "4";
/// Where slirp4netns has the host's loopback.
const SLIRP_HOST: &str = "10.0.2.2";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    Up,
    Down,
    Connections,
}

impl Measure {
    pub(crate) const ALL: [Measure; 3] = [Measure::Up, Measure::Down, Measure::Connections];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Up => "up",
            Measure::Down => "down",
            Measure::Connections => "connections",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Measure::Up => "bulk up",
            Measure::Down => "bulk down",
            Measure::Connections => "connections",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        if self == Measure::Connections { "1/s" } else { "MiB/s" }
    }

    pub(crate) fn target(self) -> Limit {
        match self {
            Measure::Up => Limit::AtLeast(0.70),
            Measure::Down => Limit::AtLeast(0.55),
            Measure::Connections => Limit::AtLeast(0.50),
        }
    }

    fn arguments(self, way: Way, address: &str) -> Vec<String> {
        let words = match self {
            Measure::Up | Measure::Down => [self.name(), address, way.mib()].to_vec(),
            Measure::Connections => ["connect", address, CONNECTIONS, THREADS].to_vec(),
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Direct,
    Ours,
    Slirp,
    /// Packets through a tap device, to the host's loopback behind the gateway's address.
    PastaTap,
    /// One loopback port handed to the host's: no tap, no names; context.
    PastaForward,
    /// A relay beside the server that judges nothing: what any second process costs here; context.
    Bare,
}

impl Way {
    pub(crate) const ALL: [Way; 6] = [Way::Direct, Way::Ours, Way::Bare, Way::Slirp, Way::PastaTap, Way::PastaForward];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Ours => "ours",
            Way::Slirp => "slirp4netns",
            Way::PastaTap => "pasta_tap",
            Way::PastaForward => "pasta_forward",
            Way::Bare => "bare_relay",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Way::PastaTap => "pasta (tap)",
            Way::PastaForward => "pasta (-T)",
            Way::Bare => "bare relay",
            other => other.name(),
        }
    }

    /// A tenth of a second or more for each; enough that no buffer on the way holds all of it.
    fn mib(self) -> &'static str {
        match self {
            Way::Direct | Way::Ours | Way::Bare => "512",
            Way::Slirp | Way::PastaTap | Way::PastaForward => "128",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ways<'a> {
    ground: &'a Ground<'a>,
    /// Who holds the namespace, and slirp4netns itself.
    slirp: Result<[Running; 2], String>,
    gateway: Result<String, String>,
}

impl<'a> Ways<'a> {
    pub(crate) fn open(ground: &'a Ground<'a>) -> Self {
        Ways { ground, slirp: slirp(), gateway: gateway() }
    }

    pub(crate) fn measure(&self, way: Way, measure: Measure) -> Result<f64, String> {
        let (mut command, host) = self.command(way)?;
        let port = if way == Way::Bare { self.ground.relay_port } else { self.ground.port };
        let address = format!("{host}:{port}");
        // A client that hangs ends by itself, wherever its way has put it.
        command.args(["timeout", "30"]).arg(&self.ground.load).args(measure.arguments(way, &address));
        figure(&mut command)
    }

    /// What stands before the client, and by which name it knows the server.
    fn command(&self, way: Way) -> Result<(Command, &str), String> {
        match way {
            Way::Direct | Way::Bare => Ok((self.ground.stage.user_command("env".as_ref()), "127.0.0.1")),
            Way::Ours => Ok((self.ground.sandbox(), NAME)),
            Way::Slirp => {
                let [holder, _] = self.slirp.as_ref().map_err(Clone::clone)?;
                Ok((entering(holder), SLIRP_HOST))
            }
            Way::PastaTap => Ok((pasta("none")?, self.gateway.as_ref().map_err(Clone::clone)?)),
            Way::PastaForward => Ok((pasta(&self.ground.port.to_string())?, "127.0.0.1")),
        }
    }
}

fn slirp() -> Result<[Running; 2], String> {
    let program = installed("slirp4netns")?;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--", "sh", "-c", "echo made; exec sleep 3600"]);
    let (holder, _) = Running::saying(&mut command)?;
    let mut command = Command::new(program);
    command.args(["--configure", "--mtu=65520", &holder.id().to_string(), "tap0"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let slirp = Running::start(&mut command)?;
    for _ in 0..100 {
        let routes = output(entering(&holder).args(["ip", "route"]))?;
        if routes.contains("default") {
            return Ok([holder, slirp]);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err("slirp4netns: it did not configure its device (may /dev/net/tun be opened?)".to_owned())
}

fn entering(holder: &Running) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--target={}", holder.id())).args(["--user", "--preserve-credentials", "--net", "--"]);
    command
}

fn pasta(forwarded: &str) -> Result<Command, String> {
    let mut command = Command::new(installed("pasta")?);
    command.args(["-f", "-q", "--config-net", "-t", "none", "-u", "none", "-U", "none", "-T", forwarded]);
    if rustix::process::getuid().is_root() {
        // Else it becomes `nobody`, who may not open /dev/net/tun.
        command.args(["--runas", "0"]);
    }
    command.arg("--");
    Ok(command)
}

/// The gateway of this machine, which pasta shows inside too.
fn gateway() -> Result<String, String> {
    let routes = output(Command::new("ip").args(["-4", "route", "show", "default"]))?;
    let gateway = routes.split_whitespace().skip_while(|word| *word != "via").nth(1).map(str::to_owned);
    gateway.ok_or_else(|| "pasta: this machine has no default route".to_owned())
}
