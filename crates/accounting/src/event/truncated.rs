//! Poisson sampling with a max cohort: the pair of distributions that one release is worst on.
//!
//! Let `N` be the number of other users who joined, `B` the max cohort and `n` the population. Announcing
//! whether `N >= B` can only help to tell two populations apart. That leaves two cases.
//!
//! *Room* (`N < B`): no cohort is cut. The user joins with probability `q` and moves the sum by at most 1.
//!
//! *Full* (`N >= B`): without the user, the cohort `T` is a uniform set of `B` others. By symmetry `T` tells
//! nothing about `N`. The user is kept with probability `q B / (N + 1)` and then replaces a uniform member `y`
//! of `T`. So, given `T`, the user is kept with probability
//!
//! `r = E[q B / (N + 1) | N >= B] = (B / n) Pr[Bin(n, q) >= B + 1] / Pr[Bin(n - 1, q) >= B]`,
//!
//! and the sum moves by `u = x - y` of norm at most 2. A user `x'` in the same place moves it by `v = x' - y`.
//!
//! The pairs of the full case, with `A = N(0)`, `P = (1 - r) A + r N(u)`:
//! - add or remove: `Q = A` and `|u| <= 2`;
//! - replace: `Q = (1 - r) A + r N(v)` with `|u|, |v| <= 2`;
//! - zero out: `x' = 0` keeps its place in the cohort, so `|v| <= 1`.
//!
//! *Lemma.* Among all `|u| <= s`, `|v| <= t`, opposite directions with `|u| = s`, `|v| = t` are worst. For
//! `epsilon >= 0`, advanced joint convexity (Balle, Barthe, Gaboardi 2018) turns the divergence of `P` from `Q`
//! into `r E (1 - c (1 - b) e^{G - Var G / 2} - c b e^{H - Var H / 2})_+` with numbers `b`, `c` that do not depend on
//! `u` and `v`, and centred Gaussians `G`, `H` with `Var G = |u|^2`, `Var H = |u - v|^2` and
//! `Cov(G, H) = |u|^2 - <u, v>` (noise of standard deviation 1). The function is convex in the weighted sum, so by
//! Kahane's inequality it grows with each of the three, and all three are largest there. For `epsilon < 0` the two
//! populations exchange their roles.

use crate::Adjacency;
use crate::binomial::upper_tail;
use crate::pld::{GaussianMixtures, Pair};

/// Populations above this take Chernoff's bound, as sums over cohort sizes would be long.
const MAX_SUMMED: u64 = 1_000_000_000;

pub(super) fn pair(
    population: u64,
    q: f64,
    max_cohort_size: u64,
    noise_multiplier: f64,
    adjacency: Adjacency,
) -> Pair {
    let Full { probability, kept } = Full::new(population, q, max_cohort_size);
    let sampled = |q: f64, distance: f64| vec![(0.0, 1.0 - q), (distance, q)];
    let without = || vec![(0.0, 1.0)];
    let (room, full) = match adjacency {
        Adjacency::AddOrRemoveOne => (without(), without()),
        Adjacency::ReplaceOne => (sampled(q, 1.0), sampled(kept, 2.0)),
        Adjacency::ZeroOut => (without(), sampled(kept, 1.0)),
    };
    let mixtures = |high: &[(f64, f64)], low: &[(f64, f64)]| {
        Pair::Mixtures(GaussianMixtures::new(noise_multiplier, high, low))
    };
    let (room, full) = (
        mixtures(&sampled(q, 1.0), &room),
        mixtures(&sampled(kept, 2.0), &full),
    );
    // A case that never occurs is none.
    match probability {
        0.0 => room,
        1.0 => full,
        _ => Pair::Either(vec![(1.0 - probability, room), (probability, full)]),
    }
}

/// The case in which the others alone fill the cohort.
struct Full {
    probability: f64,
    /// Probability with which the user is kept.
    kept: f64,
}

