//! The counts of an evaluation: of all targets, of each user, and of each prediction.

use std::collections::BTreeMap;

use undertone_data::{EosTargets, SpecialIds};

use super::standard_error::{influence, standard_error};
use undertone_run_directory::metrics::{CommonestPrediction, HeadWords, Metrics};

/// Number of predictions that the head-word histograms count (\[DPLM\] Table 3).
pub(super) const TOP: usize = 10;

/// The counts of some targets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) targets: u64,
    pub(super) out_of_vocabulary: u64,
    /// Targets among the one, three and five likeliest candidates.
    pub(super) top: [u64; 3],
    pub(super) top1_all_ids: u64,
    pub(super) loss: f64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.targets += other.targets;
        self.out_of_vocabulary += other.out_of_vocabulary;
        self.top1_all_ids += other.top1_all_ids;
        self.loss += other.loss;
        self.top.iter_mut().zip(other.top).for_each(|(a, b)| *a += b);
    }

    pub(super) fn known(&self) -> u64 {
        self.targets - self.out_of_vocabulary
    }

    pub(super) fn mean_loss(&self) -> f64 {
        self.loss / self.targets.max(1) as f64
    }
}

/// Counts of one batch, or of all of them.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    special: SpecialIds,
    pub(super) counts: Counts,
    /// The counts of each user; in one batch, of each sentence.
    pub(super) users: Vec<Counts>,
    /// The number of targets for which each candidate was the likeliest one.
    predictions: BTreeMap<u32, u64>,
    head: [[u64; TOP + 1]; 3],
    with_head: bool,
}

impl Tally {
    /// No counts yet, for this number of users.
    pub(super) fn new(special: SpecialIds, users: usize, with_head: bool) -> Self {
        Self {
            special,
            counts: Counts::default(),
            users: vec![Counts::default(); users],
            predictions: BTreeMap::new(),
            head: [[0; TOP + 1]; 3],
            with_head,
        }
    }

    /// Counts the prediction of one target of the user `place`.
    pub(super) fn row(
        &mut self,
        place: usize,
        target: u32,
        (logits, log_normalizer): (&[f32], f32),
        eos: EosTargets,
        top: &mut Vec<(f32, usize)>,
    ) {
        let special = self.special;
        let with_eos = eos == EosTargets::Included;
        if target == special.eos && !with_eos {
            return;
        }
        let score = logits[target as usize];
        let mut row = Counts {
            targets: 1,
            loss: f64::from(log_normalizer) - f64::from(score),
            ..Counts::default()
        };
        if Some(target) == special.unk {
            row.out_of_vocabulary = 1;
        } else {
            // Of equal scores the lower id comes first.
            let (before, after) = logits.split_at(target as usize);
            let better = before.iter().filter(|&&other| other >= score).count()
                + after.iter().filter(|&&other| other > score).count();
            row.top1_all_ids = u64::from(better == 0);
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
            for (count, limit) in row.top.iter_mut().zip([1, 3, 5]) {
                *count = u64::from(better - excluded < limit);
            }
        }
        let predicted = match row.top[0] {
            1 => Some(target),
            _ => likeliest(logits, special, with_eos),
        };
        if let Some(id) = predicted {
            *self.predictions.entry(id).or_default() += 1;
        }
        self.counts.add(&row);
        self.users[place].add(&row);
        if self.with_head {
            self.count_head_words(logits, top);
        }
    }

    fn count_head_words(&mut self, logits: &[f32], top: &mut Vec<(f32, usize)>) {
        top.clear();
        for (id, &logit) in logits.iter().enumerate() {
            if top.len() < TOP || logit > top[top.len() - 1].0 {
                let place = top.partition_point(|&(other, _)| other >= logit);
                top.insert(place, (logit, id));
                top.truncate(TOP);
            }
        }
        let first = self.special.first_word.unwrap_or(u32::MAX) as usize;
        for (histogram, n) in self.head.iter_mut().zip([10, 50, 100]) {
            let hits = top
                .iter()
                .filter(|&&(_, id)| (first..first + n).contains(&id))
                .count();
            histogram[hits] += 1;
        }
    }

    /// Adds the counts of a batch, whose sentences belong to these users.
    pub(super) fn add(&mut self, batch: &Self, users: &[u32]) {
        self.counts.add(&batch.counts);
        for (counts, &user) in batch.users.iter().zip(users) {
            self.users[user as usize].add(counts);
        }
        for (&id, &count) in &batch.predictions {
            *self.predictions.entry(id).or_default() += count;
        }
        self.head
            .iter_mut()
            .flatten()
            .zip(batch.head.iter().flatten())
            .for_each(|(a, b)| *a += b);
    }

    /// The prediction that was made most often, of equal ones that with the lower id.
    fn commonest(&self) -> Option<CommonestPrediction> {
        let first = |best: (u32, u64), next: (u32, u64)| if next.1 > best.1 { next } else { best };
        let (id, count) = self
            .predictions
            .iter()
            .map(|(&id, &count)| (id, count))
            .reduce(first)?;
        let share = count as f64 / self.counts.targets as f64;
        Some(CommonestPrediction { id, share })
    }

