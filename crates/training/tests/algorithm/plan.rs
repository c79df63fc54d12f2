//! The plan's sensitivity, noise and guarantee against the formulas of \[DPLM\], written out.

use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, SamplingProbability};
use undertone_training::plan::{Cost, Population, PrivacyPlan, Spending};

use crate::support::{World, config};

const POPULATION: Population = Population {
    users: 1000,
    total_weight: 400.0,
};

fn plan(changes: &[&str]) -> PrivacyPlan {
    let config = config(changes);
    let world = World::new(&config);
    PrivacyPlan::new(&config, ".".as_ref(), world.model.layout(), POPULATION).expect("a plan")
}

fn check(changes: &[&str], round: u64, sensitivity: f64, noise_std: f64) {
    let round = plan(changes).round(round);
    let close = |got: f64, expected: f64| (got / expected - 1.0).abs() < 1e-9;
    assert!(
        close(round.sensitivity.expect("bounded"), sensitivity),
        "{changes:?}: {:?}",
        round.sensitivity
    );
    assert!(
        close(round.noise_std, noise_std),
        "{changes:?}: {}",
        round.noise_std
    );
    assert!(
        close(round.noise_multiplier.expect("private"), noise_std / sensitivity),
        "{changes:?}"
    );
}

#[test]
fn sensitivity_and_noise_follow_lemma_1() {
    // q = 12 / 1000, qW = 4.8, S = 0.3, z = 2.
    check(&[], 0, 0.3 / 4.8, 2.0 * 0.3 / 4.8);
    check(
        &["estimator={kind='clipped_denominator',min_weight=300.0}"],
        0,
        2.0 * 0.3 / 3.6,
        2.0 * 2.0 * 0.3 / 3.6,
    );
    // Replace-one: twice as much.
    check(
        &["cohort.sampling=fixed_size"],
        0,
        2.0 * 0.3 / 4.8,
        2.0 * 2.0 * 0.3 / 4.8,
    );
    check(
        &["clip={kind='per_layer',norm=0.3}"],
        0,
        0.3 / 4.8,
        2.0 * 0.3 / 4.8,
    );
}

#[test]
fn schedules_change_clip_and_noise() {
    let schedule = "schedule=[{from_round=3,clip_norm=0.1},{from_round=6,noise_multiplier=4.0}]";
    check(&[schedule], 2, 0.3 / 4.8, 2.0 * 0.3 / 4.8);
    check(&[schedule], 3, 0.1 / 4.8, 2.0 * 0.1 / 4.8);
    check(&[schedule], 9, 0.1 / 4.8, 4.0 * 0.1 / 4.8);
}

#[test]
fn estimates_take_the_noise_of_the_larger_cohort() {
    // 500 users a round of mean weight 0.4.
    let estimate = "estimate={population=1000000,users_per_round=500}";
    check(&[estimate], 0, 0.3 / 4.8, 2.0 * 0.3 / 200.0);
    let larger = plan(&[estimate])
        .estimated()
        .expect("an estimate")
        .expect("an estimate");
    assert_eq!(larger.epsilon, at(1e-5, &[(500.0 / 1e6, 2.0, 10)]));
    assert_eq!((larger.population, larger.rounds), (1_000_000, 10));
    assert!((larger.users_per_round - 500.0).abs() < 1e-9);
}

/// Epsilon of rounds that are really made: a part in 10^9 of delta is the sampler's.
fn accountant(rounds: &[(f64, f64, u64)]) -> f64 {
    at(1e-5 * (1.0 - 1e-9), rounds)
}

fn at(delta: f64, rounds: &[(f64, f64, u64)]) -> f64 {
    let mut accountant = Accountant::new(Recipe::Rdp);
    for &(q, z, count) in rounds {
        let event = Event::PoissonGaussian {
            sampling_probability: SamplingProbability::new(q).expect("q"),
            noise_multiplier: NoiseMultiplier::new(z).expect("z"),
        };
        accountant.compose(&event, count).expect("composing");
    }
    accountant
        .guarantee(Delta::new(delta).expect("delta"))
        .expect("a guarantee")
        .epsilon
        .get()
}

#[test]
fn the_planned_guarantee_is_that_of_the_rounds() {
    let planned = |changes: &[&str]| plan(changes).planned().expect("a plan").expect("private").epsilon;
    assert_eq!(planned(&[]), accountant(&[(0.012, 2.0, 10)]));
    let schedule = "schedule=[{from_round=3,clip_norm=0.1},{from_round=6,noise_multiplier=4.0}]";
    let expected = accountant(&[(0.012, 2.0, 6), (0.012, 4.0, 4)]);
    assert!((planned(&[schedule]) / expected - 1.0).abs() < 1e-12);
}

#[test]
fn the_budget_allows_exactly_the_rounds_that_fit() {
    let unlimited = plan(&[]);
    let epsilons: Vec<f64> = (1..=10)
        .map(|rounds| accountant(&[(0.012, 2.0, rounds)]))
        .collect();
    let budget = f64::midpoint(epsilons[6], epsilons[7]);
    let limited = plan(&[&format!("privacy.max_epsilon={budget}")]);
    let mut spending = Spending::new(&limited);
    for round in 0..7 {
        let cost = Cost::from(&limited.round(round));
        spending
            .check_budget(&limited, round, cost)
            .expect("within the budget");
        spending.compose(&limited, cost, 1).expect("composing");
    }
    let eighth = Cost::from(&limited.round(7));
    let message = spending
        .check_budget(&limited, 7, eighth)
        .expect_err("over the budget")
        .to_string();
    assert!(
        message.starts_with("round 7 would bring epsilon to "),
        "{message}"
    );
    assert_eq!(spending.epsilon(&limited).expect("epsilon"), Some(epsilons[6]));
    spending.check_budget(&unlimited, 7, eighth).expect("no budget");
}
