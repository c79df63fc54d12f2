//! Streams of correlated noise: one row of `C^-1 Z` per round, at the speed of memory.
//!
//! A row of `Z` is made in blocks of 4096 coordinates that depend on key, round and place alone. Each block is made
//! into cache, goes through the recurrence together with its part of the memory, and is written out: one pass over
//! memory per round, on all threads, with the same bytes at any number of them.
//!
//! **Accuracy.** Noise, memory and output are `f32`. The recurrence is stable (`C^-1` has bounded rows), so an error made
//! in one round decays like noise of that round: after 2000 rounds of a four-buffer BLT rows are within `1e-5` standard
//! deviations of the recurrence in `f64` (tested). That is far below the noise, but it is not the grid that a guarantee
//! about what leaves the server needs: releases go through [`CorrelatedGaussian`](crate::CorrelatedGaussian), which adds
//! integers.

use std::io::{Read, Write};

use sha2::{Digest, Sha256};

use crate::error::{MechanismError, Result, positive};
use crate::recurrence::Recurrence;
use crate::sampler::uniform::NoiseKey;
use crate::state::{Keys, Resumable};
use engine::{Engine, StreamOptions};
use program::RecurrenceProgram;

pub(crate) mod engine;
pub(crate) mod field;
pub(crate) mod kernel;
pub(crate) mod past;
pub(crate) mod program;
#[cfg(test)]
pub(crate) mod reference;
mod source;
pub(crate) mod tree;

/// Size of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamShape {
    /// Maximum number of rounds.
    pub rounds: usize,
    /// Coordinates per row.
    pub dim: usize,
}

/// Correlated noise in `f32`, row after row: for simulations and research.
///
/// Rows are those of `noise_std C^-1 Z` for the matrix `C` of a strategy: what each round's sum receives, for any server
/// optimizer. With [`StreamOptions::cumulative`] they are its running sums: the noise in the sum of all rounds so far.
///
/// # Guarantee
/// The same recurrence, key and options give the same bytes at any number of threads, in one go or resumed. Adding these
/// rows to `f32` sums is not a release with a proved guarantee: low bits of floating-point sums tell of their summands.
/// Use [`CorrelatedGaussian`](crate::CorrelatedGaussian) for that.
///
/// # Source
/// \[BLT\] Algorithm 3 for buffers; Honaker, "Efficient Use of Differentially Private Binary Trees" (2015) for trees.
///
/// # Example
/// ```
/// use undertone_mechanisms::{NoiseKey, NoiseStream, Recurrence, StreamShape, StreamOptions};
///
/// let recurrence = Recurrence::Buffers {
///     decay_complement: vec![0.1],
///     output: vec![0.3],
///     scale: vec![],
/// };
/// let shape = StreamShape { rounds: 100, dim: 1000 };
/// let key = NoiseKey::from_bytes([7; 32]);
/// let mut stream = NoiseStream::new(&recurrence, shape, 0.5, key, StreamOptions::default())?;
/// let mut row = vec![0.0; 1000];
/// stream.next(&mut row)?;
/// assert_eq!((stream.round(), stream.kept_vectors()), (1, 1));
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
pub struct NoiseStream {
    engine: Engine,
    shape: StreamShape,
    noise_std: f64,
    key: NoiseKey,
    state: Resumable,
}

impl NoiseStream {
    /// A stream before its first round, for noise of standard deviation `noise_std` in every entry of `Z`.
    ///
    /// # Errors
    /// A recurrence with too few numbers for the rounds, or one that is not finite; a standard deviation that is not
    /// positive and finite; options that do not suit the recurrence; not enough memory.
    pub fn new(
        recurrence: &Recurrence,
        shape: StreamShape,
        noise_std: f64,
        key: NoiseKey,
        options: StreamOptions,
    ) -> Result<Self> {
        positive("noise_std", noise_std)?;
        // Rows of trees are numbered up to twice the round; all have to fit a key's 48 bits.
        key.stream(
            crate::sampler::uniform::Purpose::Gaussian32,
            2 * shape.rounds as u64,
        )?;
        let program = RecurrenceProgram::new(recurrence, shape.rounds)?;
        let mut hash = Sha256::new();
        hash.update(b"undertone noise stream\0");
        hash.update(noise_std.to_le_bytes());
        program.hash(&mut hash);
        let engine = Engine::new(program, shape.rounds, shape.dim, options)?;
        engine.hash(&mut hash);
        Ok(Self {
            engine,
            shape,
            noise_std,
            state: Resumable::new(hash.finalize().into(), &key, shape.dim, shape.rounds)?,
            key,
        })
    }

