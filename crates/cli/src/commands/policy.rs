//! `sandbox policy`: show, check, diff, export, import, test, allow, deny. Owns which policies a command speaks about and
//! how the answer looks; what they mean is `policy`'s, other tools' formats are `import`'s, writing is `persist`'s.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_host::Surroundings;
use cofferdam_host::flags::FlagError;
use cofferdam_host::persist::{self, Change, PersistError};
use cofferdam_host::policy_files::text::{self, ReadError};
use cofferdam_host::policy_files::{self, ORG_POLICY, PolicyFilesError, Sources, real_rules};
use cofferdam_host::preparation::{PrepareError, policy_in_force};
use cofferdam_policy::{
    Access, Ceilings, Difference, Direction, Endpoint, ExpandedRule, Layer, LayerInput, Mode, OnUnknown, Places,
    Policy, PolicyError, RuleIndex, differences, explain, export, parse,
};
use cofferdam_wire::Op;
use cofferdam_wire::order::Chosen;
use serde_json::json;
use thiserror::Error;

use crate::args::policy::{
    DiffArgs, ImportArgs, PolicyCommand, RuleArgs, ShowArgs, TestArgs, layer_named, scope_to_save,
};
use crate::commands::revoke::{RevokeError, revoke};
use crate::environment::environment;
use crate::import::{self, ImportError};
use crate::log::{self, LogError, Recorded};
use crate::render::exit::OUR_FAILURE;
use crate::render::output::{escaped, json_text, print, print_json, say};
use crate::render::saved::tell_saved;

/// Why a command about policies did not do its work.
#[derive(Debug, Error)]
pub(crate) enum PolicyCommandError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error(transparent)]
    Revoke(#[from] RevokeError),
    #[error(
        "`{text}` does not exist here: for a file of that name say `./{text}`; for a host write `network.{list} = [\"{text}\"]` into the policy"
    )]
    Host { text: String, list: &'static str },
}

/// `told` gets each mistake that `check` finds; it goes on after the first.
pub(crate) fn run(command: &PolicyCommand, told: fn(PolicyFilesError)) -> Result<ExitCode, PolicyCommandError> {
    match command {
        PolicyCommand::Show(args) => Ok(show(args)?),
        PolicyCommand::Check { files } => Ok(check(files, told)),
        PolicyCommand::Diff(args) => Ok(diff(args)?),
        PolicyCommand::Export { format } => Ok(export_effective(format)?),
        PolicyCommand::Import(args) => import_file(args),
        PolicyCommand::Test(args) => test(args),
        PolicyCommand::Allow(args) => answer(args, true),
        PolicyCommand::Deny(args) => answer(args, false),
        PolicyCommand::Revoke(args) => Ok(revoke(args)?),
    }
}

/// Where a command runs and what is in force there.
struct Here {
    around: Surroundings,
    environment: Vec<(String, String)>,
    effective: Policy,
    places: Places,
}

impl Here {
    fn look() -> Result<Self, PrepareError> {
        let environment = environment();
        let around = Surroundings::look(&environment)?;
        let effective = policy_in_force(&[], &Chosen::default(), &around, &environment, None)?;
        let places = policy_files::places(&effective, &around, &environment);
        Ok(Here { around, environment, effective, places })
    }

    /// The policy of a file: in the place of a layer's, or alone on the built-in one. Ceilings hold it in both cases.
    fn policy_of(&self, file: &Path, layer: Option<Layer>) -> Result<Policy, PolicyFilesError> {
        let text = read(file)?;
        let mut sources = match layer {
            Some(_) => Sources::read(&self.around, &self.environment)?,
            None => Sources { layers: Vec::new(), requirements: Sources::requirements()? },
        };
        let layer = layer.unwrap_or(Layer::User);
        sources.layers.retain(|input| input.layer != layer);
        sources.layers.push(LayerInput { layer, source: file.display().to_string(), text, trusted: true });
        sources.resolve(&self.places)
    }

    fn named(&self, name: &str, layer: Option<Layer>) -> Result<Policy, PolicyFilesError> {
        match name {
            "effective" => Ok(self.effective.clone()),
            "default" => Sources { layers: Vec::new(), requirements: None }.resolve(&self.places),
            file => self.policy_of(Path::new(file), layer),
        }
    }
}

fn read(file: &Path) -> Result<String, ReadError> {
    let missing = || ReadError { path: file.to_path_buf(), source: std::io::ErrorKind::NotFound.into() };
    text::read(file)?.ok_or_else(missing)
}

