//! The accuracy of always predicting the commonest word, as a figure over users.

use undertone_data::{Corpus, EosTargets};
use undertone_run_directory::config::EvaluationSplit;

use super::standard_error::{influence, standard_error};
use super::tally::Counts;
use crate::run_file::split_of;

/// The standard error over users of [`Corpus::unigram_accuracy`]; `None` where the accuracy is, or with one user.
pub(crate) fn unigram_standard_error(
    corpus: &Corpus,
    split: EvaluationSplit,
    eos: EosTargets,
) -> Option<f64> {
    let word = corpus.commonest_target(eos)?;
    let partition = corpus.partition(split_of(split));
    let end = partition.special().eos;
    let counts: Vec<Counts> = partition
        .users()
        .map(|user| {
            let mut counts = Counts::default();
            for &id in user.examples().flatten() {
                counts.targets += u64::from(eos == EosTargets::Included || id != end);
                counts.top[0] += u64::from(id == word);
            }
            counts
        })
        .collect();
    let mut total = Counts::default();
    counts.iter().for_each(|user| total.add(user));
    let hits = |user: &Counts| user.top[0] as f64;
    standard_error(&influence(&counts, &total, hits, |user| user.targets as f64))
}
