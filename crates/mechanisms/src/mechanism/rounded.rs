//! Recurrences in integers: rounded fresh noise and a rounded function of earlier rounds.
//!
//! Buffers are fixed-point numbers of 8 bytes per coordinate: their error is absolute, so it does not grow with the
//! noise.
//! Histories keep integers, exact in an `f64`, also 8 bytes. A tree keeps integer estimates: an estimate is
//! `children + f(own - children)` with `f` a rounded multiple. The sum of the averages under a node is in `own` and in
//! `children` alike, so it leaves the difference as it is: *estimates from noised node sums are that sum plus the estimates
//! from the noise alone, exactly*. Releasing averages with this noise is post-processing of releasing the node sums with
//! integer noise.

use rayon::prelude::*;

use super::reach;
use super::slack::{fresh_factor, integer_weight};
use crate::error::Result;
use crate::sampler::fresh::{BLOCK, Maker, add};
use crate::sampler::uniform::NoiseKey;
use crate::stream::engine::{History, LONG};
use crate::stream::field::Field;
use crate::stream::past::Past;
use crate::stream::program::RecurrenceProgram;
use crate::stream::tree::{self, Place};

mod arithmetic;
mod step;
#[cfg(test)]
mod tests;

use step::{Step, Workspace};

/// A recurrence in integers with its memory.
pub(crate) struct Rounded {
    program: RecurrenceProgram,
    rounds: usize,
    /// Standard deviation of every entry of `Z`, in grid steps.
    steps: f64,
    fraction_bits: u32,
    past: Past,
    kept: bool,
    restarted: usize,
    pub(crate) memory: Memory,
}

/// The memory that is kept between rounds.
pub(crate) enum Memory {
    Integers(Field<i64>),
    Reals(Field<f64>),
}

impl Rounded {
    pub(crate) fn new(
        program: RecurrenceProgram,
        rounds: usize,
        dim: usize,
        steps: f64,
        fraction_bits: u32,
        history: Option<History>,
    ) -> Result<Self> {
        let kept = program.keeps(history)?;
        let length = program.look_back(rounds);
        let past = Past {
            length,
            kept,
            ahead: length >= LONG,
        };
        let memory = match &program {
            RecurrenceProgram::Identity => Memory::Integers(Field::new(0, dim)?),
            RecurrenceProgram::Buffers { complement, .. } => {
                Memory::Integers(Field::new(complement.len(), dim)?)
            }
            RecurrenceProgram::History { .. } => Memory::Reals(Field::new(past.slots(), dim)?),
            RecurrenceProgram::Tree { .. } if !kept => Memory::Integers(Field::new(0, dim)?),
            RecurrenceProgram::Tree { .. } => Memory::Integers(Field::new(tree::heights(rounds), dim)?),
            RecurrenceProgram::Blocks { leaves, .. } => {
                Memory::Integers(Field::new(tree::heights(rounds.min(*leaves)), dim)?)
            }
        };
        Ok(Self {
            program,
            rounds,
            steps,
            fraction_bits,
            past,
            kept,
            restarted: 0,
            memory,
        })
    }

    /// Returns true if the memory determines, with fresh rows of rounds to come, everything that later rounds take from
    /// earlier ones: no row is made a second time.
    pub(crate) fn keeps_all(&self) -> bool {
        self.kept
    }

    /// The choices besides the program that the layout of the memory depends on.
    pub(crate) fn layout(&self) -> [u8; 3] {
        [self.kept, self.past.kept, self.past.ahead].map(u8::from)
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

    /// Samples of fresh noise that a whole run draws in one coordinate.
    pub(crate) fn samples(&self) -> f64 {
        match self.program {
            // A tree of n leaves has fewer than 2 n nodes.
            RecurrenceProgram::Tree { .. } => 2.0 * self.rounds as f64,
            _ => self.rounds as f64,
        }
    }

    /// Total variation between all of them and ideal ones.
    pub(crate) fn total_variation(&self) -> Result<f64> {
        if matches!(self.program, RecurrenceProgram::Tree { .. }) {
            return Ok(self.samples() * reach::total_variation(self.steps)?);
        }
        let factor = |round| fresh_factor(&self.program, round);
        (0..self.rounds)
            .map(|round| reach::total_variation(self.steps * factor(round)))
            .sum()
    }

    fn step(&self, round: usize) -> Step {
        match &self.program {
            RecurrenceProgram::Identity => Step::Fresh,
            RecurrenceProgram::Buffers {
                complement, output, ..
            } => {
                let factor = f64::from(self.fraction_bits).exp2() / self.program.scale(round);
                Step::Buffers {
                    weights: output.iter().map(|weight| weight / factor).collect(),
                    complement: complement.clone(),
                    factor,
                }
            }
            RecurrenceProgram::History { source, .. } => Step::History {
                step: self.past.step(round, self.restarted, self.rounds, |at, lag| {
                    integer_weight(&self.program, at, lag)
                }),
                source: *source,
            },
            RecurrenceProgram::Tree { restarts } => Step::Tree {
                place: Place::new(round, self.restarted, restarts),
            },
            RecurrenceProgram::Blocks {
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

    /// Adds the noise of a round to `values`, which begin with block `first`. Each block of a round has one call. After a failure the
    /// memory is of no round.
    pub(crate) fn advance(
        &mut self,
        round: usize,
        key: &NoiseKey,
        first: usize,
        values: &mut [i64],
    ) -> Result<()> {
        let step = self.step(round);
        let (program, steps, kept) = (&self.program, self.steps, self.kept);
        // A row of fresh noise has the number of its round, in trees of its node, whose noise is all of one size.
        let size = |row: u64| match program {
            RecurrenceProgram::Tree { .. } => steps,
            _ => steps * fresh_factor(program, row as usize),
        };
        let begin = || (Maker::new(key), Workspace::new());
        match &mut self.memory {
            Memory::Integers(field) => values
                .par_chunks_mut(BLOCK)
                .zip(field.blocks_mut().into_par_iter().skip(first))
                .enumerate()
                .try_for_each_init(begin, |(maker, space), (block, (values, state))| {
                    let mut make = |row: u64, out: &mut [i64]| maker.fill(row, first + block, size(row), out);
                    let noise = &mut space.noise[..values.len()];
                    step.integers(round as u64, noise, state, kept, &mut space.spare, &mut make)?;
                    add(values, noise);
                    Ok(())
                }),
            Memory::Reals(field) => values
                .par_chunks_mut(BLOCK)
                .zip(field.blocks_mut().into_par_iter().skip(first))
                .enumerate()
                .try_for_each_init(begin, |(maker, space), (block, (values, state))| {
                    let mut make = |row: u64, out: &mut [i64]| maker.fill(row, first + block, size(row), out);
                    let noise = &mut space.noise[..values.len()];
                    step.reals(
                        round as u64,
                        noise,
                        state,
                        space.reals.as_mut_slice(),
                        &mut space.spare,
                        &mut make,
                    )?;
                    add(values, noise);
                    Ok(())
                }),
        }
    }
}
