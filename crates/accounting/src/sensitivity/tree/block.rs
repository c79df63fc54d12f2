//! The maximum over participation sets, as a (max, +) composition of dyadic blocks.
//!
//! A participation set restricted to a block of `size` rounds matters to its surroundings only through its
//! number k of participations, its value v, and two times. Push every participation to the earliest round its
//! set of nodes allows; when the first round open to the block is `e` (counted from the block's begin), the last
//! participation then falls on `max(A, e + (k - 1) gap)` for a constant `A`, as long as `e <= F` for a constant
//! `F`. So the first round open to the next block is `max(R, e + k gap - size)` and at least 0, where
//! `R = max(0, A + gap - size)`. Larger `F`, smaller `R` and larger `v` are better at equal k whatever
//! surrounds the block, so keeping the points that no other point beats in all three loses nothing.
//!
//! A block no longer than the gap has room for one participation, and every place in it has the same value: one
//! point, `F = size - 1`, `R = gap - size`. Composition starts from these, which is what makes it fast; all
//! blocks of one size share one table.

use super::{TreeSensitivity, complete_heights};
use crate::AccountingError;
use crate::participation::{EffectiveParticipation, Spacing, positive};
use crate::sensitivity::SquaredSensitivity;

/// Most pairs of points (or places, for fixed epochs) that are looked at before the exact maximum is refused:
/// some ten seconds.
const MAX_WORK: u64 = 1 << 28;

#[derive(Clone, Copy)]
struct Point {
    /// `F`: the latest first round open to the block at which the set still fits.
    latest_start: u64,
    /// `R`: the first round open to what follows when the set is as early as it can be.
    release: u64,
    /// `v`: sum of squares over the nodes inside.
    value: u64,
}

/// Points that no other beats, for every number of participations.
type Frontier = Vec<Vec<Point>>;

/// The largest total over trees that follow one another.
pub(in crate::sensitivity) fn forest(
    tree_rounds: &[u64],
    schema: &EffectiveParticipation,
) -> Result<TreeSensitivity, AccountingError> {
    for &rounds in tree_rounds {
        positive(rounds, "rounds of a tree")?;
    }
    let participation = schema.participation;
    // A longer gap than the run admits the same sets.
    let gap = participation.gap().get().min(schema.rounds);
    let max_par = participation.max_participation();
    // The last composition alone has about (max_par / 2)^2 pairs.
    if max_par > 2 * MAX_WORK.isqrt() {
        return Err(AccountingError::SensitivityTooLarge {
            max_participation: max_par,
        });
    }
    let (value, best_participation) = if participation.spacing() == Spacing::Exactly && max_par > 1 {
        fixed_epochs(tree_rounds, schema.rounds, gap, max_par)?
    } else {
        Composition::new(gap, max_par).run(tree_rounds)?
    };
    Ok(TreeSensitivity {
        squared_sensitivity: SquaredSensitivity::new(value as f64)?,
        best_participation,
    })
}

struct Composition {
    gap: u64,
    max_par: u64,
    /// Height of the tallest blocks with room for one participation only.
    base: u32,
    /// Tables of complete blocks, from height `base` on.
    tables: Vec<Frontier>,
    work: u64,
}

impl Composition {
    fn new(gap: u64, max_par: u64) -> Self {
        let base = gap.ilog2();
        Self {
            gap,
            max_par,
            base,
            tables: vec![small_block(base, gap)],
            work: 0,
        }
    }

    /// The largest value over the trees and the fewest participations that reach it.
    fn run(&mut self, tree_rounds: &[u64]) -> Result<(u64, u64), AccountingError> {
        // Everything so far: its first open round is 0, so `latest_start` plays no part.
        let mut prefix: Frontier = vec![vec![Point {
            latest_start: 0,
            release: 0,
            value: 0,
        }]];
        let mut length = 0;
        for height in tree_rounds.iter().flat_map(|&rounds| complete_heights(rounds)) {
            let size = 1u64 << height;
            prefix = if height < self.base {
                let block = small_block(height, self.gap);
                self.compose((&prefix, length), (&block, size), false)?
            } else {
                self.build(height)?;
                let tables = std::mem::take(&mut self.tables);
                let block = &tables[(height - self.base) as usize];
                let composed = self.compose((&prefix, length), (block, size), false);
                self.tables = tables;
                composed?
            };
            length += size;
        }
        let values = prefix.iter().zip(0u64..).flat_map(|(points, count)| {
            points
                .iter()
                .map(move |point| (point.value, std::cmp::Reverse(count)))
        });
        Ok(values.max().map_or((0, 0), |(value, count)| (value, count.0)))
    }

