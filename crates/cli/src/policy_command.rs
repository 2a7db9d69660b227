//! `sandbox policy`: show, check, diff, export, import, test, allow, deny. Owns which policies a command speaks about and
//! how the answer looks; what they mean is `policy`'s, other tools' formats are `import`'s, writing is `persist`'s.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_gate::{Keep, Op};
use cofferdam_launcher::Surroundings;
use cofferdam_policy::{
    Access, Ceilings, Difference, Direction, ExpandedRule, Layer, LayerInput, Mode, OnUnknown, Places, Policy,
    RuleIndex, differences, explain, export, parse,
};
use serde_json::json;

use crate::args::{DiffArgs, ImportArgs, PolicyArgs, PolicyCommand, RuleArgs, ShowArgs, TestArgs};
use crate::import;
use crate::output::{escaped, json_text, print, print_json, say};
use crate::persist::{self, Change};
use crate::policy_files::{self, ORG_POLICY, Sources, real_rules};
use crate::recorded::{self, Recorded};
use crate::render::{Failure, OUR_FAILURE};

pub(crate) fn run(command: &PolicyCommand) -> Result<ExitCode, Failure> {
    match command {
        PolicyCommand::Show(args) => show(args),
        PolicyCommand::Check { files } => Ok(check(files)),
        PolicyCommand::Diff(args) => diff(args),
        PolicyCommand::Export { format } => export_effective(format),
        PolicyCommand::Import(args) => import_file(args),
        PolicyCommand::Test(args) => test(args),
        PolicyCommand::Allow(args) => answer(args, true),
        PolicyCommand::Deny(args) => answer(args, false),
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
    fn look() -> Result<Self, Failure> {
        let environment = policy_files::environment();
        let around = Surroundings::look(&environment)?;
        let effective = policy_files::as_written(&PolicyArgs::default(), &around, &environment)?;
        let places = policy_files::places(&effective, &around, &environment);
        Ok(Here { around, environment, effective, places })
    }

    /// The policy of a file: in the place of a layer's, or alone on the built-in one. Ceilings hold it in both cases.
    fn policy_of(&self, file: &Path, layer: Option<Layer>) -> Result<Policy, Failure> {
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

    fn named(&self, name: &str, layer: Option<Layer>) -> Result<Policy, Failure> {
        match name {
            "effective" => Ok(self.effective.clone()),
            "default" => Sources { layers: Vec::new(), requirements: None }.resolve(&self.places),
            file => self.policy_of(Path::new(file), layer),
        }
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let missing = || Failure::Read { path: file.display().to_string(), source: std::io::ErrorKind::NotFound.into() };
    policy_files::read(file)?.ok_or_else(missing)
}

fn show(args: &ShowArgs) -> Result<ExitCode, Failure> {
    let here = Here::look()?;
    if args.json {
        return Ok(print_json(&json!({ "version": 1, "policy": here.effective })));
    }
    let lines = explain(&here.effective, args.verbose);
    Ok(print(&lines.iter().map(|line| escaped(line) + "\n").collect::<String>()))
}

/// Every mistake is told, and any of them is a failure.
fn check(files: &[PathBuf]) -> ExitCode {
    let mut out = String::new();
    let mut failed = false;
    for file in files {
        match check_one(file) {
            Ok(()) => writeln!(out, "ok: {}", escaped(&file.display().to_string())).unwrap_or_default(),
            Err(failure) => {
                failed = true;
                failure.report();
            }
        }
    }
    let printed = print(&out);
    if failed { ExitCode::from(OUR_FAILURE) } else { printed }
}

fn check_one(file: &Path) -> Result<(), Failure> {
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
        Ok(_) | Err(Failure::Policy(cofferdam_policy::PolicyError::NoneNotApproved { .. })) => Ok(()),
        Err(failure) => Err(failure),
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

fn layer_named(name: Option<&String>) -> Result<Option<Layer>, Failure> {
    let Some(name) = name else { return Ok(None) };
    let layers = [Layer::Org, Layer::User, Layer::Project, Layer::ProjectLocal];
    match layers.iter().find(|layer| layer.to_string() == *name) {
        Some(layer) => Ok(Some(*layer)),
        None => Err(wrong("--as", name, "it is one of: org, user, project, project.local")),
    }
}

fn wrong(flag: &'static str, value: &str, hint: &str) -> Failure {
    Failure::Flag { flag, value: value.to_owned(), hint: hint.to_owned() }
}

fn diff(args: &DiffArgs) -> Result<ExitCode, Failure> {
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

fn export_effective(format: &str) -> Result<ExitCode, Failure> {
    let here = Here::look()?;
    let mut draft = export(&here.effective, &here.places);
    draft.title.insert(0, "The policy in force, as one file on top of the built-in one.".to_owned());
    let text = draft.to_toml();
    match format {
        "toml" => Ok(print(&text)),
        "json" => {
            // The keys of the schema: docs/policy.schema.json.
            let value: toml::Table =
                toml::from_str(&text).map_err(|error| wrong("--format", "json", error.message()))?;
            Ok(print(&format!("{}\n", json_text(&serde_json::to_string_pretty(&value).unwrap_or_default()))))
        }
        other => Err(wrong("--format", other, "it is one of: toml, json")),
    }
}

fn import_file(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let text = read(&args.file)?;
    let draft = import::import(&args.file, &text, &args.from)?;
    let Some(scope) = &args.save else { return Ok(print(&draft.to_toml())) };
    let keep = scope_to_save(scope)?;
    let environment = policy_files::environment();
    let around = Surroundings::look(&environment)?;
    let saved = persist::save_draft(&around, &environment, keep, &draft)?;
    for remark in draft.remarks.iter().chain(&saved.kept) {
        say!("sandbox: {}", escaped(remark));
    }
    Ok(tell_saved(&saved))
}

/// Whose policy `--save` means.
pub(crate) fn scope_to_save(scope: &str) -> Result<Keep, Failure> {
    match scope {
        "user" => Ok(Keep::User),
        "project" => Ok(Keep::Project),
        other => Err(wrong("--save", other, "it is one of: user, project")),
    }
}

pub(crate) fn tell_saved(saved: &persist::Saved) -> ExitCode {
    if saved.diff.is_empty() {
        return print(&format!("{} says so already\n", escaped(&saved.file.display().to_string())));
    }
    print(&saved.diff.lines().map(|line| escaped(line) + "\n").collect::<String>())
}

fn answer(args: &RuleArgs, allow: bool) -> Result<ExitCode, Failure> {
    let keep = match args.keep.as_str() {
        "project" => Keep::Project,
        "user" => Keep::User,
        "org" => Keep::Org,
        other => return Err(wrong("--keep", other, "it is one of: project, user, org")),
    };
    let environment = policy_files::environment();
    let around = Surroundings::look(&environment)?;
    let absolute = around.cwd.join(&args.path);
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

pub(crate) fn op_word(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::List => "list",
        Op::Exec => "exec",
        Op::Write => "write",
        Op::Create => "create",
        Op::Connect => "connect",
        Op::Sign => "sign",
    }
}

fn test(args: &TestArgs) -> Result<ExitCode, Failure> {
    let here = Here::look()?;
    let session = Some(args.against.as_str()).filter(|session| *session != "all");
    let mut requests = recorded::read(&here.around.state, session)?;
    if let Some(session) = session.filter(|_| requests.is_empty()) {
        return Err(Failure::NoSuchSession { session: session.to_owned() });
    }
    let total = requests.len();
    let sessions: BTreeSet<String> = requests.iter().map(|one| one.session.clone()).collect();
    requests.sort_by(|a, b| (&a.path, op_word(a.op), a.allowed).cmp(&(&b.path, op_word(b.op), b.allowed)));
    requests.dedup_by(|a, b| a.path == b.path && a.op == b.op && a.allowed == b.allowed);
    let policy = here.policy_of(&args.file, layer_named(args.layer.as_ref())?)?;
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
            let line = format!("{} {}", op_word(request.op), request.path.display());
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
