//! The cost of a real sampler's distance from the ideal one.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use undertone_accounting::{Delta, Epsilon, Guarantee};

use crate::error::{MechanismError, Result, ensure};

/// A bound on the total variation distance between the samples of one release, or of all releases of a run, and ideal
/// ones.
///
/// Distances of releases add up, also where each release depends on those before it: a run's is the sum of its rounds'.
///
/// # Guarantee
/// A mechanism that is (epsilon, delta) with ideal samples is (epsilon, delta + [`delta(epsilon)`](Self::delta)) with the
/// real ones. For any set `O` of outcomes and neighbours `x`, `x'`, with `t` this distance,
/// `Pr[M(x) in O] <= Pr[ideal(x) in O] + t <= e^epsilon Pr[ideal(x') in O] + delta + t
/// <= e^epsilon (Pr[M(x') in O] + t) + delta + t`.
///
/// # Source
/// The triangle inequality as above; \[cpSGD\] and Canonne, Kamath, Steinke (2020) use it in the same way.
///
/// # Example
/// ```
/// use undertone_accounting::{Accountant, Adjacency, Delta, Event, NoiseMultiplier, Recipe};
/// use undertone_mechanisms::{Denominator, IndependentGaussian, MechanismError, NoiseKey};
///
/// // Ten rounds of a small model.
/// let mechanism = IndependentGaussian::new(0.02, NoiseKey::from_bytes([7; 32]))?;
/// let event = Event::Gaussian { noise_multiplier: NoiseMultiplier::new(mechanism.noise_multiplier(0.01)?)? };
/// let distance = mechanism.sampler_distance(Denominator::Fixed(100.0), 4_000_000)?.times(10);
/// let guarantee = distance.guarantee(Delta::new(1e-9)?, |delta| {
///     let mut accountant = Accountant::under(Recipe::ExactGaussian, Adjacency::AddOrRemoveOne);
///     accountant.compose(&event, 10)?;
///     Ok::<_, MechanismError>(accountant.guarantee(delta)?)
/// })?;
/// assert_eq!(guarantee.delta.get(), 1e-9);
/// assert!(distance.delta(guarantee.epsilon) < 1e-18);
/// # Ok::<(), MechanismError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct SamplerDistance {
    total_variation: f64,
}

impl SamplerDistance {
    /// Samples that are ideal.
    pub const NONE: Self = Self { total_variation: 0.0 };

    /// A distance from a bound on the total variation.
    ///
    /// # Errors
    /// [`MechanismError::Setting`] for a bound that is negative or not finite.
    pub fn new(total_variation: f64) -> Result<Self> {
        let expected = "finite and at least 0";
        let holds = total_variation >= 0.0 && total_variation.is_finite();
        ensure(holds, "total variation of the samples", expected, total_variation)?;
        Ok(Self { total_variation })
    }

    /// The bound on the total variation distance.
    #[must_use]
    pub fn total_variation(self) -> f64 {
        self.total_variation
    }

    /// The distance of so many releases, each at this distance.
    #[must_use]
    pub fn times(self, releases: u64) -> Self {
        Self {
            total_variation: self.total_variation * releases as f64,
        }
    }

    /// The part of delta at `epsilon` that the distance adds: `(1 + e^epsilon) * total variation`.
    #[must_use]
    pub fn delta(self, epsilon: Epsilon) -> f64 {
        added_delta(self.total_variation, epsilon.get())
    }

    /// The guarantee at `delta` in all of what is `ideal` with ideal samples.
    ///
    /// `ideal` is asked for its guarantee at what remains of delta: all but the smallest of a few shares that this distance
    /// fits in. As good as always that is the first, a part in `10^9`, and `ideal` is asked once.
    ///
    /// # Errors
    /// [`MechanismError::SamplerExceedsDelta`] where half of delta is not enough for the samples; those of `ideal`.
    pub fn guarantee<E: From<MechanismError>>(
        self,
        delta: Delta,
        mut ideal: impl FnMut(Delta) -> Result<Guarantee, E>,
    ) -> Result<Guarantee, E> {
        let mut sampler = f64::INFINITY;
        for share in [1e-9, 1e-6, 1e-3, 0.5] {
            let remaining = Delta::new(delta.get() * (1.0 - share)).map_err(MechanismError::from)?;
            let ideal = ideal(remaining)?;
            sampler = self.delta(ideal.epsilon);
            if sampler <= share * delta.get() {
                return Ok(Guarantee { delta, ..ideal });
            }
        }
        let delta = delta.get();
        Err(MechanismError::SamplerExceedsDelta { delta, sampler }.into())
    }
}

impl Add for SamplerDistance {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            total_variation: self.total_variation + other.total_variation,
        }
    }
}

