//! Whole vectors of standard normal samples, as research streams use them.

use rayon::prelude::*;

use super::uniform::{NoiseKey, Purpose};
use super::{gaussian, gaussian32};
use crate::error::Result;

/// Standard normal samples in floating point: fast, with ideal tails, and not snapped to a grid.
///
/// Sample `i` of a round is always the same for one key, whatever the length, the number of threads or the machine.
///
/// # Guarantee
/// The samples are ChaCha20 words through Box-Muller with tails to `2^-96` (`f32`) or `2^-128` (`f64`) per pair. The
/// low bits of a floating-point sample are not those of a rounded real Gaussian, so a sum `x + noise` in floating point
/// can show `x` to an observer of those bits: releases take the snapped Gaussian.
///
/// # Example
/// ```
/// use undertone_mechanisms::{NoiseKey, StandardNormal};
///
/// let mut noise = vec![0.0f32; 10_000];
/// StandardNormal.fill_f32(&NoiseKey::from_bytes([1; 32]), 0, &mut noise)?;
/// let variance = noise.iter().map(|x| x * x).sum::<f32>() / 10_000.0;
/// assert!((variance - 1.0).abs() < 0.1);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StandardNormal;

impl StandardNormal {
    /// Fills `out` with the samples of `round` from the first one on.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill_f32(&self, key: &NoiseKey, round: u64, out: &mut [f32]) -> Result<()> {
        let uniform = key.stream(Purpose::Gaussian32, round)?;
        let tail = key.stream(Purpose::Gaussian32Tail, round)?;
        out.par_chunks_mut(gaussian32::BLOCK).enumerate().for_each_init(
            || (gaussian32::Scratch::new(), Box::new([0.0; gaussian32::BLOCK])),
            |(scratch, last), (block, out)| {
                let length = out.len();
                if let Ok(whole) = (&mut *out).try_into() {
                    gaussian32::fill_block(&uniform, &tail, block as u64, scratch, whole);
                } else {
                    gaussian32::fill_block(&uniform, &tail, block as u64, scratch, last);
                    out.copy_from_slice(&last[..length]);
                }
            },
        );
        Ok(())
    }

    /// Fills `out` with the samples of `round` from the first one on; they are not those of [`fill_f32`](Self::fill_f32).
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill_f64(&self, key: &NoiseKey, round: u64, out: &mut [f64]) -> Result<()> {
        let uniform = key.stream(Purpose::Gaussian, round)?;
        let tail = key.stream(Purpose::GaussianTail, round)?;
        out.par_chunks_mut(gaussian::BLOCK).enumerate().for_each_init(
            || (gaussian::Scratch::new(), Box::new([0.0; gaussian::BLOCK])),
            |(scratch, last), (block, out)| {
                let length = out.len();
                if let Ok(whole) = (&mut *out).try_into() {
                    gaussian::fill_block(&uniform, &tail, block as u64, scratch, whole);
                } else {
                    gaussian::fill_block(&uniform, &tail, block as u64, scratch, last);
                    out.copy_from_slice(&last[..length]);
                }
            },
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_do_not_depend_on_threads_or_length() {
        let key = NoiseKey::from_bytes([3; 32]);
        let run = |threads: usize, length: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let (mut narrow, mut wide) = (vec![0.0; length], vec![0.0; length]);
            pool.install(|| {
                StandardNormal.fill_f32(&key, 5, &mut narrow).unwrap();
                StandardNormal.fill_f64(&key, 5, &mut wide).unwrap();
            });
            (narrow, wide)
        };
        let one = run(1, 20_001);
        assert_eq!(one, run(2, 20_001));
        assert_eq!(one, run(3, 20_001));
        let (narrow, wide) = run(2, 777);
        assert_eq!((&one.0[..777], &one.1[..777]), (&narrow[..], &wide[..]));
        assert!(StandardNormal.fill_f32(&key, 1 << 48, &mut [0.0]).is_err());
    }
}
