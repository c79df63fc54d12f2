//! The lane of a run: the released values of its canaries and probes, and what they show.
//!
//! `lane.f32` and `lane.json` belong to the release, and the manifest names their digests. `coins.json` is secret until the guesses are
//! made. The guesses follow from the released values alone, so that the digest of the coins in `lane.json` is all that has to be fixed
//! before the first round.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};
use undertone_accounting::SamplingProbability;
use undertone_accounting::audit::Significance;
use undertone_accounting::audit::sampled::SecretCoins;
use undertone_coordinator::participation::policy::Enforcement;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::{GuaranteeRecord, LedgerEntry, PrivacyReport};
use undertone_coordinator::task::ParticipationConfig;
use undertone_mechanisms::Strategy;
use undertone_mechanisms::audit::Definition;
use undertone_present::numbers::hex;
use undertone_settings::Algorithm;

use super::canaries::{CONFIRMATION, Lane, bounds, matched_filters, plan};
use super::final_model::{FinalModel, Rounds};
use super::noise::NoiseTests;
use super::record::{Audit, Bound, CanaryPlan, LANE};
use undertone_run_directory::config::{AuditConfig, RunConfig};
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{
    COINS_FILE, CONFIG_FILE, LANE_FILE, LANE_VALUES_FILE, LEDGER_FILE, MAX_LANE_VALUES, PRIVACY_FILE,
};
use undertone_run_directory::lane::{Coins, LaneRecord, SCHEMA};

