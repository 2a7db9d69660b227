//! The audit log: an append-only chain of records with signed checkpoints. Owns the format, writing and verification.
//! Called by `launcher` (writes) and `cli` (reads).
#![forbid(unsafe_code)]
