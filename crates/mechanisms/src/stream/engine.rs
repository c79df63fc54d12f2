//! One round of a recurrence over all coordinates, block by block, in `f32`.

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::field::{Field, slot_mut};
use super::kernel::{self, LOOK_AHEAD, single};
use super::past::{self, Past};
use super::program::{RecurrenceProgram, Source};
use super::source::Maker;
use super::tree::{self, Place};
use crate::error::{MechanismError, Result};
use crate::sampler::gaussian32::BLOCK;
use crate::sampler::uniform::NoiseKey;

/// A history of at least this length is worth a pass for several rounds.
pub(crate) const LONG: usize = 64;

/// The source of the noise of earlier rounds when a later round needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum History {
    /// The noise is kept in memory.
    Keep,
    /// The noise is made once more from its key: less memory, more time. Only for recurrences over the fresh noise (`Taps`,
    /// `Dense`, `Tree`); those over earlier outputs keep them.
    Remake,
}

/// Trades of memory for time; the output is the same up to rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// `None` keeps, except for `Dense`, whose history is the whole run.
    pub history: Option<History>,
    /// True if a pass over a long history serves 16 rounds, for 16 vectors more of memory. `None` does so from 64 on.
    pub look_ahead: Option<bool>,
    /// True if rounds give the noise in the sum of all rounds so far, false if they give the noise of the round's own
    /// sum. The sum takes one vector more.
    pub cumulative: bool,
}

/// A recurrence with its memory.
pub(crate) struct Engine {
    program: RecurrenceProgram,
    rounds: usize,
    past: Past,
    /// True if a tree keeps its nodes' estimates.
    kept: bool,
    cumulative: bool,
    /// The last round at which everything was forgotten.
    restarted: usize,
    pub(crate) field: Field<f32>,
}

/// A round's work, the same for all blocks.
enum Step {
    Fresh,
    Buffers {
        output: Vec<f32>,
        complement: Vec<f32>,
    },
    History {
        lead: f32,
        step: past::Step<f32>,
        source: Source,
    },
    Tree {
        place: Place,
    },
    Remade {
        rows: Vec<(u64, f32)>,
    },
    Blocks {
        lead: f32,
        weights: Vec<(usize, f32)>,
        merged: usize,
    },
}

impl Engine {
    pub(crate) fn new(
        program: RecurrenceProgram,
        rounds: usize,
        dim: usize,
        options: StreamOptions,
    ) -> Result<Self> {
        let kept = program.keeps(options.history)?;
        let length = program.look_back(rounds);
        let past = Past {
            length,
            kept,
            ahead: length > 0 && options.look_ahead.unwrap_or(length >= LONG),
        };
        let vectors = match &program {
            RecurrenceProgram::Identity => 0,
            RecurrenceProgram::Buffers { complement, .. } => complement.len(),
            RecurrenceProgram::History { .. } => past.slots(),
            RecurrenceProgram::Tree { .. } if !kept => 0,
            RecurrenceProgram::Tree { .. } => tree::heights(rounds),
            RecurrenceProgram::Blocks { leaves, .. } => tree::heights(rounds.min(*leaves)),
        };
        Ok(Self {
            program,
            rounds,
            past,
            kept,
            cumulative: options.cumulative,
            restarted: 0,
            field: Field::new(vectors + usize::from(options.cumulative), dim)?,
        })
    }

    /// Hashes the choices besides the program that the bytes of the noise and the layout of the memory depend on.
    pub(crate) fn hash(&self, hash: &mut Sha256) {
        let flags = [self.kept, self.past.kept, self.past.ahead, self.cumulative];
        hash.update(flags.map(u8::from));
        hash.update((self.rounds as u64).to_le_bytes());
    }

    pub(crate) fn restarted(&self) -> usize {
        self.restarted
    }

    pub(crate) fn restart(&mut self, round: usize) {
        self.restarted = round;
        self.field.clear();
    }

    /// Continues where another engine of the same program stood; the field comes by itself.
    pub(crate) fn set_restarted(&mut self, round: usize) {
        self.restarted = round;
    }

    fn step(&self, round: usize) -> Step {
        match &self.program {
            RecurrenceProgram::Identity => Step::Fresh,
            RecurrenceProgram::Buffers {
                complement, output, ..
            } => Step::Buffers {
                output: output.iter().map(|&value| value as f32).collect(),
                complement: complement.iter().map(|&value| value as f32).collect(),
            },
            RecurrenceProgram::History { weights, source, .. } => Step::History {
                lead: weights.lead(round) as f32,
                step: self.past.step(round, self.restarted, self.rounds, |at, lag| {
                    weights.later(at, lag)
                }),
                source: *source,
            },
            RecurrenceProgram::Tree { restarts } => {
                let place = Place::new(round, self.restarted, restarts);
                if self.kept {
                    return Step::Tree { place };
                }
                let (rows, weights) = tree::residual(place);
                Step::Remade {
                    rows: rows
                        .zip(weights.into_iter().map(|weight| weight as f32))
                        .collect(),
                }
            }
            RecurrenceProgram::Blocks {
                leaves,
                diagonal,
                begins,
                weights,
            } => {
                let leaf = round % leaves;
                let heights = (0..usize::BITS as usize).rev().filter(|&h| leaf >> h & 1 == 1);
                Step::Blocks {
                    lead: diagonal[round] as f32,
                    weights: heights
                        .zip(&weights[begins[round]..])
                        .map(|(h, &w)| (h, w as f32))
                        .collect(),
                    merged: leaf.trailing_ones() as usize,
                }
            }
        }
    }