fn show(args: &ShowArgs) -> Result<ExitCode, PrepareError> {
    let here = Here::look()?;
    if args.json {
        return Ok(print_json(&json!({ "version": 1, "policy": here.effective })));
    }
    let lines = explain(&here.effective, args.verbose);
    Ok(print(&lines.iter().map(|line| escaped(line) + "\n").collect::<String>()))
}

/// Every mistake is told, and any of them is a failure.
fn check(files: &[PathBuf], told: fn(PolicyFilesError)) -> ExitCode {
    let mut out = String::new();
    let mut failed = false;
    for file in files {
        match check_one(file) {
            Ok(()) => writeln!(out, "ok: {}", escaped(&file.display().to_string())).unwrap_or_default(),
            Err(error) => {
                failed = true;
                told(error);
            }
        }
    }
    let printed = print(&out);
    if failed { ExitCode::from(OUR_FAILURE) } else { printed }
}

fn check_one(file: &Path) -> Result<(), PolicyFilesError> {
    let (text, source) = (read(file)?, file.display().to_string());
    if file.file_name().is_some_and(|name| name == "requirements.toml") {
        Ceilings::parse(&source, &text)?;
        return Ok(());
    }
    let layer = layer_of(file);
    parse(layer, &source, &text)?;
    // Presets are known by name only when they are applied.
    let layers = vec![LayerInput { layer, source, text, trusted: true }];
    let resolved = Sources { layers, requirements: None }.resolve(&Places::default());
    match resolved {
        // Whether the organisation approves is not the file's mistake.
        Ok(_) | Err(PolicyFilesError::Policy(PolicyError::NoneNotApproved { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The layer that a file belongs to by its name; some settings count in the organisation's only.
fn layer_of(file: &Path) -> Layer {
    match file.file_name().and_then(|name| name.to_str()) {
        _ if file == Path::new(ORG_POLICY) => Layer::Org,
        Some("policy.toml") if file.parent().is_some_and(|dir| dir.ends_with(".cofferdam")) => Layer::Project,
        Some("policy.local.toml") => Layer::ProjectLocal,
        _ => Layer::User,
    }
}

fn diff(args: &DiffArgs) -> Result<ExitCode, PrepareError> {
    let here = Here::look()?;
    let layer = layer_named(args.layer.as_ref())?;
    let (before, after) = (here.named(&args.before, layer)?, here.named(&args.after, layer)?);
    let found = differences(&before, &after, &here.places);
    if args.json {
        return Ok(print_json(&json!({ "version": 1, "differences": found })));
    }
    Ok(print(&told(&found)))
}

fn told(found: &[Difference]) -> String {
    let mut out = String::new();
    let groups =
        [(Direction::Wider, "newly allowed"), (Direction::Narrower, "newly denied"), (Direction::Other, "changed")];
    for (direction, title) in groups {
        let mut lines = found.iter().filter(|one| one.direction == direction).peekable();
        if lines.peek().is_some() {
            writeln!(out, "{title}").unwrap_or_default();
        }
        for one in lines {
            let origin = one.origin.as_ref().map_or_else(String::new, |origin| format!("  [{origin}]"));
            writeln!(out, "  {}", escaped(&format!("{one}{origin}"))).unwrap_or_default();
        }
    }
    if out.is_empty() { "no difference\n".to_owned() } else { out }
}

fn export_effective(format: &str) -> Result<ExitCode, PrepareError> {
    let here = Here::look()?;
    let mut draft = export(&here.effective, &here.places);
    draft.title.insert(0, "The policy in force, as one file on top of the built-in one.".to_owned());
    let text = draft.to_toml();
    match format {
        "toml" => Ok(print(&text)),
        "json" => {
            // The keys of the schema: docs/policy.schema.json.
            let value: toml::Table =
                toml::from_str(&text).map_err(|error| FlagError::new("--format", "json", error.message()))?;
            Ok(print(&format!("{}\n", json_text(&serde_json::to_string_pretty(&value).unwrap_or_default()))))
        }
        other => Err(FlagError::new("--format", other, "it is one of: toml, json").into()),
    }
}

fn import_file(args: &ImportArgs) -> Result<ExitCode, PolicyCommandError> {
    let draft = match &args.file {
        Some(file) => import::import(file, &read(file)?, &args.from)?,
        None => import::import_words(&args.words, &args.from)?,
    };
    let Some(scope) = &args.save else { return Ok(print(&draft.to_toml())) };
    let keep = scope_to_save(scope).map_err(PrepareError::from)?;
    let environment = environment();
    let around = Surroundings::look(&environment).map_err(PrepareError::from)?;
    let saved = persist::save_draft(&around, &environment, keep, &draft)?;
    for remark in draft.remarks.iter().chain(&saved.kept) {
        say!("sandbox: {}", escaped(remark));
    }
    Ok(tell_saved(&saved))
}

fn answer(args: &RuleArgs, allow: bool) -> Result<ExitCode, PolicyCommandError> {
    let keep = args.scope().map_err(PrepareError::from)?;
    let environment = environment();
    let around = Surroundings::look(&environment).map_err(PrepareError::from)?;
    let absolute = around.cwd.join(&args.path);
    let typed = args.path.to_str().unwrap_or_default();
    if typed.contains('.') && absolute.symlink_metadata().is_err() && Endpoint::parse(typed).is_ok() {
        let list = if allow { "allow" } else { "deny" };
        return Err(PolicyCommandError::Host { text: typed.to_owned(), list });
    }
    let path = absolute.canonicalize().unwrap_or(absolute);
    let op = if args.write { Op::Write } else { Op::Read };
    let change = Change { allow, op, path, program: "sandbox policy".to_owned() };
    Ok(tell_saved(&persist::save(&around, &environment, keep, &[change])?))
}

/// What a policy makes of a recorded request. `None`: it would be asked.
fn verdict(policy: &Policy, rules: &RuleIndex<ExpandedRule>, request: &Recorded) -> Option<bool> {
    let access = match rules.deciding(&request.path) {
        Some(rule) => rule.rule.access,
        None => match (policy.mode.value, policy.unknown.verdict.value) {
            (Mode::Static, _) | (Mode::Dynamic, OnUnknown::AllowAndLog) => Access::Read,
            (Mode::Dynamic, OnUnknown::Deny) => Access::Deny,
            (Mode::Dynamic, OnUnknown::Ask) => return None,
        },
    };
    Some(if request.op.is_write() { access >= Access::Overlay } else { access > Access::Deny })
}

fn test(args: &TestArgs) -> Result<ExitCode, PolicyCommandError> {
    let here = Here::look()?;
    let session = Some(args.against.as_str()).filter(|session| *session != "all");
    let mut requests = log::requests(&here.around.state, session)?;
    if let Some(session) = session.filter(|_| requests.is_empty()) {
        return Err(LogError::NoRequests { session: session.to_owned() }.into());
    }
    let total = requests.len();
    let sessions: BTreeSet<String> = requests.iter().map(|one| one.session.clone()).collect();
    requests.sort_by(|a, b| (&a.path, a.op.word(), a.allowed).cmp(&(&b.path, b.op.word(), b.allowed)));
    requests.dedup_by(|a, b| a.path == b.path && a.op == b.op && a.allowed == b.allowed);
    let layer = layer_named(args.layer.as_ref()).map_err(PrepareError::from)?;
    let policy = here.policy_of(&args.file, layer).map_err(PrepareError::from)?;
    let replayed = Replayed::of(&requests, &policy, &real_rules(&policy, &here.places));
    if args.json {
        let report = json!({
            "version": 1, "requests": total, "sessions": sessions.len(), "newly_allowed": replayed.allowed,
            "newly_denied": replayed.denied, "would_be_asked": replayed.asked,
        });
        return Ok(print_json(&report));
    }
    let summary = format!("{total} recorded requests of {} sessions\n", sessions.len());
    Ok(print(&(replayed.told() + &summary)))
}

/// Recorded requests that a policy would decide otherwise, as `op path`.
#[derive(Default)]
struct Replayed {
    allowed: Vec<String>,
    denied: Vec<String>,
    asked: Vec<String>,
}

impl Replayed {
    fn of(requests: &[Recorded], policy: &Policy, rules: &RuleIndex<ExpandedRule>) -> Self {
        let mut replayed = Replayed::default();
        for request in requests {
            let line = format!("{} {}", request.op.word(), request.path.display());
            match verdict(policy, rules, request) {
                None => replayed.asked.push(line),
                Some(true) if !request.allowed => replayed.allowed.push(line),
                Some(false) if request.allowed => replayed.denied.push(line),
                Some(_) => {}
            }
        }
        replayed
    }

    fn told(&self) -> String {
        let groups =
            [("newly allowed", &self.allowed), ("newly denied", &self.denied), ("would be asked", &self.asked)];
        let mut out = String::new();
        for (title, lines) in groups.iter().filter(|(_, lines)| !lines.is_empty()) {
            writeln!(out, "{title}").unwrap_or_default();
            for line in *lines {
                writeln!(out, "  {}", escaped(line)).unwrap_or_default();
            }
        }
        if out.is_empty() { "nothing would be decided otherwise\n".to_owned() } else { out }
    }
}
