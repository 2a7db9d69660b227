//! Why did it fail? Says what the sandbox blocked, by which rule, and the smallest flag that would allow it.
//! Speaks only of what was notified by the kernel or looked up in the plan for paths that the command line names;
//! never guesses from the command's output. Called by `run` when a command failed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cofferdam_gate::shown;
use cofferdam_host::preparation::Prepared;
use cofferdam_host::{Unmet, Unserved};
use cofferdam_kernel::file::read_text;
use cofferdam_plan::{Decision, LaunchPlan, decide, is_in_own_area};
use cofferdam_policy::{Access, Endpoint, Host, Isolation, Layer, OnUnknown, Prediction};
use cofferdam_reach::{Rules, Verdict as HostVerdict};
use cofferdam_supervisor::Outcome;
use cofferdam_wire::session::short;
use cofferdam_wire::{Blocked, Cause, Denial, Denied, End, NetworkOutcome, Op, Reached, Unrouted};

use crate::agents::Agent;
use crate::render::output::{flag_path, shell_word};
use crate::render::{end, host_port, not_passed, show_hidden};

pub(crate) fn lines(prepared: &Prepared, outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = end::line(prepared, outcome).into_iter().collect();
    let plan = &prepared.plan;
    if plan.isolation == Isolation::None {
        return lines;
    }
    lines.extend(outcome.summary.blocked.iter().map(|blocked| system_call(prepared, blocked)));
    lines.extend(sandbox_inside(plan, outcome));
    if plan.egress.is_none() {
        lines.extend(network(prepared, outcome.unrouted));
    }
    lines.extend(hosts(prepared, outcome));
    lines.extend(outcome.summary.warnings.iter().cloned());
    lines.extend(unapproved(prepared, outcome));
    lines.extend(
        named_paths(plan, &prepared.around.home)
            .iter()
            // What was noticed at run time is told already.
            .filter(|path| !outcome.summary.denied.iter().any(|denied| path.starts_with(&denied.path)))
            .filter(|path| plan.gate.is_none() || decide(&plan.decisions, path).is_some())
            .filter_map(|path| about(plan, path, &prepared.around.home)),
    );
    lines.extend(held_names(plan, &prepared.around.home));
    lines.extend(masked_remotes(plan));
    if prepared.around.project.is_none() && matches!(outcome.end, End::Exited { .. }) {
        lines.push(format!(
            "{} is your home or a system directory, so nothing here is writable: run in a project directory, or pass --rw PATH",
            plan.command.cwd.display()
        ));
    }
    if matches!(outcome.end, End::Exited { .. }) {
        lines.extend(host_port::line(prepared, outcome.unrouted));
        lines.extend(not_passed::line(prepared));
    }
    for held in &prepared.known.policy.held_back {
        lines.push(format!("not in force until you run `sandbox trust`: {} ({})", held.rule, held.origin));
    }
    lines
}

/// Told one by one up to here; the log has them all.
const MOST_TOLD: usize = 10;

