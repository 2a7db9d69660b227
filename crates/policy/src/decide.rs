//! What a resolved policy says about one path or one variable. Owns precedence between rules (decisions 0004 and 0031);
//! looks at no file system and changes no policy. Called by `plan`, `gate`, the survey, `resolve` and `report`.

mod environment;
pub(crate) mod files;
pub mod index;

pub use files::{asked_for_by, closes_project, gives_the_home};
