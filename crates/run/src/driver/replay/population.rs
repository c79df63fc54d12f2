//! R2 on the plan itself: it is made again without one user, and nothing may follow from what that user wrote.

use crate::run_file::training_users;
use undertone_aggregation::Estimator;
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_coordinator::task::{EstimatorConfig, TaskConfig};

use super::pair::Auditor;
use crate::driver::{Run, example_counts};
use crate::error::Result;
use undertone_run_directory::plan_inputs::population;

/// Plans the neighbours of the audited users. Returns the public statistics that move their plans.
pub(super) fn recomputed(
    run: &Run<'_>,
    plan: &PrivacyPlan,
    auditor: &mut Auditor<'_>,
) -> Result<Vec<String>> {
    let config = run.config;
    let counts = example_counts(&training_users(config, run.corpus)?);
    let mut known: Vec<(Population, bool, Vec<&str>)> = Vec::new();
    let mut moved: Vec<String> = Vec::new();
    for &user in &auditor.users {
        let mut without = counts.clone();
        without.remove(user);
        let population = population(config, &without);
        let found = known.iter().position(|(other, ..)| *other == population);
        let place = match found {
            Some(place) => place,
            None => {
                let strategy = plan
                    .bounded()
                    .map(|bounded| bounded.mechanism().strategy().clone());
                let layout = run.model.layout();
                let again = match &strategy {
                    Some(strategy) => {
                        PrivacyPlan::with_strategy(&config.task, Some(strategy), layout, population)
                    }
                    None => PrivacyPlan::new(&config.task, None, layout, population),
                };
                let (holds, statistics) = match again {
                    Ok(again) => compared(plan, &again, &config.task),
                    // The task does not fit one user less: the number of users, which is public, decides.
                    Err(_) => (true, vec!["the plan itself, from the number of users"]),
                };
                known.push((population, holds, statistics));
                known.len() - 1
            }
        };
        let (_, holds, statistics) = &known[place];
        auditor.checks.ask("R2", 0, *holds);
        for statistic in statistics {
            if !moved.iter().any(|known| known == statistic) {
                moved.push((*statistic).to_owned());
            }
        }
    }
    Ok(moved)
}

/// `true` if two plans differ by public numbers alone, and the statistics that moved.
fn compared(plan: &PrivacyPlan, again: &PrivacyPlan, task: &TaskConfig) -> (bool, Vec<&'static str>) {
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-12 * a.abs().max(b.abs());
    let size = |plan: &PrivacyPlan| match plan.kept_per_user() {
        Some(_) => plan.population().total_weight,
        None => plan.population().users as f64,
    };
    let (n, m) = (size(plan), size(again));
    let mut statistics = Vec::new();
    // A rate may stay, or follow from a number of users per round that stays.
    let (q, r) = (plan.sampling_probability(), again.sampling_probability());
    let mut holds = same(q, r) || same(q * n, r * m);
    if !same(q, r) {
        statistics.push("sampling rate, from the number of users");
    }
    // PRIVACY: a denominator is the number of the run file, or the rate times a public size. It never follows from weights.
    let stated = |plan: &PrivacyPlan| match task.estimator {
        EstimatorConfig::FixedDenominator { expected_weight } => {
            expected_weight.unwrap_or(plan.sampling_probability() * size(plan))
        }
        EstimatorConfig::ClippedDenominator { min_weight } => plan.sampling_probability() * min_weight,
        EstimatorConfig::Exact => f64::NAN,
    };
    let denominator = |plan: &PrivacyPlan| match plan.estimator() {
        Estimator::FixedDenominator { expected_weight } => *expected_weight,
        Estimator::ClippedDenominator { min_weight } => *min_weight,
        Estimator::Exact => f64::NAN,
    };
    let (a, b) = (denominator(plan), denominator(again));
    holds &= same(a, stated(plan)) && same(b, stated(again));
    if !same(a, b) {
        statistics.push("denominator of the average, from the number of users");
    }
    let (one, other) = (plan.round(0), again.round(0));
    if one.noise_multiplier != other.noise_multiplier {
        holds &= !same(q, r);
        statistics.push("noise multiplier, from the sampling rate");
    }
    holds &= one.clipping == other.clipping;
    (holds, statistics)
}