/// Paths that were met and not given, with what would give them.
fn unapproved(prepared: &Prepared, outcome: &Outcome) -> Vec<String> {
    let home = &prepared.around.home;
    let named = named_paths(&prepared.plan, home);
    let mut lines: Vec<String> = Vec::new();
    let together = directories(&outcome.summary.denied, home);
    for denied in outcome.summary.denied.iter().filter(|denied| !is_history(denied)) {
        let path = Path::new(&denied.path);
        let line = match &denied.denial {
            Denial::Hidden { origin } => {
                let rule = decide(&prepared.plan.decisions, path);
                let why = rule.map_or_else(|| origin.clone(), cite);
                let place = rule.map_or(path, |rule| &rule.path);
                format!("{} is hidden [{why}]{}", denied.path, show_hidden::remedy(path, place, &named))
            }
            Denial::CannotBeAsked { call } => {
                match missing_cache(prepared, path).or_else(|| writable_place(path, home)) {
                    Some(remedy) => {
                        format!("could not {call} {}: writing there was not approved; {remedy}", denied.path)
                    }
                    None => format!("could not {call} {}: writing there was not approved", denied.path),
                }
            }
            Denial::Unapproved { op, cause } if is_of_one(&together, path, *op) => {
                let (directory, count) = together[&(path.parent().unwrap_or(path).to_path_buf(), refused(*op))];
                let (shown, flag) = (directory.display(), if op.is_write() { "--rw" } else { "--ro" });
                format!(
                    "{} {count} files in {shown}: {}; allow them with {flag} {shown}",
                    refused(*op),
                    because(*cause)
                )
            }
            Denial::Unapproved { op, cause } => {
                format!("{} {}: {}; {}", refused(*op), denied.path, because(*cause), remedy(*op, path, home))
            }
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    at_most(lines, "", outcome)
}

/// Files of one directory from this number on are one line.
const TOGETHER: usize = 4;

type Directories<'a> = BTreeMap<(PathBuf, &'static str), (&'a Path, usize)>;

/// Directories of which several files were refused for the same use. Of the home itself and what holds it, none: it is never
/// opened as a whole.
fn directories<'a>(denied: &'a [Denied], home: &Path) -> Directories<'a> {
    let mut found: Directories<'a> = BTreeMap::new();
    for one in denied.iter().filter(|one| !is_history(one)) {
        let Denial::Unapproved { op, .. } = one.denial else { continue };
        let Some(directory) = Path::new(&one.path).parent().filter(|parent| !home.starts_with(parent)) else {
            continue;
        };
        if !matches!(op, Op::List) {
            found.entry((directory.to_path_buf(), refused(op))).or_insert((directory, 0)).1 += 1;
        }
    }
    found.retain(|_, (_, count)| *count >= TOGETHER);
    found
}

fn is_of_one(together: &Directories<'_>, path: &Path, op: Op) -> bool {
    path.parent().is_some_and(|parent| together.contains_key(&(parent.to_path_buf(), refused(op))))
}

/// The first of them, and where the others are.
fn at_most(mut lines: Vec<String>, what: &str, outcome: &Outcome) -> Vec<String> {
    let more = lines.len().saturating_sub(MOST_TOLD);
    lines.truncate(MOST_TOLD);
    if more > 0 {
        lines.push(format!("and {more} more{what}; `sandbox logs {}` has them all", short(&outcome.session)));
    }
    lines
}

/// One line about what was denied, for a command that succeeded all the same.
pub(crate) fn summary(outcome: &Outcome) -> Option<String> {
    let unknown: Vec<&str> = outcome
        .summary
        .denied
        .iter()
        .filter(|denied| is_worth_a_word(&denied.denial) && !is_history(denied))
        .map(|denied| denied.path.as_str())
        .collect();
    let first = unknown.first()?;
    let more = match unknown.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Some(format!(
        "not approved: {first}{more}; allow with --ro or --rw, or see `sandbox logs {}`",
        short(&outcome.session)
    ))
}

const HALF_WAY: &str = "If it had to, it stopped half-way: outside, `git status` shows what it left, and the same command \
                        can go on; to throw away what it left, and everything else that is not committed: git restore . \
                        && git clean -i";

