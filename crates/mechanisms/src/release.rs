//! The states of a sum of user updates as types: raw sum, raw average, noised average.
//!
//! PRIVACY: a [`RawSum`] and a [`RawAverage`] are secrets. They have no `Debug`, no serialisation and no reader
//! outside this crate; the only ways out are [`IndependentGaussian`](crate::IndependentGaussian) and, for runs that
//! promise nothing, [`NonPrivate`].

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use undertone_simd::vectorised;

use crate::error::{MechanismError, Result, positive};
use crate::sampler::fresh::BLOCK;

/// Fractional bits of every fixed-point value: the grid is `2^-40`, the range of an `i64` is `+-2^23`.
pub const FRACTION_BITS: u32 = 40;

/// One step of the fixed-point grid, `2^-FRACTION_BITS`.
pub(crate) const GRID: f64 = 1.0 / (1u64 << FRACTION_BITS) as f64;

/// Values that are hashed at once, while other threads make the noise of those after them.
const PART: usize = 256 * BLOCK;

/// The exact sum of weighted user updates, in fixed point, with the sum of the weights.
///
/// It can be built and turned into an average, nothing else:
/// ```
/// use undertone_mechanisms::{Denominator, RawSum};
/// let sum = RawSum::new(vec![1 << 40, 0], 1 << 40);
/// assert!(sum.average(Denominator::Fixed(2.0)).is_ok());
/// ```
/// It cannot be printed,
/// ```compile_fail,E0277
/// let sum = undertone_mechanisms::RawSum::new(vec![1 << 40, 0], 1 << 40);
/// println!("{:?}", sum);
/// ```
/// serialised,
/// ```compile_fail,E0277
/// let sum = undertone_mechanisms::RawSum::new(vec![1 << 40, 0], 1 << 40);
/// let text = serde_json::to_string(&sum);
/// ```
/// copied aside,
/// ```compile_fail,E0599
/// let sum = undertone_mechanisms::RawSum::new(vec![1 << 40, 0], 1 << 40);
/// let copy = sum.clone();
/// ```
/// or read:
/// ```compile_fail,E0616
/// let sum = undertone_mechanisms::RawSum::new(vec![1 << 40, 0], 1 << 40);
/// let first = sum.values[0];
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct RawSum {
    values: Vec<i64>,
    weight: i64,
}

/// The divisor of the sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Denominator {
    /// A constant that does not depend on the data: the expected weight `q W` of \[DPLM\].
    Fixed(f64),
    /// The sum of the weights, but never less than this floor: `max(q W_min, sum w_k)` of \[DPLM\].
    FlooredWeight(f64),
    /// The sum of the weights as it is. No sensitivity bound holds: only [`NonPrivate`] releases such an average.
    ObservedWeight,
}

impl Denominator {
    /// The value of one step of the integers of an average.
    ///
    /// PRIVACY: it must not depend on the data: the grid of a release would tell of it.
    ///
    /// # Errors
    /// A denominator or floor that is not positive and finite; [`MechanismError::UnboundedSensitivity`] for the observed
    /// weight, whose grid is the data's.
    pub(crate) fn grid_step(self) -> Result<f64> {
        match self {
            Denominator::Fixed(fixed) => Ok(GRID / positive("denominator", fixed)?),
            Denominator::FlooredWeight(floor) => positive("denominator", floor).map(|_| GRID),
            Denominator::ObservedWeight => Err(MechanismError::UnboundedSensitivity),
        }
    }
}

impl RawSum {
    /// A sum of weighted updates and the sum of their weights, both with [`FRACTION_BITS`] fractional bits.
    #[must_use]
    pub fn new(values: Vec<i64>, weight: i64) -> Self {
        Self { values, weight }
    }

    /// The sum with the values of another one behind its own, under the weight of this one.
    ///
    /// PRIVACY: no contribution may be in both, or its two parts together would be longer than the bound on each.
    #[must_use]
    pub fn followed_by(mut self, other: Self) -> Self {
        self.values.extend(other.values);
        self
    }

    /// The values and the weight, for the difference of an audit.
    pub(crate) fn into_parts(self) -> (Vec<i64>, i64) {
        (self.values, self.weight)
    }

