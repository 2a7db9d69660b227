//! A page that processes share, and the allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dlmalloc::Dlmalloc;

use super::{Result, last_errno};

/// One page shared with children, zeroed.
pub(crate) fn shared_page() -> Result<&'static [AtomicU64]> {
    const SIZE: usize = 4096;
    // SAFETY: an anonymous shared mapping has no preconditions.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(last_errno());
    }
    // SAFETY: the mapping is page-aligned, zeroed, never unmapped, and accessed as atomics by every process that shares it.
    Ok(unsafe { std::slice::from_raw_parts(page.cast(), SIZE / size_of::<u64>()) })
}

/// See `memory`.
pub struct Allocator {
    busy: AtomicBool,
    heap: UnsafeCell<Dlmalloc>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Allocator")
    }
}

// SAFETY: the heap is reached through `with` only, by one thread at a time.
unsafe impl Sync for Allocator {}

impl Default for Allocator {
    fn default() -> Self {
        Allocator::new()
    }
}

impl Allocator {
    pub const fn new() -> Self {
        Allocator { busy: AtomicBool::new(false), heap: UnsafeCell::new(Dlmalloc::new()) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        while self.busy.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: the thread that sets `busy` is alone until it is cleared, and `act` is one call of dlmalloc, which neither
        // allocates by way of this type nor panics.
        let done = act(unsafe { &mut *self.heap.get() });
        self.busy.store(false, Ordering::Release);
        done
    }
}

// SAFETY: every call is dlmalloc's of the same meaning, with the layout that the caller vouches for.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller got `memory` from here with this layout.
        self.with(|heap| unsafe { heap.free(memory, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller got `memory` from here with this layout.
        self.with(|heap| unsafe { heap.realloc(memory, layout.size(), layout.align(), size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also for Miri, which sees a race that the machine does not show.
    #[test]
    fn threads_share_a_heap_and_keep_their_blocks_apart() {
        static HEAP: Allocator = Allocator::new();
        let work = |mark: u8| {
            for size in [1, 24, 700, 5000] {
                let (small, large) = (Layout::from_size_align(size, 8), Layout::from_size_align(2 * size, 8));
                let (small, large) = (small.expect("a layout"), large.expect("a layout"));
                // SAFETY: each block is used within its layout, and returned once with the layout that it has by then.
                unsafe {
                    let (block, other) = (HEAP.alloc(small), HEAP.alloc_zeroed(large));
                    assert!(!block.is_null() && !other.is_null());
                    block.write_bytes(mark, size);
                    let block = HEAP.realloc(block, small, 2 * size);
                    assert!(std::slice::from_raw_parts(block, size).iter().all(|byte| *byte == mark));
                    assert!(std::slice::from_raw_parts(other, 2 * size).iter().all(|byte| *byte == 0));
                    HEAP.dealloc(block, large);
                    HEAP.dealloc(other, large);
                }
            }
        };
        std::thread::scope(|scope| {
            for mark in 1..4 {
                scope.spawn(move || work(mark));
            }
        });
    }
}
