//! The processes of one run, and their two collective operations.
//!
//! Rank 0 leads: it owns the run directory, draws cohorts, adds the noise and orders the work of the others. They train their
//! part of a round's cohort into one sum of integers.

#[cfg(feature = "mpi")]
mod mpi;

#[cfg(feature = "mpi")]
pub use self::mpi::MpiRanks;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Result, RunError};

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

    /// Replaces the bytes of all processes by those of the process `from`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> Result<()>;
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

    fn broadcast(&self, _: usize, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// The work items of a rank: every `size`-th one, starting at its rank, so that items in falling order of size spread evenly.
pub(crate) fn work_of_rank(order: &[usize], rank: usize, size: usize) -> impl Iterator<Item = usize> {
    order.iter().copied().skip(rank).step_by(size.max(1))
}

/// The text of a message between processes.
pub(crate) fn message(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| RunError::value("run", "values that JSON can hold", error))
}

/// Gathers the outcomes of all pieces of `order`, ascending by piece. `made` holds those of this rank's pieces.
///
/// # Errors
/// [`RunError::Rank`] for a rank that does not send the outcome of each of its pieces once; from the network.
pub(crate) fn gather<T: Serialize + DeserializeOwned>(
    made: BTreeMap<usize, T>,
    order: &[usize],
    ranks: &dyn Ranks,
) -> Result<Vec<T>> {
    if ranks.size() == 1 {
        return Ok(made.into_values().collect());
    }
    let own = message(&Vec::from_iter(&made))?;
    let mut all = BTreeMap::new();
    for rank in 0..ranks.size() {
        let mut bytes = own.clone();
        ranks.broadcast(rank, &mut bytes)?;
        let due = work_of_rank(order, rank, ranks.size());
        all.extend(read(&bytes, rank, due.collect())?);
    }
    Ok(all.into_values().collect())
}

/// The outcomes in the message of a rank, if they are those of the pieces that are `due`.
fn read<T: DeserializeOwned>(bytes: &[u8], rank: usize, mut due: BTreeSet<usize>) -> Result<Vec<(usize, T)>> {
    let refused = |expected: String, got: &str| RunError::Rank {
        rank,
        expected,
        got: got.to_owned(),
    };
    let once = |piece: &usize| format!("the outcome of piece {piece} once");
    let sent: Vec<(usize, T)> = serde_json::from_slice(bytes)
        .map_err(|error| refused("outcomes of the same program".to_owned(), &error.to_string()))?;
    if let Some((piece, _)) = sent.iter().find(|(piece, _)| !due.remove(piece)) {
        return Err(refused(
            once(piece),
            "a second outcome, or that of a piece of a different process",
        ));
    }
    match due.first() {
        Some(piece) => Err(refused(once(piece), "no outcome")),
        None => Ok(sent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_aggregation::{MicrobatchOutcome, UserOutcome};

    #[test]
    fn outcomes_come_back_with_all_bits() {
        let odd_nan = f64::from_bits(0xfff8_0000_0000_1234);
        let numbers = [
            0.25,
            -0.0,
            f64::MIN_POSITIVE / 4.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            odd_nan,
        ];
        for (number, below) in numbers
            .into_iter()
            .zip([None, Some(false), Some(true)].into_iter().cycle())
        {
            let user = UserOutcome {
                weight: number,
                examples: 3,
                tokens: u64::MAX,
                loss_sum: number,
                norm: number,
                clipped: true,
                discarded: false,
                below,
            };
            let microbatch = MicrobatchOutcome {
                examples: 2,
                tokens: 9,
                loss_sum: number,
                norms: vec![number, 1.5],
                clipped: 1,
                discarded: 0,
            };
            let sent = [(4, (user, microbatch))];
            let came: Vec<(usize, (UserOutcome, MicrobatchOutcome))> =
                read(&message(&sent).unwrap(), 0, [4].into()).unwrap();
            // All but the bits of a NaN.
            assert_eq!(format!("{came:?}"), format!("{sent:?}"));
            let (user, microbatch) = &came[0].1;
            let bits = [
                user.weight,
                user.loss_sum,
                user.norm,
                microbatch.loss_sum,
                microbatch.norms[0],
            ];
            assert_eq!(bits.map(f64::to_bits), [number.to_bits(); 5]);
        }
    }

    #[test]
    fn a_rank_that_sends_a_piece_not_once_is_named() {
        let due = || work_of_rank(&[4, 2, 0, 3, 1], 1, 3).collect::<BTreeSet<_>>();
        assert_eq!(due(), [1, 2].into());
        let sent = |pieces: &[usize]| {
            let pieces: Vec<(usize, u8)> = pieces.iter().map(|piece| (*piece, 7)).collect();
            read::<u8>(&message(&pieces).unwrap(), 1, due())
        };
        assert_eq!(sent(&[1, 2]).unwrap(), [(1, 7), (2, 7)]);
        for (pieces, expected) in [
            (&[1][..], "piece 2 once, got no outcome"),
            (&[], "piece 1 once, got no outcome"),
            (&[1, 2, 1], "piece 1 once, got a second outcome"),
            (&[1, 2, 4], "piece 4 once, got a second outcome, or that of"),
            (&[1, 2, 5], "piece 5 once, got a second outcome, or that of"),
        ] {
            let error = sent(pieces).unwrap_err().to_string();
            assert!(
                error.starts_with("MPI process 1: ") && error.contains(expected),
                "{error}"
            );
        }
        assert!(read::<u8>(b"", 1, due()).is_err());
    }
}
