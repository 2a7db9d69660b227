//! The session's directories for what is written to overlays: made before the clone, looked at and given up at the end. Owns which
//! of them are kept; the directory itself is `store`'s. Called by `launch`.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use cofferdam_host::state::{make_all, sessions_in};
use cofferdam_kernel::file;
use cofferdam_plan::{GateRule, GitDir, GitRole, LaunchPlan, SlotOverlay, Step, all_gate_rules};
use cofferdam_policy::Transaction;
use cofferdam_wire::Changed;
use cofferdam_workspace::copied;
use cofferdam_workspace::transaction::index_of;
use cofferdam_workspace::{HiddenRule, Manifest, Time, TreeRecord};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::LaunchError;
use crate::options::Options;
use crate::store::overlay_changes;
use crate::store::session_dir::{Kept, SessionDir};

pub(super) fn make_overlays(
    plan: &LaunchPlan,
    options: &Options,
    session: &str,
) -> Result<Option<SessionDir>, LaunchError> {
    if plan.overlays == 0 {
        return Ok(None);
    }
    // Without a place of its own nothing is made: a relative path would land in the project.
    let Some(state) = &options.state else {
        return Err(LaunchError::SessionDirectory { path: PathBuf::from("sessions"), errno: Errno::NOENT });
    };
    let kept = plan.kept_overlays();
    let keep: Vec<Kept<'_>> = kept.iter().map(|kept| Kept { slot: kept.slot, lower: kept.lower }).collect();
    let failed = |errno| LaunchError::SessionDirectory { path: sessions_in(state), errno };
    let directory = SessionDir::create(state, session, plan.overlays, &keep).map_err(failed)?;
    lead_home(plan, &directory).map_err(failed)?;
    if !keep.is_empty() {
        let claim = directory.claim.as_fd();
        let manifest = manifest(plan, options, session, &keep, claim).map_err(failed)?;
        manifest.write(claim).map_err(failed)?;
        if let Err((path, errno)) = copy_trees(&manifest, claim) {
            directory.finish(state);
            return Err(LaunchError::Copy { path, errno });
        }
    }
    Ok(Some(directory))
}

