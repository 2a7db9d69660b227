//! What an operator can do about an error of the crates below, which know nothing of flags. Owns those sentences; the errors
//! are the crates'. Called by `failure` and where an answer could not be kept.

use std::borrow::Cow;
use std::path::Path;

use cofferdam_host::persist::{PersistError, StoreError};
use cofferdam_host::policy_files::PolicyFilesError;
use cofferdam_host::user_namespaces::{Obstacle, obstacle};
use cofferdam_plan::{PlanError, Step};
use cofferdam_supervisor::LaunchError;
use rustix::io::Errno;

use crate::environment::own_home;
use crate::render::denials;

const STREAMS: &str =
    "a standard stream may be a file, a pipe, a socket, a terminal or /dev/null; redirect it, as in `< /dev/null`";

pub(crate) fn plan(error: &PlanError) -> Option<String> {
    Some(match error {
        PlanError::NoWalls { .. } => "leave it out, or choose `--isolation full`".to_owned(),
        PlanError::MissingPath { path, origin } if path.exists() => format!(
            "a link leads from there out of a directory that sessions write or wrote, or to what a rule refuses: name what it leads to, or drop the rule ({origin})"
        ),
        PlanError::MissingPath { path, origin } => {
            format!("it does not exist: make it first (`mkdir -p {}`), or drop the rule ({origin})", path.display())
        }
        PlanError::TooWide { path, .. } => format!("name a directory below `{}`", path.display()),
        PlanError::OutsideCeiling { path, .. } => {
            format!("work below a directory that the organisation allows, or give `{}` read-only", path.display())
        }
        PlanError::NoneNotApproved { .. } => {
            "`/etc/cofferdam/policy.toml` must say `allow_isolation_none = true`".to_owned()
        }
        PlanError::ControlSocket { path, origin, .. } => format!(
            "drop it ({origin}); only the organisation's `/etc/cofferdam/policy.toml` gives it, with `network.sockets = [{:?}]`",
            path.display().to_string()
        ),
        PlanError::NotASocket { origin, .. } => format!("start what listens there, or drop the rule ({origin})"),
        PlanError::SocketsUnknown { why } if why.contains("openat2") => {
            "a sandbox cannot be started inside of another sandbox, which has no openat2".to_owned()
        }
        PlanError::TooManyHidden { directory } => format!(
            "remove them, or move them into one directory that is hidden as a whole: `mkdir {0}/.env.d`",
            directory.display()
        ),
        PlanError::FoldsCase { path } => format!(
            "work on a copy on a local disk whose file system tells cases apart: `cp -a {} DIRECTORY`",
            path.display()
        ),
        PlanError::PathsUnknown { .. } => "run it again when the machine has open files and memory to spare".to_owned(),
        PlanError::MountsUnknown { .. } => "`cat /proc/self/mountinfo` shows what the kernel says".to_owned(),
        PlanError::SocketsUnknown { .. } => "`ss -xlp` shows who has them".to_owned(),
        PlanError::SpecialFile { path, origin } => {
            format!("drop the rule ({origin}); a socket is given with --socket {}", path.display())
        }
        PlanError::OwnArea { origin, .. } => format!("drop the rule ({origin})"),
        PlanError::OverlayNeedsDirectory { .. } => "overlay the directory that holds it".to_owned(),
        PlanError::NoSessionDirectory => "set HOME or XDG_STATE_HOME to a directory you own".to_owned(),
        PlanError::UnknownSyscall { .. } => {
            "names are those of the manual's section 2, e.g. `io_uring_setup`".to_owned()
        }
        PlanError::ExecutableNotFound { origin, .. } => format!("install it or drop the rule ({origin})"),
        PlanError::ExecNeedsLandlock { .. } => "a kernel from 5.13 on with Landlock enabled can do it".to_owned(),
        PlanError::CannotLimit { origin, .. } => {
            format!("`sandbox doctor` shows how to get cgroup v2 delegated; or drop the limit ({origin})")
        }
        PlanError::NetworkNeedsFull { .. } => "run with --isolation full, or with --network none".to_owned(),
        PlanError::NoGate { .. } => "run with --mode static, which asks nothing".to_owned(),
        PlanError::SecretIsWritable { origin, .. } => format!("keep it elsewhere, readable by you alone ({origin})"),
        PlanError::NoSuchCpus { origin, .. } => format!("name CPUs of this machine ({origin})"),
        PlanError::SyscallAlwaysDenied { .. } => return None,
    })
}

