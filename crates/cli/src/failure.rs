//! Errors as an operator reads them: what failed, what caused it, what to do. Owns the exit code and the hint of each; the
//! errors are those of the operations and know nothing of flags. Called by `main`, which alone turns an error into text.

pub(crate) mod not_run;

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use cofferdam_host::flags::FlagError;
use cofferdam_host::names::NameError;
use cofferdam_host::persist::{PersistError, StoreError};
use cofferdam_host::policy_files::PolicyFilesError;
use cofferdam_host::policy_files::lock::LockError;
use cofferdam_host::policy_files::text::{ReadError, WriteError};
use cofferdam_host::preparation::PrepareError;
use cofferdam_host::quarantine::QuarantineError;
use cofferdam_host::{HomeError, SurveyError};
use cofferdam_plan::PlanError;
use cofferdam_policy::{Origin, PolicyError};
use cofferdam_supervisor::LaunchError;
use cofferdam_workspace::OpenError;
use thiserror::Error;

use crate::commands::agent::AgentError;
use crate::commands::attach::AttachError;
use crate::commands::audit::AuditError;
use crate::commands::changes::ChangesError;
use crate::commands::clean::CleanError;
use crate::commands::inbox::InboxError;
use crate::commands::learn::LearnError;
use crate::commands::output::OutputError;
use crate::commands::policy::PolicyCommandError;
use crate::commands::prune::PruneError;
use crate::commands::quarantine::QuarantineCommandError;
use crate::commands::questions::AnswerError;
use crate::commands::revoke::RevokeError;
use crate::commands::run::RunError;
use crate::commands::run::detach::DetachError;
use crate::commands::run::host_network::HostNetworkError;
use crate::commands::sessions::SessionError;
use crate::commands::setup::SetupError;
use crate::commands::shell_prefix::ShellPrefixError;
use crate::commands::trust::TrustError;
use crate::commands::verify::VerifyError;
use crate::commands::why::WhyError;
use crate::import::ImportError;
use crate::log::LogError;
use crate::render::exit::{NOT_FOUND, NOT_SO, NOTHING, OUR_FAILURE, REFUSED};
use crate::render::hints;
use crate::render::output::{escaped, say_text};
use crate::session_name::{SessionKind, SessionNameError};

/// An operation's error with what it gathers of other operations unpacked, so that each kind is rendered in one way.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Survey(SurveyError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    PolicyFiles(PolicyFilesError),
    #[error(transparent)]
    Lock(LockError),
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Persist(PersistError),
    #[error(transparent)]
    SessionName(#[from] SessionNameError),
    #[error(transparent)]
    Session(SessionError),
    #[error(transparent)]
    Changes(ChangesError),
    #[error(transparent)]
    Clean(CleanError),
    #[error(transparent)]
    Agent(AgentError),
    #[error(transparent)]
    ShellPrefix(ShellPrefixError),
    #[error(transparent)]
    Attach(AttachError),
    #[error(transparent)]
    Detach(#[from] DetachError),
    #[error(transparent)]
    Output(OutputError),
    #[error(transparent)]
    Log(LogError),
    #[error(transparent)]
    Prune(PruneError),
    #[error(transparent)]
    Revoke(RevokeError),
    #[error(transparent)]
    PolicyCommand(PolicyCommandError),
    #[error(transparent)]
    Trust(TrustError),
    #[error(transparent)]
    Why(WhyError),
    #[error(transparent)]
    Import(ImportError),
    #[error(transparent)]
    HostNetwork(#[from] HostNetworkError),
    #[error(transparent)]
    Learn(LearnError),
    #[error(transparent)]
    Answer(AnswerError),
    #[error(transparent)]
    Inbox(InboxError),
    #[error(transparent)]
    Quarantine(#[from] QuarantineError),
    #[error(transparent)]
    Verify(#[from] VerifyError),
}

const NO_CHANGES: &str =
    "`sandbox changes` lists those of all directories; `sandbox run --transaction -- COMMAND` makes some";

/// The command that lists the sessions among which a name was looked for.
fn where_listed(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Live => {
            "`sandbox ps` lists those that live: give six letters or more of the name it shows; `sandbox logs` says how one ended"
        }
        SessionKind::Recorded => "`sandbox audit --event SANDBOX_CREATED` lists those that ever were",
        SessionKind::Waiting => "`sandbox changes` lists those whose changes wait",
    }
}

/// For each operation the variants that only carry another's error; those of its own become the variant after `else`.
macro_rules! gathered {
    ($($error:ident { $($carried:ident),+ } $(else $own:ident)?;)+) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                match error {
                    $($error::$carried(error) => error.into(),)+
                    $(own => Failure::$own(own),)?
                }
            }
        }
    )+ };
}

