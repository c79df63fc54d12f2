//! Weighted sums of earlier vectors: from a ring that keeps them, or from their keys; one round or several at a time.

use zeroize::Zeroize;

use super::field::{slot, slot_mut};
use super::kernel::{LOOK_AHEAD, double, single};
use crate::error::Result;

/// A number that vectors are kept in.
pub(crate) trait Number: Copy + Default + Send + Sync + Zeroize + 'static {
    fn from_f64(value: f64) -> Self;
    /// `sum += factor * values`.
    fn add_scaled(sum: &mut [Self], factor: Self, values: &[Self]);
    /// See [`single::look_ahead`].
    fn look_ahead(sums: &mut [Self], history: &[&[Self]], weights: &[[Self; LOOK_AHEAD]]);
}

impl Number for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    fn add_scaled(sum: &mut [Self], factor: Self, values: &[Self]) {
        single::add_scaled(sum, factor, values);
    }

    fn look_ahead(sums: &mut [Self], history: &[&[Self]], weights: &[[Self; LOOK_AHEAD]]) {
        single::look_ahead(sums, history, weights);
    }
}

impl Number for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }

    fn add_scaled(sum: &mut [Self], factor: Self, values: &[Self]) {
        double::add_scaled(sum, factor, values);
    }

    fn look_ahead(sums: &mut [Self], history: &[&[Self]], weights: &[[Self; LOOK_AHEAD]]) {
        double::look_ahead(sums, history, weights);
    }
}

/// The memory of earlier vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Past {
    /// Vectors that a round looks back on at most.
    pub(crate) length: usize,
    /// True if they are kept in a ring; otherwise they are made again.
    pub(crate) kept: bool,
    /// True if the sums of [`LOOK_AHEAD`] rounds are made in one pass, and kept.
    pub(crate) ahead: bool,
}

/// One round's work, the same for all blocks.
pub(crate) struct Step<N> {
    /// Vectors from before this pass of the look-ahead with their weights in each of its sums; empty between passes.
    pass: Option<(Vec<Earlier>, Vec<[N; LOOK_AHEAD]>)>,
    /// First slot of the look-ahead sums and the place of this round among them.
    sums: Option<(usize, usize)>,
    /// The terms that this round adds up by itself.
    terms: Vec<(Earlier, N)>,
    /// Look-ahead sums that this round's vector goes into at once, since it is not kept.
    later: Vec<(usize, N)>,
    /// Slot of the ring that keeps this round's vector.
    keep: Option<usize>,
}

/// The source of an earlier vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Earlier {
    Slot(usize),
    Row(u64),
}

impl Past {
    /// Vectors of memory.
    pub(crate) fn slots(&self) -> usize {
        let ring = if self.kept { self.length } else { 0 };
        ring + if self.ahead { LOOK_AHEAD } else { 0 }
    }

    /// The work of `round`, in a run of `rounds` rounds that forgot everything before round `restarted`.
    pub(crate) fn step<N: Number>(
        &self,
        round: usize,
        restarted: usize,
        rounds: usize,
        weight: impl Fn(usize, usize) -> f64,
    ) -> Step<N> {
        let earlier = |lag: usize| {
            let round = round - lag;
            if self.kept {
                Earlier::Slot(round % self.length)
            } else {
                Earlier::Row(round as u64)
            }
        };
        let known = self.length.min(round - restarted);
        let reach = |at: usize, lag: usize| {
            if lag <= self.length && at < rounds {
                N::from_f64(weight(at, lag))
            } else {
                N::default()
            }
        };
        let keep = (self.kept && self.length > 0).then(|| round % self.length);
        if !self.ahead {
            let terms = (1..=known).map(|lag| (earlier(lag), reach(round, lag)));
            return Step {
                pass: None,
                sums: None,
                terms: terms.collect(),
                later: Vec::new(),
                keep,
            };
        }
        let phase = (round - restarted) % LOOK_AHEAD;
        let first = if self.kept { self.length } else { 0 };
        let pass = (phase == 0).then(|| {
            let weights = |age: usize| std::array::from_fn(|r| reach(round + r, age + r));
            (
                (1..=known).map(earlier).collect(),
                (1..=known).map(weights).collect(),
            )
        });
        let within = if self.kept { phase.min(known) } else { 0 };
        let later = if self.kept { 0 } else { LOOK_AHEAD - 1 - phase };
        Step {
            pass,
            sums: Some((first, phase)),
            terms: (1..=within)
                .map(|lag| (earlier(lag), reach(round, lag)))
                .collect(),
            later: (1..=later)
                .map(|lag| (first + phase + lag, reach(round + lag, lag)))
                .collect(),
            keep,
        }
    }
}

impl<N: Number> Step<N> {
    /// Adds this round's weighted sum of earlier vectors to `sum`; `make` makes a row again, in `spare`.
    pub(crate) fn gather(
        &self,
        state: &mut [N],
        sum: &mut [N],
        spare: &mut [N],
        mut make: impl FnMut(u64, &mut [N]) -> Result<()>,
    ) -> Result<()> {
        let length = sum.len();
        if let (Some((vectors, weights)), Some((first, _))) = (&self.pass, self.sums) {
            let (ring, sums) = state.split_at_mut(first * length);
            sums.fill(N::default());
            let kept: Vec<&[N]> = vectors
                .iter()
                .filter_map(|earlier| match earlier {
                    Earlier::Slot(index) => Some(slot(ring, *index, length)),
                    Earlier::Row(_) => None,
                })
                .collect();
            if kept.len() == vectors.len() {
                N::look_ahead(sums, &kept, weights);
            } else {
                for (earlier, weights) in vectors.iter().zip(weights) {
                    if let Earlier::Row(row) = earlier {
                        make(*row, spare)?;
                        N::look_ahead(sums, &[&*spare], std::slice::from_ref(weights));
                    }
                }
            }
        }
        if let Some((first, phase)) = self.sums {
            N::add_scaled(sum, N::from_f64(1.0), slot(state, first + phase, length));
        }
        for (earlier, weight) in &self.terms {
            match earlier {
                Earlier::Slot(index) => N::add_scaled(sum, *weight, slot(state, *index, length)),
                Earlier::Row(row) => {
                    make(*row, spare)?;
                    N::add_scaled(sum, *weight, spare);
                }
            }
        }
        Ok(())
    }

    /// Returns true if `gather` makes rows again.
    pub(crate) fn makes_rows(&self) -> bool {
        let row = |earlier: &Earlier| matches!(earlier, Earlier::Row(_));
        self.terms.iter().any(|(earlier, _)| row(earlier))
            || self
                .pass
                .as_ref()
                .is_some_and(|(vectors, _)| vectors.iter().any(row))
    }

    /// Remembers this round's vector.
    pub(crate) fn remember(&self, state: &mut [N], values: &[N]) {
        let length = values.len();
        for (index, weight) in &self.later {
            N::add_scaled(slot_mut(state, *index, length), *weight, values);
        }
        if let Some(index) = self.keep {
            slot_mut(state, index, length).copy_from_slice(values);
        }
    }
}
