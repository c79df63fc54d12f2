//! The canaries of a run: whom their coins put in, and what they contribute in each round.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use undertone_run_directory::error::DirectoryError;

use rand_core::Rng;
use sha2::{Digest, Sha256};
use undertone_aggregation::Clipping;
use undertone_coordinator::head::Opened;
use undertone_coordinator::participation::{ParticipantId, ParticipationKey};
use undertone_coordinator::plan::{LaneSum, PrivacyPlan};
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_mechanisms::audit::Definition;
use undertone_mechanisms::draws;
use undertone_present::numbers::hex;

use crate::error::{Result, RunError};
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::entropy::fresh_bytes;
use undertone_run_directory::files;
use undertone_run_directory::files::names::{COINS_FILE, LANE_FILE, LANE_VALUES_FILE, MAX_LANE_VALUES};
use undertone_run_directory::lane::{Coins, LaneRecord};

/// The lane of a run between two rounds.
pub(super) struct RunLane {
    canaries: Vec<bool>,
    presence: Presence,
    randomness: Randomness,
    file: File,
    path: PathBuf,
}

/// The rounds of the canaries.
enum Presence {
    /// Each of so many contributions of a canary is sampled with the probability of a user, or of an example, by coins of its own.
    Sampled { probability: f64, contributions: usize },
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
        let Some(audit) = config.audit.filter(|_| config.has_lane()) else {
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
            None => Presence::Sampled {
                probability: plan.sampling_probability(),
                contributions: plan.kept_per_user().unwrap_or(1) as usize,
            },
            Some(_) => {
                let mut generator = randomness.generator(Purpose::Audit, 0, SHADOWS);
                let salt = key.salt();
                let users = plan.population().users;
                let draw = |_| salt.pseudonym(draws::below(users, &mut generator));
                Presence::Shadows((0..canaries).map(draw).collect())
            }
        };
        let mut record = LaneRecord::new(&audit, plan);
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
                        .map_err(|error| DirectoryError::io("write", &coins_path, error))
                })?;
            }
            record.coins_sha256 = (canaries > 0).then(|| hex(&Sha256::digest(&bytes)));
            if let Presence::Shadows(names) = &presence {
                record.shadows.clone_from(names);
            }
            files::write_json(&folder.join(LANE_FILE), &record)?;
        }
        let path = folder.join(LANE_VALUES_FILE);
        let row = 4 * record.width() as u64;
        Ok(Some(Self {
            canaries: coins,
            presence,
            randomness,
            file: cut(&path, row.saturating_mul(rounds.unwrap_or(0)))?,
            path,
        }))
    }

    /// The contributions of the canaries to an opened round, each twice as long as the bound, so that the clipping is tested too. With
    /// adaptive clipping such an update is above the norm.
    pub(super) fn contributions(&self, opened: &Opened, names: &[ParticipantId]) -> Result<LaneSum> {
        let bounds = opened.lane();
        let bounds = bounds.ok_or_else(|| RunError::missing("audit", "a plan with a lane"))?;
        let clip_norms = match bounds.updates.clipping() {
            Clipping::PerLayer { clip_norms } => clip_norms.clone(),
            clipping => vec![clipping.bound().unwrap_or(f64::NAN)],
        };
        let layers = bounds.updates.layout().tensors().iter().map(|layer| layer.offset);
        let layers: Vec<(usize, f64)> = layers.zip(clip_norms).collect();
        let mut bits = vec![0.0; bounds.bits.as_ref().map_or(0, |bits| bits.layout().len())];
        let mut update = vec![0.0; bounds.updates.layout().len()];
        let sum = LaneSum::new(bounds);
        let canaries = self.canaries.len();
        // One entry per contribution.
        let here: Vec<usize> = match &self.presence {
            Presence::Sampled {
                probability,
                contributions,
            } => {
                let mut generator = self.randomness.generator(Purpose::Audit, opened.round(), COHORTS);
                let drawn = draws::poisson(canaries * contributions, *probability, &mut generator);
                drawn.into_iter().map(|place| place / contributions).collect()
            }
            Presence::Shadows(shadows) => {
                let is_here = |&canary: &usize| names.binary_search(&shadows[canary]).is_ok();
                (0..shadows.len()).filter(is_here).collect()
            }
        };
        for canary in here {
            if !self.canaries[canary] {
                continue;
            }
            for (first, clip_norm) in &layers {
                update[first + canary] = (2.0 * clip_norm) as f32;
            }
            sum.updates.add(&update, 1.0)?;
            for (first, _) in &layers {
                update[first + canary] = 0.0;
            }
            if let Some(sum) = &sum.bits {
                bits[canary] = -0.5;
                sum.add(&bits, 1.0)?;
                bits[canary] = 0.0;
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

/// Refuses a lane whose releases cannot be made independent again, so that nothing would test them, and one of too many values.
pub(super) fn check_mechanism(config: &RunConfig, plan: &PrivacyPlan) -> Result<()> {
    let Some(audit) = config.audit.filter(|_| config.has_lane()) else {
        return Ok(());
    };
    let values = LaneRecord::new(&audit, plan).width() as u64;
    let values = values.saturating_mul(config.task.rounds);
    if values > MAX_LANE_VALUES {
        let expected = format!("at most {MAX_LANE_VALUES} values over all rounds");
        return Err(RunError::value("audit.lane", expected, values));
    }
    if let Some(bounded) = plan.bounded() {
        let mechanism = bounded.mechanism();
        if Definition::check(mechanism.strategy(), mechanism.rounds()).is_err() {
            return Err(RunError::value(
                "privacy.mechanism.kind",
                "at most 20,000 rounds beside [audit], and at most 2,048 of a tree that is decoded in full",
                format!(
                    "{} over {} rounds",
                    mechanism.strategy().name(),
                    mechanism.rounds()
                ),
            ));
        }
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
