//! Sums of losses that take few values, outcome by outcome: exact, however the values lie.

use super::discretize::{Atom, Bound};
use crate::special::LogSum;

/// Maximum number of values of a sum.
const MAX_VALUES: usize = 512;
/// Maximum number of pairs of values that are added to find those of a sum.
const MAX_PAIRS: usize = 1 << 16;
/// Relative distance below which two values differ by rounding errors only.
const SAME: f64 = 1e-14;

/// The sum of no losses.
pub(crate) fn nothing() -> Vec<Atom> {
    vec![Atom {
        loss: 0.0,
        log_p: 0.0,
    }]
}

/// The sum of two independent losses; `None` if it takes too many values.
pub(crate) fn sum(bound: Bound, a: &[Atom], b: &[Atom]) -> Option<Vec<Atom>> {
    if a.len().saturating_mul(b.len()) > MAX_PAIRS {
        return None;
    }
    let mut pairs: Vec<Atom> = a
        .iter()
        .flat_map(|a| {
            b.iter().map(|b| Atom {
                loss: a.loss + b.loss,
                log_p: a.log_p + b.log_p,
            })
        })
        .collect();
    pairs.sort_by(|a, b| a.loss.total_cmp(&b.loss));
    let values = merged(bound, &pairs);
    (values.len() <= MAX_VALUES).then_some(values)
}

/// The sum of `count` independent losses that are distributed alike; `None` if it takes too many values.
pub(crate) fn power(bound: Bound, single: &[Atom], count: u64) -> Option<Vec<Atom>> {
    let mut single = single.to_vec();
    single.sort_by(|a, b| a.loss.total_cmp(&b.loss));
    let mut base = merged(bound, &single);
    // No sum takes fewer values than one of evenly spaced losses.
    let min_values = count.saturating_mul((base.len() as u64).saturating_sub(1));
    if base.is_empty() || min_values >= MAX_VALUES as u64 {
        return None;
    }
    let mut result = nothing();
    let mut rest = count;
    loop {
        if rest % 2 == 1 {
            result = sum(bound, &result, &base)?;
        }
        rest /= 2;
        if rest == 0 {
            return Some(result);
        }
        base = sum(bound, &base, &base)?;
    }
}

/// Sorted values, those that differ by rounding errors as one: the largest of them for an upper bound, the smallest for a
/// lower one.
fn merged(bound: Bound, sorted: &[Atom]) -> Vec<Atom> {
    let reach = sorted.iter().map(|atom| atom.loss.abs()).fold(0.0, f64::max);
    sorted
        .chunk_by(|a, b| b.loss - a.loss <= SAME * reach)
        .map(|group| {
            let mut mass = LogSum::new();
            group.iter().for_each(|atom| mass.add(atom.log_p));
            // PRIVACY: the mass of `P` stays and the loss moves to the side of the bound.
            let loss = match bound {
                Bound::Upper => group[group.len() - 1].loss,
                Bound::Lower => group[0].loss,
            };
            Atom {
                loss,
                log_p: mass.get(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atoms(of: &[(f64, f64)]) -> Vec<Atom> {
        of.iter()
            .map(|(loss, mass)| Atom {
                loss: *loss,
                log_p: mass.ln(),
            })
            .collect()
    }

    #[test]
    fn powers_are_binomial() {
        let single = atoms(&[(-0.3, 0.25), (0.3, 0.75)]);
        for bound in [Bound::Upper, Bound::Lower] {
            let six = power(bound, &single, 6).unwrap();
            let ways = [1.0, 6.0, 15.0, 20.0, 15.0, 6.0, 1.0];
            assert_eq!(six.len(), ways.len());
            for (wins, (atom, ways)) in six.iter().zip(ways).enumerate() {
                let want = ways * 0.75f64.powi(wins as i32) * 0.25f64.powi(6 - wins as i32);
                assert!((atom.log_p.exp() / want - 1.0).abs() < 1e-13, "{wins}");
                assert!(
                    (atom.loss - 0.3 * (2.0 * wins as f64 - 6.0)).abs() < 1e-14,
                    "{wins}"
                );
            }
        }
    }

    #[test]
    fn too_many_values_are_refused() {
        let even = atoms(&[(-0.3, 0.5), (0.3, 0.5)]);
        assert!(power(Bound::Upper, &even, 511).is_some());
        assert!(power(Bound::Upper, &even, 512).is_none());
        assert!(power(Bound::Upper, &even, u64::MAX).is_none());
        // Values whose sums never coincide.
        let uneven = atoms(&[(1.0, 0.25), (2f64.sqrt(), 0.25), (3f64.sqrt(), 0.5)]);
        assert!(power(Bound::Upper, &uneven, 30).is_some());
        assert!(power(Bound::Upper, &uneven, 40).is_none());
        assert!(power(Bound::Upper, &[], 3).is_none());
    }

    #[test]
    fn values_apart_by_rounding_move_to_the_side_of_the_bound() {
        let (low, high) = (0.1 + 0.2, 0.3);
        let single = atoms(&[(low, 0.25), (high, 0.75)]);
        let of = |bound| power(bound, &single, 1).unwrap();
        assert_eq!(of(Bound::Upper).len(), 1);
        assert!(of(Bound::Upper)[0].loss > of(Bound::Lower)[0].loss);
        assert!(of(Bound::Upper)[0].log_p.abs() < 1e-15);
    }
}
