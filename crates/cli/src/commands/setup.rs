//! `sandbox setup`: finds package managers, agents and registries, and proposes the settings under which they work without
//! questions. Owns what is proposed and how it is shown; editing the file is `host::persist`'s, and nothing of a project is taken
//! over. Called by `main`.

mod made;
mod registries;
mod toolchains;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cofferdam_host::persist::{self, PersistError, Proposal};
use cofferdam_host::policy_files::text::WriteError;
use cofferdam_host::policy_files::{PolicyFilesError, Sources};
use cofferdam_host::{Surroundings, SurveyError};
use cofferdam_kernel::own_addresses::own_addresses;
use cofferdam_policy::{
    Draft, Endpoint, Host, HostRule, Layer, LayerInput, NetworkMode, NetworkPart, Places, Policy, Setting,
    parse_authority,
};
use cofferdam_reach::address::special;
use cofferdam_reach::decide::answered;
use cofferdam_reach::{Rules, Verdict};
use cofferdam_wire::Keep;
use serde_json::json;
use thiserror::Error;

use self::registries::{From as Source, Registry};
use self::toolchains::{Tool, agents, tools};
use crate::args::SetupArgs;
use crate::confirm::is_confirmed;
use crate::environment::{environment, has_terminal};
use crate::render::exit::NOTHING;
use crate::render::output::{escaped, print, print_json, say};
use crate::render::saved::tell_unrecorded;

pub(crate) use self::made::completions_written;

/// Why nothing was set up.
#[derive(Debug, Error)]
pub(crate) enum SetupError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Files(#[from] PolicyFilesError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Longer than libc waits before it asks a name server again (5 s).
const LOOKUPS: Duration = Duration::from_secs(8);

pub(crate) fn setup(args: &SetupArgs) -> Result<ExitCode, SetupError> {
    let environment = environment();
    let around = Surroundings::look(&environment)?;
    let found = Found::look(&around, &environment);
    let wanted = Wanted::of(&found, &around, &environment)?;
    let proposal = persist::propose_draft(&around, &environment, Keep::User, &wanted.draft)?;
    let todo = Todo::of(&found, &around, &environment, &proposal, !args.no_completions);
    if args.json {
        print_json(&report(&found, &wanted, &proposal, &todo));
    } else {
        print(&told(&found, &wanted, &proposal, &todo));
    }
    if todo.is_nothing() {
        return Ok(ExitCode::SUCCESS);
    }
    let can_ask = has_terminal() && !args.json && !args.dry_run;
    if !args.yes && !can_ask {
        if !args.json {
            say!("sandbox: nothing was changed; `sandbox setup --yes` does all of this");
        }
        return Ok(ExitCode::from(NOTHING));
    }
    let agreed = |question: &str| args.yes || is_confirmed(question);
    let mut is_done = true;
    if todo.writes || !todo.directories.is_empty() {
        if agreed("write these settings and make these directories?") {
            carry_out(&around, &environment, &proposal, &todo)?;
        } else {
            is_done = false;
        }
    }
    if let Some((path, script)) = &todo.completions {
        if agreed(&format!("write completions to {}?", escaped(&path.display().to_string()))) {
            made::write(&around.home, path, script)?;
        } else {
            is_done = false;
        }
    }
    if !args.json {
        print(if is_done { "done\n" } else { "not all of it was done; `sandbox setup` proposes it again\n" });
    }
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(NOTHING) })
}

fn carry_out(
    around: &Surroundings,
    environment: &[(String, String)],
    proposal: &Proposal,
    todo: &Todo,
) -> Result<(), SetupError> {
    if todo.writes {
        let saved = persist::save_proposal(around, environment, Keep::User, proposal)?;
        tell_unrecorded(saved.unrecorded.as_ref());
    }
    for path in &todo.directories {
        made::directory(&around.home, path)?;
    }
    Ok(())
}

