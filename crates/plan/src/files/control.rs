//! Sockets through which a host is controlled: a workload that speaks to a container engine, a machine manager or the service
//! manager runs code outside. Owns the list, and the rule that only the organisation gives one of them, each by name (R1.34).
//! Called by `rules`; `host` looks at the places that are listed.

use std::path::{Path, PathBuf};

use cofferdam_policy::{Layer, Policy};

use crate::facts::host::HostFacts;
use crate::facts::path::{FileId, PathFact};

/// Ends of paths, with what listens there.
const ENDINGS: &[(&str, &str)] = &[
    ("docker.sock", "docker"),
    ("docker.raw.sock", "docker"),
    ("podman.sock", "podman"),
    ("containerd.sock", "containerd"),
    ("containerd.sock.ttrpc", "containerd"),
    ("crio.sock", "cri-o"),
    ("buildkitd.sock", "buildkit"),
    ("cri-dockerd.sock", "docker"),
    ("system_bus_socket", "the system bus, and with it systemd"),
    ("systemd/private", "systemd"),
    ("systemd/notify", "systemd"),
    ("snapd.socket", "snapd"),
    ("snapd-snap.socket", "snapd"),
    ("lxd/unix.socket", "lxd"),
    ("incus/unix.socket", "incus"),
];

/// Directories all of whose sockets are such.
const DIRECTORIES: &[(&str, &str)] = &[("/run/libvirt", "libvirt"), ("/run/systemd", "systemd")];

/// Places on a host; `RUNTIME` stands for a user's directory below /run/user.
pub const PLACES: &[&str] = &[
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/cri-dockerd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/libvirt/libvirt-sock",
    "/run/libvirt/virtqemud-sock",
    "/run/libvirt/virtproxyd-sock",
    "/run/snapd.socket",
    "/run/snapd-snap.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
    "RUNTIME/docker.sock",
    "RUNTIME/podman/podman.sock",
    "RUNTIME/bus",
    "RUNTIME/systemd/private",
    "RUNTIME/libvirt/libvirt-sock",
    "RUNTIME/libvirt/virtqemud-sock",
];

/// What a granted socket controls, if it is one of these and the organisation has not named it.
pub(crate) fn controls(policy: &Policy, facts: &HostFacts, path: &Path, id: FileId) -> Option<&'static str> {
    let what = by_name(path).or_else(|| {
        let same = facts.control_sockets.iter().find(|(_, known)| *known == id);
        same.map(|(place, _)| by_name(place).unwrap_or("a service manager"))
    })?;
    let by_organisation = facts.granted_sockets.iter().any(|(index, fact)| {
        let is_theirs = policy.network.sockets.get(*index).is_some_and(|grant| grant.origin.layer == Layer::Org);
        is_theirs && matches!(fact, PathFact::Present { id: named, .. } if *named == id)
    });
    (!by_organisation).then_some(what)
}

fn by_name(path: &Path) -> Option<&'static str> {
    let ending = ENDINGS.iter().find(|(ending, _)| path.ends_with(ending));
    let directory = || {
        let user = user_directory(path).map(|rest| Path::new("/run").join(rest));
        DIRECTORIES
            .iter()
            .find(|(directory, _)| [Some(path), user.as_deref()].iter().flatten().any(|p| p.starts_with(directory)))
    };
    let bus = || {
        user_directory(path)
            .filter(|rest| rest == Path::new("bus"))
            .map(|_| &("", "the session bus, and with it systemd"))
    };
    ending.or_else(directory).or_else(bus).map(|(_, what)| *what)
}

/// What follows `/run/user/N`.
fn user_directory(path: &Path) -> Option<PathBuf> {
    let mut rest = path.strip_prefix("/run/user").ok()?.components();
    rest.next()?;
    Some(rest.as_path().to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sockets_are_known_by_name_wherever_they_lie() {
        for (path, what) in [
            ("/run/docker.sock", "docker"),
            ("/home/dev/.colima/default/docker.sock", "docker"),
            ("/run/user/1000/podman/podman.sock", "podman"),
            ("/run/user/1000/bus", "the session bus, and with it systemd"),
            ("/run/user/1000/systemd/private", "systemd"),
            ("/run/user/1000/libvirt/virtqemud-sock", "libvirt"),
            ("/run/libvirt/virtlogd-sock", "libvirt"),
            ("/run/systemd/journal/io.systemd.journal", "systemd"),
            ("/var/snap/lxd/common/lxd/unix.socket", "lxd"),
        ] {
            assert_eq!(by_name(Path::new(path)), Some(what), "{path}");
        }
        for path in [
            "/tmp/x/bus",
            "/home/dev/app/pg.sock",
            "/home/dev/docker.socket",
            "/run/user/1000/gnupg/S.gpg-agent",
            "/run/user/bus",
        ] {
            assert_eq!(by_name(Path::new(path)), None, "{path}");
        }
    }
}
