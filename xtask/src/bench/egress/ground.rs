//! What every way leads to: a server for bulk and connections, a web server's free port, a name server for one name, and
//! the policy of a user who allows them. Owns these; measures nothing.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::egress::running::Running;
use crate::bench::stage::Stage;
use crate::problems::Problems;

pub(crate) const NAME: &str = "bench.test";

#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) stage: &'a Stage,
    /// The program for both ends.
    pub(crate) load: PathBuf,
    pub(crate) port: u16,
    pub(crate) web_port: u16,
    /// Where a relay that judges nothing leads to the server.
    pub(crate) relay_port: u16,
    _servers: [Running; 3],
}

impl<'a> Ground<'a> {
    pub(crate) fn set_up(stage: &'a Stage, load: &Path) -> Result<Self, Problems> {
        let load = stage.bring(load, "egress-load")?;
        let server = Running::saying(stage.user_command(&load).arg("serve")).map_err(Problems::one)?;
        let names = Running::saying(stage.user_command(&load).args(["names", NAME, "127.0.0.1"]));
        let (names, resolver) = names.map_err(Problems::one)?;
        let (relay, relay_address) =
            Running::saying(stage.user_command(&load).args(["relay", &server.1])).map_err(Problems::one)?;
        let (port, relay_port) = (port_of(&server.1)?, port_of(&relay_address)?);
        let web_port = free_port().map_err(|e| Problems::one(format!("no free port: {e}")))?;
        // A loopback address may be dialed because the user's layer, which may, has listed it.
        let allowed = [port, web_port].map(|port| format!("\"{NAME}:{port}\", \"127.0.0.1:{port}\"")).join(", ");
        let policy = format!("[network]\nresolvers = [\"{resolver}\"]\nallow = [{allowed}]\n");
        stage.write("home/.config/cofferdam/config.toml", &policy)?;
        Ok(Ground { stage, load, port, web_port, relay_port, _servers: [server.0, relay, names] })
    }

    /// `sandbox run` with the servers allowed by name.
    pub(crate) fn sandbox(&self) -> Command {
        let mut command = self.stage.user_command(&self.stage.sandbox());
        command.args(["run", "--mode", "static"]);
        for port in [self.port, self.web_port] {
            command.arg("--allow-host").arg(format!("{NAME}:{port}"));
        }
        command.arg("--");
        command
    }
}

fn port_of(address: &str) -> Result<u16, Problems> {
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    port.ok_or_else(|| Problems::one(format!("`{address}` is no address")))
}

/// No other process here asks for ports between this and the server's start.
pub(crate) fn free_port() -> std::io::Result<u16> {
    TcpListener::bind("127.0.0.1:0")?.local_addr().map(|address| address.port())
}

/// Whether a program is installed, where a shell of root looks for it.
pub(crate) fn installed(program: &str) -> Result<PathBuf, String> {
    let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = places.iter().map(|place| Path::new(place).join(program)).find(|path| path.is_file());
    found.ok_or_else(|| format!("absent: `{program}` is not installed"))
}
