//! A whole run: the ground, every check, the checklists, and the report of it. Owns their order and what they cost; judges no check
//! and prints nothing. Called by `options`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cofferdam_audit::{Stamp, to_hex};
use cofferdam_host::policy_files::{ORG_POLICY, ORG_REQUIREMENTS};
use cofferdam_reach::start::PROGRAM as EGRESS;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::answer::printable;
use crate::judge::{Judged, judge};
use crate::report::{Fact, Host, NOT_TRIED, ONLY, Outcome, PolicyUsed, Report, SCHEMA, SWITCHED_OFF, Summary};
use crate::run_directory::RunDirectory;
use crate::spec::Spec;
use crate::trial::Ground;
use crate::walls::Wall;
use crate::{checklists, checks};

/// Trials mostly wait, for the kernel or for a clock.
const AT_ONCE: std::ops::RangeInclusive<usize> = 4..=8;
const MOST_POLICY: u64 = 4 << 20;
const PROGRAM: &str = "sandbox-verify";

/// Is told how many checks of how many are done.
pub(crate) type Tell<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Why there is no report.
#[derive(Debug, Error)]
pub(crate) enum VerifyError {
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot make a scratch root below `{path}`")]
    Ground { path: PathBuf, source: io::Error },
    #[error("no check is called `{id}`; there are {}", known.join(", "))]
    NoSuchCheck { id: String, known: Vec<&'static str> },
    #[error("`{path}` cannot be removed")]
    Left { path: PathBuf, source: io::Error },
}

/// What is to be verified.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Stands as the user's policy.
    pub(crate) policy: Option<PathBuf>,
    /// Ids of checks; none for all of them.
    pub(crate) only: Vec<String>,
    pub(crate) switched_off: Vec<Wall>,
    /// The home in whose cache scratch roots are made: a session has a /tmp of its own.
    pub(crate) home: PathBuf,
}

pub(crate) fn verify(wanted: &Wanted, tell: Tell<'_>) -> Result<Report, VerifyError> {
    let began = Instant::now();
    let policy = wanted.policy.as_deref().map(read).transpose()?;
    let specs = chosen(&wanted.only)?;
    let run =
        RunDirectory::make(&wanted.home).map_err(|source| VerifyError::Ground { path: wanted.home.clone(), source })?;
    let ground = prepare(wanted, &run, policy.clone())?;
    let judged = all(&ground, &specs, tell);
    run.remove().map_err(|source| VerifyError::Left { path: ground.directory.clone(), source })?;
    let posture = posture(wanted, &judged);
    let broken = judged.iter().filter(|one| one.is_broken && one.check.required).count();
    let mut checks: Vec<_> = judged.into_iter().map(|one| one.check).collect();
    if wanted.only.is_empty() {
        checks.extend(checklists::answered(&checks));
    }
    let count = |outcome: Outcome| checks.iter().filter(|check| check.result == outcome).count();
    let failed = checks.iter().filter(|check| check.required && check.result == Outcome::NotContained).count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let summary = Summary {
        contained: number(count(Outcome::Contained)),
        not_contained: number(count(Outcome::NotContained)),
        cannot_check: number(count(Outcome::CannotCheck)),
        required_failed: number(failed + broken),
        seconds: (began.elapsed().as_secs_f64() * 10.0).round() / 10.0,
    };
    Ok(Report {
        schema: SCHEMA.to_owned(),
        generated: Stamp::now().to_string(),
        host: host(),
        versions: versions(&ground.own),
        policy: used(wanted.policy.as_deref(), policy.as_deref())?,
        posture,
        checks,
        summary,
        signature: None,
    })
}

fn chosen(only: &[String]) -> Result<Vec<&'static Spec>, VerifyError> {
    if only.is_empty() {
        return Ok(checks::all().collect());
    }
    let unknown = |id: &String| VerifyError::NoSuchCheck {
        id: printable(id),
        known: checks::all().map(|spec| spec.id).collect(),
    };
    only.iter().map(|id| checks::find(id).ok_or_else(|| unknown(id))).collect()
}

