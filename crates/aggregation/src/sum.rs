//! The sum of weighted updates in fixed point: the same bits in whatever order the updates arrive.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use undertone_mechanisms::{FRACTION_BITS, RawSum};

use crate::clip::Scaling;
use crate::error::{AggregationError, Result, check_len};
use crate::weight::{check_weight, truncate_weight};
use undertone_simd::vectorised;

/// Coordinates that share a lock: 256 KiB of the sum and 128 KiB of an update.
const BLOCK: usize = 1 << 15;

/// Grid steps in one unit.
const STEPS: f64 = (1u64 << FRACTION_BITS) as f64;

/// Updates must stay below this magnitude; a sum of two then still fits.
const VALUE_LIMIT: f32 = (1u64 << (62 - FRACTION_BITS)) as f32;

/// Every value of an update must stay below this.
pub const UPDATE_LIMIT: f64 = VALUE_LIMIT as f64;

/// Every coordinate of a sum must stay below this.
pub const SUM_LIMIT: f64 = 2.0 * UPDATE_LIMIT;

/// Sums updates from several threads at once, one `i64` a coordinate.
///
/// Integer addition commutes, so the result does not depend on the order or the interleaving of the additions.
///
/// # Guarantee
/// Each weighted value is truncated toward zero onto the grid of `2^-40`: the norm of what [`add`](Self::add) adds never exceeds
/// the weight times the norm of the update. A sum from which an addition failed is never released.
// PRIVACY: a sum without noise must not be printable, so it has no `Debug`.
pub(crate) struct FixedPointSum {
    /// Block `b` of the values is reached only under lock `b`.
    values: Vec<UnsafeCell<i64>>,
    /// `true` for blocks that were written.
    locks: Vec<Mutex<bool>>,
    weight: AtomicI64,
    /// Block at which the next addition starts, modulo the number of blocks, so that concurrent additions do not queue behind one another.
    next_start: AtomicUsize,
    /// Set when an addition failed half-way.
    failed: AtomicBool,
}

// SAFETY: the only field that is not `Sync` is `values`, and `with_block` reaches it only under the lock of the block
// that it touches; blocks are disjoint.
unsafe impl Sync for FixedPointSum {}

impl FixedPointSum {
    /// An empty sum over `len` coordinates.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            // Memory that is zero already is not touched before something is added.
            values: bytemuck::zeroed_vec(len),
            locks: (0..len.div_ceil(BLOCK)).map(|_| Mutex::new(false)).collect(),
            weight: AtomicI64::new(0),
            next_start: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Adds `weight * update`; the weight must lie in `[0, 1]` and is truncated to a multiple of `2^-28`.
    ///
    /// # Errors
    /// A wrong length, a weight outside `[0, 1]`, values that are not finite or reach `2^22`: nothing is added then.
    /// [`AggregationError::SumOverflow`] when the sum leaves its range: the sum is then lost.
    pub(crate) fn add(&self, update: &[f32], weight: f64) -> Result<()> {
        check_len("update", self.values.len(), update.len())?;
        check_weight(weight)?;
        if any_reaches(update, VALUE_LIMIT) {
            return Err(out_of_range(update));
        }
        let scale = truncate_weight(weight) * STEPS;
        self.change(steps_of_weight(weight), |first, values| {
            add_scaled(values, &update[first..], scale)
        })
    }

    /// Adds the weight, and the scaled values of an update at these spans, which are in increasing order.
    ///
    /// # Errors
    /// A wrong length or a weight outside `[0, 1]`: nothing is added then.
    /// [`AggregationError::SumOverflow`] when the sum leaves its range: the sum is then lost.
    pub(crate) fn add_clipped(
        &self,
        update: &[f32],
        weight: f64,
        scalings: &[(Range<usize>, Scaling)],
    ) -> Result<()> {
        check_len("update", self.values.len(), update.len())?;
        check_weight(weight)?;
        self.change(steps_of_weight(weight), |first, values| {
            let end = first + values.len();
            let from = scalings.partition_point(|(span, _)| span.end <= first);
            let here = scalings[from..].iter().take_while(|(span, _)| span.start < end);
            here.fold(false, |overflow, (span, scaling)| {
                let (start, end) = (span.start.max(first), span.end.min(end));
                overflow | scaling.add(&mut values[start - first..end - first], &update[start..end])
            })
        })
    }

