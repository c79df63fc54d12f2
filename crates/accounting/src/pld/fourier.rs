//! Real sequences on a circle, and their spectra.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::num_complex::Complex64;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::buffers::Buffer;

/// Transforms by length.
type Plans<T> = LazyLock<Mutex<HashMap<usize, Arc<T>>>>;

static FORWARD: Plans<dyn RealToComplex<f64>> = LazyLock::new(Mutex::default);
static INVERSE: Plans<dyn ComplexToReal<f64>> = LazyLock::new(Mutex::default);

/// Transforms of more points are planned anew each time: those of all lengths would take a gigabyte.
const MAX_KEPT: usize = 1 << 20;

/// The transform of one length. Twiddle factors are worth keeping: planning a transform costs as much as running it.
///
/// Each length has a planner of its own. One planner for all would build long transforms from the short ones that it
/// happens to hold, so that the last digits of a figure would depend on what the process computed before.
fn planned<T: ?Sized>(
    plans: &Plans<T>,
    length: usize,
    plan: impl FnOnce(&mut RealFftPlanner<f64>) -> Arc<T>,
) -> Arc<T> {
    if length > MAX_KEPT {
        return plan(&mut RealFftPlanner::new());
    }
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    let planned = plans
        .entry(length)
        .or_insert_with(|| plan(&mut RealFftPlanner::new()));
    Arc::clone(planned)
}

/// The spectrum of a real sequence: the bins of frequencies from 0 to half of its length, which is even.
#[derive(Clone)]
pub(crate) struct Spectrum {
    pub(super) length: usize,
    pub(super) bins: Buffer<Complex64>,
}

/// The shortest convenient length that is at least `length`: 8, 9, 10, 12 or 15 times a power of two. All of them take
/// the same time for each point.
pub(crate) fn length(length: usize) -> usize {
    let length = length.max(16);
    let eighth = length.next_power_of_two() / 16;
    [9, 10, 12, 15, 16]
        .map(|multiple| multiple * eighth)
        .into_iter()
        .find(|convenient| *convenient >= length && convenient.is_multiple_of(8))
        .unwrap_or(16 * eighth)
}

fn forward(length: usize) -> Arc<dyn RealToComplex<f64>> {
    planned(&FORWARD, length, |planner| planner.plan_fft_forward(length))
}

fn inverse(length: usize) -> Arc<dyn ComplexToReal<f64>> {
    planned(&INVERSE, length, |planner| planner.plan_fft_inverse(length))
}

impl Spectrum {
    /// The spectrum of `values` on a circle of `length` points (zeros appended, indices beyond the length wrapped around).
    pub(crate) fn new(values: &[f64], length: usize) -> Self {
        let (first, beyond) = values.split_at(length.min(values.len()));
        let mut circle = Buffer::new(length);
        circle[..first.len()].copy_from_slice(first);
        circle[first.len()..].fill(0.0);
        for chunk in beyond.chunks(length) {
            circle
                .iter_mut()
                .zip(chunk)
                .for_each(|(sum, value)| *sum += value);
        }
        let plan = forward(length);
        let mut bins = Buffer::new(length / 2 + 1);
        let mut scratch = Buffer::new(plan.get_scratch_len());
        // The lengths are those of the plan, which is the only way this fails.
        let done = plan.process_with_scratch(&mut circle, &mut bins, &mut scratch);
        if done.is_err() {
            unreachable!("buffers are of the planned length");
        }
        Self { length, bins }
    }

    /// The sequence, starting at index `start` of the circle; rounding errors below zero are zeros.
    pub(crate) fn sequence(mut self, start: i64) -> Buffer<f64> {
        let length = self.length;
        // The transform of a real sequence is real at both ends; the inverse insists on it.
        self.bins[0].im = 0.0;
        self.bins[length / 2].im = 0.0;
        let plan = inverse(length);
        let mut values = Buffer::new(length);
        let mut scratch = Buffer::new(plan.get_scratch_len());
        let done = plan.process_with_scratch(&mut self.bins, &mut values, &mut scratch);
        if done.is_err() {
            unreachable!("buffers are of the planned length");
        }
        let scale = 1.0 / length as f64;
        let (wrapped, first) = values.split_at(start.rem_euclid(length as i64) as usize);
        let mut sequence = Buffer::new(length);
        let (low, high) = sequence.split_at_mut(first.len());
        for (to, from) in [(low, first), (high, wrapped)] {
            to.iter_mut()
                .zip(from)
                .for_each(|(to, from)| *to = (from * scale).max(0.0));
        }
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_come_back_from_their_spectra() {
        let values: Vec<f64> = (0..70u32).map(|index| f64::from(index % 13)).collect();
        // Longer than the circle: what is beyond comes back at its start.
        let mut want = values[..64].to_vec();
        want[..6]
            .iter_mut()
            .zip(&values[64..])
            .for_each(|(sum, value)| *sum += value);
        want.rotate_left(60);
        let got = Spectrum::new(&values, 64).sequence(-4);
        assert!(
            got.iter()
                .zip(&want)
                .all(|(got, want)| (got - want).abs() < 1e-13)
        );
    }

    /// Lengths of 9 times a power of two are those that one planner builds otherwise once it holds shorter ones.
    #[test]
    fn spectra_do_not_depend_on_what_was_planned_before() {
        let sine = |length: u32| (0..length).map(|index| (f64::from(index) * 0.37).sin());
        for power in 4..13 {
            for length in [8, 9, 10, 12, 15].map(|multiple| multiple << power) {
                let mut circle: Vec<f64> = sine(length).collect();
                let got = Spectrum::new(&circle, length as usize);
                let plan = RealFftPlanner::new().plan_fft_forward(length as usize);
                let mut want = plan.make_output_vec();
                plan.process(&mut circle, &mut want).unwrap();
                assert_eq!(*got.bins, *want, "{length}");
            }
        }
    }

    #[test]
    fn a_length_is_the_next_fast_one() {
        for (min, want) in [
            (1, 16),
            (16, 16),
            (17, 24),
            (24, 24),
            (25, 32),
            (49, 64),
            (48, 48),
            (65, 72),
            (73, 80),
            (97, 120),
            (121, 128),
            (138_841, 147_456),
        ] {
            assert_eq!(length(min), want);
        }
    }
}
