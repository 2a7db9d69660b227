//! Which rule decides about which real path: policy paths expanded, resolved by the survey's facts, and reduced to one rule per path.
//! Owns the question "what is the access of this path and why"; `mounts` turns the answer into mounts.
//! Called by `plan()` and by whoever explains a denial (`decide`).

use std::path::{Path, PathBuf};

use cofferdam_policy::path::{is_at_or_below, tree_order};
use cofferdam_policy::{Access, FileRule, Hold, Layer, Origin, Policy, Stand};
use serde::Serialize;

use crate::PlanError;
use crate::facts::{GitRole, HostFacts, Kind, PathFact};

/// The rule in force at one real path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub path: PathBuf,
    pub access: Access,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub origin: Origin,
    #[serde(skip)]
    pub(crate) stand: Stand,
    #[serde(skip)]
    pub(crate) hold: Hold,
    #[serde(skip)]
    pub(crate) is_final: bool,
    /// Some rule gives this very path for reading, though a stricter one decides.
    #[serde(skip)]
    pub(crate) is_given: bool,
    #[serde(skip)]
    pub(crate) fact: PathFact,
}

/// Why a socket is covered.
const LISTENED_AT: &str = "a process of the host listens there";

impl Decision {
    /// Whether it is about a socket of the host.
    pub fn is_about_socket(&self) -> bool {
        matches!(self.fact, PathFact::Present { kind: Kind::Socket, .. })
    }
}

/// The decision about `path`: the rule with the longest path at or above it.
pub fn decide<'a>(decisions: &'a [Decision], path: &Path) -> Option<&'a Decision> {
    decisions.iter().filter(|d| is_at_or_below(path, &d.path)).max_by_key(|d| d.path.as_os_str().len())
}

/// One decision per real path, sorted so that parents come before what lies below them.
pub(crate) fn decisions(policy: &Policy, facts: &HostFacts) -> Result<Vec<Decision>, PlanError> {
    let mut found = Vec::new();
    for (index, fact) in &facts.answers {
        if let Some(rule) = policy.files.get(*index).filter(|rule| !gives_the_home(rule, fact.canonical(), facts)) {
            consider(rule, fact, &mut found)?;
        }
    }
    refuse_unanswered(policy, facts)?;
    add_project(policy, facts, &mut found);
    add_git(facts, &mut found);
    add_sockets(policy, facts, &mut found)?;
    // Parents first; on one path the strongest rule last, so that it is the one kept.
    found.sort_by(|a, b| {
        let strength = |d: &Decision| (d.is_final, d.origin.layer, std::cmp::Reverse(d.access));
        tree_order(&a.path, &b.path).then_with(|| strength(a).cmp(&strength(b)))
    });
    let mut kept: Vec<Decision> = Vec::with_capacity(found.len());
    for decision in found {
        match kept.last_mut() {
            // Protecting is about writes: whatever its layer, it never uncovers what is hidden (a project's unapproved
            // policy may protect a link, and the link may lead to a secret).
            Some(last) if last.path == decision.path => {
                if (last.access, decision.access) != (Access::Deny, Access::Protect) {
                    let is_given = decision.access == Access::Protect && last.access >= Access::Read;
                    *last = decision;
                    last.is_given |= is_given;
                }
            }
            _ => kept.push(decision),
        }
    }
    let finals: Vec<PathBuf> = kept.iter().filter(|d| d.is_final).map(|d| d.path.clone()).collect();
    kept.retain(|d| !finals.iter().any(|f| d.path != *f && is_at_or_below(&d.path, f)));
    refuse_too_wide(&kept, facts)?;
    refuse_outside(policy, facts, &kept)?;
    Ok(kept)
}

/// The same with nothing that reaches the host: an overlay where something would be written, and a file as it is.
pub(crate) fn without_writes(mut decisions: Vec<Decision>) -> Vec<Decision> {
    for decision in decisions.iter_mut().filter(|decision| decision.access == Access::Write) {
        let is_directory = matches!(decision.fact, PathFact::Present { kind: Kind::Directory, .. });
        decision.access = if is_directory { Access::Overlay } else { Access::Read };
    }
    decisions
}

/// A shipped list knows places of software; a variable that leads one of them to the home, or above it, opens nothing.
pub(crate) fn gives_the_home(rule: &FileRule, path: &Path, facts: &HostFacts) -> bool {
    rule.origin.layer == Layer::BuiltIn && rule.access == Access::Read && facts.home.starts_with(path)
}

