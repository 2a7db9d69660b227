//! The layers of policy as their files have them. Owns which files there are, what of them was approved, and who may write
//! them at a time; what they mean is `policy`'s. Called before a launch, by `persist` and by the commands about policies.

pub mod approvals;
pub mod lock;
pub mod record;
pub mod text;

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_plan::Request;
use cofferdam_policy::decide::index::Written;
use cofferdam_policy::layers::{Inputs, LayerInput, resolve};
use cofferdam_policy::{
    Ceilings, ExpandedRule, Layer, PathExpr, Places, Policy, PolicyError, RuleIndex, index_of, rules_in_force,
};
use cofferdam_wire::order::Chosen;
use thiserror::Error;

use self::approvals::Approvals;
use self::text::{ReadError, read};
use crate::survey::{Surroundings, survey};
use crate::written;

pub const ORG_POLICY: &str = "/etc/cofferdam/policy.toml";
pub const ORG_REQUIREMENTS: &str = "/etc/cofferdam/requirements.toml";

/// Why the layers of policy make no policy.
#[derive(Debug, Error)]
pub enum PolicyFilesError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("`{path}` lies in the project: what comes with a repository cannot be your word", path = path.display())]
    InProject { path: PathBuf },
    #[error("sessions were given `{path}` for writing: what it says need not be your word", path = path.display())]
    Written { path: PathBuf },
    #[error("the session could write `{path}`, which says what it may do", path = path.display())]
    Writable { path: PathBuf },
    #[error("there is no profile `{name}`: `{path}` does not exist", path = path.display())]
    NoProfile { name: String, path: PathBuf, known: Vec<String> },
}

/// What the files say: every layer but variables and flags.
#[derive(Debug, Clone)]
pub struct Sources {
    pub layers: Vec<LayerInput>,
    pub requirements: Option<Ceilings>,
}

impl Sources {
    pub fn read(around: &Surroundings, environment: &[(String, String)]) -> Result<Self, PolicyFilesError> {
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

    /// Adds the files that the operator named for this run, at the level of flags, and says where they are.
    pub fn add_chosen(
        &mut self,
        chosen: &Chosen,
        around: &Surroundings,
        environment: &[(String, String)],
    ) -> Result<Vec<PathBuf>, PolicyFilesError> {
        let mut files = Vec::new();
        for name in &chosen.profiles {
            files.push(profile(name, &user_config(around, environment))?);
        }
        let missing = |path: &Path| {
            let (path, source) = (path.to_path_buf(), std::io::ErrorKind::NotFound.into());
            PolicyFilesError::from(ReadError { path, source })
        };
        files.extend(chosen.policies.iter().map(|path| around.cwd.join(path)));
        let mut added = Vec::new();
        let written = if files.is_empty() { Ok(Vec::new()) } else { written::trees(&around.state) };
        let unread = |source| ReadError { path: around.state.clone(), source };
        let written = written.map_err(unread)?;
        for path in files {
            let real = path.canonicalize().map_err(|_| missing(&path))?;
            if around.project.as_ref().is_some_and(|project| real.starts_with(project)) {
                return Err(PolicyFilesError::InProject { path });
            }
            if written.iter().any(|tree| real.starts_with(tree)) {
                return Err(PolicyFilesError::Written { path });
            }
            let text = read(&real)?.ok_or_else(|| missing(&path))?;
            let source = path.display().to_string();
            self.layers.push(LayerInput { layer: Layer::Flag, source, text, trusted: true });
            added.push(real);
        }
        Ok(added)
    }

    pub fn requirements() -> Result<Option<Ceilings>, PolicyFilesError> {
        match read(Path::new(ORG_REQUIREMENTS))? {
            Some(text) => Ok(Some(Ceilings::parse(ORG_REQUIREMENTS, &text)?)),
            None => Ok(None),
        }
    }

    /// The policy of a run without variables and flags.
    pub fn resolve(&self, places: &Places) -> Result<Policy, PolicyFilesError> {
        self.resolve_with(Inputs { places: Some(places), ..Inputs::default() })
    }

    /// What the files say, with the rest of what a policy is made of.
    pub(crate) fn resolve_with<'a>(&'a self, rest: Inputs<'a>) -> Result<Policy, PolicyFilesError> {
        Ok(resolve(&Inputs { layers: &self.layers, requirements: self.requirements.as_ref(), ..rest })?)
    }
}

/// What path expressions stand for here, git directories and variables included.
pub fn places(policy: &Policy, around: &Surroundings, environment: &[(String, String)]) -> Places {
    survey(policy, around, &Request { environment: environment.to_vec(), ..Request::default() }).places()
}

/// Every rule at its places, and where a link is on the way also at the place that it leads to: requests name real paths.
pub fn real_rules(policy: &Policy, places: &Places) -> RuleIndex<ExpandedRule> {
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
    let lifts = rule.lifts;
    let at = |path: PathBuf| {
        let mut rule = rule.rule.clone();
        // A pattern stands for one path now.
        rule.path = if rule.path.is_one_path() { rule.path } else { PathExpr::literal(&path).ok()? };
        Some(ExpandedRule { path, rule, lifts })
    };
    let real = named.iter().filter_map(|path| path.canonicalize().ok().filter(|real| real != path));
    real.filter_map(at).collect()
}

pub fn project_files(around: &Surroundings) -> Vec<(Layer, PathBuf)> {
    let Some(project) = &around.project else { return Vec::new() };
    let dir = project.join(".cofferdam");
    vec![(Layer::Project, dir.join("policy.toml")), (Layer::ProjectLocal, dir.join("policy.local.toml"))]
}

pub fn user_config(around: &Surroundings, environment: &[(String, String)]) -> PathBuf {
    let config = environment.iter().find(|(name, value)| name == "XDG_CONFIG_HOME" && value.starts_with('/'));
    let base = config.map_or_else(|| around.home.join(".config"), |(_, value)| PathBuf::from(value));
    base.join("cofferdam/config.toml")
}

/// The file of a profile, if its name is one and it is there.
fn profile(name: &str, config: &Path) -> Result<PathBuf, PolicyFilesError> {
    let directory = config.with_file_name("profiles");
    let path = directory.join(format!("{name}.toml"));
    let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    if is_name && path.is_file() {
        return Ok(path);
    }
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut known: Vec<String> = entries
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.strip_suffix(".toml").map(str::to_owned)))
        .collect();
    known.sort();
    Err(PolicyFilesError::NoProfile { name: name.to_owned(), path, known })
}

fn add(layers: &mut Vec<LayerInput>, layer: Layer, path: &Path, trusted: bool) -> Result<(), PolicyFilesError> {
    if let Some(text) = read(path)? {
        layers.push(LayerInput { layer, source: path.display().to_string(), text, trusted });
    }
    Ok(())
}
