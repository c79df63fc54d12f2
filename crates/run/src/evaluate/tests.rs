use undertone_data::{NoProgress, Split};
use undertone_models::ModelSpec;
use undertone_settings::{CorpusSpec, SourceSpec, SyntheticSource};

use super::*;
use crate::observer::Silent;

fn corpus(folder: &std::path::Path) -> Corpus {
    let source = SourceSpec::Synthetic(SyntheticSource {
        users: 300,
        words: 40,
        ..SyntheticSource::default()
    });
    Corpus::open(&CorpusSpec::new(source, None), folder, folder, &NoProgress).unwrap()
}

/// A small model with random parameters, which predicts something else after each word.
fn model(corpus: &Corpus) -> (Box<dyn SequenceModel>, Vec<f32>) {
    let spec: ModelSpec = serde_json::from_str(r#"{"family": "dplm", "embed": 6, "hidden": 8}"#).unwrap();
    let model = spec.build(corpus.vocab().len()).unwrap();
    let parameters = model.initial_params(5).into_iter().map(|value| 4.0 * value);
    (model, parameters.collect())
}

/// A smaller limit reads the first sentences of a larger one, user by user, and stops at the first sentence beyond it.
#[test]
fn a_smaller_limit_reads_a_prefix_of_a_larger_one() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let partition = corpus.partition(Split::Validation);
    let all = first_sentences(&partition, None);
    assert_eq!(all.len(), partition.num_examples());
    assert!(all.is_sorted_by_key(|&(user, _)| user));
    let mut before = 0;
    for limit in [1, 7, 100, 101, 500, 1000, u64::MAX] {
        let some = first_sentences(&partition, Some(limit));
        assert_eq!(some, all[..some.len()], "{limit}");
        let tokens = |sentences: &[(u32, &[u32])]| -> usize {
            sentences.iter().map(|(_, sentence)| sentence.len()).sum()
        };
        assert!(some.len() == all.len() || tokens(&some) as u64 >= limit);
        assert!((tokens(&some[..some.len() - 1]) as u64) < limit);
        assert!(some.len() >= before);
        before = some.len();
    }
}

