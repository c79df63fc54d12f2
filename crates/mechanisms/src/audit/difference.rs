//! The difference that one user makes to a sum.

use super::Definition;
use crate::error::{Result, ensure};
use crate::release::{FRACTION_BITS, NoisedAverage, RawSum};
use crate::residues::RawResidues;

/// The difference of two sums, in steps of `2^-40`.
///
/// It has no reader. It cannot be printed,
/// ```compile_fail,E0277
/// use undertone_mechanisms::{RawSum, audit::Difference};
/// let sum = || RawSum::new(vec![1 << 40, 0], 1 << 40);
/// println!("{:?}", Difference::between(sum(), sum()).unwrap());
/// ```
/// or read:
/// ```compile_fail,E0616
/// use undertone_mechanisms::{RawSum, audit::Difference};
/// let sum = || RawSum::new(vec![1 << 40, 0], 1 << 40);
/// let first = Difference::between(sum(), sum()).unwrap().steps[0];
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: the contribution of one user must not be printable"
)]
pub struct Difference {
    steps: Vec<i128>,
    weight: i128,
}

impl Difference {
    /// The sum with a user less the sum without; both are gone.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for sums of different lengths.
    pub fn between(with: RawSum, without: RawSum) -> Result<Self> {
        let ((with, of_with), (without, of_without)) = (with.into_parts(), without.into_parts());
        let expected = "the length of the other sum";
        let holds = with.len() == without.len();
        ensure(holds, "length of a sum", expected, without.len() as f64)?;
        let pairs = with.into_iter().zip(without);
        Ok(Self {
            steps: pairs.map(|(a, b)| i128::from(a) - i128::from(b)).collect(),
            weight: i128::from(of_with) - i128::from(of_without),
        })
    }

    /// The difference of two sums modulo the same number, in whole steps, each value the one nearest to zero; both sums are gone.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for sums of different lengths or moduli.
    pub fn between_residues(with: RawResidues, without: RawResidues) -> Result<Self> {
        let ((with, modulus), (without, other)) = (with.into_parts(), without.into_parts());
        let holds = with.len() == without.len() && modulus == other;
        ensure(
            holds,
            "modulus or length of a sum",
            "those of the other sum",
            other as f64,
        )?;
        let nearest = |(a, b): (u64, u64)| {
            let value = (i128::from(a) - i128::from(b)).rem_euclid(i128::from(modulus));
            match 2 * value > i128::from(modulus) {
                true => value - i128::from(modulus),
                false => value,
            }
        };
        Ok(Self {
            steps: with.into_iter().zip(without).map(nearest).collect(),
            weight: 0,
        })
    }

    /// [`within`](Self::within) for whole steps: the sum of squares against `floor(bound^2)`.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a bound that is negative or not finite.
    pub fn within_steps(&self, bound: f64) -> Result<bool> {
        self.within(bound * f64::exp2(-f64::from(FRACTION_BITS)))
    }

    /// `true` if the norm is at most `bound`, in exact integers: the sum of squares against `floor(bound^2 2^80)`.
    ///
    /// There is no tolerance, since a sum truncates every clipped value toward zero.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a bound that is negative or not finite.
    pub fn within(&self, bound: f64) -> Result<bool> {
        let expected = "a finite number >= 0";
        ensure(
            bound >= 0.0 && bound.is_finite(),
            "bound on a sum",
            expected,
            bound,
        )?;
        let square = |step: &i128| step.unsigned_abs().saturating_mul(step.unsigned_abs());
        let total = self.steps.iter().map(square).fold(0, u128::saturating_add);
        Ok(total <= squared_steps(bound))
    }

    /// `true` if both differences are the same, weight included.
    #[must_use]
    pub fn is_exactly(&self, other: &Self) -> bool {
        self.weight == other.weight && self.steps == other.steps
    }

    /// `true` if two releases that drew equal noise differ by this difference, divided by `denominator`, up to the rounding of a release.
    ///
    /// Noise that knew the data, the size of the cohort or the sum would leave more.
    #[must_use]
    pub fn explains(&self, with: &NoisedAverage, without: &NoisedAverage, denominator: f64) -> bool {
        let (with, without) = (with.values(), without.values());
        let step = f64::exp2(-f64::from(FRACTION_BITS)) / denominator;
        let one = |((&with, &without), &steps): ((&f32, &f32), &i128)| {
            // Each value was rounded to `f32` once, and its integers to `f64`.
            let (with, without) = (f64::from(with), f64::from(without));
            let rounding = f64::exp2(-23.0) * (with.abs() + without.abs()) + f64::exp2(-149.0);
            (with - without - steps as f64 * step).abs() <= rounding
        };
        with.len() == self.steps.len()
            && without.len() == self.steps.len()
            && with.iter().zip(without).zip(&self.steps).all(one)
    }

