//! Which rule decides about which real path: policy paths expanded, resolved by the survey's facts, and reduced to one rule per path.
//! Owns the question "what is the access of this path and why"; `mounts` turns the answer into mounts.
//! Called by `plan()`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cofferdam_policy::decide::index::{Contest, refuses};
use cofferdam_policy::decide::{asked_for_by, closes_project, gives_the_home};
use cofferdam_policy::path::{Base, is_at_or_below, tree_order};
use cofferdam_policy::{
    Access, FileRule, Hold, Layer, Mode, Origin, PlacedRule, Places, Policy, RuleIndex, folds_alike, folds_at_or_below,
};

use crate::PlanError;
use crate::facts::git::{GitDir, GitRole, TrackedFile};
use crate::facts::host::HostFacts;
use crate::facts::path::{Kind, PathFact};
use crate::files::alias;
use crate::files::control::controls;
use crate::files::decision::{Decision, TransactionRole, found_out};

/// Why a socket is covered.
const LISTENED_AT: &str = "a process of the host listens there";

/// Why a directory is hidden that a session could open again.
const CLOSED: &str = "what is in it cannot be looked at from outside";

/// One decision per real path, sorted so that parents come before what lies below them.
pub(crate) fn decisions(policy: &Policy, facts: &HostFacts) -> Result<Vec<Decision>, PlanError> {
    if let Some(directory) = facts.searched.as_ref().and_then(|searched| searched.crowded.clone()) {
        return Err(PlanError::TooManyHidden { directory });
    }
    if let Some(path) = facts.folding.first() {
        return Err(PlanError::FoldsCase { path: path.clone() });
    }
    let mut found = Vec::new();
    let places = facts.places();
    for (index, fact) in &facts.answers {
        if let Some(rule) = policy.files.get(*index).filter(|rule| !gives_the_home(rule, fact.canonical(), &places))
            && (rule.access != Access::Mask || !is_led_away(rule, fact, facts))
        {
            consider(rule, fact, &mut found)?;
        }
    }
    // A link that a session can replace would have the next session hide something else.
    for (index, link) in &facts.links {
        found.extend(policy.files.get(*index).map(|rule| Decision::new(rule, Access::Protect, link)));
    }
    let origin = Origin { layer: Layer::BuiltIn, source: "directories that cannot be read".into(), line: None };
    for fact in &facts.closed {
        found.push(found_out(fact.canonical().to_path_buf(), Access::Deny, CLOSED, &origin, fact.clone()));
    }
    refuse_unanswered(policy, facts)?;
    add_project(policy, facts, &mut found);
    add_git(facts, &mut found);
    add_public_ssh(facts, &mut found);
    add_sockets(policy, facts, &mut found)?;
    let mut kept = decided_with_git(facts, found);
    keep_apart(policy, facts, &mut kept);
    fill_masks(policy, facts, &mut kept);
    if let Some(why) = &facts.paths_unknown {
        return Err(PlanError::PathsUnknown { why: why.clone() });
    }
    if let Some(why) = &facts.mounts_unknown {
        return Err(PlanError::MountsUnknown { why: why.clone() });
    }
    let others = alias::decisions(&kept, facts);
    if !others.is_empty() {
        kept.extend(others);
        kept = one_for_each_path(kept);
    }
    drop_below_finals(&mut kept);
    drop_lifted(&mut kept);
    refuse_too_wide(&kept, &facts.places())?;
    refuse_outside(policy, facts, &kept)?;
    Ok(kept)
}

/// The strongest rule about each path, parents first.
fn one_for_each_path(mut found: Vec<Decision>) -> Vec<Decision> {
    found.sort_by(|a, b| tree_order(&a.path, &b.path));
    strongest_of_each(found)
}

