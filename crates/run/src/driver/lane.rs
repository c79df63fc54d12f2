//! The canaries of a run: whom their coins put in, and what they contribute in each round.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rand_core::Rng;
use sha2::{Digest, Sha256};
use undertone_aggregation::BoundedSum;
use undertone_coordinator::head::Opened;
use undertone_coordinator::participation::{ParticipantId, ParticipationKey};
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_mechanisms::{Strategy, draws};
use undertone_present::numbers::hex;

use super::entropy::fresh_bytes;
use crate::config::{AuditConfig, RunConfig};
use crate::error::{Result, RunError};
use crate::files;
use crate::files::names::{COINS_FILE, LANE_FILE, LANE_VALUES_FILE};
use crate::lane::{Coins, LaneRecord, SCHEMA};

/// The lane of a run between two rounds.
pub(super) struct RunLane {
    audit: AuditConfig,
    canaries: Vec<bool>,
    presence: Presence,
    randomness: Randomness,
    file: File,
    path: PathBuf,
}

/// The rounds of the canaries.
enum Presence {
    /// Each canary is sampled with the probability of a user, by coins of its own.
    Sampled(f64),
    /// Each canary has the rounds of a user.
    Shadows(Vec<ParticipantId>),
}

/// The draws of the canaries, apart from all others of the run.
const COINS: u64 = 11;
const SHADOWS: u64 = 12;
const COHORTS: u64 = 13;

impl RunLane {
    /// The lane before the first round, or after so many; `None` for a run without one. A fresh run writes its coins and what is public
    /// of them.
    pub(super) fn open(
        folder: &Path,
        config: &RunConfig,
        plan: &PrivacyPlan,
        key: &ParticipationKey,
        rounds: Option<u64>,
    ) -> Result<Option<Self>> {
        let Some(audit) = config.audit.filter(|_| config.lane_columns() > 0) else {
            return Ok(None);
        };
        let coins_path = folder.join(COINS_FILE);
        // PRIVACY: the key is that of the canaries alone. Neither cohorts nor noise of the users follow from it.
        let (kept, randomness) = match (config.seed, rounds) {
            (Some(seed), _) => (None, Randomness::seeded(seed)),
            (None, None) => {
                let key = fresh_bytes()?;
                (Some(key), Randomness::from_entropy(key))
            }
            (None, Some(_)) if audit.lane == 0 => (None, Randomness::from_entropy(fresh_bytes()?)),
            (None, Some(_)) => {
                let coins: Coins = files::read_json(&coins_path)?;
                let missing = || RunError::damaged(&coins_path, "expected the key of the canaries");
                let key = coins.key.ok_or_else(missing)?;
                (Some(key), Randomness::from_entropy(key))
            }
        };
        let canaries = audit.lane as usize;
        let mut generator = randomness.generator(Purpose::Audit, 0, COINS);
        let coins: Vec<bool> = (0..canaries).map(|_| generator.next_u32() & 1 == 1).collect();
        let presence = match plan.bounded() {
            None => Presence::Sampled(plan.sampling_probability()),
            Some(_) => {
                let mut generator = randomness.generator(Purpose::Audit, 0, SHADOWS);
                let salt = key.salt();
                let users = plan.population().users;
                let draw = |_| salt.pseudonym(draws::below(users, &mut generator));
                Presence::Shadows((0..canaries).map(draw).collect())
            }
        };
        if rounds.is_none() {
            let digits = coins.iter().map(|coin| if *coin { '1' } else { '0' });
            let secret = Coins {
                schema: Coins::SCHEMA.to_owned(),
                key: kept,
                coins: digits.collect(),
            };
            let fail = |error: serde_json::Error| RunError::io("write", &coins_path, error.into());
            let bytes = serde_json::to_vec(&secret).map_err(fail)?;
            if canaries > 0 {
                files::write_secret_with(&coins_path, |file| {
                    file.write_all(&bytes)
                        .map_err(|error| RunError::io("write", &coins_path, error))
                })?;
            }
            let record = LaneRecord {
                schema: SCHEMA.to_owned(),
                canaries: audit.lane,
                noise_probe: audit.noise_probe,
                coins_sha256: (canaries > 0).then(|| hex(&Sha256::digest(&bytes))),
                shadows: match &presence {
                    Presence::Sampled(_) => Vec::new(),
                    Presence::Shadows(names) => names.clone(),
                },
            };
            files::write_json(&folder.join(LANE_FILE), &record)?;
        }
        let path = folder.join(LANE_VALUES_FILE);
        let row = 4 * config.lane_columns() as u64;
        Ok(Some(Self {
            audit,
            canaries: coins,
            presence,
            randomness,
            file: cut(&path, row.saturating_mul(rounds.unwrap_or(0)))?,
            path,
        }))
    }

