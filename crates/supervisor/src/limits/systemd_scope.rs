//! A transient scope: a cgroup of this process's own, delegated to its user by systemd's manager. Owns what is asked of
//! it, and the wait until the kernel shows this process there. Called by `cgroup`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_host::cgroup_home::manager_bus;
use rustix::io::Errno;
use thiserror::Error;

use crate::limits::dbus::marshal::{Call, Values};
use crate::limits::dbus::{Bus, BusError};

/// systemd takes milliseconds, but its bus may have to be started first, on a machine that is busy with a login. As long as every
/// other program waits for an answer of a bus.
const PATIENCE: Duration = Duration::from_secs(25);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How a bus says that the one we ask for is not connected to it.
const NOBODY: &str = "org.freedesktop.DBus.Error.NameHasNoOwner";

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

/// Moves this process, all its threads, to a new scope `<name>.scope`. Returns the scope's cgroup, relative to the root
/// of the hierarchy. The scope ends with the last process in it.
pub(crate) fn enter(name: &str, description: &str, environment: &[(String, String)]) -> Result<PathBuf, ScopeError> {
    let until = Instant::now() + PATIENCE;
    let unit = format!("{name}.scope");
    let path = manager_bus(environment).ok_or(ScopeError::NoBus)?;
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

#[cfg(test)]
mod tests;
