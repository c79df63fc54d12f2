//! Plans whose guarantee rests on participation, against closed forms and the mechanism's own figures.

use undertone_accounting::participation::{Gap, Participation};
use undertone_accounting::{Delta, NoiseMultiplier};
use undertone_coordinator::plan::{Cost, Population, PrivacyPlan, Spending};
use undertone_mechanisms::{IdentityMatrix, Mechanism, Strategy, Tree};

use crate::support::{self, check_refusals};

const POPULATION: Population = Population {
    users: 120,
    total_weight: 120.0,
};

/// 40 rounds of 12 of 120 users: 10 cohorts per epoch.
const EPOCHS: [&str; 2] = ["rounds=40", "cohort.sampling=shuffled_epochs"];

fn plan(changes: &[&str]) -> PrivacyPlan {
    support::plan(&[&EPOCHS, changes].concat(), POPULATION).expect("a plan")
}

fn epsilon(strategy: Strategy, rounds: usize, participation: Participation, noise_multiplier: f64) -> f64 {
    let noise_multiplier = NoiseMultiplier::new(noise_multiplier).expect("noise");
    Mechanism::new(strategy, rounds, participation, noise_multiplier)
        .and_then(|mechanism| mechanism.guarantee(Delta::new(1e-5)?))
        .expect("a guarantee")
        .epsilon
        .get()
}

fn epochs(gap: u64, max: u64) -> Participation {
    Participation::fixed_epochs(Gap::new(gap).expect("gap"), max).expect("schema")
}

/// Equal up to the sampler's part of delta and the margin of roundings.
fn close(got: f64, expected: f64) -> bool {
    got >= expected && got / expected - 1.0 < 1e-7
}

#[test]
fn planned_is_the_mechanism_s_own_guarantee() {
    let check = |mechanism: &str, strategy: Strategy| {
        let plan = plan(&[mechanism, "privacy.noise_multiplier=8.0"]);
        let planned = plan.planned().expect("a plan").expect("private");
        let expected = epsilon(strategy, 40, epochs(10, 4), 8.0);
        assert!(
            close(planned.epsilon, expected),
            "{mechanism}: {} {expected}",
            planned.epsilon
        );
        let schema = planned.schema.expect("a schema");
        assert_eq!((schema.min_sep, schema.max_part, schema.exact_sep), (10, 4, true));
        assert!((schema.rho - schema.sensitivity.powi(2) / 128.0).abs() < 1e-12);
        // One participation moves the average by S / 12.
        let round = plan.round(7);
        assert_eq!(round.sensitivity, Some(0.3 / 12.0));
        assert!((round.noise_std - 8.0 * 0.3 / 12.0).abs() < 1e-12);
    };
    check(
        "privacy.mechanism={kind='independent'}",
        Strategy::Independent(IdentityMatrix),
    );
    check("privacy.mechanism={kind='tree'}", Strategy::Tree(Tree::new()));
    check(
        "privacy.mechanism={kind='tree',restarts={first=8,every=16}}",
        Strategy::Tree(Tree::with_restarts(8, 16).expect("restarts")),
    );
}

/// Independent noise over k participations: the Gaussian of noise multiplier z / sqrt(k).
#[test]
fn independent_noise_costs_the_root_of_the_participations() {
    let planned = plan(&[
        "privacy.mechanism={kind='independent'}",
        "privacy.noise_multiplier=8.0",
    ]);
    let planned = planned.planned().expect("a plan").expect("private");
    assert_eq!(planned.schema.map(|schema| schema.sensitivity), Some(2.0));
    let alone = epsilon(
        Strategy::Independent(IdentityMatrix),
        1,
        Participation::single(),
        4.0,
    );
    assert!(close(planned.epsilon, alone));
}

