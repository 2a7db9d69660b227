//! A session in a transaction and what becomes of its changes: the same attack meets `sandbox commit` and, as the negative
//! control, what a script would do with the layer. Owns the order of an attack; the attacks are in `commits`, `races` and `waits`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cofferdam_policy::{Origin, Policy, Ruled, Transaction};
use cofferdam_testkit::{Place, program};

use crate::raw;
use crate::row::{Finding, Off, ROW, Row, Trial, Walls, probe_argv};

/// Checks that the probe makes; every other is a script.
const OF_PROBE: [&str; 5] = ["e10", "d08-project", "d09-make", "a18-overlay", "d05-plain"];

/// Both trials have the same session in a transaction: what differs is who takes its changes over.
pub(crate) const COMMITTED: Row = Row {
    policy: |policy, _| in_transaction(policy),
    argv: |place, check| {
        if OF_PROBE.contains(&check) {
            return probe_argv(place, check);
        }
        ["sh", "-ec", check].map(str::to_owned).to_vec()
    },
    off: Off::Edit(|_, _| {}),
    ..ROW
};

pub(crate) fn in_transaction(policy: &mut Policy) {
    policy.transaction = Ruled::new(Transaction::Review, Origin::flag("--transaction"));
}

/// What a script does that knows nothing of links, pipes and attributes: each file by its path.
pub(crate) const BY_PATH: &str = "cd \"$UPPER\" && find . -type f | while read -r f; do \
    mkdir -p \"$PROJECT/$(dirname \"$f\")\"; cat \"$f\" > \"$PROJECT/$f\"; done";
/// What a person would do.
pub(crate) const COPY: &str = "cp -a \"$UPPER/.\" . || true";

/// One attack. Scripts of the host run in the project, with `$OUT`, a directory outside, `$UPPER`, the layer, and `$PROJECT`.
pub(crate) struct Attack {
    pub(crate) host: &'static str,
    /// A script, or a check of the probe.
    pub(crate) inside: &'static str,
    /// What a hole in another wall would have left in the layer.
    pub(crate) planted: fn(&Path) -> Result<(), String>,
    pub(crate) commit: &'static [&'static str],
    pub(crate) instead: &'static str,
    /// Succeeds where the host is as it should be.
    pub(crate) look: &'static str,
}

pub(crate) const ATTACK: Attack =
    Attack { host: "true", inside: "true", planted: |_| Ok(()), commit: &["commit"], instead: COPY, look: "true" };

impl Attack {
    pub(crate) fn run(&self, trial: &Trial) -> Finding {
        self.attempt(trial).unwrap_or_else(|finding| finding)
    }

    fn attempt(&self, trial: &Trial) -> Result<Finding, Finding> {
        let after = After::session(trial, self.host, self.inside)?;
        (self.planted)(&after.upper).map_err(Finding::Broken)?;
        let said = match trial.walls {
            Walls::Standing => {
                after.sandbox(&["diff"])?;
                after.sandbox(self.commit)?
            }
            Walls::Open => after.script(self.instead)?,
        };
        let looked = after.script(self.look)?;
        let words = format!("{}{}", text(&looked.stdout), text(&looked.stderr));
        Ok(if looked.status.success() {
            Finding::Contained(format!("{} says {}: {}", self.commit.join(" "), said.status, last(&said)))
        } else if trial.walls == Walls::Standing {
            let all = text(&said.stdout) + &text(&said.stderr);
            Finding::Open(format!("{} {words}", all.replace('\n', "; ")))
        } else {
            Finding::Open(format!("a script falls for it {words}").trim_end().to_owned())
        })
    }
}

/// A session has ended and its changes wait.
pub(crate) struct After<'a> {
    pub(crate) trial: &'a Trial,
    pub(crate) upper: PathBuf,
    sandbox: PathBuf,
}

