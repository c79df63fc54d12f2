//! An allocator that counts. In a worker it refuses requests beyond a limit: an input that asks for too much ends the worker, not
//! the machine. The program that makes the inputs has no limit, since some of them are large before they are compressed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use undertone_hostile::hunt::MEMORY;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system's allocator with counts.
pub(crate) struct Counting;

impl Counting {
    fn take(bytes: usize) -> bool {
        let taken = TAKEN.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if taken > LIMIT.load(Ordering::Relaxed) {
            TAKEN.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        MOST.fetch_max(taken, Ordering::Relaxed);
        true
    }
}

// SAFETY: every request is passed on to the system's allocator as it came, or answered with null, which is an allocator's way to
// refuse; the counts are atomic and touch no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises about the layout are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !Self::take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from the system's allocator with this layout, as every pointer of this one.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !Self::take(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as in `dealloc`; the new size is the caller's.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        TAKEN.fetch_sub(
            if moved.is_null() { size } else { layout.size() },
            Ordering::Relaxed,
        );
        moved
    }
}

/// Refuses requests beyond [`MEMORY`] from now on.
pub(crate) fn limit() {
    LIMIT.store(MEMORY, Ordering::Relaxed);
}

/// Starts a new count of the most; what is taken now.
pub(crate) fn start() -> usize {
    let taken = TAKEN.load(Ordering::Relaxed);
    MOST.store(taken, Ordering::Relaxed);
    taken
}

/// The most since the start of the count.
pub(crate) fn most() -> usize {
    MOST.load(Ordering::Relaxed)
}
