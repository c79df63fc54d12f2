//! Against dense matrices, written down from the strategies' definitions, and all sets of small schemas.

use undertone_accounting::NoiseMultiplier;
use undertone_accounting::participation::{Gap, Participation, Spacing};
use undertone_mechanisms::{
    Banded, BandedToeplitz, Blt, Dense, IdentityMatrix, InverseToeplitz, NormalisedBlt,
    NormalisedInverseToeplitz, NormalisedToeplitz, Tree, TreeFull,
};

use super::super::ParticipationKey;
use super::super::observed::Observed;
use super::*;
use rand_core::Rng;

const ROUNDS: usize = 11;

type Matrix = Vec<Vec<f64>>;

fn toeplitz_matrix(first: impl Fn(usize) -> f64) -> Matrix {
    (0..ROUNDS)
        .map(|i| {
            (0..ROUNDS)
                .map(|j| if i >= j { first(i - j) } else { 0.0 })
                .collect()
        })
        .collect()
}

/// Columns divided by their norms.
fn normalised(mut matrix: Matrix) -> Matrix {
    for j in 0..ROUNDS {
        let norm = matrix.iter().map(|row| row[j] * row[j]).sum::<f64>().sqrt();
        matrix.iter_mut().for_each(|row| row[j] /= norm);
    }
    matrix
}

/// One row per node of the trees of these lengths, over the rounds of the run.
fn trees(lengths: &[usize]) -> Matrix {
    let (mut rows, mut begin) = (Vec::new(), 0);
    for &length in lengths {
        let mut size = 1;
        while size <= length {
            for node in 0..length / size {
                let low = begin + node * size;
                let below = |j: usize| f64::from(u8::from((low..low + size).contains(&j)));
                rows.push((0..ROUNDS).map(below).collect());
            }
            size *= 2;
        }
        begin += length;
    }
    rows
}

fn cases() -> Vec<(Strategy, Matrix)> {
    let (theta, omega) = ([0.9, 0.4], [0.3, 0.15]);
    let blt = |i: usize| match i {
        0 => 1.0,
        i => theta
            .iter()
            .zip(omega)
            .map(|(theta, omega): (&f64, f64)| omega * theta.powi(i as i32 - 1))
            .sum(),
    };
    let bands = [1.0, 0.6, 0.3];
    let banded = |i: usize| bands.get(i).copied().unwrap_or(0.0);
    let root = |i: usize| (1..=i).fold(1.0, |term, i| term * (2.0 * i as f64 - 1.0) / (2.0 * i as f64));
    let halves = |i: usize| 0.5f64.powi(i as i32);
    let rows: Matrix = (0..ROUNDS)
        .map(|i| {
            let entry = |j: usize| 0.5 + ((3 * i + 5 * j) % 7) as f64 / 7.0;
            (0..ROUNDS)
                .map(|j| {
                    if (i.saturating_sub(2)..=i).contains(&j) {
                        entry(j)
                    } else {
                        0.0
                    }
                })
                .collect()
        })
        .collect();
    let packed = (0..ROUNDS)
        .flat_map(|i| rows[i][i.saturating_sub(2)..=i].to_vec())
        .collect();
    let lower = |matrix: &Matrix| (0..ROUNDS).flat_map(|i| matrix[i][..=i].to_vec()).collect();
    let full: Matrix = toeplitz_matrix(|i| 1.0 / (1.0 + i as f64));
    let blt_of = || Blt::new(&theta, &omega).unwrap();
    let inverse = InverseToeplitz::lambda(0.5).unwrap();
    vec![
        (
            Strategy::Independent(IdentityMatrix),
            toeplitz_matrix(|i| f64::from(u8::from(i == 0))),
        ),
        (Strategy::Blt(blt_of()), toeplitz_matrix(blt)),
        (
            Strategy::NormalisedBlt(NormalisedBlt::new(blt_of(), ROUNDS).unwrap()),
            normalised(toeplitz_matrix(blt)),
        ),
        (
            Strategy::BandedToeplitz(BandedToeplitz::new(bands.to_vec()).unwrap()),
            toeplitz_matrix(banded),
        ),
        (
            Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(ROUNDS).unwrap()),
            normalised(toeplitz_matrix(root)),
        ),
        (
            Strategy::InverseToeplitz(inverse.clone()),
            toeplitz_matrix(halves),
        ),
        (
            Strategy::NormalisedInverseToeplitz(NormalisedInverseToeplitz::new(ROUNDS, inverse).unwrap()),
            normalised(toeplitz_matrix(halves)),
        ),
        (Strategy::Banded(Banded::new(ROUNDS, 3, packed).unwrap()), rows),
        (Strategy::Dense(Dense::new(ROUNDS, lower(&full)).unwrap()), full),
        (Strategy::Tree(Tree::new()), trees(&[ROUNDS])),
        (
            Strategy::Tree(Tree::with_restarts(3, 4).unwrap()),
            trees(&[3, 4, 4]),
        ),
        (
            Strategy::TreeFull(TreeFull::new(ROUNDS, TreeLayout::CompleteNodes).unwrap()),
            trees(&[ROUNDS]),
        ),
        (
            Strategy::TreeFull(TreeFull::new(ROUNDS, TreeLayout::Trees { leaves: 8 }).unwrap()),
            // The second tree's nodes hold the sums of the rounds that the run has.
            trees(&[8, 8]),
        ),
    ]
}

