//! `sandbox doctor`: what this machine offers, measured by trying it. Owns the checks and their remedies; repairs nothing.
//! Exit code 1 only when something without which nothing runs is missing.

use std::fmt::Write as _;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use cofferdam_host::user_namespaces::{apparmor_profile, apparmor_restriction, obstacle};
use cofferdam_kernel::process::{Side, clone_into, exit_now, namespace};
use cofferdam_kernel::{Errno, landlock, mount, network, socket};
use cofferdam_plan::CgroupHome;
use cofferdam_reach::start::{PROGRAM, version_line};
use cofferdam_supervisor::is_trusted;
use rustix::process::{WaitId, WaitIdOptions};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::commands::verify;
use crate::environment::{environment, program_beside};
use crate::render::hints;
use crate::render::output::{escaped, json_text, print};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Ok,
    /// Something is weaker or will be missing; the sandbox runs.
    Warn,
    /// Nothing runs without it.
    Fail,
}

#[derive(Debug, Serialize)]
struct Check {
    id: &'static str,
    status: Status,
    measured: String,
    expected: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

fn check(
    id: &'static str,
    status: Status,
    measured: impl Into<String>,
    expected: &'static str,
    remedy: Option<&str>,
) -> Check {
    let remedy = if status == Status::Ok { None } else { remedy.map(str::to_owned) };
    Check { id, status, measured: measured.into(), expected, remedy }
}

pub(crate) fn doctor(args: &DoctorArgs) -> ExitCode {
    let checks = vec![
        machine(),
        kernel(),
        user_namespaces(),
        apparmor(),
        openat2(),
        seccomp(),
        landlock_abi(),
        overlayfs(),
        fuse(),
        egress(),
        egress_beside(),
        verify_beside(),
        cgroup(),
        limits(),
        git(),
        inotify(),
        mode(),
    ];
    let failed = checks.iter().any(|c| c.status == Status::Fail);
    let text = if args.json {
        json_text(&serde_json::json!({ "version": 1, "checks": checks, "pass": !failed }).to_string()) + "\n"
    } else {
        table(&checks)
    };
    let printed = print(&text);
    if failed { ExitCode::FAILURE } else { printed }
}

fn table(checks: &[Check]) -> String {
    let mut out = String::new();
    for check in checks {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        writeln!(out, "{status:<5} {:<18} {}", check.id, check.measured).unwrap_or_default();
        if check.status != Status::Ok {
            writeln!(out, "      {:<18} expected: {}", "", check.expected).unwrap_or_default();
        }
        if let Some(remedy) = &check.remedy {
            writeln!(out, "      {:<18} remedy: {remedy}", "").unwrap_or_default();
        }
    }
    let count = |status| checks.iter().filter(|c| c.status == status).count();
    writeln!(out, "{} ok, {} warnings, {} failures", count(Status::Ok), count(Status::Warn), count(Status::Fail))
        .unwrap_or_default();
    out
}

fn machine() -> Check {
    let uname = rustix::system::uname();
    let measured = format!("{} Linux {}", std::env::consts::ARCH, uname.release().to_string_lossy());
    let is_own = uname.machine().to_bytes() == std::env::consts::ARCH.as_bytes();
    let status = if is_own { Status::Ok } else { Status::Warn };
    let remedy = format!("the kernel calls this machine {}; run a build for it", uname.machine().to_string_lossy());
    check("machine", status, measured, std::env::consts::ARCH, Some(&remedy))
}

/// The first kernel with `mount_setattr`, by which the whole tree becomes read-only at once.
const OLDEST: (u32, u32) = (5, 12);
/// Series that kernel.org looked after for long; of the others up to the last it looks after none any more.
const LONG_TERM: [(u32, u32); 5] = [(5, 15), (6, 1), (6, 6), (6, 12), (6, 18)];

fn kernel() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    kernel_of(&release, has_mount_setattr())
}

