//! A sum of vectors modulo `M` that several threads add to at once.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use super::{ModularVec, Modulus};
use crate::error::{AggregationError, Result};
use crate::pack;

/// Residues that share a lock: 128 KiB of narrow lanes, 256 KiB of wide ones. A multiple of 8, so that blocks of packed
/// residues begin at a byte.
const BLOCK: usize = 1 << 15;

/// A sum of vectors modulo `M`. Several threads may add to it at once.
///
/// Modular addition commutes, so the result depends on neither the order nor the interleaving of the additions. Each block of
/// residues has a lock, and concurrent additions start at different blocks.
///
/// # Guarantee
/// A vector is in the sum once and as a whole, or not at all: its bytes are checked before the first residue is added.
/// A sum in which an addition ended half-way is lost and never read. The sum is read once, and takes no vector afterwards. Its
/// memory is wiped when it is read, discarded or dropped.
///
/// # Example
/// ```
/// use undertone_aggregation::{ModularSum, ModularVec, Modulus, pack};
/// let modulus = Modulus::new(1000)?;
/// let sum = ModularSum::zeros(modulus, 2);
/// let packed = pack::pack(&ModularVec::from_residues(modulus, &[1u32, 999])?)?;
/// std::thread::scope(|scope| {
///     let adders = [(); 2].map(|()| scope.spawn(|| sum.add_packed(&packed)));
///     adders.into_iter().all(|adder| adder.join().is_ok_and(|added| added.is_ok()))
/// });
/// assert_eq!(sum.added(), 2);
/// assert!(sum.seal()?.iter().eq([2, 998]));
/// assert!(sum.add_packed(&packed).is_err());
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
///
/// A sum cannot be printed:
/// ```compile_fail,E0277
/// fn printable<T: std::fmt::Debug>() {}
/// printable::<undertone_aggregation::ModularSum>();
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct ModularSum {
    modulus: Modulus,
    len: usize,
    blocks: Vec<Mutex<ModularVec>>,
    /// `true` until the sum is read or discarded. An addition holds it for reading, the end of the sum for writing.
    open: RwLock<bool>,
    /// Block at which the next addition starts, modulo the number of blocks, so that concurrent additions do not queue behind one another.
    next_start: AtomicUsize,
    added: AtomicU64,
    lost: AtomicBool,
}

/// Marks a sum as lost unless the addition ends.
struct Unfinished<'a>(Option<&'a AtomicBool>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(lost) = self.0 {
            lost.store(true, Ordering::SeqCst);
        }
    }
}

impl ModularSum {
    /// An empty sum of vectors of `len` residues.
    #[must_use]
    pub fn zeros(modulus: Modulus, len: usize) -> Self {
        let block = |start: usize| Mutex::new(ModularVec::zeros(modulus, BLOCK.min(len - start)));
        Self {
            modulus,
            len,
            blocks: (0..len).step_by(BLOCK).map(block).collect(),
            open: RwLock::new(true),
            next_start: AtomicUsize::new(0),
            added: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        }
    }