    /// `true` if the differences of one user's rounds move the whole run by at most `bound`: `|C D|_F <= bound`.
    ///
    /// The norm follows from the Gram matrix of the differences, so no matrix of all rounds is made. The comparison allows a relative
    /// error of `1e-9`, that of the sums in `f64`.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round outside the definition, or differences of different lengths.
    pub fn all_within(rounds: &[(usize, Self)], definition: &Definition, bound: f64) -> Result<bool> {
        let columns = rounds.iter().map(|(round, _)| definition.column(*round));
        let columns: Vec<Vec<f64>> = columns.collect::<Result<_>>()?;
        let mut total = 0.0;
        for (i, (_, a)) in rounds.iter().enumerate() {
            for (j, (_, b)) in rounds.iter().enumerate().take(i + 1) {
                let expected = "the length of the first difference";
                let length = a.steps.len();
                ensure(
                    b.steps.len() == length,
                    "length of a difference",
                    expected,
                    length as f64,
                )?;
                let of_rounds: f64 = columns[i].iter().zip(&columns[j]).map(|(x, y)| x * y).sum();
                let of_sums: f64 = a
                    .steps
                    .iter()
                    .zip(&b.steps)
                    .map(|(&x, &y)| x as f64 * y as f64)
                    .sum();
                total += of_rounds * of_sums * if i == j { 1.0 } else { 2.0 };
            }
        }
        let norm = total.max(0.0).sqrt() * f64::exp2(-f64::from(FRACTION_BITS));
        Ok(norm <= bound * (1.0 + 1e-9))
    }
}