    /// Writes the noise of the next round.
    ///
    /// # Errors
    /// [`MechanismError::WrongDimension`], [`MechanismError::NoMoreRounds`].
    pub fn next(&mut self, out: &mut [f32]) -> Result<()> {
        self.check(out)?;
        self.engine
            .advance(self.round(), self.noise_std, Some(&self.key), out)?;
        self.state.advance();
        Ok(())
    }

    /// Adds the noise of the next round to `sum`: the bits of [`next`](Self::next), added in `f32`.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn add_next(&mut self, sum: &mut [f32]) -> Result<()> {
        self.check(sum)?;
        self.engine
            .advance_adding(self.round(), self.noise_std, &self.key, sum)?;
        self.state.advance();
        Ok(())
    }

    /// Makes the next round's noise from fresh noise of the caller: `row` holds standard normal numbers and receives
    /// the noise. The numbers may come from another source, for example another processor.
    ///
    /// # Errors
    /// As [`next`](Self::next), and [`MechanismError::HistoryNotRemade`] for recurrences that make rows from the key.
    pub fn correlate(&mut self, row: &mut [f32]) -> Result<()> {
        self.check(row)?;
        self.engine.advance(self.round(), self.noise_std, None, row)?;
        self.state.advance();
        Ok(())
    }

    fn check(&self, row: &[f32]) -> Result<()> {
        if row.len() != self.shape.dim {
            return Err(MechanismError::WrongDimension {
                expected: self.shape.dim,
                got: row.len(),
            });
        }
        if self.round() >= self.shape.rounds {
            return Err(MechanismError::NoMoreRounds {
                rounds: self.shape.rounds,
            });
        }
        Ok(())
    }

    /// Forgets all earlier noise: the next rounds are those of a new stream with fresh noise, the noise of the rounds made
    /// so far stays as it is. Cumulative noise starts from zero.
    pub fn restart(&mut self) {
        self.engine.restart(self.round());
    }

    /// Rounds made.
    #[must_use]
    pub fn round(&self) -> usize {
        self.state.round()
    }

    /// Vectors of the model's dimension that the stream keeps in memory.
    #[must_use]
    pub fn kept_vectors(&self) -> usize {
        self.engine.field.slots()
    }

    /// Writes everything that later rounds need, except the key: version, digest of the mechanism, name of the key,
    /// dimension, rounds, memory, checksum.
    ///
    /// PRIVACY: a state is as secret as the noise: keep it as the key is kept.
    ///
    /// # Errors
    /// [`MechanismError::StateIo`].
    pub fn save(&self, writer: &mut impl Write) -> Result<()> {
        let restarted = self.engine.restarted();
        self.state.save(restarted, self.engine.field.values(), writer)
    }

    /// Continues where [`save`](Self::save) was called; the bytes of later rounds are those that would have come.
    ///
    /// # Errors
    /// [`MechanismError::StateMismatch`] naming what is different, [`MechanismError::StateDamaged`],
    /// [`MechanismError::StateIo`]. The stream is then as new.
    pub fn load(&mut self, reader: &mut impl Read) -> Result<()> {
        self.state.rewind();
        self.engine.set_restarted(0);
        let values = self.engine.field.values_mut();
        let restarted = self.state.load(Keys::Same, values, reader)?;
        self.engine.set_restarted(restarted);
        Ok(())
    }
}

impl std::fmt::Debug for NoiseStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoiseStream")
            .field("shape", &self.shape)
            .field("noise_std", &self.noise_std)
            .field("round", &self.round())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
