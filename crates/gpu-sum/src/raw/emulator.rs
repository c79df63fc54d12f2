//! The kernels on the processor: every thread of a grid, one block after another.

use std::ffi::c_void;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{GpuError, Result, ensure};
use crate::machine::{Machine, Span, Word};

/// One thread of a grid, as `kernels/bound.c` reads it.
#[repr(C)]
struct Place {
    block: u64,
    blocks: u64,
    slot: u32,
    thread: u32,
    threads: u32,
    unused: u32,
    shared: *mut u64,
    barrier: *const c_void,
    wait: unsafe extern "C" fn(*const c_void),
    atomic_add: unsafe extern "C" fn(*mut u64, u64),
    atomic_max: unsafe extern "C" fn(*mut u32, u32),
}

unsafe extern "C" {
    fn undertone_largest(place: *const Place, values: *const u32, span: Span, found: *mut u32);
    fn undertone_squares(
        place: *const Place,
        values: *const u32,
        span: Span,
        found: *const u32,
        limbs: *mut u64,
    );
    fn undertone_add_bounded(
        place: *const Place,
        values: *const u32,
        span: Span,
        factors: *const u32,
        sum: *mut u64,
    );
}

unsafe extern "C" fn wait(barrier: *const c_void) {
    // SAFETY: `run_block` puts the address of a barrier here, which outlives the threads of the block.
    unsafe { &*barrier.cast::<Barrier>() }.wait();
}

unsafe extern "C" fn atomic_add(at: *mut u64, value: u64) {
    // SAFETY: the kernels hand over aligned words of live memory, and during a launch reach these only by this function.
    unsafe { AtomicU64::from_ptr(at) }.fetch_add(value, Ordering::Relaxed);
}

unsafe extern "C" fn atomic_max(at: *mut u32, value: u32) {
    // SAFETY: the kernels hand over aligned words of live memory, and during a launch reach these only by this function.
    unsafe { AtomicU32::from_ptr(at) }.fetch_max(value, Ordering::Relaxed);
}

/// The most threads of a block, as on the GPU.
const MAX_THREADS: u32 = 256;

/// A machine that runs the kernels on the processor. Any grid and any order of its blocks give the same integers.
///
/// # Example
/// ```
/// use undertone_gpu_sum::{Emulator, self_test};
/// self_test(&Emulator::default())?;
/// self_test(&Emulator::new(5, 8, 3)?)?;
/// # Ok::<(), undertone_gpu_sum::GpuError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Emulator {
    blocks: u32,
    threads: u32,
    stride: u32,
}

impl Default for Emulator {
    /// Three blocks of one thread each.
    fn default() -> Self {
        Self {
            blocks: 3,
            threads: 1,
            stride: 1,
        }
    }
}

impl Emulator {
    /// A grid of so many blocks per slot, each with so many threads. Block `stride * i mod blocks` runs as number `i`.
    ///
    /// # Errors
    /// No blocks; a number of threads that is not a power of two up to 256; a stride that has a divisor in common with the blocks.
    pub fn new(blocks: u32, threads: u32, stride: u32) -> Result<Self> {
        ensure(blocks > 0, "blocks", || "at least 1".to_owned(), blocks as usize)?;
        let holds = threads.is_power_of_two() && threads <= MAX_THREADS;
        let expected = || format!("a power of two, at most {MAX_THREADS}");
        ensure(holds, "threads", expected, threads as usize)?;
        let holds = gcd(blocks, stride) == 1;
        let expected = || format!("without a common divisor with the {blocks} blocks");
        ensure(holds, "stride", expected, stride as usize)?;
        Ok(Self {
            blocks,
            threads,
            stride,
        })
    }

    /// `true` if a kernel that does the work of all threads of a block shall take them backwards: where the stride is not one.
    #[must_use]
    pub fn runs_backwards(&self) -> bool {
        self.stride != 1
    }

    /// The number of each thread of a grid in the order in which they run, and beside it the number of all.
    ///
    /// A kernel without barriers may run on this thread after thread.
    pub fn threads(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (blocks, threads, stride) = (
            u64::from(self.blocks),
            u64::from(self.threads),
            u64::from(self.stride),
        );
        (0..blocks).flat_map(move |i| {
            let block = i * stride % blocks;
            (0..threads).map(move |thread| (block * threads + thread, blocks * threads))
        })
    }

    /// Runs each thread of a grid over so many slots.
    fn launch(&self, slots: u32, kernel: impl Fn(*const Place) + Sync) {
        for slot in 0..slots {
            for i in 0..u64::from(self.blocks) {
                let block = i * u64::from(self.stride) % u64::from(self.blocks);
                self.run_block(slot, block, &kernel);
            }
        }
    }

