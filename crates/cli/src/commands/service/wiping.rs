//! Memory that is wiped before it is given back, for processes that hold updates and texts of people.
//!
//! The types of the service wipe what they hold. Buffers of the libraries in between do not: those of HTTP, of TLS and of messages hold
//! updates, tokens and subjects too. This allocator wipes every block when it is freed, so a core file of the process shows no trace
//! of a request that is over.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// The allocator of the program. It wipes nothing before [`start`].
struct Wiping;

#[global_allocator]
static ALLOCATOR: Wiping = Wiping;

static ON: AtomicBool = AtomicBool::new(false);

/// Wipes every block of memory that is freed from now on.
pub(crate) fn start() {
    ON.store(true, Ordering::Release);
}

/// Gives memory back to the system once it is free, for processes that run for months and hold many updates one after the other.
///
/// The C library keeps freed memory in three ways, and each grows with the time that a server runs:
/// - It raises its limit for mapped blocks to the size of the largest one that was freed. Updates of some megabytes would then stay in the
///   heap, with gaps between them. The limit stays at [`LARGE`] here.
/// - It gives up to eight heaps to each core, and a thread frees what another needs. There is one heap per core here.
/// - It returns the end of a heap only. A thread returns free pages in its middle every [`TRIM_EVERY`].
pub(crate) fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: the calls change numbers of the allocator under its lock. They return 0 for a number that the allocator does not know.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(
                libc::M_ARENA_MAX,
                libc::c_int::try_from(cores).unwrap_or(libc::c_int::MAX),
            );
        }
        let trimming = std::thread::Builder::new().name("undertone-memory".to_owned());
        let started = trimming.spawn(|| {
            loop {
                std::thread::sleep(TRIM_EVERY);
                // SAFETY: the call moves nothing that is in use, and takes the locks of the heaps.
                unsafe { libc::malloc_trim(0) };
            }
        });
        // Without the thread the process keeps more memory than it needs, and works as well.
        drop(started);
    }
}

/// Blocks of this many bytes and more are mapped one by one: 1 MiB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 1 << 20;

/// Time between two returns of free pages.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Writes zeros, which the compiler keeps although nobody reads them.
///
/// # Safety
/// The block must be valid for writes of `length` bytes.
unsafe fn wipe(block: *mut u8, length: usize) {
    // SAFETY: the caller promises that the block is valid for writes.
    unsafe { block.write_bytes(0, length) };
    black_box(block);
}

// SAFETY: every block comes from the allocator of the system with the layout of the caller, and goes back to it with the same layout.
unsafe impl GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_on() {
            // SAFETY: the block is the caller's, with the size of its layout, until it is freed below.
            unsafe { wipe(block, layout.size()) };
        }
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_on() {
            // SAFETY: the caller keeps the contract of `realloc`.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        // The system may move a block, and would leave the old one as it is.
        // SAFETY: the caller promises a size that is not 0 and does not overflow with this alignment.
        let moved = unsafe { System.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both blocks are valid for the smaller size, and a fresh block overlaps with no other.
            unsafe { moved.copy_from_nonoverlapping(block, layout.size().min(new_size)) };
            // SAFETY: the old block is the caller's and is not used after this call.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_content_when_they_grow_and_shrink() {
        start();
        let mut bytes: Vec<u8> = Vec::new();
        for number in 0..100_000_u32 {
            bytes.push((number % 251) as u8);
        }
        bytes.truncate(7_000);
        bytes.shrink_to_fit();
        let right = |(place, byte): (usize, &u8)| usize::from(*byte) == place % 251;
        assert!(bytes.len() == 7_000 && bytes.iter().enumerate().all(right));
    }

    #[test]
    fn a_freed_block_is_wiped() {
        start();
        let layout = Layout::from_size_align(4096, 16).unwrap();
        // SAFETY: the layout has a size, and the block is used within it.
        unsafe {
            let block = ALLOCATOR.alloc(layout);
            assert!(!block.is_null());
            block.write_bytes(0xa5, 4096);
            wipe(block, 4096);
            assert!((0..4096).all(|place| block.add(place).read() == 0));
            System.dealloc(block, layout);
        }
    }
}
