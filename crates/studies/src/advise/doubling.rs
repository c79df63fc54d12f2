//! Estimate-and-Double: group size and cohort size of user-level sampling under a compute budget.

use serde::Serialize;

use undertone_run::{Result, RunError};

/// The doubled size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubled {
    /// `G_ULS`.
    GroupSize,
    /// `M`.
    CohortSize,
}

/// One turn of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DoublingStep {
    /// `G` before.
    pub group_size: u64,
    /// `M` before.
    pub cohort_size: u64,
    /// `L(G)`.
    pub norm: f64,
    /// `L(2G)`.
    pub norm_doubled: f64,
    /// `tau_G = L(2G) / L(G)`.
    pub tau_group: f64,
    /// `sigma(M)`.
    pub noise_multiplier: f64,
    /// `sigma(2M)`; `None` where there are fewer than `2M` users.
    pub noise_multiplier_doubled: Option<f64>,
    /// `tau_M = sigma(2M) / (2 sigma(M))`.
    pub tau_cohort: Option<f64>,
    /// The size that was doubled, that of the smaller ratio.
    pub doubled: Doubled,
}

/// The end of the loop, and its steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Doubling {
    /// `G_ULS`.
    pub group_size: u64,
    /// `M`.
    pub cohort_size: u64,
    /// All turns.
    pub steps: Vec<DoublingStep>,
}

/// Starts at `(G, M)` and doubles one of them at a time, the one that shrinks the noise on the average, `L(G) sigma(M) / M`,
/// more, until `G M` is the budget.
///
/// `norm(G)` is `L(G)`, `noise(M)` is the noise multiplier `sigma(M)`, `None` where the population has fewer users than `M`:
/// then `G` is doubled, which the paper leaves open. The paper prints `tau_M = sigma(2M) / sigma(M)` and says that `sigma`
/// falls as `M` grows. The noise multiplier of equation 3 rises with it: what falls, and what equation 6 has, is
/// `sigma(M) / M`. That is taken here; with the ratio as printed `G` would nearly always be doubled.
///
/// # Errors
/// [`RunError::Coordinator`] unless the budget is the start times a power of two, the start fits the population, and
/// the norms are positive numbers; what `norm` and `noise` give.
///
/// # Source
/// \[UserDP\] Algorithm 3, equations 6, 10 and 11.
pub fn estimate_and_double(
    start: (u64, u64),
    budget: u64,
    mut norm: impl FnMut(u64) -> Result<f64>,
    mut noise: impl FnMut(u64) -> Result<Option<f64>>,
) -> Result<Doubling> {
    let (mut group_size, mut cohort_size) = start;
    let first = group_size.checked_mul(cohort_size).filter(|first| *first > 0);
    let reached = |first: u64| budget.is_multiple_of(first) && (budget / first).is_power_of_two();
    if !first.is_some_and(reached) {
        let expected =
            format!("group size {group_size} times cohort size {cohort_size} times a power of two");
        return Err(RunError::value("compute_budget", expected, budget));
    }
    let mut positive = |group_size: u64| -> Result<f64> {
        let value = norm(group_size)?;
        if value > 0.0 && value.is_finite() {
            return Ok(value);
        }
        let what = format!("a positive median norm of the users' gradients at group size {group_size}");
        Err(RunError::value("model", what, value))
    };
    let mut steps = Vec::new();
    while group_size * cohort_size < budget {
        let (here, there) = (positive(group_size)?, positive(2 * group_size)?);
        let Some(noise_multiplier) = noise(cohort_size)? else {
            let expected = format!("at least {cohort_size} users, the cohort size to start from");
            return Err(RunError::value("start_cohort", expected, "fewer"));
        };
        let noise_multiplier_doubled = noise(2 * cohort_size)?;
        let tau_group = there / here;
        let tau_cohort = noise_multiplier_doubled.map(|doubled| 0.5 * doubled / noise_multiplier);
        let doubled = match tau_cohort {
            Some(tau_cohort) if tau_group >= tau_cohort => Doubled::CohortSize,
            _ => Doubled::GroupSize,
        };
        steps.push(DoublingStep {
            group_size,
            cohort_size,
            norm: here,
            norm_doubled: there,
            tau_group,
            noise_multiplier,
            noise_multiplier_doubled,
            tau_cohort,
            doubled,
        });
        match doubled {
            Doubled::GroupSize => group_size *= 2,
            Doubled::CohortSize => cohort_size *= 2,
        }
    }
    Ok(Doubling {
        group_size,
        cohort_size,
        steps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        budget: u64,
        norm: impl Fn(f64) -> f64,
        noise: impl Fn(f64) -> f64,
        users: u64,
    ) -> Result<Doubling> {
        estimate_and_double(
            (1, 32),
            budget,
            |group_size| Ok(norm(group_size as f64)),
            |cohort| Ok((cohort <= users).then(|| noise(cohort as f64))),
        )
    }

    /// The sum of logarithms is separable, so where both fall ever more slowly the greedy path ends at the min product.
    #[test]
    fn ends_at_the_best_product_of_convex_functions() {
        let norm = |g: f64| 1.0 + 3.0 / g;
        let noise = |m: f64| 0.5 * m + 40.0;
        let found = run(32 << 9, norm, noise, u64::MAX).unwrap();
        let best = (0..=9)
            .map(|k| (1u64 << k, 32u64 << (9 - k)))
            .min_by(|a, b| {
                let product = |(g, m): (u64, u64)| norm(g as f64) * noise(m as f64) / m as f64;
                product(*a).total_cmp(&product(*b))
            })
            .unwrap();
        assert_eq!((found.group_size, found.cohort_size), best);
        assert_eq!(found.steps.len(), 9);
        assert!(found.steps.iter().all(|step| {
            (step.tau_group < step.tau_cohort.unwrap()) == (step.doubled == Doubled::GroupSize)
        }));
    }

    #[test]
    fn alike_gradients_give_cohorts_and_diverse_ones_groups() {
        let slow = f64::sqrt;
        let alike = run(1024, |_| 2.0, slow, u64::MAX).unwrap();
        assert_eq!((alike.group_size, alike.cohort_size), (1, 1024));
        let diverse = run(1024, |g| 1.0 / g, slow, u64::MAX).unwrap();
        assert_eq!((diverse.group_size, diverse.cohort_size), (32, 32));
        // No more users than 64.
        let few = run(1024, |_| 2.0, slow, 64).unwrap();
        assert_eq!((few.group_size, few.cohort_size), (16, 64));
        assert_eq!(few.steps.last().unwrap().tau_cohort, None);
        let nothing = run(32, |_| 2.0, slow, u64::MAX).unwrap();
        assert_eq!(
            (nothing.group_size, nothing.cohort_size, nothing.steps.len()),
            (1, 32, 0)
        );
    }

    #[test]
    fn refusals_name_both_numbers() {
        let message = |result: Result<Doubling>| result.unwrap_err().to_string();
        for budget in [0, 16, 48, 100] {
            assert_eq!(
                message(run(budget, |_| 1.0, |_| 1.0, 100)),
                format!(
                    "configuration key `compute_budget`: expected group size 1 times cohort size 32 times a power of two, \
                     got {budget}"
                )
            );
        }
        assert!(message(run(64, |_| 1.0, |_| 1.0, 31)).contains("at least 32 users"));
        assert!(message(run(64, |_| 0.0, |_| 1.0, 100)).contains("a positive median norm"));
    }
}
