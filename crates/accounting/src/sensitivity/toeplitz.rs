//! Lower-triangular Toeplitz strategies: every round's sum enters the later releases with the same coefficients.

use crate::AccountingError;
use crate::error::{ensure, ensure_any};
use crate::participation::{EffectiveParticipation, Participation};
use crate::sensitivity::{SquaredSensitivity, sizes};

/// A lower-triangular Toeplitz matrix: entry `(i, j)` is `coefficients[i - j]`.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_accounting::sensitivity::toeplitz::Toeplitz;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let prefix_sums = Toeplitz::new(vec![1.0; 4])?;
/// let twice = Participation::at_least(Gap::new(2)?, 2)?;
/// // Rounds 0 and 2: the column is (1, 1, 2, 2).
/// assert_eq!(prefix_sums.squared_sensitivity(&twice)?.get(), 10.0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Toeplitz {
    coefficients: Vec<f64>,
}

impl Toeplitz {
    /// A matrix from one finite coefficient per round, the diagonal's first; the run has as many rounds.
    ///
    /// # Errors
    /// [`AccountingError::Size`] for no coefficient, [`AccountingError::OutOfRange`] for one that is not finite.
    pub fn new(coefficients: Vec<f64>) -> Result<Self, AccountingError> {
        ensure_any("coefficients", &coefficients)?;
        for &coefficient in &coefficients {
            finite(coefficient, "coefficient")?;
        }
        Ok(Self { coefficients })
    }

    /// A banded matrix over `rounds` rounds: coefficients beyond the given ones are 0, and those beyond the run
    /// are dropped.
    ///
    /// # Errors
    /// As [`Toeplitz::new`]; [`AccountingError::OutOfRange`] for no rounds.
    pub fn banded(mut bands: Vec<f64>, rounds: usize) -> Result<Self, AccountingError> {
        for &band in &bands {
            finite(band, "coefficient")?;
        }
        if bands.is_empty() {
            return Self::new(bands);
        }
        bands.resize(rounds, 0.0);
        Self::new(bands)
    }

    /// BLT(theta, omega) over `rounds` rounds: `c_0 = 1`, `c_i = sum_j omega_j theta_j^(i - 1)`.
    ///
    /// # Errors
    /// [`AccountingError::Size`] for unequal numbers of decays and scales or no rounds,
    /// [`AccountingError::OutOfRange`] for a theta outside `(0, 1]` or a negative omega.
    ///
    /// # Source
    /// \[BLT\] equation 2.
    pub fn buffered(theta: &[f64], omega: &[f64], rounds: usize) -> Result<Self, AccountingError> {
        if theta.len() != omega.len() {
            return Err(AccountingError::Size {
                quantity: "omega",
                expected: format!("one for each of {} theta", theta.len()),
                got: omega.len() as u64,
            });
        }
        for &decay in theta {
            ensure(decay > 0.0 && decay <= 1.0, "theta", "a number in (0, 1]", decay)?;
        }
        for &scale in omega {
            let holds = scale.is_finite() && scale >= 0.0;
            ensure(holds, "omega", "a finite number >= 0", scale)?;
        }
        // By products, not powers: rounding then keeps every term, and the sum, from growing.
        let mut terms = omega.to_vec();
        let decaying = (1..rounds).map(|_| {
            let coefficient = terms.iter().sum();
            terms
                .iter_mut()
                .zip(theta)
                .for_each(|(term, decay)| *term *= decay);
            coefficient
        });
        Self::new([1.0].into_iter().take(rounds).chain(decaying).collect())
    }