impl<'a> After<'a> {
    /// # Errors
    ///
    /// The finding that ends the trial.
    pub(crate) fn session(trial: &'a Trial, host: &str, inside: &str) -> Result<Self, Finding> {
        let sandbox =
            program("sandbox").ok_or_else(|| Finding::Skipped("the command `sandbox` was not built".to_owned()))?;
        let mut after = After { trial, upper: PathBuf::new(), sandbox };
        let prepared = after.script(host)?;
        if !prepared.status.success() {
            return Err(Finding::Broken(format!("the host: {}", text(&prepared.stderr))));
        }
        let launched = trial.launch(inside);
        if launched.report.code != 0 || launched.hung {
            return Err(Finding::Broken(format!(
                "the session: {:?} {} {}",
                launched.report,
                launched.stdout.trim(),
                launched.stderr.trim()
            )));
        }
        after.upper = layer(&trial.scene).ok_or_else(|| Finding::Broken("no changes were kept".to_owned()))?;
        Ok(after)
    }

    pub(crate) fn script(&self, script: &str) -> Result<Output, Finding> {
        self.bounded(Path::new("sh"), &["-c", script])
    }

    pub(crate) fn sandbox(&self, arguments: &[&str]) -> Result<Output, Finding> {
        self.bounded(&self.sandbox, arguments)
    }

    /// What does not end within half a minute is a finding.
    fn bounded(&self, program: &Path, arguments: &[&str]) -> Result<Output, Finding> {
        const TIMED_OUT: i32 = 124;
        let output = self.command(Path::new("timeout")).arg("30").arg(program).args(arguments).output();
        let output = output.map_err(|error| Finding::Broken(error.to_string()))?;
        if output.status.code() == Some(TIMED_OUT) {
            return Err(Finding::Open(format!("{} {} does not end", program.display(), arguments.join(" "))));
        }
        Ok(output)
    }

    /// The command `sandbox`, to be started.
    pub(crate) fn of_sandbox(&self) -> Command {
        self.command(&self.sandbox)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.trial.project())
            .env_clear()
            .env("HOME", self.trial.scene.home())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("OUT", self.trial.scene.outside())
            .env("PROJECT", self.trial.project())
            .env("UPPER", &self.upper)
            .stdin(Stdio::null());
        command
    }
}

/// The layer of the only session that is kept.
pub(crate) fn layer(place: &Place) -> Option<PathBuf> {
    let kept = place.home().join(".local/state/cofferdam/kept");
    let sessions = kept.read_dir().ok()?.flatten().map(|entry| entry.path());
    let mut slots = sessions.flat_map(|session| session.read_dir().into_iter().flatten().flatten());
    slots.find_map(|slot| Some(slot.path().join("upper")).filter(|upper| upper.is_dir()))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its last words.
pub(crate) fn last(output: &Output) -> String {
    let all = text(&output.stdout) + &text(&output.stderr);
    all.lines().last().unwrap_or_default().trim().to_owned()
}

/// Sets an extended attribute.
pub(crate) fn mark(path: &Path, name: &str, value: &[u8]) -> Result<(), String> {
    let bytes = |text: &[u8]| std::ffi::CString::new(text).map_err(|error| error.to_string());
    let (at, attribute) = (bytes(path.as_os_str().as_encoded_bytes())?, bytes(name.as_bytes())?);
    let arguments = [at.as_ptr() as usize, attribute.as_ptr() as usize, value.as_ptr() as usize, value.len(), 0, 0];
    raw::syscall(libc::SYS_setxattr, arguments).map(drop).map_err(|errno| format!("{name}: errno {errno}"))
}

/// The names of the extended attributes of a file.
pub(crate) fn marks(path: &Path) -> Result<String, String> {
    let at = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
    let mut list = vec![0u8; 1 << 16];
    let arguments = [at.as_ptr() as usize, list.as_mut_ptr() as usize, list.len(), 0, 0, 0];
    let length = raw::syscall(libc::SYS_listxattr, arguments).map_err(|errno| format!("listxattr: errno {errno}"))?;
    list.truncate(usize::try_from(length).unwrap_or(0));
    Ok(text(&list).replace('\0', " "))
}
