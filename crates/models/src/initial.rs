use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

/// Draws initial parameters from a ChaCha20 stream, with operations that are exact or correctly rounded, so that a
/// seed gives the same bytes on every machine.
#[derive(Debug)]
pub(crate) struct Initializer(ChaCha20Rng);

impl Initializer {
    pub(crate) fn new(seed: u64) -> Self {
        let mut key = *b"undertone initial parameters\0\0\0\0";
        for (byte, seed) in key[24..].iter_mut().zip(seed.to_le_bytes()) {
            *byte ^= seed;
        }
        Self(ChaCha20Rng::from_seed(key))
    }

    /// Fills with independent draws, uniform on 2^24 points of `(-limit, limit)`.
    pub(crate) fn uniform(&mut self, values: &mut [f32], limit: f64) {
        const STEP: f64 = 1.0 / (1u64 << 24) as f64;
        for value in values {
            let draw = f64::from(self.0.next_u32() >> 8) + 0.5;
            *value = ((2.0 * draw).mul_add(STEP, -1.0) * limit) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; 20_000];
        Initializer::new(seed).uniform(&mut values, 0.5);
        assert!(values.iter().all(|v| v.abs() <= 0.5));
        // The mean of 20,000 draws of variance 1/12 is within 6.5 standard errors of 0: false alarm below 1e-9.
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 6.5 * (1.0 / 12.0f64 / 20_000.0).sqrt());
        values
    }

    #[test]
    fn seeds_choose_the_stream() {
        assert_eq!(check(1), check(1));
        assert_ne!(check(1), check(2));
        assert_ne!(check(1), check(1 << 40));
    }
}
