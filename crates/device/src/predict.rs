//! Next words from a released model that the device holds, and its quality on withheld texts.

use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError};

use undertone_models::{IGNORE, ModelError, PackedBatch, SequenceModel, SequenceWorker, StateMode};
use undertone_protocol::{Blob, Digest32, digest_of};
use undertone_text::{ExampleCutter, Examples, Scratch, TextRules, Vocab};
use zeroize::Zeroizing;

use crate::device::Device;
use crate::error::{DeviceError, Refusal, Result};
use crate::examples::TEXTS_PER_EXAMPLE;
use crate::held::{HeldModel, HeldRow};
use crate::job::{load_model, split};
use crate::plan::{PlanChecks, TaskPlan};
use crate::rates::{BATCH, Counts, measure};

/// Max number of bytes of text that a prediction reads, from its end. The context of a model is far shorter.
const MAX_TEXT: usize = 1 << 16;

/// A word that may come next.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The word, in lower case, as the vocabulary has it.
    pub word: String,
    /// The probability that the model gives to the word, from 0 to 1. All words, the end of a sentence and an unknown word share 1.
    pub probability: f64,
}

/// The quality of a model on texts that the device withheld from training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Number of examples: sentences or windows of text.
    pub examples: u64,
    /// Number of predicted words, those outside of the vocabulary included.
    pub words: u64,
    /// Mean loss per word, in nats. It is infinite where the model gave no finite loss, and 0 without words.
    pub loss: f64,
    /// The rate of words that were the model's first choice.
    pub top1: f64,
    /// The rate of words that were the model's first choice, among the words of the vocabulary.
    pub in_vocabulary_top1: f64,
}

/// A released model in memory, ready to predict. It needs neither the device nor its folder any more.
///
/// # Guarantee
/// The model is a release of its task, so its predictions reveal no more about other people than the task's guarantee allows.
/// The text that it reads is forgotten after the call.
#[expect(missing_debug_implementations, reason = "a model is too large to print")]
pub struct Predictor {
    held: HeldModel,
    rules: TextRules,
    vocab: Vocab,
    model: Box<dyn SequenceModel>,
    parameters: Vec<f32>,
    worker: Mutex<Box<dyn SequenceWorker>>,
}

impl Device {
    /// The released models that the device holds, the newest first. A session that trains or measures brings the model of its round.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn models(&self) -> Result<Vec<HeldModel>> {
        Ok(self.database.held()?.iter().map(HeldRow::shown).collect())
    }

    /// Loads the model of a task, or the newest one, to predict with it.
    ///
    /// # Errors
    /// [`DeviceError::NoModel`] where the device holds none; a plan that the device does not follow any more; a failure of the database.
    pub fn predictor(&self, task: Option<&Digest32>) -> Result<Predictor> {
        let held = self.database.held()?;
        let row = held
            .iter()
            .find(|row| task.is_none_or(|task| row.task == *task))
            .ok_or(DeviceError::NoModel)?;
        let (predictor, _) = self.load(row)?;
        Ok(predictor)
    }

    /// Measures the model of a task, or the newest one, on the texts that this device withholds from training. Nothing is sent.
    ///
    /// # Errors
    /// Those of [`predictor`](Self::predictor).
    pub fn evaluate(&self, task: Option<&Digest32>) -> Result<Evaluation> {
        let held = self.database.held()?;
        let row = held
            .iter()
            .find(|row| task.is_none_or(|task| row.task == *task))
            .ok_or(DeviceError::NoModel)?;
        let (predictor, plan) = self.load(row)?;
        let wanted = (plan.max_examples as usize).saturating_mul(TEXTS_PER_EXAMPLE);
        let texts = self.examples().texts(true, wanted)?;
        predictor.evaluate(&texts, plan.max_examples as usize)
    }

    fn load(&self, row: &HeldRow) -> Result<(Predictor, TaskPlan)> {
        let refused =
            |refusal: Refusal| DeviceError::value("the model", "one of a plan of this device", refusal);
        let blob = |digest: &Digest32| self.database.blob(digest)?.ok_or(DeviceError::NoModel);
        let named = |named: &Blob| blob(&named.digest()?);
        let checks = PlanChecks {
            population: &self.setup.population,
            trusted: &self.setup.task_keys,
            floors: &self.setup.floors,
            limits: &self.setup.limits,
            client_version: self.setup.client_version,
        };
        let plan = TaskPlan::read(&blob(&row.plan)?, &row.task, &checks).map_err(refused)?;
        let vocabulary = named(&plan.vocabulary)?;
        let prepared = plan
            .prepare(&vocabulary, self.setup.limits.down_bytes)
            .map_err(refused)?;
        let frozen = plan.frozen.as_ref().map(named).transpose()?;
        let model = blob(&row.model)?;
        debug_assert_eq!(digest_of(&model), row.model);
        let (model, parameters) =
            load_model(&plan.model, prepared.vocab.len(), &model, frozen.as_deref()).map_err(refused)?;
        let worker = Mutex::new(model.worker(1, plan.text.longest()));
        let predictor = Predictor {
            held: row.shown(),
            rules: plan.text,
            vocab: prepared.vocab,
            model,
            parameters,
            worker,
        };
        Ok((predictor, plan))
    }
}

