//! Where each moment of a launch is noted in the shared page of `sandbox run --timing`. Owns the order; the supervisor notes
//! its own and reads all of them.

pub const START: usize = 0;
pub const HOLDS: usize = 1;
pub const CLONED: usize = 2;
pub const ENDED: usize = 3;
pub const CHILD: usize = 4;
pub const EXECUTE: usize = 5;
pub const REAPED: usize = 6;
pub const LOOKED: usize = 7;
/// The first step of the plan; the others follow in their order.
pub const FIRST_STEP: usize = 8;
