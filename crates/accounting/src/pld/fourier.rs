//! Circular convolution powers of real sequences.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::num_complex::Complex64;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Twiddle factors are worth keeping: planning a transform costs as much as running it.
static PLANNER: LazyLock<Mutex<RealFftPlanner<f64>>> = LazyLock::new(|| Mutex::new(RealFftPlanner::new()));

/// A transform of one length.
pub(crate) struct Fourier {
    forward: Arc<dyn RealToComplex<f64>>,
    inverse: Arc<dyn ComplexToReal<f64>>,
    scratch: Vec<Complex64>,
}

impl Fourier {
    /// The shortest convenient length that is at least `length`: 4, 5 or 6 times a power of two.
    pub(crate) fn length(length: usize) -> usize {
        let length = length.max(16);
        let power = length.next_power_of_two();
        if power / 4 * 3 >= length {
            power / 4 * 3
        } else {
            power
        }
    }

    pub(crate) fn new(length: usize) -> Self {
        let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
        let forward = planner.plan_fft_forward(length);
        let inverse = planner.plan_fft_inverse(length);
        let scratch = forward.get_scratch_len().max(inverse.get_scratch_len());
        Self {
            forward,
            inverse,
            scratch: vec![Complex64::default(); scratch],
        }
    }

    /// The spectrum of `values` (zeros appended, indices beyond the length wrapped around).
    pub(crate) fn spectrum(&mut self, values: &[f64]) -> Vec<Complex64> {
        let length = self.forward.len();
        let (first, beyond) = values.split_at(length.min(values.len()));
        let mut padded = Vec::with_capacity(length);
        padded.extend_from_slice(first);
        padded.resize(length, 0.0);
        for chunk in beyond.chunks(length) {
            padded
                .iter_mut()
                .zip(chunk)
                .for_each(|(sum, value)| *sum += value);
        }
        let mut spectrum = self.forward.make_output_vec();
        // The lengths are those of the plan, which is the only way this fails.
        let done = self
            .forward
            .process_with_scratch(&mut padded, &mut spectrum, &mut self.scratch);
        if done.is_err() {
            unreachable!("buffers are of the planned length");
        }
        spectrum
    }

    /// The sequence of a spectrum, starting at index `start` of the circle; rounding errors below zero are zeros.
    pub(crate) fn sequence(&mut self, mut spectrum: Vec<Complex64>, start: i64) -> Vec<f64> {
        let length = self.inverse.len();
        let mut values = self.inverse.make_output_vec();
        // The transform of a real sequence is real at both ends; the inverse insists on it.
        if let Some(first) = spectrum.first_mut() {
            first.im = 0.0;
        }
        if length.is_multiple_of(2)
            && let Some(last) = spectrum.last_mut()
        {
            last.im = 0.0;
        }
        let done = self
            .inverse
            .process_with_scratch(&mut spectrum, &mut values, &mut self.scratch);
        if done.is_err() {
            unreachable!("buffers are of the planned length");
        }
        let scale = 1.0 / length as f64;
        let (wrapped, first) = values.split_at(start.rem_euclid(length as i64) as usize);
        let mut sequence = Vec::with_capacity(length);
        for part in [first, wrapped] {
            sequence.extend(part.iter().map(|value| (value * scale).max(0.0)));
        }
        sequence
    }
}

/// `base^exponent`, by elements.
pub(crate) fn power(base: &[Complex64], exponent: u64) -> Vec<Complex64> {
    if exponent == 0 {
        return vec![Complex64::new(1.0, 0.0); base.len()];
    }
    let one = |z: &Complex64| {
        let (mut result, mut square, mut rest) = (Complex64::new(1.0, 0.0), *z, exponent);
        loop {
            if !rest.is_multiple_of(2) {
                result *= square;
            }
            rest /= 2;
            if rest == 0 {
                return result;
            }
            square *= square;
        }
    };
    base.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_convolutions() {
        let mut fourier = Fourier::new(Fourier::length(20));
        let dice = [0.0, 0.25, 0.5, 0.25];
        let spectrum = fourier.spectrum(&dice);
        for exponent in 1..=6u64 {
            let got = fourier.sequence(power(&spectrum, exponent), 0);
            let mut want = vec![1.0];
            for _ in 0..exponent {
                let mut next = vec![0.0; want.len() + 3];
                for (i, a) in want.iter().enumerate() {
                    for (j, b) in dice.iter().enumerate() {
                        next[i + j] += a * b;
                    }
                }
                want = next;
            }
            for (index, want) in want.iter().enumerate() {
                assert!((got[index] - want).abs() < 1e-15, "{exponent} {index}");
            }
        }
    }

    #[test]
    fn lengths() {
        for (length, want) in [
            (1, 16),
            (16, 16),
            (17, 24),
            (24, 24),
            (25, 32),
            (49, 64),
            (48, 48),
        ] {
            assert_eq!(Fourier::length(length), want);
        }
    }
}
