//! Command lines of other sandboxes: bubblewrap and firejail. Owns what their options mean here; every option becomes a setting or a remark
//! that says why it has no equal. Called by `import`.

use std::borrow::Cow;

use cofferdam_policy::{Access, EnvMode, NetworkMode, PathExpr, Scalar, Setting, parse_size};
use serde_json::Value;

use super::configuration::Import;

const ALWAYS: &str = "every session has it so";
const NOT_TAKEN: &str = "has no equal here";
const OTHER_PLACE: &str = "a path is shown under its own name only";
const DESKTOP: &str = "services of the desktop are not reachable unless network.sockets names them";

/// What an option of bubblewrap does here, with so many words behind it.
const BWRAP: &[(&str, usize, &str)] = &[
    ("--unshare-user", 0, ALWAYS),
    ("--unshare-user-try", 0, ALWAYS),
    ("--unshare-ipc", 0, ALWAYS),
    ("--unshare-pid", 0, ALWAYS),
    ("--unshare-uts", 0, ALWAYS),
    ("--unshare-cgroup", 0, ALWAYS),
    ("--unshare-cgroup-try", 0, ALWAYS),
    ("--disable-userns", 0, ALWAYS),
    ("--assert-userns-disabled", 0, ALWAYS),
    ("--die-with-parent", 0, ALWAYS),
    ("--new-session", 0, ALWAYS),
    ("--as-pid-1", 0, "pid 1 of a session is its own init"),
    ("--proc", 1, ALWAYS),
    ("--dev", 1, ALWAYS),
    ("--mqueue", 1, NOT_TAKEN),
    ("--hostname", 1, "the host name is `sandbox`"),
    ("--uid", 1, "the user keeps the own number"),
    ("--gid", 1, "the group keeps the own number"),
    ("--cap-drop", 1, ALWAYS),
    ("--cap-add", 1, "no session has a capability"),
    ("--chdir", 1, "it is the flag --cwd of `sandbox run`"),
    ("--argv0", 1, NOT_TAKEN),
    ("--args", 1, "what comes over a descriptor is not read"),
    ("--seccomp", 1, "the filter of system calls is built in; syscalls.deny takes calls away"),
    ("--add-seccomp-fd", 1, "the filter of system calls is built in; syscalls.deny takes calls away"),
    ("--dir", 1, "directories are made in /tmp or in the project by the command itself"),
    ("--symlink", 2, OTHER_PLACE),
    ("--perms", 1, NOT_TAKEN),
    ("--size", 1, "limits.storage bounds what is written"),
    ("--chmod", 2, NOT_TAKEN),
    ("--file", 2, "what comes over a descriptor is not read"),
    ("--bind-data", 2, "what comes over a descriptor is not read"),
    ("--ro-bind-data", 2, "what comes over a descriptor is not read"),
    ("--bind-fd", 2, "what comes over a descriptor is not read"),
    ("--ro-bind-fd", 2, "what comes over a descriptor is not read"),
    ("--overlay-src", 1, "files.overlay makes a directory look writable"),
    ("--overlay", 3, "files.overlay makes a directory look writable"),
    ("--tmp-overlay", 1, "files.overlay makes a directory look writable"),
    ("--ro-overlay", 1, "files.overlay makes a directory look writable"),
    ("--exec-label", 1, NOT_TAKEN),
    ("--file-label", 1, NOT_TAKEN),
    ("--lock-file", 1, NOT_TAKEN),
    ("--sync-fd", 1, NOT_TAKEN),
    ("--info-fd", 1, "`sandbox run --json` says how it ended"),
    ("--json-status-fd", 1, "`sandbox run --json` says how it ended"),
    ("--block-fd", 1, NOT_TAKEN),
    ("--userns", 1, NOT_TAKEN),
    ("--userns2", 1, NOT_TAKEN),
    ("--userns-block-fd", 1, NOT_TAKEN),
    ("--pidns", 1, NOT_TAKEN),
];

pub(super) fn bwrap(import: &mut Import, words: &[String]) {
    let mut words = words.iter().map(String::as_str).peekable();
    words.next_if(|word| program(word) == "bwrap");
    let mut has_own_network = false;
    while let Some(option) = words.next_if(|word| word.starts_with("--")) {
        let mut next = || words.next().unwrap_or_default().to_owned();
        match option {
            "--" => break,
            "--ro-bind" | "--ro-bind-try" => bound(import, option, (next(), next()), Access::Read),
            "--bind" | "--bind-try" | "--dev-bind" | "--dev-bind-try" => {
                bound(import, option, (next(), next()), Access::Write);
            }
            "--remount-ro" => import.path(option, &next(), Access::Read),
            "--tmpfs" => hidden(import, option, &next()),
            "--unshare-net" => has_own_network = true,
            "--unshare-all" => {
                has_own_network = true;
                remark(import, option, "", ALWAYS);
            }
            "--share-net" => has_own_network = false,
            "--setenv" => import.add(Setting::EnvSet(next(), next())),
            "--unsetenv" => import.add(Setting::EnvBlock(next())),
            "--clearenv" => import.add(Scalar::EnvMode(EnvMode::Explicit)),
            _ => {
                let known = BWRAP.iter().find(|(name, ..)| *name == option);
                let (count, why) = known.map_or((0, "is not known"), |(_, count, why)| (*count, *why));
                let values: Vec<String> = (0..count).map(|_| next()).collect();
                remark(import, option, &values.join(" "), why);
            }
        }
    }
    if has_own_network {
        import.add(Scalar::Network(NetworkMode::None));
    } else {
        let why = "the host's whole network is not taken over: list the hosts that are needed in network.allow";
        remark(import, "--share-net", "", why);
    }
    command(import, words);
}

