//! Log-likelihoods of texts under a model, for attacks on the model of a run.
//!
//! PRIVACY: likelihoods of people's texts are exact statistics of users. They are for those who run the training, and no part of any
//! release. Those of invented texts tell of nobody.

use std::fmt;
use std::path::Path;

use undertone_coordinator::random::Randomness;
use undertone_data::{Corpus, SpecialIds, Vocab};
use undertone_local::batch;
use undertone_models::{ModelSpec, PackedBatch, SequenceModel, SequenceWorker, StateMode};

use crate::driver::Finished;
use crate::error::{Result, RunError};
use crate::evaluate::BATCH;
use crate::observer::Silent;
use crate::run_file::RunFile;
use crate::work_items::work_items;
use undertone_run_directory::initial_model;
use undertone_run_directory::plan_inputs::trained_model;

/// Takes the sequence, the target, the logits and their normalizer of one row.
type RowSink<'a> = &'a mut dyn FnMut(usize, u32, &[f32], f32);

/// The largest number of candidates that [`Likelihood::of_candidates`] scores.
pub(crate) const MAX_CANDIDATES: usize = 1 << 24;

/// A model that gives texts their likelihoods.
pub struct Likelihood {
    model: Box<dyn SequenceModel>,
    parameters: Vec<f32>,
    special: SpecialIds,
}

impl fmt::Debug for Likelihood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Likelihood")
            .field("parameters", &self.parameters.len())
            .finish_non_exhaustive()
    }
}

/// The corpus and the final model of a finished run. Relative paths of the data settings start at `base`.
///
/// # Errors
/// [`RunError`] for a run that is not finished, for an export without text, and for a corpus with a different vocabulary.
pub fn of_run(run_dir: &Path, base: &Path) -> Result<(Corpus, Likelihood)> {
    let finished = Finished::open(run_dir, Some(base), &Silent)?;
    let likelihood = Likelihood {
        model: finished.model,
        parameters: finished.parameters,
        special: finished.corpus.vocab().special(),
    };
    Ok((finished.corpus, likelihood))
}

impl Likelihood {
    /// The final model of a run directory with this model and vocabulary.
    ///
    /// # Errors
    /// [`RunError`] for a missing or damaged model file, or a model of a different kind.
    pub fn trained(run_dir: &Path, spec: &ModelSpec, vocab: &Vocab) -> Result<Self> {
        let (model, parameters) = trained_model(run_dir, spec, vocab)?;
        Ok(Self {
            model,
            parameters,
            special: vocab.special(),
        })
    }

    /// The model that a run starts from: its initial model, or the random one of its seed. A run without a seed has kept no random
    /// model, so another one is drawn, from seed 0.
    ///
    /// # Errors
    /// From the file of the initial model.
    pub fn initial(file: &RunFile, vocab: &Vocab) -> Result<Self> {
        let config = &file.config;
        let initial = config.initial_model.as_deref();
        let seed = config.seed.unwrap_or(0);
        let mut start = Self::starting(&config.task.model, initial, &file.base, vocab, seed)?;
        if let Some(folder) = &config.initial_adapters {
            let (spec, model) = (&config.task.model, start.model.as_ref());
            initial_model::add_adapters(spec, folder, &file.base, model, vocab, &mut start.parameters)?;
        }
        Ok(start)
    }

    /// The model in a file: a `model.safetensors` of the same model and words as the run.
    ///
    /// # Errors
    /// [`RunError`] naming the file: unreadable, or of a different model or vocabulary.
    pub fn of_file(spec: &ModelSpec, file: &Path, vocab: &Vocab) -> Result<Self> {
        Self::starting(spec, Some(file), Path::new(""), vocab, 0)
    }

    fn starting(
        spec: &ModelSpec,
        file: Option<&Path>,
        base: &Path,
        vocab: &Vocab,
        seed: u64,
    ) -> Result<Self> {
        let model = initial_model::model(spec, file, base, vocab)?;
        let randomness = Randomness::seeded(seed);
        let parameters =
            initial_model::starting_parameters(spec, file, base, model.as_ref(), vocab, &randomness)?;
        Ok(Self {
            model,
            parameters,
            special: vocab.special(),
        })
    }