    /// Adds a part of another sum of this grid, from place `first` on, and a weight in the steps of [`steps_of_weight`].
    ///
    /// # Errors
    /// A part that does not lie in the sum: nothing is added then. [`AggregationError::SumOverflow`] if the sum leaves its range: the
    /// sum is then lost.
    pub(crate) fn merge_part(&self, first: usize, part: &[i64], weight: i64) -> Result<()> {
        let end = first.saturating_add(part.len());
        check_len(
            "part of a sum",
            self.values.len().saturating_sub(first).min(part.len()),
            part.len(),
        )?;
        let blocks = match part.is_empty() {
            true => 0..0,
            false => first / BLOCK..(end - 1) / BLOCK + 1,
        };
        self.change_blocks(weight, blocks, |start, values| {
            let (from, to) = (first.max(start), end.min(start + values.len()));
            add_steps(
                &mut values[from - start..to - start],
                &part[from - first..to - first],
            )
        })
    }

    /// Adds the weight and lets `add` change the values block by block, given the place of the first. It returns `true` if any
    /// value overflowed.
    fn change(&self, weight: i64, add: impl Fn(usize, &mut [i64]) -> bool) -> Result<()> {
        self.change_blocks(weight, 0..self.locks.len(), add)
    }

    fn change_blocks(
        &self,
        weight: i64,
        range: Range<usize>,
        add: impl Fn(usize, &mut [i64]) -> bool,
    ) -> Result<()> {
        let overflow = |index| {
            self.failed.store(true, Ordering::SeqCst);
            Err(AggregationError::SumOverflow {
                index,
                limit: 2.0 * f64::from(VALUE_LIMIT),
            })
        };
        if self
            .weight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |w| w.checked_add(weight))
            .is_err()
        {
            return overflow(0);
        }
        let blocks = range.len();
        let start = self.next_start.fetch_add(1, Ordering::Relaxed);
        for step in 0..blocks {
            let block = range.start + (start.wrapping_add(step)) % blocks;
            let first = block * BLOCK;
            if self.with_block(block, |values| add(first, values))? {
                return overflow(first);
            }
        }
        Ok(())
    }

    /// Replaces the sum of this process by that of all `processes` of a run. `all_reduce` adds slices of equal length up over
    /// them, place by place; every process calls this once.
    ///
    /// PRIVACY: what goes through `all_reduce` is a sum without noise. It has to stay among the processes of the run.
    ///
    /// # Errors
    /// [`AggregationError::SumOverflow`] when this sum is so large that the sum of all may leave its range,
    /// [`AggregationError::Poisoned`] when an addition failed half-way: nothing is exchanged then. What `all_reduce` gives.
    pub(crate) fn combine<E: From<AggregationError>>(
        &mut self,
        processes: usize,
        mut all_reduce: impl FnMut(&mut [i64]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if *self.failed.get_mut() || self.locks.iter().any(Mutex::is_poisoned) {
            return Err(AggregationError::Poisoned.into());
        }
        let largest = (i64::MAX / processes.max(1) as i64).unsigned_abs();
        let weight = self.weight.get_mut();
        let values = self.values.iter_mut().map(UnsafeCell::get_mut);
        for (index, value) in values.chain([&mut *weight]).enumerate() {
            if value.unsigned_abs() > largest {
                let limit = 2.0 * f64::from(VALUE_LIMIT) / processes as f64;
                return Err(AggregationError::SumOverflow { index, limit }.into());
            }
        }
        all_reduce(std::slice::from_mut(weight))?;
        for block in self.values.chunks_mut(BLOCK) {
            // SAFETY: `self` is borrowed mutably, so nothing else reaches the cells of this chunk; `UnsafeCell<i64>` has the
            // layout of `i64`.
            let values =
                unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(block.as_ptr()), block.len()) };
            all_reduce(values)?;
        }
        Ok(())
    }

    /// Ends the summation.
    ///
    /// # Errors
    /// [`AggregationError::Poisoned`] when an addition failed half-way, so that the sum is not what was added.
    pub(crate) fn into_raw(self) -> Result<RawSum> {
        if self.failed.into_inner() || self.locks.iter().any(Mutex::is_poisoned) {
            return Err(AggregationError::Poisoned);
        }
        let values = self.values.into_iter().map(UnsafeCell::into_inner).collect();
        Ok(RawSum::new(values, self.weight.into_inner()))
    }

    /// The values in steps of `2^-40`.
    #[cfg(test)]
    pub(crate) fn into_steps(self) -> Vec<i64> {
        self.values.into_iter().map(UnsafeCell::into_inner).collect()
    }

    fn with_block<T>(&self, block: usize, change: impl FnOnce(&mut [i64]) -> T) -> Result<T> {
        let cells = &self.values[block * BLOCK..self.values.len().min((block + 1) * BLOCK)];
        let mut written = self.locks[block].lock().map_err(|_| AggregationError::Poisoned)?;
        // SAFETY: the cells of this block are reached only here and only while its lock is held, so the slice is the
        // only reference to them; `UnsafeCell<i64>` has the layout of `i64`.
        let values =
            unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) };
        if !std::mem::replace(&mut *written, true) {
            // The system gives a page at its first write. A read before that write would cost as much again.
            values.fill(0);
        }
        Ok(change(values))
    }
}