/// A finished run with a lane, as its folder or a published copy of it holds it.
#[derive(Debug)]
pub struct Recorded<'a> {
    folder: &'a Path,
    name: String,
    config_sha256: String,
    /// The seed that the noise follows from, where the run has one.
    seed: Option<u64>,
    audit: AuditConfig,
    /// The matrix of correlated noise. A run that has one rests on a participation schema, so the rounds of a canary may be known.
    strategy: Option<Strategy>,
    /// Number of contributions of a canary that coins of their own sample: one, or as many as a user may keep of examples.
    contributions: NonZeroU32,
    /// `true` if the run made the planned rounds, and no user can have taken part beyond the schema.
    as_planned: bool,
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
    /// [`DirectoryError`] naming the file, for a run without `[audit]` and files that are damaged.
    pub fn of(
        folder: &'a Path,
        config: &RunConfig,
        config_sha256: String,
        strategy: Option<Strategy>,
        entries: Vec<LedgerEntry>,
    ) -> Result<Self> {
        let Some(audit) = config.audit.filter(|_| config.has_lane()) else {
            let expected = "a table: only a run that was made with one has a lane";
            return Err(DirectoryError::missing("audit", expected));
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
            || record.shadows.len().max(record.shadow_rounds.len()) != shadows
            || (!record.shadows.is_empty() && !record.shadow_rounds.is_empty())
            || !record.shadow_rounds.iter().all(|rounds| {
                rounds.is_sorted_by(|a, b| a < b) && rounds.iter().all(|&round| round < entries.len())
            })
        {
            let message = format!("expected the sizes and the canaries of `[audit]` in {CONFIG_FILE}");
            return Err(DirectoryError::damaged(&folder.join(LANE_FILE), message));
        }
        let path = folder.join(LANE_VALUES_FILE);
        let values = (record.width() as u64).saturating_mul(entries.len() as u64);
        if values > MAX_LANE_VALUES {
            let message = format!("expected at most {MAX_LANE_VALUES} values over all rounds, got {values}");
            return Err(DirectoryError::damaged(&folder.join(LANE_FILE), message));
        }
        let expected = 4 * values;
        let bytes = files::read_at_most(&path, expected)?;
        if bytes.len() as u64 != expected {
            let message = format!(
                "expected {expected} bytes, for {} rounds of {} columns, got {}",
                entries.len(),
                record.width(),
                bytes.len()
            );
            return Err(DirectoryError::damaged(&path, message));
        }
        let values = bytes.as_chunks().0.iter();
        let accounts = |schema: &ParticipationConfig| schema.on_violation == Enforcement::Account;
        let made = entries.len() as u64;
        Ok(Self {
            folder,
            name: task.name.clone(),
            config_sha256,
            seed: config.seed,
            audit,
            strategy,
            contributions: match (task.user_update.algorithm, task.user_update.group_size) {
                (Algorithm::Els, Some(examples)) => NonZeroU32::new(examples).unwrap_or(NonZeroU32::MIN),
                _ => NonZeroU32::MIN,
            },
            as_planned: made == task.rounds && !task.participation.as_ref().is_some_and(accounts),
            factors: task.server.factors(made, task.rounds),
            entries,
            record,
            released: values.map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        })
    }

    /// Refuses a lane whose layers or bits are not those of the plan.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`] naming the file.
    pub fn check_plan(&self, plan: &PrivacyPlan) -> Result<()> {
        let planned = LaneRecord::new(&self.audit, plan);
        if (&planned.layers, planned.bits) != (&self.record.layers, self.record.bits) {
            let message = "expected the layers and the bits of the run's clipping";
            return Err(DirectoryError::damaged(&self.folder.join(LANE_FILE), message));
        }
        Ok(())
    }

    /// The matrix of correlated noise, where the run has one.
    fn definition(&self) -> Result<Option<Definition>> {
        match &self.strategy {
            Some(strategy) => Ok(Some(Definition::new(strategy, self.entries.len())?)),
            None => Ok(None),
        }
    }

    /// The values of some columns with independent noise, over `unit` of each round.
    fn whitened(
        &self,
        definition: Option<&Definition>,
        columns: Range<usize>,
        unit: impl Fn(&LedgerEntry) -> Option<f64>,
    ) -> Result<Vec<f64>> {
        let rows = self.released.chunks(self.record.width());
        let released: Vec<f32> = rows
            .flat_map(|row| row[columns.clone()].iter().copied())
            .collect();
        let mut values = match definition {
            Some(definition) => definition.whiten(&released, columns.len())?,
            None => released.into_iter().map(f64::from).collect(),
        };
        for (row, entry) in values.chunks_mut(columns.len().max(1)).zip(&self.entries) {
            let unit = unit(entry).filter(|unit| *unit > 0.0);
            let unit = unit.ok_or_else(|| {
                let message = format!("round {}: expected a sensitivity and noise", entry.round);
                DirectoryError::damaged(&self.folder.join(LEDGER_FILE), message)
            })?;
            row.iter_mut().for_each(|value| *value /= unit);
        }
        Ok(values)
    }

    /// The values of the probes over the standard deviation of their noise, with those of their bits behind them: one row per round.
    fn probes(&self, definition: Option<&Definition>) -> Result<Vec<f64>> {
        let (columns, width) = (self.record.columns(), self.record.width());
        let probes = self.audit.noise_probe as usize;
        let of_sums = self.whitened(definition, columns - probes..columns, |entry| {
            Some(entry.noise_std)
        })?;
        let Some(bits) = self.record.bits else {
            return Ok(of_sums);
        };
        let std = bits.contribution * bits.noise_multiplier;
        let of_bits = self.whitened(definition, width - probes..width, |_| Some(std))?;
        let rows = of_sums.chunks(probes.max(1)).zip(of_bits.chunks(probes.max(1)));
        Ok(rows.flat_map(|(sums, bits)| [sums, bits].concat()).collect())
    }

    /// The values of the canaries in units of one contribution, one row per round, and the standard deviation of their noise. A canary with
    /// a column per layer has one value, the length of its columns along a contribution.
    fn canaries(&self, definition: Option<&Definition>) -> Result<(Vec<f64>, f64)> {
        let canaries = self.audit.lane as usize;
        let layers = self.record.layers.len().max(1);
        let values = self.whitened(definition, 0..layers * canaries, |entry| entry.sensitivity)?;
        let first = self.entries.first();
        let noise_multiplier = first.and_then(|first| Some(first.noise_std / first.sensitivity?));
        let noise_multiplier = noise_multiplier.unwrap_or(f64::NAN);
        if self.record.layers.is_empty() {
            return Ok((values, noise_multiplier));
        }
        let along = |row: &[f64], canary: usize| -> f64 {
            let parts = self.record.layers.iter().enumerate();
            parts
                .map(|(layer, share)| share * row[layer * canaries + canary])
                .sum()
        };
        let rows = values.chunks(layers * canaries);
        let values = rows.flat_map(|row| (0..canaries).map(move |canary| along(row, canary)));
        Ok((values.collect(), noise_multiplier))
    }

    /// The values of the canaries with those of their bits, each weighed by its noise: the best estimate of one contribution.
    fn with_bits(
        &self,
        definition: Option<&Definition>,
        (values, noise_multiplier): (&[f64], f64),
    ) -> Result<(Vec<f64>, f64)> {
        let Some(bits) = self.record.bits else {
            return Ok((values.to_vec(), noise_multiplier));
        };
        let (columns, canaries) = (self.record.columns(), self.audit.lane as usize);
        // A canary takes half a user off the mean of the bits.
        let of_bits = self.whitened(definition, columns..columns + canaries, |_| {
            Some(bits.contribution)
        })?;
        let weights = [noise_multiplier, bits.noise_multiplier].map(|noise| noise.powi(-2));
        let whole = weights[0] + weights[1];
        let both = values.iter().zip(of_bits);
        let values = both.map(|(sum, bit)| (weights[0] * sum - weights[1] * bit) / whole);
        Ok((values.collect(), whole.sqrt().recip()))
    }

    /// Tests the noise of the probes.
    ///
    /// # Errors
    /// From the mechanism and the estimators.
    pub fn noise(&self) -> Result<NoiseTests> {
        let probes = self.probes(self.definition()?.as_ref())?;
        let sizes: Vec<f64> = self
            .entries
            .iter()
            .map(|entry| entry.cohort_size as f64)
            .collect();
        let columns = probes.len() / self.entries.len().max(1);
        Ok(NoiseTests::of(&probes, columns, &sizes)?.of_this_run(self.seed.is_some()))
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
            return Err(DirectoryError::damaged(&path, message));
        }
        let coins: Option<Coins> = serde_json::from_slice(&bytes).ok();
        let bits = coins.and_then(|coins| coins.bits());
        match bits.filter(|bits| bits.len() as u64 == self.audit.lane) {
            Some(bits) => Ok(Some(bits)),
            None => Err(DirectoryError::damaged(&path, "expected one coin per canary")),
        }
    }

    /// The values of canaries and probes, in units of one contribution.
    fn lane(&self, coins: Vec<bool>, claim: &GuaranteeRecord) -> Result<Lane> {
        let definition = self.definition()?;
        let definition = definition.as_ref();
        let (of_sums, of_sums_noise) = self.canaries(definition)?;
        let (canaries, noise_multiplier) = self.with_bits(definition, (&of_sums, of_sums_noise))?;
        let secret = match (definition, self.entries.first()) {
            (None, Some(first)) => Some(self.secret_coins(first)?),
            _ => None,
        };
        let shadowed = self.record.rounds_of_shadows(&self.entries);
        let (signals, matched) = match definition {
            Some(definition) => matched_filters(definition, &shadowed, &canaries)?,
            None => (Vec::new(), Vec::new()),
        };
        let rounds = match secret {
            Some(coins) => Rounds::Secret(coins),
            None => Rounds::Known(&shadowed),
        };
        let last = |factors: &Vec<f64>| -> Result<FinalModel> {
            let factors = self.in_units_of_the_first(factors);
            let last = FinalModel::new(&factors, definition, rounds, &of_sums, coins.len())?;
            Ok(last.in_units(of_sums_noise, noise_multiplier))
        };
        let final_model = self.factors.as_ref().map(last).transpose()?;
        Ok(Lane {
            claim: claim.clone(),
            rounds: self.entries.len(),
            noise_multiplier,
            secret,
            coins,
            signals,
            matched,
            probes: self.probes(definition)?,
            canaries,
            cohort_sizes: self
                .entries
                .iter()
                .map(|entry| entry.cohort_size as f64)
                .collect(),
            final_model,
            interference: 1.0,
        })
    }

    /// The coins of a canary under Poisson sampling.
    fn secret_coins(&self, first: &LedgerEntry) -> Result<SecretCoins> {
        let probability = SamplingProbability::new(first.sampling_probability)?;
        Ok(SecretCoins::of_examples(probability, self.contributions))
    }

    /// The guarantee that canaries and probes of this run test: the planned one, or the one that the run claims where fewer rounds were made,
    /// and where users may have taken part beyond the schema.
    ///
    /// # Errors
    /// [`DirectoryError`] naming the guarantee, where there is none.
    pub fn claim(&self, privacy: &PrivacyReport) -> Result<GuaranteeRecord> {
        let (key, claim) = match self.as_planned {
            true => ("privacy.json, planned", privacy.planned.as_ref()),
            false => ("privacy.json, observed", privacy.alone()),
        };
        let missing = || {
            let expected =
                "a guarantee: the noise of the run is too small for one, so nothing can contradict it";
            DirectoryError::missing(key, expected)
        };
        claim.cloned().ok_or_else(missing)
    }

    /// The factors on releases in units of a contribution to the first round. The unit changes with the clip norm, only where trees restart.
    fn in_units_of_the_first(&self, factors: &[f64]) -> Vec<f64> {
        let sensitivity = |entry: &LedgerEntry| entry.sensitivity.unwrap_or(f64::NAN);
        let first = self.entries.first().map_or(f64::NAN, sensitivity);
        let both = factors.iter().zip(&self.entries);
        both.map(|(factor, entry)| factor * sensitivity(entry) / first)
            .collect()
    }

    /// The values of canaries and probes under a claim, as the estimators take them; `None` where the coins are not there.
    ///
    /// # Errors
    /// From the mechanism; coins that are not those of the run.
    pub fn values(&self, claim: &GuaranteeRecord) -> Result<Option<Lane>> {
        let coins = self.coins()?;
        coins.map(|coins| self.lane(coins, claim)).transpose()
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
        let Some(lane) = self.values(claim)? else {
            return Ok(None);
        };
        let fixed = self.plan(claim)?;
        let mut all = bounds(LANE, &lane, &fixed, Significance::REPORTED)?;
        let exceeds = |bound: &Bound| bound.headline && bound.epsilon_lower > claim.epsilon;
        if all.iter().any(exceeds) {
            let confirmation = bounds(LANE, &lane, &fixed, Significance::new(CONFIRMATION)?)?;
            all.extend(confirmation.into_iter().filter(|bound| bound.headline));
        }
        Ok(Some(all))
    }

    /// The plan of the canaries, which follows from the configuration and its claim.
    ///
    /// # Errors
    /// From the estimators.
    pub fn plan(&self, claim: &GuaranteeRecord) -> Result<CanaryPlan> {
        let probes = self.audit.noise_probe as usize;
        plan(&self.config_sha256, self.audit.lane, probes, claim)
    }

    /// The audit of the lane: the tests of the noise, and with `canaries` the bounds from the guesses.
    ///
    /// # Errors
    /// [`DirectoryError`] where the run has no canaries, or no coins; from the mechanism and the estimators.
    pub fn audit(&self, canaries: bool) -> Result<Audit> {
        let path = self.folder.join(PRIVACY_FILE);
        let claim = self.claim(&files::read_json(&path)?)?;
        let mut audit = Audit::new(&self.name, &self.config_sha256);
        audit.noise = Some(self.noise()?);
        if canaries {
            if self.audit.lane == 0 {
                let expected = "at least 10: the run has probes alone";
                return Err(DirectoryError::value("audit.lane", expected, 0));
            }
            let bounds = self.bounds(&claim)?;
            let absent = || DirectoryError::missing(COINS_FILE, "a file with the coins of the canaries");
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
