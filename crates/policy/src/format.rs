//! From texts to settings and back: policy files, shipped lists, flags and variables, and files to be written. Owns the formats
//! and their error positions; reads no file and does not decide which setting counts (`resolve`). Called by `resolve`,
//! `report`, the build script and the edge.

pub(crate) mod by_hand;
pub(crate) mod draft;
pub(crate) mod file;
mod network;
mod not_built;
mod requirements;
mod spanned;
pub(crate) mod tables;
mod values;