/// Options of firejail that mean something for each of their values.
pub(super) fn firejail(import: &mut Import, words: &[String]) {
    let mut words = words.iter().map(String::as_str).peekable();
    words.next_if(|word| program(word) == "firejail");
    while let Some(option) = words.next_if(|word| word.starts_with("--")) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "--" => break,
            "--net" if value == "none" => import.add(Scalar::Network(NetworkMode::None)),
            "--whitelist" | "--read-write" => home_path(import, name, value, Access::Write),
            "--read-only" | "--whitelist-ro" => home_path(import, name, value, Access::Read),
            "--blacklist" => home_path(import, name, value, Access::Deny),
            "--tmpfs" => hidden(import, name, value),
            "--env" => match value.split_once('=') {
                Some((variable, text)) => import.add(Setting::EnvSet(variable.to_owned(), text.to_owned())),
                None => remark(import, name, value, "is no NAME=VALUE"),
            },
            "--rmenv" => import.add(Setting::EnvBlock(value.to_owned())),
            "--rlimit-nofile" => number(import, name, value, |count| Some(Scalar::OpenFiles(count))),
            "--rlimit-nproc" => {
                number(import, name, value, |count| u32::try_from(count).ok().map(Scalar::MaxProcesses));
            }
            "--rlimit-cpu" => number(import, name, value, |seconds| Some(Scalar::CpuSeconds(seconds))),
            "--rlimit-fsize" => number(import, name, value, |size| Some(Scalar::FileSize(size))),
            "--timeout" => timeout(import, name, value),
            "--noprofile"
            | "--quiet"
            | "--caps"
            | "--caps.drop"
            | "--nonewprivs"
            | "--noroot"
            | "--nogroups"
            | "--seccomp"
            | "--private-tmp"
            | "--private-dev"
            | "--ipc-namespace"
            | "--shell"
            | "--deterministic-exit-code"
            | "--deterministic-shutdown"
            | "--disable-mnt"
            | "--memory-deny-write-execute"
            | "--restrict-namespaces" => {
                remark(import, name, value, ALWAYS);
            }
            "--nosound" | "--no3d" | "--nodvd" | "--notv" | "--nou2f" | "--novideo" | "--noinput" | "--noprinters"
            | "--x11" | "--dbus-user" | "--dbus-system" => remark(import, name, value, DESKTOP),
            "--private" => {
                remark(import, name, value, "the home is not replaced: what is unknown in it is asked about");
            }
            "--profile" => {
                remark(import, name, value, "profiles of firejail are not read; `sandbox learn` makes a policy");
            }
            "--net" | "--netfilter" | "--dns" | "--ip" | "--protocol" | "--defaultgw" | "--interface" => {
                remark(import, name, value, "hosts are named in network.allow");
            }
            _ => remark(import, name, value, NOT_TAKEN),
        }
    }
    command(import, words);
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn remark(import: &mut Import, option: &str, value: &str, why: &str) {
    import.remark(option, &Value::from(value), why);
}

/// A tree that is shown under its own name; the root, read-only, is what a session has anyway.
fn bound(import: &mut Import, option: &str, (source, target): (String, String), access: Access) {
    match (source == target, source.as_str(), access) {
        (false, ..) => remark(import, option, &format!("{source} {target}"), OTHER_PLACE),
        (true, "/", Access::Read) => {
            let why = "the system's software can be read; what is unknown is asked about, or name it in files.read";
            remark(import, option, "/ /", why);
        }
        (true, "/", _) => {
            remark(import, option, "/ /", "no session can write everywhere: name what it writes in files.write");
        }
        (true, path, _) => import.path(option, path, access),
    }
}

/// An empty directory in the place of another hides what is in it.
fn hidden(import: &mut Import, option: &str, path: &str) {
    import.path(option, path, Access::Deny);
}

fn home_path(import: &mut Import, option: &str, path: &str, access: Access) {
    let path = path.strip_prefix("${HOME}").map_or_else(|| path.to_owned(), |rest| format!("~{rest}"));
    if access > Access::Protect {
        return import.path(option, &path, access);
    }
    // As there, a name that does not exist is no mistake.
    match PathExpr::parse(&path) {
        Ok(path) => {
            import.add(Setting::File { access, path, optional: true, reason: Cow::Owned(option.to_owned()) });
        }
        Err(error) => remark(import, option, &path, &error.to_string()),
    }
}

fn number(import: &mut Import, option: &str, value: &str, scalar: impl FnOnce(u64) -> Option<Scalar>) {
    match value.parse().ok().or_else(|| parse_size(value)).and_then(scalar) {
        Some(scalar) => import.add(scalar),
        None => remark(import, option, value, "is no amount that counts here"),
    }
}

/// `hh:mm:ss`
fn timeout(import: &mut Import, option: &str, value: &str) {
    let parts: Vec<u32> = value.split(':').filter_map(|part| part.parse().ok()).collect();
    match parts.as_slice() {
        [hours, minutes, seconds] => {
            let seconds = u64::from(*hours) * 3600 + u64::from(*minutes) * 60 + u64::from(*seconds);
            import.add(Scalar::Timeout(std::time::Duration::from_secs(seconds)));
        }
        _ => remark(import, option, value, "is no time such as 01:30:00"),
    }
}

fn command<'a>(import: &mut Import, words: impl Iterator<Item = &'a str>) {
    let words: Vec<&str> = words.collect();
    if !words.is_empty() {
        remark(import, "command", &words.join(" "), "run it with `sandbox run`");
    }
}
