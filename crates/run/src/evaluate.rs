//! The evaluation of a model: its predictions of the next word of held-out users.

use serde::{Deserialize, Serialize};
use undertone_data::{Corpus, EosTargets, SpecialIds};
use undertone_models::{PackedBatch, SequenceModel, SequenceWorker, StateMode};

use crate::config::EvaluationSplit;
use crate::error::{Result, RunError};
use crate::observer::{Observer, proceed};
use crate::work_items::work_items;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_local::batch;
use undertone_mechanisms::draws;

/// Sentences evaluated side by side.
pub(crate) const BATCH: usize = 32;

/// Number of predictions that the head-word histograms count (\[DPLM\] Table 3).
const TOP: usize = 10;

/// The measures of one evaluation.
///
/// # Source
/// \[DPLM\] Appendix B (AccuracyTop1) and Table 3 (head words).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// AccuracyTop1: fraction of targets for which the likeliest word is right. Candidates are the words (and EOS where EOS is
    /// a target), as on a keyboard, which never offers UNK. A target outside the vocabulary is always a mistake.
    pub top1: f64,
    /// Fraction of targets among the three likeliest candidates, with the same rule for targets outside the vocabulary.
    pub top3: f64,
    /// Fraction of targets among the five likeliest candidates, with the same rule.
    pub top5: f64,
    /// Top-1 when every id is a candidate, UNK, BOS and EOS among them: predicting UNK is then always a mistake.
    pub top1_all_ids: f64,
    /// Top-1 over the targets inside the vocabulary alone; `None` when there are none.
    pub in_vocab_top1: Option<f64>,
    /// Exponential of the mean loss over all targets, UNK taken as a word; infinite where it is beyond an `f64`.
    #[serde(with = "crate::json_number")]
    pub perplexity: f64,
    /// Number of targets.
    pub targets: u64,
    /// Number of targets outside the vocabulary.
    pub out_of_vocabulary: u64,
    /// Histograms of the top ten predictions that are among the most frequent words; only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_words: Option<HeadWords>,
}

/// Histograms of how many of the ten likeliest predictions are among the `n` most frequent words: bin `i` counts the
/// predictions with `i` of them, `0..=10`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HeadWords {
    /// `n = 10`.
    pub top10: Vec<u64>,
    /// `n = 50`.
    pub top50: Vec<u64>,
    /// `n = 100`.
    pub top100: Vec<u64>,
}

/// The sentences of an evaluation, chosen and packed once.
#[derive(Debug, Clone)]
pub struct EvaluationSet {
    batches: Vec<PackedBatch>,
    longest: usize,
    special: SpecialIds,
}

impl EvaluationSet {
    /// All sentences of a partition, or those of randomly chosen users until `max_tokens` are reached. `which` names the choice.
    ///
    /// # Errors
    /// [`RunError::EmptyPartition`].
    pub fn new(
        corpus: &Corpus,
        split: EvaluationSplit,
        max_tokens: Option<u64>,
        randomness: &Randomness,
        which: u64,
    ) -> Result<Self> {
        let partition = corpus.partition(split.of_corpus());
        let mut users: Vec<usize> = (0..partition.num_users()).collect();
        if max_tokens.is_some() {
            let mut generator = randomness.generator(Purpose::Evaluation, which, 0);
            draws::shuffle(&mut users, &mut generator);
        }
        let (mut sentences, mut tokens) = (Vec::new(), 0);
        for index in users {
            let user = partition.user(index);
            // A user may hold far more than the limit: take whole sentences until it is reached.
            for j in 0..user.num_examples() {
                if max_tokens.is_some_and(|limit| tokens >= limit) {
                    break;
                }
                tokens += user.example(j).len() as u64;
                sentences.push(user.example(j));
            }
        }
        let longest = sentences.iter().map(|sentence| sentence.len()).max().unwrap_or(0);
        if longest == 0 {
            let hint = "give `data.split` a share of users, or choose another `evaluation.split`";
            let split = split.name();
            return Err(RunError::EmptyPartition { split, hint });
        }
        Ok(Self::of(sentences, partition.special()))
    }

    /// The evaluation set of these sentences.
    pub(crate) fn of(mut sentences: Vec<&[u32]>, special: SpecialIds) -> Self {
        // Sentences of one length side by side; the sort is stable, so the batches depend on the choice alone.
        sentences.sort_by_key(|sentence| sentence.len());
        Self {
            batches: batch::sentences(&sentences, BATCH, special.bos),
            longest: sentences.last().map_or(0, |sentence| sentence.len()),
            special,
        }
    }

    /// Measures a model in one worker, which has room for [`BATCH`] sentences. It also returns the mean loss, which is finite
    /// where the perplexity is too large for a number.
    pub(crate) fn measure(
        &self,
        worker: &mut dyn SequenceWorker,
        parameters: &[f32],
        eos: EosTargets,
    ) -> Result<(Metrics, f64)> {
        let mut total = Tally::new(self.special, false);
        for batch in &self.batches {
            total.add(&self.tally(worker, parameters, batch, eos, false)?);
        }
        Ok((total.metrics(false), total.mean_loss()))
    }

