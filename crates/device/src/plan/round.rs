//! The settings of one round, compared with the plan, and the sizes that follow from the vocabulary.

use std::sync::Arc;

use undertone_aggregation::{Bound, Clipping, Encoding, EncodingSize, NonFinite, ParamLayout};
use undertone_protocol::{Digest32, RoundSettings, SumMode};
use undertone_secagg::Context;
use undertone_text::Vocab;

use super::{ClipPolicy, Purpose, SumPolicy, TaskPlan, array};
use crate::encoding::{EncodingInputs, encoding};
use crate::error::Refusal;

/// The settings of a round, after each of them was compared with the plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoundTerms {
    /// The round.
    pub round: u64,
    /// The attempt at this round.
    pub attempt: u32,
    /// The shard of the attempt.
    pub shard: u32,
    /// The bound on the update.
    pub clipping: Clipping,
    /// The norm that the device compares its own with, with adaptive clipping.
    pub estimate: Option<f64>,
    /// The identifier of the run in contexts of secure sums.
    pub run: Digest32,
}

/// The vocabulary of a task, and everything that its size decides.
pub(crate) struct Prepared {
    /// The vocabulary.
    pub vocab: Vocab,
    /// The layout of the update.
    pub layout: Arc<ParamLayout>,
    /// The encoding of a secure sum.
    pub encoding: Option<Encoding>,
}

/// The rates in the update of an evaluation.
const RATES: [&str; 3] = ["top1", "capped_loss", "in_vocabulary_top1"];

impl TaskPlan {
    /// Compares the settings of a round with the plan, field by field.
    ///
    /// # Errors
    /// [`Refusal::Value`] naming the first field that the plan does not allow.
    pub(crate) fn terms(
        &self,
        round: u64,
        attempt: u32,
        shard: u32,
        settings: &RoundSettings,
    ) -> Result<RoundTerms, Refusal> {
        if round >= self.rounds {
            let expected = format!("below {}", self.rounds);
            return Err(Refusal::value("round", expected, round));
        }
        let mode = match self.sum {
            SumPolicy::Plain => SumMode::Plain,
            SumPolicy::SecAgg(_) => SumMode::Secagg,
        };
        let equal = |name, expected: u64, got: u64| match expected == got {
            true => Ok(()),
            false => Err(Refusal::value(name, expected.to_string(), got)),
        };
        equal(
            "settings.mode",
            mode as u64,
            u64::try_from(settings.mode).unwrap_or(u64::MAX),
        )?;
        equal(
            "settings.min_clients",
            self.clients.0.into(),
            settings.min_clients.into(),
        )?;
        equal(
            "settings.max_clients",
            self.clients.1.into(),
            settings.max_clients.into(),
        )?;
        equal("settings.modulus", self.modulus, settings.modulus)?;
        let clipping = self.clipping(settings)?;
        let estimate = match (&self.clip, settings.estimate) {
            (ClipPolicy::Adaptive { .. }, Some(estimate)) if estimate > 0.0 && estimate.is_finite() => {
                Some(estimate)
            }
            (ClipPolicy::Adaptive { .. }, got) => {
                let expected = "a finite number above 0 with adaptive clipping";
                return Err(Refusal::value(
                    "settings.estimate",
                    expected,
                    got.unwrap_or(f64::NAN),
                ));
            }
            (_, None) => None,
            (_, Some(got)) => {
                return Err(Refusal::value(
                    "settings.estimate",
                    "absent without adaptive clipping",
                    got,
                ));
            }
        };
        Ok(RoundTerms {
            round,
            attempt,
            shard,
            clipping,
            estimate,
            run: array("settings.run", &settings.run)?,
        })
    }

