use undertone_accounting::{Delta, gaussian};

use super::*;
use crate::optimize::{Kind, Sizes};

fn question(population: u64, rounds: u64, target: Goal) -> PopulationQuestion {
    PopulationQuestion::new(population, rounds, Delta::new(1e-10).unwrap(), target).unwrap()
}

fn rho(value: f64) -> Goal {
    Goal::Rho(Rho::new(value).unwrap())
}

fn planner(question: PopulationQuestion, kind: Kind) -> Planner {
    let candidate = Candidate::Made(kind, Sizes::default());
    Planner::new(question, candidate, Objective::RmsLoss, Workload::prefix_sum()).unwrap()
}

#[test]
fn the_tree_is_that_of_the_accountants_plan() {
    // The noise that keeps utility is the production tree's own: both plans must say the same of it.
    for (population, rounds, goal) in [
        (4_210_000, 1900, 6500),
        (1_000_000, 300, 2000),
        (65_000, 100, 6500),
    ] {
        let question = question(population, rounds, rho(0.5));
        let theirs = question.option(ProductionSetting::Tree, goal).unwrap();
        let ours = planner(question, Kind::Tree).option(goal).unwrap();
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert_eq!(ours.participation, theirs.participation);
        assert_eq!(ours.min_sep, theirs.min_sep);
        assert_eq!(ours.is_feasible, theirs.meets_target);
        assert!(close(ours.at_utility.rho.get(), theirs.rho.get()));
        assert!(close(
            ours.at_utility.noise_multiplier.get(),
            theirs.noise_multiplier.get()
        ));
        assert!(close(
            ours.at_target.noise_multiplier.get(),
            theirs.noise_for_target.get()
        ));
    }
}

#[test]
fn independent_noise_matches_its_closed_form() {
    // k participations have a squared sensitivity of k; the t-th iterate adds up t rows of noise.
    let (population, rounds, goal) = (10_000u64, 40u64, 1000u64);
    let epsilon = Epsilon::new(3.0).unwrap();
    let question = question(population, rounds, Goal::Epsilon(epsilon));
    let option = planner(question, Kind::Independent).option(goal).unwrap();
    let participations = 4.0f64;
    assert_eq!(option.sensitivity.squared.get(), participations);
    let one = gaussian::noise_multiplier(epsilon, question.delta).unwrap().get();
    let noise = option.at_target.noise_multiplier.get();
    assert!((noise / (one * participations.sqrt()) - 1.0).abs() < 1e-9);
    let error = (f64::midpoint(rounds as f64, 1.0)).sqrt();
    let iterates = option.at_target.iterate_noise;
    assert!((iterates / (noise * error / goal as f64) - 1.0).abs() < 1e-12);
    assert!(option.at_target.rho <= question.target_rho);
    assert!(option.at_target.epsilon.get() <= 3.0 * (1.0 + 1e-9));
}

