//! The head of a task as bytes: the model that devices read, and the sealed rest that a restart needs.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};
use undertone_aggregation::Wiped;
use undertone_coordinator::adaptive_clip::AdaptiveClip;
use undertone_coordinator::chain::Chain;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{RunHead, Trained};
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::task::TaskConfig;
use undertone_models::weights;
use undertone_store::TaskId;

use crate::error::{Result, ServiceError};
use crate::keys::seal::Sealer;
use crate::keys::{Keys, random};

/// The first line of the sealed state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// Number of released rounds.
    rounds: u64,
    /// Number of steps of the server's optimizer.
    steps: u64,
    /// The adaptive clip norm, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip: Option<AdaptiveClip>,
    /// Number of first moments of the optimizer.
    first: usize,
    /// Number of second moments.
    second: usize,
}

/// The place of a sealed state: its key follows from it, so no state opens in the place of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The task.
    pub task: TaskId,
    /// Number of released rounds.
    pub round: u64,
    /// The attempt that made the last of them.
    pub attempt: u64,
}

/// The bytes of the model, as devices read them under their signed plan.
///
/// # Errors
/// [`ServiceError::Value`] where the head trains no model.
pub fn model(head: &RunHead) -> Result<Vec<u8>> {
    let trained = head.trained().ok_or_else(|| no_model("none"))?;
    weights::tensors_alone(trained.model.layout(), &trained.parameters)
        .map_err(|error| no_model(&error.to_string()))
}

fn no_model(got: &str) -> ServiceError {
    ServiceError::Value {
        key: "the head".to_owned(),
        expected: "a model with its parameters".to_owned(),
        got: got.to_owned(),
    }
}

/// Bytes of the number of the attempt, in front of the sealed state.
const ATTEMPT: usize = 8;

/// Numbers that are converted at once.
const PIECE: usize = 8192;

/// Writes the sealed state of a head: the optimizer, the clip norm, and what correlated noise keeps. It is written in pieces, so a
/// state needs no second copy in memory.
///
/// PRIVACY: with the noise of earlier rounds their sums could be read off the models.
///
/// # Errors
/// From the noise and the writer; no entropy.
pub fn save(head: &RunHead, keys: &Keys, place: Place, writer: &mut dyn Write) -> Result<()> {
    let (steps, first, second): (u64, &[f32], &[f32]) = match head.trained() {
        None => (0, &[], &[]),
        Some(trained) => {
            let (steps, [(_, first), (_, second)]) = trained.optimizer.state();
            (steps, first, second)
        }
    };
    let description = Description {
        rounds: head.round(),
        steps,
        clip: head.clip(),
        first: first.len(),
        second: second.len(),
    };
    let failed = |error| ServiceError::io("write", std::path::Path::new("the sealed state"), error);
    writer.write_all(&place.attempt.to_le_bytes()).map_err(failed)?;
    let key = |salt: &[u8; 32]| keys.state(salt, place.task, place.round, place.attempt);
    let mut sealer = Sealer::new(random()?, &key, writer).map_err(failed)?;
    let line = serde_json::to_vec(&description).map_err(|error| damaged(&error.to_string()))?;
    sealer
        .write_all(&line)
        .and_then(|()| sealer.write_all(b"\n"))
        .map_err(failed)?;
    let mut bytes = Wiped::with_capacity(4 * PIECE);
    for values in first.chunks(PIECE).chain(second.chunks(PIECE)) {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        sealer.write_all(&bytes).map_err(failed)?;
    }
    head.save_secret(&mut sealer)?;
    sealer.finish().map_err(failed)
}

fn damaged(got: &str) -> ServiceError {
    ServiceError::Value {
        key: "the sealed state of the head".to_owned(),
        expected: "the state that this service wrote".to_owned(),
        got: got.to_owned(),
    }
}

/// The parts of a head that the store and the blobs hold.
// PRIVACY: no `Debug`: it holds the state of the noise, which must not be printable.
pub(crate) struct Saved<'a> {
    /// The rounds of the ledger.
    pub ledger: &'a [LedgerEntry],
    /// The end of the ledger.
    pub chain: Chain,
    /// The bytes of [`model`].
    pub model: &'a [u8],
    /// The bytes of [`save`].
    pub sealed: &'a [u8],
    /// The task.
    pub task: TaskId,
    /// Number of released rounds.
    pub round: u64,
}

