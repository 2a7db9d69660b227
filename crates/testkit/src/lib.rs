//! What tests of a running sandbox need: a place with a home and a project, a launch in a process of its own, edits that
//! switch a control of a plan off, and a check that nothing was left behind. Owns no expectation about the product.
//! Used by `tests/escape` and by tests of other crates; never shipped.
#![forbid(unsafe_code)]

mod helper;
mod launch;
pub mod leaks;
pub mod memory;
pub mod person;
mod place;
mod programs;
pub mod relay;
pub mod world;

pub use cofferdam_verify::edit;
pub use helper::{Helper, Launched, run_helper, start_helper};
pub use launch::{Report, Session, Used, policy_with};
pub use person::Person;
pub use place::{Place, Scene};
pub use programs::{program, sibling};
pub use world::World;