impl Full {
    fn new(population: u64, q: f64, max_cohort_size: u64) -> Self {
        let others = population - 1;
        if population > MAX_SUMMED {
            // PRIVACY: a probability that is too large is safe here, as being kept with `q` is worse than having room.
            let probability = chernoff(others as f64, q, max_cohort_size as f64);
            return Self { probability, kept: q };
        }
        let probability = upper_tail(others, q, max_cohort_size);
        let share = max_cohort_size as f64 / population as f64;
        let kept = share * upper_tail(population, q, max_cohort_size + 1) / probability;
        // PRIVACY: the quotient is exact to about 1e-11, unless its parts leave the range of numbers.
        let is_sound = probability > 1e-280;
        let kept = if is_sound {
            (kept * (1.0 + 1e-10)).min(q)
        } else {
            q
        };
        Self { probability, kept }
    }
}

/// Chernoff's bound on `Pr[Bin(n, p) >= min]`.
fn chernoff(n: f64, p: f64, min: f64) -> f64 {
    let share = min / n;
    if share <= p {
        return 1.0;
    }
    if share > 1.0 {
        return 0.0;
    }
    let failures = if share < 1.0 {
        (1.0 - share) * ((1.0 - share) / (1.0 - p)).ln()
    } else {
        0.0
    };
    // PRIVACY: next to the mean the exponent is rounding alone, and the bound would be more than certain.
    (-n * (share * (share / p).ln() + failures)).exp().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::special::ln_normal_cdf;
    use crate::{Accountant, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability};
    use proptest::prelude::*;

    /// Sums of the masses, term by term (mpmath at 40 digits).
    #[test]
    fn upper_tails_equal_sums_and_stay_below_chernoff() {
        for (n, p, min, want) in [
            (10, 0.3, 0, 1.0),
            (10, 0.3, 4, 0.350_389_281_6),
            (10, 0.3, 10, 5.9049e-6),
            (10, 0.3, 11, 0.0),
            (99, 0.05, 2, 0.961_295_155_235_489_5),
            (99, 0.05, 12, 3.937_002_331_366_140_2e-3),
            (9_999, 0.01, 120, 2.753_146_308_049_105_8e-2),
            (1_000_000_000, 0.5, 500_100_000, 1.270_074_179_877_283_4e-10),
        ] {
            let got = upper_tail(n, p, min);
            assert!((got - want).abs() <= 1e-11 * want, "{n} {p} {min}: {got} {want}");
            let large = chernoff(n as f64, p, min as f64);
            assert!(large >= got * (1.0 - 1e-12), "{n} {p} {min}: {large} {got}");
        }
    }

    /// A sum of Gaussians with the same deviation, as weights of centres.
    type Mixture = Vec<(f64, f64)>;

    /// The released sum in one dimension, by enumeration: every set of joined users, and every cut of it.
    fn released(values: &[f64], q: f64, max: usize) -> Mixture {
        let mut mixture = Mixture::new();
        for joined in 0u32..1 << values.len() {
            let count = joined.count_ones();
            let probability = q.powi(count as i32) * (1.0 - q).powi(values.len() as i32 - count as i32);
            let sets: Vec<u32> = (0..=joined)
                .filter(|set| set & !joined == 0 && set.count_ones() == count.min(max as u32))
                .collect();
            for set in &sets {
                let sum = (0..values.len()).filter(|user| set >> user & 1 == 1);
                mixture.push((
                    sum.map(|user| values[user]).sum(),
                    probability / sets.len() as f64,
                ));
            }
        }
        mixture
    }

    /// The hockey-stick divergence by the midpoint rule.
    fn divergence(p: &Mixture, q: &Mixture, z: f64, epsilon: f64) -> f64 {
        let density = |mixture: &Mixture, x: f64| -> f64 {
            let terms = mixture
                .iter()
                .map(|(mean, w)| w * (-0.5 * ((x - mean) / z).powi(2)).exp());
            terms.sum::<f64>() / (z * std::f64::consts::TAU.sqrt())
        };
        let step = z / 50.0;
        let reach = (15.0 / step) as i64;
        let excess = |x: f64| (density(p, x) - epsilon.exp() * density(q, x)).max(0.0);
        (-reach..reach)
            .map(|i| step * excess((i as f64 + 0.5) * step))
            .sum()
    }

    fn bound(event: &Event, adjacency: Adjacency, epsilon: f64) -> f64 {
        let mut accountant = Accountant::under(Recipe::Pld, adjacency);
        accountant.compose(event, 1).unwrap();
        accountant
            .delta_for(Epsilon::new(epsilon).unwrap())
            .unwrap()
            .delta
            .get()
    }

    fn event(population: u64, q: f64, max_cohort_size: u64, z: f64) -> Event {
        Event::TruncatedPoissonGaussian {
            population,
            sampling_probability: SamplingProbability::new(q).unwrap(),
            max_cohort_size,
            noise_multiplier: NoiseMultiplier::new(z).unwrap(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        /// The bound holds for every small population in one dimension, under each relation and in both directions.
        #[test]
        #[ignore = "slow"]
        fn no_small_population_spends_more(
            others in prop::collection::vec(prop_oneof![Just(-1.0), Just(1.0), -1.0f64..1.0], 1..4),
            value in prop_oneof![Just(-1.0), Just(1.0), -1.0f64..1.0],
            other in prop_oneof![Just(-1.0), Just(1.0), -1.0f64..1.0],
            q in 0.05f64..0.999,
            max in 1usize..4,
            z in 0.4f64..2.0,
            epsilon in 0.0f64..3.0,
        ) {
            let with = |value: f64| {
                let values: Vec<f64> = others.iter().copied().chain([value]).collect();
                released(&values, q, max)
            };
            let population = others.len() as u64 + 1;
            prop_assume!(max as u64 <= population);
            let event = event(population, q, max as u64, z);
            for (adjacency, neighbour) in [
                (Adjacency::AddOrRemoveOne, released(&others, q, max)),
                (Adjacency::ReplaceOne, with(other)),
                (Adjacency::ZeroOut, with(0.0)),
            ] {
                let here = with(value);
                let spent = divergence(&here, &neighbour, z, epsilon)
                    .max(divergence(&neighbour, &here, z, epsilon));
                let bound = bound(&event, adjacency, epsilon);
                prop_assert!(spent <= bound * (1.0 + 1e-5) + 1e-9, "{adjacency:?}: {spent} > {bound}");
            }
        }
    }

    /// A divergence that rounding makes 0 would say that nothing is learnt.
    #[test]
    fn very_rare_samples_are_not_free_by_renyi_divergences() {
        let mut accountant = Accountant::new(Recipe::Rdp);
        accountant.compose(&event(319, 9.4e-9, 1, 3.2), 57).unwrap();
        // The distance in total variation is at least that of one release, 1.2e-9.
        for delta in [1e-10, 1e-12, 1e-270] {
            let delta = crate::Delta::new(delta).unwrap();
            assert!(
                accountant.guarantee(delta).unwrap().epsilon.get() > 0.0,
                "{delta}"
            );
        }
    }

    /// Everyone joins, and the others are worst: the bound is attained.
    #[test]
    fn full_cohorts_attain_the_bound() {
        let (q, max, z, epsilon) = (1.0, 2, 1.0, 0.7);
        let spent = divergence(
            &released(&[-1.0, -1.0, -1.0, 1.0], q, max),
            &released(&[-1.0, -1.0, -1.0], q, max),
            z,
            epsilon,
        );
        let bound = bound(&event(4, q, max as u64, z), Adjacency::AddOrRemoveOne, epsilon);
        assert!((spent / bound - 1.0).abs() < 1e-4, "{spent} {bound}");
        // Half of them are kept: `0.5 N(2) + 0.5 N(0)` against `N(0)`.
        let x = 1.0 + 0.5 * (2.0 * f64::exp(epsilon) - 1.0).ln();
        let tail = |mean: f64| ln_normal_cdf(mean - x).exp();
        let exact = 0.5 * tail(2.0) + (0.5 - f64::exp(epsilon)) * tail(0.0);
        assert!((bound / exact - 1.0).abs() < 1e-6, "{bound} {exact}");
    }

    /// Whatever the sizes, being kept is at most as likely as joining, and the case is at most certain.
    #[test]
    fn probabilities_stay_in_range() {
        for population in [1u64, 2, 1000, 1_000_000_000, 1 << 60] {
            for q in [1e-12, 0.01, 0.5, 1.0] {
                for max in [1, population.div_ceil(2), population] {
                    let full = Full::new(population, q, max);
                    assert!((0.0..=1.0).contains(&full.probability), "{population} {q} {max}");
                    assert!((0.0..=q).contains(&full.kept), "{population} {q} {max}");
                }
            }
        }
    }
}