#[test]
fn targets_are_reached_and_hardly_missed() {
    for kind in ["independent", "tree", "tree-full", "blt", "banded", "fhu"] {
        let mechanism = format!("privacy.mechanism={{kind='{kind}'}}");
        let plan = plan(&[&mechanism, "privacy={target_epsilon=3.0,delta=1e-5}", &mechanism]);
        let reached = plan.planned().expect("a plan").expect("private").epsilon;
        assert!(
            reached <= 3.0 && reached > 3.0 * (1.0 - 1e-5),
            "{kind}: {reached}"
        );
        plan.check_budget().expect("within its own target");
    }
}

#[test]
fn estimates_carry_the_larger_run_s_noise() {
    let plan = plan(&[
        "privacy.mechanism={kind='tree'}",
        "privacy.noise_multiplier=7.0",
        "estimate={population=100000,users_per_round=6000,delta=1e-5}",
    ]);
    // Noise of 7 clip norms over 6000 users.
    assert!((plan.round(0).noise_std / (7.0 * 0.3 / 6000.0) - 1.0).abs() < 1e-12);
    let larger = plan.estimated().expect("an estimate").expect("an estimate");
    assert_eq!(
        larger.epsilon,
        epsilon(Strategy::Tree(Tree::new()), 40, epochs(10, 4), 7.0)
    );
    // So little noise that nothing can be said of this run's own people.
    assert_eq!(plan.planned().expect("a plan"), None);
}

#[test]
fn fewer_rounds_and_kinder_schemas_cost_less() {
    let plan = plan(&["privacy.mechanism={kind='tree'}", "privacy.noise_multiplier=8.0"]);
    let bounded = plan.bounded().expect("a mechanism");
    let delta = Delta::new(1e-5).expect("delta");
    let epsilon = |rounds, schema| {
        bounded
            .cost(rounds, schema, &[])
            .and_then(|cost| cost.guarantee(delta))
            .expect("a guarantee")
            .epsilon
            .get()
    };
    let whole = epsilon(40, epochs(10, 4));
    assert!(epsilon(20, epochs(10, 2)) < whole);
    assert!(epsilon(40, epochs(20, 2)) < whole);
    let mut spending = Spending::new(&plan);
    spending
        .compose(&plan, Cost::from(&plan.round(0)), 40)
        .expect("composing");
    let observed = spending
        .clone()
        .under(epochs(20, 2))
        .record(&plan)
        .expect("a record")
        .expect("private");
    assert_eq!(observed.epsilon, epsilon(40, epochs(20, 2)));
    assert_eq!(spending.epsilon(&plan).expect("epsilon"), Some(whole));
}

/// Sums and bits of adaptive clipping together cost what one release at the stated noise multiplier costs.
#[test]
fn adaptive_clipping_splits_the_noise() {
    let adaptive = "clip={kind='adaptive',initial_norm=0.3,bit_noise_std=6.0}";
    let tree = "privacy.mechanism={kind='tree',restarts={first=8,every=16}}";
    let changes = [
        tree,
        adaptive,
        "privacy.noise_multiplier=8.0",
        "user_update.clip_every_step=false",
    ];
    let plan = plan(&changes);
    let bounded = plan.bounded().expect("a mechanism");
    // (z^-2 - (2 sigma_b)^-2)^(-1/2).
    let sum = (8f64.powi(-2) - 12f64.powi(-2)).powf(-0.5);
    assert!((bounded.sum_noise_multiplier().expect("noise").get() / sum - 1.0).abs() < 1e-12);
    assert!((plan.round(0).noise_std / (sum * 0.3 / 12.0) - 1.0).abs() < 1e-12);
    assert!((plan.round_clipped(9, 0.6).noise_std / (sum * 0.6 / 12.0) - 1.0).abs() < 1e-12);
    assert_eq!(bounded.segments(), 3);
    assert_eq!(
        (
            bounded.segment_of(7),
            bounded.segment_of(8),
            bounded.segment_of(39)
        ),
        (0, 1, 2)
    );
    let expected = epsilon(
        Strategy::Tree(Tree::with_restarts(8, 16).expect("restarts")),
        40,
        epochs(10, 4),
        8.0,
    );
    let planned = plan.planned().expect("a plan").expect("private").epsilon;
    assert!(close(planned, expected), "{planned} {expected}");
}

