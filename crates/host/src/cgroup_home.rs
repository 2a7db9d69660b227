//! Where a session's cgroup could be made: below one that is delegated to this user, or in a scope that the service manager
//! makes. Owns the look for both, and which bus leads to the manager; makes nothing. Called by `survey`, by `doctor`, and by the
//! supervisor that makes them.

use std::path::{Path, PathBuf};

use cofferdam_kernel::cgroup::Cgroup;
use cofferdam_plan::CgroupHome;
use rustix::fs::Access;

/// Where the hierarchy lies: alone, or beside the old ones.
const MOUNTS: &[&str] = &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// There while systemd runs the machine.
const MANAGER: &str = "/run/systemd/system";
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// Where a session's cgroup could be made.
pub fn cgroup_home(environment: &[(String, String)]) -> CgroupHome {
    find(environment).unwrap_or_else(|why| CgroupHome::None { why })
}

fn find(environment: &[(String, String)]) -> Result<CgroupHome, String> {
    let table = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = table.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.filter(|own| !own.contains("..")).ok_or("there is no cgroup v2")?;
    let (mount, root) = mounted().ok_or("no cgroup v2 is mounted below /sys/fs/cgroup")?;
    let available = words(&root.read("cgroup.controllers").unwrap_or_default());
    if !["cpu", "memory", "pids"].iter().any(|name| available.iter().any(|have| have == name)) {
        return Err(format!("cgroup v2 in `{}` has no controller for it", mount.display()));
    }
    let is_managed = Path::new(MANAGER).exists();
    if let Some(home) = delegated(mount, &mount.join(own), is_managed) {
        return Ok(home);
    }
    if is_managed && manager_bus(environment).is_some() {
        let uid = rustix::process::getuid().as_raw();
        let service = format!("user.slice/user-{uid}.slice/user@{uid}.service");
        let of_manager = if uid == 0 { mount.to_path_buf() } else { mount.join(service) };
        let controllers = list(&of_manager, "cgroup.controllers");
        if !controllers.is_empty() {
            return Ok(CgroupHome::Scope { controllers });
        }
    }
    Err(format!("no cgroup above `{}` is delegated to this user", mount.join(own).display()))
}

/// The hierarchy, and where it is mounted.
pub fn mounted() -> Option<(&'static Path, Cgroup)> {
    MOUNTS.iter().map(Path::new).find_map(|path| Some((path, Cgroup::open(path).ok()?)))
}

/// The nearest cgroup around this process that is ours to divide.
fn delegated(mount: &Path, own: &Path, is_managed: bool) -> Option<CgroupHome> {
    let ours = |path: &Path| is_writable(path) && (!is_managed || is_given_away(mount, path));
    // Only the root of the hierarchy may have processes and cgroups with limits side by side.
    let above = own.ancestors().skip(usize::from(own != mount)).take_while(|path| path.starts_with(mount));
    for path in above.filter(|path| ours(path)) {
        let mut controllers = list(path, "cgroup.subtree_control");
        if path == mount || list(path, "cgroup.procs").is_empty() {
            controllers = list(path, "cgroup.controllers");
        }
        if !controllers.is_empty() {
            return Some(CgroupHome::Delegated { path: path.to_path_buf(), controllers, alone: false });
        }
    }
    let pid = rustix::process::getpid().as_raw_nonzero().to_string();
    let alone = own != mount && ours(own) && list(own, "cgroup.procs") == [pid];
    let controllers = list(own, "cgroup.controllers");
    (alone && !controllers.is_empty()).then(|| CgroupHome::Delegated {
        path: own.to_path_buf(),
        controllers,
        alone: true,
    })
}

fn is_writable(path: &Path) -> bool {
    let may_write = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
    may_write(path) && may_write(&path.join("cgroup.procs")) && may_write(&path.join("cgroup.subtree_control"))
}

/// Whether the service manager leaves this cgroup to others: it lies in a unit that is marked so. The manager of the
/// user's own units is marked as well, and divides what it has got by itself.
fn is_given_away(mount: &Path, path: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned).unwrap_or_default();
    let kind = |path: &Path| path.extension().and_then(|kind| kind.to_str()).map(str::to_owned).unwrap_or_default();
    let is_unit = |path: &&Path| ["scope", "service", "slice"].contains(&kind(path).as_str());
    let unit = path.ancestors().take_while(|path| *path != mount).find(is_unit);
    let Some(unit) = unit else { return path != mount };
    if kind(unit) == "slice" || name(unit).starts_with("user@") {
        return false;
    }
    let mut value = [0u8; 4];
    rustix::fs::getxattr(unit, "user.delegate", &mut value).is_ok_and(|length| &value[..length] == b"1")
}

fn list(path: &Path, file: &str) -> Vec<String> {
    words(&std::fs::read_to_string(path.join(file)).unwrap_or_default())
}

pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Root's manager is the machine's; every other user has one, on the bus of their session.
pub fn manager_bus(environment: &[(String, String)]) -> Option<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    let path = if is_root { Some(PathBuf::from(SYSTEM_BUS)) } else { session_bus(environment) };
    path.filter(|path| rustix::fs::stat(path).is_ok_and(|stat| is_socket(&stat)))
}

fn is_socket(stat: &rustix::fs::Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
}

/// The bus of this user's login, where the environment names one.
pub fn session_bus(environment: &[(String, String)]) -> Option<PathBuf> {
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
mod tests {
    use super::*;

    #[test]
    fn addresses_of_buses_are_read_as_they_are_written() {
        let environment = |address: &str, runtime: &str| {
            let pairs = [("DBUS_SESSION_BUS_ADDRESS", address), ("XDG_RUNTIME_DIR", runtime)];
            pairs
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect()
        };
        let cases = [
            ("unix:path=/run/user/1000/bus", "/elsewhere", Some("/run/user/1000/bus")),
            ("unix:path=/run/user/1000/bus,guid=00ff", "", Some("/run/user/1000/bus")),
            ("unix:guid=00ff,path=/a%20b%2fc", "", Some("/a b/c")),
            ("tcp:host=example.org;unix:path=/second", "", Some("/second")),
            ("unix:abstract=/tmp/dbus-x", "/run/user/7", Some("/run/user/7/bus")),
            ("unix:path=/broken%2", "/run/user/7", Some("/run/user/7/bus")),
            ("unix:path=relative", "", None),
            ("", "/run/user/7", Some("/run/user/7/bus")),
            ("", "", None),
        ];
        for (address, runtime, path) in cases {
            let environment: Vec<(String, String)> = environment(address, runtime);
            assert_eq!(session_bus(&environment), path.map(PathBuf::from), "{address} {runtime}");
        }
    }
}