    /// The modulus.
    #[must_use]
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// Number of residues of each vector.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the vectors have no residues.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of vectors in the sum.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.added.load(Ordering::SeqCst)
    }

    /// Returns `true` if the sum can no longer be read, because of [`fail`](Self::fail) or of an addition that ended half-way.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Adds a vector from its packed bytes ([`pack`]), without unpacking it as a whole.
    ///
    /// # Errors
    /// Nothing is added after [`AggregationError::Length`], [`AggregationError::Padding`] or
    /// [`AggregationError::NotAResidue`]. [`AggregationError::SumLost`] and
    /// [`AggregationError::SumClosed`] where the sum takes no more vectors.
    pub fn add_packed(&self, bytes: &[u8]) -> Result<()> {
        // Before the first addition: a bad vector changes nothing.
        pack::check(self.modulus, self.len, bytes)?;
        self.change(|first, block| pack::add_checked(bytes, first, block))
    }

    /// Adds a vector, such as the sum of a group of clients.
    ///
    /// # Errors
    /// Nothing is added after [`AggregationError::ModulusMismatch`] or [`AggregationError::Length`]. Otherwise the errors of
    /// [`add_packed`](Self::add_packed) about the sum.
    #[cfg(test)]
    pub(crate) fn add(&self, vector: &ModularVec) -> Result<()> {
        use crate::error::{check_len, check_modulus};
        check_modulus(self.modulus.get(), vector.modulus().get())?;
        check_len("vector of residues", self.len, vector.len())?;
        self.change(|first, block| {
            let part = vector.lanes().part(first, block.len());
            block.add_checked_at(0, part);
        })
    }

    /// Lets `add` change the sum block by block, given the index of the first residue in the block.
    fn change(&self, add: impl Fn(usize, &mut ModularVec)) -> Result<()> {
        let open = self.open.read().map_err(|_| AggregationError::Poisoned)?;
        if !*open {
            return Err(AggregationError::SumClosed);
        }
        if self.is_lost() {
            return Err(AggregationError::SumLost);
        }
        let mut unfinished = Unfinished(Some(&self.lost));
        let start = self.next_start.fetch_add(1, Ordering::Relaxed);
        for step in 0..self.blocks.len() {
            let place = (start % self.blocks.len() + step) % self.blocks.len();
            let mut block = self.blocks[place]
                .lock()
                .map_err(|_| AggregationError::Poisoned)?;
            add(place * BLOCK, &mut block);
        }
        self.added.fetch_add(1, Ordering::SeqCst);
        unfinished.0 = None;
        Ok(())
    }

    /// Gives the sum up: it is never read from here on. A caller uses this if a vector was added that should not be in the sum.
    pub fn fail(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Reads the sum, once, after the additions that have begun. The sum takes no vector afterwards.
    ///
    /// # Errors
    /// [`AggregationError::SumLost`] where an addition ended half-way or after [`fail`](Self::fail): the sum is wiped then.
    /// [`AggregationError::SumClosed`] if it was read or discarded before.
    pub fn seal(&self) -> Result<ModularVec> {
        let mut open = self.open.write().map_err(|_| AggregationError::Poisoned)?;
        if !*open {
            return Err(AggregationError::SumClosed);
        }
        *open = false;
        if self.is_lost() {
            self.wipe();
            return Err(AggregationError::SumLost);
        }
        let mut sum = ModularVec::zeros(self.modulus, self.len);
        for (place, block) in self.blocks.iter().enumerate() {
            let mut block = unpoisoned(block);
            sum.add_checked_at(place * BLOCK, block.lanes());
            block.wipe();
            // The block's memory is given back before the next one is copied.
            *block = ModularVec::zeros(self.modulus, 0);
        }
        Ok(sum)
    }

    /// Ends the sum without reading it: it is wiped and takes no vector afterwards.
    pub fn discard(&self) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        *open = false;
        self.wipe();
    }

    fn wipe(&self) {
        for block in &self.blocks {
            let mut block = unpoisoned(block);
            block.wipe();
            *block = ModularVec::zeros(self.modulus, 0);
        }
    }
}

