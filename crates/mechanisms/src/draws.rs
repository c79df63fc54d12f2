//! Uniform draws without bias: Poisson and fixed-size samples, bounded integers, shuffles.
//!
//! PRIVACY: amplification by sampling holds only if these draws have the stated probabilities.

use rand_core::Rng;

/// Draws every user of `0..population` independently with probability `q`; ascending.
///
/// The probability realised is `q` rounded **down** to a multiple of 2^-64, so the accountant's `q` is an upper bound.
pub fn poisson(population: usize, q: f64, generator: &mut impl Rng) -> Vec<usize> {
    if q >= 1.0 {
        return (0..population).collect();
    }
    // PRIVACY: an integer comparison; `q * 2^64` is exact in f64, and the cast truncates.
    let threshold = (q * 18_446_744_073_709_551_616.0) as u64;
    (0..population)
        .filter(|_| generator.next_u64() < threshold)
        .collect()
}

/// Draws exactly `size` users of `0..population`, every subset equally likely; ascending.
pub fn fixed_size(population: usize, size: usize, generator: &mut impl Rng) -> Vec<usize> {
    // Floyd's algorithm: one draw per chosen user, whatever the population.
    let mut chosen = std::collections::BTreeSet::new();
    for last in population.saturating_sub(size)..population {
        let candidate = below(last as u64 + 1, generator) as usize;
        if !chosen.insert(candidate) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

/// Draws a uniform integer below `bound` without modulo bias: draws in the uneven last stretch are thrown away.
pub fn below(bound: u64, generator: &mut impl Rng) -> u64 {
    debug_assert!(bound > 0);
    let limit = u64::MAX - u64::MAX % bound;
    loop {
        let draw = generator.next_u64();
        if draw < limit {
            return draw % bound;
        }
    }
}

/// Shuffles in place (Fisher-Yates).
pub fn shuffle<T>(items: &mut [T], generator: &mut impl Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(i as u64 + 1, generator) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    fn generator(round: u64) -> impl Rng {
        let mut seed = [5; 32];
        seed[..8].copy_from_slice(&round.to_le_bytes());
        ChaCha20Rng::from_seed(seed)
    }

    /// False-alarm rate below 1e-6: every count is compared with its binomial mean at five standard deviations (two-sided
    /// normal tail 5.7e-7), and the seed is fixed.
    fn check_rate(count: usize, trials: usize, rate: f64) {
        let deviation = (trials as f64 * rate * (1.0 - rate)).sqrt();
        let distance = (count as f64 - trials as f64 * rate).abs();
        assert!(distance <= 5.0 * deviation, "{count} of {trials} at rate {rate}");
    }

    #[test]
    fn poisson_cohorts_have_the_rate_and_independent_members() {
        let (population, q, rounds) = (1000, 0.05, 400);
        let (mut total, mut both) = (0, 0);
        for round in 0..rounds {
            let cohort = poisson(population, q, &mut generator(round));
            assert!(cohort.is_sorted() && cohort.iter().all(|&user| user < population));
            total += cohort.len();
            // Neighbouring users taking part together: q^2 when draws are independent.
            both += cohort
                .windows(2)
                .filter(|pair| pair[0] % 2 == 0 && pair[1] == pair[0] + 1)
                .count();
        }
        check_rate(total, population * rounds as usize, q);
        check_rate(both, population / 2 * rounds as usize, q * q);
    }

    #[test]
    fn probabilities_one_and_zero_draw_all_and_none() {
        assert_eq!(poisson(4, 1.0, &mut generator(0)), [0, 1, 2, 3]);
        assert!(poisson(1000, 0.0, &mut generator(0)).is_empty());
    }

    #[test]
    fn fixed_cohorts_have_the_size_and_every_user_the_same_chance() {
        let (population, size, rounds) = (50, 7, 20_000);
        let mut counts = vec![0; population];
        for round in 0..rounds {
            let cohort = fixed_size(population, size, &mut generator(round));
            assert_eq!(cohort.len(), size);
            assert!(cohort.windows(2).all(|pair| pair[0] < pair[1]));
            cohort.iter().for_each(|&user| counts[user] += 1);
        }
        for count in counts {
            check_rate(count, rounds as usize, size as f64 / population as f64);
        }
        assert_eq!(fixed_size(5, 5, &mut generator(0)), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn shuffles_are_permutations() {
        let mut items: Vec<u32> = (0..100).collect();
        shuffle(&mut items, &mut generator(0));
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
