//! What the child of a launch has from its parent: the plan, and the ends of what leads outside until the command runs.

use std::os::fd::OwnedFd;
use std::path::Path;

use cofferdam_kernel::shared::SharedEnd;
use cofferdam_kernel::timing::Marks;
use cofferdam_plan::LaunchPlan;

use crate::report::JOINED;
use crate::streams::{Kinds, Writers};
use crate::terminal::Outer;

/// What the child gets from its parent.
#[derive(Debug)]
pub struct Inheritance<'a> {
    pub plan: &'a LaunchPlan,
    /// Without one it stays as pid 1 until it is killed; commands join later.
    pub has_command: bool,
    pub parent: OwnedFd,
    /// Reports stops of the command; only terminal sessions have one.
    pub stops: Option<OwnedFd>,
    /// What takes the place of the user's streams, where output is limited or carried.
    pub writers: Writers,
    pub kinds: Kinds,
    /// Where the command's exit code is left once no other process is inside.
    pub told: SharedEnd,
    pub outer: Option<Outer>,
    pub overlay_dir: Option<&'a Path>,
    /// Numbers of descriptors that the command gets beside its streams.
    pub descriptors: &'a [i32],
    /// Who gets the sockets that hear connections to the outside.
    pub catcher: Option<OwnedFd>,
    /// The supervisor's namespaces by their numbers, in the order of `JOINED`: where one of its own is planned, it is another.
    pub outside: [u64; JOINED.len()],
    pub marks: Marks,
}