/// `floor(bound^2 2^80)`, saturating.
fn squared_steps(bound: f64) -> u128 {
    if bound == 0.0 {
        return 0;
    }
    let bits = bound.to_bits();
    let (field, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    // bound = mantissa 2^exponent.
    let (mantissa, exponent) = match field {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, field as i32 - 1075),
    };
    let square = u128::from(mantissa) * u128::from(mantissa);
    let shift = 2 * exponent + 2 * FRACTION_BITS as i32;
    match shift {
        ..=-128 => 0,
        -127..=0 => square >> shift.unsigned_abs(),
        1..=127 if square.leading_zeros() >= shift.unsigned_abs() => square << shift,
        _ => u128::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Strategy;
    use crate::{BandedToeplitz, Denominator, NonPrivate};

    const ONE: i64 = 1 << 40;

    fn difference(with: &[i64], without: &[i64]) -> Difference {
        let sum = |values: &[i64]| RawSum::new(values.to_vec(), ONE);
        Difference::between(sum(with), sum(without)).unwrap()
    }

    #[test]
    fn the_bound_is_exact_to_one_step() {
        // 3^2 + 4^2 = 5^2, in units and in steps.
        for unit in [1, 1 << 10, ONE] {
            let found = difference(&[3 * unit, 7], &[0, 7 - 4 * unit]);
            let bound = 5.0 * unit as f64 / ONE as f64;
            assert!(found.within(bound).unwrap());
            assert!(!found.within(bound * (1.0 - f64::EPSILON)).unwrap());
            assert!(
                !difference(&[3 * unit + 1, 0], &[0, -4 * unit])
                    .within(bound)
                    .unwrap()
            );
        }
        // The ends of the range do not wrap.
        let far = difference(&[i64::MAX], &[i64::MIN]);
        assert!(!far.within(1e6).unwrap() && far.within(1e8).unwrap());
        assert!(difference(&[5], &[5]).within(0.0).unwrap());
        assert!(!difference(&[5], &[4]).within(0.0).unwrap());
        assert!(far.within(f64::NAN).is_err() && far.within(-1.0).is_err());
        assert!(Difference::between(RawSum::new(vec![0], 0), RawSum::new(vec![], 0)).is_err());
    }

    #[test]
    fn squares_of_bounds_are_floors() {
        assert_eq!(squared_steps(1.0), 1 << 80);
        assert_eq!(squared_steps(1.5), 9 << 78);
        assert_eq!(squared_steps(f64::exp2(-40.0)), 1);
        assert_eq!(squared_steps(f64::exp2(-41.0)), 0);
        assert_eq!(squared_steps(f64::exp2(-1074.0)), 0);
        assert_eq!(squared_steps(f64::MAX), u128::MAX);
        // 0.1 is above one tenth: its square in steps, by exact division of its mantissa.
        let mantissa = 7_205_759_403_792_794_u128;
        assert_eq!(squared_steps(0.1), (mantissa * mantissa) >> 32);
    }

    #[test]
    fn residues_differ_by_the_step_nearest_to_zero() {
        let residues = |values: &[u64]| RawResidues::new(values.to_vec(), 16).unwrap();
        let found = Difference::between_residues(residues(&[1, 15, 8]), residues(&[15, 1, 0])).unwrap();
        // 2, -2 and 8: the middle of the modulus counts in full.
        assert!(found.within_steps(72f64.sqrt().next_up()).unwrap());
        assert!(!found.within_steps(71.9f64.sqrt()).unwrap());
        assert!(
            found
                .is_exactly(&Difference::between_residues(residues(&[2, 14, 8]), residues(&[0; 3])).unwrap())
        );
        assert!(Difference::between_residues(residues(&[1]), residues(&[1, 2])).is_err());
        let other = RawResidues::new(vec![1], 8).unwrap();
        assert!(Difference::between_residues(residues(&[1]), other).is_err());
    }

    #[test]
    fn equality_covers_values_and_weight() {
        let sum = |values: Vec<i64>, weight| RawSum::new(values, weight);
        let of =
            |values: Vec<i64>, weight| Difference::between(sum(values, weight), sum(vec![0; 2], 0)).unwrap();
        let alone = of(vec![3, -4], ONE);
        let by_sums = Difference::between(sum(vec![13, 16], 3 * ONE), sum(vec![10, 20], 2 * ONE)).unwrap();
        assert!(by_sums.is_exactly(&alone));
        assert!(!of(vec![3, -5], ONE).is_exactly(&alone));
        assert!(!of(vec![3, -4], ONE - 1).is_exactly(&alone));
    }

    #[test]
    fn releases_with_equal_noise_differ_by_the_difference() {
        let release = |values: Vec<i64>| {
            let average = RawSum::new(values, 0).average(Denominator::Fixed(4.0)).unwrap();
            NonPrivate.privatize(0, average).unwrap()
        };
        let (with, without) = (vec![ONE, 9 * ONE / 8], vec![3 * ONE / 4, ONE]);
        let found = difference(&with, &without);
        assert!(found.explains(&release(with.clone()), &release(without.clone()), 4.0));
        assert!(!found.explains(&release(with.clone()), &release(without), 2.0));
        // Noise that differs by a thousandth of a step of the release.
        let more = vec![with[0] + ONE / 1000, with[1]];
        assert!(!found.explains(&release(more), &release(vec![3 * ONE / 4, ONE]), 4.0));
    }

    /// The third case of `replay.correlated_norm` in `vectors/audit.json`, and its neighbours by a step.
    #[test]
    fn the_norm_of_a_whole_run_is_that_of_the_reference() {
        let strategy = Strategy::BandedToeplitz(BandedToeplitz::new(vec![1.0, 0.5, 0.25]).unwrap());
        let definition = Definition::new(&strategy, 9).unwrap();
        let rounds: Vec<(usize, Difference)> = [[0.5, 0.5, 0.5], [0.1, -0.2, 0.3], [0.0, 0.0, 0.0]]
            .iter()
            .enumerate()
            .map(|(round, values)| {
                let steps: Vec<i64> = values.iter().map(|value| (value * ONE as f64) as i64).collect();
                (round, difference(&steps, &[0; 3]))
            })
            .collect();
        let norm = 1.137_156_541_554_415_8;
        assert!(Difference::all_within(&rounds, &definition, norm).unwrap());
        assert!(!Difference::all_within(&rounds, &definition, norm * (1.0 - 1e-8)).unwrap());
        let late = vec![(9, difference(&[1], &[0]))];
        assert!(Difference::all_within(&late, &definition, 1.0).is_err());
    }
}
