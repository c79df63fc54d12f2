//! Strategies against the matrices that they stand for: the noise that a recurrence makes is inverted to `C`, whose
//! sensitivity is maximised over all participation sets and whose errors are those of dense linear algebra.

mod losses;
mod matrices;
mod trees;

use self::matrices::{Matrix, brute_force, inverse, noise};
use crate::testing::at_least;
use crate::{
    Banded, BandedToeplitz, Blt, Dense, IdentityMatrix, InverseToeplitz, NormalisedBlt,
    NormalisedInverseToeplitz, NormalisedToeplitz, Strategy, TreeFull, TreeLayout, Workload,
};
use proptest::prelude::*;
use undertone_accounting::participation::{Gap, Participation};

fn workloads(n: usize) -> Vec<Workload> {
    let rates: Vec<f64> = (0..n).map(|t| 1.0 - 0.05 * t as f64 / n as f64).collect();
    let momentum = Workload::momentum(0.9).unwrap();
    vec![
        Workload::prefix_sum(),
        momentum.clone(),
        momentum.with_learning_rates(rates).unwrap(),
    ]
}

fn check_errors(strategy: &Strategy, noise: &Matrix) {
    let n = noise.len();
    for workload in workloads(n) {
        let variance = |t: usize| -> f64 {
            let row = workload.row(t).unwrap();
            let entry = |j: usize| -> f64 { row.iter().zip(noise).map(|(a, x)| a * x[j]).sum() };
            (0..n).map(|j| entry(j) * entry(j)).sum()
        };
        let variances: Vec<f64> = (0..n).map(variance).collect();
        let largest = variances.iter().copied().fold(0.0, f64::max).sqrt();
        let mean = (variances.iter().sum::<f64>() / n as f64).sqrt();
        let errors = strategy.errors(n, &workload).unwrap();
        let close = |got: f64, want: f64| (got / want - 1.0).abs() < 1e-10;
        assert!(
            close(errors.max_error, largest) && close(errors.rms_error, mean),
            "{}: {errors:?} {largest} {mean}",
            strategy.name()
        );
    }
}

