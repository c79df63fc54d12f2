//! The lane of a run: the released values of its canaries and probes, and what they show.
//!
//! `lane.f32` and `lane.json` belong to the release, and the manifest names their digests. `coins.json` is secret until the guesses are
//! made. The guesses follow from the released values alone, so that the digest of the coins in `lane.json` is all that has to be fixed
//! before the first round.

use std::collections::HashMap;
use std::path::Path;

use sha2::{Digest, Sha256};
use undertone_accounting::SamplingProbability;
use undertone_accounting::audit::Significance;
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::{GuaranteeRecord, LedgerEntry, PrivacyReport};
use undertone_mechanisms::Strategy;
use undertone_mechanisms::audit::Definition;
use undertone_present::numbers::hex;

use super::canaries::{CONFIRMATION, Lane, bounds, matched_filters, plan};
use super::final_model::{FinalModel, Rounds};
use super::noise::NoiseTests;
use super::record::{Audit, Bound};
use crate::config::{AuditConfig, RunConfig};
use crate::error::{Result, RunError};
use crate::files;
use crate::files::names::{COINS_FILE, CONFIG_FILE, LANE_FILE, LANE_VALUES_FILE, LEDGER_FILE, PRIVACY_FILE};
use crate::lane::{Coins, LaneRecord, SCHEMA};

/// The level of canaries in a run, in `audit.json`.
pub const LEVEL: &str = "lane";

/// A finished run with a lane, as its folder or a published copy of it holds it.
#[derive(Debug)]
pub struct Recorded<'a> {
    folder: &'a Path,
    name: String,
    config_sha256: String,
    audit: AuditConfig,
    /// The matrix of correlated noise. A run that has one rests on a participation schema, so the rounds of a canary may be known.
    strategy: Option<Strategy>,
    /// The factors of the releases in the final model, where the server only adds.
    factors: Option<Vec<f64>>,
    entries: Vec<LedgerEntry>,
    record: LaneRecord,
    released: Vec<f32>,
}

impl<'a> Recorded<'a> {
    /// The lane of a run with this configuration, the digest of it, the matrix of its noise and its rounds.
    ///
    /// # Errors
    /// [`RunError`] naming the file, for a run without `[audit]` and files that are damaged.
    pub(crate) fn of(
        folder: &'a Path,
        config: &RunConfig,
        config_sha256: String,
        strategy: Option<Strategy>,
        entries: Vec<LedgerEntry>,
    ) -> Result<Self> {
        let Some(audit) = config.audit.filter(|_| config.lane_columns() > 0) else {
            let expected = "a table: only a run that was made with one has a lane";
            return Err(RunError::missing("audit", expected));
        };
        let task = &config.task;
        // The directory may be anybody's. From here on the sizes are those that a run can have.
        audit.validate(task)?;
        let record: LaneRecord = files::read_json(&folder.join(LANE_FILE))?;
        let shadows = if strategy.is_some() {
            audit.lane as usize
        } else {
            0
        };
        if record.schema != SCHEMA
            || (record.canaries, record.noise_probe) != (audit.lane, audit.noise_probe)
            || record.coins_sha256.is_some() != (audit.lane > 0)
            || record.shadows.len() != shadows
        {
            let message = format!("expected the sizes and the canaries of `[audit]` in {CONFIG_FILE}");
            return Err(RunError::damaged(&folder.join(LANE_FILE), message));
        }
        let path = folder.join(LANE_VALUES_FILE);
        let row = 4 * config.lane_columns() as u64;
        let expected = row.saturating_mul(entries.len() as u64);
        let bytes = files::read_at_most(&path, expected)?;
        if bytes.len() as u64 != expected {
            let message = format!(
                "expected {expected} bytes, for {} rounds of {} columns, got {}",
                entries.len(),
                config.lane_columns(),
                bytes.len()
            );
            return Err(RunError::damaged(&path, message));
        }
        let values = bytes.as_chunks().0.iter();
        Ok(Self {
            folder,
            name: task.name.clone(),
            config_sha256,
            audit,
            strategy,
            factors: task.server.factors(entries.len() as u64),
            entries,
            record,
            released: values.map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        })
    }

