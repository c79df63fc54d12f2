//! Strategies against the matrices that they stand for: the noise that a recurrence makes is inverted to `C`, whose
//! sensitivity is maximised over all participation sets and whose errors are those of dense linear algebra.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use undertone_accounting::participation::{Gap, Participation, Spacing};
use undertone_mechanisms::{
    Banded, BandedToeplitz, Blt, Dense, Identity, InverseToeplitz, NormalisedInverseToeplitz,
    NormalisedToeplitz, Recurrence, Strategy, Tree, TreeFull, TreeLayout, Workload,
};

type Matrix = Vec<Vec<f64>>;

fn zeros(n: usize) -> Matrix {
    vec![vec![0.0; n]; n]
}

/// `C^-1`: the recurrence run on the identity.
fn noise(recurrence: &Recurrence, n: usize) -> Matrix {
    let mut out = zeros(n);
    let factor = |scale: &[f64], t: usize| scale.get(t).copied().unwrap_or(1.0);
    let unit = |t: usize| -> Vec<f64> { (0..n).map(|j| f64::from(u8::from(j == t))).collect() };
    let mut plain = zeros(n);
    let mut blocks: Vec<(usize, Vec<f64>)> = Vec::new();
    let mut used = 0;
    let mut buffers: Vec<Vec<f64>> = Vec::new();
    for t in 0..n {
        let mut row = unit(t);
        let mut add = |c: f64, other: &[f64]| row.iter_mut().zip(other).for_each(|(x, y)| *x += c * y);
        match recurrence {
            Recurrence::Identity => {}
            Recurrence::Buffers {
                decay_complement,
                output,
                scale,
            } => {
                buffers.resize(output.len(), vec![0.0; n]);
                for (buffer, weight) in buffers.iter().zip(output) {
                    add(-weight, buffer);
                }
                for (buffer, complement) in buffers.iter_mut().zip(decay_complement) {
                    for (x, y) in buffer.iter_mut().zip(&row) {
                        *x = (1.0 - complement) * *x + y;
                    }
                }
                row.iter_mut().for_each(|x| *x *= factor(scale, t));
            }
            Recurrence::Bands { coefficients, scale } => {
                for (i, c) in coefficients.iter().enumerate().skip(1).take(t) {
                    add(-c, &plain[t - i]);
                }
                row.iter_mut().for_each(|x| *x /= coefficients[0]);
                plain[t] = row.clone();
                row.iter_mut().for_each(|x| *x *= factor(scale, t));
            }
            Recurrence::Rows { bands, entries } => {
                let entries = &entries[t * bands..(t + 1) * bands];
                for (i, c) in entries.iter().enumerate().skip(1).take(t) {
                    add(-c, &out[t - i]);
                }
                row.iter_mut().for_each(|x| *x /= entries[0]);
            }
            Recurrence::Taps { coefficients, scale } => {
                row = vec![0.0; n];
                for (i, c) in coefficients.iter().enumerate().take(t + 1) {
                    row[t - i] = c * factor(scale, t);
                }
            }
            Recurrence::Blocks {
                leaves,
                diagonal,
                weights,
            } => {
                let u = t % leaves;
                if u == 0 {
                    blocks.clear();
                }
                row[t] = diagonal[t];
                assert_eq!(blocks.len(), u.count_ones() as usize);
                for ((_, block), weight) in blocks.iter().zip(&weights[used..]) {
                    row.iter_mut().zip(block).for_each(|(x, y)| *x -= weight * y);
                }
                used += blocks.len();
                blocks.push((1, row.clone()));
                while blocks.len() > 1 && blocks[blocks.len() - 2].0 == blocks[blocks.len() - 1].0 {
                    let (size, late) = blocks.pop().unwrap();
                    let early = blocks.last_mut().unwrap();
                    early.0 += size;
                    early.1.iter_mut().zip(late).for_each(|(x, y)| *x += y);
                }
            }
            Recurrence::Dense { entries, .. } => {
                row = vec![0.0; n];
                row[..=t].copy_from_slice(&entries[t * (t + 1) / 2..(t + 1) * (t + 2) / 2]);
            }
            other => panic!("no matrix for {other:?}"),
        }
        out[t] = row;
    }
    out
}

/// Of a lower-triangular matrix.
fn inverse(matrix: &Matrix) -> Matrix {
    let n = matrix.len();
    let mut result = zeros(n);
    for t in 0..n {
        let entry = |column: usize| {
            let sum: f64 = (column..t).map(|j| matrix[t][j] * result[j][column]).sum();
            (f64::from(u8::from(t == column)) - sum) / matrix[t][t]
        };
        let row: Vec<f64> = (0..=t).map(entry).collect();
        result[t][..=t].copy_from_slice(&row);
    }
    result
}