/// By asking for no change: only a kernel without the call says that it has none.
fn has_mount_setattr() -> bool {
    let root = rustix::fs::open("/", rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty());
    root.is_ok_and(|root| mount::offers_attributes(root.as_fd()))
}

fn kernel_of(release: &str, has_mount_setattr: bool) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let series = numbers.next().and_then(Result::ok).zip(numbers.next().and_then(Result::ok));
    let is_old = series.is_some_and(|series| series < OLDEST);
    let is_left = series
        .is_some_and(|series| LONG_TERM.last().is_some_and(|last| series < *last) && !LONG_TERM.contains(&series));
    let (status, remedy) = if is_old || !has_mount_setattr {
        (Status::Fail, "run Linux 5.12 or later: before, a tree cannot be made read-only as a whole (mount_setattr)")
    } else if is_left {
        (
            Status::Warn,
            "kernel.org has ended this series: take one that is looked after, unless your distribution does it",
        )
    } else {
        (Status::Ok, "")
    };
    check("kernel", status, format!("Linux {release}"), "5.12 or later, of a series that is looked after", Some(remedy))
}

/// Runs `probe` in a child with its own namespaces; 0 is success, anything else an errno.
fn in_namespaces(flags: u64, probe: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    match clone_into(flags, None)? {
        Side::Child => {
            let code = probe().map_or_else(|errno| errno.raw_os_error().clamp(1, 255), |()| 0);
            exit_now(code)
        }
        Side::Parent { pidfd, .. } => {
            let status = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?;
            match status.and_then(|s| s.exit_status()) {
                Some(0) => Ok(()),
                Some(errno) => Err(Errno::from_raw_os_error(errno)),
                None => Err(Errno::IO),
            }
        }
    }
}

fn map_self(uid: u32, gid: u32) -> Result<(), Errno> {
    let proc = cofferdam_kernel::proc::Proc::open().map_err(|_| Errno::NOENT)?;
    let write = |file: &str, text: &str| match proc.write(file, text) {
        Ok(()) => Ok(()),
        Err(
            cofferdam_kernel::proc::ProcError::Write { errno, .. }
            | cofferdam_kernel::proc::ProcError::Read { errno, .. },
        ) => Err(errno),
        Err(cofferdam_kernel::proc::ProcError::Fake) => Err(Errno::NOENT),
        Err(cofferdam_kernel::proc::ProcError::NoOpenat2) => Err(Errno::NOSYS),
    };
    write("self/setgroups", "deny")?;
    write("self/uid_map", &format!("{uid} {uid} 1\n"))?;
    write("self/gid_map", &format!("{gid} {gid} 1\n"))
}