    /// Divides by the denominator.
    ///
    /// With a fixed denominator nothing is divided yet: the noise is added to the integers of the sum, and the
    /// division is post-processing, so no rounding touches the sensitivity. With a data-dependent denominator the
    /// average is truncated toward zero onto the grid first; two neighbouring averages then differ by at most
    /// `sqrt(d) * 2^-40` more than in exact arithmetic.
    ///
    /// # Errors
    /// A denominator that is not positive and finite, and [`MechanismError::NoWeight`] for an observed weight of zero.
    pub fn average(self, denominator: Denominator) -> Result<RawAverage> {
        let weight = self.weight as f64 * GRID;
        let mut values = self.values;
        match denominator {
            Denominator::Fixed(_) => Ok(RawAverage {
                values,
                scale: denominator.grid_step()?,
                bounded_sensitivity: true,
                truncated: false,
                digested: false,
            }),
            Denominator::FlooredWeight(floor) => {
                let reciprocal = positive("denominator", floor)?.max(weight).recip();
                // PRIVACY: the grid of the release must not depend on the data, so a data-dependent quotient is
                // brought back onto the common grid before noise is added. A quotient beyond the range saturates, which moves
                // no two averages apart.
                values
                    .iter_mut()
                    .for_each(|value| *value = (*value as f64 * reciprocal) as i64);
                Ok(RawAverage {
                    values,
                    scale: GRID,
                    bounded_sensitivity: true,
                    truncated: true,
                    digested: false,
                })
            }
            Denominator::ObservedWeight => {
                if self.weight == 0 && values.iter().all(|&value| value == 0) {
                    // Nobody came: an average of nothing that moves nothing.
                    return Ok(RawAverage {
                        values,
                        scale: GRID,
                        bounded_sensitivity: false,
                        truncated: false,
                        digested: false,
                    });
                }
                if self.weight <= 0 {
                    return Err(MechanismError::NoWeight { got: weight });
                }
                Ok(RawAverage {
                    values,
                    scale: GRID / weight,
                    bounded_sensitivity: false,
                    truncated: false,
                    digested: false,
                })
            }
        }
    }
}

/// The average update without noise; as secret as the sum that it comes from.
///
/// ```compile_fail,E0277
/// let sum = undertone_mechanisms::RawSum::new(vec![1 << 40, 0], 1 << 40);
/// println!("{:?}", sum.average(undertone_mechanisms::Denominator::Fixed(2.0)).ok());
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: an average without noise must not be printable"
)]
pub struct RawAverage {
    /// Integers to which noise is added.
    pub(crate) values: Vec<i64>,
    /// The value of one integer step.
    pub(crate) scale: f64,
    /// True if some bound on the influence of one user holds.
    pub(crate) bounded_sensitivity: bool,
    /// True if the integers are truncated quotients, false if they are the sum itself.
    pub(crate) truncated: bool,
    /// True if the release has a digest.
    digested: bool,
}

/// A function that adds noise to the integers of some blocks, given the number of the first one.
pub(crate) type AddNoise<'a> = dyn FnMut(usize, &mut [i64]) -> Result<()> + Send + 'a;

impl RawAverage {
    /// The average whose release has a [`ReleaseDigest`]. One thread hashes the first values while others make the noise of later
    /// ones, so a digest costs less time than one that is computed afterwards.
    #[must_use]
    pub fn with_digest(mut self) -> Self {
        self.digested = true;
        self
    }

    /// Lets `add_noise` change the integers, part by part, and turns them into the release.
    pub(crate) fn release_with(self, noise_std: f64, add_noise: &mut AddNoise<'_>) -> Result<NoisedAverage> {
        let (mut steps, scale) = (self.values, self.scale);
        let mut values = vec![0.0; steps.len()];
        let mut digest = self.digested.then(Digests::default);
        let length = match digest {
            Some(_) => PART,
            None => steps.len().next_multiple_of(BLOCK).max(BLOCK),
        };
        let mut released: &[f32] = &[];
        let parts = values.chunks_mut(length).zip(steps.chunks_mut(length));
        for (part, (values, steps)) in parts.enumerate() {
            let mut release = || -> Result<()> {
                add_noise(part * (length / BLOCK), steps)?;
                let blocks = values.par_chunks_mut(BLOCK).zip(steps.par_chunks(BLOCK));
                blocks.for_each(|(values, steps)| in_units(values, steps, scale));
                Ok(())
            };
            match &mut digest {
                Some(digest) => rayon::join(|| digest.add(released), release).1?,
                None => release()?,
            }
            released = values;
        }
        // The system takes memory of this size back slowly.
        let digest = digest.map(|digest| rayon::join(|| digest.end(released), || drop(steps)).0);
        Ok(NoisedAverage {
            values,
            noise_std,
            digest,
        })
    }
}

/// The digest of a release, of which the first parts were added.
#[derive(Default)]
struct Digests {
    sha256: Sha256,
    squares: f64,
}