fn brute_force(matrix: &Matrix, set: &[u32]) -> f64 {
    let row = |row: &Vec<f64>| set.iter().map(|&round| row[round as usize]).sum::<f64>();
    matrix.iter().map(|entries| row(entries).powi(2)).sum()
}

fn all_sets() -> impl Iterator<Item = Vec<u32>> {
    (1..1u32 << ROUNDS).map(|mask| {
        (0..ROUNDS as u32)
            .filter(|round| mask >> round & 1 == 1)
            .collect()
    })
}

#[test]
fn norms_of_all_sets_are_those_of_the_dense_matrix() {
    for (strategy, matrix) in cases() {
        let norm = SetNorm::new(&strategy, ROUNDS as u64, ROUNDS).unwrap();
        assert!(norm.is_exact(), "{}", strategy.name());
        // What runs too long for all products compute.
        let long = Columns::of(&strategy, ROUNDS)
            .ok()
            .map(|columns| SetNorm::Columns {
                columns,
                rounds: ROUNDS as u32,
            });
        for set in all_sets() {
            let want = brute_force(&matrix, &set);
            for norm in [Some(&norm), long.as_ref()].into_iter().flatten() {
                let got = norm.squared(&set, &mut Vec::new()).unwrap();
                assert!(
                    (got - want).abs() <= 1e-12 * want,
                    "{} {set:?}: {got} instead of {want}",
                    strategy.name()
                );
            }
        }
        assert!(norm.squared(&[ROUNDS as u32], &mut Vec::new()).is_err());
    }
}

#[test]
fn the_largest_over_a_schema_is_its_sensitivity() {
    let gap = |rounds| Gap::new(rounds).unwrap();
    let schemas = [
        Participation::single(),
        Participation::at_least(gap(3), 3).unwrap(),
        Participation::at_least(gap(4), 2).unwrap(),
        Participation::fixed_epochs(gap(4), 3).unwrap(),
    ];
    for (strategy, _) in cases() {
        let norm = SetNorm::new(&strategy, ROUNDS as u64, ROUNDS).unwrap();
        for schema in &schemas {
            let gap = schema.gap().get();
            let keeps = |set: &Vec<u32>| {
                set.len() as u64 <= schema.max_participation()
                    && set.windows(2).all(|pair| match schema.spacing() {
                        Spacing::AtLeast => u64::from(pair[1] - pair[0]) >= gap,
                        Spacing::Exactly => u64::from(pair[1] - pair[0]) == gap,
                    })
            };
            let got = all_sets()
                .filter(keeps)
                .map(|set| norm.squared(&set, &mut Vec::new()).unwrap())
                .fold(0.0, f64::max);
            let want = strategy.squared_sensitivity(ROUNDS, schema).unwrap();
            let bound = want.squared.get();
            assert!(
                got <= bound * (1.0 + 1e-12),
                "{} {schema:?}: {got} {bound}",
                strategy.name()
            );
            if want.exact {
                assert!(
                    (got - bound).abs() <= 1e-12 * bound,
                    "{} {schema:?}: {got} {bound}",
                    strategy.name()
                );
            }
        }
    }
}

