//! The orders that rank 0 sends to the other processes of a run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use undertone_aggregation::{Clipping, NonFinite};

use crate::error::{Result, RunError};
use crate::ranks::{Ranks, message};
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::kept_examples::Microbatch;
use undertone_local::LocalTask;

/// One message.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The start of the run, before the first round.
    Start(Start),
    /// A round; the parameters come behind it.
    Round(RoundOrder),
    /// The end of the run.
    Over,
}

/// The inputs that a follower needs to train.
#[derive(PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The configuration, as TOML.
    pub(crate) config: String,
    /// The folder where relative paths of the configuration start.
    pub(crate) base: PathBuf,
    /// Digest of the corpus that rank 0 opened.
    pub(crate) data_sha256: String,
    /// Digest of the parameters that adapters are added to.
    pub(crate) frozen_sha256: Option<String>,
}

impl std::fmt::Debug for RoundOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoundOrder")
            .field("round", &self.round)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").finish_non_exhaustive()
    }
}

/// A round, all but its parameters.
#[derive(PartialEq, Serialize, Deserialize)]
pub(crate) struct RoundOrder {
    pub(crate) round: u64,
    pub(crate) estimate: Option<f64>,
    clip: Clip,
    zero_update: bool,
    pub(crate) users: Vec<usize>,
    /// The seed of the order of each user's examples. PRIVACY: a follower gets these seeds and never the root of the run's
    /// randomness, from which the noise follows.
    pub(crate) order_seeds: Vec<[u8; 32]>,
    pub(crate) microbatches: Option<Vec<Microbatch>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Clip {
    None,
    Flat(f64),
    PerLayer(Vec<f64>),
}

impl RoundOrder {
    pub(crate) fn new(task: &LocalTask<'_>, cohort: &Cohort, order_seeds: &[[u8; 32]]) -> Self {
        Self {
            round: task.round,
            estimate: task.estimate,
            clip: match task.clipping {
                Clipping::None => Clip::None,
                Clipping::Flat { clip_norm } => Clip::Flat(*clip_norm),
                Clipping::PerLayer { clip_norms } => Clip::PerLayer(clip_norms.clone()),
            },
            zero_update: task.non_finite == NonFinite::Zero,
            users: cohort.users.clone(),
            order_seeds: order_seeds.to_vec(),
            microbatches: cohort.microbatches.clone(),
        }
    }

    pub(crate) fn clipping(&self) -> Clipping {
        match &self.clip {
            Clip::None => Clipping::None,
            Clip::Flat(clip_norm) => Clipping::Flat {
                clip_norm: *clip_norm,
            },
            Clip::PerLayer(clip_norms) => Clipping::PerLayer {
                clip_norms: clip_norms.clone(),
            },
        }
    }

    pub(crate) fn non_finite(&self) -> NonFinite {
        match self.zero_update {
            true => NonFinite::Zero,
            false => NonFinite::Refuse,
        }
    }
}

impl Order {
    /// Sends the order to all other processes, if there are any; `theta` goes with a round.
    pub(crate) fn send(&self, theta: &[f32], ranks: &dyn Ranks) -> Result<()> {
        if ranks.size() == 1 {
            return Ok(());
        }
        let text = message(self)?;
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text);
        bytes.extend_from_slice(bytemuck::cast_slice(theta));
        ranks.broadcast(0, &mut bytes)
    }

    /// Receives the next order of rank 0; the parameters of a round are put into `theta`.
    pub(crate) fn receive(theta: &mut Vec<f32>, ranks: &dyn Ranks) -> Result<Self> {
        let mut bytes = Vec::new();
        ranks.broadcast(0, &mut bytes)?;
        Self::read(&bytes, theta).ok_or_else(|| RunError::Rank {
            rank: ranks.rank(),
            expected: "an order of rank 0, of the same program".to_owned(),
            got: format!("{} other bytes", bytes.len()),
        })
    }

    fn read(bytes: &[u8], theta: &mut Vec<f32>) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (text, parameters) = rest.split_at_checked(length)?;
        let (parameters, []) = parameters.as_chunks() else {
            return None;
        };
        theta.clear();
        // All processes of a run have one byte order: they are one program.
        theta.extend(parameters.iter().map(|bytes| f32::from_ne_bytes(*bytes)));
        serde_json::from_slice(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_follower_holds_no_key_of_the_run() {
        let start = Start {
            config: String::new(),
            base: PathBuf::new(),
            data_sha256: String::new(),
            frozen_sha256: None,
        };
        let message = serde_json::to_value(&start).unwrap();
        let keys: Vec<&str> = message.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["base", "config", "data_sha256", "frozen_sha256"]);
    }

    #[test]
    fn damaged_orders_are_none() {
        let mut theta = Vec::new();
        let over = [
            [6u64.to_le_bytes().to_vec(), b"\"Over\"".to_vec()].concat(),
            vec![0; 8],
        ]
        .concat();
        assert_eq!(Order::read(&over, &mut theta), Some(Order::Over));
        assert_eq!(theta, [0.0, 0.0]);
        for length in [0, 7, 9, 13, 15] {
            assert_eq!(Order::read(&over[..length], &mut theta), None, "{length}");
        }
    }
}