fn ids() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn read(path: &str) -> Option<String> {
    // Files of procfs have no size, and only the kernel puts anything there.
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn user_namespaces() -> Check {
    let all = namespace::USER
        | namespace::PID
        | namespace::MOUNT
        | namespace::NET
        | namespace::IPC
        | namespace::UTS
        | namespace::CGROUP;
    let (uid, gid) = ids();
    let expected = "a user namespace with all others inside, ids mapped";
    match in_namespaces(all, || map_self(uid, gid)) {
        Ok(()) => check("user-namespaces", Status::Ok, "created with all seven namespaces", expected, None),
        Err(errno) => check(
            "user-namespaces",
            Status::Fail,
            format!("refused: {errno}"),
            expected,
            Some(&hints::user_namespaces(obstacle())),
        ),
    }
}

fn apparmor() -> Check {
    let (status, measured) = match (apparmor_profile(), apparmor_restriction().as_deref()) {
        (Some(name), _) => (Status::Warn, format!("this process is confined by the profile `{name}`")),
        (None, Some("1")) => (Status::Warn, "user namespaces are restricted to programs with a profile".to_owned()),
        (None, Some(_)) => (Status::Ok, "present, no restriction of user namespaces".to_owned()),
        (None, None) => (Status::Ok, "no restriction of user namespaces".to_owned()),
    };
    let remedy = "install an AppArmor profile for this binary that contains `userns,`: docs/guides/install.md";
    check("apparmor", status, measured, "no restriction, or a profile for this binary", Some(remedy))
}

/// A session can leave a bare repository in a subdirectory of the project; git runs what it says for who stands there.
fn git() -> Check {
    let expected = "safe.bareRepository=explicit: git takes no directory for a repository because of its looks";
    let asked = std::process::Command::new("git")
        .args(["config", "--global", "--get", "safe.bareRepository"])
        // What the working directory holds must not have a say.
        .current_dir("/")
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .output();
    let Ok(output) = asked else { return check("git", Status::Ok, "not installed", expected, None) };
    let value = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let (status, measured) = match value.as_str() {
        "explicit" => (Status::Ok, "bare repositories only where they are named".to_owned()),
        "" => (Status::Warn, "safe.bareRepository is not set".to_owned()),
        other => (Status::Warn, format!("safe.bareRepository={}", escaped(other))),
    };
    check("git", status, measured, expected, Some("git config --global safe.bareRepository explicit"))
}

fn openat2() -> Check {
    let result = mount::open_source(Path::new("/"));
    let (status, measured) = match result {
        Ok(_) => (Status::Ok, "works".to_owned()),
        Err(errno) => (Status::Fail, format!("refused: {errno}")),
    };
    check("openat2", status, measured, "Linux 5.6 or later", Some("use a newer kernel"))
}

fn seccomp() -> Check {
    let actions = read("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let status = if actions.contains("user_notif") { Status::Ok } else { Status::Fail };
    let measured = if actions.is_empty() { "not available".to_owned() } else { format!("actions: {actions}") };
    check(
        "seccomp-notify",
        status,
        measured,
        "filters with user notification",
        Some("use a kernel from 5.5 on with CONFIG_SECCOMP_FILTER"),
    )
}

fn landlock_abi() -> Check {
    let abi = landlock::abi();
    let status = if abi >= 6 { Status::Ok } else { Status::Warn };
    let remedy = "Linux 6.12 has ABI 6; below it namespaces alone keep signals and abstract sockets apart; 0 means Landlock is off (lsm=landlock)";
    check("landlock", status, format!("ABI {abi}"), "ABI 6 (scopes)", Some(remedy))
}

fn overlayfs() -> Check {
    let (uid, gid) = ids();
    let probe = || {
        map_self(uid, gid)?;
        let writable = mount::Attributes { write: true, exec: false, devices: false };
        let base = mount::new_filesystem("tmpfs", &[("mode", "700")], writable)?;
        let root = mount::open_source(Path::new("/"))?;
        mount::attach(base.as_fd(), root.as_fd())?;
        for name in ["lower", "upper", "work"] {
            rustix::fs::mkdirat(&base, name, rustix::fs::Mode::RWXU)?;
        }
        let path = |name: &str| format!("/proc/self/fd/{}/{name}", base.as_raw_fd());
        let (lower, upper, work) = (path("lower"), path("upper"), path("work"));
        let options = [("lowerdir", lower.as_str()), ("upperdir", &upper), ("workdir", &work), ("userxattr", "")];
        mount::new_filesystem("overlay", &options, writable).map(drop)
    };
    let (status, measured) = match in_namespaces(namespace::USER | namespace::MOUNT, probe) {
        Ok(()) => (Status::Ok, "mounted in a user namespace".to_owned()),
        Err(errno) => (Status::Warn, format!("refused: {errno}")),
    };
    check(
        "overlayfs",
        status,
        measured,
        "mountable in a user namespace (Linux 5.11)",
        Some("without it `--overlay` and the shipped cache overlays fail; load the overlay module"),
    )
}

fn fuse() -> Check {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let (status, measured) = match rustix::fs::open("/dev/fuse", flags, rustix::fs::Mode::empty()) {
        Ok(_) => (Status::Ok, "/dev/fuse opens".to_owned()),
        Err(errno) => (Status::Warn, format!("/dev/fuse: {errno}")),
    };
    check(
        "fuse",
        status,
        measured,
        "/dev/fuse usable by this user",
        Some(
            "questions at first access work without it too, and slow programs down: modprobe fuse, chmod 666 /dev/fuse",
        ),
    )
}

/// Makes a session's network as `--allow-host` needs it, and asks how much of it is caught.
fn egress() -> Check {
    let (uid, gid) = ids();
    let probe = || {
        map_self(uid, gid)?;
        let (ours, theirs) = socket::pair()?;
        let catch = network::Catch { to: theirs.as_fd(), ports: &[], also: &[], without_filter: false };
        network::create_beside(Some(catch))?.join()?;
        match socket::receive_now(&ours)?.0.first() {
            Some(&network::CAUGHT_ALL) => Ok(()),
            _ => Err(Errno::OPNOTSUPP),
        }
    };
    let (status, measured) = match in_namespaces(namespace::USER, probe) {
        Ok(()) => (Status::Ok, "every port of allowed hosts can be reached: nftables catches them".to_owned()),
        Err(Errno::OPNOTSUPP) => {
            let measured = "no nftables in a user namespace: only ports that rules name, 80 and 443 can be reached";
            (Status::Warn, measured.to_owned())
        }
        Err(errno) => (Status::Warn, format!("`--allow-host` fails: {errno}")),
    };
    check(
        "egress",
        status,
        measured,
        "nftables with transparent proxying in a user namespace",
        Some(
            "load the modules nf_tables and nft_tproxy (modprobe), or build them in; without them name the ports in rules, and programs inside cannot listen on those",
        ),
    )
}

/// Without it sessions run that have no way out, and no others; at a terminal each can ask about hosts.
fn egress_beside() -> Check {
    let (status, measured) = beside(PROGRAM, &version_line(), Status::Fail, "only `--network none` runs at a terminal");
    let remedy = "install `sandbox-egress` of the same build beside `sandbox`";
    check("egress program", status, measured, "`sandbox-egress` in the directory of `sandbox`", Some(remedy))
}

fn verify_beside() -> Check {
    let version = concat!("sandbox verify ", env!("CARGO_PKG_VERSION"));
    let (status, measured) = beside(verify::PROGRAM, version, Status::Warn, "`sandbox verify` does not run");
    let remedy = "install `sandbox-verify` of the same build beside `sandbox`";
    check("verify program", status, measured, "`sandbox-verify` in the directory of `sandbox`", Some(remedy))
}

/// A further program, and where it lies; what `without` it is.
fn beside(program: &str, version: &str, without: Status, then: &str) -> (Status, String) {
    let Some(path) = program_beside(program) else {
        return (without, format!("where `sandbox` lies is not known; {then}"));
    };
    match version_of(&path) {
        Ok(said) if said == version => (Status::Ok, path.display().to_string()),
        Ok(said) => (without, format!("{} says `{said}`, not `{version}`", path.display())),
        Err(why) => (without, format!("{}: {why}; {then}", path.display())),
    }
}

/// The first line of what a program says of itself, if it says so at once.
fn version_of(program: &Path) -> Result<String, String> {
    if !is_trusted(program).map_err(|errno| errno.to_string())? {
        return Err("it belongs to another user, or other users can write to it".to_owned());
    }
    let mut command = std::process::Command::new(program);
    command.arg("--version").env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let until = Instant::now() + Duration::from_secs(2);
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let ended = child.kill().and_then(|()| child.wait());
            return Err(ended.map_or_else(|error| error.to_string(), |_| "it does not answer".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    let output = child.stdout.take().ok_or("it has no output")?;
    output.take(256).read_to_string(&mut said).map_err(|error| error.to_string())?;
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

fn cgroup() -> Check {
    let expected = "cpu, memory and pids delegated to this user";
    let home = cofferdam_host::cgroup_home::cgroup_home(&environment());
    let measured = match &home {
        CgroupHome::None { why } => why.clone(),
        CgroupHome::Delegated { path, controllers, .. } => format!("{}: {}", path.display(), controllers.join(" ")),
        CgroupHome::Scope { controllers } => format!("scopes of the service manager: {}", controllers.join(" ")),
    };
    let has = |name: &str| home.controllers().iter().any(|have| have == name);
    let status = if ["cpu", "memory", "pids"].into_iter().all(has) { Status::Ok } else { Status::Warn };
    let remedy = if Path::new("/run/systemd/system").exists() {
        "log in with a user manager (`loginctl enable-linger`), and let it have more controllers: `Delegate=cpu cpuset io memory pids` in a drop-in of user@.service"
    } else {
        "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1), or have root chown a cgroup with its cgroup.procs and cgroup.subtree_control to this user and start from a cgroup below it"
    };
    check("cgroup-v2", status, measured, expected, Some(remedy))
}

/// Each session in a project takes an instance, and a watch for each directory with a covered name.
fn inotify() -> Check {
    let limit = |name: &str| {
        let text = read(&format!("/proc/sys/fs/inotify/{name}"));
        text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let (instances, watches) = (limit("max_user_instances"), limit("max_user_watches"));
    let made = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC);
    let status = match made {
        Ok(_) if instances >= 64 && watches >= 8192 => Status::Ok,
        Ok(_) | Err(_) => Status::Warn,
    };
    let refused = made.err().map_or_else(String::new, |errno| format!("; none can be had now: {errno}"));
    check(
        "inotify",
        status,
        format!("{instances} instances and {watches} watches for each user{refused}"),
        "64 instances and 8192 watches, and one to be had",
        Some(
            "a session takes one to notice that a host program takes a cover off, and does not start without: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches",
        ),
    )
}

/// Who keeps the limits that only some machines can keep.
fn limits() -> Check {
    let home = cofferdam_host::cgroup_home::cgroup_home(&environment());
    let has = |name: &str| home.controllers().iter().any(|have| have == name);
    let processes = match (has("pids"), rustix::process::getuid().is_root()) {
        (true, _) => "cgroup",
        (false, true) => "watched",
        (false, false) => "rlimit",
    };
    let memory = if has("memory") { "cgroup" } else { "watched" };
    let cpus = if has("cpu") { "cgroup" } else { "pinning, whole CPUs only" };
    let io = if has("io") { "cgroup" } else { "nothing (refused)" };
    let measured = format!("memory: {memory}; processes: {processes}; cpus: {cpus}; disk bandwidth: {io}");
    let status = if has("memory") && has("pids") { Status::Ok } else { Status::Warn };
    check(
        "limits",
        status,
        measured,
        "memory and processes by cgroup",
        Some("what is watched is ended a moment after it went over; see `cgroup-v2`"),
    )
}

fn mode() -> Check {
    let by = if cofferdam_kernel::fuse::is_available() { "a FUSE root" } else { "reported system calls" };
    check(
        "mode",
        Status::Ok,
        format!("dynamic: the first access asks, by {by}"),
        "dynamic: the first access asks",
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::{Status, kernel, kernel_of};

    #[test]
    fn the_oldest_kernel_and_series_that_were_ended_are_known() {
        for (release, has_call, status) in [
            ("5.11.22-generic", true, Status::Fail),
            ("4.19.0", false, Status::Fail),
            ("5.12.0", true, Status::Warn),
            ("5.15.0-130-generic", true, Status::Ok),
            ("5.15.0", false, Status::Fail),
            ("6.1.0-40-amd64", true, Status::Ok),
            ("6.11.0-rc1+", true, Status::Warn),
            ("6.18.3", true, Status::Ok),
            ("7.2.0", true, Status::Ok),
            ("odd", true, Status::Ok),
        ] {
            let check = kernel_of(release, has_call);
            assert_eq!(check.status, status, "{release}");
            assert_eq!(check.remedy.is_some(), status != Status::Ok, "{release}");
        }
    }

    #[test]
    fn the_call_is_found_where_it_is() {
        assert_ne!(kernel().status, Status::Fail, "the tests need it themselves");
    }
}
