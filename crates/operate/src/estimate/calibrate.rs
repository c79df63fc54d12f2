//! A short calibration: the training and the encoding of one device, timed on this machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone_aggregation::NonFinite;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::task::{TaskFile, TaskPurpose};
use undertone_local::{LocalTask, LocalWorker};
use undertone_mechanisms::NoiseKey;
use undertone_models::SequenceModel;
use undertone_service::{Result, ServiceError};
use undertone_settings::UserSettings;
use undertone_text::SpecialIds;

use super::Rates;

/// The time of a calibration.
const TIME: Duration = Duration::from_millis(1_500);

/// Examples that are trained at one time.
const EXAMPLES: usize = 16;

/// The work of one device in a round, to be measured.
pub struct DeviceWork {
    settings: UserSettings,
    model: Arc<dyn SequenceModel>,
    ids: u32,
    trains: bool,
}

impl std::fmt::Debug for DeviceWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceWork")
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

impl DeviceWork {
    pub(super) fn new(file: &TaskFile, model: Arc<dyn SequenceModel>, ids: usize) -> Self {
        Self {
            settings: file.task.user_update.clone(),
            model,
            ids: u32::try_from(ids).unwrap_or(u32::MAX),
            trains: matches!(file.purpose, TaskPurpose::Train { .. }),
        }
    }

    /// Replaces the rates of training and encoding by those of one core of this machine. It takes two seconds, and more where one
    /// step is slow. The text is random words, whose arithmetic costs what that of real ones does.
    ///
    /// # Errors
    /// From the training and the encoding.
    pub fn measure(&self, privacy: &PrivacyPlan, words: usize, rates: Rates) -> Result<Rates> {
        Ok(Rates {
            train_s_per_word: self.train(privacy, words.clamp(1, 255))?,
            encode_s: encode(privacy)?,
            ..rates
        })
    }

    fn train(&self, privacy: &PrivacyPlan, words: usize) -> Result<f64> {
        let special = SpecialIds::WORDS;
        let first = special.eos.max(special.bos).max(special.unk.unwrap_or(0)) + 1;
        let span = self.ids.saturating_sub(first).max(1);
        let word = |place: usize| first + (place as u32).wrapping_mul(2_654_435_761) % span;
        let texts: Vec<Vec<u32>> = (0..EXAMPLES)
            .map(|example| (0..words).map(|place| word(example * words + place)).collect())
            .collect();
        let examples: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let theta = self.model.initial_params(1);
        let round = privacy.round(0);
        let task = LocalTask {
            round: 0,
            theta: &theta,
            layout: self.model.layout(),
            clipping: &round.clipping,
            estimate: None,
            special,
            settings: &self.settings,
            non_finite: NonFinite::Zero,
        };
        let failed = |error: undertone_local::LocalError| ServiceError::Value {
            key: "the calibration".to_owned(),
            expected: "a training step on random words".to_owned(),
            got: error.to_string(),
        };
        let mut worker = LocalWorker::new(self.model.as_ref(), &self.settings, words, EXAMPLES);
        let epochs = match self.trains {
            true => self.settings.epochs,
            // An evaluation reads each example once, without a backward pass; a training step is an upper bound.
            false => 1,
        };
        // The first step pays for memory that later ones reuse.
        worker.train(&examples, [0; 32], &task).map_err(failed)?;
        let (started, mut steps) = (Instant::now(), 0_u32);
        while steps == 0 || started.elapsed() < TIME {
            worker.train(&examples, [0; 32], &task).map_err(failed)?;
            steps += 1;
        }
        let trained = f64::from(steps) * (EXAMPLES * words * epochs.max(1)) as f64;
        Ok(started.elapsed().as_secs_f64() / trained)
    }
}

/// Seconds in which one update is encoded; 0 where updates travel as they are.
fn encode(privacy: &PrivacyPlan) -> Result<f64> {
    let Some(encoding) = privacy.encoding() else {
        return Ok(0.0);
    };
    let (seed, key) = (NoiseKey::from_bytes([1; 32]), NoiseKey::from_bytes([2; 32]));
    let round = encoding.for_round(&seed, 0)?;
    let mut encoder = round.encoder();
    let update = vec![0.0_f32; privacy.layout().len()];
    let mut residues = encoding.zeros();
    let started = Instant::now();
    encoder.encode(&update, 1.0, &key, &mut residues)?;
    Ok(started.elapsed().as_secs_f64())
}
