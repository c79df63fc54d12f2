//! Banded lower-triangular strategies (BandMF), plain and amplified by sampling.

use serde::{Deserialize, Serialize};

use super::separated::largest_sum;
use crate::error::ensure;
use crate::participation::{Participation, positive};
use crate::sensitivity::SquaredSensitivity;
use crate::{AccountingError, Event, NoiseMultiplier, SamplingProbability};

/// A lower-triangular matrix whose entries `(i, j)` vanish for `i - j >= bands`.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_accounting::sensitivity::banded::Banded;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// // Columns of unit norm: every participation costs 1 where bands do not overlap.
/// let strategy = Banded::new(4, 2, &[0.8, 0.6, 0.8, 0.6, 0.8, 0.6, 1.0, 0.0])?;
/// let twice = Participation::at_least(Gap::new(2)?, 2)?;
/// assert!((strategy.squared_sensitivity(&twice)?.get() - 2.0).abs() < 1e-15);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Banded {
    bands: usize,
    /// Squared norms of the columns.
    squared_norms: Vec<f64>,
}

impl Banded {
    /// A matrix from its columns: `columns` holds `bands` numbers for each of `rounds` columns, the diagonal entry
    /// first, then those below it. Entries below the last row are not read (a column near the end is shorter).
    ///
    /// # Errors
    /// [`AccountingError::Size`] if the number of entries is not `rounds * bands`;
    /// [`AccountingError::OutOfRange`] for no rounds, no bands, or an entry that is not finite.
    pub fn new(rounds: usize, bands: usize, columns: &[f64]) -> Result<Self, AccountingError> {
        positive(rounds as u64, "rounds")?;
        positive(bands as u64, "bands")?;
        if rounds.checked_mul(bands) != Some(columns.len()) {
            return Err(AccountingError::Size {
                quantity: "entries of a banded matrix",
                expected: format!("{rounds} rounds x {bands} bands"),
                got: columns.len() as u64,
            });
        }
        let norm =
            |(column, entries): (usize, &[f64])| entries.iter().take(rounds - column).map(|x| x * x).sum();
        let squared_norms: Vec<f64> = columns.chunks(bands).enumerate().map(norm).collect();
        for (&entry, norm) in columns
            .iter()
            .zip(squared_norms.iter().flat_map(|norm| vec![norm; bands]))
        {
            let (holds, expected) = (
                entry.is_finite() && norm.is_finite(),
                "a finite number of finite square",
            );
            ensure(holds, "entry of a banded matrix", expected, entry)?;
        }
        Ok(Self { bands, squared_norms })
    }

    /// Width b-hat: diagonals that may be non-zero.
    #[must_use]
    pub fn bands(&self) -> usize {
        self.bands
    }

    /// Rounds of the run: columns of the matrix.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.squared_norms.len()
    }

    /// The exact squared sensitivity where bands of two participations cannot overlap: the largest sum of
    /// squared column norms over participation sets (`k` times the largest when all are equal).
    ///
    /// # Guarantee
    /// Exact under the zero-out relation, whatever the signs of the entries: columns of one set have no row in
    /// common.
    ///
    /// # Errors
    /// [`AccountingError::NoExactSensitivity`] if there are more bands than the gap and a second participation
    /// fits; [`Banded::squared_sensitivity_bound`] still answers.
    ///
    /// # Source
    /// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), Theorem 2.
    pub fn squared_sensitivity(
        &self,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        let schema = participation.effective(self.rounds() as u64)?.participation;
        // PRIVACY: overlapping columns add up, which the sum of squares does not see.
        if self.bands as u64 > schema.gap().get() && schema.max_participation() > 1 {
            return Err(AccountingError::NoExactSensitivity {
                expected: "at most as many bands as the gap has rounds",
                position: usize::try_from(schema.gap().get()).unwrap_or(usize::MAX),
                found: self.bands as f64,
            });
        }
        self.largest(participation)
    }

    /// An upper bound on the squared sensitivity for any number of bands.
    ///
    /// # Guarantee
    /// Never below the true value: in one row at most `m = ceil(bands / gap)` columns of a set are non-zero, and
    /// the square of a sum of m numbers is at most m times the sum of their squares. Equal to
    /// [`Banded::squared_sensitivity`] where that answers.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if the result overflows.
    pub fn squared_sensitivity_bound(
        &self,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        let schema = participation.effective(self.rounds() as u64)?.participation;
        let overlapping = schema
            .gap()
            .fitting(self.bands as u64)
            .min(schema.max_participation());
        SquaredSensitivity::new(overlapping as f64 * self.largest(participation)?.get())
    }

    fn largest(&self, participation: &Participation) -> Result<SquaredSensitivity, AccountingError> {
        let (spacing, gap) = (participation.spacing(), participation.gap());
        SquaredSensitivity::new(largest_sum(
            &self.squared_norms,
            spacing,
            gap,
            participation.max_participation(),
        ))
    }
}

