//! What all connections of a session share, and how one of them gets to its server. Owns resolving, checking every address
//! and connecting; the verdict about a host is `session::rules`'s, and nothing is accepted here. Handed to every connection
//! by `process`.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use cofferdam_policy::{Host, with_port};
use cofferdam_reach::decide::Denial;
use tokio::net::TcpStream;

use crate::connections::splice::Carrier;
use crate::names::lookups::Lookups;
use crate::names::resolve::Failure;
use crate::session::limits::Connections;
use crate::session::rules::SessionRules;
use crate::session::supervisor_link::{Case, Link};
use crate::tls::credentials::Injections;
use crate::tls::terminate::Terminator;
use crate::wire::dns;

/// Longest wait for one address of a host, when there are others.
const PER_ADDRESS: Duration = Duration::from_secs(4);
/// Longest wait for the last one.
const PER_HOST: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) rules: Rc<SessionRules>,
    pub(crate) lookups: Rc<Lookups>,
    pub(crate) link: Rc<Link>,
    pub(crate) connections: Rc<Connections>,
    pub(crate) carrier: Carrier,
    pub(crate) header_timeout: Duration,
    pub(crate) injections: Injections,
    pub(crate) terminator: Option<Terminator>,
}

impl Context {
    /// Whether requests to this place are read one by one: for rules about them, or for a secret.
    pub(crate) fn reads(&self, host: &Host, port: u16) -> bool {
        self.injections.concern(host, port) || self.rules.inspects(host, port)
    }

    /// Resolves, checks every address and connects to one that was checked.
    pub(crate) async fn reach(
        &self,
        host: &Host,
        port: u16,
        from: SocketAddr,
    ) -> Result<(TcpStream, IpAddr), Unreached> {
        let addresses = match host {
            Host::Address(address) => Rc::from([*address]),
            Host::Name(name) => {
                self.may_be_looked_up(host, port, name)?;
                self.lookups.resolve.addresses(name).await.map_err(Unreached::Unresolved)?
            }
        };
        self.rules.addresses(host, port, &addresses, from).await.map_err(Unreached::Denied)?;
        let mut last = Unreached::Unresolved(Failure::Nothing);
        for (index, address) in addresses.iter().enumerate() {
            let longest = if index + 1 == addresses.len() { PER_HOST } else { PER_ADDRESS };
            match tokio::time::timeout(longest, TcpStream::connect((*address, port))).await {
                Ok(Ok(stream)) => {
                    let _quick = stream.set_nodelay(true);
                    return Ok((stream, *address));
                }
                Ok(Err(error)) => last = Unreached::Refused(error),
                Err(_) => last = Unreached::Refused(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last)
    }

    /// A name that a program gives to the proxy leaves as a lookup does: it may be data, and there may be too many.
    fn may_be_looked_up(&self, host: &Host, port: u16, name: &str) -> Result<(), Unreached> {
        if dns::looks_tunnelled(name) {
            return Err(Unreached::Denied(Denial {
                rule: "names that look like data are refused".to_owned(),
                origin: None,
                why: format!("{} looks like data", with_port(host, port)),
                remedy: String::new(),
            }));
        }
        self.lookups.count(name).map_err(Unreached::Unresolved)
    }
}

/// Why a place that policy allows was not reached.
#[derive(Debug)]
pub(crate) enum Unreached {
    Unresolved(Failure),
    Denied(Denial),
    Refused(io::Error),
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreached::Unresolved(failure) => failure.fmt(f),
            Unreached::Denied(denial) => f.write_str(&denial.why),
            Unreached::Refused(error) => error.fmt(f),
        }
    }
}

impl Unreached {
    pub(crate) fn case(&self, host: &Host, port: u16) -> Case {
        match self {
            Unreached::Denied(denial) => Case::denied(host, port, denial),
            Unreached::Unresolved(failure) => Case::failed(host, port, &failure.to_string()),
            Unreached::Refused(error) => Case::failed(host, port, &error.to_string()),
        }
    }
}