vectorised! {
    /// Returns `true` if any magnitude is `limit` or more, infinite or NaN.
    fn any_reaches(update: &[f32], limit: f32) -> bool {
        // Magnitudes of floats are ordered like their bits, and infinities and NaN come last.
        let limit = limit.to_bits();
        let mut reached = 0u32;
        for value in update {
            reached |= u32::from(value.to_bits() & 0x7fff_ffff >= limit);
        }
        reached != 0
    }
}

vectorised! {
    /// `values += trunc(scale * update)`; whether any value overflowed.
    fn add_scaled(values: &mut [i64], update: &[f32], scale: f64) -> bool {
        let mut overflow = 0i64;
        for (value, &x) in values.iter_mut().zip(update) {
            // PRIVACY: the product is exact (24 bits times at most 29), and the conversion truncates toward zero.
            let added = (f64::from(x) * scale) as i64;
            let sum = value.wrapping_add(added);
            // Overflow if and only if both terms have the sign that the sum has not.
            overflow |= (*value ^ sum) & (added ^ sum);
            *value = sum;
        }
        overflow < 0
    }
}

vectorised! {
    /// `values += sum`; whether any value overflowed.
    fn add_steps(values: &mut [i64], sum: &[i64]) -> bool {
        let mut overflow = 0i64;
        for (value, &added) in values.iter_mut().zip(sum) {
            let sum = value.wrapping_add(added);
            // Overflow if and only if both terms have the sign that the sum has not.
            overflow |= (*value ^ sum) & (added ^ sum);
            *value = sum;
        }
        overflow < 0
    }
}

/// A weight in `[0, 1]`, truncated, in steps of the sum.
pub(crate) fn steps_of_weight(weight: f64) -> i64 {
    (truncate_weight(weight) * STEPS) as i64
}

