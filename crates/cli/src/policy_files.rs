//! Reads the layers of policy and turns flags into overrides. Owns which files there are; what they mean is `policy`'s.
//! Called by `run`, `explain`, `trust`, `persist` and the policy commands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use cofferdam_kernel::file::read_text;
use cofferdam_launcher::{Surroundings, survey};
use cofferdam_plan::Request;
use cofferdam_policy::decide::index::Written;
use cofferdam_policy::layers::{Inputs, LayerInput, resolve};
use cofferdam_policy::{
    AgentUse, Ceilings, Endpoint, EndpointError, ExpandedRule, Isolation, Layer, Mode, NetworkMode, OnUnknown, Origin,
    Overrides, PathExpr, Places, Policy, Publish, RuleIndex, Ruled, index_of, parse_count, parse_cpus, parse_size,
    parse_time, rules_in_force,
};

use crate::args::{NetworkArgs, PolicyArgs};
use crate::render::Failure;
use crate::trust::Approvals;

pub(crate) const ORG_POLICY: &str = "/etc/cofferdam/policy.toml";
pub(crate) const ORG_REQUIREMENTS: &str = "/etc/cofferdam/requirements.toml";

/// More than any policy or record of approvals has; a project's files may be anything.
const MOST_BYTES: u64 = 1 << 20;

/// The caller's variables. One that is no text cannot be judged by name or value, so it does not come along.
pub(crate) fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

/// The policy in force for these flags in these surroundings.
pub(crate) fn load(
    args: &PolicyArgs,
    around: &Surroundings,
    environment: &[(String, String)],
) -> Result<Policy, Failure> {
    let mut policy = as_written(args, around, environment)?;
    do_not_wait_for_nobody(&mut policy);
    ask_about_hosts(&mut policy);
    Ok(policy)
}

/// The same, whether or not somebody could answer a question now.
pub(crate) fn as_written(
    args: &PolicyArgs,
    around: &Surroundings,
    environment: &[(String, String)],
) -> Result<Policy, Failure> {
    let sources = Sources::read(around, environment)?;
    let overrides = overrides(args, around)?;
    let places = around.places();
    Ok(resolve(&Inputs {
        layers: &sources.layers,
        environment,
        overrides: Some(&overrides),
        requirements: sources.requirements.as_ref(),
        places: Some(&places),
    })?)
}

/// Without a terminal to ask at, and with nobody who asked for questions, what is unknown is denied at once.
fn do_not_wait_for_nobody(policy: &mut Policy) {
    let unknown = &mut policy.unknown;
    let has_terminal = [rustix::stdio::stdin(), rustix::stdio::stderr()].iter().all(rustix::termios::isatty);
    let is_chosen = unknown.verdict.origin.layer != Layer::BuiltIn || unknown.hook.is_some();
    if unknown.verdict.value == OnUnknown::Ask && !is_chosen && !has_terminal {
        let origin = Origin { layer: Layer::BuiltIn, source: "no terminal to ask at".into(), line: None };
        unknown.verdict = Ruled::new(OnUnknown::Deny, origin);
    }
}

/// Whoever is asked about unknown paths is asked about unknown hosts, unless a mode was chosen.
pub(crate) fn ask_about_hosts(policy: &mut Policy) {
    let asks = policy.mode.value == Mode::Dynamic && policy.unknown.verdict.value == OnUnknown::Ask;
    if asks && policy.isolation.value == Isolation::Full {
        policy.network.ask_about_hosts();
    }
}

/// What the files say: every layer but variables and flags.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) layers: Vec<LayerInput>,
    pub(crate) requirements: Option<Ceilings>,
}

impl Sources {
    pub(crate) fn read(around: &Surroundings, environment: &[(String, String)]) -> Result<Self, Failure> {
        let mut layers = Vec::new();
        add(&mut layers, Layer::Org, Path::new(ORG_POLICY), true)?;
        add(&mut layers, Layer::User, &user_config(around, environment), true)?;
        let mut approvals = None;
        for (layer, path) in project_files(around) {
            if let Some(text) = read(&path)? {
                let approvals = match &approvals {
                    Some(approvals) => approvals,
                    None => approvals.insert(Approvals::load(&around.state)?),
                };
                let trusted = approvals.covers(&path, &text);
                layers.push(LayerInput { layer, source: path.display().to_string(), text, trusted });
            }
        }
        Ok(Sources { layers, requirements: Self::requirements()? })
    }

    pub(crate) fn requirements() -> Result<Option<Ceilings>, Failure> {
        match read(Path::new(ORG_REQUIREMENTS))? {
            Some(text) => Ok(Some(Ceilings::parse(ORG_REQUIREMENTS, &text)?)),
            None => Ok(None),
        }
    }

    /// The policy of a run without variables and flags.
    pub(crate) fn resolve(&self, places: &Places) -> Result<Policy, Failure> {
        let inputs = Inputs {
            layers: &self.layers,
            requirements: self.requirements.as_ref(),
            places: Some(places),
            ..Inputs::default()
        };
        Ok(resolve(&inputs)?)
    }
}