/// A banded strategy whose users are sampled: what it costs, as compositions of a Poisson-sampled Gaussian.
///
/// Users are split once, independently of their data, into as many groups as there are bands. Round `t` draws
/// from group `t mod bands` alone, every user of it independently.
///
/// # Guarantee
/// The run is no less private than [`Amplified::compositions`] rounds of [`Amplified::event`], under
/// add-or-remove one user: a user is exposed in every `bands`-th round only, and what those rounds release about
/// them lies in disjoint rows. It needs all of the above: Poisson sampling inside the group of the round, and a
/// lower-triangular strategy of exactly these bands.
///
/// # Source
/// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization: A unified approach to private training"
/// (2023), Theorem 4.
///
/// # Example
/// ```
/// use undertone_accounting::sensitivity::banded::Amplified;
/// use undertone_accounting::{NoiseMultiplier, SamplingProbability};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let (share, noise) = (SamplingProbability::new(0.01)?, NoiseMultiplier::new(1.0)?);
/// let amplified = Amplified::new(2000, 16, share, noise)?;
/// assert_eq!(amplified.compositions, 125);
/// assert_eq!(amplified.sampling_probability.get(), 0.16);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Amplified {
    /// Probability with which a user of the round's group takes part: the population's times the bands.
    pub sampling_probability: SamplingProbability,
    /// Noise standard deviation over the largest column norm (in clip norms).
    pub noise_multiplier: NoiseMultiplier,
    /// Rounds in which one user can take part: `ceil(rounds / bands)`.
    pub compositions: u64,
}

impl Amplified {
    /// Creates the compositions for `rounds` rounds of a strategy of `bands` bands whose mean cohort is `sampling_probability` of the
    /// population. `noise_multiplier` is relative to the largest column norm.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no rounds or bands, and if one group is too small for the cohort
    /// (`sampling_probability * bands > 1`).
    pub fn new(
        rounds: u64,
        bands: u64,
        sampling_probability: SamplingProbability,
        noise_multiplier: NoiseMultiplier,
    ) -> Result<Self, AccountingError> {
        let compositions = positive(rounds, "rounds")?.div_ceil(positive(bands, "bands")?);
        Ok(Self {
            sampling_probability: SamplingProbability::new(sampling_probability.get() * bands as f64)?,
            noise_multiplier,
            compositions,
        })
    }

