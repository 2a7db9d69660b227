//! What the kernel says of this process once every step is done, compared with the plan: a step that returned without an error
//! and did nothing ends the launch. Owns the questions and the comparison; asks by calls alone, because opening a file may wait
//! for the supervisor by now. Called by `apply`, last, and before the filter stands for namespaces, mounts and Landlock's scopes;
//! which programs Landlock lets run can only be tried by running one.

pub(crate) mod mounts;

use std::os::fd::{AsFd as _, OwnedFd};

use cofferdam_kernel::landlock::ScopeProbe;
use cofferdam_kernel::privilege::{self, Privilege};
use cofferdam_plan::{LandlockStep, LaunchPlan, Namespaces, Step};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use crate::report::{About as _, JOINED, StepError};

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Measured {
    privilege: Privilege,
    /// Whether a mount attribute of the root is missing; none where the root is not asked.
    is_root_open: Option<bool>,
}

/// Refuses a process that is not what its steps say.
pub(crate) fn check(plan: &LaunchPlan) -> Result<(), StepError> {
    let privilege = privilege::measure().about(|| "the posture".to_owned())?;
    // Asked about its file system, a root that the supervisor serves would wait for it.
    let is_asked = plan.gate.is_none() && plan.steps.iter().any(|step| matches!(step, Step::CloneRoot { .. }));
    let is_root_open = is_asked.then(is_root_open).transpose().about(|| "the root".to_owned())?;
    match difference(&plan.steps, Measured { privilege, is_root_open }) {
        None => Ok(()),
        Some(what) => Err(differs(what)),
    }
}

fn differs(what: &str) -> StepError {
    StepError::new(format!("the posture that was measured is not the planned one: {what}"), Errno::PERM)
}

fn is_root_open() -> Result<bool, Errno> {
    let wanted = StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
    Ok(!rustix::fs::statvfs("/")?.f_flag.contains(wanted))
}

/// What is weaker than the steps promise.
fn difference(steps: &[Step], measured: Measured) -> Option<&'static str> {
    let Privilege { has_capabilities, has_bounding, is_locked, no_new_privileges, is_filtered } = measured.privilege;
    let drops = steps.contains(&Step::DropCapabilities);
    let found = [
        (drops && has_capabilities, "capabilities are left"),
        (drops && has_bounding, "the bounding set is not empty"),
        (drops && !is_locked, "securebits are not locked"),
        (steps.contains(&Step::NoNewPrivileges) && !no_new_privileges, "no_new_privs is not set"),
        (steps.contains(&Step::Seccomp) && !is_filtered, "there is no system call filter"),
        (measured.is_root_open == Some(true), "the root is not read-only, nosuid and nodev"),
    ];
    found.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
}

/// From before the rules.
pub(crate) fn scope_probe(step: &LandlockStep) -> Result<Option<ScopeProbe>, StepError> {
    step.scopes.then(ScopeProbe::new).transpose().about(|| "a socket to try Landlock with".to_owned())
}

/// Refuses a process that reaches what lies outside its scopes.
pub(crate) fn check_scopes(probe: Option<&ScopeProbe>) -> Result<(), StepError> {
    let is_held = probe.map_or(Ok(true), ScopeProbe::is_out_of_reach);
    if is_held.about(|| "a socket to try Landlock with".to_owned())? {
        return Ok(());
    }
    Err(differs("Landlock's scopes do not hold"))
}

/// Compares own namespaces, in the order of `JOINED`, with those of the supervisor.
pub(crate) fn check_namespaces(plan: &LaunchPlan, own: &[OwnedFd], outside: &[u64]) -> Result<(), StepError> {
    let Namespaces { user, pid, mount, ipc, net, uts, cgroup } = plan.namespaces;
    let cgroup = cgroup || plan.steps.contains(&Step::OwnCgroupView);
    let planned = [user, pid, mount, ipc, uts, net, cgroup];
    for (((kind, planned), own), outside) in JOINED.iter().zip(planned).zip(own).zip(outside) {
        let inode = rustix::fs::fstat(own.as_fd()).about(|| "a namespace".to_owned())?.st_ino;
        if planned && inode == *outside {
            return Err(differs(&format!("the {} namespace is the host's", kind.name())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &[Step] = &[Step::PivotRoot, Step::DropCapabilities, Step::NoNewPrivileges, Step::Seccomp];
    const CLOSED: Privilege = Privilege {
        has_capabilities: false,
        has_bounding: false,
        is_locked: true,
        no_new_privileges: true,
        is_filtered: true,
    };

    #[test]
    fn every_wall_that_is_planned_and_not_measured_is_a_difference() {
        let closed = Measured { privilege: CLOSED, is_root_open: Some(false) };
        assert_eq!(difference(STEPS, closed), None);
        let weaker = [
            Measured { privilege: Privilege { has_capabilities: true, ..CLOSED }, ..closed },
            Measured { privilege: Privilege { has_bounding: true, ..CLOSED }, ..closed },
            Measured { privilege: Privilege { is_locked: false, ..CLOSED }, ..closed },
            Measured { privilege: Privilege { no_new_privileges: false, ..CLOSED }, ..closed },
            Measured { privilege: Privilege { is_filtered: false, ..CLOSED }, ..closed },
            Measured { is_root_open: Some(true), ..closed },
        ];
        let mut told: Vec<&str> = weaker.into_iter().filter_map(|one| difference(STEPS, one)).collect();
        assert_eq!(told.len(), weaker.len());
        told.dedup();
        assert_eq!(told.len(), weaker.len(), "each by its own words: {told:?}");
        // What no step promises is not asked for.
        assert_eq!(difference(&[], Measured { is_root_open: None, ..weaker[0] }), None);
    }

    /// In threads: the rules are a thread's.
    #[test]
    fn scopes_that_are_planned_and_do_not_hold_are_a_difference() {
        if cofferdam_kernel::landlock::abi() < 6 {
            println!("skipped: this kernel has no scopes");
            return;
        }
        let step = LandlockStep { scopes: true, ..LandlockStep::default() };
        let tried = |is_restricted: bool| {
            let probe = scope_probe(&step).expect("sockets");
            let tried = move || {
                if is_restricted {
                    privilege::no_new_privileges().expect("any process may");
                    cofferdam_kernel::landlock::restrict(true, &[]).expect("the kernel has it");
                }
                check_scopes(probe.as_ref()).map_err(|error| error.text)
            };
            std::thread::spawn(tried).join().expect("it ends")
        };
        assert_eq!(tried(true), Ok(()));
        assert!(tried(false).is_err_and(|text| text.contains("Landlock's scopes do not hold")));
        assert!(check_scopes(None).is_ok(), "none are planned");
    }

    /// A process without walls, measured by the kernel.
    #[test]
    fn a_process_without_walls_does_not_pass_for_one_with_them() {
        let measured = Measured { privilege: privilege::measure().expect("calls"), is_root_open: Some(false) };
        assert!(difference(STEPS, measured).is_some(), "{measured:?}");
        let open = is_root_open().expect("there is a root");
        assert!(open, "the root of a test is writable");
    }
}
