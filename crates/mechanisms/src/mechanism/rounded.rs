//! Recurrences in integers: rounded fresh noise and a rounded function of what came before.
//!
//! Buffers are fixed-point numbers of 8 bytes a coordinate: their error is absolute, so it does not grow with the noise.
//! Histories keep integers, exact in an `f64`, also 8 bytes. A tree keeps integer estimates: an estimate is
//! `children + f(own - children)` with `f` a rounded multiple. The sum of the averages under a node is in `own` and in
//! `children` alike, so it leaves the difference as it is: *estimates from noised node sums are that sum plus the estimates
//! from the noise alone, exactly*. Releasing averages with this noise is post-processing of releasing the node sums with
//! integer noise.

use rayon::prelude::*;
use zeroize::Zeroizing;

use super::reach;
use super::slack::{fresh_factor, integer_weight};
use crate::error::{MechanismError, Result};
use crate::sampler::fresh::{BLOCK, Maker, add};
use crate::sampler::uniform::NoiseKey;
use crate::stream::engine::{History, LONG};
use crate::stream::field::{Field, slot, slot_mut};
use crate::stream::past::{self, Past};
use crate::stream::plan::{Plan, Source, Weights};
use crate::stream::tree::{self, Place};
use undertone_simd::vectorised;

/// A recurrence in integers with its memory.
pub(crate) struct Rounded {
    plan: Plan,
    rounds: usize,
    /// Standard deviation of every entry of `Z`, in grid steps.
    steps: f64,
    fraction_bits: u32,
    past: Past,
    kept: bool,
    restarted: usize,
    pub(crate) memory: Memory,
}

/// What is kept between rounds.
pub(crate) enum Memory {
    Integers(Field<i64>),
    Reals(Field<f64>),
}

/// A round's work, the same for all blocks.
enum Step {
    Fresh,
    Buffers {
        weights: Vec<f64>,
        complement: Vec<f64>,
        factor: f64,
    },
    History {
        step: past::Step<f64>,
        source: Source,
    },
    Tree {
        place: Place,
    },
    Blocks {
        weights: Vec<(usize, f64)>,
        merged: usize,
    },
}

impl Rounded {
    pub(crate) fn new(
        plan: Plan,
        rounds: usize,
        dim: usize,
        steps: f64,
        fraction_bits: u32,
        history: Option<History>,
    ) -> Result<Self> {
        let remakes = matches!(
            &plan,
            Plan::Tree { .. }
                | Plan::History {
                    source: Source::Fresh,
                    ..
                }
        );
        let dense = matches!(
            &plan,
            Plan::History {
                weights: Weights::Lower { .. },
                ..
            }
        );
        let kept = match history {
            Some(History::Remake) if !remakes => return Err(MechanismError::HistoryNotRemade),
            Some(history) => history == History::Keep,
            None => !dense,
        };
        let length = match &plan {
            Plan::History { weights, .. } => weights.bands().min(rounds) - 1,
            _ => 0,
        };
        let past = Past {
            length,
            kept,
            ahead: length >= LONG,
        };
        let memory = match &plan {
            Plan::Identity => Memory::Integers(Field::new(0, dim)?),
            Plan::Buffers { complement, .. } => Memory::Integers(Field::new(complement.len(), dim)?),
            Plan::History { .. } => Memory::Reals(Field::new(past.slots(), dim)?),
            Plan::Tree { .. } if !kept => Memory::Integers(Field::new(0, dim)?),
            Plan::Tree { .. } => Memory::Integers(Field::new(tree::heights(rounds), dim)?),
            Plan::Blocks { leaves, .. } => {
                Memory::Integers(Field::new(tree::heights(rounds.min(*leaves)), dim)?)
            }
        };
        Ok(Self {
            plan,
            rounds,
            steps,
            fraction_bits,
            past,
            kept,
            restarted: 0,
            memory,
        })
    }

    /// Whether what is kept determines, with fresh rows of rounds to come, everything that later rounds take from earlier
    /// ones: no row is made a second time.
    pub(crate) fn keeps_all(&self) -> bool {
        self.kept
    }

