//! The random numbers of `numpy.random.default_rng((a, b)).random()`: PCG64 (XSL-RR 128/64) seeded by numpy's
//! `SeedSequence`. Peers draw their workload with it; the same ids make the runs comparable.

/// numpy's default generator.
#[derive(Debug)]
pub(crate) struct DefaultRng {
    state: u128,
    increment: u128,
}

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

impl DefaultRng {
    /// Seeded by a sequence of at most four 32-bit words.
    pub(crate) fn new(entropy: &[u32]) -> Self {
        let words = generate_state(mix_entropy(entropy));
        let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let mut rng = Self {
            state: 0,
            increment: wide(words[2], words[3]) << 1 | 1,
        };
        rng.step();
        rng.state = rng.state.wrapping_add(wide(words[0], words[1]));
        rng.step();
        rng
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Uniform on `[0, 1)` with 53 bits.
    pub(crate) fn random(&mut self) -> f64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        let word = folded.rotate_right((self.state >> 122) as u32);
        (word >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// One round of the hash that `SeedSequence` takes from randutils.
fn hash(value: u32, constant: &mut u32, multiplier: u32) -> u32 {
    let value = value ^ *constant;
    *constant = constant.wrapping_mul(multiplier);
    let value = value.wrapping_mul(*constant);
    value ^ value >> 16
}

fn mix_entropy(entropy: &[u32]) -> [u32; 4] {
    let mut constant = 0x43b0_d7e5;
    let mut pool = [0u32; 4];
    for (index, word) in pool.iter_mut().enumerate() {
        *word = hash(
            entropy.get(index).copied().unwrap_or(0),
            &mut constant,
            0x931e_8875,
        );
    }
    for source in 0..4 {
        for target in 0..4 {
            if source != target {
                let hashed = hash(pool[source], &mut constant, 0x931e_8875);
                let mixed = pool[target]
                    .wrapping_mul(0xca01_f9dd)
                    .wrapping_sub(hashed.wrapping_mul(0x4973_f715));
                pool[target] = mixed ^ mixed >> 16;
            }
        }
    }
    pool
}

fn generate_state(pool: [u32; 4]) -> [u64; 4] {
    let mut constant = 0x8b51_f9dd;
    let mut words = [0u64; 4];
    for index in 0..8 {
        let word = hash(pool[index % 4], &mut constant, 0x58f3_8ded);
        words[index / 2] |= u64::from(word) << (32 * (index % 2));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values printed by numpy 2 for the same seeds.
    #[test]
    fn draws_equal_those_of_numpy() {
        assert_eq!(
            mix_entropy(&[17, 5]),
            [2_708_679_021, 2_763_364_676, 4_131_932_332, 2_442_085_429]
        );
        let mut rng = DefaultRng::new(&[17, 5]);
        let expected = [
            0.143_937_285_417_249_7,
            0.284_784_333_729_542_04,
            0.365_059_897_840_580_46,
        ];
        for expected in expected {
            assert_eq!(rng.random(), expected);
        }
    }
}