pub(crate) fn launch(error: &LaunchError) -> Option<String> {
    Some(match error {
        LaunchError::Stream { .. } => STREAMS.to_owned(),
        LaunchError::Cgroup { .. } => "`sandbox doctor` shows what is delegated to this user".to_owned(),
        LaunchError::Namespaces { errno } if *errno == Errno::NOSPC || *errno == Errno::USERS => {
            "user namespaces are exhausted or switched off; as root: sysctl -w user.max_user_namespaces=15000".to_owned()
        }
        LaunchError::Namespaces { errno } if *errno == Errno::NOSYS => {
            "this looks like the inside of another sandbox or container, which allows no further one; run it outside".to_owned()
        }
        LaunchError::Namespaces { errno } if *errno == Errno::PERM || *errno == Errno::ACCESS => {
            format!("user namespaces are not allowed for this user; remedy: {}", user_namespaces(obstacle()))
        }
        LaunchError::Step { step: Some(step), .. } if matches!(**step, Step::MapIds { .. } | Step::ForbidUserNamespaces) => {
            "the kernel lets this user make a user namespace but not use it (AppArmor does that on Ubuntu); see `sandbox doctor`"
                .to_owned()
        }
        LaunchError::Step { errno, .. } if *errno == Errno::STALE => "run it again".to_owned(),
        LaunchError::Step { .. } | LaunchError::Vanished => "`sandbox doctor` shows what this kernel offers".to_owned(),
        LaunchError::Secret { .. } => "the secret of each entry in `network.credentials` is read before anything starts".to_owned(),
        LaunchError::Trusted { .. } => {
            "install the package `ca-certificates`, or set SSL_CERT_FILE to a file of authorities in PEM".to_owned()
        }
        LaunchError::EgressProgram { path, .. } => format!(
            "install `sandbox-egress` of the same build beside `sandbox`, as {}; or run with --network none (at a terminal a session can ask about hosts, and needs it)",
            path.display()
        ),
        LaunchError::EgressOwner { path } => format!(
            "install both programs in a directory of root's or of your own: {} is executed with your rights",
            path.display()
        ),
        LaunchError::Egress { .. } | LaunchError::EgressVersion { .. } => {
            "install `sandbox` and `sandbox-egress` of one build together; or run with --network none".to_owned()
        }
        LaunchError::Publish { origin, .. } => format!("choose another port, as in --publish HOSTPORT:PORT ({origin})"),
        LaunchError::Hold { path, .. } => {
            format!("the sandbox keeps `{}` from being created; it needs to write in that directory", path.display())
        }
        LaunchError::Keeper { path: None, .. } => {
            "this user has no inotify instance left: end programs that watch files, or raise fs.inotify.max_user_instances".to_owned()
        }
        LaunchError::Keeper { path: Some(path), errno } if *errno == Errno::NOSPC => format!(
            "this user has no inotify watch left for {}: raise fs.inotify.max_user_watches",
            path.display()
        ),
        LaunchError::Keeper { path: Some(path), .. } => {
            format!("{} holds a name that must stay covered and cannot be watched; make it readable to you", path.display())
        }
        LaunchError::Copy { errno, .. } if *errno == Errno::FBIG => {
            "more than 262,144 names, or 4 GiB where the file system cannot share them between two files; \
             leave out transaction_mode = \"copy\""
                .to_owned()
        }
        LaunchError::Directory { .. } => "it is hidden or private inside; start from another directory".to_owned(),
        LaunchError::Execute { errno, program, .. } if *errno == Errno::NOENT => {
            format!("`{program}` is not in the sandbox's PATH, or its interpreter is hidden")
        }
        LaunchError::Execute { errno, denied: Some(denied), .. } if *errno == Errno::ACCESS => {
            let home = own_home().unwrap_or_else(|_| "/".into());
            format!("{} lies where nothing was approved: {}", denied.path, denials::allow_running(Path::new(&denied.path), &home))
        }
        LaunchError::Execute { errno, .. } if *errno == Errno::ACCESS => {
            "it is not executable, or lies where programs may not run; `sandbox explain` shows the rules".to_owned()
        }
        LaunchError::NothingToJoin { .. } => "run it without --detach, or with isolation `full` and /dev/fuse, or with --mode static".to_owned(),
        LaunchError::Exec { code: 127, .. } => "it is not in the sandbox's PATH, or its interpreter is hidden".to_owned(),
        LaunchError::Execute { .. }
        | LaunchError::Exec { .. }
        | LaunchError::SessionDirectory { .. }
        | LaunchError::Copy { .. }
        | LaunchError::Namespaces { .. }
        | LaunchError::Supervise(_) => return None,
    })
}

pub(crate) fn persist(error: &PersistError) -> Option<String> {
    Some(match error {
        PersistError::NotTrusted { .. } => {
            "look at it and approve it with `sandbox trust`, then answer again".to_owned()
        }
        PersistError::NoProject => "keep it for the user, or run in a project directory".to_owned(),
        PersistError::Unwritable { .. } => "name a directory above it, without `*` in its name".to_owned(),
        PersistError::OnlyNames { .. } => {
            "keep it for the session, or answer for the directory and everything below it".to_owned()
        }
        PersistError::TooWide { .. } => "name a directory below it".to_owned(),
        PersistError::Overruled { .. } => "change that rule, or keep the answer in its layer".to_owned(),
        PersistError::Changed { .. } => "run the command again and look at what it proposes now".to_owned(),
        PersistError::Store(error) => return store(error),
        PersistError::Files(PolicyFilesError::Policy(error)) => return error.hint(),
        PersistError::NotKept
        | PersistError::NoList { .. }
        | PersistError::Files(_)
        | PersistError::Lock(_)
        | PersistError::Read(_)
        | PersistError::Write(_) => return None,
    })
}

pub(crate) fn store(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Link { .. } => Some("edit the file it leads to by hand, or replace the link".to_owned()),
        StoreError::Read(_) | StoreError::Write(_) => None,
    }
}

/// What lets this user make user namespaces.
pub(crate) fn user_namespaces(obstacle: Obstacle) -> Cow<'static, str> {
    Cow::Borrowed(match obstacle {
        Obstacle::Profile(name) => {
            return format!(
                "this process runs under the AppArmor profile `{name}`: add `userns,` to it, or let `sandbox` run under its own (docs/guides/install.md)"
            )
            .into();
        }
        Obstacle::Limit => "sysctl -w user.max_user_namespaces=15000",
        Obstacle::UnprivilegedClone => "sysctl -w kernel.unprivileged_userns_clone=1",
        Obstacle::AppArmor => {
            "allow this binary in AppArmor (a profile with `userns,`: docs/guides/install.md), or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        }
        Obstacle::Unknown => {
            "in a container, its seccomp profile must allow clone3 with CLONE_NEWUSER; elsewhere enable CONFIG_USER_NS"
        }
    })
}