/// Sensitivity and errors of the first `n` rounds, and that the description survives.
fn check(strategy: &Strategy, n: usize, schema: &Participation) -> bool {
    let inverse_matrix = noise(&strategy.recurrence(n).unwrap(), n);
    let c = inverse(&inverse_matrix);
    let certified = strategy.squared_sensitivity(n, schema).unwrap();
    let (got, want) = (certified.squared.get(), brute_force(&c, schema));
    let name = strategy.name();
    assert!(
        got >= want * (1.0 - 1e-11),
        "{name} {n} {schema:?}: {got} < {want}"
    );
    if certified.exact {
        assert!(
            got <= want * (1.0 + 1e-11),
            "{name} {n} {schema:?}: {got} > {want}"
        );
    }
    check_errors(strategy, &inverse_matrix);
    let json = serde_json::to_string(strategy).unwrap();
    assert_eq!(&serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
    certified.exact
}

fn schema() -> impl proptest::strategy::Strategy<Value = Participation> {
    let parts = (1u64..7, 1u64..5, prop::bool::weighted(0.7));
    proptest::strategy::Strategy::prop_map(parts, |(gap, max_par, at_least)| {
        let gap = Gap::new(gap).unwrap();
        if at_least {
            Participation::at_least(gap, max_par).unwrap()
        } else {
            Participation::fixed_epochs(gap, max_par).unwrap()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn toeplitz_strategies_match_brute_force(
        n in 1usize..=14,
        tail in prop::collection::vec(-0.4..0.9f64, 0..14),
        bands in 1usize..=14,
        earlier in 0usize..3,
        schema in schema(),
    ) {
        let mut coefficients = vec![1.1];
        coefficients.extend(tail);
        let falling = BandedToeplitz::fhu(bands).unwrap();
        let any = BandedToeplitz::new(coefficients.clone()).unwrap();
        check(&Strategy::BandedToeplitz(any), n, &schema);
        assert!(check(&Strategy::BandedToeplitz(falling), n, &schema) || bands < n);
        let inverse = InverseToeplitz::new(coefficients.clone()).unwrap();
        check(&Strategy::InverseToeplitz(inverse.clone()), n, &schema);
        check(&Strategy::InverseToeplitz(InverseToeplitz::square_root(bands).unwrap()), n, &schema);
        check(&Strategy::InverseToeplitz(InverseToeplitz::lambda(0.7).unwrap()), n, &schema);
        // A run that stops before the matrix ends.
        let rounds = n + earlier;
        let normalised = NormalisedToeplitz::new(rounds, coefficients).unwrap();
        check(&Strategy::NormalisedToeplitz(normalised), n, &schema);
        let root = NormalisedToeplitz::square_root(rounds).unwrap();
        check(&Strategy::NormalisedToeplitz(root), n, &schema);
        let normalised = NormalisedInverseToeplitz::new(rounds, inverse).unwrap();
        check(&Strategy::NormalisedInverseToeplitz(normalised), n, &schema);
    }

    #[test]
    fn strategies_of_entries_match_brute_force(
        n in 1usize..=14,
        bands in 1usize..=6,
        entries in prop::collection::vec(-0.5..1.0f64, 100..=100),
        earlier in 0usize..3,
        schema in schema(),
    ) {
        let rounds = n + earlier;
        let bands = bands.min(rounds);
        let triangle = |bands: usize| -> Vec<f64> {
            let columns = |t: usize| (0..=t).filter(move |j| t - j < bands).map(move |j| (t, j));
            (0..rounds)
                .flat_map(columns)
                .map(|(t, j)| if t == j { 0.8 } else { entries[(7 * t + 13 * j) % 100] })
                .collect()
        };
        let banded = Banded::new(rounds, bands, triangle(bands)).unwrap();
        let exact = check(&Strategy::Banded(banded), n, &schema);
        prop_assert!(exact || bands as u64 > schema.gap().get());
        check(&Strategy::Dense(Dense::new(rounds, triangle(rounds)).unwrap()), n, &schema);
    }

    #[test]
    fn buffered_strategies_match_brute_force(
        n in 1usize..=14,
        parts in prop::collection::vec((0.0..=1.0f64, 0.0..1.0f64), 1..4),
        total in 0.0..1.4f64,
        earlier in 0usize..3,
        schema in schema(),
    ) {
        let (theta, omega): (Vec<f64>, Vec<f64>) = parts.into_iter().unzip();
        let sum: f64 = omega.iter().sum::<f64>().max(1e-3);
        let omega: Vec<f64> = omega.iter().map(|omega| total * omega / sum).collect();
        let blt = Blt::new(&theta, &omega).unwrap();
        check(&Strategy::Blt(blt.clone()), n, &schema);
        let score = blt.pillutla_score();
        let normalised = NormalisedBlt::new(blt, n + earlier).unwrap();
        let exact = check(&Strategy::NormalisedBlt(normalised), n, &schema);
        // Inverse decays that are non-negative make the coefficients log-convex, the whole run then exact.
        prop_assert!(exact || earlier > 0 || score > 1.0);
    }

    #[test]
    fn full_trees_match_brute_force(
        n in 1usize..=14,
        earlier in 0usize..3,
        height in 0u32..5,
        schema in schema(),
    ) {
        for layout in [TreeLayout::CompleteNodes, TreeLayout::Trees { leaves: 1 << height }] {
            let tree = TreeFull::new(n + earlier, layout).unwrap();
            let exact = check(&Strategy::TreeFull(tree), n, &schema);
            prop_assert!(exact || earlier > 0 || layout != TreeLayout::CompleteNodes);
        }
    }
}

#[test]
fn independent_noise_and_two_buffers_match_brute_force() {
    for (gap, max_par) in [(1, 3), (4, 2), (3, 4)] {
        let schema = at_least(gap, max_par);
        check(&Strategy::Independent(IdentityMatrix), 14, &schema);
        let blt = Blt::new(&[0.9, 0.4], &[0.3, 0.2]).unwrap();
        assert!(check(&Strategy::Blt(blt), 14, &schema));
    }
}

#[test]
fn more_rounds_than_the_matrix_has() {
    let strategies = [
        Strategy::TreeFull(TreeFull::new(4, TreeLayout::CompleteNodes).unwrap()),
        Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(4).unwrap()),
        Strategy::NormalisedInverseToeplitz(
            NormalisedInverseToeplitz::new(4, InverseToeplitz::lambda(0.5).unwrap()).unwrap(),
        ),
        Strategy::NormalisedBlt(NormalisedBlt::new(Blt::new(&[0.9], &[0.2]).unwrap(), 4).unwrap()),
        Strategy::Banded(Banded::new(4, 1, vec![1.0; 4]).unwrap()),
        Strategy::Dense(Dense::new(4, vec![1.0; 10]).unwrap()),
    ];
    for strategy in strategies {
        assert_eq!(strategy.rounds(), Some(4));
        for rounds in [0, 5] {
            assert!(
                strategy
                    .squared_sensitivity(rounds, &Participation::single())
                    .is_err()
            );
            assert!(strategy.errors(rounds, &Workload::prefix_sum()).is_err());
            assert!(strategy.recurrence(rounds).is_err());
        }
        assert!(strategy.recurrence(4).is_ok());
    }
}

#[test]
fn squares_that_vanish_are_refused() {
    let check = |strategy: Strategy| {
        let error = strategy
            .squared_sensitivity(2, &Participation::single())
            .unwrap_err();
        assert!(error.to_string().contains("squared sensitivity"), "{error}");
    };
    check(Strategy::BandedToeplitz(
        BandedToeplitz::new(vec![1e-170]).unwrap(),
    ));
    check(Strategy::Banded(Banded::new(2, 1, vec![1e-170; 2]).unwrap()));
    check(Strategy::Dense(Dense::new(2, vec![1e-150, 0.0, 1e-150]).unwrap()));
    check(Strategy::InverseToeplitz(
        InverseToeplitz::new(vec![1e170]).unwrap(),
    ));
}
