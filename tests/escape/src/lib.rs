//! The attack corpus (docs/attack-corpus.md) as checks: each row runs once with the walls standing, where it must be
//! contained, and once with its control switched off, where the same check must fail. Owns rows and their verdicts; the
//! mechanics of launching are `testkit`'s. Run by `cargo xtask escape` and, one test per row, by nextest.

pub mod cover_storm;
mod launching;
mod limits;
pub mod neighbour;
pub mod probe;
pub mod raw;
mod row;
mod rows;
pub mod storm;
mod table;
mod talk;
mod words;

pub use launching::launch;
pub use row::{Finding, Row, Trial, Verdict, Walls, judge};
pub use table::{ROWS, find};
