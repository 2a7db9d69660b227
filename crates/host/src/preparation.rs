//! What comes before a launch: policy, survey and plan of one order. Owns their sequence and what each of them took; starts
//! nothing. Called by `cli` for every command that needs a plan or the policy in force.

use std::path::PathBuf;
use std::rc::Rc;

use cofferdam_kernel::timing::now;
use cofferdam_plan::{HostFacts, LaunchPlan, PlanError, Request, decide, plan};
use cofferdam_policy::layers::Inputs;
use cofferdam_policy::{Access, Circumstances, Policy};
use cofferdam_wire::TimingLine;
use cofferdam_wire::order::{Chosen, Given, Order};
use thiserror::Error;

use crate::caches;
use crate::flags::{FlagError, settings};
use crate::policy_files::{PolicyFilesError, Sources};
use crate::quarantine::subject::{Starting, Subject};
use crate::quarantine::{self, QuarantineError};
use crate::survey::{Surroundings, SurveyError, survey};
use crate::written;

/// Why there is no plan, or no policy to make it of.
#[derive(Debug, Error)]
pub enum PrepareError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Files(#[from] PolicyFilesError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Quarantine(#[from] QuarantineError),
}

/// Policy, surroundings and plan of one order.
#[derive(Debug)]
pub struct Prepared {
    pub around: Surroundings,
    pub known: Rc<Known>,
    pub plan: LaunchPlan,
    /// The file that the command comes from, as it is now.
    pub subject: Option<Rc<Subject>>,
    /// What came before the launch, for `--timing`.
    pub timing: Vec<TimingLine>,
}

/// Policy and facts, by which the gate knows paths without asking.
#[derive(Debug)]
pub struct Known {
    pub policy: Policy,
    pub facts: HostFacts,
}

pub fn prepare(order: Order, learns: bool) -> Result<Prepared, PrepareError> {
    prepare_changed(order, learns, &|_| (), &mut |_, _| ())
}

/// For a session that starts: caches that it needs and that are missing on the host are made, and looked at again; what it may write
/// is remembered.
pub fn prepare_start(order: Order, learns: bool) -> Result<Prepared, PrepareError> {
    let mut prepared = prepare(order.clone(), learns)?;
    if caches::make_missing(&prepared.known.policy, &prepared.known.facts) {
        prepared = prepare(order, learns)?;
    }
    let given = prepared.plan.decisions.iter().filter(|decision| decision.access == Access::Write);
    let given = given.map(|decision| decision.path.as_path());
    written::remember(&prepared.around.state, given.chain(prepared.known.facts.own_trees()));
    Ok(prepared)
}

/// `prepare` with what the files say, and the policy in force, as the caller changes them: `sandbox verify` tries what a session
/// would be with another policy.
pub fn prepare_changed(
    order: Order,
    learns: bool,
    sources: &dyn Fn(&mut Sources),
    change: &mut dyn FnMut(&mut Policy, &Surroundings),
) -> Result<Prepared, PrepareError> {
    let Order { environment, flags, chosen, exec, can_ask, .. } = order;
    let mut timing = Vec::new();
    let mut before = now();
    let mut done = |step: &str| {
        let after = now();
        timing.push(TimingLine { step: step.to_owned(), nanoseconds: after - before });
        before = after;
    };
    let around = Surroundings::chosen(&environment, &chosen)?;
    let mut read = Sources::read(&around, &environment)?;
    let named = read.add_chosen(&chosen, &around, &environment)?;
    sources(&mut read);
    let mut policy = resolved(&read, &flags, &around, &environment, Some(Circumstances { can_ask }))?;
    change(&mut policy, &around);
    done("policy");
    let argv = exec.map(|exec| exec.argv).unwrap_or_default();
    let request = Request { argv, environment, learns };
    let facts = survey(&policy, &around, &request);
    done("survey");
    let plan = plan(&policy, &facts, &request)?;
    let is_writable =
        |path: &&PathBuf| decide(&plan.decisions, path).is_some_and(|decision| decision.access == Access::Write);
    if let Some(path) = named.iter().find(is_writable) {
        return Err(PolicyFilesError::Writable { path: path.clone() }.into());
    }
    done("plan");
    let command = &plan.command;
    let starting = Starting { argv: &command.argv, cwd: &command.cwd, search: command.search(), views: &[] };
    let subject = Subject::of(&starting).map(Rc::new);
    quarantine::check(&around.state, subject.as_deref())?;
    done("quarantine");
    Ok(Prepared { around, known: Rc::new(Known { policy, facts }), plan, subject, timing })
}

/// The policy for these flags in these surroundings; without circumstances, what is written.
pub fn policy_in_force(
    flags: &[Given],
    chosen: &Chosen,
    around: &Surroundings,
    environment: &[(String, String)],
    circumstances: Option<Circumstances>,
) -> Result<Policy, PrepareError> {
    let mut sources = Sources::read(around, environment)?;
    sources.add_chosen(chosen, around, environment)?;
    resolved(&sources, flags, around, environment, circumstances)
}

fn resolved(
    sources: &Sources,
    flags: &[Given],
    around: &Surroundings,
    environment: &[(String, String)],
    circumstances: Option<Circumstances>,
) -> Result<Policy, PrepareError> {
    let flags = settings(flags, &around.cwd)?;
    let places = around.places();
    let given = Inputs { environment, flags: &flags, places: Some(&places), circumstances, ..Inputs::default() };
    Ok(sources.resolve_with(given)?)
}
