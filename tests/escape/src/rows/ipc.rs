//! Rows about talking to processes outside.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Stdio;

use cofferdam_plan::MountKind;
use cofferdam_policy::{Isolation, Origin, Ruled};
use cofferdam_testkit::edit;

use super::launch::is_variant;
use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};

pub(crate) static B11: Row = Row {
    what: "abstract sockets",
    control: "net namespace; Landlock scope",
    policy: |policy, _| {
        if is_variant("process") {
            policy.isolation = Ruled::new(Isolation::Process, Origin::flag("--isolation"));
        }
    },
    run: abstract_socket,
    off: Off::Edit(|plan, _| edit::share_network(plan)),
    ..ROW
};

fn abstract_socket(trial: &Trial) -> Finding {
    const SCOPES: i64 = 6;
    let listener =
        SocketAddr::from_abstract_name(trial.scene.name()).and_then(|address| UnixListener::bind_addr(&address));
    let Ok(_listener) = listener else { return Finding::Broken("cannot listen on the host".to_owned()) };
    let full = trial.probe();
    let landlock = raw::syscall(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0, 0]).unwrap_or(0);
    if landlock < SCOPES {
        // Isolation `process` reports this layer as missing on such a kernel (docs/decisions/0008).
        return full.and_then(|| {
            Finding::Contained(format!("isolation process not tried: Landlock ABI {landlock} has no scopes"))
        });
    }
    full.and_then(|| trial.answer(&trial.launch_in("b11", &trial.project(), &[("COFFERDAM_TEST_VARIANT", "process")])))
}

pub(crate) static B12: Row = Row {
    what: "sockets of services",
    control: "not in the view; variables not passed on",
    environment: &[
        ("SSH_AUTH_SOCK", "/tmp/ssh-test/agent.1"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/0/bus"),
        ("DOCKER_HOST", "unix:///run/docker.sock"),
        ("DISPLAY", ":0"),
        ("WAYLAND_DISPLAY", "wayland-0"),
    ],
    run: service_sockets,
    off: Off::Edit(|plan, place| {
        let home = place.home();
        edit::drop_mounts(plan, |mount| match mount.kind {
            MountKind::Empty { .. } | MountKind::Refused => mount.target.starts_with(&home),
            MountKind::Tmpfs { .. } => mount.target.ends_with("tmp"),
            _ => false,
        });
    }),
    ..ROW
};

/// Listens where services do: below the scene's home, in the temporary directories, and for root in /run.
fn service_sockets(trial: &Trial) -> Finding {
    let home = trial.scene.home();
    let name = trial.scene.name();
    let mut paths: Vec<PathBuf> = [
        ".docker/run/docker.sock",
        ".docker/desktop/docker.sock",
        ".colima/default/docker.sock",
        ".rd/docker.sock",
        ".gnupg/S.gpg-agent",
        ".ssh/agent.sock",
        ".local/share/keyrings/control",
    ]
    .iter()
    .map(|path| home.join(path))
    .collect();
    let mut directories = vec![PathBuf::from("/tmp").join(&name), PathBuf::from("/var/tmp").join(&name)];
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        directories.push(PathBuf::from("/run").join(&name));
    }
    paths.extend(directories.iter().map(|directory| directory.join("socket")));
    let listeners: Vec<std::io::Result<UnixListener>> = paths.iter().map(|path| listen(path)).collect();
    trial.scene.list("sockets", paths.iter().map(|path| path.display().to_string()));
    let finding = trial.probe();
    let broken = listeners.iter().find_map(|listener| listener.as_ref().err().map(ToString::to_string));
    let removed: Result<Vec<()>, _> = directories.iter().map(fs::remove_dir_all).collect();
    match (broken, removed) {
        (Some(error), _) => Finding::Broken(format!("cannot listen on the host: {error}")),
        (_, Err(error)) => Finding::Broken(format!("cannot clean up: {error}")),
        (None, Ok(_)) => finding,
    }
}

pub(crate) static B12_GIVEN: Row = Row {
    what: "sockets in directories that are given",
    control: "covered, unless the policy names them",
    run: given_sockets,
    off: Off::Edit(|plan, _| {
        edit::drop_mounts(plan, |mount| mount.kind == MountKind::Refused && mount.target.ends_with("socket"));
    }),
    ..ROW
};