/// What path expressions stand for here, git directories and variables included.
pub(crate) fn places(policy: &Policy, around: &Surroundings, environment: &[(String, String)]) -> Places {
    survey(policy, around, &Request { environment: environment.to_vec(), ..Request::default() }).places()
}

/// Every rule at its places, and where a link is on the way also at the place that it leads to: requests name real paths.
pub(crate) fn real_rules(policy: &Policy, places: &Places) -> RuleIndex<ExpandedRule> {
    let mut rules = rules_in_force(policy, places);
    let real: Vec<ExpandedRule> = rules.iter().flat_map(at_real_paths).collect();
    rules.extend(real);
    index_of(rules)
}

/// The rule where its path, or what its pattern matches, is a link.
fn at_real_paths(rule: &ExpandedRule) -> Vec<ExpandedRule> {
    let mut named = vec![rule.path.clone()];
    if rule.rule.path.is_glob() {
        let last = rule.path.file_name().unwrap_or_default().as_bytes();
        let entries = rule.path.parent().and_then(|parent| parent.read_dir().ok()).into_iter().flatten().flatten();
        let meant = Written { access: rule.rule.access, name: last, is_glob: true, except: rule.rule.path.except() };
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        named = links.filter(|entry| meant.means(entry.file_name().as_bytes())).map(|entry| entry.path()).collect();
    }
    let at = |path: PathBuf| {
        let mut rule = rule.rule.clone();
        // A pattern stands for one path now.
        rule.path = if rule.path.is_one_path() { rule.path } else { PathExpr::literal(&path).ok()? };
        Some(ExpandedRule { path, rule })
    };
    let real = named.iter().filter_map(|path| path.canonicalize().ok().filter(|real| real != path));
    real.filter_map(at).collect()
}

pub(crate) fn project_files(around: &Surroundings) -> Vec<(Layer, PathBuf)> {
    let Some(project) = &around.project else { return Vec::new() };
    let dir = project.join(".cofferdam");
    vec![(Layer::Project, dir.join("policy.toml")), (Layer::ProjectLocal, dir.join("policy.local.toml"))]
}

pub(crate) fn user_config(around: &Surroundings, environment: &[(String, String)]) -> PathBuf {
    let config = environment.iter().find(|(name, value)| name == "XDG_CONFIG_HOME" && value.starts_with('/'));
    let base = config.map_or_else(|| around.home.join(".config"), |(_, value)| PathBuf::from(value));
    base.join("cofferdam/config.toml")
}

fn add(layers: &mut Vec<LayerInput>, layer: Layer, path: &Path, trusted: bool) -> Result<(), Failure> {
    if let Some(text) = read(path)? {
        layers.push(LayerInput { layer, source: path.display().to_string(), text, trusted });
    }
    Ok(())
}

/// A file that is not there says nothing; one that cannot be read might have forbidden something, so that is an error.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Failure> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match read_text(path, MOST_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(source) => Err(Failure::Read { path: path.display().to_string(), source }),
    }
}

fn overrides(args: &PolicyArgs, around: &Surroundings) -> Result<Overrides, Failure> {
    let limits = &args.limits;
    let mut overrides = Overrides {
        presets: args.preset.clone(),
        timeout: amount("--timeout", limits.timeout.as_ref(), parse_time, TIME)?,
        memory: amount("--memory", limits.memory.as_ref(), parse_size, SIZE)?,
        cpu_millis: amount("--cpus", limits.cpus.as_ref(), parse_cpus, "write a number, e.g. `2`, `0.5`")?,
        cpu_time: amount("--cpu-time", limits.cpu_time.as_ref(), parse_time, TIME)?,
        max_processes: amount("--max-processes", limits.max_processes.as_ref(), small_count, COUNT)?,
        open_files: amount("--open-files", limits.open_files.as_ref(), parse_count, COUNT)?,
        storage: amount("--storage", limits.storage.as_ref(), parse_size, SIZE)?,
        output: amount("--max-output", limits.max_output.as_ref(), parse_size, SIZE)?,
        ask_timeout: amount("--ask-timeout", args.ask_timeout.as_ref(), parse_time, TIME)?,
        debug: args.no_debug.then_some(false),
        rw: paths("--rw", &args.rw, around)?,
        ro: paths("--ro", &args.ro, around)?,
        overlay: paths("--overlay", &args.overlay, around)?,
        blacklist: paths("--blacklist", &args.blacklist, around)?,
        sockets: paths("--socket", &args.network.socket, around)?,
        ..Overrides::default()
    };
    if let Some(value) = &args.mode {
        let mode = Mode::from_name(value).ok_or_else(|| wrong("--mode", value, Mode::NAMES))?;
        overrides.mode = Some(mode);
    }
    if let Some(value) = &args.on_unknown {
        let verdict = OnUnknown::from_name(value).ok_or_else(|| wrong("--on-unknown", value, OnUnknown::NAMES))?;
        overrides.on_unknown = Some(verdict);
    }
    if let Some(value) = &args.isolation {
        let level = Isolation::from_name(value).ok_or_else(|| wrong("--isolation", value, Isolation::NAMES))?;
        overrides.isolation = Some(level);
    }
    network(&args.network, &mut overrides)?;
    for variable in &args.env {
        match variable.split_once('=') {
            Some((name, value)) => overrides.env_set.push((name.to_owned(), value.to_owned())),
            None => overrides.env_pass.push(variable.clone()),
        }
    }
    Ok(overrides)
}