    fn columns(&self) -> usize {
        (self.audit.lane + self.audit.noise_probe) as usize
    }

    /// The matrix of correlated noise, where the run has one.
    fn definition(&self) -> Result<Option<Definition>> {
        match &self.strategy {
            Some(strategy) => Ok(Some(Definition::new(strategy, self.entries.len())?)),
            None => Ok(None),
        }
    }

    /// The values with independent noise, over `unit` of each round.
    fn whitened(
        &self,
        definition: Option<&Definition>,
        unit: impl Fn(&LedgerEntry) -> Option<f64>,
    ) -> Result<Vec<f64>> {
        let columns = self.columns();
        let mut values = match definition {
            Some(definition) => definition.whiten(&self.released, columns)?,
            None => self.released.iter().map(|&value| f64::from(value)).collect(),
        };
        for (row, entry) in values.chunks_mut(columns).zip(&self.entries) {
            let unit = unit(entry).filter(|unit| *unit > 0.0);
            let unit = unit.ok_or_else(|| {
                let message = format!("round {}: expected a sensitivity and noise", entry.round);
                RunError::damaged(&self.folder.join(LEDGER_FILE), message)
            })?;
            row.iter_mut().for_each(|value| *value /= unit);
        }
        Ok(values)
    }

    /// Tests the noise of the probes.
    ///
    /// # Errors
    /// From the mechanism and the estimators.
    pub fn noise(&self) -> Result<NoiseTests> {
        let definition = self.definition()?;
        let values = self.whitened(definition.as_ref(), |entry| Some(entry.noise_std))?;
        let canaries = self.audit.lane as usize;
        let rows = values.chunks(self.columns());
        let probes: Vec<f64> = rows.flat_map(|row| row[canaries..].iter().copied()).collect();
        let sizes: Vec<f64> = self
            .entries
            .iter()
            .map(|entry| entry.cohort_size as f64)
            .collect();
        let tests = NoiseTests::of(&probes, self.audit.noise_probe as usize, &sizes)?;
        Ok(tests.of_this_run())
    }

    /// The coins; `None` where their file is not there.
    fn coins(&self) -> Result<Option<Vec<bool>>> {
        let path = self.folder.join(COINS_FILE);
        let Some(bytes) = files::read_if_there(&path)? else {
            return Ok(None);
        };
        let digest = hex(&Sha256::digest(&bytes));
        if self.record.coins_sha256.as_ref() != Some(&digest) {
            let message = format!("expected the coins that {LANE_FILE} names by their digest");
            return Err(RunError::damaged(&path, message));
        }
        let coins: Option<Coins> = serde_json::from_slice(&bytes).ok();
        let bits = coins.and_then(|coins| coins.bits());
        match bits.filter(|bits| bits.len() as u64 == self.audit.lane) {
            Some(bits) => Ok(Some(bits)),
            None => Err(RunError::damaged(&path, "expected one coin per canary")),
        }
    }

    /// The values of canaries and probes, in units of one contribution.
    fn lane(&self, coins: Vec<bool>, claim: &GuaranteeRecord) -> Result<Lane> {
        let definition = self.definition()?;
        let values = self.whitened(definition.as_ref(), |entry| entry.sensitivity)?;
        let canaries = coins.len();
        let first = self.entries.first();
        let noise_multiplier = first.and_then(|first| Some(first.noise_std / first.sensitivity?));
        let noise_multiplier = noise_multiplier.unwrap_or(f64::NAN);
        let split = |range: std::ops::Range<usize>, scale: f64| -> Vec<f64> {
            let rows = values.chunks(self.columns());
            rows.flat_map(|row| row[range.clone()].iter().map(move |value| value / scale))
                .collect()
        };
        let of_canaries = split(0..canaries, 1.0);
        let sampling_probability = match (&definition, first) {
            (None, Some(first)) => Some(first.sampling_probability),
            _ => None,
        };
        let shadowed = self.rounds_of_shadows();
        let (signals, matched) = match &definition {
            Some(definition) => matched_filters(definition, &shadowed, &of_canaries)?,
            None => (Vec::new(), Vec::new()),
        };
        let rounds = match sampling_probability {
            Some(q) => Rounds::Secret(SamplingProbability::new(q)?),
            None => Rounds::Known(&shadowed),
        };
        let last = |factors: &Vec<f64>| {
            FinalModel::new(factors, definition.as_ref(), rounds, &of_canaries, canaries)
        };
        let final_model = self.factors.as_ref().map(last).transpose()?;
        Ok(Lane {
            claim: claim.clone(),
            rounds: self.entries.len(),
            noise_multiplier,
            sampling_probability,
            coins,
            signals,
            matched,
            probes: split(canaries..self.columns(), noise_multiplier),
            canaries: of_canaries,
            cohort_sizes: self
                .entries
                .iter()
                .map(|entry| entry.cohort_size as f64)
                .collect(),
            final_model,
        })
    }

