//! Fresh, independent Gaussian noise in every round and coordinate.

use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::error::{MechanismError, Result, ensure, positive};
use crate::release::{Denominator, NoisedAverage, RawAverage};
use crate::residues::{NoisedResidues, RawResidues};
use crate::sampler::distance::SamplerDistance;
use crate::sampler::fresh::{self, BLOCK, Maker};
use crate::sampler::snapped::SnappedGaussian;
use crate::sampler::uniform::NoiseKey;

/// The Gaussian mechanism: every coordinate of every round gets its own normal noise.
///
/// Noise is [`SnappedGaussian`] on the fixed-point grid of the average, added in integers. Blocks of the vector draw from
/// their own places of the key's stream, in parallel; the bytes do not depend on the number of threads.
///
/// # Guarantee
/// One release of an average of L2 sensitivity `s` is the Gaussian mechanism with noise multiplier `noise_std / s`
/// (see [`noise_multiplier`](Self::noise_multiplier)); subsampling and composition are the accountant's.
///
/// The noise is an ideal real Gaussian rounded to the grid, the average stands on the grid, and so the release is the ideal
/// one, rounded: post-processing. Attacks that read the low bits of a floating-point sum to tell which input is possible
/// find nothing to read. This is for ideal samples. What the real sampler's distance from them adds to delta over a run
/// comes from [`sampler_distance`](Self::sampler_distance), summed over the rounds:
/// [`SamplerDistance::guarantee`] counts it.
///
/// The guarantee does not cover time, which depends a little on the noise.
///
/// # Source
/// \[DPLM\] Algorithm 1 and Theorem 1: `N(0, I sigma^2)` with `sigma = z S`. The samples: see [`SnappedGaussian`].
///
/// # Example
/// ```
/// use undertone_mechanisms::{Denominator, IndependentGaussian, NoiseKey, RawSum};
///
/// // In a run the key comes from the operating system's entropy.
/// let mechanism = IndependentGaussian::new(0.01, NoiseKey::from_bytes([1; 32]))?;
/// let sum = RawSum::new(vec![3 << 40, -(1 << 40)], 4 << 40);
/// let release = mechanism.privatize(0, sum.average(Denominator::Fixed(4.0))?)?;
/// assert!((release.values()[0] - 0.75).abs() < 0.1);
/// assert_eq!(mechanism.noise_multiplier(0.005)?, 2.0);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone)]
pub struct IndependentGaussian {
    noise_std: f64,
    key: NoiseKey,
}

impl IndependentGaussian {
    /// Noise of standard deviation `noise_std` in every coordinate of the average.
    ///
    /// # Errors
    /// A standard deviation that is not positive and finite.
    pub fn new(noise_std: f64, key: NoiseKey) -> Result<Self> {
        let noise_std = positive("noise_std", noise_std)?;
        Ok(Self { noise_std, key })
    }

    /// Standard deviation of the noise in each coordinate of the average.
    #[must_use]
    pub fn noise_std(&self) -> f64 {
        self.noise_std
    }

    /// The ratio of noise to sensitivity, which is all that an accountant needs of this mechanism.
    ///
    /// # Errors
    /// A sensitivity that is not positive and finite.
    pub fn noise_multiplier(&self, sensitivity: f64) -> Result<f64> {
        let multiplier = self.noise_std / sensitivity;
        let holds = sensitivity > 0.0 && multiplier.is_finite() && multiplier > 0.0;
        ensure(holds, "sensitivity", "positive and finite", sensitivity)?;
        Ok(multiplier)
    }

    /// Checks that the noise suits the fixed-point grid of averages over this denominator; callers ask before any work.
    ///
    /// # Errors
    /// As [`sampler_distance`](Self::sampler_distance).
    pub fn check(&self, denominator: Denominator) -> Result<()> {
        self.sampler_distance(denominator, 0).map(|_| ())
    }

    /// Distance of the samples of one round from ideal rounded Gaussians, for averages of `dim` coordinates over this
    /// denominator. A run's is the sum over its rounds.
    ///
    /// # Errors
    /// A denominator that is not positive and finite, [`MechanismError::UnboundedSensitivity`] for the observed weight,
    /// [`MechanismError::NoiseBelowGrid`] and [`MechanismError::NoiseAboveGrid`] where the noise does not suit the grid.
    pub fn sampler_distance(&self, denominator: Denominator, dim: usize) -> Result<SamplerDistance> {
        let steps = fresh::steps(self.noise_std, denominator.grid_step()?)?;
        SamplerDistance::new(dim as f64 * SnappedGaussian::new(steps)?.total_variation_per_sample())
    }