impl Predictor {
    /// The task and the round of the model.
    #[must_use]
    pub fn model(&self) -> &HeldModel {
        &self.held
    }

    /// The `count` next words with the highest probabilities after a text, in falling order. Words of equal probability come in the order of the
    /// vocabulary.
    ///
    /// The last word of the text counts as complete. Where a plan cuts texts into sentences, the context is the sentence that the text
    /// ends in. A full stop with white space after it, and a line break, start a new one.
    ///
    /// # Errors
    /// [`DeviceError::Value`] for a model whose parameters give no finite probabilities.
    pub fn predict(&self, text: &str, count: usize) -> Result<Vec<Prediction>> {
        let ids = self.context(text)?;
        let special = self.vocab.special();
        let targets = vec![IGNORE; ids.len()];
        let mut packed = PackedBatch::default();
        let batch = packed.pack(&[(&ids, &targets)]);
        let (last, known) = (ids.len() - 1, self.vocab.len());
        let mut best: Vec<(f32, u32)> = Vec::new();
        let mut sink = |row: usize, logits: &[f32], normalizer: f32| {
            if row != last {
                return;
            }
            // A family may have an id for padding after the words.
            best = (0..)
                .zip(&logits[..known.min(logits.len())])
                .filter(|(id, _)| special.is_candidate(*id, false))
                .map(|(id, logit)| (logit - normalizer, id))
                .collect();
        };
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker
            .evaluate(&self.parameters, &batch, StateMode::Zero, &mut sink)
            .map_err(not_finite)?;
        drop(worker);
        let order = |a: &(f32, u32), b: &(f32, u32)| match b.0.total_cmp(&a.0) {
            Ordering::Equal => a.1.cmp(&b.1),
            other => other,
        };
        let count = count.min(best.len());
        if (1..best.len()).contains(&count) {
            best.select_nth_unstable_by(count - 1, order);
        }
        best.truncate(count);
        best.sort_unstable_by(order);
        let prediction = |&(score, id): &(f32, u32)| Prediction {
            word: self.vocab.word(id).to_owned(),
            probability: f64::from(score).exp().min(1.0),
        };
        Ok(best.iter().map(prediction).collect())
    }

    /// The ids that the model reads: the start, and the last words of the text.
    fn context(&self, text: &str) -> Result<Zeroizing<Vec<u32>>> {
        let mut from = text.len().saturating_sub(MAX_TEXT);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let mut open = &text[from..];
        if self.rules.examples == Examples::Sentences {
            open = self.rules.words.open_sentence(open);
        }
        let (mut word, mut ids) = (Zeroizing::new(String::new()), Zeroizing::new(Vec::new()));
        self.vocab
            .encode(open, &mut word, &mut ids)
            .map_err(|error| DeviceError::value("the vocabulary", "one that encodes any text", error))?;
        let kept = ids.len().min(self.rules.longest().saturating_sub(1));
        let mut context = Zeroizing::new(Vec::with_capacity(kept + 1));
        context.push(self.vocab.special().bos);
        context.extend_from_slice(&ids[ids.len() - kept..]);
        Ok(context)
    }

    /// Measures the model on texts, the newest first, by `max_examples` examples.
    fn evaluate(&self, texts: &[Zeroizing<String>], max_examples: usize) -> Result<Evaluation> {
        let cutter = ExampleCutter::new(&self.vocab, self.rules.examples, self.rules.longest());
        let (mut scratch, mut spool) = (Scratch::default(), Zeroizing::new(Vec::new()));
        for text in texts {
            cutter
                .cut(text, &mut scratch, &mut spool)
                .map_err(|error| DeviceError::value("the vocabulary", "one that encodes any text", error))?;
        }
        let mut examples = split(&spool);
        examples.truncate(max_examples);
        let longest = examples.iter().map(|example| example.len()).max().unwrap_or(1);
        let mut worker = self.model.worker(BATCH, BATCH * longest.max(1));
        let number = examples.len() as u64;
        let Counts {
            targets,
            known,
            right,
            loss,
        } = measure(worker.as_mut(), &self.parameters, examples, self.vocab.special()).map_err(not_finite)?;
        let rate = |right: u64, of: u64| right as f64 / of.max(1) as f64;
        Ok(Evaluation {
            examples: number,
            words: targets,
            loss: loss / targets.max(1) as f64,
            top1: rate(right, targets),
            in_vocabulary_top1: rate(right, known),
        })
    }
}

fn not_finite(error: ModelError) -> DeviceError {
    DeviceError::value("the model", "one with finite probabilities", error)
}