/// `true` if these keys open the state of a task after a number of rounds.
#[must_use]
pub fn opens(sealed: &[u8], keys: &Keys, task: TaskId, round: u64) -> bool {
    sealed
        .split_first_chunk::<ATTEMPT>()
        .is_some_and(|(attempt, sealed)| {
            let attempt = u64::from_le_bytes(*attempt);
            keys.open_state(sealed, task, round, attempt).is_ok()
        })
}

/// Opens the state of a head: the model that it trains, and the rest that [`OpenedState::head`] needs.
///
/// # Errors
/// [`ServiceError::Sealed`] or [`ServiceError::Value`] for bytes that are not those of this place.
pub(crate) fn open<'a>(
    saved: Saved<'a>,
    mut trained: Option<Trained>,
    keys: &Keys,
) -> Result<OpenedState<'a>> {
    let Saved { task, round, .. } = saved;
    let (attempt, sealed) = saved
        .sealed
        .split_first_chunk::<ATTEMPT>()
        .ok_or(ServiceError::Sealed)?;
    let attempt = u64::from_le_bytes(*attempt);
    let plain = keys.open_state(sealed, task, round, attempt)?;
    let end = plain
        .iter()
        .position(|&byte| byte == b'\n')
        .ok_or_else(|| damaged("no first line"))?;
    let description: Description =
        serde_json::from_slice(&plain[..end]).map_err(|error| damaged(&error.to_string()))?;
    if description.rounds != round || saved.ledger.len() as u64 != round {
        let got = format!(
            "{} rounds, {} lines of the ledger",
            description.rounds,
            saved.ledger.len()
        );
        return Err(damaged(&format!("{got}, for round {round}")));
    }
    let mut place = end + 1;
    let mut moments = |count: usize| -> Result<Vec<f32>> {
        let end = count.checked_mul(4).and_then(|bytes| place.checked_add(bytes));
        let bytes = end
            .and_then(|end| plain.get(place..end))
            .ok_or_else(|| damaged("too few moments"))?;
        place += bytes.len();
        let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Ok(bytes.chunks_exact(4).map(value).collect())
    };
    let (first, second) = (moments(description.first)?, moments(description.second)?);
    if let Some(trained) = &mut trained {
        let read = weights::from_safetensors(trained.model.layout(), saved.model);
        trained.parameters = read.map_err(|error| damaged(&error.to_string()))?;
        if !trained.optimizer.restore(description.steps, first, second) {
            return Err(damaged("moments that do not fit `server.optimizer`"));
        }
    }
    Ok(OpenedState {
        trained,
        clip: description.clip,
        plain,
        secret: place,
        ledger: saved.ledger,
        chain: saved.chain,
    })
}

/// A state that was opened.
// PRIVACY: no `Debug`: it holds the state of the noise, which must not be printable.
pub(crate) struct OpenedState<'a> {
    trained: Option<Trained>,
    clip: Option<AdaptiveClip>,
    plain: Wiped<u8>,
    /// The place at which the state of the noise begins.
    secret: usize,
    ledger: &'a [LedgerEntry],
    chain: Chain,
}

impl OpenedState<'_> {
    /// The head after the rounds of the ledger.
    ///
    /// # Errors
    /// From the ledger and the noise.
    pub(crate) fn head(
        self,
        task: &TaskConfig,
        plan: PrivacyPlan,
        genesis: &str,
        entropy: &RoundEntropy,
    ) -> Result<RunHead> {
        let fresh = RunHead::new(task, plan, self.trained, genesis, entropy)?;
        let mut bytes: &[u8] = &self.plain[self.secret..];
        let secret: Option<&mut dyn Read> = match fresh.has_secret() {
            true => Some(&mut bytes),
            false => None,
        };
        Ok(fresh.load(self.ledger, self.chain, self.clip, secret, entropy)?)
    }
}