pub(crate) fn out_of_range(update: &[f32]) -> AggregationError {
    match update.iter().position(|value| !value.is_finite()) {
        Some(index) => AggregationError::NotFinite {
            what: "update",
            index,
        },
        None => {
            let index = update
                .iter()
                .position(|value| value.abs() >= VALUE_LIMIT)
                .unwrap_or_default();
            AggregationError::SumOverflow {
                index,
                limit: f64::from(VALUE_LIMIT),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check_message;
    use proptest::prelude::*;
    use undertone_mechanisms::{Denominator, NonPrivate};

    /// Reads a sum the only way there is: as a non-private average.
    fn read(sum: FixedPointSum) -> Vec<f32> {
        let average = sum.into_raw().unwrap().average(Denominator::Fixed(1.0)).unwrap();
        NonPrivate.privatize(0, average).unwrap().into_values()
    }

    #[test]
    fn processes_together_are_one() {
        let all = updates(7, BLOCK + 5);
        let one = FixedPointSum::new(BLOCK + 5);
        let (mut left, right) = (FixedPointSum::new(BLOCK + 5), FixedPointSum::new(BLOCK + 5));
        for (place, (update, weight)) in all.iter().enumerate() {
            one.add(update, *weight).unwrap();
            let half = if place % 2 == 0 { &left } else { &right };
            half.add(update, *weight).unwrap();
        }
        // The weight, then the blocks.
        let mut others = vec![vec![right.weight.load(Ordering::SeqCst)]];
        let values: Vec<i64> = right.values.into_iter().map(UnsafeCell::into_inner).collect();
        others.extend(values.chunks(BLOCK).map(<[i64]>::to_vec));
        let mut others = others.into_iter();
        left.combine(2, |values| {
            let other = others.next().unwrap();
            assert_eq!(values.len(), other.len());
            values
                .iter_mut()
                .zip(other)
                .for_each(|(value, other)| *value += other);
            Ok::<(), AggregationError>(())
        })
        .unwrap();
        assert_eq!(
            left.weight.load(Ordering::SeqCst),
            one.weight.load(Ordering::SeqCst)
        );
        assert_eq!(read(left), read(one));
        // Two of these could leave the range.
        let mut large = FixedPointSum::new(1);
        for _ in 0..3 {
            large.add(&[0.5 * VALUE_LIMIT], 1.0).unwrap();
        }
        let refused = large.combine(2, |_| Ok::<(), AggregationError>(()));
        assert!(
            matches!(refused, Err(AggregationError::SumOverflow { index: 0, .. })),
            "{refused:?}"
        );
    }

    fn updates(users: usize, len: usize) -> Vec<(Vec<f32>, f64)> {
        let value = |u: usize, i: usize| ((u * 7919 + i * 104_729) % 20_011) as f32 / 10_007.0 - 1.0;
        (0..users)
            .map(|u| ((0..len).map(|i| value(u, i)).collect(), (u % 7) as f64 / 6.0))
            .collect()
    }

    #[test]
    fn the_order_and_the_threads_do_not_matter() {
        let len = 3 * BLOCK + 17;
        let users = updates(24, len);
        let forward = FixedPointSum::new(len);
        users
            .iter()
            .for_each(|(update, weight)| forward.add(update, *weight).unwrap());
        let threaded = FixedPointSum::new(len);
        std::thread::scope(|scope| {
            for part in users.chunks(6) {
                let threaded = &threaded;
                scope.spawn(move || part.iter().rev().for_each(|(u, w)| threaded.add(u, *w).unwrap()));
            }
        });
        let (forward, threaded) = (read(forward), read(threaded));
        assert_eq!(forward, threaded);
        for i in [0, 1, BLOCK - 1, BLOCK, len - 1] {
            let expected: f64 = users.iter().map(|(u, w)| f64::from(u[i]) * w).sum();
            assert!((f64::from(forward[i]) - expected).abs() < 1e-6);
        }
    }

    proptest! {
        #[test]
        fn truncation_is_exact(value in any::<f32>(), weight in 0.0..=1.0f64) {
            prop_assume!(value.abs() < VALUE_LIMIT);
            let mut cell = [0i64];
            let w = truncate_weight(weight);
            prop_assert!(!add_scaled(&mut cell, &[value], w * STEPS));
            // |cell| <= w |value| 2^40 < |cell| + 1, in integers: value = m 2^e, w = n 2^-28.
            let bits = value.abs().to_bits();
            let exponent = (bits >> 23).max(1) as i32 - 150;
            let mantissa = u128::from(if bits >> 23 == 0 { bits } else { bits & 0x7f_ffff | 1 << 23 });
            let product = mantissa * (w * (1u64 << 28) as f64) as u128;
            let shift = exponent - 28 + 40;
            let expected = if shift >= 0 { product << shift } else { product.checked_shr(shift.unsigned_abs()).unwrap_or(0) };
            prop_assert_eq!(u128::from(cell[0].unsigned_abs()), expected);
            prop_assert!(cell[0] == 0 || (cell[0] > 0) == (value > 0.0));
        }
    }

    fn check(update: &[f32], weight: f64, expected: &str) {
        let sum = FixedPointSum::new(2);
        sum.add(&[0.5, 0.25], 1.0).unwrap();
        check_message(sum.add(update, weight), expected);
        if expected != "ok" {
            assert_eq!(read(sum), [0.5, 0.25]);
        }
    }

    #[test]
    fn refusals_leave_the_sum_alone() {
        check(&[1.0, -1.0], 0.5, "ok");
        check(&[1.0], 0.5, "expected 2 values, got 1");
        check(&[1.0, 1.0], 1.01, "weight must be between 0 and 1");
        check(&[1.0, 1.0], -0.1, "weight must be between 0 and 1");
        check(&[1.0, 1.0], f64::NAN, "weight must be between 0 and 1");
        check(&[1.0, f32::NAN], 0.5, "index 1 is not finite");
        check(&[f32::NEG_INFINITY, 0.0], 0.5, "index 0 is not finite");
        check(
            &[0.0, 5e6],
            1.0,
            "the fixed-point sum at index 1 leaves the range",
        );
    }

    #[test]
    fn an_overflowing_sum_is_lost() {
        let sum = FixedPointSum::new(1);
        let large = [VALUE_LIMIT.next_down()];
        assert!(sum.add(&large, 1.0).is_ok() && sum.add(&large, 1.0).is_ok());
        assert!(matches!(
            sum.add(&large, 1.0),
            Err(AggregationError::SumOverflow { .. })
        ));
        assert!(matches!(sum.into_raw().err(), Some(AggregationError::Poisoned)));
    }

    #[test]
    fn an_empty_sum_is_zero() {
        assert_eq!(read(FixedPointSum::new(3)), [0.0; 3]);
        assert_eq!(read(FixedPointSum::new(0)), [0.0f32; 0]);
    }
}