    /// Makes the round's row from noise of `key`, or from the standard normal row that `out` holds.
    pub(crate) fn advance(
        &mut self,
        round: usize,
        gain: f64,
        key: Option<&NoiseKey>,
        out: &mut [f32],
    ) -> Result<()> {
        self.rows(round, gain, key, out, false)
    }

    /// Adds the round's row from noise of `key` to `sum`.
    pub(crate) fn advance_adding(
        &mut self,
        round: usize,
        gain: f64,
        key: &NoiseKey,
        sum: &mut [f32],
    ) -> Result<()> {
        self.rows(round, gain, Some(key), sum, true)
    }

    fn rows(
        &mut self,
        round: usize,
        gain: f64,
        key: Option<&NoiseKey>,
        out: &mut [f32],
        adding: bool,
    ) -> Result<()> {
        let step = self.step(round);
        if key.is_none() && step.needs_key() {
            return Err(MechanismError::HistoryNotRemade);
        }
        let gain = (gain * self.program.scale(round)) as f32;
        let cumulative = self.cumulative;
        let slots = self.field.slots() - usize::from(cumulative);
        out.par_chunks_mut(BLOCK)
            .zip(self.field.blocks_mut())
            .enumerate()
            .try_for_each_init(
                || {
                    let spare = if adding { 3 * BLOCK } else { 2 * BLOCK };
                    (key.map(Maker::new), Zeroizing::new(vec![0.0; spare]))
                },
                |(maker, spare), (block, (target, state))| {
                    let (spare, own) = spare.split_at_mut(2 * BLOCK);
                    let out = if adding {
                        &mut own[..target.len()]
                    } else {
                        &mut *target
                    };
                    let make = |row: u64, out: &mut [f32]| match maker.as_mut() {
                        Some(maker) => maker.fill(row, block, out),
                        None => Ok(()),
                    };
                    let (state, sum) = state.split_at_mut(slots * out.len());
                    step.apply(round as u64, out, state, spare, make)?;
                    single::scale(out, gain);
                    if cumulative {
                        single::add_scaled(sum, 1.0, out);
                        out.copy_from_slice(sum);
                    }
                    if adding {
                        single::add_scaled(target, 1.0, &own[..target.len()]);
                    }
                    Ok(())
                },
            )
    }
}

impl Step {
    /// Returns true if more than the round's own row is made from the key.
    fn needs_key(&self) -> bool {
        match self {
            Step::History { step, .. } => step.makes_rows(),
            Step::Tree { place } => place.height > 0,
            Step::Remade { rows } => rows.len() > 1,
            Step::Fresh | Step::Buffers { .. } | Step::Blocks { .. } => false,
        }
    }

    /// Turns the round's row of `Z` into the unscaled output, in place.
    fn apply(
        &self,
        round: u64,
        out: &mut [f32],
        state: &mut [f32],
        spare: &mut [f32],
        mut make: impl FnMut(u64, &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let length = out.len();
        let (spare, sum) = spare.split_at_mut(BLOCK);
        let (spare, sum) = (&mut spare[..length], &mut sum[..length]);
        match self {
            Step::Fresh => make(round, out)?,
            Step::Buffers { output, complement } => {
                make(round, out)?;
                kernel::buffers(out, state, output, complement);
            }
            Step::History { lead, step, source } => {
                make(round, out)?;
                if *source == Source::Fresh {
                    sum.copy_from_slice(out);
                    single::scale(out, *lead);
                    step.gather(state, out, spare, &mut make)?;
                    step.remember(state, sum);
                } else {
                    single::scale(out, *lead);
                    step.gather(state, out, spare, &mut make)?;
                    step.remember(state, out);
                }
            }
            Step::Tree { place } => {
                make(place.leaf, out)?;
                sum.fill(0.0);
                for height in 0..place.height {
                    make(place.leaf + height as u64 + 1, spare)?;
                    let left = slot_mut(state, height, length);
                    kernel::join(out, sum, left, spare, tree::own_weight(height + 1) as f32);
                }
                slot_mut(state, place.height, length).copy_from_slice(out);
                single::add_scaled(out, -1.0, sum);
            }
            Step::Remade { rows } => {
                let (last, earlier) = match rows.split_last() {
                    Some(((row, weight), earlier)) => ((*row, *weight), earlier),
                    None => ((round, 1.0), &rows[..]),
                };
                make(last.0, out)?;
                single::scale(out, last.1);
                for (row, weight) in earlier {
                    make(*row, spare)?;
                    single::add_scaled(out, *weight, spare);
                }
            }
            Step::Blocks {
                lead,
                weights,
                merged,
            } => {
                make(round, out)?;
                single::scale(out, *lead);
                for (height, weight) in weights {
                    single::add_scaled(out, -weight, slot_mut(state, *height, length));
                }
                sum.copy_from_slice(out);
                for height in 0..*merged {
                    single::add_scaled(sum, 1.0, slot_mut(state, height, length));
                }
                slot_mut(state, *merged, length).copy_from_slice(sum);
            }
        }
        Ok(())
    }
}

const _: () = assert!(LOOK_AHEAD <= LONG);