    /// What the layout of the memory depends on besides the plan.
    pub(crate) fn layout(&self) -> [u8; 3] {
        [self.kept, self.past.kept, self.past.ahead].map(u8::from)
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn kept_vectors(&self) -> usize {
        match &self.memory {
            Memory::Integers(field) => field.slots(),
            Memory::Reals(field) => field.slots(),
        }
    }

    pub(crate) fn restarted(&self) -> usize {
        self.restarted
    }

    pub(crate) fn set_restarted(&mut self, round: usize) {
        self.restarted = round;
    }

    pub(crate) fn restart(&mut self, round: usize) {
        self.restarted = round;
        match &mut self.memory {
            Memory::Integers(field) => field.clear(),
            Memory::Reals(field) => field.clear(),
        }
    }

    /// Samples of fresh noise that a whole run draws in one coordinate.
    pub(crate) fn samples(&self) -> f64 {
        match self.plan {
            // A tree of n leaves has fewer than 2 n nodes.
            Plan::Tree { .. } => 2.0 * self.rounds as f64,
            _ => self.rounds as f64,
        }
    }

    /// Total variation between all of them and ideal ones.
    pub(crate) fn total_variation(&self) -> Result<f64> {
        if matches!(self.plan, Plan::Tree { .. }) {
            return Ok(self.samples() * reach::total_variation(self.steps)?);
        }
        let factor = |round| fresh_factor(&self.plan, round);
        (0..self.rounds)
            .map(|round| reach::total_variation(self.steps * factor(round)))
            .sum()
    }

    fn step(&self, round: usize) -> Step {
        match &self.plan {
            Plan::Identity => Step::Fresh,
            Plan::Buffers {
                complement, output, ..
            } => {
                let factor = f64::from(self.fraction_bits).exp2() / self.plan.scale(round);
                Step::Buffers {
                    weights: output.iter().map(|weight| weight / factor).collect(),
                    complement: complement.clone(),
                    factor,
                }
            }
            Plan::History { source, .. } => Step::History {
                step: self.past.step(round, self.restarted, self.rounds, |at, lag| {
                    integer_weight(&self.plan, at, lag)
                }),
                source: *source,
            },
            Plan::Tree { restarts } => Step::Tree {
                place: Place::new(round, self.restarted, restarts),
            },
            Plan::Blocks {
                leaves,
                begins,
                weights,
                ..
            } => {
                let leaf = round % leaves;
                let heights = (0..usize::BITS as usize).rev().filter(|&h| leaf >> h & 1 == 1);
                Step::Blocks {
                    weights: heights.zip(weights[begins[round]..].iter().copied()).collect(),
                    merged: leaf.trailing_ones() as usize,
                }
            }
        }
    }

    /// Adds the noise of a round to `values`. After a failure the memory is of no round.
    pub(crate) fn advance(&mut self, round: usize, key: &NoiseKey, values: &mut [i64]) -> Result<()> {
        let step = self.step(round);
        let (plan, steps, kept) = (&self.plan, self.steps, self.kept);
        // A row of fresh noise has the number of its round, in trees of its node, whose noise is all of one size.
        let size = |row: u64| match plan {
            Plan::Tree { .. } => steps,
            _ => steps * fresh_factor(plan, row as usize),
        };
        let begin = || (Maker::new(key), Workspace::new());
        match &mut self.memory {
            Memory::Integers(field) => values
                .par_chunks_mut(BLOCK)
                .zip(field.blocks_mut())
                .enumerate()
                .try_for_each_init(begin, |(maker, space), (block, (values, state))| {
                    let mut make = |row: u64, out: &mut [i64]| maker.fill(row, block, size(row), out);
                    let noise = &mut space.noise[..values.len()];
                    step.integers(round as u64, noise, state, kept, &mut space.spare, &mut make)?;
                    add(values, noise, block)
                }),
            Memory::Reals(field) => values
                .par_chunks_mut(BLOCK)
                .zip(field.blocks_mut())
                .enumerate()
                .try_for_each_init(begin, |(maker, space), (block, (values, state))| {
                    let mut make = |row: u64, out: &mut [i64]| maker.fill(row, block, size(row), out);
                    let noise = &mut space.noise[..values.len()];
                    step.reals(
                        round as u64,
                        noise,
                        state,
                        space.reals.as_mut_slice(),
                        &mut space.spare,
                        &mut make,
                    )?;
                    add(values, noise, block)
                }),
        }
    }
}

/// What a thread needs for a block; wiped.
struct Workspace {
    noise: Zeroizing<Vec<i64>>,
    spare: Zeroizing<Vec<i64>>,
    reals: Zeroizing<Vec<f64>>,
}

impl Workspace {
    fn new() -> Self {
        Self {
            noise: Zeroizing::new(vec![0; BLOCK]),
            spare: Zeroizing::new(vec![0; 2 * BLOCK]),
            reals: Zeroizing::new(vec![0.0; 2 * BLOCK]),
        }
    }
}

impl Step {
    /// The noise of a round from memory in integers.
    fn integers(
        &self,
        round: u64,
        noise: &mut [i64],
        state: &mut [i64],
        kept: bool,
        spare: &mut [i64],
        make: &mut impl FnMut(u64, &mut [i64]) -> Result<()>,
    ) -> Result<()> {
        let length = noise.len();
        match self {
            Step::Fresh | Step::History { .. } => make(round, noise),
            Step::Buffers {
                weights,
                complement,
                factor,
            } => {
                make(round, noise)?;
                buffers(noise, state, weights, complement, *factor);
                Ok(())
            }
            Step::Tree { place } if kept => estimate(*place, noise, state, spare, make),
            Step::Tree { place } => {
                // All estimates under the round's node once more, from its first leaf on.
                let mut slots = Zeroizing::new(vec![0; (place.height + 1) * length]);
                let leaves = 1usize << place.height;
                let first = round as usize + 1 - leaves;
                for leaf in first..=round as usize {
                    estimate(Place::within(leaf, place.begin), noise, &mut slots, spare, make)?;
                }
                Ok(())
            }
            Step::Blocks { weights, merged } => {
                make(round, noise)?;
                let spare = &mut spare[..length];
                spare.copy_from_slice(noise);
                for (place, noise) in noise.iter_mut().enumerate() {
                    let taken: f64 = weights
                        .iter()
                        .map(|(height, weight)| weight * state[height * length + place] as f64)
                        .sum();
                    *noise -= nearest(taken);
                }
                spare.copy_from_slice(noise);
                for height in 0..*merged {
                    for (sum, part) in spare.iter_mut().zip(slot(state, height, length)) {
                        *sum += part;
                    }
                }
                slot_mut(state, *merged, length).copy_from_slice(spare);
                Ok(())
            }
        }
    }

