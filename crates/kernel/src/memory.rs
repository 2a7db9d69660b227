//! The command's memory: dlmalloc behind a flag. Owns nothing but the lock: a launch allocates thousands of times in one
//! thread, and a mutex of the C library costs as much as the allocation (docs/decisions/0009). Used by `cli` alone.

pub use crate::raw::memory::Allocator;