gathered! {
    SurveyError { Home } else Survey;
    LockError { Write } else Lock;
    PolicyFilesError { Policy, Read } else PolicyFiles;
    StoreError { Read, Write } else Store;
    PersistError { Files, Lock, Store, Read, Write } else Persist;
    PrepareError { Survey, Flag, Files, Plan, Quarantine };
    RunError { Prepare, HostNetwork, Launch, Flag, Name };
    LearnError { Prepare, HostNetwork, Launch, Persist } else Learn;
    SessionError { Home, Flag, Read, Name } else Session;
    ChangesError { Home, Name } else Changes;
    CleanError { Home } else Clean;
    AgentError { Home, Survey } else Agent;
    ShellPrefixError { Home, Survey } else ShellPrefix;
    AttachError { Session } else Attach;
    OutputError { Session } else Output;
    LogError { Read, Name } else Log;
    AuditError { Home, Flag, Log, Read, Prune };
    PruneError { Flag, Read } else Prune;
    TrustError { Survey, Lock, Files, Read, Write } else Trust;
    ImportError { Flag } else Import;
    PolicyCommandError { Prepare, Read, Import, Log, Persist, Revoke } else PolicyCommand;
    RevokeError { Survey, Persist } else Revoke;
    WhyError { Prepare, Log } else Why;
    SetupError { Survey, Files, Persist, Write };
    AnswerError { Survey } else Answer;
    QuarantineCommandError { Home, Quarantine };
    InboxError { Survey } else Inbox;
}

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
            Failure::SessionName(_) | Failure::Session(SessionError::Unreachable { .. }) | Failure::Why(_) => NOT_SO,
            Failure::Changes(
                ChangesError::Nothing { .. }
                | ChangesError::NothingToUndo { .. }
                | ChangesError::Several { .. }
                | ChangesError::Outside { .. }
                | ChangesError::Unmatched { .. }
                | ChangesError::NotRunning { .. }
                | ChangesError::NotLive { .. }
                | ChangesError::Inside
                | ChangesError::NoStep { .. }
                | ChangesError::NoCheckpoint { .. },
            ) => NOT_SO,
            Failure::Changes(ChangesError::LeavesTree { .. }) => REFUSED,
            Failure::PolicyFiles(_) => REFUSED,
            Failure::HostNetwork(_) | Failure::Quarantine(QuarantineError::Refused(_)) => REFUSED,
            Failure::Quarantine(QuarantineError::Unknown { .. } | QuarantineError::Several { .. }) => NOT_SO,
            Failure::Launch(error) => error.exit_code(),
            Failure::Answer(_) => NOTHING,
            Failure::Revoke(_) => NOTHING,
            Failure::Prune(PruneError::NotWhole { .. })
            | Failure::Clean(CleanError::Runs { .. } | CleanError::Waits { .. }) => NOT_SO,
            Failure::Agent(AgentError::NotInstalled { .. }) => NOT_FOUND,
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
            Failure::Plan(error) => hints::plan(error),
            Failure::Launch(error) => hints::launch(error),
            Failure::Persist(error) => hints::persist(error),
            Failure::Store(error) => hints::store(error),
            Failure::Flag(error) => Some(error.hint.clone()),
            Failure::Agent(AgentError::NotInstalled { install, .. }) => Some(format!("install it first: {install}")),
            Failure::HostNetwork(error) => Some(format!(
                "name hosts with --allow-host or ports with --host-port instead, run it at a terminal and answer, or have \
                 `/etc/cofferdam/policy.toml` say `allow_network_host = true` ({})",
                error.origin
            )),
            Failure::Quarantine(QuarantineError::Refused(entry)) => Some(format!(
                "`sandbox logs {}` says what it tried; `sandbox quarantine release {} --reason TEXT` lets it run again",
                entry.session,
                &entry.hash[..12]
            )),
            Failure::PolicyFiles(PolicyFilesError::NoProfile { known, .. }) if !known.is_empty() => {
                Some(format!("profiles are: {}", known.join(", ")))
            }
            _ => self.plain_hint().map(str::to_owned),
        }
    }

    /// Hints that name nothing of the error.
    fn plain_hint(&self) -> Option<&'static str> {
        Some(match self {
            Failure::SessionName(SessionNameError::Unknown { kind, .. }) => where_listed(*kind),
            Failure::Changes(ChangesError::Nothing { .. }) => NO_CHANGES,
            Failure::Changes(ChangesError::NoStep { .. } | ChangesError::NoCheckpoint { .. }) => {
                "`sandbox checkpoint --list` lists what there is to go back to"
            }
            Failure::Changes(ChangesError::Unmatched { .. }) => "`sandbox diff --stat` lists what waits",
            Failure::Changes(ChangesError::Several { .. }) => {
                "say which with --session; `last` is the newest of this directory"
            }
            Failure::Changes(ChangesError::Runs { .. }) => {
                "`sandbox diff` shows what it has changed so far; `sandbox kill SESSION` ends it, and then it can be committed or dropped; `sandbox undo` takes steps of it back meanwhile"
            }
            Failure::Changes(ChangesError::KeepsOutput { .. }) => {
                "`sandbox output SESSION` reads it, `sandbox kill SESSION` throws it away; then the changes can be taken, taken back or dropped"
            }
            Failure::Changes(ChangesError::Open { source: OpenError::Committed, .. }) => {
                "a commit ends the checkpoints of a session: `sandbox undo` takes the last commit back, `sandbox commit` takes what still waits"
            }
            Failure::Changes(ChangesError::Lost { .. }) => "`sandbox rollback` forgets it",
            Failure::Changes(ChangesError::Open { source: OpenError::OtherDirectory { .. }, .. }) => {
                "put the directory that the session began with back to its place, or drop the changes with `sandbox rollback`"
            }
            Failure::Changes(ChangesError::NoScreen { .. }) => {
                "`sandbox diff` and `sandbox commit PATH` need none, and `sandbox commit -i` asks line by line"
            }
            Failure::Changes(ChangesError::Inside) => {
                "run it in a terminal outside; in the session, a line that is written to $COFFERDAM_CHECKPOINT takes a checkpoint"
            }
            Failure::Changes(ChangesError::Exists { .. }) => {
                "nothing is overwritten: name another file, or remove that one"
            }
            Failure::Changes(ChangesError::NoAnswers) => {
                "`sandbox commit PATH...` takes what is named; `sandbox diff --stat` lists what waits"
            }
            Failure::Changes(ChangesError::NotLive { .. }) => "`sandbox diff --stat` shows what it changed",
            Failure::Changes(ChangesError::Terminal) => "name a file with `--output`, or pipe it into `tar`",
            Failure::Changes(ChangesError::LeavesTree { .. }) => "commit other paths, or leave --strict out",
            Failure::SessionName(SessionNameError::Several { .. }) => "give more of its name",
            Failure::Session(SessionError::Unreachable { .. }) => {
                "it was started in another pid namespace (a container that shares this home); end it there"
            }
            Failure::PolicyFiles(PolicyFilesError::InProject { .. }) => {
                "copy it to ~/.config/cofferdam/profiles/NAME.toml and use --profile NAME, or name it .cofferdam/policy.toml and approve it with `sandbox trust`"
            }
            Failure::PolicyFiles(PolicyFilesError::Writable { .. } | PolicyFilesError::Written { .. }) => {
                "keep it where no session can write, such as ~/.config/cofferdam/profiles"
            }
            Failure::PolicyFiles(PolicyFilesError::NoProfile { .. }) => {
                "a profile is a policy file in ~/.config/cofferdam/profiles; `sandbox learn` prints one"
            }
            Failure::Name(NameError::NoName { .. }) => {
                "up to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit; not `last`, not `local-...`, not six or more hexadecimal digits alone"
            }
            Failure::Name(NameError::Taken { .. }) => "`sandbox ps` lists it; `sandbox kill NAME` ends it",
            Failure::Survey(SurveyError::NoProject { .. }) => "name the directory of one project below your home",
            Failure::Why(_) => {
                "write ./NAME for a path of that name, env:NAME for a variable that is not set, HOST:PORT for a host"
            }
            Failure::Prune(PruneError::NotWhole { .. }) => {
                "`sandbox audit verify` shows them; keep a copy, and prune with --force: the record of the prune says how many there were"
            }
            Failure::Prune(PruneError::Unasked) => {
                "`--dry-run` shows what would be removed; `--yes` removes it without a question"
            }
            Failure::Revoke(_) => "`sandbox policy revoke` lists them with their numbers",
            Failure::Clean(CleanError::Runs { .. }) => "`sandbox ps` lists them, `sandbox kill SESSION` ends one",
            Failure::Clean(CleanError::Waits { .. }) => {
                "`sandbox changes` lists them: commit what you want to keep; `--transactions` drops them"
            }
            Failure::Trust(TrustError::NoTerminal) => {
                "`sandbox trust --dry-run` shows what would widen; `sandbox trust --yes` approves it without a question"
            }
            Failure::Trust(TrustError::NoProjectPolicy) => {
                "a project's policy is `.cofferdam/policy.toml` (and `policy.local.toml`) in its root"
            }
            Failure::Log(LogError::NoRequests { .. }) => {
                "only sessions in dynamic mode record them; `sandbox run --json` names its session"
            }
            Failure::Import(_) => "name its format: --from tool-json, proxy, build-yaml, claude, codex, cursor or srt",
            Failure::Home(_) => {
                "set HOME to a directory of your own: its secrets are hidden, and sessions are kept there"
            }
            Failure::Quarantine(QuarantineError::Unknown { hash }) if hash.len() < 6 => {
                "give six letters or more of the hash; `sandbox quarantine list` shows it"
            }
            Failure::Verify(_) => {
                "install `sandbox-verify` of the same build beside `sandbox`, in a directory of root's or of your own"
            }
            Failure::Quarantine(QuarantineError::Unknown { .. }) => "`sandbox quarantine list` lists what is",
            Failure::Quarantine(QuarantineError::Several { .. }) => "give more of it",
            Failure::Answer(AnswerError::Unknown { .. }) => "`sandbox questions` lists those that are open",
            Failure::Answer(AnswerError::Several { .. }) => "name it as SESSION:NUMBER",
            Failure::Agent(AgentError::Unknown { .. }) => {
                "`sandbox agent` lists those with a preset; any other runs with `sandbox run`"
            }
            Failure::Inbox(_) => "`sandbox questions`, `sandbox approve` and `sandbox ps` need none",
            _ => return None,
        })
    }
}