impl AddAssign for SamplerDistance {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for SamplerDistance {
    fn sum<I: Iterator<Item = Self>>(distances: I) -> Self {
        distances.fold(Self::NONE, Add::add)
    }
}

/// `(1 + e^epsilon) * total_variation`; no samples add nothing, however large epsilon is.
pub(super) fn added_delta(total_variation: f64, epsilon: f64) -> f64 {
    if total_variation == 0.0 {
        return 0.0;
    }
    (1.0 + epsilon.exp()) * total_variation
}

#[cfg(test)]
mod tests {
    use undertone_accounting::{Adjacency, Recipe, Sampling};

    use super::*;

    fn guarantee(epsilon: f64, delta: Delta) -> Guarantee {
        Guarantee {
            epsilon: Epsilon::new(epsilon).unwrap(),
            delta,
            adjacency: Adjacency::ZeroOut,
            sampling: Sampling::FullParticipation,
            recipe: Recipe::ExactGaussian,
            optimal_order: None,
        }
    }

    #[test]
    fn distances_add_up() {
        let one = SamplerDistance::new(0.25).unwrap();
        assert_eq!((one + one.times(3)).total_variation(), 1.0);
        assert_eq!([one; 5].into_iter().sum::<SamplerDistance>(), one.times(5));
        let mut sum = SamplerDistance::NONE;
        sum += one;
        assert_eq!(sum, one);
        assert_eq!(SamplerDistance::default(), SamplerDistance::NONE);
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(SamplerDistance::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn delta_is_that_of_the_formula() {
        let distance = SamplerDistance::new(1e-20).unwrap();
        let at = |epsilon: f64| distance.delta(Epsilon::new(epsilon).unwrap());
        assert_eq!(at(0.0), 2e-20);
        assert!((at(3.0f64.ln()) - 4e-20).abs() < 1e-34);
        assert_eq!(at(1e6), f64::INFINITY);
        assert_eq!(SamplerDistance::NONE.delta(Epsilon::new(1e6).unwrap()), 0.0);
    }

    /// The guarantee holds for random distributions on five outcomes, moved by the distance: `excess` is the worst of all
    /// sets of outcomes.
    #[test]
    fn perturbed_distributions_keep_the_guarantee() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 11) as f64 * 0.5f64.powi(53)
        };
        let mut tightest = 0.0f64;
        for _ in 0..2000 {
            let mut distribution = || {
                let masses: [f64; 5] = std::array::from_fn(|_| random() + 0.01);
                masses.map(|mass| mass / masses.iter().sum::<f64>())
            };
            let [ideal, other, toward, toward_other] = std::array::from_fn(|_| distribution());
            let epsilon: f64 = 0.3;
            let excess = |one: &[f64; 5], two: &[f64; 5]| -> f64 {
                one.iter()
                    .zip(two)
                    .map(|(p, q)| (p - epsilon.exp() * q).max(0.0))
                    .sum()
            };
            let delta = excess(&ideal, &other);
            let mix = |from: &[f64; 5], to: &[f64; 5]| -> [f64; 5] {
                std::array::from_fn(|i| 0.95 * from[i] + 0.05 * to[i])
            };
            let (real, real_other) = (mix(&ideal, &toward), mix(&other, &toward_other));
            let moved = |one: &[f64; 5], two: &[f64; 5]| -> f64 {
                0.5 * one.iter().zip(two).map(|(p, q)| (p - q).abs()).sum::<f64>()
            };
            let distance = moved(&real, &ideal).max(moved(&real_other, &other));
            let stated = delta + added_delta(distance, epsilon);
            let actual = excess(&real, &real_other);
            assert!(actual <= stated + 1e-15, "{actual} beyond {stated}");
            tightest = tightest.max(actual / stated);
        }
        assert!(tightest > 0.5, "{tightest}");
    }

    #[test]
    fn guarantees_leave_room_for_the_samples() {
        let delta = Delta::new(1e-6).unwrap();
        let check = |total_variation: f64, share: f64, asked: usize| {
            let mut remaining = Vec::new();
            let distance = SamplerDistance::new(total_variation).unwrap();
            let result = distance.guarantee(delta, |rest| {
                remaining.push(rest.get());
                Ok::<_, MechanismError>(guarantee(0.0, rest))
            });
            assert_eq!(result.unwrap(), guarantee(0.0, delta));
            assert_eq!(remaining.last(), Some(&(1e-6 * (1.0 - share))));
            assert_eq!(remaining.len(), asked);
        };
        check(0.0, 1e-9, 1);
        check(0.4e-15, 1e-9, 1);
        check(0.6e-15, 1e-6, 2);
        check(0.6e-12, 1e-3, 3);
        check(0.6e-9, 0.5, 4);
        let too_far = SamplerDistance::new(0.3e-6).unwrap();
        let error = too_far.guarantee(delta, |rest| Ok::<_, MechanismError>(guarantee(0.0, rest)));
        let expected = MechanismError::SamplerExceedsDelta {
            delta: 1e-6,
            sampler: 0.6e-6,
        };
        assert_eq!(error.unwrap_err(), expected);
        let refused = too_far.guarantee(delta, |_| Err(MechanismError::Interrupted));
        assert_eq!(refused.unwrap_err(), MechanismError::Interrupted);
    }
}