    /// The noise of a round from a history of integers in `f64`.
    fn reals(
        &self,
        round: u64,
        noise: &mut [i64],
        state: &mut [f64],
        reals: &mut [f64],
        spare: &mut [i64],
        make: &mut impl FnMut(u64, &mut [i64]) -> Result<()>,
    ) -> Result<()> {
        make(round, noise)?;
        let Step::History { step, source } = self else {
            return Ok(());
        };
        let length = noise.len();
        let (sum, row) = reals.split_at_mut(BLOCK);
        let (sum, row, spare) = (&mut sum[..length], &mut row[..length], &mut spare[..length]);
        sum.fill(0.0);
        step.gather(state, sum, row, |index, out| {
            make(index, spare)?;
            to_reals(out, spare);
            Ok(())
        })?;
        if *source == Source::Fresh {
            to_reals(row, noise);
        }
        for (noise, sum) in noise.iter_mut().zip(sum.iter()) {
            *noise += nearest(*sum);
        }
        if *source == Source::Outputs {
            to_reals(row, noise);
        }
        step.remember(state, row);
        Ok(())
    }
}

/// One leaf of a tree: `noise` receives the new estimate less those that are merged into it.
fn estimate(
    place: Place,
    noise: &mut [i64],
    slots: &mut [i64],
    spare: &mut [i64],
    make: &mut impl FnMut(u64, &mut [i64]) -> Result<()>,
) -> Result<()> {
    let length = noise.len();
    let (node, removed) = spare.split_at_mut(BLOCK);
    let (node, removed) = (&mut node[..length], &mut removed[..length]);
    make(place.leaf, noise)?;
    removed.fill(0);
    for height in 0..place.height {
        make(place.leaf + height as u64 + 1, node)?;
        join(
            noise,
            removed,
            slot(slots, height, length),
            node,
            tree::own_weight(height + 1),
        );
    }
    slot_mut(slots, place.height, length).copy_from_slice(noise);
    for (noise, removed) in noise.iter_mut().zip(removed.iter()) {
        *noise -= removed;
    }
    Ok(())
}

vectorised! {
    /// See [`crate::stream::kernel::join`]. PRIVACY: the noise's own part enters only through `node - children`, which the
    /// averages under the node do not change: that makes the release post-processing of the node sums.
    fn join(newest: &mut [i64], removed: &mut [i64], left: &[i64], node: &[i64], weight: f64) {
        for (((newest, removed), left), node) in newest.iter_mut().zip(removed).zip(left).zip(node) {
            let children = left + *newest;
            *removed += left;
            *newest = children + nearest(weight * (node - children) as f64);
        }
    }
}

/// Coordinates that the passes over the buffers take at once.
const STRIP: usize = 256;

/// One round of buffers in fixed point: `noise` holds the fresh integers and receives the output.
fn buffers(noise: &mut [i64], state: &mut [i64], weights: &[f64], complement: &[f64], factor: f64) {
    let length = noise.len();
    let (mut sums, mut added) = (Zeroizing::new([0.0; STRIP]), Zeroizing::new([0; STRIP]));
    for (index, strip) in noise.chunks_mut(STRIP).enumerate() {
        let begin = index * STRIP;
        let (sums, added) = (&mut sums[..strip.len()], &mut added[..strip.len()]);
        sums.fill(0.0);
        for (j, weight) in weights.iter().enumerate() {
            weigh(sums, *weight, &state[j * length + begin..][..strip.len()]);
        }
        to_units(strip, sums, added, factor);
        for (j, complement) in complement.iter().enumerate() {
            decay(
                &mut state[j * length + begin..][..strip.len()],
                *complement,
                added,
            );
        }
    }
}

vectorised! {
    /// `sums += weight * state`.
    fn weigh(sums: &mut [f64], weight: f64, state: &[i64]) {
        for (sum, state) in sums.iter_mut().zip(state) {
            *sum += weight * *state as f64;
        }
    }
}

vectorised! {
    /// `values -= round(sums)`, and `units = round(factor * values)` with the product exact to half a unit.
    fn to_units(values: &mut [i64], sums: &[f64], units: &mut [i64], factor: f64) {
        // The halves of a Dekker product: 26 bits each, so that products of halves are exact.
        const SPLIT: f64 = ((1u64 << 27) + 1) as f64;
        let high = factor * SPLIT - (factor * SPLIT - factor);
        let low = factor - high;
        for ((value, sum), units) in values.iter_mut().zip(sums).zip(units) {
            *value -= nearest(*sum);
            let value = *value as f64;
            let value_high = value * SPLIT - (value * SPLIT - value);
            let value_low = value - value_high;
            let product = value * factor;
            let rest = ((value_high * high - product) + value_high * low + value_low * high) + value_low * low;
            // The leading part beyond 2^53 is an integer; below, it and the rest are rounded together.
            let whole = product.round_ties_even();
            *units = nearest(whole) + nearest((product - whole) + rest);
        }
    }
}

vectorised! {
    /// `state <- state - round(complement * state) + added`.
    fn decay(state: &mut [i64], complement: f64, added: &[i64]) {
        for (state, added) in state.iter_mut().zip(added) {
            *state += added - nearest(complement * *state as f64);
        }
    }
}

/// The nearest integer, ties to even, for `|x| < 2^62`; beyond, some integer. The language's own conversion saturates, which
/// no vector instruction does.
#[inline(always)]
fn nearest(x: f64) -> i64 {
    // Adding 1.5 * 2^52 leaves an integer in the low bits.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    const HALF_WORD: f64 = (1u64 << 32) as f64;
    let shifted_high = x * HALF_WORD.recip() + MAGIC;
    let low = x - (shifted_high - MAGIC) * HALF_WORD;
    let integer = |shifted: f64| (shifted.to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64);
    (integer(shifted_high) << 32).wrapping_add(integer(low + MAGIC))
}

fn to_reals(out: &mut [f64], values: &[i64]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = *value as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::slack;
    use crate::stream::reference::{SAMPLE_ROUNDS, matrix, samples};

    /// A recurrence on one coordinate whose fresh noise the test chooses.
    struct Replay {
        rounded: Rounded,
        integers: Vec<i64>,
        reals: Vec<f64>,
        fresh: Vec<i64>,
    }

    impl Replay {
        fn new(plan: Plan, rounds: usize, steps: f64) -> Self {
            let bits = slack::bound(&plan, rounds, steps).unwrap().fraction_bits;
            let rounded = Rounded::new(plan, rounds, 1, steps, bits, Some(History::Keep)).unwrap();
            let slots = rounded.kept_vectors();
            Self {
                rounded,
                integers: vec![0; slots],
                reals: vec![0.0; slots],
                fresh: Vec::new(),
            }
        }

        /// The noise of the next round for this fresh noise, without moving on.
        fn try_noise(&self, fresh: i64) -> (i64, Vec<i64>, Vec<f64>) {
            let round = self.fresh.len();
            let (mut integers, mut reals) = (self.integers.clone(), self.reals.clone());
            let mut noise = [0];
            let mut make = |row: u64, out: &mut [i64]| {
                out[0] = self.fresh.get(row as usize).copied().unwrap_or(fresh);
                Ok(())
            };
            let step = self.rounded.step(round);
            let (mut spare, mut space) = (vec![0; 2 * BLOCK], vec![0.0; 2 * BLOCK]);
            match self.rounded.memory {
                Memory::Integers(_) => step.integers(
                    round as u64,
                    &mut noise,
                    &mut integers,
                    true,
                    &mut spare,
                    &mut make,
                ),
                Memory::Reals(_) => step.reals(
                    round as u64,
                    &mut noise,
                    &mut reals,
                    &mut space,
                    &mut spare,
                    &mut make,
                ),
            }
            .unwrap();
            (noise[0], integers, reals)
        }

        fn push(&mut self, fresh: i64) -> i64 {
            let (noise, integers, reals) = self.try_noise(fresh);
            (self.integers, self.reals) = (integers, reals);
            self.fresh.push(fresh);
            noise
        }

        /// Chooses the fresh noise so that the round's noise is this.
        fn push_noise(&mut self, noise: i64) -> i64 {
            let (rest, ..) = self.try_noise(0);
            self.push(noise - rest);
            assert_eq!(self.try_noise_of_last(), noise);
            noise - rest
        }

        fn try_noise_of_last(&self) -> i64 {
            let mut again = Replay::new(self.rounded.plan.clone(), self.rounded.rounds, self.rounded.steps);
            self.fresh.iter().map(|&fresh| again.push(fresh)).last().unwrap()
        }
    }

    /// Splitmix64: test data.
    fn random(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = *state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) >> 11) as f64 * 0.5f64.powi(52) - 1.0
    }

    /// The exact move of fresh noise between neighbours with equal releases, against the move without rounding.
    #[test]
    fn neighbours_move_the_fresh_noise_by_no_more_than_the_slack() {
        let rounds = SAMPLE_ROUNDS;
        let mut seed = 7;
        let mut largest_share = 0.0f64;
        for (name, recurrence) in samples() {
            if matches!(recurrence, crate::recurrence::Recurrence::Tree { .. }) {
                continue;
            }
            let plan = Plan::new(&recurrence, rounds).unwrap();
            let inverse = matrix(&recurrence, rounds);
            for exponent in [12, 30, 43] {
                let steps = f64::from(exponent).exp2();
                let bound = slack::bound(&plan, rounds, steps)
                    .unwrap()
                    .squared_per_coordinate
                    .sqrt();
                for moved_by in [0.0, 1.5, 1e-3 * steps, steps] {
                    let (mut one, mut two) = (
                        Replay::new(plan.clone(), rounds, steps),
                        Replay::new(plan.clone(), rounds, steps),
                    );
                    // z = C d, by forward substitution in the rows of C^-1.
                    let (mut z, mut squared): (Vec<f64>, f64) = (Vec::new(), 0.0);
                    for (t, row) in inverse.iter().enumerate() {
                        let factor = fresh_factor(&plan, t);
                        let fresh = (3.0 * steps * factor * random(&mut seed)) as i64;
                        let difference = (moved_by * random(&mut seed)) as i64;
                        let noise = one.push(fresh);
                        let other = two.push_noise(noise - difference);
                        let earlier: f64 = row.iter().zip(&z).map(|(weight, z)| weight * z).sum();
                        z.push((difference as f64 - earlier) / row[t]);
                        let rounding = (fresh - other) as f64 / factor * row[t].signum() - z[t];
                        squared += rounding * rounding;
                    }
                    let arithmetic = 1e-13 * moved_by * rounds as f64;
                    assert!(
                        squared.sqrt() <= bound + arithmetic,
                        "{name}, 2^{exponent} steps, moved by {moved_by}: {} beyond {bound}",
                        squared.sqrt()
                    );
                    largest_share = largest_share.max(squared.sqrt() / bound);
                }
            }
        }
        // The bound is of the right size: some recurrence comes near it.
        assert!(largest_share > 0.3, "{largest_share}");
    }

    /// Estimates from noised node sums are the sums plus the estimates from the noise alone.
    #[test]
    fn trees_are_post_processing_of_node_sums() {
        let rounds = 45;
        let plan = Plan::new(
            &crate::recurrence::Recurrence::Tree { restarts: vec![19] },
            rounds,
        )
        .unwrap();
        let mut seed = 3;
        let averages: Vec<i64> = (0..rounds).map(|_| (1e9 * random(&mut seed)) as i64).collect();
        let noises: Vec<i64> = (0..2 * rounds)
            .map(|_| (1e6 * random(&mut seed)) as i64)
            .collect();
        let run = |with_sums: bool| {
            let rounded = Rounded::new(plan.clone(), rounds, 1, 1e6, 0, Some(History::Keep)).unwrap();
            let mut slots = vec![0; rounded.kept_vectors()];
            let mut results = Vec::new();
            for round in 0..rounds {
                let Step::Tree { place } = rounded.step(round) else {
                    panic!("not a tree")
                };
                let mut make = |row: u64, out: &mut [i64]| {
                    let height = (row - place.leaf) as usize;
                    let below = &averages[round + 1 - (1 << height)..=round];
                    let sum: i64 = if with_sums { below.iter().sum() } else { 0 };
                    out[0] = noises[row as usize] + sum;
                    Ok(())
                };
                let mut noise = [0];
                estimate(place, &mut noise, &mut slots, &mut vec![0; 2 * BLOCK], &mut make).unwrap();
                results.push(noise[0]);
            }
            results
        };
        let released: Vec<i64> = run(false)
            .iter()
            .zip(&averages)
            .map(|(noise, average)| noise + average)
            .collect();
        assert_eq!(released, run(true));
    }

    #[test]
    fn nearest_integers() {
        let mut seed = 5;
        let cases = [
            0.0,
            -0.0,
            0.5,
            1.5,
            2.5,
            -0.5,
            -1.5,
            4_294_967_295.5,
            2_147_483_648.5,
            -2_147_483_648.5,
        ];
        let random = (0..64).map(|exponent| f64::from(exponent - 2).exp2() * random(&mut seed));
        for x in cases.into_iter().chain(random.filter(|x| x.abs() < 62f64.exp2())) {
            for x in [x, x.trunc() + 0.5, x.trunc()] {
                assert_eq!(nearest(x), x.round_ties_even() as i64, "{x}");
            }
        }
        for x in [62f64.exp2().next_down(), -62f64.exp2().next_down()] {
            assert_eq!(nearest(x), x as i64);
        }
    }

    #[test]
    fn products_of_buffers_are_rounded_once() {
        let mut seed = 9;
        for factor in [1.0, (1u64 << 20) as f64, 12_345.678_9, 1e9 / 7.0] {
            for magnitude in [10.0, 1e6, (1u64 << 52) as f64 / factor * 8.0] {
                let value = (magnitude.min(9e15) * random(&mut seed)) as i64;
                let (mut values, mut units) = ([value + 5], [0]);
                to_units(&mut values, &[5.0], &mut units, factor);
                assert_eq!(values, [value]);
                // factor = mantissa * 2^exponent, in integers.
                let bits = factor.to_bits();
                let mantissa = i128::from(bits & 0x000f_ffff_ffff_ffff | 1 << 52);
                let exponent = (bits >> 52) as i32 - 1075;
                let exact = i128::from(value) * mantissa;
                let scaled = i128::from(units[0]) << (-exponent);
                assert!(
                    (scaled - exact).abs() * 2 <= 1 << (-exponent),
                    "{factor} * {value}: {units:?}"
                );
            }
        }
    }
}