    /// Adds the noise of `round` to the average.
    ///
    /// PRIVACY: call it once per round. Under one key the noise of a round is always the same, so two different
    /// averages released for one round would show their difference without noise.
    ///
    /// # Errors
    /// [`MechanismError::UnboundedSensitivity`] for an average over the observed weight,
    /// [`MechanismError::NoiseBelowGrid`] and [`MechanismError::NoiseAboveGrid`] when the noise does not suit the
    /// fixed-point grid. A release that leaves the range of the grid saturates.
    pub fn privatize(&self, round: u64, average: RawAverage) -> Result<NoisedAverage> {
        // PRIVACY: noise around an average without a sensitivity bound guarantees nothing; refuse rather than mislead.
        if !average.bounded_sensitivity {
            return Err(MechanismError::UnboundedSensitivity);
        }
        let steps = fresh::steps(self.noise_std, average.scale)?;
        average.release_with(self.noise_std, &mut |first, values| {
            values.par_chunks_mut(BLOCK).enumerate().try_for_each_init(
                || (Maker::new(&self.key), Zeroizing::new(vec![0; BLOCK])),
                |(maker, noise), (block, values)| {
                    let noise = &mut noise[..values.len()];
                    maker.fill(round, first + block, steps, noise)?;
                    fresh::add(values, noise);
                    Ok(())
                },
            )
        })
    }

