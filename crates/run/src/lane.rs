//! The files of a lane, which a run with `[audit]` writes before its first round.

use serde::{Deserialize, Serialize};
use undertone_coordinator::participation::ParticipantId;

/// The version of `lane.json`.
pub(crate) const SCHEMA: &str = "undertone.lane/1";

/// `lane.json`, by which a stranger reads `lane.f32`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneRecord {
    /// `undertone.lane/1`.
    pub(crate) schema: String,
    /// Number of canaries, the first columns.
    pub(crate) canaries: u64,
    /// Number of probes, the other columns.
    pub(crate) noise_probe: u64,
    /// SHA-256 of `coins.json`; `None` without canaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) coins_sha256: Option<String>,
    /// Under a participation schema, the user of the ledger whose rounds each canary has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shadows: Vec<ParticipantId>,
}

/// `coins.json`: the secrets of the canaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Coins {
    pub(crate) schema: String,
    /// The key of all draws of the canaries; `None` where they follow from the seed of the run.
    pub(crate) key: Option<[u8; 32]>,
    /// One digit per canary: 1 for a canary that is in.
    pub(crate) coins: String,
}

impl Coins {
    pub(crate) const SCHEMA: &str = "undertone.coins/1";

    pub(crate) fn bits(&self) -> Option<Vec<bool>> {
        let bit = |digit| match digit {
            b'0' => Some(false),
            b'1' => Some(true),
            _ => None,
        };
        self.coins.bytes().map(bit).collect()
    }
}
