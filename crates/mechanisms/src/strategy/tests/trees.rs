//! Trees against the nodes that they measure.

use super::matrices::{Matrix, brute_force, inverse, noise};
use super::workloads;
use crate::{Strategy, Tree, TreeFull, TreeLayout};
use undertone_accounting::participation::{Gap, Participation};

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
fn online_trees_match_all_sets() {
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
            for (gap, max_par) in [(1, 1), (1, 3), (2, 4), (3, 5), (5, 2)] {
                let gap = Gap::new(gap).unwrap();
                for schema in [
                    Participation::at_least(gap, max_par),
                    Participation::fixed_epochs(gap, max_par),
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