/// That of the first session that ran, after what this run itself made weaker.
fn posture(wanted: &Wanted, judged: &[Judged]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: String| facts.push(Fact { name: name.to_owned(), value });
    if !wanted.switched_off.is_empty() {
        let walls = serde_json::to_string(&wanted.switched_off).unwrap_or_default();
        add(SWITCHED_OFF, format!("by hand, in every session: {walls}"));
    }
    if !wanted.only.is_empty() {
        add(ONLY, format!("only {}, no checklist", wanted.only.join(", ")));
    }
    // One by one: a fact is cut where it is long.
    let not_tried: BTreeSet<&String> = judged.iter().flat_map(|one| &one.not_tried).collect();
    for rule in not_tried {
        add(NOT_TRIED, printable(&format!("scratch roots have no such path: {rule}")));
    }
    facts.extend(judged.iter().map(|one| &one.posture).find(|facts| !facts.is_empty()).cloned().unwrap_or_default());
    facts
}

fn prepare(wanted: &Wanted, run: &RunDirectory, policy: Option<String>) -> Result<Ground, VerifyError> {
    let (directory, token, program) = (run.path.clone(), run.token.clone(), run.probe());
    let own = std::env::current_exe().map_err(|source| VerifyError::Read { path: "/proc/self/exe".into(), source })?;
    fs::copy(&own, &program).map_err(|source| VerifyError::Ground { path: directory.clone(), source })?;
    let links = fs::read_dir("/proc/self/ns").into_iter().flatten().flatten();
    let links = links.filter(|entry| !entry.file_name().to_string_lossy().contains("_for_children"));
    let namespaces =
        links.filter(|entry| entry.file_name() != "time").filter_map(|entry| fs::read_link(entry.path()).ok());
    let namespaces = namespaces.map(|link| link.to_string_lossy().into_owned()).collect();
    Ok(Ground { directory, own, program, token, policy, switched_off: wanted.switched_off.clone(), namespaces })
}

/// Every check, a few at a time; in the order of the list.
fn all(ground: &Ground, specs: &[&'static Spec], tell: Tell<'_>) -> Vec<Judged> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Judged)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).clamp(*AT_ONCE.start(), *AT_ONCE.end());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(spec) = specs.get(index) else { break };
                    let judged = judge(ground, spec);
                    let count = {
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((index, judged));
                        done.len()
                    };
                    // Without the lock: a terminal that is stopped keeps only its writer waiting.
                    tell(count, specs.len());
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, judged)| judged).collect()
}

fn read(path: &Path) -> Result<String, VerifyError> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MOST_POLICY).read_to_string(&mut text));
    read.map(|_| text).map_err(|source| VerifyError::Read { path: path.to_owned(), source })
}

/// The files that made the policy, and one hash over all of them; what is built in goes by the version of the program.
fn used(path: Option<&Path>, text: Option<&str>) -> Result<PolicyUsed, VerifyError> {
    let mut sources = vec!["built-in".to_owned()];
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
    let mut add = |name: String, text: &str| {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
        sources.push(name);
    };
    if Path::new(ORG_POLICY).exists() {
        add(ORG_POLICY.to_owned(), &read(Path::new(ORG_POLICY))?);
    }
    if let (Some(path), Some(text)) = (path, text) {
        add(path.display().to_string(), text);
    }
    if Path::new(ORG_REQUIREMENTS).exists() {
        add(ORG_REQUIREMENTS.to_owned(), &read(Path::new(ORG_REQUIREMENTS))?);
    }
    Ok(PolicyUsed { source: printable(&sources.join(", ")), digest: format!("sha256:{}", to_hex(&hash.finalize())) })
}

fn host() -> Host {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| printable(&part.to_string_lossy());
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let user = rustix::process::getuid();
    Host {
        kernel: format!("{} {}", text(name.release()), text(name.version())),
        distribution: printable(pretty.unwrap_or("unknown").trim_matches('"')),
        machine: text(name.machine()),
        user: if user.is_root() { "root".to_owned() } else { format!("uid {}", user.as_raw()) },
    }
}

/// The programs of this build, each with the hash of its file.
fn versions(own: &Path) -> BTreeMap<String, String> {
    let hashed = |name: &str| {
        // The one that runs is this one, whatever it is called.
        let path = if name == PROGRAM { own.to_owned() } else { own.with_file_name(name) };
        let hash = |file: Vec<u8>| format!("sha256:{}", to_hex(&Sha256::digest(file)));
        (name.to_owned(), fs::read(path).map_or_else(|_| "not beside this program".to_owned(), hash))
    };
    let mut versions = BTreeMap::from(["sandbox", PROGRAM, EGRESS].map(hashed));
    versions.insert("cofferdam".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    versions
}
