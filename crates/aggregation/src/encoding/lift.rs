//! From the residues of a sum back to numbers.

use undertone_mechanisms::FRACTION_BITS;

use crate::error::{AggregationError, Result};
use crate::modular::{Lanes, ModularVec};

/// The integers behind a sum of `clients` residues: what each client's residue stands for lies around `centre`, which is
/// subtracted as often as it was added; the result is the representative of least magnitude.
pub(super) fn lift(sum: &ModularVec, clients: u64, centre: u64) -> Vec<i64> {
    let modulus = sum.modulus().get();
    let centres = (u128::from(clients) * u128::from(centre) % u128::from(modulus)) as i64;
    let (modulus, largest) = (modulus as i64, ((modulus - 1) / 2) as i64);
    let one = |residue: i64| {
        let value = residue - centres;
        let value = if value < 0 { value + modulus } else { value };
        if value > largest { value - modulus } else { value }
    };
    match sum.lanes() {
        Lanes::Narrow(lanes) => lanes.iter().map(|&x| one(i64::from(x))).collect(),
        // Residues are below 2^62.
        Lanes::Wide(lanes) => lanes.iter().map(|&x| one(x as i64)).collect(),
    }
}

/// `floor(z a)` for a fixed `a`, in integers: a monotone map that never stretches by more than `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GridFactor {
    numerator: i128,
    shift: u32,
}

impl GridFactor {
    /// From steps of `step` (in the unit of the updates) to the fixed-point grid of raw sums.
    ///
    /// # Guarantee
    /// The factor is at most the exact one, `step 2^40`, and less by at most one part in `2^48`. So two integers at
    /// distance `t` come out at distance at most `t step 2^40 + 1`: one step of the grid more than exact arithmetic.
    pub(super) fn new(step: f64) -> Result<Self> {
        let factor = step * (1u64 << FRACTION_BITS) as f64 * (1.0 - 1.0 / (1u64 << 49) as f64);
        let exponent = factor.log2().floor();
        // Numerators of 62 bits: with 63 bits of the integer the product stays in range.
        let shift = 61.0 - exponent;
        if !(0.0..=125.0).contains(&shift) {
            return Err(AggregationError::Setting {
                name: "scale",
                expected: "such that a grid step lies between 2^-100 and 2^20",
                got: step.recip(),
            });
        }
        Ok(Self {
            numerator: (factor * shift.exp2()) as i128,
            shift: shift as u32,
        })
    }

    pub(super) fn apply(self, z: i64) -> i64 {
        ((i128::from(z) * self.numerator) >> self.shift) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modular::Modulus;
    use proptest::prelude::*;

    #[test]
    fn lifts() {
        for (m, clients, centre) in [(101u64, 7, 5), (128, 3, 40), ((1 << 40) + 1, 1000, 123_456)] {
            let modulus = Modulus::new(m).unwrap();
            let half = ((m - 1) / 2) as i64;
            for value in [0, 1, -1, half, -half, 17] {
                let residue =
                    (i128::from(value) + i128::from(clients) * i128::from(centre)).rem_euclid(i128::from(m));
                let sum = ModularVec::from_residues(modulus, &[residue as u64]).unwrap();
                assert_eq!(lift(&sum, clients, centre), [value], "{m}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_grid_never_stretches(log_step in -60.0f64..10.0, a in -(1i64 << 40)..1 << 40, b in -(1i64 << 40)..1 << 40) {
            let step = log_step.exp2();
            let factor = GridFactor::new(step).unwrap();
            let (x, y) = (factor.apply(a), factor.apply(b));
            let exact = |z: i64| z as f64 * step * (1u64 << FRACTION_BITS) as f64;
            if exact(a).abs() < 2f64.powi(61) && exact(b).abs() < 2f64.powi(61) {
                prop_assert!((x as f64 - exact(a)).abs() <= 1.0 + exact(a).abs() * 2f64.powi(-48));
                let (moved, bound) = (x.abs_diff(y) as f64, exact(a.abs_diff(b) as i64) + 1.0);
                prop_assert!(moved <= bound * (1.0 + 1e-15), "{} > {}", moved, bound);
                prop_assert!((a <= b) == (x <= y) || x == y);
            }
        }
    }

    #[test]
    fn factors_out_of_range() {
        for step in [0.0, f64::NAN, f64::INFINITY, 1e30, 1e-60] {
            assert!(GridFactor::new(step).is_err(), "{step}");
        }
    }
}