/// Files that git tracks and that it could not read or write inside, each with the command that sets it right outside.
pub(crate) fn git(files: &[Unserved]) -> Vec<String> {
    let line = |file: &Unserved| {
        let (name, word) = (file.name.display(), shell_word(&file.name.to_string_lossy()));
        match file.why {
            Unmet::Hidden => format!(
                "{name} is hidden and differs from what git tracks: git inside could not read or replace it, and it is \
                 unchanged; go on outside, or let git inside pass it by: git update-index --skip-worktree -- {word}"
            ),
            Unmet::Masked => format!(
                "{name} is masked and differs from what git tracks: what git inside added of it has `***` in place of \
                 secrets, and the file is unchanged; outside: git restore --staged -- {word}; or let git inside pass it \
                 by: git update-index --skip-worktree -- {word}"
            ),
            Unmet::Unwritten => format!(
                "{name} is protected: git inside could not write its version of it; outside: git restore -- {word}"
            ),
            Unmet::Stopped => format!("{name} is protected and tracked: git inside cannot change it. {HALF_WAY}"),
            Unmet::Held => format!("{name} is protected and a branch has it: git inside cannot make it. {HALF_WAY}"),
        }
    };
    let mut lines: Vec<String> = files.iter().take(MOST_TOLD).map(line).collect();
    let more = files.len().saturating_sub(MOST_TOLD);
    lines.extend((more > 0).then(|| format!("and {more} more files that git tracks; `git status` outside shows them")));
    lines
}

/// Hidden names are met by every search, and what the operator denied is known.
fn is_worth_a_word(denial: &Denial) -> bool {
    let is_known = matches!(denial, Denial::Unapproved { cause: Cause::Person | Cause::Gone, .. });
    !matches!(denial, Denial::Hidden { .. }) && !is_known
}

/// Shells and pagers write these at their end, and work without them.
fn is_history(denied: &Denied) -> bool {
    let name = Path::new(&denied.path).file_name().unwrap_or_default().to_string_lossy();
    name.ends_with("_history")
        || name.starts_with(".lesshs")
        || name.starts_with("lesshs")
        || name.starts_with(".viminfo")
}

fn refused(op: Op) -> &'static str {
    match op {
        Op::List => "could not list",
        Op::Exec => "could not execute",
        Op::Write => "could not write",
        Op::Create => "could not create",
        Op::Read | Op::Connect | Op::Sign => "could not read",
    }
}

fn because(cause: Cause) -> &'static str {
    match cause {
        Cause::Timeout => "no answer came in time",
        Cause::Budget => "too many questions in a minute",
        Cause::Person | Cause::Hook => "denied when it was asked",
        Cause::Rule => "a rule protects it",
        Cause::Failed => "it could not be given",
        Cause::Grant | Cause::OnUnknown | Cause::Gone => "it was not approved",
    }
}

fn remedy(op: Op, path: &Path, home: &Path) -> String {
    match (op.is_write(), writable_place(path, home)) {
        (true, Some(remedy)) => remedy,
        (true, None) => "write in the project".to_owned(),
        (false, _) if op == Op::Exec => allow_running(path, home),
        (false, _) => format!("allow it with --ro {}", flag_path(path)),
    }
}

/// A program is given with what belongs to it where it lies as toolchains do; alone elsewhere.
pub(crate) fn allow_running(program: &Path, home: &Path) -> String {
    let directory = program.parent().filter(|parent| parent.ends_with("bin") || parent.ends_with("sbin"));
    let is_shared =
        |prefix: &Path| home.starts_with(prefix) || [".local", "usr", "opt"].iter().any(|end| prefix.ends_with(end));
    let prefix = directory.and_then(Path::parent).filter(|prefix| !is_shared(prefix));
    format!("allow it with --ro {}", flag_path(prefix.unwrap_or(program)))
}

fn system_call(prepared: &Prepared, blocked: &Blocked) -> String {
    let arguments: Vec<String> = blocked.arguments.iter().map(|a| format!("{a:#x}")).collect();
    let times = if blocked.count > 1 { format!(" {} times", blocked.count) } else { String::new() };
    let rule = prepared.known.policy.syscalls.deny.iter().find(|rule| rule.value == blocked.name);
    let is_tracing =
        matches!(blocked.name, "ptrace" | "process_vm_readv" | "process_vm_writev" | "kcmp" | "pidfd_getfd");
    let why = match rule {
        Some(rule) => format!("{}; drop that rule to allow it", rule.origin),
        None if is_tracing => format!("{}; leave out --no-debug to allow it", prepared.known.policy.debug.origin),
        None if blocked.name.contains("chmod") || blocked.name.starts_with("mknod") => {
            "built-in: set-user-ID files lend your rights to other users; set the bit outside if you want it".to_owned()
        }
        None if blocked.name == "memfd_create" => format!("{}; drop that rule to allow it", programs(prepared)),
        None => "built-in: profiles/seccomp.toml; no flag allows it".to_owned(),
    };
    format!("refused system call {} ({}){times} [{why}]", blocked.name, arguments.join(", "))
}