/// Listens in the project, in its git directory, and where no list of secrets looks.
fn given_sockets(trial: &Trial) -> Finding {
    let (home, project) = (trial.scene.home(), trial.scene.project());
    let paths = [home.join(".daemon/socket"), project.join("run/socket"), project.join(".git/socket")];
    let listeners: Vec<std::io::Result<UnixListener>> = paths.iter().map(|path| listen(path)).collect();
    if let Some(error) = listeners.iter().find_map(|listener| listener.as_ref().err()) {
        return Finding::Broken(format!("cannot listen on the host: {error}"));
    }
    trial.scene.list("sockets", paths.iter().map(|path| path.display().to_string()));
    trial.answer(&trial.launch("b12"))
}

/// Addresses of sockets are short, paths of scenes are not: bound relative to its directory.
fn listen(path: &std::path::Path) -> std::io::Result<UnixListener> {
    let Some(directory) = path.parent() else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    fs::create_dir_all(directory)?;
    UnixListener::bind(path)
}

pub(crate) static B13: Row = Row {
    what: "descriptors passed in",
    control: "no socket reaches the command",
    run: |trial| {
        let stdin = if trial.walls == Walls::Standing { Ok((Stdio::null(), None)) } else { carrying_channel() };
        match stdin {
            Ok((stdin, kept)) => {
                let launched = trial.start("b13", stdin).finish();
                drop(kept);
                launched.map_or_else(|error| Finding::Broken(error.to_string()), |launched| trial.answer(&launched))
            }
            Err(error) => Finding::Broken(error),
        }
    },
    // No step hands descriptors in: the caller's own input is a socket that carries one.
    off: Off::Edit(|_, _| {}),
    ..ROW
};

/// A socket with a descriptor waiting in it.
fn carrying_channel() -> Result<(Stdio, Option<UnixStream>), String> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
    let passed = fs::File::open("/").map_err(|error| error.to_string())?;
    let byte = *b"x";
    let vector = [(&raw const byte) as usize, 1];
    // struct cmsghdr: length, level and type, then the descriptor.
    let level_and_type =
        (usize::try_from(libc::SCM_RIGHTS).unwrap_or(0) << 32) | usize::try_from(libc::SOL_SOCKET).unwrap_or(0);
    let control = [20usize, level_and_type, usize::try_from(passed.as_raw_fd()).unwrap_or(0)];
    let message = [0usize, 0, (&raw const vector) as usize, 1, (&raw const control) as usize, size_of_val(&control), 0];
    let socket = usize::try_from(ours.as_raw_fd()).unwrap_or(0);
    raw::syscall(libc::SYS_sendmsg, [socket, (&raw const message) as usize, 0, 0, 0, 0])
        .map_err(|errno| format!("sendmsg: errno {errno}"))?;
    Ok((Stdio::from(OwnedFd::from(theirs)), Some(ours)))
}

pub(crate) static B14: Row = Row {
    what: "shared memory and message queues",
    control: "ipc namespace, private /dev/shm",
    run: shared_memory,
    off: Off::Edit(|plan, _| plan.namespaces.ipc = false),
    ..ROW
};

fn shared_memory(trial: &Trial) -> Finding {
    const CREATE: usize = 0o1000;
    const REMOVE: usize = 0;
    let key = 0x0c0f_0000 + std::process::id() as usize;
    let queue = std::ffi::CString::new(trial.scene.name()).unwrap_or_default();
    let memory = raw::syscall(libc::SYS_shmget, [key, 4096, CREATE | 0o600, 0, 0, 0]);
    let opened = raw::syscall(libc::SYS_mq_open, [queue.as_ptr() as usize, 0o102, 0o600, 0, 0, 0]);
    let file = PathBuf::from("/dev/shm").join(trial.scene.name());
    let written = fs::write(&file, "host");
    trial.scene.write("home/project/key", &key.to_string());
    let finding = trial.probe();
    let removed = memory
        .and_then(|id| raw::syscall(libc::SYS_shmctl, [usize::try_from(id).unwrap_or(0), REMOVE, 0, 0, 0, 0]))
        .and_then(|_| {
            opened.and_then(|fd| raw::syscall(libc::SYS_close, [usize::try_from(fd).unwrap_or(0), 0, 0, 0, 0, 0]))
        })
        .and_then(|_| raw::syscall(libc::SYS_mq_unlink, [queue.as_ptr() as usize, 0, 0, 0, 0, 0]));
    match (removed, written.and_then(|()| fs::remove_file(file))) {
        (Ok(_), Ok(())) => finding,
        other => Finding::Broken(format!("cannot set up or clean up: {other:?}")),
    }
}