    /// Makes the tables up to `height`.
    fn build(&mut self, height: u32) -> Result<(), AccountingError> {
        for height in self.base + self.tables.len() as u32..=height {
            let half = 1u64 << (height - 1);
            let tables = std::mem::take(&mut self.tables);
            let below = &tables[tables.len() - 1];
            let composed = self.compose((below, half), (below, half), true);
            self.tables = tables;
            self.tables.push(composed?);
        }
        Ok(())
    }

    /// Two neighbours; `node`: the two together are a node of the tree and will have a left neighbour of their
    /// own.
    fn compose(
        &mut self,
        (left, left_size): (&Frontier, u64),
        (right, right_size): (&Frontier, u64),
        node: bool,
    ) -> Result<Frontier, AccountingError> {
        let points = |frontier: &Frontier| frontier.iter().map(|points| points.len() as u64).sum::<u64>();
        self.work += points(left) * points(right);
        if self.work > MAX_WORK {
            return Err(AccountingError::SensitivityTooLarge {
                max_participation: self.max_par,
            });
        }
        let max_par = self.max_par.min((left.len() + right.len() - 2) as u64);
        let mut composed = Vec::new();
        let mut candidates = Vec::new();
        for count in 0..=max_par as usize {
            candidates.clear();
            let first = (count + 1).saturating_sub(right.len());
            for (left_count, left_points) in left.iter().enumerate().take(count + 1).skip(first) {
                let right_count = count - left_count;
                let (left_span, right_span) = (left_count as u64 * self.gap, right_count as u64 * self.gap);
                for l in left_points {
                    for r in &right[right_count] {
                        if l.release > r.latest_start {
                            continue;
                        }
                        let latest = (r.latest_start + left_size).saturating_sub(left_span);
                        candidates.push(Point {
                            latest_start: if node { l.latest_start.min(latest) } else { 0 },
                            release: r.release.max((l.release + right_span).saturating_sub(right_size)),
                            value: l.value + r.value + if node { (count * count) as u64 } else { 0 },
                        });
                    }
                }
            }
            if candidates.is_empty() {
                // More do not fit.
                break;
            }
            composed.push(unbeaten(&mut candidates));
        }
        Ok(composed)
    }
}

/// A block with room for one participation.
fn small_block(height: u32, gap: u64) -> Frontier {
    let size = 1u64 << height;
    let none = Point {
        latest_start: gap - 1,
        release: 0,
        value: 0,
    };
    let one = Point {
        latest_start: size - 1,
        release: gap - size,
        value: u64::from(height) + 1,
    };
    vec![vec![none], vec![one]]
}

fn unbeaten(candidates: &mut [Point]) -> Vec<Point> {
    use std::cmp::Reverse;
    candidates
        .sort_unstable_by_key(|point| (Reverse(point.value), Reverse(point.latest_start), point.release));
    let mut kept: Vec<Point> = Vec::new();
    for point in candidates {
        // What is kept has at least this value.
        let beaten =
            |other: &Point| other.latest_start >= point.latest_start && other.release <= point.release;
        if !kept.iter().any(beaten) {
            kept.push(*point);
        }
    }
    kept
}

/// Every place of the first participation, with as many participations as follow.
fn fixed_epochs(
    tree_rounds: &[u64],
    rounds: u64,
    gap: u64,
    max_par: u64,
) -> Result<(u64, u64), AccountingError> {
    let work = rounds
        .saturating_mul(max_par)
        .saturating_mul(u64::from(rounds.ilog2() + 1));
    if work > MAX_WORK {
        return Err(AccountingError::SensitivityTooLarge {
            max_participation: max_par,
        });
    }
    let mut best = (0, std::cmp::Reverse(0));
    let mut set = Vec::new();
    for start in 0..rounds {
        let count = max_par.min((rounds - start).div_ceil(gap));
        set.clear();
        set.extend((0..count).map(|j| start + j * gap));
        best = best.max((value(tree_rounds, &set), std::cmp::Reverse(count)));
    }
    Ok((best.0, best.1.0))
}

/// Sum of squares over all nodes of all trees for one (ascending) set of rounds.
fn value(tree_rounds: &[u64], mut set: &[u64]) -> u64 {
    let (mut sum, mut begin) = (0, 0);
    for height in tree_rounds.iter().flat_map(|&rounds| complete_heights(rounds)) {
        let end = begin + (1u64 << height);
        let inside = set.partition_point(|&round| round < end);
        for level in 0..=height {
            let (mut node, mut count) = (u64::MAX, 0);
            for round in &set[..inside] {
                let this = (round - begin) >> level;
                if this != node {
                    (node, count) = (this, 0);
                }
                // (c + 1)^2 - c^2
                sum += 2 * count + 1;
                count += 1;
            }
        }
        set = &set[inside..];
        begin = end;
    }
    sum
}
