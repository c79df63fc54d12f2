//! The plan's sensitivity, noise and guarantee against the formulas of \[DPLM\], written out.

use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, SamplingProbability};
use undertone_coordinator::plan::{Cost, Population, PrivacyPlan, Spending};

use crate::support::{self, config, parsed};

const POPULATION: Population = Population {
    users: 1000,
    total_weight: 400.0,
};

fn plan(changes: &[&str]) -> PrivacyPlan {
    support::plan(changes, POPULATION).expect("a plan")
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
    // 500 users per round of mean weight 0.4.
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
    let mut accountant = Accountant::new(Recipe::Pld);
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
#[ignore = "slow"]
fn the_planned_guarantee_is_that_of_the_rounds() {
    let planned = |changes: &[&str]| plan(changes).planned().expect("a plan").expect("private").epsilon;
    assert_eq!(planned(&[]), accountant(&[(0.012, 2.0, 10)]));
    let schedule = "schedule=[{from_round=3,clip_norm=0.1},{from_round=6,noise_multiplier=4.0}]";
    let expected = accountant(&[(0.012, 2.0, 6), (0.012, 4.0, 4)]);
    assert!((planned(&[schedule]) / expected - 1.0).abs() < 1e-9);
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
        message.starts_with("round 7 would raise epsilon to "),
        "{message}"
    );
    assert_eq!(spending.epsilon(&limited).expect("epsilon"), Some(epsilons[6]));
    spending.check_budget(&unlimited, 7, eighth).expect("no budget");
}

fn refused(changes: &[&str]) -> String {
    parsed(changes).expect_err("a refusal").to_string()
}

/// The release's noise is `z S / denominator`: computed from the users' text, it would publish the denominator.
#[test]
fn a_private_denominator_never_follows_from_the_text() {
    let weights = "user_update.weight_cap=30.0";
    let given = "estimator={kind='fixed_denominator',expected_weight=6.0}";
    let of = |total_weight: f64, changes: &[&str]| {
        let population = Population {
            total_weight,
            ..POPULATION
        };
        let plan = support::plan(changes, population).expect("a plan");
        (
            plan.round(0),
            plan.planned().expect("a guarantee"),
            plan.population(),
        )
    };
    assert_eq!(of(400.0, &[weights, given]), of(700.0, &[weights, given]));
    check(&[weights, given], 0, 0.3 / 6.0, 2.0 * 0.3 / 6.0);
    // 6 of 12 users per round: the larger run's 500 weigh 250.
    let estimate = "estimate={population=1000000,users_per_round=500}";
    check(&[weights, given, estimate], 0, 0.3 / 6.0, 2.0 * 0.3 / 250.0);
    let message = refused(&[weights]);
    assert!(message.contains("`estimator.expected_weight`"), "{message}");
    assert!(
        message.contains("without looking at the users' text"),
        "{message}"
    );
    let els = [
        "user_update={algorithm='els',group_size=4}",
        "cohort={sampling='poisson',sampling_probability=0.1}",
    ];
    let message = refused(&els);
    assert!(message.contains("`estimator.expected_weight`"), "{message}");
    config(&[els[0], els[1], given]);
    let floor = "estimator={kind='clipped_denominator',min_weight=300.0}";
    assert_eq!(of(400.0, &[weights, floor]).0, of(700.0, &[weights, floor]).0);
    for bad in ["0.0", "-1.0", "nan"] {
        let bad = format!("estimator={{kind='fixed_denominator',expected_weight={bad}}}");
        assert!(refused(&[&bad]).contains("`estimator.expected_weight`"), "{bad}");
    }
}

#[test]
fn the_default_accountant_is_the_tightest_that_is_valid() {
    let planned = |changes: &[&str]| {
        let planned = plan(changes).planned().expect("a plan").expect("private");
        (planned.recipe, planned.epsilon)
    };
    let (pld, rdp) = (planned(&[]), planned(&["privacy.accountant=rdp"]));
    assert!(pld.0.contains("PLD") && rdp.0.contains("RDP"), "{pld:?} {rdp:?}");
    assert!(pld.1 < rdp.1, "{pld:?} {rdp:?}");
    assert_eq!(planned(&["privacy.accountant=pld"]), pld);
    assert!(planned(&["cohort.sampling=fixed_size"]).0.contains("RDP"));
    let els = [
        "user_update={algorithm='els',group_size=4}",
        "cohort={sampling='poisson',examples_per_round=30}",
    ];
    assert!(planned(&els).0.contains("PLD"));
    for name in ["pld", "moments2016"] {
        let accountant = format!("privacy.accountant={name}");
        let message = refused(&["cohort.sampling=fixed_size", &accountant]);
        assert!(message.contains("`privacy.accountant`"), "{message}");
    }
}

