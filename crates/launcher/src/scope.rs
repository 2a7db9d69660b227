//! A transient scope: a cgroup of this process's own, delegated to its user by systemd's manager. Owns which bus leads to
//! that manager, what is asked of it, and the wait until the kernel shows this process there. Called by `cgroup`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use thiserror::Error;

use crate::bus::marshal::{Call, Values};
use crate::bus::{Bus, BusError};

/// systemd takes milliseconds, but its bus may have to be started first, on a machine that is busy with a login.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How a bus says that the one we ask for is not connected to it.
const NOBODY: &str = "org.freedesktop.DBus.Error.NameHasNoOwner";
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

#[derive(Debug, Error)]
pub(crate) enum ScopeError {
    #[error("no bus leads to a service manager of this user")]
    NoBus,
    #[error("the service manager made no scope `{unit}`")]
    Asked {
        unit: String,
        #[source]
        error: BusError,
    },
    #[error("the service manager did not move this process to `{unit}` in time")]
    NotMoved { unit: String },
}

impl ScopeError {
    /// The cause included, for an error that has only an errno beside its text.
    pub(crate) fn in_full(&self) -> String {
        match self {
            ScopeError::Asked { error, .. } => format!("{self}: {error}"),
            _ => self.to_string(),
        }
    }

    pub(crate) fn errno(&self) -> Errno {
        match self {
            ScopeError::NoBus => Errno::NOENT,
            ScopeError::NotMoved { .. } => Errno::TIMEDOUT,
            ScopeError::Asked { error, .. } => match error {
                BusError::Connect { errno, .. } | BusError::Lost(errno) => *errno,
                BusError::Foreign { .. } | BusError::Elsewhere { .. } | BusError::Refused => Errno::PERM,
                BusError::Late => Errno::TIMEDOUT,
                BusError::Gone => Errno::CONNRESET,
                BusError::Malformed => Errno::PROTO,
                BusError::Error { .. } => Errno::NOTSUP,
            },
        }
    }
}

/// Whether there is a bus to ask.
pub(crate) fn has_manager(environment: &[(String, String)]) -> bool {
    bus(environment).is_some()
}

/// Moves this process, all its threads, to a new scope `<name>.scope`. Returns the scope's cgroup, relative to the root
/// of the hierarchy. The scope ends with the last process in it.
pub(crate) fn enter(name: &str, description: &str, environment: &[(String, String)]) -> Result<PathBuf, ScopeError> {
    let until = Instant::now() + PATIENCE;
    let unit = format!("{name}.scope");
    let path = bus(environment).ok_or(ScopeError::NoBus)?;
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    ask(&path, &start(&unit, description, pid), until)
        .map_err(|error| ScopeError::Asked { unit: unit.clone(), error })?;
    loop {
        if let Some(cgroup) = own_cgroup().filter(|cgroup| cgroup.ends_with(&unit)) {
            return Ok(cgroup);
        }
        if Instant::now() >= until {
            return Err(ScopeError::NotMoved { unit });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A bus may have been started by our own connection to its socket: then its manager comes to it a moment after us.
fn ask(bus: &Path, call: &Call<'_>, until: Instant) -> Result<(), BusError> {
    let mut nobody = None;
    loop {
        match (Bus::connect(bus, until).and_then(|bus| bus.call(call)), nobody.take()) {
            (Err(BusError::Error { name, text }), _) if name == NOBODY && Instant::now() + ASK_AGAIN < until => {
                nobody = Some(BusError::Error { name, text });
                std::thread::sleep(ASK_AGAIN);
            }
            // The bus has answered in time, more than once perhaps; what it said is the reason.
            (Err(BusError::Late), Some(nobody)) => return Err(nobody),
            (answered, _) => return answered,
        }
    }
}

/// `StartTransientUnit(name, mode, properties, auxiliary units)`.
fn start<'a>(unit: &str, description: &str, pid: u32) -> Call<'a> {
    let mut body = Values::default();
    body.string(unit);
    body.string("fail");
    body.array(8, |properties| {
        property(properties, "Description", "s", |value| value.string(description));
        property(properties, "Delegate", "b", |value| value.flag(true));
        property(properties, "PIDs", "au", |value| value.array(4, |pids| pids.number(pid)));
        // A scope that ended badly is forgotten as well.
        property(properties, "CollectMode", "s", |value| value.string("inactive-or-failed"));
    });
    body.array(8, |_| {});
    Call {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "StartTransientUnit",
        signature: "ssa(sv)a(sa(sv))",
        body,
    }
}

fn property(list: &mut Values, name: &str, signature: &str, write: impl FnOnce(&mut Values)) {
    list.structure(|entry| {
        entry.string(name);
        entry.variant(signature, write);
    });
}

fn own_cgroup() -> Option<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    table.lines().find_map(|line| line.strip_prefix("0::/")).map(PathBuf::from)
}

/// Root's manager is the machine's; everybody else has one of their own, on the bus of their session.
fn bus(environment: &[(String, String)]) -> Option<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    let path = if is_root { Some(PathBuf::from(SYSTEM_BUS)) } else { session_bus(environment) };
    path.filter(|path| rustix::fs::stat(path).is_ok_and(|stat| is_socket(&stat)))
}

fn is_socket(stat: &rustix::fs::Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
}

fn session_bus(environment: &[(String, String)]) -> Option<PathBuf> {
    let value = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let named = value("DBUS_SESSION_BUS_ADDRESS").and_then(socket_of);
    named.or_else(|| value("XDG_RUNTIME_DIR").map(|dir| Path::new(dir).join("bus"))).filter(|path| path.is_absolute())
}

/// The first socket with a path in a list of addresses such as `unix:path=/run/user/1000/bus,guid=0123;tcp:host=a`.
fn socket_of(addresses: &str) -> Option<PathBuf> {
    let of_unix = addresses.split(';').filter_map(|address| address.strip_prefix("unix:"));
    of_unix.flat_map(|keys| keys.split(',')).find_map(|key| unescaped(key.strip_prefix("path=")?))
}

/// `%20` for what an address cannot hold as it is.
fn unescaped(text: &str) -> Option<PathBuf> {
    let mut parts = text.split('%');
    let mut path = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        path.push(char::from(u8::from_str_radix(code, 16).ok().filter(u8::is_ascii)?));
        path.push_str(rest);
    }
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests;