/// Each user is measured alone, and the standard errors follow from their figures by the formula.
#[test]
fn standard_errors_are_those_of_users_measured_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let (model, parameters) = model(&corpus);
    let eos = EosTargets::Excluded;
    let set = EvaluationSet::new(&corpus, EvaluationSplit::Validation, None).unwrap();
    let metrics = set
        .evaluate(model.as_ref(), &parameters, eos, false, 3, &Silent)
        .unwrap();
    let partition = corpus.partition(Split::Validation);
    let mut worker = model.worker(BATCH, BATCH * set.longest);
    let alone: Vec<(Metrics, f64)> = partition
        .users()
        .map(|user| EvaluationSet::of_user(user.examples(), set.special))
        .map(|set| set.measure(worker.as_mut(), &parameters, eos).unwrap())
        .collect();
    let targets: u64 = alone.iter().map(|(metrics, _)| metrics.targets).sum();
    assert_eq!(
        (metrics.targets, metrics.users),
        (targets, Some(alone.len() as u64))
    );
    let error = |share: f64, of: &dyn Fn(&(Metrics, f64)) -> f64| {
        let n = alone.len() as f64;
        let residual = |user: &(Metrics, f64)| user.0.targets as f64 * (of(user) - share);
        let squares: f64 = alone.iter().map(|user| residual(user).powi(2)).sum();
        (n / (n - 1.0) * squares).sqrt() / targets as f64
    };
    for (got, expected) in [
        (
            metrics.top1_standard_error,
            error(metrics.top1, &|user| user.0.top1),
        ),
        (
            metrics.top3_standard_error,
            error(metrics.top3, &|user| user.0.top3),
        ),
        (
            metrics.top5_standard_error,
            error(metrics.top5, &|user| user.0.top5),
        ),
        (
            metrics.top1_all_ids_standard_error,
            error(metrics.top1_all_ids, &|user| user.0.top1_all_ids),
        ),
        // All words of the population are known.
        (
            metrics.in_vocab_top1_standard_error,
            error(metrics.top1, &|user| user.0.top1),
        ),
        (
            metrics.loss_standard_error,
            error(metrics.perplexity.ln(), &|user| user.1),
        ),
    ] {
        let got = got.unwrap();
        assert!(
            got > 0.0 && (got / expected - 1.0).abs() < 1e-6,
            "{got} {expected}"
        );
    }
    // Equal targets with another model: no user differs from itself, and most differ between the models.
    let by_user = |parameters: &[f32]| {
        set.by_user(
            model.as_ref(),
            parameters,
            ("all".to_owned(), eos),
            false,
            2,
            &Silent,
        )
        .unwrap()
        .1
    };
    let (one, again) = (by_user(&parameters), by_user(&parameters));
    assert!(one.same_users(&again) && one.users() == alone.len());
    assert_eq!(
        standard_error(&one.influence(Measure::Top1)),
        metrics.top1_standard_error
    );
    let other = by_user(&vec![0.01; parameters.len()]);
    let paired = |other: &UserCounts| {
        let (one, other) = (one.influence(Measure::Loss), other.influence(Measure::Loss));
        let pairs = one.iter().zip(&other).map(|(one, other)| one - other);
        standard_error(&pairs.collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(paired(&again), 0.0);
    assert!(paired(&other) > 0.0);
}

/// Files of older versions lack the fields, and a line of them is written again as it was read.
#[test]
fn old_measures_are_read_and_written_without_the_new_fields() {
    let old = "{\"top1\":0.25,\"top3\":0.5,\"top5\":0.5,\"top1_all_ids\":0.25,\"in_vocab_top1\":0.25,\"perplexity\":12.5,\
               \"targets\":4,\"out_of_vocabulary\":0}";
    let metrics: Metrics = serde_json::from_str(old).unwrap();
    assert_eq!((metrics.users, metrics.top1_standard_error), (None, None));
    assert_eq!(metrics.on_curve(), &metrics);
    assert_eq!(serde_json::to_string(&metrics).unwrap(), old);
}

/// A person starts it: it draws ten populations of nearly 60,000 people each.
mod by_hand {
    use undertone_settings::SplitSpec;

    use super::*;

    /// People of a corpus, and corpora of a population.
    const PEOPLE: usize = 400;
    const CORPORA: usize = 20;

    /// 200 corpora of 400 people, twenty from each of ten populations, measure a model of their population, and 50,000 other people of the
    /// population measure it again. The number of 200 intervals of 95.4 % that cover is below 182 or above 198 with a probability of
    /// 0.0033 by the binomial law. The seeds are fixed.
    #[test]
    #[ignore = "some minutes"]
    fn two_standard_errors_cover_the_accuracy_of_fifty_thousand_others() {
        let (mut covered, mut squares) = (0, 0.0);
        for seed in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let source = SourceSpec::Synthetic(SyntheticSource {
                users: 60_000,
                words: 60,
                median_sentences: 3.0,
                max_sentences: 40,
                seed,
                ..SyntheticSource::default()
            });
            let spec = CorpusSpec {
                split: Some(SplitSpec::HeldOutUsers {
                    validation: 0.14,
                    test: 0.85,
                    seed: 0,
                }),
                ..CorpusSpec::new(source, None)
            };
            let corpus = Corpus::open(&spec, folder.path(), folder.path(), &NoProgress).unwrap();
            let (model, parameters) = trained(&corpus);
            let special = corpus.vocab().special();
            let measured = |split: Split, from: usize, count: usize| {
                let partition = corpus.partition(split);
                assert!(partition.num_users() >= from + count);
                let of_user = |user: u32| {
                    partition
                        .user(user as usize)
                        .examples()
                        .map(move |sentence| (user, sentence))
                };
                let sentences = (from as u32..(from + count) as u32).flat_map(of_user).collect();
                let set = EvaluationSet::of(sentences, special);
                let eos = EosTargets::Excluded;
                set.evaluate(model.as_ref(), &parameters, eos, false, 2, &Silent)
                    .unwrap()
            };
            let others = measured(Split::Test, 0, 50_000);
            assert_eq!(others.users, Some(50_000));
            let mut away = Vec::new();
            for corpus in 0..CORPORA {
                let one = measured(Split::Validation, corpus * PEOPLE, PEOPLE);
                assert_eq!(one.users, Some(PEOPLE as u64));
                away.push((one.top1 - others.top1) / one.top1_standard_error.unwrap());
            }
            let inside = away.iter().filter(|away| away.abs() <= 2.0).count();
            println!(
                "population {seed}: top-1 {:.4}, {inside} of {CORPORA} covered",
                others.top1
            );
            covered += inside;
            squares += away.iter().map(|away| away * away).sum::<f64>();
        }
        println!(
            "{covered} of 200 covered; mean square of the distance in standard errors {:.3}",
            squares / 200.0
        );
        assert!((182..=198).contains(&covered), "{covered}");
    }

    /// A model that has learnt from the training users of a corpus.
    fn trained(corpus: &Corpus) -> (Box<dyn SequenceModel>, Vec<f32>) {
        let (model, _) = model(corpus);
        let mut parameters = model.initial_params(5);
        let partition = corpus.partition(Split::Train);
        let sentences: Vec<&[u32]> = partition.users().flat_map(|user| user.examples()).collect();
        let longest = sentences.iter().map(|sentence| sentence.len()).max().unwrap();
        let mut worker = model.worker(BATCH, BATCH * longest);
        for batch in batch::sentences(&sentences, BATCH, corpus.vocab().special().bos) {
            worker
                .sgd_step(&mut parameters, &batch.batch(), 1.0, StateMode::Zero)
                .unwrap();
            model.constrain(&mut parameters);
        }
        (model, parameters)
    }
}

/// A model whose parameters are all zero says the first word everywhere, which is the commonest one here.
#[test]
fn the_commonest_word_has_the_figures_of_a_model_that_always_says_it() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let (model, parameters) = model(&corpus);
    let (split, eos) = (EvaluationSplit::Validation, EosTargets::Excluded);
    let set = EvaluationSet::new(&corpus, split, None).unwrap();
    let zero = vec![0.0; parameters.len()];
    let metrics = set
        .evaluate(model.as_ref(), &zero, eos, false, 2, &Silent)
        .unwrap();
    let commonest = metrics.commonest_prediction.unwrap();
    assert_eq!(
        (Some(commonest.id), commonest.share),
        (corpus.commonest_target(eos), 1.0)
    );
    assert_eq!(
        Some(metrics.top1),
        corpus.unigram_accuracy(Split::Validation, eos)
    );
    let error = unigram_standard_error(&corpus, split, eos).unwrap();
    assert!((error / metrics.top1_standard_error.unwrap() - 1.0).abs() < 1e-12);
}
