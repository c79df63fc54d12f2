//! Evaluations: the model that their devices measure, and the rates that a round releases.

use serde::{Deserialize, Serialize};
use undertone_coordinator::head::Next;
use undertone_coordinator::task::TaskPurpose;
use undertone_protocol::{Blob, Digest32};
use undertone_store::Blobs;

use super::{Current, Room};
use crate::error::{Result, ServiceError};
use crate::identity::hex;

/// The release of a round of an evaluation, as JSON: means over users, with noise. Users count equally.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleasedScores {
    /// The digest of the model that was measured.
    pub model: String,
    /// Number of users in the means.
    pub included: u64,
    /// Mean fraction of targets for which the likeliest word is right.
    pub top1: f64,
    /// Mean loss per target in nats, where the loss of a user is capped.
    pub capped_loss: f64,
    /// Mean fraction of the targets within the vocabulary for which the likeliest word is right.
    pub in_vocabulary_top1: f64,
    /// The standard deviation of the noise in each of the two fractions, at most.
    pub standard_error: f64,
}

/// A published model, as devices load it.
///
/// # Errors
/// From the blobs; also for a model that is not published.
pub(crate) fn newest_model(blobs: &dyn Blobs, digest: &Digest32) -> Result<Blob> {
    Ok(Blob {
        sha256: digest.to_vec(),
        length: blobs.get(digest, 0)?.length,
        url: String::new(),
    })
}

impl Room {
    /// The model that devices load in the next attempt: the newest one of the task, or of the training that an evaluation measures.
    pub(super) fn served_model(&self, own: &Blob) -> Result<Blob> {
        let Some(of) = self.task.of else {
            return Ok(own.clone());
        };
        let row = self.shared.store.task(of)?;
        newest_model(self.shared.blobs.as_ref(), &row.head_model)
    }

    /// The rates of a round.
    ///
    /// # Errors
    /// [`ServiceError::Value`] for a release that has not three values.
    pub(super) fn rates(&self, current: &Current, next: &Next) -> Result<Vec<u8>> {
        let refused = |got: String| ServiceError::Value {
            key: "the release of an evaluation".to_owned(),
            expected: "three rates of at least one user".to_owned(),
            got,
        };
        let TaskPurpose::Evaluate { loss_cap, .. } = self.task.file.purpose else {
            return Err(refused("that of a training".to_owned()));
        };
        let values = next
            .average
            .as_ref()
            .map(undertone_mechanisms::NoisedAverage::values)
            .unwrap_or_default();
        let included = next.entry.survivors.unwrap_or(next.entry.cohort_size);
        let &[top1, capped_loss, in_vocabulary_top1] = values else {
            return Err(refused(format!("{} values", values.len())));
        };
        if included == 0 {
            return Err(refused("no user".to_owned()));
        }
        // A device divides its rates by the root of three, and the release divides their sum by the report goal. Both are public.
        let scale = 3f64.sqrt() * self.task.file.goal() as f64 / included as f64;
        let bounded = next.head.plan().bounded();
        let row = bounded
            .map(|bounded| bounded.mechanism().largest_row())
            .transpose();
        let row = row.map_err(|error| refused(error.to_string()))?.unwrap_or(1.0);
        let rates = ReleasedScores {
            model: hex(&current.model.sha256),
            included,
            top1: scale * f64::from(top1),
            capped_loss: loss_cap * scale * f64::from(capped_loss),
            in_vocabulary_top1: scale * f64::from(in_vocabulary_top1),
            standard_error: scale * next.entry.noise_std * row,
        };
        serde_json::to_vec(&rates).map_err(|error| refused(error.to_string()))
    }
}
