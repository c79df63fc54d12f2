//! The files of a lane, which a run with `[audit]` writes before its first round.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use undertone_aggregation::Clipping;
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::LedgerEntry;

use crate::config::AuditConfig;

/// The version of `lane.json`.
pub const SCHEMA: &str = "undertone.lane/1";

/// `lane.json`, by which a stranger reads `lane.f32`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneRecord {
    /// `undertone.lane/1`.
    pub schema: String,
    /// Number of canaries, the first columns. With clipping by layers each layer has so many.
    pub canaries: u64,
    /// Number of probes, the columns behind them.
    pub noise_probe: u64,
    /// With clipping by layers, the clip norm of each layer over the norm of all of them: a canary has a column per layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<f64>,
    /// With adaptive clipping, the columns behind the probes: one bit per canary and per probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<BitColumns>,
    /// SHA-256 of `coins.json`; `None` without canaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coins_sha256: Option<String>,
    /// Under a participation schema, the user of the ledger whose rounds each canary has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadows: Vec<ParticipantId>,
    /// The rounds themselves, which a published folder has in the place of `shadows`: names of users stand in its ledger alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow_rounds: Vec<Vec<usize>>,
}

/// The bits of a lane beside adaptive clipping, in units of the released mean of bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitColumns {
    /// The distance by which a canary that takes part lowers the mean: one half over the number of users per round.
    pub contribution: f64,
    /// The standard deviation of the noise, over the contribution.
    pub noise_multiplier: f64,
}

impl LaneRecord {
    /// The record of a lane, without coins and shadows.
    pub fn new(audit: &AuditConfig, plan: &PrivacyPlan) -> Self {
        let layers = match plan.round(0).clipping {
            Clipping::PerLayer { clip_norms } if audit.lane > 0 => {
                let whole = clip_norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
                clip_norms.iter().map(|norm| norm / whole).collect()
            }
            _ => Vec::new(),
        };
        let bits = plan.bounded().and_then(|bounded| {
            Some(BitColumns {
                contribution: 0.5 / bounded.clients()?,
                noise_multiplier: bounded.bit_noise_multiplier()?,
            })
        });
        Self {
            schema: SCHEMA.to_owned(),
            canaries: audit.lane,
            noise_probe: audit.noise_probe,
            layers,
            bits,
            coins_sha256: None,
            shadows: Vec::new(),
            shadow_rounds: Vec::new(),
        }
    }

    /// The rounds of each canary in a run with these rounds: those of the user whom it shadows.
    #[must_use]
    pub fn rounds_of_shadows(&self, entries: &[LedgerEntry]) -> Vec<Vec<usize>> {
        if self.shadows.is_empty() {
            return self.shadow_rounds.clone();
        }
        let mut rounds: HashMap<ParticipantId, Vec<usize>> = HashMap::new();
        for (round, entry) in entries.iter().enumerate() {
            for &name in &entry.participants {
                rounds.entry(name).or_default().push(round);
            }
        }
        let of = |name| rounds.get(name).cloned().unwrap_or_default();
        self.shadows.iter().map(of).collect()
    }

    /// The record as strangers see it: no user is named in it.
    #[must_use]
    pub fn public(&self, entries: &[LedgerEntry]) -> Self {
        Self {
            shadow_rounds: self.rounds_of_shadows(entries),
            shadows: Vec::new(),
            ..self.clone()
        }
    }

    /// Number of columns that are averaged and noised with the parameters.
    #[must_use]
    pub fn columns(&self) -> usize {
        let canaries = (self.canaries as usize).saturating_mul(self.layers.len().max(1));
        canaries.saturating_add(self.noise_probe as usize)
    }

    /// Number of columns of bits.
    pub(crate) fn bit_columns(&self) -> usize {
        let both = self.canaries.saturating_add(self.noise_probe) as usize;
        self.bits.map_or(0, |_| both)
    }

    /// Number of released values per round.
    #[must_use]
    pub fn width(&self) -> usize {
        self.columns().saturating_add(self.bit_columns())
    }
}

/// `coins.json`: the secrets of the canaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coins {
    /// `undertone.coins/1`.
    pub schema: String,
    /// The key of all draws of the canaries; `None` where they follow from the seed of the run.
    pub key: Option<[u8; 32]>,
    /// One digit per canary: 1 for a canary that is in.
    pub coins: String,
}

impl Coins {
    /// The version of `coins.json`.
    pub const SCHEMA: &str = "undertone.coins/1";

    /// The coins; `None` where a letter is no digit of one.
    #[must_use]
    pub fn bits(&self) -> Option<Vec<bool>> {
        let bit = |digit| match digit {
            b'0' => Some(false),
            b'1' => Some(true),
            _ => None,
        };
        self.coins.bytes().map(bit).collect()
    }
}