    /// Adds the noise of `round` to residues; the noise and its standard deviation are in steps.
    ///
    /// PRIVACY: a round may be released once, as with [`privatize`](Self::privatize).
    ///
    /// # Guarantee
    /// The users who follow the encoding have the guarantee of [`privatize`](Self::privatize) for their whole numbers. It holds for
    /// any residues that the other users send.
    ///
    /// # Errors
    /// [`MechanismError::NoiseBelowGrid`] and [`MechanismError::NoiseAboveGrid`] where the noise does not suit whole steps.
    pub fn privatize_residues(&self, round: u64, residues: RawResidues) -> Result<NoisedResidues> {
        let steps = fresh::steps(self.noise_std, Denominator::WHOLE_STEPS.grid_step()?)?;
        let mut noise = Zeroizing::new(vec![0; residues.len()]);
        noise.par_chunks_mut(BLOCK).enumerate().try_for_each_init(
            || Maker::new(&self.key),
            |maker, (block, noise)| maker.fill(round, block, steps, noise),
        )?;
        Ok(residues.release(&noise, self.noise_std))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::RawSum;
    use crate::testing::{says, with_threads};

    fn key() -> NoiseKey {
        NoiseKey::from_bytes([9; 32])
    }

    fn noise(std: f64, round: u64, len: usize, denominator: f64) -> Vec<f32> {
        let average = RawSum::new(vec![0; len], 0)
            .average(Denominator::Fixed(denominator))
            .unwrap();
        IndependentGaussian::new(std, key())
            .unwrap()
            .privatize(round, average)
            .unwrap()
            .into_values()
    }

    #[test]
    fn bytes_do_not_depend_on_threads_or_length() {
        let run = |threads: usize| with_threads(threads, || noise(0.5, 3, 50_001, 7.0));
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
        assert_eq!(one[..777], noise(0.5, 3, 777, 7.0));
        assert_ne!(one[..777], noise(0.5, 4, 777, 7.0));
    }

    #[test]
    fn noise_bits_equal_those_recomputed_elsewhere() {
        // Recomputed by a separate ChaCha20 in Python and Box-Muller of 320 bits each in mpmath, rounded; a change of
        // generator, layout or arithmetic must be deliberate.
        let bits: Vec<u32> = noise(1.0, 0, 4, 1.0).iter().map(|v| v.to_bits()).collect();
        assert_eq!(bits, KNOWN);
    }
    const KNOWN: [u32; 4] = [0xbf92_3737, 0x3ebd_a91d, 0x3fa1_4d05, 0xbe47_49ff];

    #[test]
    fn distance_is_that_of_all_samples() {
        let mechanism = IndependentGaussian::new(1.0, key()).unwrap();
        let distance = |denominator, dim| mechanism.sampler_distance(denominator, dim).unwrap();
        // 2^40 steps a standard deviation, three times as many with three times the denominator.
        let one = 2f64.powi(-160) + 2f64.powi(40 - 154);
        assert_eq!(distance(Denominator::Fixed(1.0), 5).total_variation(), 5.0 * one);
        assert_eq!(
            distance(Denominator::FlooredWeight(9.0), 5).total_variation(),
            5.0 * one
        );
        let thrice = distance(Denominator::Fixed(3.0), 5).total_variation();
        assert!((thrice / (15.0 * one) - 1.0).abs() < 1e-10);
        for denominator in [
            Denominator::Fixed(f64::NAN),
            Denominator::Fixed(1e9),
            Denominator::ObservedWeight,
        ] {
            assert!(mechanism.check(denominator).is_err(), "{denominator:?}");
        }
    }

    #[test]
    fn spread_is_noise_std_whatever_the_denominator() {
        // Relative error of the variance of n samples: sqrt(2 / n); 5.33 of it, twice: false-alarm rate 2e-7.
        for (std, denominator) in [(1e-4, 5000.0), (2.0, 0.5)] {
            let x = noise(std, 1, 200_000, denominator);
            let variance = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / x.len() as f64;
            let z = (variance / (std * std) - 1.0) / (2.0 / x.len() as f64).sqrt();
            assert!(z.abs() < 5.33, "{z}");
        }
    }

    #[test]
    fn noise_is_additive_and_centred_on_the_average() {
        let sum = || RawSum::new(vec![3 << 40, -(5 << 40), 0], 2 << 40);
        let mechanism = IndependentGaussian::new(1e-3, key()).unwrap();
        for (denominator, divisor) in [
            (Denominator::Fixed(4.0), 4.0),
            (Denominator::FlooredWeight(1.0), 2.0),
        ] {
            let average = sum().average(denominator).unwrap();
            let released = mechanism.privatize(6, average).unwrap();
            let scaled = noise(1e-3, 6, 3, 1.0);
            for ((value, x), n) in released.values().iter().zip([3.0f32, -5.0, 0.0]).zip(scaled) {
                assert!((value - x / divisor - n).abs() < 1e-6, "{value}");
            }
            assert_eq!(released.noise_std(), 1e-3);
        }
    }

    #[test]
    fn a_mechanism_states_its_key_and_its_ratio_of_noise_to_sensitivity() {
        let seeded = IndependentGaussian::new(0.5, NoiseKey::from_insecure_seed(1)).unwrap();
        assert_eq!(seeded.key.origin(), crate::KeyOrigin::InsecureSeed);
        let mechanism = IndependentGaussian::new(0.5, key()).unwrap();
        assert_eq!(mechanism.key.origin(), crate::KeyOrigin::Entropy);
        assert_eq!(mechanism.noise_multiplier(0.25).unwrap(), 2.0);
        for sensitivity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let refused = mechanism.noise_multiplier(sensitivity);
            says(refused, "sensitivity must be positive and finite");
        }
    }

    #[test]
    fn noise_that_does_not_suit_the_grid_is_refused() {
        let (fixed, floored) = (Denominator::Fixed, Denominator::FlooredWeight);
        let positive = "denominator must be positive";
        for (std, denominator, value, expected) in [
            (1.0, fixed(1.0), 0, "ok"),
            (1.0, floored(3.0), 0, "ok"),
            (1.0, Denominator::ObservedWeight, 0, "no bound on its sensitivity"),
            (0.0, fixed(1.0), 0, "noise_std must be positive"),
            (f64::NAN, fixed(1.0), 0, "noise_std must be positive"),
            (1.0, fixed(0.0), 0, positive),
            (1.0, floored(f64::INFINITY), 0, positive),
            (1e-10, fixed(1.0), 0, "too small for the fixed-point grid"),
            (1e-10, fixed(100.0), 0, "ok"),
            (1e5, fixed(1.0), 0, "too large for the fixed-point grid"),
            (200.0, fixed(1.0), i64::MAX, "ok"),
            (200.0, fixed(1.0), i64::MIN, "ok"),
            (1.0, floored(1e-6), i64::MAX, "ok"),
        ] {
            let average = RawSum::new(vec![value; 64], 1 << 40).average(denominator);
            let noise = |average| IndependentGaussian::new(std, key())?.privatize(0, average);
            says(average.and_then(noise), expected);
        }
    }
}