/// What a shipped list hides is shown where the repository holds the same bytes under the same name and can be read: it says
/// nothing that is not said there. A rule of another layer is the user's word, and stays; so does what protects the name.
fn decided_with_git(facts: &HostFacts, mut found: Vec<Decision>) -> Vec<Decision> {
    if facts.tracked.iter().all(|file| file.object.is_none()) {
        return one_for_each_path(found);
    }
    let kept = one_for_each_path(found.clone());
    let index = RuleIndex::new(kept.iter().collect());
    let can_be_read = |object: &PathBuf| index.deciding(object).is_some_and(|rule| rule.access != Access::Deny);
    let has_object = |file: &&TrackedFile| file.object.as_ref().is_some_and(can_be_read);
    let shown: HashSet<&Path> = facts.tracked.iter().filter(has_object).map(|file| file.path.as_path()).collect();
    let hides = |d: &Decision| d.access <= Access::Mask && d.origin.layer == Layer::BuiltIn && !d.is_about_socket();
    found.retain(|decision| !(hides(decision) && shown.contains(decision.path.as_path())));
    one_for_each_path(found)
}

/// A link in the project or in its repository may have been made by a session: it leads no mask, which shows a file, to
/// what lies elsewhere.
fn is_led_away(rule: &FileRule, fact: &PathFact, facts: &HostFacts) -> bool {
    matches!(rule.path.base, Base::Project | Base::Git) && !is_given_for_writing(fact.canonical(), facts)
}

/// The text that each masked file reads as. Without one it is hidden. A link in a home leads a mask to a file that can be
/// read, and gives none: in dynamic mode that file is asked about.
fn fill_masks(policy: &Policy, facts: &HostFacts, kept: &mut Vec<Decision>) {
    let masks: Vec<usize> = (0..kept.len()).filter(|at| kept[*at].access == Access::Mask).collect();
    let mut dropped = Vec::new();
    for at in masks {
        let path = kept[at].path.clone();
        let fact = facts.masks.get(&path);
        let is_above = |decision: &&Decision| decision.path != path && is_at_or_below(&path, &decision.path);
        let above = kept.iter().rev().find(is_above).map(|decision| decision.access);
        let is_open = policy.mode.value == Mode::Static
            || kept[at].is_given
            || above.is_some_and(|access| access >= Access::Read);
        let is_led_astray = !fact.is_some_and(|mask| mask.is_named) && !is_open;
        match fact.and_then(|mask| mask.text.clone()) {
            // What lies above hides it, and is what a person is told.
            _ if is_led_astray || above == Some(Access::Deny) => dropped.push(path),
            Some(text) => kept[at].masked = Some(text),
            None => kept[at].access = Access::Deny,
        }
    }
    kept.retain(|decision| !dropped.contains(&decision.path));
}

/// Of the decisions about one path, which stand next to each other, the one that wins.
fn strongest_of_each(found: Vec<Decision>) -> Vec<Decision> {
    let mut winners = Vec::with_capacity(found.len());
    let mut begin = 0;
    for group in found.chunk_by(|a, b| a.path == b.path) {
        let group: Vec<&Decision> = group.iter().collect();
        let mut contest = Contest::default();
        for (number, decision) in group.iter().enumerate() {
            contest.enter(begin + number, decision);
        }
        winners.extend(contest.won_over(None).map(|winner| (winner, contest.is_given())));
        begin += group.len();
    }
    let mut winners = winners.into_iter().peekable();
    let won = |(number, decision): (usize, Decision)| {
        let (_, is_given) = winners.next_if(|(winner, _)| *winner == number)?;
        // It may have been found out before: other names are added to what was decided.
        let is_given = (is_given || decision.is_given) && matches!(decision.access, Access::Mask | Access::Protect);
        Some(Decision { is_given, ..decision })
    };
    found.into_iter().enumerate().filter_map(won).collect()
}

/// Nothing below a final deny counts, however that is spelled.
fn drop_below_finals(decisions: &mut Vec<Decision>) {
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let finals: Vec<Vec<u8>> = decisions.iter().filter(|d| d.is_final).map(|d| bytes(&d.path)).collect();
    decisions.retain(|decision| {
        let path = decision.path.as_os_str().as_encoded_bytes();
        let ends = |last: &Vec<u8>| {
            let is_last_word = last == path || decision.is_final && folds_alike(path, last);
            !is_last_word && folds_at_or_below(path, last)
        };
        !finals.iter().any(ends)
    });
}