/// What a later process needs to compare, commit or drop what was written: written down before anything can be written.
fn manifest(
    plan: &LaunchPlan,
    options: &Options,
    session: &str,
    keep: &[Kept<'_>],
    directory: BorrowedFd<'_>,
) -> Result<Manifest, Errno> {
    // Without them nothing would say which names are hidden.
    let known = options.known.as_deref().ok_or(Errno::INVAL)?;
    let is_repository = |lower: &Path| {
        let is_it = |git: &&GitDir| git.path == lower && matches!(git.role, GitRole::Common | GitRole::ThisWorktree);
        known.facts.git.iter().any(|git| is_it(&git))
    };
    let coarse = clock_gettime(ClockId::RealtimeCoarse);
    let began = u64::try_from(coarse.tv_sec).unwrap_or(0);
    let is_auto = plan.transaction == Transaction::Auto;
    let mut manifest = Manifest::new(session, began, &plan.command.argv, is_auto)?;
    for kept in keep {
        let stat = rustix::fs::stat(kept.lower)?;
        // The top of an overlay looks as its upper layer does.
        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
        rustix::fs::chmodat(directory, format!("{}/upper", kept.slot), mode, AtFlags::empty())?;
        // A file system without nameless files is stamped by the clock that runs behind: a conflict too many at most.
        let mounted = file::stamp(kept.lower).map_or((coarse.tv_sec, coarse.tv_nsec), |(_, time)| time);
        manifest.trees.push(TreeRecord {
            slot: kept.slot,
            lower: kept.lower.to_path_buf(),
            device: stat.st_dev,
            inode: stat.st_ino,
            mounted: Time(mounted.0, mounted.1),
            is_repository: is_repository(kept.lower),
            in_transaction: plan.transaction_at(kept.lower).is_on(),
            index: index_of(kept.lower),
            is_copy: plan.is_copied(kept.lower),
        });
    }
    let index = all_gate_rules(&known.policy, &known.facts, &plan.decisions);
    let concerns = |rule: &&GateRule| {
        // What stands at any depth begins at the directory above its last names.
        let begin = rule.path.ancestors().nth(rule.tail).unwrap_or(&rule.path);
        keep.iter().any(|kept| begin.starts_with(kept.lower) || kept.lower.starts_with(begin))
    };
    manifest.hidden = index.rules().filter(concerns).filter_map(HiddenRule::of).collect();
    manifest.masked = index.rules().filter(concerns).filter_map(HiddenRule::of_mask).collect();
    Ok(manifest)
}

/// Once the time is known after which a change of the host's is a conflict.
fn copy_trees(manifest: &Manifest, directory: BorrowedFd<'_>) -> Result<(), (PathBuf, Errno)> {
    for tree in manifest.trees.iter().filter(|tree| tree.is_copy) {
        // Of a masked file the session has the text of its cover alone: under another name its values would be committed.
        let covered = [&manifest.hidden[..], &manifest.masked].concat();
        let filled = copied::fill(directory, tree.slot, &tree.lower, &covered);
        filled.map_err(|errno| (tree.lower.clone(), errno))?;
    }
    Ok(())
}

/// Where what is written on the root that asks goes, in a session that learns.
fn upper_of_root(plan: &LaunchPlan, directory: &SessionDir) -> Option<PathBuf> {
    let slot = plan.steps.iter().find_map(|step| match step {
        Step::GateRoot { overlay, .. } => *overlay,
        _ => None,
    });
    slot.map(|slot| directory.path.join(slot.to_string()).join("upper"))
}

/// The directories above the home belong to a user who has no number inside, so the overlay could not copy them when
/// something is written below; they are there from the start.
fn lead_home(plan: &LaunchPlan, directory: &SessionDir) -> Result<(), Errno> {
    let (Some(upper), Some(gate)) = (upper_of_root(plan, directory), &plan.gate) else { return Ok(()) };
    let home = gate.home.strip_prefix("/").unwrap_or(&gate.home);
    make_all(&upper.join(home))
}

/// What was written on the root that asks, where the session learns.
pub(super) fn learned_changes(plan: &LaunchPlan, directory: Option<&SessionDir>) -> Vec<Changed> {
    let upper = directory.and_then(|directory| upper_of_root(plan, directory));
    upper.map(|upper| overlay_changes::below(&upper)).unwrap_or_default()
}

/// The places that look written to the session and are as they were: overlays that go with it and that hold something.
pub(super) fn thrown_away(plan: &LaunchPlan, directory: Option<&SessionDir>) -> Vec<PathBuf> {
    let Some(directory) = directory else { return Vec::new() };
    let holds = |overlay: &SlotOverlay<'_>| {
        let upper = directory.path.join(overlay.slot.to_string()).join("upper");
        std::fs::read_dir(upper).is_ok_and(|mut names| names.next().is_some())
    };
    plan.thrown_away_overlays().filter(holds).map(|overlay| overlay.target.to_path_buf()).collect()
}

/// The overlays that are kept, and the directory that could not be removed.
pub(super) fn finish_directory(
    plan: &LaunchPlan,
    directory: Option<SessionDir>,
    options: &Options,
) -> (Vec<(PathBuf, PathBuf)>, Option<PathBuf>) {
    let (Some(directory), Some(state)) = (directory, &options.state) else { return (Vec::new(), None) };
    let finished = directory.finish(state);
    let overlays = plan.kept_overlays();
    let lower_of = |slot: usize| overlays.iter().find(|one| one.slot == slot).map(|one| one.lower.to_path_buf());
    let kept = finished.kept.into_iter().filter_map(|(slot, upper)| Some((lower_of(slot)?, upper)));
    (kept.collect(), finished.left_behind)
}