    /// The natural logarithm of the probability of each token of each example, given the tokens before it. An example has the form of
    /// [`User::example`](undertone_data::User::example): the beginning of the sentence is implied.
    ///
    /// # Errors
    /// From the model: a token outside the vocabulary, a loss that is not finite.
    pub fn of_examples(&self, examples: &[&[u32]]) -> Result<Vec<Vec<f64>>> {
        let longest = examples.iter().map(|example| example.len()).max().unwrap_or(0);
        let mut worker = self.model.worker(BATCH, BATCH * longest.max(1));
        let mut found: Vec<Vec<f64>> = examples
            .iter()
            .map(|example| Vec::with_capacity(example.len()))
            .collect();
        let chunks = examples.chunks(BATCH).zip(found.chunks_mut(BATCH));
        for (chunk, found) in chunks {
            for packed in batch::sentences(chunk, BATCH, self.special.bos) {
                self.rows(
                    worker.as_mut(),
                    &packed,
                    &mut |sequence, target, logits, normalizer| {
                        found[sequence].push(log_probability(logits, normalizer, target));
                    },
                )?;
            }
        }
        Ok(found)
    }

    /// The log-likelihood of every candidate: `prefix`, then one word of each of the `places` in turn. The words of the last place vary
    /// fastest. The likelihood of the prefix is left out, as it is the same for all.
    ///
    /// The numbers do not depend on `threads`.
    ///
    /// # Errors
    /// [`RunError::Coordinator`] for an empty place and for more than `MAX_CANDIDATES` candidates; as [`of_examples`](Self::of_examples).
    pub fn of_candidates(&self, prefix: &[u32], places: &[Vec<u32>], threads: usize) -> Result<Vec<f64>> {
        let count = places
            .iter()
            .try_fold(1usize, |count, place| count.checked_mul(place.len()))
            .filter(|count| (1..=MAX_CANDIDATES).contains(count));
        let refused = || {
            let expected = format!("at least one word per place and at most {MAX_CANDIDATES} candidates");
            let sizes: Vec<usize> = places.iter().map(Vec::len).collect();
            RunError::value("candidates", expected, format!("places of {sizes:?} words"))
        };
        let (Some(count), Some((last, earlier))) = (count, places.split_last()) else {
            return Err(refused());
        };
        let contexts = count / last.len();
        let length = prefix.len() + places.len();
        // The last token is a stand-in: its row holds the logits of all words of the last place.
        let context = |index: usize| {
            let mut words = Vec::with_capacity(length);
            let mut left = index;
            words.push(last[0]);
            for place in earlier.iter().rev() {
                words.push(place[left % place.len()]);
                left /= place.len();
            }
            words.extend(prefix.iter().rev());
            words.reverse();
            words
        };
        let mut workers: Vec<_> = (0..threads.max(1)).map(|_| None).collect();
        let scores = work_items(&mut workers, contexts.div_ceil(BATCH), |worker, item| {
            let worker = worker.get_or_insert_with(|| self.model.worker(BATCH, BATCH * length));
            let first = BATCH * item;
            let words: Vec<Vec<u32>> = (first..contexts.min(first + BATCH)).map(context).collect();
            let examples: Vec<&[u32]> = words.iter().map(Vec::as_slice).collect();
            let mut before = vec![0.0; words.len()];
            let mut step = vec![0; words.len()];
            let mut made = vec![0.0; words.len() * last.len()];
            for packed in batch::sentences(&examples, BATCH, self.special.bos) {
                self.rows(
                    worker.as_mut(),
                    &packed,
                    &mut |sequence, target, logits, normalizer| {
                        step[sequence] += 1;
                        if step[sequence] == length {
                            let row = &mut made[sequence * last.len()..][..last.len()];
                            for (score, &word) in row.iter_mut().zip(last) {
                                *score = before[sequence] + log_probability(logits, normalizer, word);
                            }
                        } else if step[sequence] > prefix.len() {
                            before[sequence] += log_probability(logits, normalizer, target);
                        }
                    },
                )?;
            }
            Ok(made)
        })?;
        Ok(scores.concat())
    }

    /// Calls `sink(sequence, target, logits, log_normalizer)` for every row of a batch; `sequence` counts in the order of packing.
    fn rows(&self, worker: &mut dyn SequenceWorker, packed: &PackedBatch, sink: RowSink<'_>) -> Result<()> {
        let (batch, order) = (packed.batch(), packed.order());
        let mut owners = Vec::with_capacity(batch.targets.len());
        for &running in batch.active {
            owners.extend_from_slice(&order[..running]);
        }
        worker.evaluate(
            &self.parameters,
            &batch,
            StateMode::Zero,
            &mut |row, logits, normalizer| sink(owners[row], batch.targets[row], logits, normalizer),
        )?;
        Ok(())
    }
}

fn log_probability(logits: &[f32], normalizer: f32, word: u32) -> f64 {
    // A word that the model does not have is as unlikely as can be; the worker refuses it as a target before.
    let logit = logits.get(word as usize).copied().unwrap_or(f32::NEG_INFINITY);
    f64::from(logit) - f64::from(normalizer)
}