/// All non-empty sets of rounds that the schema admits.
fn sets(n: usize, schema: &Participation) -> Vec<Vec<usize>> {
    let gap = schema.gap().get() as usize;
    let mut sets: Vec<Vec<usize>> = (0..n).map(|t| vec![t]).collect();
    let mut begin = 0;
    for _ in 1..schema.max_participation() {
        let end = sets.len();
        for place in begin..end {
            let next = sets[place][sets[place].len() - 1] + gap;
            let last = match schema.spacing() {
                Spacing::AtLeast => n,
                _ => n.min(next + 1),
            };
            for t in next..last {
                let mut longer = sets[place].clone();
                longer.push(t);
                sets.push(longer);
            }
        }
        begin = end;
    }
    sets
}

/// The largest `|| C u ||^2` over all sets and signs of the moves.
fn brute_force(c: &Matrix, schema: &Participation) -> f64 {
    let n = c[0].len();
    let mut best = 0.0;
    for set in sets(n, schema) {
        for signs in 0..1u32 << (set.len() - 1) {
            let row = |i: usize| -> f64 {
                let terms = set.iter().enumerate();
                terms
                    .map(|(place, &j)| {
                        if signs >> place & 1 == 1 {
                            -c[i][j]
                        } else {
                            c[i][j]
                        }
                    })
                    .sum()
            };
            best = f64::max(best, (0..c.len()).map(|i| row(i) * row(i)).sum());
        }
    }
    best
}

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
    proptest::strategy::Strategy::prop_map(parts, |(gap, most, at_least)| {
        let gap = Gap::new(gap).unwrap();
        if at_least {
            Participation::at_least(gap, most).unwrap()
        } else {
            Participation::fixed_epochs(gap, most).unwrap()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn toeplitz(
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
    fn entries(
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
    fn full_trees(
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
fn others_too() {
    for (gap, most) in [(1, 3), (4, 2), (3, 4)] {
        let schema = Participation::at_least(Gap::new(gap).unwrap(), most).unwrap();
        check(&Strategy::Independent(Identity), 14, &schema);
        let blt = Blt::new(&[0.9, 0.4], &[0.3, 0.2]).unwrap();
        assert!(check(&Strategy::Blt(blt), 14, &schema));
    }
}

/// The measured nodes of a tree, as rows.
fn nodes(n: usize, start: usize, length: usize, leaves: usize, complete: bool) -> Matrix {
    let mut rows = Vec::new();
    let mut size = 1;
    while size <= leaves {
        for begin in (0..length).step_by(size) {
            if !complete || begin + size <= length {
                let inside = |t: usize| t >= start + begin && t < start + length.min(begin + size);
                rows.push((0..n).map(|t| f64::from(u8::from(inside(t)))).collect());
            }
        }
        size *= 2;
    }
    rows
}

#[test]
fn the_full_decoder_factors_the_gram_matrix() {
    for (n, layout) in [
        (1usize, TreeLayout::CompleteNodes),
        (13, TreeLayout::CompleteNodes),
        (16, TreeLayout::CompleteNodes),
        (13, TreeLayout::Trees { leaves: 16 }),
        (13, TreeLayout::Trees { leaves: 4 }),
        (11, TreeLayout::Trees { leaves: 8 }),
    ] {
        let (leaves, complete) = match layout {
            TreeLayout::CompleteNodes => (n.next_power_of_two(), true),
            TreeLayout::Trees { leaves } => (leaves, false),
        };
        let starts = (0..n).step_by(leaves);
        let measured: Matrix = starts
            .flat_map(|start| nodes(n, start, leaves.min(n - start), leaves, complete))
            .collect();
        let tree = Strategy::TreeFull(TreeFull::new(n, layout).unwrap());
        let factor = inverse(&noise(&tree.recurrence(n).unwrap(), n));
        for i in 0..n {
            for j in 0..n {
                let gram = |rows: &Matrix| -> f64 { rows.iter().map(|row| row[i] * row[j]).sum() };
                assert!(
                    (gram(&measured) - gram(&factor)).abs() < 1e-12,
                    "{layout:?} {i} {j}"
                );
            }
        }
    }
}

/// The online tree releases every node as it becomes complete: its matrix has a row a node.
#[test]
fn online_trees_over_all_sets() {
    for n in 1..=14 {
        for tree in [
            Tree::new(),
            Tree::with_restarts(2, 5).unwrap(),
            Tree::with_restarts(4, 3).unwrap(),
        ] {
            let (mut start, mut measured) = (0, Matrix::new());
            for length in tree.tree_rounds(n).unwrap() {
                let length = length as usize;
                measured.extend(nodes(n, start, length, length.next_power_of_two(), true));
                start += length;
            }
            assert_eq!(start, n);
            for (gap, most) in [(1, 1), (1, 3), (2, 4), (3, 5), (5, 2)] {
                let gap = Gap::new(gap).unwrap();
                for schema in [
                    Participation::at_least(gap, most),
                    Participation::fixed_epochs(gap, most),
                ] {
                    let schema = schema.unwrap();
                    let want = brute_force(&measured, &schema);
                    let certified = Strategy::Tree(tree).squared_sensitivity(n, &schema).unwrap();
                    let got = certified.squared.get();
                    assert!(
                        got >= want * (1.0 - 1e-12) && (!certified.exact || got <= want * (1.0 + 1e-12)),
                        "{n} {tree:?} {schema:?}: {certified:?} {want}"
                    );
                }
            }
        }
    }
}

/// Coefficients of Honaker's prefix estimates over the leaves' and nodes' noises, by definition.
#[test]
fn online_trees_estimate_as_honaker() {
    for (n, tree) in [
        (1, Tree::new()),
        (21, Tree::new()),
        (32, Tree::new()),
        (23, Tree::with_restarts(3, 8).unwrap()),
    ] {
        let lengths = tree.tree_rounds(n).unwrap();
        let mut prefixes: Matrix = Vec::new();
        let mut before: Vec<f64> = Vec::new();
        let mut noises = 0;
        for length in lengths {
            // Estimates of complete nodes by height and place: coefficients of all noises so far, and the variance.
            let mut levels: Vec<Vec<(Vec<f64>, f64)>> = vec![Vec::new()];
            for t in 0..length as usize {
                let mut fresh = || {
                    noises += 1;
                    let mut unit = vec![0.0; noises];
                    unit[noises - 1] = 1.0;
                    unit
                };
                levels[0].push((fresh(), 1.0));
                let mut height = 0;
                while levels[height].len().is_multiple_of(2) {
                    if levels.len() == height + 1 {
                        levels.push(Vec::new());
                    }
                    let [(x, v), (y, _)] = &levels[height][levels[height].len() - 2..] else {
                        unreachable!()
                    };
                    let own = 2.0 * v / (1.0 + 2.0 * v);
                    let mut estimate = fresh();
                    estimate.iter_mut().for_each(|entry| *entry *= own);
                    for child in [x, y] {
                        estimate
                            .iter_mut()
                            .zip(child)
                            .for_each(|(entry, c)| *entry += (1.0 - own) * c);
                    }
                    let entry = (estimate, own);
                    levels[height + 1].push(entry);
                    height += 1;
                }
                let mut prefix = before.clone();
                let mut first = 0;
                for height in (0..levels.len()).rev().filter(|h| (t + 1) >> h & 1 == 1) {
                    let (estimate, variance) = &levels[height][first >> height];
                    let by_formula = 1.0 / (2.0 - 0.5f64.powi(height as i32));
                    assert!((variance - by_formula).abs() < 1e-15);
                    prefix.resize(prefix.len().max(estimate.len()), 0.0);
                    prefix.iter_mut().zip(estimate).for_each(|(x, y)| *x += y);
                    first += 1 << height;
                }
                prefixes.push(prefix);
            }
            before = prefixes.last().unwrap().clone();
        }
        let mut residuals: Matrix = prefixes;
        for row in &mut residuals {
            row.resize(noises, 0.0);
        }
        for t in (1..n).rev() {
            let (early, late) = residuals.split_at_mut(t);
            late[0].iter_mut().zip(&early[t - 1]).for_each(|(x, y)| *x -= y);
        }
        let strategy = Strategy::Tree(tree);
        for workload in workloads(n) {
            let variances: Vec<f64> = (0..n)
                .map(|t| {
                    let row = workload.row(t).unwrap();
                    let entry = |j: usize| -> f64 { row.iter().zip(&residuals).map(|(a, x)| a * x[j]).sum() };
                    (0..noises).map(|j| entry(j) * entry(j)).sum()
                })
                .collect();
            let want = variances.iter().sum::<f64>() / n as f64;
            let largest = variances.iter().copied().fold(0.0, f64::max);
            let got = strategy.errors(n, &workload).unwrap();
            assert!((got.rms_error.powi(2) / want - 1.0).abs() < 1e-12, "{n} {tree:?}");
            assert!((got.max_error.powi(2) / largest - 1.0).abs() < 1e-12);
        }
    }
}

fn check_losses(strategy: &Strategy, n: usize, gap: u64, most: u64, want: [f64; 2]) {
    let schema = Participation::at_least(Gap::new(gap).unwrap(), most).unwrap();
    let certified = strategy.squared_sensitivity(n, &schema).unwrap();
    let errors = strategy.errors(n, &Workload::prefix_sum()).unwrap();
    let losses = errors.losses(certified.squared);
    for (got, want) in [losses.max_loss, losses.rms_loss].into_iter().zip(want) {
        assert!(
            (got / want - 1.0).abs() < 1e-9,
            "{} {n}: {got} {want}",
            strategy.name()
        );
    }
}

/// By an independent numpy implementation, and the seed numbers of [BLT] Table 3 for TreeAgg-Full.
#[test]
fn reference_losses() {
    let tree = Strategy::Tree(Tree::new());
    check_losses(&tree, 8, 4, 2, [4.730_851_126_483_730_5, 3.443_420_226_626_842_8]);
    check_losses(
        &tree,
        2000,
        400,
        5,
        [18.659_355_512_898_145, 13.679_640_331_907_48],
    );
    check_losses(
        &tree,
        2052,
        342,
        6,
        [27.272_077_308_281_3, 19.275_023_272_586_015],
    );
    let full = |n, layout| Strategy::TreeFull(TreeFull::new(n, layout).unwrap());
    let complete = full(2000, TreeLayout::CompleteNodes);
    check_losses(
        &complete,
        2000,
        400,
        5,
        [14.757_810_223_161_131, 9.794_516_813_521_218],
    );
    let twelve = full(2052, TreeLayout::Trees { leaves: 2048 });
    check_losses(
        &twelve,
        2052,
        342,
        6,
        [14.980_916_608_766_476, 12.469_428_039_035_385],
    );
    let complete = full(2052, TreeLayout::CompleteNodes);
    check_losses(
        &complete,
        2052,
        342,
        6,
        [14.980_916_608_766_476, 12.471_496_223_996_748],
    );
    let fhu = |bands| Strategy::BandedToeplitz(BandedToeplitz::fhu(bands).unwrap());
    check_losses(&fhu(8), 64, 8, 8, [10.150_747_972_771_454, 7.691_710_255_340_499]);
    check_losses(
        &fhu(400),
        2000,
        300,
        5,
        [10.483_200_434_556_702, 8.664_483_167_976_028],
    );
    check_losses(
        &fhu(1024),
        1024,
        1024,
        1,
        [3.272_554_150_273_128, 3.109_789_906_940_565],
    );
    let bisr = |bands| Strategy::InverseToeplitz(InverseToeplitz::square_root(bands).unwrap());
    check_losses(
        &bisr(4),
        64,
        8,
        8,
        [10.653_383_855_032_224, 8.119_199_584_839_503],
    );
    check_losses(
        &bisr(64),
        2000,
        400,
        5,
        [12.494_982_449_794_14, 9.556_769_836_098_058],
    );
    let lambda = |lambda| InverseToeplitz::lambda(lambda).unwrap();
    let taken = Strategy::InverseToeplitz(lambda(0.9));
    check_losses(&taken, 64, 16, 4, [6.685_706_018_079_469, 6.005_046_161_387_425]);
    let normalised = NormalisedInverseToeplitz::new(2000, lambda(0.5)).unwrap();
    let normalised = Strategy::NormalisedInverseToeplitz(normalised);
    check_losses(
        &normalised,
        2000,
        2000,
        1,
        [25.834_013_638_959_35, 18.289_336_202_190_487],
    );
    let root = |n| Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(n).unwrap());
    check_losses(
        &root(16),
        16,
        16,
        1,
        [1.783_258_215_801_352, 1.709_087_464_792_346_7],
    );
    check_losses(
        &root(2052),
        2052,
        2052,
        1,
        [3.299_860_807_424_584_3, 3.209_914_986_263_733_7],
    );
}

#[test]
fn more_rounds_than_the_matrix_has() {
    let strategies = [
        Strategy::TreeFull(TreeFull::new(4, TreeLayout::CompleteNodes).unwrap()),
        Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(4).unwrap()),
        Strategy::NormalisedInverseToeplitz(
            NormalisedInverseToeplitz::new(4, InverseToeplitz::lambda(0.5).unwrap()).unwrap(),
        ),
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