    /// One of the compositions.
    #[must_use]
    pub fn event(&self) -> Event {
        Event::PoissonGaussian {
            sampling_probability: self.sampling_probability,
            noise_multiplier: self.noise_multiplier,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sensitivity::exhaustive::{self, at_least};

    #[test]
    fn equal_norms_cost_the_number_of_participations() {
        let strategy = Banded::new(9, 3, &[0.6, 0.8, 0.0].repeat(9)).unwrap();
        let squared = |gap, max_par| {
            strategy
                .squared_sensitivity(&at_least(gap, max_par))
                .unwrap()
                .get()
        };
        // The last column is cut to 0.36.
        assert!((squared(3, 2) - 2.0).abs() < 1e-14 && (squared(4, 3) - 2.36).abs() < 1e-14);
        assert!((squared(8, 5) - 1.36).abs() < 1e-14);
    }

    #[test]
    fn bands_wider_than_the_gap_have_no_exact_sensitivity() {
        let strategy = Banded::new(4, 3, &[1.0; 12]).unwrap();
        let error = strategy
            .squared_sensitivity(&at_least(2, 2))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("at most as many bands as the gap has rounds, got 3"),
            "{error}"
        );
        assert!(strategy.squared_sensitivity(&at_least(2, 1)).is_ok());
        assert!(strategy.squared_sensitivity(&Participation::single()).is_ok());
        assert_eq!(
            Banded::new(3, 2, &[1.0; 5]).unwrap_err().to_string(),
            "entries of a banded matrix: expected 3 rounds x 2 bands, got 5"
        );
        assert!(Banded::new(0, 1, &[]).is_err() && Banded::new(1, 0, &[]).is_err());
        assert!(Banded::new(1, 1, &[f64::NAN]).is_err() && Banded::new(1, 1, &[1e200]).is_err());
        // Unread entries are checked as well: garbage there is garbage elsewhere.
        assert!(Banded::new(1, 2, &[1.0, f64::NAN]).is_err());
    }

    #[test]
    fn amplification_needs_large_enough_groups() {
        let noise = NoiseMultiplier::new(2.0).unwrap();
        let share = |q| SamplingProbability::new(q).unwrap();
        assert_eq!(
            Amplified::new(100, 3, share(0.5), noise).unwrap_err().to_string(),
            "sampling_probability: expected a number in (0, 1], got 1.5"
        );
        assert!(Amplified::new(0, 3, share(0.1), noise).is_err());
        assert!(Amplified::new(10, 0, share(0.1), noise).is_err());
        // One band is ordinary sampling.
        let plain = Amplified::new(10, 1, share(0.1), noise).unwrap();
        assert_eq!((plain.compositions, plain.sampling_probability.get()), (10, 0.1));
        assert_eq!(
            plain.event(),
            Event::PoissonGaussian {
                sampling_probability: share(0.1),
                noise_multiplier: noise
            }
        );
        // The last group's rounds may be one fewer; the first group's count.
        assert_eq!(Amplified::new(10, 3, share(0.1), noise).unwrap().compositions, 4);
    }

    fn columns() -> impl Strategy<Value = (usize, usize, Vec<f64>)> {
        (1usize..=11, 1usize..=4).prop_flat_map(|(rounds, bands)| {
            (
                Just(rounds),
                Just(bands),
                prop::collection::vec(-1.0..1.0f64, rounds * bands),
            )
        })
    }

    proptest! {
        #[test]
        fn the_sensitivity_is_the_maximum_over_all_sets(
            (rounds, bands, columns) in columns(),
            schema in exhaustive::schema(6, 5),
            signs in prop::collection::vec(prop::bool::ANY, 11),
        ) {
            let entry = |i: usize, j: usize| if i - j < bands { columns[j * bands + i - j] } else { 0.0 };
            let squared_norm = |set: &[usize]| {
                let row = |i: usize| -> f64 {
                    set.iter().filter(|&&j| j <= i).map(|&j| if signs[j] { entry(i, j) } else { -entry(i, j) }).sum()
                };
                (0..rounds).map(|i| row(i) * row(i)).sum()
            };
            let want = exhaustive::maximum(rounds, &schema, squared_norm);
            let strategy = Banded::new(rounds, bands, &columns).unwrap();
            let bound = strategy.squared_sensitivity_bound(&schema).unwrap().get();
            prop_assert!(bound >= want * (1.0 - 1e-12));
            if let Ok(got) = strategy.squared_sensitivity(&schema) {
                prop_assert!((got.get() - want).abs() <= 1e-12 * want, "{} {}", got, want);
                prop_assert_eq!(got.get(), bound);
            } else {
                prop_assert!(bands as u64 > schema.gap().get());
            }
        }
    }
}