fn network(args: &NetworkArgs, overrides: &mut Overrides) -> Result<(), Failure> {
    overrides.allow_host = endpoints("--allow-host", &args.allow_host, Endpoint::parse_allow)?;
    overrides.deny_host = endpoints("--deny-host", &args.deny_host, Endpoint::parse)?;
    for text in &args.publish {
        let publish = amount("--publish", Some(text), Publish::parse, "write ports, e.g. `8080:80`, `8080`")?;
        overrides.publish.extend(publish);
    }
    for text in &args.host_port {
        let port = amount("--host-port", Some(text), small_count::<u16>, "write a port, e.g. `5432`")?;
        overrides.host_ports.extend(port);
    }
    if let Some(value) = &args.ssh_agent {
        let agent = AgentUse::from_name(value).ok_or_else(|| wrong("--ssh-agent", value, AgentUse::NAMES))?;
        overrides.ssh_agent = Some(agent);
    }
    if let Some(value) = &args.network {
        let mode = NetworkMode::from_name(value).ok_or_else(|| wrong("--network", value, NetworkMode::NAMES))?;
        if let Some(host) = args.allow_host.first().filter(|_| mode == NetworkMode::None) {
            let hint = "`--network none` reaches no host: leave one of the two out".to_owned();
            return Err(Failure::Flag { flag: "--allow-host", value: host.clone(), hint });
        }
        overrides.network = Some(mode);
    } else if !overrides.allow_host.is_empty() {
        overrides.network = Some(NetworkMode::Egress);
        overrides.network_is_implied = true;
    }
    Ok(())
}

fn endpoints(
    flag: &'static str,
    texts: &[String],
    parse: fn(&str) -> Result<Endpoint, EndpointError>,
) -> Result<Vec<Endpoint>, Failure> {
    let wrong = |text: &String, error: EndpointError| {
        let hint = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Failure::Flag { flag, value: text.clone(), hint }
    };
    texts.iter().map(|text| parse(text).map_err(|error| wrong(text, error))).collect()
}

const TIME: &str = "write a number with s, m or h, e.g. `90s`, `10m`";
const SIZE: &str = "write a number with K, M or G, e.g. `512M`, `2G`";
const COUNT: &str = "write a number, e.g. `100`";

/// The amount that a flag names, if it was given.
fn amount<T>(
    flag: &'static str,
    value: Option<&String>,
    parse: fn(&str) -> Option<T>,
    hint: &str,
) -> Result<Option<T>, Failure> {
    let Some(value) = value else { return Ok(None) };
    match parse(value) {
        Some(amount) => Ok(Some(amount)),
        None => Err(Failure::Flag { flag, value: value.clone(), hint: hint.to_owned() }),
    }
}

fn small_count<T: TryFrom<u64>>(text: &str) -> Option<T> {
    parse_count(text).and_then(|count| count.try_into().ok())
}

fn wrong(flag: &'static str, value: &str, names: &[&str]) -> Failure {
    Failure::Flag { flag, value: value.to_owned(), hint: format!("it is one of: {}", names.join(", ")) }
}

/// Paths of flags are meant as the shell means them, relative to the working directory. They stay as they were typed, but for
/// `..`: what a link leads them to, and whether it may, is the survey's to say.
fn paths(flag: &'static str, paths: &[PathBuf], around: &Surroundings) -> Result<Vec<PathExpr>, Failure> {
    let as_typed = |path: &PathBuf| {
        let absolute = around.cwd.join(path);
        let goes_up = absolute.components().any(|part| part == Component::ParentDir);
        if absolute.components().next_back() == Some(Component::ParentDir) {
            return absolute.canonicalize().unwrap_or(absolute);
        }
        let parent = absolute.parent().filter(|_| goes_up).and_then(|parent| parent.canonicalize().ok());
        parent.zip(absolute.file_name()).map(|(parent, name)| parent.join(name)).unwrap_or(absolute)
    };
    paths.iter().map(|path| literal(flag, path, &as_typed(path))).collect()
}

fn literal(flag: &'static str, typed: &Path, path: &Path) -> Result<PathExpr, Failure> {
    PathExpr::literal(path).map_err(|error| Failure::Flag {
        flag,
        value: typed.display().to_string(),
        hint: error.to_string(),
    })
}
