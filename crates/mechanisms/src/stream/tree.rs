//! The binary tree's nodes: which are complete when, where their noise comes from, and with what weight.

use std::ops::Range;

/// The place of a round in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// First round of the tree.
    pub(crate) begin: usize,
    /// Height of the largest node that the round completes; the heights below are merged into it.
    pub(crate) height: usize,
    /// Row of `Z` for the round's leaf; the nodes above it that the round completes follow it.
    pub(crate) leaf: u64,
}

impl Place {
    /// `restarted` is the last round at which everything was forgotten, `restarts` the planned ones.
    pub(crate) fn new(round: usize, restarted: usize, restarts: &[usize]) -> Self {
        let planned = restarts.partition_point(|&restart| restart <= round);
        let begin = restarts[..planned]
            .last()
            .map_or(restarted, |&last| last.max(restarted));
        Self::within(round, begin)
    }

    /// The place of `round` in the tree that began at round `begin`.
    pub(crate) fn within(round: usize, begin: usize) -> Self {
        let leaf = round - begin;
        // Nodes complete before this leaf: 2 leaf - popcount(leaf). A tree of r rounds has fewer than 2 r nodes, so trees
        // that begin at twice their first round never share a row.
        let before = 2 * leaf as u64 - u64::from(leaf.count_ones());
        Self {
            begin,
            height: leaf.trailing_ones() as usize,
            leaf: 2 * begin as u64 + before,
        }
    }
}

/// Heights that a tree over some of `rounds` rounds can have at most.
pub(crate) fn heights(rounds: usize) -> usize {
    rounds.max(1).ilog2() as usize + 1
}

/// Weight of a node's own noise in Honaker's estimate of its sum; the children's estimates have the rest.
///
/// Estimates of height `h` have variance `v_h = 1 / (2 - 2^-h)`, the children's sum has `2 v_{h-1}`.
pub(crate) fn own_weight(height: usize) -> f64 {
    if height == 0 {
        return 1.0;
    }
    let children = 2.0 / (2.0 - 0.5f64.powi(height as i32 - 1));
    children / (1.0 + children)
}

/// The rows of `Z` behind the noise of a round: all nodes under the largest complete one, in order, with their weights.
///
/// The noise of a round is the estimate of that node less the estimates of the nodes merged into it.
pub(crate) fn residual(place: Place) -> (Range<u64>, Vec<f64>) {
    let mut weights = Vec::with_capacity((2 << place.height) - 1);
    spine(place.height, 1.0, &mut weights);
    let end = place.leaf + place.height as u64 + 1;
    (end - weights.len() as u64..end, weights)
}

/// A node whose right children are new and whose left children's estimates are taken away, in post-order.
fn spine(height: usize, estimate: f64, weights: &mut Vec<f64>) {
    let own = own_weight(height);
    if height > 0 {
        let children = estimate * (1.0 - own);
        whole(height - 1, children - 1.0, weights);
        spine(height - 1, children, weights);
    }
    weights.push(estimate * own);
}

/// A node of which only the estimate counts, in post-order.
fn whole(height: usize, estimate: f64, weights: &mut Vec<f64>) {
    let own = own_weight(height);
    if height > 0 {
        let children = estimate * (1.0 - own);
        whole(height - 1, children, weights);
        whole(height - 1, children, weights);
    }
    weights.push(estimate * own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_used_once() {
        let restarts = [5, 12, 13];
        let mut used = Vec::new();
        for round in 0..40 {
            let restarted = if round < 21 { 0 } else { 21 };
            let place = Place::new(round, restarted, &restarts);
            used.extend(place.leaf..=place.leaf + place.height as u64);
            let (rows, weights) = residual(place);
            assert_eq!(rows.end - rows.start, weights.len() as u64);
            assert!(rows.start >= 2 * place.begin as u64 && used.contains(&rows.start));
        }
        let count = used.len();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), count);
    }

    #[test]
    fn variance_of_prefix_sums_is_honakers() {
        // mechanisms.md's figure: the sum over set bits h of t of 1 / (2 - 2^-h).
        let mut sum = vec![0.0; 200];
        for round in 0..64 {
            let place = Place::new(round, 0, &[]);
            let (rows, weights) = residual(place);
            for (row, weight) in rows.zip(weights) {
                sum[row as usize] += weight;
            }
            let variance: f64 = sum.iter().map(|weight| weight * weight).sum();
            let exact: f64 = (0..7)
                .filter(|h| (round + 1) >> h & 1 == 1)
                .map(|h| 1.0 / (2.0 - 0.5f64.powi(h)))
                .sum();
            assert!((variance - exact).abs() < 1e-12, "{round}: {variance} {exact}");
        }
    }
}