    /// PRIVACY: no norm of a round exceeds the norm of the plan, which the guarantee was computed from.
    fn clipping(&self, settings: &RoundSettings) -> Result<Clipping, Refusal> {
        let at_most = |name, max: f64, got: f64| match got > 0.0 && got <= max {
            true => Ok(got),
            false => Err(Refusal::value(name, format!("above 0 and at most {max}"), got)),
        };
        let clip_norm = at_most("settings.clip_norm", self.clip.norm(), settings.clip_norm)?;
        match &self.clip {
            ClipPolicy::Layers(norms) => {
                if norms.len() != settings.layer_norms.len() {
                    let expected = format!("{} norms", norms.len());
                    return Err(Refusal::value(
                        "settings.layer_norms",
                        expected,
                        settings.layer_norms.len(),
                    ));
                }
                for (&max, &got) in norms.iter().zip(&settings.layer_norms) {
                    at_most("settings.layer_norms", max, got)?;
                }
                Ok(Clipping::PerLayer {
                    clip_norms: settings.layer_norms.clone(),
                })
            }
            ClipPolicy::Flat(_) | ClipPolicy::Adaptive { .. } => {
                if !settings.layer_norms.is_empty() {
                    let expected = "empty beside one norm";
                    return Err(Refusal::value(
                        "settings.layer_norms",
                        expected,
                        settings.layer_norms.len(),
                    ));
                }
                Ok(Clipping::Flat { clip_norm })
            }
        }
    }

    /// Reads the vocabulary and computes the sizes that follow from it.
    ///
    /// # Errors
    /// A vocabulary that is no word list, a model that cannot be made over it or is larger than `max_bytes`, and an encoding that differs
    /// from the plan's.
    pub(crate) fn prepare(&self, vocabulary: &[u8], max_bytes: u64) -> Result<Prepared, Refusal> {
        let vocab = Vocab::from_words(vocabulary)
            .map_err(|error| Refusal::value("the vocabulary", "a list of words", error))?
            .with_rule(self.text.words);
        let model = self
            .model
            .layout(vocab.len())
            .map_err(|error| Refusal::value("model", "a model over the vocabulary", error))?;
        let bytes = (model.len() as u64).saturating_mul(4);
        if bytes > max_bytes {
            let expected = format!("at most {max_bytes} bytes");
            return Err(Refusal::floor("the model", expected, bytes));
        }
        let layout = match self.purpose {
            Purpose::Train => model,
            Purpose::Evaluate { .. } => rates()?,
        };
        if let ClipPolicy::Layers(norms) = &self.clip
            && norms.len() != layout.groups().len()
        {
            let expected = format!("{} norms", layout.groups().len());
            return Err(Refusal::value("clip.layers", expected, norms.len()));
        }
        let encoding = match &self.sum {
            SumPolicy::Plain => {
                let expected = layout.len() as u64;
                if self.length != expected {
                    let expected = format!("{expected} coordinates");
                    return Err(Refusal::value("aggregation.length", expected, self.length));
                }
                None
            }
            SumPolicy::SecAgg(secagg) => {
                let inputs = EncodingInputs {
                    size: EncodingSize {
                        dim: layout.len(),
                        clip_norm: self.clip.norm(),
                        min_clients: self.clients.0.into(),
                        max_clients: self.clients.1.into(),
                    },
                    modulus: self.modulus,
                    length: self.length,
                    noise_multiplier: self.planned.noise_multiplier,
                    delta: self.planned.delta,
                    max_part: self.max_part,
                };
                let encoding = encoding(secagg.encoding, &inputs)?;
                self.check_own_noise(&encoding)?;
                Some(encoding)
            }
        };
        Ok(Prepared {
            vocab,
            layout: Arc::new(layout),
            encoding,
        })
    }

    /// The bound that the device enforces on its update. An update that is not finite counts as zero.
    #[must_use]
    pub(crate) fn bound(layout: &Arc<ParamLayout>, terms: &RoundTerms) -> Bound {
        Bound::new(Arc::clone(layout), terms.clipping.clone(), NonFinite::Zero)
    }

    /// The context of the device's secure sum; `None` for a plain task.
    ///
    /// Both digests are of bytes that this device has, so a device that was given another plan or model is in another session.
    #[must_use]
    pub(crate) fn context(&self, terms: &RoundTerms, model_digest: Digest32) -> Option<Context> {
        let SumPolicy::SecAgg(secagg) = &self.sum else {
            return None;
        };
        Some(Context {
            run: terms.run,
            round: terms.round,
            attempt: terms.attempt,
            shard: terms.shard,
            plan_digest: self.digest,
            model_digest,
            terms: secagg.terms,
        })
    }
}

/// The layout of the update of an evaluation.
fn rates() -> Result<ParamLayout, Refusal> {
    let rates = RATES.iter().map(|name| ((*name).to_owned(), vec![1])).collect();
    ParamLayout::with_tensor_groups(rates)
        .map_err(|error| Refusal::value("the update of an evaluation", "three rates", error))
}