    /// The contributions of the canaries to an opened round, each twice as long as the bound, so that the clipping is tested too.
    pub(super) fn contributions(&self, opened: &Opened, names: &[ParticipantId]) -> Result<BoundedSum> {
        let bound = opened.lane().cloned();
        let bound = bound.ok_or_else(|| RunError::missing("audit", "a plan with a lane"))?;
        let clip_norm = bound.clipping().bound().unwrap_or(f64::NAN);
        let sum = BoundedSum::new(bound);
        let mut update = vec![0.0; (self.audit.lane + self.audit.noise_probe) as usize];
        let here: Vec<usize> = match &self.presence {
            Presence::Sampled(q) => {
                let mut generator = self.randomness.generator(Purpose::Audit, opened.round(), COHORTS);
                draws::poisson(self.canaries.len(), *q, &mut generator)
            }
            Presence::Shadows(shadows) => {
                let is_here = |&canary: &usize| names.binary_search(&shadows[canary]).is_ok();
                (0..shadows.len()).filter(is_here).collect()
            }
        };
        for canary in here {
            if self.canaries[canary] {
                update[canary] = (2.0 * clip_norm) as f32;
                sum.add(&update, 1.0)?;
                update[canary] = 0.0;
            }
        }
        Ok(sum)
    }

    /// Keeps the released values of a round.
    pub(super) fn append(&mut self, released: &[f32]) -> Result<()> {
        let bytes: Vec<u8> = released.iter().flat_map(|value| value.to_le_bytes()).collect();
        let written = self.file.write_all(&bytes);
        written.map_err(|source| RunError::io("write", &self.path, source))
    }

    /// Makes the rows so far durable.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = self.file.sync_data();
        synced.map_err(|source| RunError::io("write", &self.path, source))
    }
}

/// Max number of rounds over which correlated noise is made independent again: the matrix takes `4 rounds^2` bytes.
const MAX_ROUNDS: usize = 20_000;

/// Refuses a mechanism whose releases cannot be made independent again, so that nothing would test them.
pub(super) fn check_mechanism(config: &RunConfig, plan: &PrivacyPlan) -> Result<()> {
    let Some(bounded) = plan.bounded().filter(|_| config.lane_columns() > 0) else {
        return Ok(());
    };
    let mechanism = bounded.mechanism();
    let strategy = mechanism.strategy();
    let is_tree = matches!(strategy, Strategy::Tree(_) | Strategy::TreeFull(_));
    if is_tree || mechanism.rounds() > MAX_ROUNDS {
        return Err(RunError::value(
            "privacy.mechanism.kind",
            format!("no tree, and at most {MAX_ROUNDS} rounds, beside [audit]"),
            format!("{} over {} rounds", strategy.name(), mechanism.rounds()),
        ));
    }
    Ok(())
}

/// Opens or creates the file of the values, and cuts it to the rows that a checkpoint knows.
fn cut(path: &Path, length: u64) -> Result<File> {
    let mut file = files::open_to_write(path)?;
    let fail = |source| RunError::io("write", path, source);
    let present = file.metadata().map_err(fail)?.len();
    if present < length {
        let message = format!("the checkpoint expects {length} bytes, the file has {present}");
        return Err(RunError::damaged(path, message));
    }
    file.set_len(length).map_err(fail)?;
    file.seek(SeekFrom::Start(length)).map_err(fail)?;
    Ok(file)
}