    /// The coefficients, one per round.
    #[must_use]
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// The exact squared sensitivity, `|| sum_{j < k} c shifted by j b ||^2` with shifts below the number of
    /// rounds: participating as early and as often as the schema allows is the worst case.
    ///
    /// # Guarantee
    /// Exact under the zero-out relation, for both kinds of spacing (the worst set is evenly spaced). Where no two
    /// columns of a set meet in a row (one participation, or no coefficient from the gap on) it is exact for any
    /// coefficients: the sum of squared column norms, which fall from left to right.
    ///
    /// # Errors
    /// [`AccountingError::NoExactSensitivity`] if columns meet and a coefficient is negative or exceeds the one before:
    /// the formula would be a lower bound then. [`Toeplitz::squared_sensitivity_bound`] still answers.
    ///
    /// # Source
    /// \[BLT\] Theorem 3.1 (Kalinin and Lampert, 2024, Theorem 2).
    pub fn squared_sensitivity(
        &self,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        let effective = participation.effective(self.coefficients.len() as u64)?;
        let (gap, max_par) = sizes(&effective.participation, self.coefficients.len());
        let after_gap = self.coefficients.iter().skip(gap);
        if max_par == 1 || after_gap.clone().all(|&coefficient| coefficient == 0.0) {
            return columns_apart(&self.coefficients, &effective);
        }
        // PRIVACY: outside its condition Theorem 3.1 under-reports; refuse instead.
        for (position, &coefficient) in self.coefficients.iter().enumerate() {
            let before = position
                .checked_sub(1)
                .map_or(f64::INFINITY, |i| self.coefficients[i]);
            if coefficient < 0.0 || coefficient > before {
                return Err(AccountingError::NoExactSensitivity {
                    expected: "coefficients that are non-negative and nowhere greater than the one before",
                    position,
                    found: coefficient,
                });
            }
        }
        early_squared_norm(&self.coefficients, &effective)
    }

    /// An upper bound on the squared sensitivity, for any coefficients: the exact value of the matrix whose
    /// coefficients are `max_{i' >= i} |c_i'|`.
    ///
    /// # Guarantee
    /// Never below the true value: entries only grow in magnitude, so does every `|| C u ||` by the triangle
    /// inequality, and the majorant meets the condition of Theorem 3.1. Equal to
    /// [`Toeplitz::squared_sensitivity`] where that answers.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if the result overflows.
    pub fn squared_sensitivity_bound(
        &self,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        let mut majorant = self.coefficients.clone();
        let mut largest = 0.0;
        for coefficient in majorant.iter_mut().rev() {
            largest = coefficient.abs().max(largest);
            *coefficient = largest;
        }
        let effective = participation.effective(majorant.len() as u64)?;
        early_squared_norm(&majorant, &effective)
    }
}

/// The sum of the squared norms of columns `0, b, 2 b, ...`, each cut at the last row.
fn columns_apart(
    coefficients: &[f64],
    effective: &EffectiveParticipation,
) -> Result<SquaredSensitivity, AccountingError> {
    let rounds = coefficients.len();
    let (gap, max_par) = sizes(&effective.participation, rounds);
    let mut norm = 0.0;
    let norms: Vec<f64> = coefficients
        .iter()
        .map(|coefficient| {
            norm += coefficient * coefficient;
            norm
        })
        .collect();
    SquaredSensitivity::new(norms.iter().rev().step_by(gap).take(max_par).sum())
}

/// The squared norm of the sum of columns `0, b, 2 b, ...`, in time linear in the rounds.
fn early_squared_norm(
    coefficients: &[f64],
    effective: &EffectiveParticipation,
) -> Result<SquaredSensitivity, AccountingError> {
    let rounds = coefficients.len();
    let (gap, max_par) = sizes(&effective.participation, rounds);
    let mut sum = 0.0;
    for first in 0..gap {
        let strided: Vec<f64> = coefficients[first..].iter().step_by(gap).copied().collect();
        sum += window_sums(&strided, max_par)
            .iter()
            .map(|entry| entry * entry)
            .sum::<f64>();
    }
    SquaredSensitivity::new(sum)
}

/// Sums of the last `width` values up to each place. Prefix and suffix sums of blocks of `width`: additions
/// only, so nothing cancels.
fn window_sums(values: &[f64], width: usize) -> Vec<f64> {
    let mut suffix = values.to_vec();
    for i in (0..values.len().saturating_sub(1)).rev() {
        if !(i + 1).is_multiple_of(width) {
            suffix[i] += suffix[i + 1];
        }
    }
    let mut prefix = 0.0;
    let windows = values.iter().enumerate().map(|(i, value)| {
        prefix = if i.is_multiple_of(width) {
            *value
        } else {
            prefix + value
        };
        match (i + 1).checked_sub(width) {
            Some(begin) if !begin.is_multiple_of(width) => suffix[begin] + prefix,
            _ => prefix,
        }
    });
    windows.collect()
}