#[test]
fn at_equal_privacy_losses_decide() {
    let question = question(1_000_000, 200, rho(0.3));
    let of = |kind| planner(question, kind).option(6500).unwrap();
    let (tree, blt, independent) = (of(Kind::Tree), of(Kind::Blt), of(Kind::Independent));
    for (a, b) in [(&tree, &blt), (&independent, &blt), (&independent, &tree)] {
        let noise = a.at_target.iterate_noise / b.at_target.iterate_noise;
        assert!((noise / (a.losses.rms_loss / b.losses.rms_loss) - 1.0).abs() < 1e-9);
        assert!(noise > 1.0);
        // At equal utility the same order, in rho by the square.
        let spent = a.at_utility.rho.get() / b.at_utility.rho.get();
        assert!((spent / (noise * noise) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn range_ends_are_the_largest_of_their_participations() {
    let question = question(100_000, 100, rho(0.3));
    let planner = planner(question, Kind::Tree);
    let ends = planner.range_ends(6500).unwrap();
    let participations = |goal| {
        let schema = question.schema(goal).unwrap();
        schema.participation.max_participation()
    };
    // floor(100000 / goal) rounds last for one participation up to 1000, for two up to 2000 (gap 50), ..
    assert_eq!(&ends[..3], [1000, 2000, 2941]);
    assert_eq!(ends.last(), Some(&6500));
    assert!(ends.len() <= 9 && ends.is_sorted());
    for end in &ends[..ends.len() - 1] {
        assert!(participations(end + 1) > participations(*end), "{end}");
    }
    let limited = Planner {
        question: question.with_max_participation(2).unwrap(),
        ..planner
    };
    assert_eq!(limited.range_ends(6500).unwrap(), [1000, 6500]);
}

#[test]
fn feasible_ranges_agree_with_every_report_goal() {
    let question = question(10_000, 40, rho(0.45)).with_noise_scale(40.0).unwrap();
    let mut planner = planner(question, Kind::Tree);
    let outlook = planner.outlook(600).unwrap();
    let ranges: Vec<(u64, u64)> = outlook
        .feasible
        .iter()
        .map(|range| (range.min.report_goal, range.max.report_goal))
        .collect();
    let mut best = f64::INFINITY;
    let (mut met, mut missed) = (0, 0);
    for goal in 1..=600u64 {
        let option = planner.option(goal).unwrap();
        best = best.min(option.at_target.iterate_noise);
        let inside = ranges.iter().any(|(min, max)| (*min..=*max).contains(&goal));
        // The minimum of a range is searched to a hundredth.
        let near = ranges
            .iter()
            .any(|(min, _)| goal < *min && (min - goal) as f64 <= WIDTH * *min as f64 + 1.0);
        assert!(option.is_feasible == inside || near, "{goal}: {ranges:?}");
        if option.is_feasible { met += 1 } else { missed += 1 }
    }
    assert!(met > 50 && missed > 50, "{met} {missed} {ranges:?}");
    assert_eq!(best, outlook.best.at_target.iterate_noise);
    assert_eq!(outlook.at_report_goal.report_goal, 600);
    // Files of earlier versions have these keys.
    let json = serde_json::to_value(&outlook.feasible[0]).unwrap();
    assert_eq!(json["least"]["report_goal"], ranges[0].0);
    assert_eq!(json["most"]["report_goal"], ranges[0].1);
}

#[test]
fn restarts_lower_sensitivity_and_raise_iterate_noise() {
    let question = question(1_000_000, 200, rho(0.3));
    let workload = Workload::momentum(0.9).unwrap();
    let restarted = Candidate::RestartedTree {
        first: 64,
        period: 64,
    };
    let of = |candidate| {
        let mut planner = Planner::new(question, candidate, Objective::MaxLoss, workload.clone()).unwrap();
        planner.option(6500).unwrap()
    };
    let (restarted, tree) = (of(restarted), of(Candidate::Made(Kind::Tree, Sizes::default())));
    assert_eq!(restarted.candidate, "tree-restarts");
    // Four trees: smaller sensitivity, more noise in the iterates.
    assert!(restarted.sensitivity.squared < tree.sensitivity.squared);
    assert!(
        restarted.at_target.iterate_noise / restarted.at_target.noise_multiplier.get()
            > tree.at_target.iterate_noise / tree.at_target.noise_multiplier.get()
    );
    let ratio = restarted.at_target.iterate_noise / tree.at_target.iterate_noise;
    assert!((ratio / (restarted.losses.max_loss / tree.losses.max_loss) - 1.0).abs() < 1e-9);
}

#[test]
fn report_goals_beyond_the_population_are_refused() {
    let mut planner = planner(question(1000, 10, rho(0.3)), Kind::Tree);
    let error = planner.option(1001).unwrap_err().to_string();
    assert!(error.contains("1001") && error.contains("1000"), "{error}");
    assert!(planner.outlook(0).is_err());
    let zero = Candidate::RestartedTree { first: 0, period: 1 };
    assert!(zero.make(&Problem::new(4, Participation::single())).is_err());
}