/// In a transaction the project, and the repository of a linked worktree, which is given as the project is, are written to
/// overlays. What gives them was decided before: a transaction asked for by a later layer opens nothing.
fn keep_apart(policy: &Policy, facts: &HostFacts, kept: &mut [Decision]) {
    if !policy.transaction.value.is_on() {
        return;
    }
    let is_own = |git: &&GitDir| matches!(git.role, GitRole::Common | GitRole::ThisWorktree);
    let git = facts.git.iter().filter(is_own).map(|git| &git.path);
    let trees: Vec<&PathBuf> = facts.project.iter().chain(git).collect();
    let is_written = |decision: &&mut Decision| decision.access == Access::Write && trees.contains(&&decision.path);
    let role = if policy.transaction_lifts() { TransactionRole::Lifting } else { TransactionRole::Kept };
    for decision in kept.iter_mut().filter(is_written) {
        decision.access = Access::Overlay;
        decision.origin = asked_for_by(&decision.origin, &policy.transaction.origin).clone();
        decision.role = role;
    }
}

/// What a transaction lifts, by the policy's precedence, is neither mounted nor held.
fn drop_lifted(kept: &mut Vec<Decision>) {
    if !kept.iter().any(|decision| (&decision).lifts()) {
        return;
    }
    let all = kept.clone();
    let index = RuleIndex::new(all.iter().collect());
    let is_lifted = |decision: &Decision| {
        (&decision).is_liftable() && index.deciding(&decision.path).is_some_and(PlacedRule::lifts)
    };
    kept.retain(|decision| !is_lifted(decision));
}

/// The same with nothing that reaches the host: an overlay where something would be written, and a file as it is.
pub(crate) fn without_writes(mut decisions: Vec<Decision>) -> Vec<Decision> {
    for decision in decisions.iter_mut().filter(|decision| decision.access == Access::Write) {
        let is_directory = matches!(decision.fact, PathFact::Present { kind: Kind::Directory, .. });
        decision.access = if is_directory { Access::Overlay } else { Access::Read };
    }
    decisions
}

/// Whether the rule is in vain without its path.
fn demands_its_path(rule: &FileRule) -> bool {
    !rule.optional && !refuses(rule.access) && !rule.path.is_glob()
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
        // What stands where a socket node would hold the name could be replaced by a directory: a plain file, or the stand-in
        // of a session with another state directory.
        PathFact::Present { kind, .. }
            if rule.only_missing && !(rule.hold == Hold::Socket && *kind != Kind::Directory) =>
        {
            return Ok(());
        }
        // A protected name that is a link (or anything else) is bound onto itself: it can then not be replaced.
        PathFact::Present { kind: Kind::Other | Kind::Socket, .. } if !refuses(rule.access) => {
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
    found.push(Decision { is_final: rule.is_final, ..Decision::new(rule, rule.access, fact) });
    Ok(())
}

fn add_project(policy: &Policy, facts: &HostFacts, found: &mut Vec<Decision>) {
    if let Some((path, fact)) = facts.project.as_ref().and_then(|p| Some((p, facts.paths.get(p)?))) {
        if found.iter().any(|decision| closes_project(&decision, path)) {
            return;
        }
        let project = &policy.project;
        found.push(found_out(path.clone(), project.value, "the project", &project.origin, fact.clone()));
    }
}

/// A linked worktree keeps its index and its objects elsewhere: those places share the project's access,
/// and what points from one to the other must not be bent.
fn add_git(facts: &HostFacts, found: &mut Vec<Decision>) {
    let project_access =
        found.last().filter(|d| Some(&d.path) == facts.project.as_ref()).map(|d| (d.access, d.origin.clone()));
    let built_in = Origin { layer: Layer::BuiltIn, source: "git layout".into(), line: None };
    let is_given = |path: &Path| {
        let is_tree = |d: &Decision| d.access == Access::Write && is_at_or_below(path, &d.path);
        is_given_for_writing(path, facts) || found.iter().any(is_tree)
    };
    let reads: Vec<&PathFact> = facts.git_reads.iter().filter(|fact| is_given(fact.canonical())).collect();
    for fact in reads {
        let (path, reason) = (fact.canonical().to_path_buf(), "git reads it, because a configuration says so");
        let mut decision = found_out(path, Access::Protect, reason, &built_in, fact.clone());
        // Missing, it could be made; git takes an empty file for no setting.
        decision.hold = Hold::File("".into());
        found.push(decision);
    }
    let Some((project_access, project_origin)) = project_access else { return };
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
            GitRole::Whole => {
                push(git.path.clone(), Access::Protect, "more repositories than are looked at one by one", &built_in);
            }
            GitRole::Main | GitRole::Submodule => {}
        }
    }
    let is_of_others = |git: &&GitDir| matches!(git.role, GitRole::OtherWorktree | GitRole::Whole);
    let of_others: Vec<&PathBuf> = facts.git.iter().filter(is_of_others).map(|git| &git.path).collect();
    let is_theirs = |decision: &&mut Decision| decision.origin == built_in && of_others.contains(&&decision.path);
    for decision in found.iter_mut().filter(is_theirs) {
        decision.role = TransactionRole::OfOthers;
    }
}

