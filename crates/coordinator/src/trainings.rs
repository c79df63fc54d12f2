//! The trainings of a model, as its file describes them; a run that starts from the model composes them.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_accounting::Adjacency;
use undertone_present::numbers::hex;

/// One training that went into a model.
///
/// Text is named by the SHA-256 of its source's table in the run file, which privacy reports take as public.
/// PRIVACY: a digest of the text itself would be an exact statistic of it, in a file that is released.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Training {
    /// A model file without a description of its trainings, such as files of other programs.
    Undescribed {},
    /// Training without noise: pre-training, or a run without `[privacy]`.
    NotPrivate {
        /// Name of the text.
        source_sha256: String,
        /// `true` if the text is that of users, or its record says that it was made from such text. A text for pre-training without a
        /// record is declared public by its file.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        from_people: bool,
    },
    /// Training with noise.
    Private {
        /// Name of the text.
        source_sha256: String,
        /// Neighbouring relation of the guarantee.
        adjacency: Adjacency,
        /// The observed guarantee of the run, with its private vocabulary where it had one; `None` where no guarantee
        /// can be stated.
        guarantee: Option<StatedGuarantee>,
        /// `true` if the noise came from a known seed, so that the guarantee is for study only.
        seeded: bool,
    },
}

/// The name of the text of all sessions. A session does not know which text its program reads.
///
/// PRIVACY: a run that starts from the model of a session counts this name as its own text.
#[must_use]
pub fn unknown_source() -> String {
    hex(&Sha256::digest(b"undertone source\0session"))
}

/// An (epsilon, delta) that a model's file states.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatedGuarantee {
    /// Upper bound on epsilon.
    pub epsilon: f64,
    /// Delta of the guarantee.
    pub delta: f64,
}

/// Refuses trainings whose guarantees are not valid.
///
/// # Errors
/// A message with the expected and the actual value.
pub fn check(trainings: &[Training]) -> Result<(), String> {
    for training in trainings {
        let Training::Private {
            guarantee: Some(StatedGuarantee { epsilon, delta }),
            ..
        } = *training
        else {
            continue;
        };
        // PRIVACY: a negative epsilon would make the run that starts from it cheaper. Written so that a NaN is refused.
        let holds = epsilon >= 0.0 && epsilon.is_finite() && (0.0..1.0).contains(&delta);
        if !holds {
            return Err(format!(
                "guarantee: expected an epsilon of at least 0 and a delta in [0, 1), got {epsilon} and {delta}"
            ));
        }
    }
    Ok(())
}