/// Whether the rule is in vain without its path.
fn demands_its_path(rule: &FileRule) -> bool {
    !rule.optional && !matches!(rule.access, Access::Deny | Access::Protect) && !rule.path.is_glob()
}

/// A survey that says nothing about a path that was asked for has not found it.
fn refuse_unanswered(policy: &Policy, facts: &HostFacts) -> Result<(), PlanError> {
    for (index, rule) in policy.files.iter().enumerate().filter(|(_, rule)| demands_its_path(rule)) {
        if !facts.answers.iter().any(|(answered, _)| *answered == index) {
            return Err(PlanError::MissingPath { path: rule.path.as_str().into(), origin: rule.origin.clone() });
        }
    }
    Ok(())
}

fn consider(rule: &FileRule, fact: &PathFact, found: &mut Vec<Decision>) -> Result<(), PlanError> {
    let path = fact.canonical();
    match fact {
        PathFact::Missing { .. } if rule.access == Access::Protect => {}
        PathFact::Missing { .. } if demands_its_path(rule) => {
            return Err(PlanError::MissingPath { path: path.to_path_buf(), origin: rule.origin.clone() });
        }
        PathFact::Missing { .. } => return Ok(()),
        PathFact::Present { .. } if rule.only_missing => return Ok(()),
        // A protected name that is a link (or anything else) is bound onto itself: it can then not be replaced.
        PathFact::Present { kind: Kind::Other | Kind::Socket, .. }
            if !matches!(rule.access, Access::Deny | Access::Protect) =>
        {
            if rule.optional {
                return Ok(());
            }
            return Err(PlanError::SpecialFile { path: path.to_path_buf(), origin: rule.origin.clone() });
        }
        PathFact::Present { kind, .. } if rule.access == Access::Overlay && *kind != Kind::Directory => {
            return Err(PlanError::OverlayNeedsDirectory { path: path.to_path_buf(), origin: rule.origin.clone() });
        }
        PathFact::Present { .. } => {}
    }
    found.push(Decision {
        path: fact.canonical().to_path_buf(),
        access: rule.access,
        reason: rule.reason.clone().into_owned(),
        origin: rule.origin.clone(),
        stand: rule.stand.clone(),
        hold: rule.hold.clone(),
        is_final: rule.is_final,
        is_given: false,
        fact: fact.clone(),
    });
    Ok(())
}

fn add_project(policy: &Policy, facts: &HostFacts, found: &mut Vec<Decision>) {
    if let Some((path, fact)) = facts.project.as_ref().and_then(|p| Some((p, facts.paths.get(p)?))) {
        // Nobody asked for this path: where the caller stands must not open what the shipped lists close.
        let closes = |d: &Decision| {
            d.origin.layer == Layer::BuiltIn && matches!(d.access, Access::Deny | Access::Protect) && d.path != *path
        };
        if found.iter().any(|d| closes(d) && path.starts_with(&d.path)) {
            return;
        }
        found.push(Decision {
            path: path.clone(),
            access: policy.project.value,
            reason: "the project".to_owned(),
            origin: policy.project.origin.clone(),
            stand: Stand::Refuse,
            hold: Hold::Nothing,
            is_final: false,
            is_given: false,
            fact: fact.clone(),
        });
    }
}

/// A linked worktree keeps its index and its objects elsewhere: those places share the project's access,
/// and what points from one to the other must not be bent.
fn add_git(facts: &HostFacts, found: &mut Vec<Decision>) {
    let project_access =
        found.last().filter(|d| Some(&d.path) == facts.project.as_ref()).map(|d| (d.access, d.origin.clone()));
    let Some((project_access, project_origin)) = project_access else { return };
    let built_in = Origin { layer: Layer::BuiltIn, source: "git layout".into(), line: None };
    let mut push = |path: PathBuf, access: Access, reason: &str, origin: &Origin| {
        if let Some(fact @ PathFact::Present { .. }) = facts.paths.get(&path) {
            found.push(found_out(path, access, reason, origin, fact.clone()));
        }
    };
    // A `.git` that is a file or a link names the repository, whether or not we follow it.
    if let Some(pointer) = facts.project.as_ref().map(|project| project.join(".git"))
        && let Some(PathFact::Present { kind: Kind::File | Kind::Socket | Kind::Other, .. }) = facts.paths.get(&pointer)
    {
        push(pointer, Access::Protect, "says where the repository is", &built_in);
    }
    for git in &facts.git {
        match git.role {
            GitRole::Common => {
                push(git.path.clone(), project_access, "repository of this linked worktree", &project_origin);
            }
            GitRole::ThisWorktree => {
                push(git.path.clone(), project_access, "this linked worktree", &project_origin);
                for pointer in ["commondir", "gitdir"] {
                    push(git.path.join(pointer), Access::Protect, "says where the repository is", &built_in);
                }
            }
            GitRole::OtherWorktree => push(git.path.clone(), Access::Protect, "belongs to another worktree", &built_in),
            GitRole::Main | GitRole::Submodule => {}
        }
    }
}