    fn tally(
        &self,
        worker: &mut dyn SequenceWorker,
        parameters: &[f32],
        batch: &PackedBatch,
        eos: EosTargets,
        head_words: bool,
    ) -> Result<Tally> {
        let batch = batch.batch();
        let mut tally = Tally::new(self.special, head_words);
        let mut top = Vec::with_capacity(TOP + 1);
        worker.evaluate(
            parameters,
            &batch,
            StateMode::Zero,
            &mut |row, logits, log_normalizer| {
                tally.row(batch.targets[row], logits, log_normalizer, eos, &mut top);
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
        let head_words = head_words && self.special.first_word.is_some();
        let mut workers: Vec<_> = (0..threads.max(1)).map(|_| None).collect();
        let tallies = work_items(&mut workers, self.batches.len(), |worker, index| {
            proceed(observer)?;
            // Each thread makes its own.
            let worker = worker.get_or_insert_with(|| model.worker(BATCH, BATCH * self.longest));
            self.tally(worker.as_mut(), parameters, &self.batches[index], eos, head_words)
        })?;
        let mut total = Tally::new(self.special, head_words);
        // Summed in batch order, so that the loss is the same at any number of threads.
        tallies.iter().for_each(|tally| total.add(tally));
        Ok(total.metrics(head_words))
    }
}

/// Counts of one batch.
#[derive(Debug, Clone)]
struct Tally {
    special: SpecialIds,
    targets: u64,
    out_of_vocabulary: u64,
    top: [u64; 3],
    top1_all_ids: u64,
    loss: f64,
    head: [[u64; TOP + 1]; 3],
    with_head: bool,
}

impl Tally {
    fn new(special: SpecialIds, with_head: bool) -> Self {
        Self {
            special,
            targets: 0,
            out_of_vocabulary: 0,
            top: [0; 3],
            top1_all_ids: 0,
            loss: 0.0,
            head: [[0; TOP + 1]; 3],
            with_head,
        }
    }

    fn row(
        &mut self,
        target: u32,
        logits: &[f32],
        log_normalizer: f32,
        eos: EosTargets,
        top: &mut Vec<(f32, usize)>,
    ) {
        let special = self.special;
        let with_eos = eos == EosTargets::Included;
        if target == special.eos && !with_eos {
            return;
        }
        self.targets += 1;
        let score = logits[target as usize];
        self.loss += f64::from(log_normalizer) - f64::from(score);
        if Some(target) == special.unk {
            self.out_of_vocabulary += 1;
        } else {
            // Of equal scores the lower id comes first.
            let (before, after) = logits.split_at(target as usize);
            let better = before.iter().filter(|&&other| other >= score).count()
                + after.iter().filter(|&&other| other > score).count();
            self.top1_all_ids += u64::from(better == 0);
            // Ids that are no candidates do not push the target down; one id may be both BOS and EOS.
            let pushes = |id: u32| {
                let other = logits[id as usize];
                !special.is_candidate(id, with_eos) && (other > score || (other == score && id < target))
            };
            let ends = [
                Some(special.bos),
                Some(special.eos).filter(|&eos| eos != special.bos),
            ];
            let unk = special.unk.filter(|unk| !ends.contains(&Some(*unk)));
            let excluded = ends
                .into_iter()
                .chain([unk])
                .flatten()
                .filter(|&id| pushes(id))
                .count();
            for (count, limit) in self.top.iter_mut().zip([1, 3, 5]) {
                *count += u64::from(better - excluded < limit);
            }
        }
        if self.with_head {
            top.clear();
            for (id, &logit) in logits.iter().enumerate() {
                if top.len() < TOP || logit > top[top.len() - 1].0 {
                    let place = top.partition_point(|&(other, _)| other >= logit);
                    top.insert(place, (logit, id));
                    top.truncate(TOP);
                }
            }
            let first = special.first_word.unwrap_or(u32::MAX) as usize;
            for (histogram, n) in self.head.iter_mut().zip([10, 50, 100]) {
                let hits = top
                    .iter()
                    .filter(|&&(_, id)| (first..first + n).contains(&id))
                    .count();
                histogram[hits] += 1;
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.targets += other.targets;
        self.out_of_vocabulary += other.out_of_vocabulary;
        self.top1_all_ids += other.top1_all_ids;
        self.loss += other.loss;
        self.top.iter_mut().zip(other.top).for_each(|(a, b)| *a += b);
        self.head
            .iter_mut()
            .flatten()
            .zip(other.head.iter().flatten())
            .for_each(|(a, b)| *a += b);
    }

    fn mean_loss(&self) -> f64 {
        self.loss / self.targets.max(1) as f64
    }

    fn metrics(&self, head_words: bool) -> Metrics {
        let targets = self.targets.max(1) as f64;
        let known = self.targets - self.out_of_vocabulary;
        let [top10, top50, top100] = self.head.map(|histogram| histogram.to_vec());
        Metrics {
            top1: self.top[0] as f64 / targets,
            top3: self.top[1] as f64 / targets,
            top5: self.top[2] as f64 / targets,
            top1_all_ids: self.top1_all_ids as f64 / targets,
            in_vocab_top1: (known > 0).then(|| self.top[0] as f64 / known as f64),
            perplexity: self.mean_loss().exp(),
            targets: self.targets,
            out_of_vocabulary: self.out_of_vocabulary,
            head_words: head_words.then_some(HeadWords { top10, top50, top100 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits over ids 0..8; the target's place decides what is counted.
    fn check(target: u32, logits: &[f32], eos: EosTargets, expected: (u64, [u64; 3], u64)) {
        let mut tally = Tally::new(SpecialIds::WORDS, true);
        tally.row(target, logits, 0.0, eos, &mut Vec::new());
        assert_eq!(
            (tally.targets, tally.top, tally.top1_all_ids),
            expected,
            "target {target}"
        );
    }

    #[test]
    fn ranks_follow_the_paper() {
        let logits = [5.0, 0.0, 4.0, 3.0, 2.0, 1.0, 0.5, 3.0];
        // UNK and EOS have the highest scores and are no candidates: word 3 is the best word.
        check(3, &logits, EosTargets::Excluded, (1, [1, 1, 1], 0));
        // Equal score, higher id: second.
        check(7, &logits, EosTargets::Excluded, (1, [0, 1, 1], 0));
        check(6, &logits, EosTargets::Excluded, (1, [0, 0, 1], 0));
        // A target outside the vocabulary is a mistake even where UNK is predicted.
        check(0, &logits, EosTargets::Excluded, (1, [0, 0, 0], 0));
        // EOS is a target, and a candidate, only when asked for.
        check(2, &logits, EosTargets::Excluded, (0, [0, 0, 0], 0));
        check(2, &logits, EosTargets::Included, (1, [1, 1, 1], 0));
        check(3, &logits, EosTargets::Included, (1, [0, 1, 1], 0));
        check(3, &[0.0, 0.0, 0.0, 1.0], EosTargets::Excluded, (1, [1, 1, 1], 1));
    }

    #[test]
    fn one_id_for_both_ends_is_left_out_once_or_counts() {
        let shared = SpecialIds {
            unk: None,
            bos: 3,
            eos: 3,
            first_word: None,
        };
        let logits = [1.0, 3.0, 2.0, 9.0];
        let check = |target, eos, expected: (u64, [u64; 3])| {
            let mut tally = Tally::new(shared, false);
            tally.row(target, &logits, 0.0, eos, &mut Vec::new());
            assert_eq!((tally.targets, tally.top), expected);
            assert_eq!(tally.out_of_vocabulary, 0);
        };
        check(1, EosTargets::Excluded, (1, [1, 1, 1]));
        check(0, EosTargets::Excluded, (1, [0, 1, 1]));
        check(3, EosTargets::Excluded, (0, [0, 0, 0]));
        check(3, EosTargets::Included, (1, [1, 1, 1]));
        check(1, EosTargets::Included, (1, [0, 1, 1]));
    }

    #[test]
    fn head_words_count_the_ten_likeliest() {
        let logits: Vec<f32> = (0..200).map(|id| -(id as f32)).collect();
        let mut tally = Tally::new(SpecialIds::WORDS, true);
        tally.row(3, &logits, 0.0, EosTargets::Excluded, &mut Vec::new());
        // Top ten are ids 0..10: seven words, all of them among the ten most frequent.
        assert_eq!(tally.head.map(|histogram| histogram[7]), [1, 1, 1]);
        let reversed: Vec<f32> = (0..200).map(|id| id as f32).collect();
        tally.row(3, &reversed, 0.0, EosTargets::Excluded, &mut Vec::new());
        assert_eq!(tally.head.map(|histogram| histogram[0]), [1, 1, 1]);
    }

    #[test]
    fn perplexity_is_the_exponential_of_the_mean_loss() {
        let mut tally = Tally::new(SpecialIds::WORDS, false);
        let logits = [0.0f32; 8];
        tally.row(3, &logits, 8f32.ln(), EosTargets::Excluded, &mut Vec::new());
        tally.row(0, &logits, 8f32.ln(), EosTargets::Excluded, &mut Vec::new());
        let metrics = tally.metrics(false);
        assert!((metrics.perplexity - 8.0).abs() < 1e-5);
        assert_eq!((metrics.targets, metrics.out_of_vocabulary), (2, 1));
    }
}