impl Digests {
    fn add(&mut self, values: &[f32]) {
        let Self { sha256, squares } = self;
        let hash = || {
            let mut buffer = [0; 4096];
            for block in values.chunks(buffer.len() / 4) {
                for (bytes, value) in buffer.as_chunks_mut().0.iter_mut().zip(block) {
                    *bytes = value.to_le_bytes();
                }
                sha256.update(&buffer[..4 * block.len()]);
            }
        };
        // In the order of the values: another order would round otherwise.
        let square = || {
            values
                .iter()
                .for_each(|&value| *squares += f64::from(value).powi(2));
        };
        rayon::join(hash, square);
    }

    fn end(mut self, last: &[f32]) -> ReleaseDigest {
        self.add(last);
        ReleaseDigest {
            sha256: self.sha256.finalize().into(),
            norm: self.squares.sqrt(),
        }
    }
}

/// A release in short, for a ledger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReleaseDigest {
    /// SHA-256 of the values as little-endian bytes.
    pub sha256: [u8; 32],
    /// The L2 norm of the values.
    pub norm: f64,
}

vectorised! {
    /// `values = scale * steps`, rounded to `f32` once.
    fn in_units(values: &mut [f32], steps: &[i64], scale: f64) {
        for (value, &step) in values.iter_mut().zip(steps) {
            *value = (step as f64 * scale) as f32;
        }
    }
}

/// The average update after the mechanism, which the server optimizer accepts.
#[derive(Clone, PartialEq)]
pub struct NoisedAverage {
    values: Vec<f32>,
    noise_std: f64,
    digest: Option<ReleaseDigest>,
}

impl NoisedAverage {
    /// Values whose noise is in them already.
    pub(crate) fn of_noised(values: Vec<f32>, noise_std: f64) -> Self {
        Self {
            values,
            noise_std,
            digest: None,
        }
    }

    /// The digest of the values, where [`RawAverage::with_digest`] asked for one and no value has changed since.
    #[must_use]
    pub fn digest(&self) -> Option<ReleaseDigest> {
        self.digest
    }

    /// The released average, one value per parameter.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The released average by value.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// Cuts the values from `at` on off, and returns them; `None` where there are none.
    pub fn split_off(&mut self, at: usize) -> Option<Vec<f32>> {
        (at < self.values.len()).then(|| {
            self.digest = None;
            self.values.split_off(at)
        })
    }

    /// The release times a factor that does not depend on the data: post-processing.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.digest = None;
        let blocks = self.values.par_chunks_mut(BLOCK);
        blocks.for_each(|values| {
            values
                .iter_mut()
                .for_each(|value| *value = (f64::from(*value) * factor) as f32);
        });
        self.noise_std *= factor.abs();
        self
    }

    /// Standard deviation of the noise in each coordinate; 0 when none was added.
    #[must_use]
    pub fn noise_std(&self) -> f64 {
        self.noise_std
    }
}

impl std::fmt::Debug for NoisedAverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoisedAverage")
            .field("len", &self.values.len())
            .field("noise_std", &self.noise_std)
            .finish_non_exhaustive()
    }
}

/// The release without noise, for runs that promise nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NonPrivate;

impl NonPrivate {
    /// Releases the average as it is.
    ///
    /// # Guarantee
    /// No guarantee: its event has no finite (eps, delta).
    ///
    /// # Errors
    /// No error today; the signature is that of the private mechanisms.
    pub fn privatize(&self, _round: u64, average: RawAverage) -> Result<NoisedAverage> {
        average.release_with(0.0, &mut |_, _| Ok(()))
    }