/// The larger run of an estimate has so many times the noise on its count of bits, and the same noise in their mean.
#[test]
fn an_estimate_scales_the_noise_of_the_bits() {
    let plan = plan(&[
        "privacy={target_epsilon=0.5,delta=1e-6,mechanism={kind='tree',restarts={first=8,every=16}}}",
        "clip={kind='adaptive',initial_norm=0.3}",
        "user_update.clip_every_step=false",
        "estimate={population=100000,users_per_round=1200}",
    ]);
    let bounded = plan.bounded().expect("a mechanism");
    let run = bounded.mechanism().noise_multiplier().get();
    let larger = 100.0 * run;
    // Half the larger run's multiplier is more than a twentieth of the 12 users here, and less than one of 1200.
    assert!(0.6 < larger / 2.0 && larger / 2.0 < 60.0, "{larger}");
    let sum = (run.powi(-2) - 1.2f64.powi(-2)).powf(-0.5);
    assert!((bounded.sum_noise_multiplier().expect("noise").get() / sum - 1.0).abs() < 1e-9);
    let estimated = plan.estimated().expect("an estimate").expect("private");
    assert!(
        estimated.epsilon <= 0.5 && estimated.epsilon > 0.499,
        "{}",
        estimated.epsilon
    );
}

#[test]
fn refusals_name_the_key() {
    let table = "
        privacy.mechanism={kind='tree'}
            `cohort.sampling`: expected `shuffled_epochs`
        privacy.mechanism={kind='tree'} cohort.sampling=fixed_size
            `participation` is missing: expected a table with `min_sep`
        cohort.sampling=shuffled_epochs
            `privacy.mechanism` is missing: expected a table, because shuffled_epochs
        participation={min_sep=3}
            `participation`: expected `fixed_size` or `device_timers`
        participation={min_sep=3} cohort.sampling=fixed_size
            `participation` must be left out: without privacy.mechanism
        privacy.mechanism={kind='tree'} cohort.sampling=shuffled_epochs schedule=[{from_round=3,clip_norm=0.1}]
            `schedule` cannot be combined with `privacy.mechanism`; remove one of them
        privacy.mechanism={kind='tree'} cohort.sampling=shuffled_epochs privacy.accountant=pld
            `privacy.accountant` cannot be combined with `privacy.mechanism`; remove one of them
        cohort.sampling=shuffled_epochs privacy.mechanism={}
            is missing: expected `kind` or `file`
        cohort.sampling=shuffled_epochs privacy.mechanism={kind='tree',buffers=3}
            `privacy.mechanism.buffers`
        cohort.sampling=shuffled_epochs privacy.mechanism={kind='blt',bands=3}
            `privacy.mechanism.bands`
        cohort.sampling=shuffled_epochs privacy.mechanism={kind='blt',restarts={first=3,every=3}}
            restarts
        cohort.sampling=shuffled_epochs privacy.mechanism={kind='oak'}
            `privacy.mechanism.kind`: expected one of \"independent\"
        cohort.sampling=shuffled_epochs privacy.mechanism={file='no-such.json'}
            no-such.json
        cohort.sampling=shuffled_epochs privacy.mechanism={kind='tree'} clip={kind='adaptive',initial_norm=0.3}
            `clip.kind`: expected privacy.mechanism of kind `tree` with `restarts`
        cohort.sampling=shuffled_epochs privacy.mechanism={kind='tree'} privacy.max_epsilon=0.01
            `privacy.max_epsilon`: expected at least the
        cohort.sampling=fixed_size privacy.mechanism={kind='tree'} participation={min_sep=0}
            `participation.min_sep`: expected at least 1
        ";
    check_refusals(&["rounds=40"], table, |changes| {
        let refused = support::plan(changes, POPULATION).and_then(|plan| Ok(plan.check_budget()?));
        refused.expect_err("a refusal").to_string()
    });
}
