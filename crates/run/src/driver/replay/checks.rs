//! The checks of a replay and their outcomes.

use undertone_accounting::audit::MAX_CANARIES;
use undertone_accounting::audit::many_runs::coverage_p_value;
use undertone_accounting::participation::{Participation, Spacing};
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::sampling::Sampling;
use undertone_mechanisms::NoisedAverage;

use crate::error::Result;
use undertone_run_directory::replays::ReplayCheck;

/// The false-alarm rate of the test of cohort sizes.
const ALARM: f64 = 1e-6;

/// The checks of a replay.
#[derive(Debug)]
pub(super) struct Checks([ReplayCheck; 7]);

impl Default for Checks {
    fn default() -> Self {
        Self(ReplayCheck::CHECKS.map(|(name, property)| ReplayCheck::before(name, property)))
    }
}

impl Checks {
    pub(super) fn ask(&mut self, name: &str, round: u64, holds: bool) {
        for check in self.0.iter_mut().filter(|check| check.name == name) {
            check.compared += 1;
            if !holds {
                check.failed += 1;
                check.first_failure.get_or_insert(round);
            }
        }
    }

    pub(super) fn fails(&self) -> bool {
        self.0.iter().any(|check| check.failed > 0)
    }

    pub(super) fn list(&self) -> Vec<ReplayCheck> {
        self.0.to_vec()
    }
}

/// `true` if two lines of a ledger agree in everything that must not depend on one user.
pub(super) fn alike(one: &LedgerEntry, other: &LedgerEntry) -> bool {
    let fixed = |entry: &LedgerEntry| {
        (
            (entry.round, entry.abandoned, entry.quarantined, entry.survivors),
            entry.sampling_probability.to_bits(),
            entry.population,
            entry.total_weight.to_bits(),
            entry.clip_norm.map(f64::to_bits),
            entry.sensitivity.map(f64::to_bits),
            entry.noise_std.to_bits(),
            entry.noise_multiplier.map(f64::to_bits),
            entry.noise_key.clone(),
        )
    };
    fixed(one) == fixed(other)
}

/// `true` if two releases with equal noise are at most `sensitivity` apart, with room for the rounding to `f32`.
pub(super) fn near(one: &NoisedAverage, other: &NoisedAverage, sensitivity: f64) -> bool {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let wide = |value: &f32| f64::from(*value);
    let pairs = one.values().iter().zip(other.values());
    let apart = norm(&mut pairs.map(|(a, b)| wide(a) - wide(b)));
    let sizes = norm(&mut one.values().iter().map(wide)) + norm(&mut other.values().iter().map(wide));
    // Each value was rounded once, by half a unit in its last place.
    apart <= sensitivity * (1.0 + 1e-12) + f64::exp2(-24.0) * sizes
}

/// `true` if a user's rounds, in order, keep to a schema: counted here from its definition alone.
pub(super) fn keeps_to(rounds: &[u64], schema: &Participation) -> bool {
    let gap = schema.gap().get();
    let apart = |pair: &[u64]| match schema.spacing() {
        Spacing::AtLeast => pair[1] - pair[0] >= gap,
        _ => pair[1] - pair[0] == gap,
    };
    rounds.len() as u64 <= schema.max_participation() && rounds.windows(2).all(apart)
}

/// A bound on the probability that so many binomial numbers are all equal: a power of the largest probability of one number.
fn all_equal(coins: u64, q: f64, numbers: usize) -> Result<f64> {
    let mode = (((coins + 1) as f64 * q).floor() as u64).min(coins);
    let below = match mode {
        0 => 0.0,
        _ => coverage_p_value(mode - 1, coins, q)?,
    };
    let largest = coverage_p_value(mode, coins, q)? - below;
    Ok(largest.powi(i32::try_from(numbers.saturating_sub(1)).unwrap_or(i32::MAX)))
}

/// `true` if the estimates of adaptive clipping carry noise. Without it the mean of the bits, each one half or less one half, times the
/// number of clients is a multiple of one half. The estimates of one segment are consecutive. Noise alone comes so near to
/// multiples with a probability of `2 NEAR` per round.
pub(super) fn norms_have_noise(
    estimates: &[f64],
    learning_rate: f64,
    quantile: f64,
    clients: f64,
) -> Option<bool> {
    const NEAR: f64 = 1e-3;
    let halves = estimates.windows(2).map(|pair| {
        let centred = -(pair[1] / pair[0]).ln() / learning_rate - (0.5 - quantile);
        2.0 * centred * clients
    });
    let near: Vec<bool> = halves
        .map(|halves| (halves - halves.round()).abs() < NEAR)
        .collect();
    // Three rounds are too few to tell: (2e-3)^4 is 1.6e-11.
    (near.len() >= 4).then(|| near.iter().any(|near| !near))
}

/// `true` if the sizes of cohorts follow their law: exact size, or binomial in all by a two-sided test. `None` where no law is declared.
pub(super) fn cohort_law(
    sampling: Sampling,
    sizes: &[u64],
    population: u64,
    plan: &PrivacyPlan,
) -> Result<Option<bool>> {
    match sampling {
        Sampling::FixedSize => {
            let size = plan.users_per_round() as u64;
            Ok(Some(sizes.iter().all(|&found| found == size)))
        }
        Sampling::Poisson => {
            let (coins, heads) = (
                population.saturating_mul(sizes.len() as u64),
                sizes.iter().sum::<u64>(),
            );
            let q = plan.sampling_probability();
            if coins == 0 || coins > MAX_CANARIES || heads > coins || q >= 1.0 {
                return Ok((q >= 1.0 || heads > coins).then_some(heads == coins));
            }
            let below = coverage_p_value(heads, coins, q)?;
            let above = coverage_p_value(coins - heads, coins, 1.0 - q)?;
            // Sizes that never differ are not binomial: the probability that all of them are equal.
            let equal = sizes.windows(2).all(|pair| pair[0] == pair[1]);
            let regular = equal && all_equal(population, q, sizes.len())? < ALARM;
            Ok(Some(2.0 * below.min(above) >= ALARM && !regular))
        }
        _ => Ok(None),
    }
}