/// A socket that somebody on the host listens at is covered, whatever gives its directory: a read-only mount does not stop
/// `connect`. One that the policy names is there under its own name, and nothing else of its directory.
fn add_sockets(policy: &Policy, facts: &HostFacts, found: &mut Vec<Decision>) -> Result<(), PlanError> {
    if let Some(why) = &facts.sockets_unknown {
        return Err(PlanError::SocketsUnknown { why: why.clone() });
    }
    let mut push = |access: Access, reason: &str, origin: &Origin, fact: PathFact| {
        found.push(found_out(fact.canonical().to_path_buf(), access, reason, origin, fact));
    };
    let mut granted: Vec<&PathBuf> = Vec::new();
    for (index, fact) in &facts.granted_sockets {
        let Some(grant) = policy.network.sockets.get(*index) else { continue };
        match fact {
            PathFact::Present { canonical, kind: Kind::Socket, .. } => {
                granted.push(canonical);
                push(Access::Read, &grant.value.reason, &grant.origin, fact.clone());
            }
            PathFact::Missing { .. } if grant.value.optional => {}
            PathFact::Present { .. } | PathFact::Missing { .. } => {
                let (path, origin) = (fact.canonical().to_path_buf(), grant.origin.clone());
                return Err(PlanError::NotASocket { path, origin });
            }
        }
    }
    let built_in = Origin { layer: Layer::BuiltIn, source: "sockets of the host".into(), line: None };
    for (path, id) in facts.sockets.iter().filter(|(path, _)| !granted.contains(&path)) {
        let fact = PathFact::Present { canonical: path.clone(), kind: Kind::Socket, id: *id };
        push(Access::Deny, LISTENED_AT, &built_in, fact);
    }
    Ok(())
}

/// A decision about something that was found, and that no rule about files names.
fn found_out(path: PathBuf, access: Access, reason: &str, origin: &Origin, fact: PathFact) -> Decision {
    Decision {
        path,
        access,
        reason: reason.to_owned(),
        origin: origin.clone(),
        stand: Stand::Refuse,
        hold: Hold::Nothing,
        is_final: false,
        is_given: false,
        fact,
    }
}

/// The organisation may say where grants to write must lie; the project itself is such a grant.
fn refuse_outside(policy: &Policy, facts: &HostFacts, decisions: &[Decision]) -> Result<(), PlanError> {
    let Some(first) = policy.write_within.first() else { return Ok(()) };
    let roots: Vec<PathBuf> = policy.write_within.iter().flat_map(|root| root.value.expand(&facts.places())).collect();
    // The shipped overlays of caches reach nothing on the host and need no permission.
    let asked = |d: &&Decision| d.access == Access::Overlay && d.origin.layer != Layer::BuiltIn;
    let mut grants = decisions.iter().filter(|d| d.access == Access::Write || asked(d));
    match grants.find(|d| !roots.iter().any(|root| is_at_or_below(&d.path, root))) {
        Some(d) => Err(PlanError::OutsideCeiling {
            path: d.path.clone(),
            origin: d.origin.clone(),
            ceiling: Box::new(first.origin.clone()),
        }),
        None => Ok(()),
    }
}

fn refuse_too_wide(decisions: &[Decision], facts: &HostFacts) -> Result<(), PlanError> {
    let wide = |d: &&Decision| {
        matches!(d.access, Access::Write | Access::Overlay)
            && (d.path == Path::new("/") || is_at_or_below(&facts.home, &d.path))
    };
    match decisions.iter().find(wide) {
        Some(d) => Err(PlanError::TooWide { path: d.path.clone(), origin: d.origin.clone() }),
        None => Ok(()),
    }
}