fn finite(value: f64, quantity: &'static str) -> Result<f64, AccountingError> {
    ensure(value.is_finite(), quantity, "a finite number", value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::participation::RoundsBetween;
    use crate::sensitivity::exhaustive::{self, at_least};
    use crate::{Delta, NoiseMultiplier, zcdp};

    /// `|| C u ||^2` for the 0/1 vector of a set.
    fn squared_norm(coefficients: &[f64], set: &[usize]) -> f64 {
        let row = |i: usize| -> f64 {
            set.iter()
                .filter(|&&j| j <= i)
                .map(|&j| coefficients[i - j])
                .sum()
        };
        (0..coefficients.len()).map(|i| row(i) * row(i)).sum()
    }

    /// [BLT] Table 4; the values from the Appendix A coefficients by an independent implementation.
    #[test]
    fn production_runs_have_their_sensitivity_and_epsilon() {
        let check =
            |theta: &[f64], omega: &[f64], (rounds, min_sep, max_par), noise, squared: f64, epsilon: f64| {
                let strategy = Toeplitz::buffered(theta, omega, rounds).unwrap();
                let schema = Participation::at_least(RoundsBetween::new(min_sep).gap(), max_par).unwrap();
                let got = strategy.squared_sensitivity(&schema).unwrap();
                assert!((got.get() - squared).abs() <= 1e-12 * squared, "{got} {squared}");
                assert_eq!(strategy.squared_sensitivity_bound(&schema).unwrap(), got);
                let rho = got.rho(NoiseMultiplier::new(noise).unwrap()).unwrap();
                let got = zcdp::epsilon_of_gaussians(rho, Delta::new(1e-10).unwrap())
                    .unwrap()
                    .get();
                assert!((got - epsilon).abs() <= 1e-9 * epsilon, "{got} {epsilon}");
            };
        let theta = [
            0.999_999_999_992_125_1,
            0.994_445_308_364_099_7,
            0.898_592_347_460_759_1,
            0.491_200_141_809_877_8,
        ];
        let omega = [
            0.007_031_482_550_232_383_5,
            0.106_138_069_076_005_74,
            0.189_815_906_032_762_5,
            0.196_659_474_807_373_4,
        ];
        check(
            &theta,
            &omega,
            (1280, 300, 4),
            7.379,
            16.702_031_995_826_92,
            3.456_473_847_195_315_6,
        );
        check(
            &theta,
            &omega,
            (2350, 447, 5),
            7.379,
            21.222_954_954_523_974,
            3.929_212_098_053_503,
        );
        let theta = [
            0.989_739_971_007_307,
            0.735_200_175_953_823_6,
            0.167_761_999_834_481_45,
            0.167_761_999_801_619_1,
        ];
        let omega = [
            0.205_028_928_524_808_75,
            0.233_579_394_252_785_57,
            0.034_795_032_454_208_78,
            0.034_795_098_760_505_38,
        ];
        check(
            &theta,
            &omega,
            (320, 49, 6),
            5.5,
            45.313_669_423_661_95,
            8.184_410_173_584_356,
        );
    }

    #[test]
    fn rising_and_negative_coefficients_have_no_exact_sensitivity() {
        let schema = at_least(1, 2);
        let message = |coefficients: &[f64]| {
            let strategy = Toeplitz::new(coefficients.to_vec()).unwrap();
            strategy.squared_sensitivity(&schema).unwrap_err().to_string()
        };
        let rising = message(&[1.0, 0.5, 0.6]);
        assert!(
            rising.contains("got 0.6 at position 2") && rising.contains("_bound"),
            "{rising}"
        );
        assert!(message(&[1.0, -0.1]).contains("got -0.1 at position 1"));
        for bad in [vec![], vec![1.0, f64::NAN], vec![f64::INFINITY]] {
            assert!(Toeplitz::new(bad).is_err());
        }
        assert!(Toeplitz::banded(vec![], 3).is_err() && Toeplitz::banded(vec![1.0], 0).is_err());
        assert!(Toeplitz::banded(vec![1.0, f64::NAN], 1).is_err());
        assert!(Toeplitz::buffered(&[0.5], &[], 4).is_err());
        assert!(Toeplitz::buffered(&[0.0], &[0.5], 4).is_err());
        assert!(Toeplitz::buffered(&[1.1], &[0.5], 4).is_err());
        assert!(Toeplitz::buffered(&[0.5], &[-0.5], 4).is_err());
        assert!(Toeplitz::buffered(&[0.5], &[0.5], 0).is_err());
        assert!(
            Toeplitz::new(vec![1e200])
                .unwrap()
                .squared_sensitivity(&schema)
                .is_err()
        );
    }

    #[test]
    fn a_blt_has_its_coefficients_and_refuses_steep_ones() {
        let strategy = Toeplitz::buffered(&[0.5, 1.0], &[0.4, 0.1], 4).unwrap();
        let want = [1.0, 0.5, 0.3, 0.2];
        for (got, want) in strategy.coefficients().iter().zip(want) {
            assert!((got - want).abs() < 1e-15);
        }
        // Scales that sum to more than one break the condition at the first step.
        let steep = Toeplitz::buffered(&[0.5, 0.5], &[0.8, 0.4], 4).unwrap();
        assert!(steep.squared_sensitivity(&at_least(1, 2)).is_err());
        // One participation cannot meet itself.
        assert!(steep.squared_sensitivity(&at_least(1, 1)).is_ok());
        assert!(steep.squared_sensitivity_bound(&at_least(1, 1)).is_ok());
    }

    proptest! {
        #[test]
        fn the_sensitivity_is_the_maximum_over_all_sets(
            steps in prop::collection::vec(prop_oneof![Just(0.0), 0.0..1.0f64], 1..=12),
            schema in exhaustive::schema(6, 5),
        ) {
            let mut coefficients: Vec<f64> = steps;
            for i in (1..coefficients.len()).rev() {
                coefficients[i - 1] += coefficients[i];
            }
            let want = exhaustive::maximum(coefficients.len(), &schema, |set| squared_norm(&coefficients, set));
            let got = Toeplitz::new(coefficients).unwrap().squared_sensitivity(&schema).unwrap().get();
            prop_assert!((got - want).abs() <= 1e-12 * want, "{} {}", got, want);
        }

        #[test]
        fn the_bound_holds_for_any_signs(
            coefficients in prop::collection::vec(-1.0..1.0f64, 1..=11),
            schema in exhaustive::schema(6, 5),
            signs in prop::collection::vec(prop::bool::ANY, 11),
        ) {
            // Users may move rounds in opposite directions.
            let signed = |set: &[usize]| {
                let row = |i: usize| -> f64 {
                    let reach = set.iter().filter(|&&j| j <= i);
                    reach.map(|&j| if signs[j] { coefficients[i - j] } else { -coefficients[i - j] }).sum()
                };
                (0..coefficients.len()).map(|i| row(i) * row(i)).sum()
            };
            let largest = exhaustive::maximum(coefficients.len(), &schema, signed);
            let strategy = Toeplitz::new(coefficients.clone()).unwrap();
            let bound = strategy.squared_sensitivity_bound(&schema).unwrap().get();
            prop_assert!(bound >= largest * (1.0 - 1e-12), "{} {}", bound, largest);
        }

        #[test]
        fn exact_for_any_signs_where_columns_are_apart(
            coefficients in prop::collection::vec(-1.0..1.0f64, 1..=12),
            gap in 1u64..6,
            max_par in 1u64..5,
            bands in 1usize..6,
        ) {
            let max_par = if bands as u64 > gap { 1 } else { max_par };
            let mut coefficients = coefficients;
            if max_par > 1 {
                coefficients.iter_mut().skip(bands).for_each(|coefficient| *coefficient = 0.0);
            }
            let schema = at_least(gap, max_par);
            let want = exhaustive::maximum(coefficients.len(), &schema, |set| squared_norm(&coefficients, set));
            let got = Toeplitz::new(coefficients).unwrap().squared_sensitivity(&schema).unwrap().get();
            prop_assert!((got - want).abs() <= 1e-12 * want, "{} {}", got, want);
        }

        #[test]
        fn sensitivity_rises_with_rounds_and_falls_with_gap(
            decay in 0.1..1.0f64, scale in 0.0..1.0f64, gap in 1u64..40, max_par in 1u64..9, more in 1u64..20,
        ) {
            let squared = |rounds, gap, max_par| {
                let strategy = Toeplitz::buffered(&[decay], &[scale], rounds).unwrap();
                strategy.squared_sensitivity(&at_least(gap, max_par)).unwrap().get() * (1.0 + 1e-12)
            };
            let base = squared(100, gap, max_par) / (1.0 + 1e-12);
            prop_assert!(squared(100 + more as usize, gap, max_par) >= base);
            prop_assert!(squared(100, gap, max_par + more) >= base);
            prop_assert!(squared(100, gap + more, max_par) <= base * (1.0 + 3e-12));
        }

        #[test]
        fn window_sums_match_the_definition(
            values in prop::collection::vec(0u32..100, 0..30), width in 1usize..12,
        ) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            for (i, got) in window_sums(&values, width).into_iter().enumerate() {
                prop_assert_eq!(got, values[(i + 1).saturating_sub(width)..=i].iter().sum::<f64>());
            }
        }
    }
}