/// What there is on this machine.
struct Found {
    tools: Vec<(&'static Tool, PathBuf)>,
    agents: Vec<(&'static str, PathBuf)>,
    registries: Vec<Registry>,
    unread: Vec<String>,
}

impl Found {
    fn look(around: &Surroundings, environment: &[(String, String)]) -> Found {
        let path = value(environment, "PATH").unwrap_or_default();
        let project = around.project.as_deref();
        let (registries, unread) = registries::look(around, environment);
        Found { tools: tools(path, project), agents: agents(path, project, &around.home), registries, unread }
    }

    /// Hosts with the reason for each: what is configured for this user, and what the tools reach by themselves.
    fn hosts(&self) -> BTreeMap<String, String> {
        let own = self.registries.iter().filter(|registry| registry.from != Source::Project);
        let configured =
            own.map(|one| (one.place.clone(), format!("packages of {}, as {} says", one.client, one.source)));
        let usual = self.tools.iter().flat_map(|(tool, _)| tool.usual.iter().map(move |host| (tool, host)));
        let usual = usual.map(|(tool, host)| (format!("{host}:443"), format!("packages of {}", tool.name())));
        // What a file of the user says is told rather than what is usual.
        usual.chain(configured).collect()
    }
}

/// The settings that are missing, and what else is to be said.
#[derive(Default)]
struct Wanted {
    draft: Draft,
    notes: Vec<String>,
}

impl Wanted {
    fn of(found: &Found, around: &Surroundings, environment: &[(String, String)]) -> Result<Wanted, SetupError> {
        let mut sources = Sources::read(around, environment)?;
        // A project's rules are no reason to leave out one of the user's.
        sources.layers.retain(|input| !input.layer.is_untrusted());
        let before = sources.resolve(&around.places())?;
        let mut wanted = Wanted::default();
        let mut presets: BTreeSet<&str> = found.tools.iter().map(|(tool, _)| tool.preset).collect();
        if !found.tools.is_empty() {
            presets.insert("registries");
        }
        let missing = presets.into_iter().filter(|name| !before.presets.iter().any(|known| known.value == *name));
        wanted.draft.settings = missing.map(|name| Setting::Preset(name.to_owned())).collect();
        let text = wanted.draft.to_toml();
        sources.layers.push(LayerInput { layer: Layer::User, source: "setup".to_owned(), text, trusted: true });
        let mode = &before.network.mode;
        if mode.value == NetworkMode::None && mode.origin.layer != Layer::BuiltIn {
            wanted.notes.push(format!("no host is added: network.mode is none [{}]", mode.origin));
        } else {
            wanted.hosts(&sources.resolve(&around.places())?, &found.hosts());
        }
        Ok(wanted)
    }

    fn hosts(&mut self, policy: &Policy, hosts: &BTreeMap<String, String>) {
        let mut rules = Rules::new(&policy.network, own_addresses());
        let known = addresses_of(hosts.keys().cloned().collect());
        let mut unknown = Vec::new();
        for (place, reason) in hosts {
            let Ok((host, port)) = parse_authority(place, None) else { continue };
            let found = known.get(place).map(Vec::as_slice).unwrap_or_default();
            if found.is_empty() {
                unknown.push(place.as_str());
            }
            let plain = match rules.host(&host, port) {
                Verdict::Denied(denial) => {
                    self.notes.push(format!("{place} is left out: {}", denial.why));
                    continue;
                }
                Verdict::Unknown => Some(Endpoint::of(&host, port)),
                Verdict::Allowed(_) => None,
            };
            let mut then = rules.clone();
            if let Some(endpoint) = &plain {
                then.grant(endpoint.clone(), answered(String::new()));
            }
            let Err(denial) = then.addresses(&host, port, found) else {
                if let Some(endpoint) = plain {
                    self.allow(&mut rules, endpoint, reason.clone());
                }
                continue;
            };
            match then.could_be_paired(&host, port, found) {
                Some(at) => {
                    self.notes.push(pair_in_words(&host, &at));
                    self.allow(&mut rules, Endpoint::at(&host, port, &at), reason.clone());
                }
                None => self.notes.push(format!("{place} is left out: {}", denial.why)),
            }
        }
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            self.notes.push(format!("could not be looked up now, so where they lead is not known: {unknown}"));
        }
    }

    fn allow(&mut self, rules: &mut Rules, endpoint: Endpoint, reason: String) {
        rules.grant(endpoint.clone(), answered(String::new()));
        let rule = HostRule { reason: reason.into(), ..HostRule::whole(endpoint) };
        self.draft.settings.push(Setting::NetworkPart(NetworkPart::Allow(rule)));
    }
}

fn pair_in_words(host: &Host, at: &[IpAddr]) -> String {
    let kind = |address: &IpAddr| match special(*address, &[]) {
        Some((class, _)) => format!("{address}, a {class} address"),
        None => address.to_string(),
    };
    let places: Vec<String> = at.iter().map(kind).collect();
    format!("{host} leads to {}: the rule is about this pair, and about no other name or address", places.join(" and "))
}

/// Where the names lead now. One that the name servers do not answer about in time leads nowhere.
fn addresses_of(places: Vec<String>) -> BTreeMap<String, Vec<IpAddr>> {
    let (send, received) = mpsc::channel();
    let mut left = places.len();
    for place in places {
        let send = send.clone();
        std::thread::spawn(move || {
            let found = place.to_socket_addrs().map(|found| found.map(|one| one.ip()).collect::<BTreeSet<_>>());
            // Where it comes too late there is no one left to take it.
            drop(send.send((place, found.unwrap_or_default().into_iter().collect::<Vec<_>>())));
        });
    }
    let until = Instant::now() + LOOKUPS;
    let mut known = BTreeMap::new();
    while left > 0 {
        let Ok((place, found)) = received.recv_timeout(until.saturating_duration_since(Instant::now())) else { break };
        known.insert(place, found);
        left -= 1;
    }
    known
}

/// What is to be done.
struct Todo {
    /// Whether the file changes.
    writes: bool,
    directories: Vec<PathBuf>,
    completions: Option<(PathBuf, String)>,
    notes: Vec<String>,
}

impl Todo {
    fn of(
        found: &Found,
        around: &Surroundings,
        environment: &[(String, String)],
        proposal: &Proposal,
        completes: bool,
    ) -> Todo {
        let absolute = environment.iter().filter(|(_, value)| value.starts_with('/'));
        let variables = absolute.map(|(name, value)| (name.clone(), PathBuf::from(value))).collect();
        let places = Places { variables, ..around.places() };
        let caches: BTreeSet<PathBuf> = found.tools.iter().flat_map(|(tool, _)| tool.caches(&places)).collect();
        let missing = caches.into_iter().filter(|path| !path.is_dir());
        let (directories, elsewhere): (Vec<_>, Vec<_>) = missing.partition(|path| can_be_made(&around.home, path));
        let notes = elsewhere
            .iter()
            .map(|path| format!("make {} yourself: a link is on the way, or it is not in your home", path.display()));
        let shell: OsString = value(environment, "SHELL").unwrap_or_default().into();
        Todo {
            writes: !proposal.diff.is_empty(),
            directories,
            completions: made::completions(&shell, &around.home).filter(|_| completes),
            notes: notes.collect(),
        }
    }