    pub(super) fn metrics(&self) -> Metrics {
        let counts = &self.counts;
        let (targets, known) = (counts.targets.max(1) as f64, counts.known());
        let [top1, top3, top5] = counts.top.map(|count| count as f64 / targets);
        let [top10, top50, top100] = self.head.map(|histogram| histogram.to_vec());
        // The error of a share of the targets, or of those that are known.
        let error = |part: fn(&Counts) -> f64, whole: fn(&Counts) -> f64| {
            standard_error(&influence(&self.users, counts, part, whole))
        };
        let all = |counts: &Counts| counts.targets as f64;
        Metrics {
            top1,
            top3,
            top5,
            top1_all_ids: counts.top1_all_ids as f64 / targets,
            in_vocab_top1: (known > 0).then(|| counts.top[0] as f64 / known as f64),
            perplexity: counts.mean_loss().exp(),
            targets: counts.targets,
            out_of_vocabulary: counts.out_of_vocabulary,
            users: Some(self.users.iter().filter(|user| user.targets > 0).count() as u64)
                .filter(|&users| users > 0),
            top1_standard_error: error(|user| user.top[0] as f64, all),
            top3_standard_error: error(|user| user.top[1] as f64, all),
            top5_standard_error: error(|user| user.top[2] as f64, all),
            top1_all_ids_standard_error: error(|user| user.top1_all_ids as f64, all),
            in_vocab_top1_standard_error: (known > 0)
                .then(|| error(|user| user.top[0] as f64, |user| user.known() as f64))
                .flatten(),
            loss_standard_error: error(|user| user.loss, all),
            commonest_prediction: self.commonest(),
            sample: None,
            head_words: self.with_head.then_some(HeadWords { top10, top50, top100 }),
        }
    }
}

/// The candidate with the highest score, of equal ones the lowest id; none where no score is a number.
fn likeliest(logits: &[f32], special: SpecialIds, with_eos: bool) -> Option<u32> {
    let mut best = (f32::NEG_INFINITY, None);
    for (id, &logit) in (0..).zip(logits) {
        if logit > best.0 && special.is_candidate(id, with_eos) {
            best = (logit, Some(id));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(special: SpecialIds, with_head: bool) -> Tally {
        Tally::new(special, 1, with_head)
    }

    /// Logits over ids 0..8; the target's place decides what is counted.
    fn check(target: u32, logits: &[f32], eos: EosTargets, expected: (u64, [u64; 3], u64)) {
        let mut tally = tally(SpecialIds::WORDS, true);
        tally.row(0, target, (logits, 0.0), eos, &mut Vec::new());
        let counts = tally.counts;
        assert_eq!(
            (counts.targets, counts.top, counts.top1_all_ids),
            expected,
            "target {target}"
        );
        assert_eq!(tally.users, [counts]);
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
            let mut tally = tally(shared, false);
            tally.row(0, target, (&logits, 0.0), eos, &mut Vec::new());
            assert_eq!((tally.counts.targets, tally.counts.top), expected);
            assert_eq!(tally.counts.out_of_vocabulary, 0);
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
        let mut tally = tally(SpecialIds::WORDS, true);
        tally.row(0, 3, (&logits, 0.0), EosTargets::Excluded, &mut Vec::new());
        // Top ten are ids 0..10: seven words, all of them among the ten most frequent.
        assert_eq!(tally.head.map(|histogram| histogram[7]), [1, 1, 1]);
        let reversed: Vec<f32> = (0..200).map(|id| id as f32).collect();
        tally.row(0, 3, (&reversed, 0.0), EosTargets::Excluded, &mut Vec::new());
        assert_eq!(tally.head.map(|histogram| histogram[0]), [1, 1, 1]);
    }

    #[test]
    fn perplexity_is_the_exponential_of_the_mean_loss() {
        let mut tally = tally(SpecialIds::WORDS, false);
        let logits = [0.0f32; 8];
        for target in [3, 0] {
            tally.row(
                0,
                target,
                (&logits, 8f32.ln()),
                EosTargets::Excluded,
                &mut Vec::new(),
            );
        }
        let metrics = tally.metrics();
        assert!((metrics.perplexity - 8.0).abs() < 1e-5);
        assert_eq!((metrics.targets, metrics.out_of_vocabulary), (2, 1));
        // One user says nothing of others.
        assert_eq!((metrics.users, metrics.top1_standard_error), (Some(1), None));
    }

    /// The likeliest candidate is counted, right or wrong, and UNK is none.
    #[test]
    fn the_commonest_prediction_is_that_of_most_targets() {
        let mut tally = tally(SpecialIds::WORDS, false);
        let mut say = |target: u32, id: usize| {
            let mut logits = [0.0_f32; 6];
            (logits[0], logits[id]) = (9.0, 1.0);
            tally.row(0, target, (&logits, 0.0), EosTargets::Excluded, &mut Vec::new());
        };
        for (target, id) in [(3, 4), (4, 4), (0, 4), (5, 5), (3, 5), (5, 3)] {
            say(target, id);
        }
        let expected = CommonestPrediction { id: 4, share: 0.5 };
        assert_eq!(tally.metrics().commonest_prediction, Some(expected));
    }
}