#[test]
fn negative_inner_products_are_bounded_from_above() {
    // Moves of opposite sign are worse than 1_S here: every sign is covered.
    let mut generator = ParticipationKey::from_bytes([5; 32]).generator(b"test");
    let mut number = || (generator.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
    let matrix: Matrix = (0..ROUNDS)
        .map(|i| {
            let entry = |j: usize| if j == i { 1.0 } else { number() };
            let mut row: Vec<f64> = (0..=i).map(entry).collect();
            row.resize(ROUNDS, 0.0);
            row
        })
        .collect();
    let packed = (0..ROUNDS).flat_map(|i| matrix[i][..=i].to_vec()).collect();
    let strategy = Strategy::Dense(Dense::new(ROUNDS, packed).unwrap());
    let norm = SetNorm::new(&strategy, ROUNDS as u64, ROUNDS).unwrap();
    assert!(!norm.is_exact());
    for set in all_sets().filter(|set| set.len() <= 5) {
        let got = norm.squared(&set, &mut Vec::new()).unwrap();
        for signs in 0..1u32 << set.len() {
            let row = |row: &Vec<f64>| -> f64 {
                let signed = |(place, &round): (usize, &u32)| {
                    row[round as usize] * (1.0 - 2.0 * f64::from(signs >> place & 1))
                };
                set.iter().enumerate().map(signed).sum()
            };
            let reached: f64 = matrix.iter().map(|entries| row(entries).powi(2)).sum();
            assert!(reached <= got * (1.0 + 1e-12));
        }
    }
}

/// Random ledgers have the MinS and MaxP of a quadratic scan, the exact sensitivity of the dense matrix, and a schema above it.
#[test]
fn ledgers_cost_what_the_dense_matrix_says_and_never_more_than_their_schema() {
    let mut generator = ParticipationKey::from_bytes([6; 32]).generator(b"test");
    for (strategy, matrix) in cases() {
        let cohorts: Vec<Vec<ParticipantId>> = (0..ROUNDS)
            .map(|_| {
                let drawn = generator.next_u64() & generator.next_u64();
                (0..40)
                    .filter(|user| drawn >> user & 1 == 1)
                    .map(ParticipantId::new)
                    .collect()
            })
            .collect();
        let (mut observed, mut sets) = (Observed::new(), ParticipationSets::new());
        for (round, cohort) in (0..).zip(&cohorts) {
            observed.record(round, cohort).unwrap();
            sets.record(round, cohort).unwrap();
        }
        let sets = sets.by_user();
        let rounds_of = |user: u64| -> Vec<u32> {
            let took = |round: &u32| cohorts[*round as usize].contains(&ParticipantId::new(user));
            (0..ROUNDS as u32).filter(took).collect()
        };
        let all: Vec<Vec<u32>> = (0..40).map(rounds_of).filter(|set| !set.is_empty()).collect();
        let mut smallest = u64::MAX;
        for set in &all {
            for (i, early) in set.iter().enumerate() {
                for late in &set[i + 1..] {
                    smallest = smallest.min(u64::from(late - early));
                }
            }
        }
        assert_eq!(
            observed.min_sep().map(|between| between.gap().get()),
            Some(smallest)
        );
        let max = all.iter().map(Vec::len).max().unwrap() as u64;
        assert_eq!(
            (observed.max_participation(), observed.users()),
            (max, all.len() as u64)
        );
        let mut grouped: Vec<&[u32]> = sets.iter().collect();
        grouped.sort_unstable();
        let mut expected: Vec<&[u32]> = all.iter().map(Vec::as_slice).collect();
        expected.sort_unstable();
        assert_eq!(grouped, expected);

        let noise = NoiseMultiplier::new(3.0).unwrap();
        let planned = Mechanism::new(strategy, ROUNDS, Participation::single(), noise).unwrap();
        let exact = exact_squared_sensitivity(&planned, ROUNDS as u64, &sets).unwrap();
        let want = all
            .iter()
            .map(|set| brute_force(&matrix, set))
            .fold(0.0, f64::max);
        let got = exact.squared.get();
        assert!(
            exact.exact && (got - want).abs() <= 1e-12 * want,
            "{got} instead of {want}"
        );
        let shown = observed.mechanism(&planned).unwrap().unwrap();
        assert!(got <= shown.sensitivity().squared.get() * (1.0 + 1e-12));
    }
}

#[test]
fn rounds_out_of_reach_and_users_named_twice_are_refused() {
    let noise = NoiseMultiplier::new(3.0).unwrap();
    let tree = Strategy::Tree(Tree::new());
    let mechanism = Mechanism::new(tree, 5, Participation::single(), noise).unwrap();
    let record = |round, users: &[u64]| {
        let mut sets = ParticipationSets::new();
        let cohort: Vec<ParticipantId> = users.iter().map(|&user| ParticipantId::new(user)).collect();
        sets.record(round, &cohort).map(|()| sets.by_user())
    };
    let sets = record(4, &[1]).unwrap();
    assert!(exact_squared_sensitivity(&mechanism, 5, &sets).is_ok());
    for made in [0, 4, 6] {
        let error = exact_squared_sensitivity(&mechanism, made, &sets).unwrap_err();
        assert!(error.to_string().contains("rounds"), "{error}");
    }
    assert!(matches!(record(4, &[1, 1]), Err(Violation::Twice { .. })));
    let mut sets = ParticipationSets::new();
    sets.record(4, &[]).unwrap();
    assert!(matches!(sets.record(4, &[]), Err(Violation::OutOfOrder { .. })));
}
