//! One contribution to the sum of a round: its secrets before the training, and its report after the sum has bounded it.

mod bits;

use serde::{Deserialize, Serialize};
use undertone_mechanisms::NoiseKey;

use crate::bounded::Added;

/// The randomness that one user's contribution to one round needs. Nothing of the run's other randomness follows from it.
///
/// A simulation derives both values from the run's root key. A device draws both anew for every session.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: the order of examples and the noise of a user follow from it"
)]
pub struct UserSeeds {
    /// Decides the choice and the order of the user's examples.
    pub order: [u8; 32],
    /// Decides the rounding of the user's update and its part of the noise.
    pub encoding: NoiseKey,
}

/// The contribution of one user to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UserOutcome {
    /// `w_k`.
    #[serde(with = "bits")]
    pub weight: f64,
    /// Number of examples drawn for the round.
    pub examples: usize,
    /// Number of target tokens trained on, over all local epochs.
    pub tokens: u64,
    /// Sum of the training loss over those tokens.
    #[serde(with = "bits")]
    pub loss_sum: f64,
    /// Norm of the update before its last projection.
    #[serde(with = "bits")]
    pub norm: f64,
    /// `true` if that projection changed it.
    pub clipped: bool,
    /// `true` if the update was not finite, so that the zero vector was added.
    pub discarded: bool,
    /// `true` if the norm is at most the bound of an adaptive clipping, where there is one.
    pub below: Option<bool>,
}

/// Relative margin by which a microbatch bounds each of its gradients below the clip norm: room for the rounding of norms and
/// sums in single precision.
pub const CLIP_MARGIN: f64 = 1e-4;

/// The examples of a microbatch; the sum of their gradients is in the worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MicrobatchOutcome {
    /// Number of examples.
    pub examples: usize,
    /// Number of target tokens.
    pub tokens: u64,
    /// Sum of the loss over the target tokens.
    #[serde(with = "bits")]
    pub loss_sum: f64,
    /// Norms of the examples' gradients, where they were computed.
    #[serde(with = "bits::list")]
    pub norms: Vec<f64>,
    /// Number of gradients that were longer than the bound.
    pub clipped: usize,
    /// Number of examples whose gradient left the range of numbers, and which count as zero.
    pub discarded: usize,
}

impl MicrobatchOutcome {
    /// Completes the outcome of a microbatch that the sum has bounded.
    pub fn added(&mut self, added: Added) {
        if added == Added::Discarded {
            (self.tokens, self.loss_sum, self.discarded) = (0, 0.0, self.examples);
        } else if self.discarded == 0 {
            let report = added.report();
            self.clipped = usize::from(report.clipped);
            // The norm of several examples together is the norm of no gradient.
            self.norms.extend((self.examples == 1).then_some(report.norm));
        }
    }
}
