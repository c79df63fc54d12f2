//! The evaluation of a model: its predictions of the next word of held-out users.
//!
//! A corpus has one order of held-out users, by a hash of their names, and every evaluation reads a prefix of it. So two evaluations with
//! equal limits measure the same people, in any run, and a smaller limit reads a part of what a larger one reads.
//!
//! PRIVACY: the figures are exact statistics of held-out people, for those who run the training. They are no part of any release.

mod standard_error;
mod tally;
mod unigram;
mod users;

use crate::run_file::split_of;
use undertone_data::{Corpus, EosTargets, Partition, SpecialIds, User};
use undertone_models::{PackedBatch, SequenceModel, SequenceWorker, StateMode};

use crate::error::{Result, RunError};
use crate::observer::{Observer, proceed};
use crate::work_items::work_items;
use undertone_local::batch;
use undertone_run_directory::config::EvaluationSplit;
use undertone_run_directory::metrics::Metrics;

use tally::{TOP, Tally};

pub use standard_error::standard_error;
pub(crate) use unigram::unigram_standard_error;
pub use users::{Difference, Measure, UserCounts};

/// Sentences evaluated side by side.
pub(crate) const BATCH: usize = 32;

/// The sentences of an evaluation, chosen and packed once.
#[derive(Debug, Clone)]
pub struct EvaluationSet {
    batches: Vec<PackedBatch>,
    /// The user of each sentence, in the order of the batches.
    owners: Vec<u32>,
    users: usize,
    longest: usize,
    special: SpecialIds,
}

impl EvaluationSet {
    /// All sentences of a partition, or the first ones in the order of its users until `max_tokens` are reached. The sentences of a
    /// smaller limit are the first of those of a larger one, in any run.
    ///
    /// # Errors
    /// [`RunError::EmptyPartition`].
    pub fn new(corpus: &Corpus, split: EvaluationSplit, max_tokens: Option<u64>) -> Result<Self> {
        let partition = corpus.partition(split_of(split));
        let sentences = first_sentences(&partition, max_tokens);
        if sentences.iter().all(|(_, sentence)| sentence.is_empty()) {
            let hint = "give `data.split` a share of users, or choose another `evaluation.split`";
            let split = split.name();
            return Err(RunError::EmptyPartition { split, hint });
        }
        Ok(Self::of(sentences, partition.special()))
    }

    /// The evaluation set of the sentences of one user.
    pub(crate) fn of_user<'a>(sentences: impl Iterator<Item = &'a [u32]>, special: SpecialIds) -> Self {
        Self::of(sentences.map(|sentence| (0, sentence)).collect(), special)
    }

    /// The evaluation set of these sentences, each with its user.
    pub(crate) fn of(mut sentences: Vec<(u32, &[u32])>, special: SpecialIds) -> Self {
        // Sentences of one length side by side; the sort is stable, so the batches depend on the choice alone.
        sentences.sort_by_key(|(_, sentence)| sentence.len());
        let (owners, sentences): (Vec<u32>, Vec<&[u32]>) = sentences.into_iter().unzip();
        Self {
            batches: batch::sentences(&sentences, BATCH, special.bos),
            users: owners.iter().max().map_or(0, |&last| last as usize + 1),
            owners,
            longest: sentences.last().map_or(0, |sentence| sentence.len()),
            special,
        }
    }

    /// `true` if the other set is another prefix of the same users' sentences.
    pub(crate) fn differs_from(&self, other: &Self) -> bool {
        self.owners.len() != other.owners.len()
    }

    /// Measures a model in one worker, which has room for [`BATCH`] sentences. It also returns the mean loss, which is finite
    /// where the perplexity is too large for a number.
    pub(crate) fn measure(
        &self,
        worker: &mut dyn SequenceWorker,
        parameters: &[f32],
        eos: EosTargets,
    ) -> Result<(Metrics, f64)> {
        let mut total = Tally::new(self.special, self.users, false);
        for (batch, owners) in self.batches.iter().zip(self.owners.chunks(BATCH)) {
            total.add(&self.tally(worker, parameters, batch, eos, false)?, owners);
        }
        Ok((total.metrics(), total.counts.mean_loss()))
    }

    fn tally(
        &self,
        worker: &mut dyn SequenceWorker,
        parameters: &[f32],
        packed: &PackedBatch,
        eos: EosTargets,
        head_words: bool,
    ) -> Result<Tally> {
        let batch = packed.batch();
        let places: Vec<usize> = packed.places().collect();
        let mut tally = Tally::new(self.special, BATCH, head_words);
        let mut top = Vec::with_capacity(TOP + 1);
        worker.evaluate(
            parameters,
            &batch,
            StateMode::Zero,
            &mut |row, logits, log_normalizer| {
                let scores = (logits, log_normalizer);
                tally.row(places[row], batch.targets[row], scores, eos, &mut top);
            },
        )?;
        Ok(tally)
    }

    /// Measures a model on `threads` cores; the result does not depend on their number. There are no head words where ids do
    /// not rise as words become rarer.
    ///
    /// # Errors
    /// From the model; [`RunError::Interrupted`] where the observer ends the evaluation.
    pub fn evaluate(
        &self,
        model: &dyn SequenceModel,
        parameters: &[f32],
        eos: EosTargets,
        head_words: bool,
        threads: usize,
        observer: &dyn Observer,
    ) -> Result<Metrics> {
        let total = self.total(model, parameters, eos, head_words, threads, observer)?;
        Ok(total.metrics())
    }

    fn total(
        &self,
        model: &dyn SequenceModel,
        parameters: &[f32],
        eos: EosTargets,
        head_words: bool,
        threads: usize,
        observer: &dyn Observer,
    ) -> Result<Tally> {
        let head_words = head_words && self.special.first_word.is_some();
        let mut workers: Vec<_> = (0..threads.max(1)).map(|_| None).collect();
        let tallies = work_items(&mut workers, self.batches.len(), |worker, index| {
            proceed(observer)?;
            // Each thread makes its own.
            let worker = worker.get_or_insert_with(|| model.worker(BATCH, BATCH * self.longest));
            self.tally(worker.as_mut(), parameters, &self.batches[index], eos, head_words)
        })?;
        let mut total = Tally::new(self.special, self.users, head_words);
        // Summed in batch order, so that the loss is the same at any number of threads.
        for (tally, owners) in tallies.iter().zip(self.owners.chunks(BATCH)) {
            total.add(tally, owners);
        }
        Ok(total)
    }
}

/// The first sentences of a partition until `max_tokens` are reached, each with its user.
pub(crate) fn first_sentences<'a>(
    partition: &Partition<'a>,
    max_tokens: Option<u64>,
) -> Vec<(u32, &'a [u32])> {
    let mut tokens = 0;
    let of_user = |(index, user): (u32, User<'a>)| user.examples().map(move |sentence| (index, sentence));
    let all = (0..).zip(partition.users()).flat_map(of_user);
    // A user may hold far more than the limit, so whole sentences are taken, and not whole users.
    all.take_while(|(_, sentence)| {
        let more = max_tokens.is_none_or(|limit| tokens < limit);
        tokens += sentence.len() as u64;
        more
    })
    .collect()
}

#[cfg(test)]
mod tests;