/// Where keys of the user's ssh-agent can sign, programs need what is public of ssh: which key is meant and whom to believe. What a layer
/// hides stays hidden.
fn add_public_ssh(facts: &HostFacts, found: &mut Vec<Decision>) {
    let origin = Origin { layer: Layer::BuiltIn, source: "network.ssh_agent is on".into(), line: None };
    for fact in &facts.public_ssh {
        let path = fact.canonical();
        let hides = |d: &Decision| {
            d.access == Access::Deny && d.origin.layer != Layer::BuiltIn && is_at_or_below(path, &d.path)
        };
        if !found.iter().any(hides) {
            let reason = "public keys, known hosts and settings of ssh";
            found.push(found_out(path.to_path_buf(), Access::Read, reason, &origin, fact.clone()));
        }
    }
}

/// Whether it lies in the project or in one of its repositories.
fn is_given_for_writing(path: &Path, facts: &HostFacts) -> bool {
    facts.own_trees().any(|root| is_at_or_below(path, root))
}

/// A socket that a process of the host listens at is covered, whatever gives its directory: a read-only mount does not stop
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
            PathFact::Present { canonical, kind: Kind::Socket, id } => {
                if let Some(what) = controls(policy, facts, canonical, *id) {
                    let (path, origin) = (canonical.clone(), grant.origin.clone());
                    return Err(PlanError::ControlSocket { path, what, origin });
                }
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

/// The organisation may say where grants to write must lie; the project itself is such a grant.
fn refuse_outside(policy: &Policy, facts: &HostFacts, decisions: &[Decision]) -> Result<(), PlanError> {
    let Some(first) = policy.write_within.first() else { return Ok(()) };
    let roots: Vec<PathBuf> = policy.write_within.iter().flat_map(|root| root.value.expand(&facts.places())).collect();
    // The shipped overlays of caches reach nothing on the host and need no permission.
    let asked = |d: &&Decision| d.access == Access::Overlay && d.is_kept_overlay();
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

fn refuse_too_wide(decisions: &[Decision], places: &Places) -> Result<(), PlanError> {
    let wide = |d: &&Decision| {
        matches!(d.access, Access::Write | Access::Overlay)
            && (d.path == Path::new("/") || places.holds_a_home(&d.path))
    };
    match decisions.iter().find(wide) {
        Some(d) => Err(PlanError::TooWide { path: d.path.clone(), origin: d.origin.clone() }),
        None => Ok(()),
    }
}
