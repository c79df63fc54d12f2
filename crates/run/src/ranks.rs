//! The processes of one run, and their two collective operations.
//!
//! Rank 0 leads: it owns the run directory, draws cohorts, adds the noise and orders the work of the others. They train their
//! part of a round's cohort into one sum of integers.

#[cfg(feature = "mpi")]
mod mpi;

#[cfg(feature = "mpi")]
pub use self::mpi::MpiRanks;

use crate::error::{Result, RunError};
use undertone_local::{MicrobatchOutcome, UserOutcome};

/// The processes that train one run. All of them make the same calls in the same order.
pub trait Ranks: std::fmt::Debug {
    /// The rank of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Replaces the values by their sums over all processes, place by place; no sum leaves the range of `i64`.
    ///
    /// # Errors
    /// An error of the network; after it the run is over.
    fn all_reduce(&self, values: &mut [i64]) -> Result<()>;

    /// Replaces the bytes of all processes by those of rank 0.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<()>;
}

/// A run in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneProcess;

impl Ranks for OneProcess {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_reduce(&self, _: &mut [i64]) -> Result<()> {
        Ok(())
    }

    fn broadcast(&self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// This rank's work items: every `size`-th one, starting at its rank, so that items in falling order of size spread evenly.
pub(crate) fn work_of_rank<'a>(
    order: &'a [usize],
    ranks: &dyn Ranks,
) -> impl Iterator<Item = usize> + use<'a> {
    order
        .iter()
        .copied()
        .skip(ranks.rank())
        .step_by(ranks.size().max(1))
}

/// An outcome as whole numbers; the first of them is never zero.
pub(crate) trait Words: Sized {
    fn write(&self, words: &mut [i64]);
    fn read(words: &[i64]) -> Option<Self>;
}

/// Exchanges the outcomes of all processes, ordered by their number. One process makes each of them, so in a sum of integers
/// the zeros of the others change nothing.
///
/// # Errors
/// [`RunError::Rank`] where one is missing; from the network.
pub(crate) fn exchange<T: Words>(made: Vec<Option<T>>, width: usize, ranks: &dyn Ranks) -> Result<Vec<T>> {
    if ranks.size() == 1 {
        return Ok(made.into_iter().flatten().collect());
    }
    let mut words = vec![0i64; made.len() * width];
    for (place, outcome) in made.iter().enumerate() {
        if let Some(outcome) = outcome {
            outcome.write(&mut words[place * width..(place + 1) * width]);
        }
    }
    ranks.all_reduce(&mut words)?;
    words
        .chunks_exact(width)
        .enumerate()
        .map(|(place, words)| {
            T::read(words).ok_or_else(|| RunError::Rank {
                rank: place % ranks.size(),
                expected: format!("the outcome of piece {place} once"),
                got: format!("{:?}", words.first()),
            })
        })
        .collect()
}

/// Number of words of a user's outcome.
pub(crate) const USER_WORDS: usize = 6;

/// Flag in the first word of each outcome; a second writer would carry it away.
const PRESENT: i64 = 1;
const CLIPPED: i64 = 2;
const DISCARDED: i64 = 4;
const BIT: i64 = 8;
const BELOW: i64 = 16;

fn flag(set: bool, flag: i64) -> i64 {
    if set { flag } else { 0 }
}

fn bits(value: f64) -> i64 {
    value.to_bits().cast_signed()
}

fn float(word: i64) -> f64 {
    f64::from_bits(word.cast_unsigned())
}

impl Words for UserOutcome {
    fn write(&self, words: &mut [i64]) {
        let flags = PRESENT
            | flag(self.clipped, CLIPPED)
            | flag(self.discarded, DISCARDED)
            | flag(self.below.is_some(), BIT)
            | flag(self.below == Some(true), BELOW);
        words.copy_from_slice(&[
            flags,
            bits(self.weight),
            self.examples as i64,
            self.tokens.cast_signed(),
            bits(self.loss_sum),
            bits(self.norm),
        ]);
    }

    fn read(words: &[i64]) -> Option<Self> {
        let &[flags, weight, examples, tokens, loss_sum, norm] = words else {
            return None;
        };
        (flags & PRESENT != 0).then(|| Self {
            weight: float(weight),
            examples: examples as usize,
            tokens: tokens.cast_unsigned(),
            loss_sum: float(loss_sum),
            norm: float(norm),
            clipped: flags & CLIPPED != 0,
            discarded: flags & DISCARDED != 0,
            below: (flags & BIT != 0).then_some(flags & BELOW != 0),
        })
    }
}

/// Number of words of the outcome of a microbatch of at most `size` examples.
pub(crate) fn microbatch_words(size: usize) -> usize {
    7 + size
}

impl Words for MicrobatchOutcome {
    fn write(&self, words: &mut [i64]) {
        let head = [
            PRESENT,
            self.examples as i64,
            self.tokens.cast_signed(),
            bits(self.loss_sum),
            self.clipped as i64,
            self.discarded as i64,
            self.norms.len() as i64,
        ];
        let norms = self.norms.iter().copied().map(bits);
        for (word, value) in words.iter_mut().zip(head.into_iter().chain(norms)) {
            *word = value;
        }
    }

    fn read(words: &[i64]) -> Option<Self> {
        let (&[present, examples, tokens, loss_sum, clipped, discarded, count], norms) =
            words.split_first_chunk()?;
        (present == PRESENT).then(|| Self {
            examples: examples as usize,
            tokens: tokens.cast_unsigned(),
            loss_sum: float(loss_sum),
            norms: norms.iter().take(count as usize).copied().map(float).collect(),
            clipped: clipped as usize,
            discarded: discarded as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back_and_missing_ones_are_noticed() {
        let user = UserOutcome {
            weight: 0.25,
            examples: 3,
            tokens: u64::MAX,
            loss_sum: -0.0,
            norm: f64::INFINITY,
            clipped: true,
            discarded: false,
            below: Some(false),
        };
        for below in [None, Some(false), Some(true)] {
            let user = UserOutcome { below, ..user };
            let mut words = [0; USER_WORDS];
            user.write(&mut words);
            assert_eq!(UserOutcome::read(&words), Some(user));
        }
        assert_eq!(UserOutcome::read(&[0; USER_WORDS]), None);
        let microbatch = MicrobatchOutcome {
            examples: 2,
            tokens: 9,
            loss_sum: 1.5,
            norms: vec![0.5, f64::MAX],
            clipped: 1,
            discarded: 0,
        };
        let mut words = vec![0; microbatch_words(4)];
        microbatch.write(&mut words);
        assert_eq!(MicrobatchOutcome::read(&words), Some(microbatch));
        words[0] = 0;
        assert_eq!(MicrobatchOutcome::read(&words), None);
    }
}