/// An agent's own sandbox needs namespaces, which there are none of inside; its commands fail then, and the agent itself may not.
pub(crate) fn sandbox_inside(plan: &LaunchPlan, outcome: &Outcome) -> Option<String> {
    const NEW_USER: u64 = 0x1000_0000;
    let makes_namespaces =
        |call: &Blocked| matches!(call.name, "clone" | "unshare") && call.arguments[0] & NEW_USER != 0;
    if !outcome.summary.blocked.iter().any(makes_namespaces) {
        return None;
    }
    let words = plan.command.argv.iter().flat_map(|word| word.split_whitespace());
    let mut names = words.filter_map(|word| Path::new(word).file_name()?.to_str());
    let agent = names.find_map(Agent::named)?;
    let remedy = agent.own_sandbox?;
    let name = agent.name;
    Some(format!(
        "{name} has a sandbox of its own, which cannot be made inside this one; switch it off inside: {remedy}"
    ))
}

/// Hosts that were not reached because of a rule, with what would allow them.
fn hosts(prepared: &Prepared, outcome: &Outcome) -> Vec<String> {
    let rules = Rules::new(&prepared.known.policy.network, Vec::new());
    let told_at_once = &outcome.summary.told_hosts;
    let is_told =
        |one: &Reached| told_at_once.iter().any(|(host, port)| *host == one.host && [one.port, 0].contains(port));
    let denied = outcome.summary.hosts.iter().filter(|reached| reached.verdict == NetworkOutcome::Denied);
    let denied = denied.filter(|reached| !is_told(reached));
    let mut lines: Vec<String> = Vec::new();
    let mut told = Vec::new();
    for reached in denied {
        // An answer for the session denies again, for the same reason.
        let what = (&reached.host, reached.port, &reached.why);
        if told.contains(&what) {
            continue;
        }
        told.push(what);
        let host = shown(reached.host.as_bytes());
        let line = if reached.port == 0 {
            let verdict = Host::parse(&reached.host).map_or(HostVerdict::Unknown, |host| rules.name(&host));
            let (why, remedy) = if let HostVerdict::Denied(denial) = verdict {
                (denial.why, denial.remedy)
            } else {
                let remedy = format!("--allow-host {host}, or {host}:PORT for another port than the web's");
                (reached.why.clone(), remedy)
            };
            format!("could not look up {host}: {}; to allow it: {}", shown(why.as_bytes()), shown(remedy.as_bytes()))
        } else {
            let origin = if reached.origin.is_empty() { String::new() } else { format!(" [{}]", reached.origin) };
            let remedy =
                if reached.remedy.is_empty() { String::new() } else { format!("; to allow it: {}", reached.remedy) };
            format!("could not reach {host}:{}: {}{origin}{remedy}", reached.port, shown(reached.why.as_bytes()))
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let mut lines = at_most(lines, " hosts", outcome);
    lines.extend(usual_hosts(prepared, outcome));
    lines
}

/// A command stops at the first host that it does not reach. Where no question was asked, this names all that it usually needs.
fn usual_hosts(prepared: &Prepared, outcome: &Outcome) -> Option<String> {
    let policy = &prepared.known.policy;
    let usual =
        Prediction::of(&prepared.plan.command.argv).filter(|_| policy.unknown.verdict.value == OnUnknown::Deny)?;
    let is_allowed = |host: &Endpoint| policy.network.allow.iter().any(|rule| rule.endpoint.allows_all(host));
    let missing: Vec<&Endpoint> = usual.hosts.iter().filter(|host| !is_allowed(host)).collect();
    let denied = outcome.summary.hosts.iter().filter(|reached| reached.verdict == NetworkOutcome::Denied);
    let is_one = denied
        .filter_map(|reached| Host::parse(&reached.host).ok())
        .any(|host| missing.iter().any(|usual| usual.target.covers(&host)));
    (is_one && missing.len() > 1).then(|| format!("`{}` usually needs {}", usual.what, flags(&usual, &missing)))
}

/// What allows these hosts of it.
fn flags(usual: &Prediction, hosts: &[&Endpoint]) -> String {
    let by_host = || hosts.iter().map(|host| format!("--allow-host {host}")).collect::<Vec<_>>().join(" ");
    usual.preset.map_or_else(by_host, |preset| format!("--preset {preset}"))
}

/// From the kernel's counters of the sandbox's network namespace.
fn network(prepared: &Prepared, unrouted: Unrouted) -> Option<String> {
    let mode = &prepared.known.policy.network.mode;
    let why = format!("there is none inside but an own loopback [{}]", mode.origin);
    // Where `none` was chosen, naming a host is not enough.
    let chosen = if mode.origin.layer == Layer::BuiltIn { "" } else { "--network egress " };
    if unrouted.no_route > 0 {
        let times = if unrouted.no_route == 1 { "once".to_owned() } else { format!("{} times", unrouted.no_route) };
        let remedy = match Prediction::of(&prepared.plan.command.argv) {
            Some(usual) if !usual.hosts.is_empty() => {
                let hosts: Vec<&Endpoint> = usual.hosts.iter().collect();
                format!("`{}` usually needs {chosen}{}", usual.what, flags(&usual, &hosts))
            }
            _ => format!("let it reach a host with {chosen}--allow-host HOST"),
        };
        return Some(format!("tried {times} to reach a network; {why}; {remedy}"));
    }
    let server = loopback_name_server().filter(|_| unrouted.no_listener > 0)?;
    Some(format!("may have asked the host's name server at {server}, which is part of its network; {why}"))
}

/// A resolver on the host's own loopback, as systemd's is.
fn loopback_name_server() -> Option<String> {
    let text = read_text(Path::new("/etc/resolv.conf"), 1 << 16).ok()?;
    let mut servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")).map(str::trim);
    servers.find(|server| server.starts_with("127.") || *server == "::1").map(str::to_owned)
}

/// The rule that limits which programs run: what it rules out includes programs in anonymous memory.
fn programs(prepared: &Prepared) -> String {
    let process = &prepared.known.policy.process;
    let list = process.executables.first().filter(|_| process.allow_exec.value);
    list.map_or(&process.allow_exec.origin, |entry| &entry.origin).to_string()
}

/// Words of the command line that are paths which exist on the host, or could be made there: their directory exists.
fn named_paths(plan: &LaunchPlan, home: &Path) -> Vec<PathBuf> {
    let is_hidden = |path: &Path| decide(&plan.decisions, path).is_some_and(|rule| rule.access == Access::Deny);
    let mut found: Vec<PathBuf> = Vec::new();
    let words = path_words(&plan.command.argv, &plan.command.cwd, home);
    for real in words.iter().filter_map(|path| resolved(path, is_hidden)) {
        if !found.contains(&real) {
            found.push(real);
        }
    }
    found
}

/// Words of the command line that look like paths, absolute.
fn path_words(argv: &[String], cwd: &Path, home: &Path) -> Vec<PathBuf> {
    let separators = |c: char| c.is_whitespace() || ";|&<>()'\"=,`".contains(c);
    let words = argv.iter().skip(1).flat_map(|argument| argument.split(separators)).filter(|word| !word.is_empty());
    words
        .filter_map(|word| match word.strip_prefix("~/").or_else(|| word.strip_prefix("$HOME/")) {
            Some(rest) => Some(home.join(rest)),
            None if word.contains('/') || word.starts_with('.') => Some(cwd.join(word.trim_start_matches("./"))),
            None => None,
        })
        .collect()
}

/// Names that were missing at the start and could not be made: those that the command line names, and the repository
/// for a command that is git.
fn held_names(plan: &LaunchPlan, home: &Path) -> Vec<String> {
    let mut words = path_words(&plan.command.argv, &plan.command.cwd, home);
    words.extend(named_paths(plan, home));
    let argv = &plan.command.argv;
    // A clone makes its repository below, unless it is told to make it here.
    let is_elsewhere = argv.iter().any(|word| word == "clone") && !argv.iter().any(|word| word == "." || word == "./");
    let is_git = argv.first().is_some_and(|program| Path::new(program).ends_with("git")) && !is_elsewhere;
    let named = |held: &Path| words.iter().any(|word| word.starts_with(held)) || is_git && held.ends_with(".git");
    let held = plan.holds.iter().filter(|hold| named(&hold.path));
    held.map(|hold| {
        let why = decide(&plan.decisions, &hold.path).map_or_else(String::new, |rule| format!(" [{}]", cite(rule)));
        format!("{} does not exist and cannot be created inside{why}; make it outside first, or run with --transaction and review it", hold.path.display())
    })
    .collect()
}

/// Git inside reads addresses of remotes without the passwords in them, and cannot log in by them.
fn masked_remotes(plan: &LaunchPlan) -> Option<String> {
    let is_no_part = |c: char| !c.is_alphanumeric() && !"._-".contains(c);
    let words: Vec<&str> = plan.command.argv.iter().flat_map(|word| word.split(is_no_part)).collect();
    let reaches = |word: &&str| ["clone", "fetch", "ls-remote", "pull", "push", "submodule"].contains(word);
    if !words.contains(&"git") || !words.iter().any(reaches) {
        return None;
    }
    let has_password = |text: &str| text.contains("://***@") || text.contains("extraheader = ***");
    let config = plan.decisions.iter().find(|decision| decision.masked_text().is_some_and(has_password))?;
    Some(format!(
        "{} holds a password or token for a host, which git inside does not get [{}]; give it with `network.credentials`, or \
         show the file with --ro {}",
        config.path.display(),
        cite(config),
        flag_path(&config.path)
    ))
}

/// Where a path really is; of a file that is not there yet, where it would be. What is hidden is not looked into: a mount that
/// may never answer is hidden whole.
fn resolved(path: &Path, is_hidden: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    // The kernel follows as many.
    const MOST_LINKS: usize = 40;
    let parts = |path: &Path| path.iter().map(OsStr::to_os_string).rev().collect::<Vec<_>>();
    let (mut here, mut ahead, mut links) = (PathBuf::new(), parts(path), 0);
    while let Some(part) = ahead.pop() {
        if part == ".." {
            here.pop();
        } else {
            here.push(&part);
        }
        if is_hidden(&here) {
            here.extend(ahead.into_iter().rev());
            return Some(here);
        }
        if let Ok(target) = std::fs::read_link(&here) {
            links += 1;
            here.pop();
            ahead.extend(parts(&target));
        }
        if links > MOST_LINKS {
            return None;
        }
    }
    let would_be = here.parent().is_some_and(Path::is_dir);
    (would_be || here.parent().is_none()).then_some(here)
}

fn about(plan: &LaunchPlan, path: &Path, home: &Path) -> Option<String> {
    let decision = decide(&plan.decisions, path);
    if decision.is_none() && is_in_own_area(path) {
        return None;
    }
    let access = decision.map_or(Access::Read, |d| d.access);
    let shown = path.display();
    match (access, decision) {
        (Access::Deny, Some(rule)) if rule.is_about_socket() => {
            Some(format!("{shown} cannot be connected to [{}]; allow it with --socket {shown}", cite(rule)))
        }
        (Access::Deny, Some(rule)) => {
            Some(format!("{shown} is hidden [{}]{}", cite(rule), show_hidden::remedy(path, &rule.path, &[])))
        }
        (Access::Mask, Some(rule)) => Some(format!(
            "{shown} is masked: read-only, without the values of secret names [{}]; show all of it with --ro {}",
            cite(rule),
            flag_path(&rule.path)
        )),
        // What is missing is told by `held_names`.
        (Access::Protect, Some(rule)) if !plan.holds.iter().any(|hold| path.starts_with(&hold.path)) => Some(format!(
            "{shown} is protected from writes [{}]; allow them with --rw {}",
            cite(rule),
            flag_path(&rule.path)
        )),
        (Access::Read, rule) if !is_program(path) && writable_on_host(path) => {
            let why = rule.map_or_else(|| "built-in: only the project is writable".to_owned(), cite);
            let remedy = writable_place(path, home)?;
            Some(format!("{shown} is read-only [{why}]; {remedy}"))
        }
        _ => None,
    }
}

/// What would make a path writable. Nothing opens `/` or the whole home directory, so no flag is named that would be refused.
fn writable_place(path: &Path, home: &Path) -> Option<String> {
    let too_wide = |place: &Path| home.starts_with(place);
    let place = if path.is_dir() { path } else { path.parent()? };
    if !too_wide(place) {
        Some(format!("make it writable with --rw {}", flag_path(place)))
    } else if path.is_dir() {
        None
    } else if path.exists() {
        Some(format!("make it writable with --rw {}", flag_path(path)))
    } else {
        Some("write in the project, or below a directory that you pass with --rw".to_owned())
    }
}

/// A directory that a rule lets be written where it exists, and that does not: it, or one above it, could not be made.
fn missing_cache(prepared: &Prepared, path: &Path) -> Option<String> {
    let places = prepared.known.facts.places();
    let rules = prepared.known.policy.files.iter();
    let mut caches: Vec<PathBuf> = rules
        .filter(|rule| rule.optional && !rule.path.is_glob() && matches!(rule.access, Access::Write | Access::Overlay))
        .flat_map(|rule| rule.path.expand(&places))
        .filter(|cache| cache.starts_with(path) && !cache.exists())
        .collect();
    caches.sort();
    caches.dedup();
    // Below a directory that all programs share it is not known which of them is meant.
    if !(1..=3).contains(&caches.len()) {
        return None;
    }
    let names: Vec<String> = caches.iter().map(|cache| cache.display().to_string()).collect();
    Some(format!("make it outside first: mkdir -p {}", names.join(" ")))
}

fn cite(rule: &Decision) -> String {
    if rule.reason.is_empty() { rule.origin.to_string() } else { format!("{}: {}", rule.origin, rule.reason) }
}

/// A program that the command line names is there to be run, not to be written.
fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// What the user could not write outside either is not ours to explain.
fn writable_on_host(path: &Path) -> bool {
    let place = if path.symlink_metadata().is_ok() { path } else { path.parent().unwrap_or(path) };
    rustix::fs::access(place, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_not_looked_into() {
        let scene = std::env::temp_dir().join(format!("cofferdam-denials-{}", std::process::id()));
        std::fs::create_dir_all(scene.join("served")).expect("the temporary directory is writable");
        let scene = scene.canonicalize().expect("it is there");
        std::os::unix::fs::symlink("/no/such", scene.join("served/link")).expect("a link");
        std::os::unix::fs::symlink("served", scene.join("way")).expect("a link");
        let resolved = |path: &str, hidden: &str| resolved(&scene.join(path), |at| at == scene.join(hidden));
        assert_eq!(resolved("way/link", "none"), None, "the control: it is followed, and leads nowhere");
        assert_eq!(resolved("way/link", "served"), Some(scene.join("served/link")));
        assert_eq!(resolved("way/../new", "served"), Some(scene.join("served/../new")));
        assert_eq!(resolved("served/../new", "none"), Some(scene.join("new")));
        assert_eq!(resolved("no/such", "none"), None);
        std::fs::remove_dir_all(&scene).expect("ours");
    }
}