    /// The event of such a release.
    #[must_use]
    pub fn event(&self) -> undertone_accounting::Event {
        undertone_accounting::Event::NonPrivate
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::NoiseMultiplier;

    use super::*;
    use crate::testing::{at_least, with_threads};
    use crate::{
        BandedToeplitz, Blt, CorrelatedGaussian, IndependentGaussian, Mechanism, NoiseKey, ReleaseShape,
        Strategy, Tree,
    };

    fn check(denominator: Denominator, weight: i64, expected: Option<&[f32]>) {
        let sum = RawSum::new(vec![6 << 40, -(3 << 39)], weight << 40);
        let released = sum
            .average(denominator)
            .and_then(|average| NonPrivate.privatize(0, average));
        assert_eq!(released.as_ref().ok().map(NoisedAverage::values), expected);
        assert!(released.is_ok_and(|released| released.noise_std() == 0.0) == expected.is_some());
    }

    #[test]
    fn an_average_divides_by_its_denominator() {
        check(Denominator::Fixed(3.0), 0, Some(&[2.0, -0.5]));
        check(Denominator::Fixed(3.0), 9, Some(&[2.0, -0.5]));
        check(Denominator::FlooredWeight(3.0), 0, Some(&[2.0, -0.5]));
        check(Denominator::FlooredWeight(3.0), 6, Some(&[1.0, -0.25]));
        check(Denominator::ObservedWeight, 6, Some(&[1.0, -0.25]));
        check(Denominator::ObservedWeight, 0, None);
        check(Denominator::Fixed(-1.0), 1, None);
        check(Denominator::FlooredWeight(f64::NAN), 1, None);
        check(
            Denominator::FlooredWeight(1e-7),
            0,
            Some(&[8_388_608.0, -8_388_608.0]),
        );
    }

    /// The bits of two rounds with and without digests, of a vector within a part and of one that ends within the third.
    fn check_digests<R: FnMut(u64, RawAverage) -> Result<NoisedAverage> + Send>(begin: impl Fn(usize) -> R) {
        for dim in [1, BLOCK, PART, 2 * PART + BLOCK + 7] {
            let average = || {
                let values = (0..dim as i64).map(|value| (value % 1001 - 500) << 33).collect();
                RawSum::new(values, 0).average(Denominator::Fixed(4.0)).unwrap()
            };
            for threads in [1, 3] {
                let (mut plain, mut digested) = (begin(dim), begin(dim));
                for round in 0..2 {
                    let expected = plain(round, average()).unwrap();
                    let got = with_threads(threads, || digested(round, average().with_digest())).unwrap();
                    assert!(expected.values() == got.values(), "{dim} values, round {round}");
                    assert_eq!(expected.digest(), None);
                    let bytes: Vec<u8> = got
                        .values()
                        .iter()
                        .flat_map(|value| value.to_le_bytes())
                        .collect();
                    let squares = got.values().iter().map(|&value| f64::from(value).powi(2));
                    let digest = got.digest().unwrap();
                    assert_eq!(digest.sha256, <[u8; 32]>::from(Sha256::digest(&bytes)));
                    assert_eq!(digest.norm.to_bits(), squares.sum::<f64>().sqrt().to_bits());
                }
            }
        }
    }

    #[test]
    #[ignore = "slow"]
    fn a_digest_is_that_of_the_values_and_changes_no_bit() {
        let key = || NoiseKey::from_bytes([3; 32]);
        check_digests(|_| |round, average| NonPrivate.privatize(round, average));
        check_digests(|_| {
            let gaussian = IndependentGaussian::new(0.5, key()).unwrap();
            move |round, average| gaussian.privatize(round, average)
        });
        for strategy in [
            Strategy::Tree(Tree::new()),
            Strategy::Blt(Blt::new(&[0.9, 0.5], &[0.3, 0.2]).unwrap()),
            Strategy::BandedToeplitz(BandedToeplitz::new(vec![1.0, 0.5, 0.25]).unwrap()),
        ] {
            check_digests(|dim| {
                let noise = NoiseMultiplier::new(4.0).unwrap();
                let mechanism = Mechanism::new(strategy.clone(), 3, at_least(2, 2), noise).unwrap();
                let shape = ReleaseShape {
                    dim,
                    clip_norm: 0.25,
                    denominator: Denominator::Fixed(4.0),
                    history: None,
                };
                let mut correlated = CorrelatedGaussian::new(mechanism, shape, key()).unwrap();
                move |round, average| correlated.privatize(round, average)
            });
        }
    }

    #[test]
    fn no_digest_outlives_its_values() {
        let released = || {
            let average = RawSum::new(vec![1 << 40, 2 << 40], 0).average(Denominator::Fixed(1.0));
            NonPrivate.privatize(0, average.unwrap().with_digest()).unwrap()
        };
        assert!(released().digest().is_some());
        assert!(released().scaled(0.5).digest().is_none());
        let mut cut = released();
        assert!(cut.split_off(2).is_none() && cut.digest().is_some());
        assert!(cut.split_off(1).is_some() && cut.digest().is_none());
    }

    #[test]
    fn debug_of_the_release_shows_no_values() {
        let average = RawSum::new(vec![1 << 40], 0)
            .average(Denominator::Fixed(1.0))
            .unwrap();
        let text = format!("{:?}", NonPrivate.privatize(0, average).unwrap());
        assert_eq!(text, "NoisedAverage { len: 1, noise_std: 0.0, .. }");
    }
}
