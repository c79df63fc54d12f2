//! Conversion of the residues of a sum back to numbers.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modular::Modulus;

    #[test]
    fn lifting_recovers_the_sum() {
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
}
