//! Draws that follow from the seed of a fleet, by name and number.

use undertone_protocol::{Digest32, digest_of};

/// The seed of a fleet. A draw is named by its purpose and numbers, so it never depends on the order in which threads draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) u64);

impl Seed {
    /// 32 bytes of this purpose and these numbers.
    pub(crate) fn bytes(self, purpose: &str, numbers: &[u64]) -> Digest32 {
        let mut text = format!("undertone fleet\0{purpose}\0").into_bytes();
        text.extend_from_slice(&self.0.to_le_bytes());
        for number in numbers {
            text.extend_from_slice(&number.to_le_bytes());
        }
        digest_of(&text)
    }

    /// A uniform number from `[0, 1)`.
    pub(crate) fn unit(self, purpose: &str, numbers: &[u64]) -> f64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes(purpose, numbers)[..8]);
        (u64::from_le_bytes(word) >> 11) as f64 * (-53f64).exp2()
    }

    /// A uniform whole number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(self, purpose: &str, numbers: &[u64], bound: u64) -> u64 {
        let drawn = (self.unit(purpose, numbers) * bound as f64) as u64;
        drawn.min(bound.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_by_seed_purpose_and_number_alone() {
        let draw = |seed, purpose, numbers: &[u64]| Seed(seed).bytes(purpose, numbers);
        let first = draw(1, "a", &[2, 3]);
        assert_eq!(first, draw(1, "a", &[2, 3]));
        for other in [
            draw(2, "a", &[2, 3]),
            draw(1, "b", &[2, 3]),
            draw(1, "a", &[3, 2]),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn units_are_spread_over_the_interval() {
        let draws: Vec<f64> = (0..1000).map(|number| Seed(7).unit("u", &[number])).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        assert!((0..100).all(|number| Seed(7).below("b", &[number], 3) < 3));
        assert_eq!(Seed(7).below("b", &[], 0), 0);
    }
}
