//! Refusals of messages from devices.

use core::fmt::Display;

use undertone_aggregation::AggregationError;
use undertone_protocol::{Code, Problem};
use undertone_secagg::SecAggError;

/// A message that is not accepted. Nothing of it was kept.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Refusal {
    /// The session is over, or the sum is sealed.
    #[error("the session is over")]
    Gone,
    /// The attempt has the reports that it wanted, or the group is closed.
    #[error("the attempt takes no more reports")]
    Late,
    /// The message is not one of the session's phase.
    #[error("the message does not belong here: {0}")]
    OutOfTurn(String),
    /// The message contradicts what was accepted before.
    #[error("the message contradicts what was accepted before: {0}")]
    Conflict(String),
    /// A length, a weight or a residue is outside its range.
    #[error("{what} must be {expected}, got {got}")]
    Range {
        /// The value.
        what: &'static str,
        /// The range of the value.
        expected: String,
        /// The value received.
        got: String,
    },
    /// The update is longer than twice the clip norm, or not finite. The session is over.
    #[error("the update must be finite and no longer than twice the clip norm")]
    Norm,
    /// The message cannot be read.
    #[error("the message cannot be read: {0}")]
    Malformed(String),
    /// A signature does not fit.
    #[error("a signature does not fit: {0}")]
    Signature(String),
    /// Nobody vouches for the identity.
    #[error("the identity is not known: {0}")]
    Identity(String),
    /// Another request of the session is being served.
    #[error("another request of the session is being served; repeat this one later")]
    Busy,
}

impl Refusal {
    /// The code of the refusal on the wire.
    #[must_use]
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Gone => Code::Gone,
            Self::Late => Code::Late,
            Self::OutOfTurn(_) => Code::OutOfTurn,
            Self::Conflict(_) => Code::Conflict,
            Self::Range { .. } => Code::Range,
            Self::Norm => Code::Norm,
            Self::Malformed(_) => Code::Malformed,
            Self::Signature(_) => Code::BadSignature,
            Self::Identity(_) => Code::BadCertificate,
            Self::Busy => Code::Busy,
        }
    }

    /// The refusal as it travels.
    #[must_use]
    pub(crate) fn problem(&self) -> Problem {
        Problem::new(self.code(), self.to_string())
    }

    pub(crate) fn range(what: &'static str, expected: impl Display, got: impl Display) -> Self {
        Self::Range {
            what,
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }
}

impl From<SecAggError> for Refusal {
    fn from(error: SecAggError) -> Self {
        let text = error.to_string();
        match error {
            SecAggError::TooMany { .. } => Self::Late,
            SecAggError::Signature { .. } => Self::Signature(text),
            SecAggError::UnknownIdentity { .. } | SecAggError::Certificate { .. } => Self::Identity(text),
            SecAggError::Adding { .. } | SecAggError::StillAdding { .. } => Self::Busy,
            // Nothing is released, so there is nothing to send again.
            SecAggError::InputLost
            | SecAggError::Aggregation(
                AggregationError::SumLost | AggregationError::SumClosed | AggregationError::Poisoned,
            ) => Self::Gone,
            SecAggError::Session { .. }
            | SecAggError::DuplicateKey { .. }
            | SecAggError::Committed { .. }
            | SecAggError::ShareKind { .. } => Self::Conflict(text),
            SecAggError::ServerPhase { .. } | SecAggError::Stranger { .. } => Self::OutOfTurn(text),
            SecAggError::Aggregation(AggregationError::Length { what, expected, got }) => {
                Self::range(what, expected, got)
            }
            SecAggError::Aggregation(_) => Self::range("a packed residue", "below the modulus", text),
            _ => Self::Malformed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_secagg::ServerPhase;

    use super::*;

    #[test]
    fn errors_of_the_secure_sum_have_codes_of_the_wire() {
        let phase = ServerPhase::Inputs;
        let message = "keys";
        for (error, code) in [
            (SecAggError::TooMany { max: 3 }, Code::Late),
            (SecAggError::Session { message }, Code::Conflict),
            (SecAggError::Committed { message, index: 1 }, Code::Conflict),
            (SecAggError::ServerPhase { message, phase }, Code::OutOfTurn),
            (SecAggError::UnknownIdentity { index: 1 }, Code::BadCertificate),
            (SecAggError::Signature { index: 1, what: "x" }, Code::BadSignature),
            (SecAggError::ShareRange, Code::Malformed),
            (
                SecAggError::Certificate { index: 1, got: "x" },
                Code::BadCertificate,
            ),
            (SecAggError::Adding { index: 1 }, Code::Busy),
            (SecAggError::StillAdding { inputs: 1 }, Code::Busy),
            (SecAggError::InputLost, Code::Gone),
            (SecAggError::Aggregation(AggregationError::Poisoned), Code::Gone),
            (SecAggError::Aggregation(AggregationError::SumLost), Code::Gone),
            (SecAggError::Aggregation(AggregationError::SumClosed), Code::Gone),
            (
                SecAggError::Aggregation(AggregationError::NotAResidue { index: 0, modulus: 7 }),
                Code::Range,
            ),
        ] {
            let refusal = Refusal::from(error);
            assert_eq!(refusal.code(), code, "{refusal}");
            assert_eq!(refusal.problem().code, i32::from(code));
        }
    }
}