    fn run_block(&self, slot: u32, block: u64, kernel: &(impl Fn(*const Place) + Sync)) {
        // Poisoned, as the memory of a new block may be.
        let mut shared = vec![0xa5a5_a5a5_a5a5_a5a5u64; 4 * self.threads as usize];
        let barrier = Barrier::new(self.threads as usize);
        let of_block = Shared(shared.as_mut_ptr());
        let run = |thread: u32| {
            let of_block = &of_block;
            let place = Place {
                block,
                blocks: u64::from(self.blocks),
                slot,
                thread,
                threads: self.threads,
                unused: 0,
                shared: of_block.0,
                barrier: (&raw const barrier).cast(),
                wait,
                atomic_add,
                atomic_max,
            };
            kernel(&raw const place);
        };
        if self.threads == 1 {
            return run(0);
        }
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let run = &run;
                scope.spawn(move || run(thread));
            }
        });
    }
}

/// A pointer that the threads of a block share.
struct Shared<T>(*mut T);

// SAFETY: the kernels separate accesses of several threads to one word by a barrier or an atomic operation, and the words outlive
// the threads, which are scoped.
unsafe impl<T> Sync for Shared<T> {}

/// A pointer that all threads of a grid read.
struct Read<T>(*const T);

// SAFETY: the words behind it are borrowed for the time of a launch, so nothing writes them.
unsafe impl<T> Sync for Read<T> {}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Refuses memory of the host that is smaller than a kernel needs.
fn holds<T>(what: &'static str, memory: &[T], needed: usize) -> Result<()> {
    let expected = || format!("at least {needed} words");
    ensure(memory.len() >= needed, what, expected, memory.len())
}

/// The part of the memory that a copy of the host touches.
fn part(what: &'static str, len: usize, at: usize, words: usize) -> Result<std::ops::Range<usize>> {
    let end = at.saturating_add(words);
    ensure(end <= len, what, || format!("an end within {len} words"), end)?;
    Ok(at..end)
}

impl Machine for Emulator {
    type Memory<T: Word> = Vec<T>;

    fn zeros<T: Word>(&self, len: usize) -> Result<Vec<T>> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(len).map_err(|error| GpuError::Driver {
            action: "taking memory for the emulator",
            reason: error.to_string(),
        })?;
        memory.resize(len, T::zeroed());
        Ok(memory)
    }

    fn clear<T: Word>(&self, memory: &mut Vec<T>) -> Result<()> {
        memory.fill(T::zeroed());
        Ok(())
    }

    fn write<T: Word>(&self, memory: &mut Vec<T>, at: usize, words: &[T]) -> Result<()> {
        let part = part("a copy to the GPU", memory.len(), at, words.len())?;
        memory[part].copy_from_slice(words);
        Ok(())
    }

    fn read<T: Word>(&self, memory: &Vec<T>, at: usize, into: &mut [T]) -> Result<()> {
        let part = part("a copy from the GPU", memory.len(), at, into.len())?;
        into.copy_from_slice(&memory[part]);
        Ok(())
    }

    fn largest(&self, span: Span, values: &Vec<u32>, found: &mut Vec<u32>) -> Result<()> {
        let needs = span.needs_checked()?;
        holds("values", values, needs.values)?;
        holds("found", found, needs.groups)?;
        let (values, found) = (Read(values.as_ptr()), Shared(found.as_mut_ptr()));
        self.launch(span.slots, |place| {
            let (values, found) = (&values, &found);
            // SAFETY: the memory is as large as the kernel needs, which was checked above. The kernel reads `values` and reaches
            // `found` by atomic operations only; `place` is alive.
            unsafe { undertone_largest(place, values.0, span, found.0) }
        });
        Ok(())
    }

    fn squares(&self, span: Span, values: &Vec<u32>, found: &Vec<u32>, limbs: &mut Vec<u64>) -> Result<()> {
        let needs = span.needs_checked()?;
        holds("values", values, needs.values)?;
        holds("found", found, needs.groups)?;
        holds("limbs", limbs, 4 * needs.groups)?;
        let (values, found) = (Read(values.as_ptr()), Read(found.as_ptr()));
        let limbs = Shared(limbs.as_mut_ptr());
        self.launch(span.slots, |place| {
            let (values, found, limbs) = (&values, &found, &limbs);
            // SAFETY: the memory is as large as the kernel needs, which was checked above. The kernel reads `values` and `found`
            // and reaches `limbs` by atomic operations only; `place` is alive.
            unsafe { undertone_squares(place, values.0, span, found.0, limbs.0) }
        });
        Ok(())
    }

    fn add_bounded(
        &self,
        span: Span,
        values: &Vec<u32>,
        factors: &Vec<u32>,
        sum: &mut Vec<u64>,
    ) -> Result<()> {
        let needs = span.needs_checked()?;
        holds("values", values, needs.values)?;
        holds("factors", factors, 2 * needs.groups)?;
        holds("sum", sum, needs.sum)?;
        let (values, factors) = (Read(values.as_ptr()), Read(factors.as_ptr()));
        let sum = Shared(sum.as_mut_ptr());
        // This kernel loops over the slots itself.
        self.launch(1, |place| {
            let (values, factors, sum) = (&values, &factors, &sum);
            // SAFETY: the memory is as large as the kernel needs, which was checked above. The kernel reads `values` and `factors`,
            // and each place of `sum` belongs to one thread; `place` is alive.
            unsafe { undertone_add_bounded(place, values.0, span, factors.0, sum.0) }
        });
        Ok(())
    }
}