/// The block, also after a panic under its lock: the sum is marked as lost then.
fn unpoisoned(block: &Mutex<ModularVec>) -> MutexGuard<'_, ModularVec> {
    block.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for ModularSum {
    fn drop(&mut self) {
        self.wipe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check_message;
    use proptest::prelude::*;

    fn modulus(value: u64) -> Modulus {
        Modulus::new(value).unwrap()
    }

    /// A vector whose residues reach every part of the range.
    fn vector(m: u64, len: usize, seed: u64) -> ModularVec {
        let residue = |place: u64| (place + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2;
        let residues: Vec<u64> = (0..len as u64).map(|place| residue(place) % m).collect();
        ModularVec::from_residues(modulus(m), &residues).unwrap()
    }

    #[test]
    fn threads_in_any_order_give_the_bits_of_one_vector_after_the_other() {
        for m in [1 << 22, 1000, (1 << 32) - 5, 1 << 40, (1 << 61) - 1, 1 << 62] {
            let len = 2 * BLOCK + 13;
            let vectors: Vec<ModularVec> = (0..12).map(|seed| vector(m, len, seed)).collect();
            let mut expected = ModularVec::zeros(modulus(m), len);
            vectors.iter().for_each(|vector| expected.add(vector).unwrap());
            let sum = ModularSum::zeros(modulus(m), len);
            std::thread::scope(|scope| {
                for part in vectors.chunks(3) {
                    let sum = &sum;
                    scope.spawn(move || {
                        for (place, vector) in part.iter().rev().enumerate() {
                            if place == 0 {
                                sum.add(vector).unwrap();
                            } else {
                                sum.add_packed(&pack::pack(vector).unwrap()).unwrap();
                            }
                        }
                    });
                }
            });
            assert_eq!(sum.added(), 12);
            assert!(sum.seal().unwrap().iter().eq(expected.iter()), "{m}");
        }
    }

    proptest! {
        #[test]
        fn packed_vectors_add_up_as_unpacked_ones(
            m in prop_oneof![2u64..70_000, 2u64..=Modulus::MAX, (1u32..=62).prop_map(|bits| 1 << bits)],
            len in prop_oneof![0usize..40, 2040usize..2060, BLOCK - 9..BLOCK + 9],
            seed in any::<u32>(),
        ) {
            let sum = ModularSum::zeros(modulus(m), len);
            let mut expected = ModularVec::zeros(modulus(m), len);
            for seed in [u64::from(seed), u64::from(seed) + 1, u64::from(seed) + 2] {
                let vector = vector(m, len, seed);
                sum.add_packed(&pack::pack(&vector).unwrap()).unwrap();
                expected.add(&vector).unwrap();
            }
            prop_assert!(sum.seal().unwrap().iter().eq(expected.iter()));
        }
    }

    #[test]
    fn a_bad_vector_changes_nothing() {
        let len = 2 * BLOCK + 5;
        for m in [1000, (1 << 40) - 5] {
            let sum = ModularSum::zeros(modulus(m), len);
            let good = vector(m, len, 1);
            sum.add_packed(&pack::pack(&good).unwrap()).unwrap();
            // The element is too large by one, in the first block, in the last and in between.
            for bad in [0, BLOCK - 1, BLOCK, 2 * BLOCK, len - 1] {
                let bits = modulus(m).bits();
                let wide = modulus(1 << bits);
                let mut residues: Vec<u64> = good.iter().collect();
                residues[bad] = m;
                let packed = pack::pack(&ModularVec::from_residues(wide, &residues).unwrap()).unwrap();
                let expected = format!("element at index {bad} is not below the modulus {m}");
                check_message(sum.add_packed(&packed), &expected);
            }
            let packed = pack::pack(&good).unwrap();
            check_message(sum.add_packed(&packed[1..]), "bytes of a packed vector");
            check_message(
                sum.add_packed(&[&packed[..], &[0]].concat()),
                "bytes of a packed vector",
            );
            let mut padded = packed.clone();
            if !(modulus(m).bits() * 5).is_multiple_of(8) {
                *padded.last_mut().unwrap() |= 0x80;
                check_message(sum.add_packed(&padded), "must be 0");
            }
            check_message(
                sum.add(&vector(m, len - 1, 1)),
                "expected 65541 values, got 65540",
            );
            check_message(sum.add(&vector(m + 1, len, 1)), "expected residues modulo");
            assert_eq!((sum.added(), sum.is_lost()), (1, false));
            assert!(sum.seal().unwrap().iter().eq(good.iter()));
        }
    }

    #[test]
    fn a_sum_is_read_once_and_takes_nothing_afterwards() {
        let sum = ModularSum::zeros(modulus(10), 3);
        let one = vector(10, 3, 1);
        sum.add(&one).unwrap();
        assert!(sum.seal().unwrap().iter().eq(one.iter()));
        assert_eq!(sum.seal().err(), Some(AggregationError::SumClosed));
        assert_eq!(sum.add(&one), Err(AggregationError::SumClosed));
        let sum = ModularSum::zeros(modulus(10), 3);
        sum.discard();
        assert_eq!(sum.add(&one), Err(AggregationError::SumClosed));
        assert_eq!(sum.seal().err(), Some(AggregationError::SumClosed));
    }

    #[test]
    fn a_sum_in_which_an_addition_ended_half_way_is_never_read() {
        let one = vector(10, BLOCK + 1, 1);
        let sum = ModularSum::zeros(modulus(10), BLOCK + 1);
        let panicked = std::thread::scope(|scope| {
            let adder = scope.spawn(|| {
                sum.change(|first, block| {
                    assert_eq!(first, 0, "the second block is never changed");
                    block.add_at(0, &[1u32]).unwrap();
                })
            });
            adder.join().is_err()
        });
        assert!(panicked && sum.is_lost());
        assert_eq!(sum.add(&one), Err(AggregationError::SumLost));
        assert_eq!(sum.seal().err(), Some(AggregationError::SumLost));
        // A caller that gives up.
        let sum = ModularSum::zeros(modulus(10), BLOCK + 1);
        sum.add(&one).unwrap();
        sum.fail();
        assert_eq!(sum.seal().err(), Some(AggregationError::SumLost));
    }

    #[test]
    fn reading_waits_for_additions_that_have_begun() {
        let len = 8 * BLOCK;
        let one = pack::pack(&vector(1000, len, 1)).unwrap();
        for _ in 0..20 {
            let sum = ModularSum::zeros(modulus(1000), len);
            let (count, sealed) = std::thread::scope(|scope| {
                let adders = [(); 3].map(|()| scope.spawn(|| u64::from(sum.add_packed(&one).is_ok())));
                let sealed = sum.seal().unwrap();
                (
                    adders.map(|adder| adder.join().unwrap()).iter().sum::<u64>(),
                    sealed,
                )
            });
            // Every vector is in the sum as a whole or was refused.
            let expected = vector(1000, len, 1);
            assert!(
                sealed.iter().eq(expected.iter().map(|x| x * count % 1000)),
                "{count}"
            );
        }
    }

    #[test]
    fn an_empty_sum_is_zero() {
        let sum = ModularSum::zeros(modulus(10), 0);
        sum.add_packed(&[]).unwrap();
        assert!(sum.is_empty() && sum.seal().unwrap().is_empty());
    }
}