    /// The rounds of each canary: those of the user whom it shadows.
    fn rounds_of_shadows(&self) -> Vec<Vec<usize>> {
        let mut rounds: HashMap<ParticipantId, Vec<usize>> = HashMap::new();
        for (round, entry) in self.entries.iter().enumerate() {
            for &name in &entry.participants {
                rounds.entry(name).or_default().push(round);
            }
        }
        let of = |name| rounds.get(name).cloned().unwrap_or_default();
        self.record.shadows.iter().map(of).collect()
    }

    /// The bounds from the canaries under a claim; `None` where the coins are not there. A headline above the claim is followed by
    /// the same guesses at 99.9 % confidence.
    ///
    /// # Errors
    /// From the mechanism and the estimators; coins that are not those of the run.
    pub fn bounds(&self, claim: &GuaranteeRecord) -> Result<Option<Vec<Bound>>> {
        if self.audit.lane == 0 {
            return Ok(None);
        }
        let Some(coins) = self.coins()? else {
            return Ok(None);
        };
        let lane = self.lane(coins, claim)?;
        let fixed = self.plan(claim)?;
        let mut all = bounds(LEVEL, &lane, &fixed, Significance::REPORTED)?;
        let exceeds = |bound: &Bound| bound.headline && bound.epsilon_lower > claim.epsilon;
        if all.iter().any(exceeds) {
            let confirmation = bounds(LEVEL, &lane, &fixed, Significance::new(CONFIRMATION)?)?;
            all.extend(confirmation.into_iter().filter(|bound| bound.headline));
        }
        Ok(Some(all))
    }

    /// The plan of the canaries, which follows from the configuration and its claim.
    fn plan(&self, claim: &GuaranteeRecord) -> Result<super::record::CanaryPlan> {
        let probes = self.audit.noise_probe as usize;
        plan(&self.config_sha256, self.audit.lane, probes, claim)
    }

    /// The audit of the lane: the tests of the noise, and with `canaries` the bounds from the guesses.
    ///
    /// # Errors
    /// [`RunError`] where the run has no canaries, or no coins; from the mechanism and the estimators.
    pub fn audit(&self, canaries: bool) -> Result<Audit> {
        let path = self.folder.join(PRIVACY_FILE);
        let privacy: PrivacyReport = files::read_json(&path)?;
        let missing = || {
            let expected =
                "a guarantee: the noise of the run is too small for one, so nothing can contradict it";
            RunError::missing("privacy.json, planned", expected)
        };
        let claim = privacy.planned.ok_or_else(missing)?;
        let mut audit = Audit::new(&self.name, &self.config_sha256);
        audit.noise = Some(self.noise()?);
        if canaries {
            if self.audit.lane == 0 {
                let expected = "at least 10: the run has probes alone";
                return Err(RunError::value("audit.lane", expected, 0));
            }
            let bounds = self.bounds(&claim)?;
            let absent = || RunError::missing(COINS_FILE, "a file with the coins of the canaries");
            audit.canaries = bounds.ok_or_else(absent)?;
            let fixed = self.plan(&claim)?;
            audit.plan_sha256 = Some(fixed.sha256()?);
            audit.plan = Some(fixed);
        }
        audit.claim = Some(claim);
        Ok(audit.finish())
    }
}

/// `true` if the run of a folder was made with a lane or probes.
#[must_use]
pub fn is_there(folder: &Path) -> bool {
    files::exists(&folder.join(LANE_FILE))
}