/// The failure of a run must not depend on the users' text: the sum of a round holds 2^23.
#[test]
fn a_sum_that_updates_could_overflow_is_refused_before_the_run() {
    let check = |changes: &[&str], processes| plan(changes).check_sum(processes);
    // 12 of 1000 users, by Bernstein's inequality 175 of them at most.
    let max = plan(&[]).max_per_round();
    assert!((170.0..180.0).contains(&max), "{max}");
    assert_eq!(plan(&["cohort.sampling=fixed_size"]).max_per_round(), 12.0);
    check(&[], 1).expect("a small norm");
    let norm = |factor: f64| format!("clip.norm={}", factor * 8_388_608.0 / max);
    let quiet = "privacy.noise_multiplier=0.001";
    check(&[&norm(0.999), quiet], 1).expect("just below");
    let message = check(&[&norm(1.0), quiet], 1)
        .expect_err("just above")
        .to_string();
    assert!(
        message.contains("`clip.norm`") && message.contains("8388608"),
        "{message}"
    );
    check(&[&norm(0.999), quiet], 2).expect_err("two processes hold half of it each");
    // One value of an update has to stay below 2^22 by itself.
    let one = "cohort={sampling='fixed_size',users_per_round=1}";
    let min = "privacy.noise_multiplier=0.000001";
    check(&[one, "clip.norm=4000000.0", min], 1).expect("in the range of updates");
    check(&[one, "clip.norm=5000000.0", min], 1).expect_err("out of the range of updates");
}

/// All rounds together are within the budget, so no round is asked about: but only as long as the rounds are the plan's.
#[test]
fn a_round_that_costs_more_than_planned_is_asked_about() {
    let all = accountant(&[(0.012, 2.0, 10)]);
    let limited = plan(&[&format!("privacy.max_epsilon={}", 1.01 * all)]);
    let (planned, noisy) = (Cost::from(&limited.round(0)), limited.round(0).noise_std);
    let mut spending = Spending::new(&limited);
    for round in 0..10 {
        spending
            .check_budget(&limited, round, planned)
            .expect("within the budget");
        spending.compose(&limited, planned, 1).expect("composing");
    }
    spending
        .check_budget(&limited, 10, planned)
        .expect_err("an eleventh round");
    let mut spending = Spending::new(&limited);
    let costly = Cost {
        noise_multiplier: Some(0.5),
        noise_std: noisy / 4.0,
        ..planned
    };
    spending
        .check_budget(&limited, 0, costly)
        .expect_err("more than all rounds");
    spending.compose(&limited, costly, 1).expect("composing");
    spending
        .check_budget(&limited, 1, planned)
        .expect_err("after a costly round");
}

#[test]
#[ignore = "slow"]
fn a_run_that_its_noise_drowns_is_warned_of_with_numbers() {
    let warning = |changes: &[&str]| {
        let population = Population {
            users: 10_000,
            total_weight: 10_000.0,
        };
        let (task, plan) = (
            config(changes).task,
            support::plan(changes, population).expect("a plan"),
        );
        let (reach, layout) = (plan.reach().expect("a reach").expect("noise"), plan.layout());
        let warning = plan.warning(&task, &layout, false).expect("an answer");
        (reach, layout.len() as f64, warning)
    };
    // m sqrt(n) / (z sqrt(d)).
    let (reach, parameters, text) = warning(&[]);
    assert!(
        (reach / (12.0 * 10f64.sqrt() / 2.0 / parameters.sqrt()) - 1.0).abs() < 1e-9,
        "{reach}"
    );
    assert!(reach < 1.0);
    let text = text.expect("a warning");
    let factor = 5.0 / reach;
    // With a given noise multiplier the reach is in proportion to the users per round; bisection is right to some per cent.
    let users: f64 = text
        .split("users per round (")
        .nth(1)
        .and_then(|rest| rest.split([',', ' ']).next()?.parse().ok())
        .expect("a number of users");
    assert!(
        (1.0..1.05).contains(&(users / (12.0 * factor))),
        "{users} {factor}: {text}"
    );
    for part in [
        "trained parameters instead of",
        "model.lora",
        "epsilon = ",
        "initial_model",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let enough = format!("cohort.users_per_round={}", (users * 1.001).ceil());
    let (reach, _, none) = warning(&[&enough]);
    assert!(reach >= 5.0 && none.is_none(), "{reach}: {none:?}");
    // Learning rates and denominators scale signal and noise alike.
    let scaled = [
        "server.learning_rate=0.01",
        "estimator={kind='fixed_denominator',expected_weight=3.0}",
    ];
    assert!((warning(&scaled).0 / warning(&[]).0 - 1.0).abs() < 1e-9);
    // Correlated noise is worth less of it in the sum of the rounds.
    let mechanism = |kind: &str| {
        let mechanism = format!("privacy.mechanism={{kind='{kind}'}}");
        warning(&["cohort.sampling=shuffled_epochs", &mechanism])
    };
    let (independent, tree) = (mechanism("independent"), mechanism("tree"));
    assert!(
        tree.0 > independent.0 && independent.2.is_some(),
        "{} {}",
        tree.0,
        independent.0
    );
}
