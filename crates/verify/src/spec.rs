//! What a check is. Owns the types: what the probe tries, how it is seen whether it got there, and what its negative control leaves
//! away. Filled in by `checks`, run by `launching` and `trial`, judged by `judge`.

use cofferdam_plan::LaunchPlan;
use cofferdam_wire::End;

use crate::canaries::Canaries;
use crate::errand::{Errand, Launched};

/// The negative control: what is other than in the session that is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Away {
    /// The probe runs without any sandbox.
    All,
    /// The session's plan is changed.
    Edited { what: &'static str, edit: fn(&mut LaunchPlan, &Errand) },
    /// The same, as root of a user namespace around the sandbox where this user is not root: capabilities that the set-up keeps
    /// would end when another user executes the probe.
    EditedAsRoot { what: &'static str, edit: fn(&mut LaunchPlan, &Errand) },
    /// The flags of the check are not given.
    Flags,
    /// The organisation's policy says this, too, and no wall is asked for.
    Approved { what: &'static str, org: &'static str },
    /// Another probe, of what it may reach.
    Probe { what: &'static str, name: &'static str },
    /// The session is the same; what it left is changed afterwards.
    Tampered { what: &'static str, tamper: fn(&Errand) -> std::io::Result<()> },
}

impl Away {
    /// What the report says of it.
    pub(crate) fn words(self, wall: &str) -> String {
        match self {
            Away::All => format!("the same probe without any sandbox (wall: {wall})"),
            Away::Edited { what, .. } | Away::EditedAsRoot { what, .. } => format!("the same probe without {what}"),
            Away::Flags => format!("the same probe without the wall: {wall}"),
            Away::Approved { what, .. } | Away::Probe { what, .. } | Away::Tampered { what, .. } => what.to_owned(),
        }
    }
}

/// How it is seen whether the probe got there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seen {
    ByProbe,
    /// On the host, once the session has ended: what the probe says of it is only evidence.
    OnHost(fn(&Errand, &mut Canaries) -> Option<String>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// That of the attack corpus, where it has one.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) group: &'static str,
    pub(crate) required: bool,
    /// What keeps the probe from it.
    pub(crate) wall: &'static str,
    pub(crate) probe: &'static str,
    /// Flags of `sandbox run` that the session gets besides the policy.
    pub(crate) flags: &'static [(&'static str, &'static str)],
    pub(crate) seen: Seen,
    /// Ends of the session that mean that the wall held.
    pub(crate) ends: &'static [End],
    /// Calls that the supervisor must have been told about: else the kernel refused them, for reasons of its own.
    pub(crate) reported: &'static [&'static str],
    /// Words of a refusal to start that mean that the wall held.
    pub(crate) refusal: Option<&'static str>,
    /// Why this policy cannot be asked about it.
    pub(crate) unasked: fn(&Launched) -> Option<String>,
    pub(crate) away: Away,
}

pub(crate) const SPEC: Spec = Spec {
    id: "",
    title: "",
    group: "",
    required: true,
    wall: "",
    probe: "",
    flags: &[],
    seen: Seen::ByProbe,
    ends: &[],
    reported: &[],
    refusal: None,
    unasked: |_| None,
    away: Away::All,
};