    fn is_nothing(&self) -> bool {
        !self.writes && self.directories.is_empty() && self.completions.is_none()
    }
}

/// Whether what is there of a path below the home is made of directories alone.
fn can_be_made(home: &Path, path: &Path) -> bool {
    let below = path.ancestors().take_while(|part| *part != home);
    path.starts_with(home) && below.filter_map(|part| part.symlink_metadata().ok()).all(|meta| meta.is_dir())
}

fn value<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn told(found: &Found, wanted: &Wanted, proposal: &Proposal, todo: &Todo) -> String {
    let out = &mut String::new();
    let tools = found.tools.iter();
    group(
        out,
        "package managers",
        tools.map(|(tool, path)| format!("{:<8} {}", tool.name(), path.display())).collect(),
    );
    let agents = found.agents.iter();
    let agent = |(name, path): &(&str, PathBuf)| {
        format!("{name:<8} {}; `sandbox agent {name}` runs it, with settings of its own", path.display())
    };
    group(out, "coding agents", agents.map(agent).collect());
    let line = |one: &&Registry| format!("{:<8} {} ({})", one.client, one.place, said_of(one));
    let (project, own): (Vec<_>, Vec<_>) = found.registries.iter().partition(|one| one.from == Source::Project);
    group(out, "registries", own.iter().map(line).collect());
    group(out, "registries that this project names; its files widen nothing", project.iter().map(line).collect());
    let tokens = found.registries.iter().any(|one| one.has_token).then(|| {
        "tokens are shown to no session; network.credentials puts them into requests outside: docs/guides/credentials.md"
            .to_owned()
    });
    let notes = wanted.notes.iter().chain(&proposal.kept).chain(&found.unread).chain(&todo.notes).cloned();
    group(out, "notes", notes.chain(tokens).collect());
    if todo.is_nothing() {
        out.push_str("nothing to do\n");
        return std::mem::take(out);
    }
    if todo.writes {
        let title = format!("would be written to {}", escaped(&proposal.file.display().to_string()));
        group(out, &title, proposal.diff.lines().map(str::to_owned).collect());
    }
    let directories = todo.directories.iter();
    group(out, "directories that would be made", directories.map(|path| path.display().to_string()).collect());
    let completions = todo.completions.iter().map(|(path, _)| {
        let is_zsh = path.ends_with("site-functions/_sandbox");
        let further = if is_zsh { "; its directory has to be in fpath before compinit" } else { "" };
        format!("{}{further}", path.display())
    });
    group(out, "completions that would be written", completions.collect());
    std::mem::take(out)
}

/// A title and its lines, where there are any.
fn group(out: &mut String, title: &str, lines: Vec<String>) {
    if !lines.is_empty() {
        writeln!(out, "{title}").unwrap_or_default();
    }
    for line in lines {
        writeln!(out, "  {}", escaped(&line)).unwrap_or_default();
    }
}

fn said_of(one: &Registry) -> String {
    let token = if one.has_token { ", a token beside it" } else { "" };
    match one.from {
        Source::Project => format!("{}{token}; for one run: --allow-host {}", one.source, one.place),
        Source::Variable => format!("{}{token}, which is not passed on: put it into the client's file", one.source),
        Source::File => format!("{}{token}", one.source),
    }
}

fn report(found: &Found, wanted: &Wanted, proposal: &Proposal, todo: &Todo) -> serde_json::Value {
    let registry = |one: &Registry| {
        json!({ "client": one.client, "host": one.place, "source": one.source,
                "from_project": one.from == Source::Project, "has_token": one.has_token })
    };
    json!({
        "version": 1,
        "tools": found.tools.iter().map(|(tool, path)| json!({ "name": tool.name(), "path": path })).collect::<Vec<_>>(),
        "agents": found.agents.iter().map(|(name, path)| json!({ "name": name, "path": path })).collect::<Vec<_>>(),
        "registries": found.registries.iter().map(registry).collect::<Vec<_>>(),
        "notes": wanted.notes.iter().chain(&proposal.kept).chain(&found.unread).chain(&todo.notes).collect::<Vec<_>>(),
        "file": proposal.file,
        "diff": proposal.diff,
        "directories": todo.directories,
        "completions": todo.completions.as_ref().map(|(path, _)| path),
        "nothing_to_do": todo.is_nothing(),
    })
}
