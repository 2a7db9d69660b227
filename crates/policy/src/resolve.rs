//! From everything that was said to one policy: order of layers, merge, unapproved project policies, ceilings. Owns which
//! setting counts; notation is `format`'s, and what a policy means for a path is `decide`'s. Called by the edge, once per run.

mod ceilings;
pub mod layers;
mod merge;
mod tighten;
