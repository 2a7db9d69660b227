//! What comes before a launch: policy, survey and plan of one order. Owns their sequence and what each of them took; starts
//! nothing. Called by `run`, `learn`, `explain` and `supervise`.

use std::rc::Rc;

use cofferdam_host::policy_files::{self, PolicyFilesError};
use cofferdam_host::{Surroundings, SurveyError, survey};
use cofferdam_kernel::timing::now;
use cofferdam_plan::{LaunchPlan, PlanError, Request, plan};
use cofferdam_policy::Circumstances;
use cofferdam_supervisor::{Known, TimingLine};
use cofferdam_wire::exec::ExecRequest;
use cofferdam_wire::order::{Lifetime, ORDER_VERSION, Order};
use rustix::stdio::{stderr, stdin};
use rustix::termios::isatty;
use thiserror::Error;

use crate::args::flag::FlagError;
use crate::args::policy_flags::PolicyArgs;
use crate::environment::environment;

/// Why there is no plan.
#[derive(Debug, Error)]
pub(crate) enum PrepareError {
    #[error(transparent)]
    Survey(#[from] SurveyError),
    #[error(transparent)]
    Flag(#[from] FlagError),
    #[error(transparent)]
    Files(#[from] PolicyFilesError),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Policy, surroundings and plan of one order.
pub(crate) struct Prepared {
    pub(crate) around: Surroundings,
    pub(crate) known: Rc<Known>,
    pub(crate) plan: LaunchPlan,
    /// What came before the launch, for `--timing`.
    pub(crate) timing: Vec<TimingLine>,
}

/// What was typed here, for this process itself.
pub(crate) fn typed(policy: &PolicyArgs, argv: &[String]) -> Order {
    Order {
        version: ORDER_VERSION,
        cwd: None,
        environment: environment(),
        flags: policy.given(),
        exec: Some(ExecRequest { argv: argv.to_vec(), ..ExecRequest::default() }),
        lifetime: Lifetime::WithFirstExec { linger_seconds: 0 },
        can_ask: has_terminal(),
        kept_bytes: 0,
    }
}

pub(crate) fn prepare(order: Order) -> Result<Prepared, PrepareError> {
    prepare_to(order, false)
}

pub(crate) fn prepare_to(order: Order, learns: bool) -> Result<Prepared, PrepareError> {
    let Order { environment, flags, exec, can_ask, .. } = order;
    let mut timing = Vec::new();
    let mut before = now();
    let mut done = |step: &str| {
        let after = now();
        timing.push(TimingLine { step: step.to_owned(), nanoseconds: after - before });
        before = after;
    };
    let around = Surroundings::look(&environment)?;
    let circumstances = Circumstances { can_ask };
    let policy =
        policy_files::load(&PolicyArgs::of(flags)?.settings(&around.cwd)?, &around, &environment, Some(circumstances))?;
    done("policy");
    let argv = exec.map(|exec| exec.argv).unwrap_or_default();
    let request = Request { argv, environment, learns };
    let facts = survey(&policy, &around, &request);
    done("survey");
    let plan = plan(&policy, &facts, &request)?;
    done("plan");
    Ok(Prepared { around, known: Rc::new(Known { policy, facts }), plan, timing })
}

/// Whether questions can be asked: they are shown on stderr and answered on stdin.
pub(crate) fn has_terminal() -> bool {
    isatty(stdin()) && isatty(stderr())
}
