//! Errors as a person reads them: what failed, what caused it, what to do. Owns hints and exit codes of our own failures;
//! the errors themselves come from the libraries and know nothing of flags.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use cofferdam_launcher::{LaunchError, SurveyError};
use cofferdam_plan::{PlanError, Step};
use cofferdam_policy::{Origin, PolicyError};
use rustix::io::Errno;
use thiserror::Error;

use crate::doctor::user_namespaces_remedy;
use crate::output::{escaped, say_text};
use crate::persist::PersistError;

/// What was looked at is not there, or not whole.
pub(crate) const NOT_SO: u8 = 1;
/// Nothing of that name, or nothing was changed.
pub(crate) const NOTHING: u8 = 1;
pub(crate) const OUR_FAILURE: u8 = 125;
pub(crate) const REFUSED: u8 = 126;

/// Everything that can go wrong at the edge.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error("cannot read `{path}`")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write `{path}`")]
    Write {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("`{flag}` cannot be `{value}`")]
    Flag { flag: &'static str, value: String, hint: String },
    #[error("cannot start a command in session {id}")]
    Attach {
        id: String,
        #[source]
        source: std::io::Error,
    },
    #[error("nothing can be learned here: {why}")]
    CannotLearn { why: &'static str },
    #[error("no {kind} session is called `{name}`")]
    NoSession { kind: &'static str, name: String },
    #[error("several sessions are called `{name}`: {sessions}")]
    SeveralSessions { name: String, sessions: String },
    #[error("session {id} runs where it cannot be reached from")]
    Unreachable { id: String },
    #[error("there is no project policy here to approve")]
    NothingToTrust,
    #[error("no file request of a session `{session}` is recorded")]
    NoSuchSession { session: String },
    #[error("cannot make a policy of `{file}`: {message}")]
    Import { file: String, message: String },
    #[error("the host's own network needs an approval, and {why}")]
    HostNetwork { why: &'static str, origin: Box<Origin> },
    #[error("the inbox needs a terminal")]
    NoTerminal {
        #[source]
        source: std::io::Error,
    },
    #[error("no open question is called `{id}`")]
    NoQuestion { id: String },
    #[error("several sessions ask a question {id}: {sessions}")]
    SeveralQuestions { id: String, sessions: String },
    #[error("the answer was not taken: {message}")]
    NotTaken { message: String },
}

const STREAMS: &str =
    "a standard stream may be a file, a pipe, a socket, a terminal or /dev/null; redirect it, as in `< /dev/null`";

impl Failure {
    /// Prints `error:`, its causes and a hint; returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let mut text = format!("error: {}\n", escaped(&self.to_string()));
        for cause in self.causes() {
            writeln!(text, "  caused by: {}", escaped(&cause)).unwrap_or_default();
        }
        if let Some(hint) = self.hint() {
            writeln!(text, "hint: {}", escaped(&hint)).unwrap_or_default();
        }
        say_text(&text);
        ExitCode::from(self.code())
    }

    /// What caused it, the nearest first.
    pub(crate) fn causes(&self) -> Vec<String> {
        let message = self.to_string();
        let mut causes = Vec::new();
        let mut cause = self.source();
        while let Some(error) = cause {
            // Transparent variants repeat their source's message.
            causes.extend(Some(error.to_string()).filter(|text| *text != message));
            cause = error.source();
        }
        causes
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Policy(
                PolicyError::BeyondCeiling { .. }
                | PolicyError::NoneNotApproved { .. }
                | PolicyError::Unbuilt { .. }
                | PolicyError::AlwaysDenied { .. },
            )
            | Failure::Plan(
                PlanError::NoneNotApproved { .. }
                | PlanError::OutsideCeiling { .. }
                | PlanError::TooWide { .. }
                | PlanError::ControlSocket { .. }
                | PlanError::SyscallAlwaysDenied { .. },
            ) => REFUSED,
            Failure::NoSession { .. } | Failure::SeveralSessions { .. } | Failure::Unreachable { .. } => NOT_SO,
            Failure::HostNetwork { .. } => REFUSED,
            Failure::Launch(error) => error.exit_code(),
            Failure::NoQuestion { .. } | Failure::SeveralQuestions { .. } | Failure::NotTaken { .. } => NOTHING,
            _ => OUR_FAILURE,
        }
    }

    /// The rule at fault, where one is.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        match self {
            Failure::Policy(error) => error.origin(),
            Failure::Plan(error) => error.origin(),
            Failure::Launch(LaunchError::Publish { origin, .. }) => Some(origin),
            _ => None,
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Failure::Policy(error) => error.hint(),
            Failure::Plan(error) => plan_hint(error),
            Failure::Launch(error) => launch_hint(error),
            Failure::Persist(error) => error.hint(),
            Failure::Flag { hint, .. } => Some(hint.clone()),
            Failure::NoSession { kind: "live", .. } => Some("`sandbox ps` lists those that live".to_owned()),
            Failure::NoSession { .. } => {
                Some("`sandbox audit --event SANDBOX_CREATED` lists those that ever were".to_owned())
            }
            Failure::SeveralSessions { .. } => Some("give more of its name".to_owned()),
            Failure::Unreachable { .. } => Some(
                "it was started in another pid namespace (a container that shares this home); end it there".to_owned(),
            ),
            Failure::NothingToTrust => {
                Some("a project's policy is `.cofferdam/policy.toml` (and `policy.local.toml`) in its root".to_owned())
            }
            Failure::NoSuchSession { .. } => {
                Some("only sessions in dynamic mode record them; `sandbox run --json` names its session".to_owned())
            }
            Failure::Import { .. } => {
                Some("name its format: --from tool-json, proxy, build-yaml, claude, codex or cursor".to_owned())
            }
            Failure::Survey(SurveyError::Home(_)) => Some(
                "set HOME to a directory of your own: its secrets are hidden, and sessions are kept there".to_owned(),
            ),
            Failure::NoQuestion { .. } => Some("`sandbox questions` lists those that are open".to_owned()),
            Failure::HostNetwork { origin, .. } => Some(format!(
                "name hosts with --allow-host or ports with --host-port instead, run it at a terminal and answer, or have \
                 `/etc/cofferdam/policy.toml` say `allow_network_host = true` ({origin})"
            )),
            Failure::NoTerminal { .. } => Some("`sandbox questions` and `sandbox approve` need none".to_owned()),
            Failure::SeveralQuestions { .. } => Some("name it as SESSION:NUMBER".to_owned()),
            Failure::CannotLearn { .. }
            | Failure::Attach { .. }
            | Failure::NotTaken { .. }
            | Failure::Survey(SurveyError::WorkingDirectory(_))
            | Failure::Read { .. }
            | Failure::Write { .. } => None,
        }
    }
}

fn plan_hint(error: &PlanError) -> Option<String> {
    Some(match error {
        PlanError::MissingPath { path, origin } if path.exists() => format!(
            "a link leads from there out of a directory that sessions write: name what it leads to, or drop the rule ({origin})"
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
        PlanError::Machine { .. } | PlanError::SyscallAlwaysDenied { .. } => {
            return None;
        }
    })
}

fn launch_hint(error: &LaunchError) -> Option<String> {
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
            format!("user namespaces are not allowed for this user; remedy: {}", user_namespaces_remedy())
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
        LaunchError::Directory { .. } => "it is hidden or private inside; start from another directory".to_owned(),
        LaunchError::Execute { errno, program } if *errno == Errno::NOENT => {
            format!("`{program}` is not in the sandbox's PATH, or its interpreter is hidden")
        }
        LaunchError::Execute { errno, .. } if *errno == Errno::ACCESS => {
            "it is not executable, or lies where programs may not run; `sandbox explain` shows the rules".to_owned()
        }
        LaunchError::Execute { .. }
        | LaunchError::SessionDirectory { .. }
        | LaunchError::Namespaces { .. }
        | LaunchError::Egress { .. }
        | LaunchError::Supervise(_) => return None,
    })
}
