//! One sentence about what holds a model back, by fixed rules. The first rule that applies speaks.

use undertone_run_directory::metrics::Metrics;

/// The fraction of all predictions from which a model says one word only.
const ONE_WORD: f64 = 0.9;
/// Standard errors within which two accuracies count as equal.
const ERRORS: f64 = 2.0;
/// The part of the gain without privacy below which the noise is named.
const REACHED: f64 = 0.5;
/// The fraction of words outside the vocabulary above which the vocabulary is named.
const OUTSIDE: f64 = 0.2;

/// The figures that a sentence is about.
pub(super) struct Found<'a, W> {
    pub(super) metrics: &'a Metrics,
    /// The word that the model says most often.
    pub(super) word: W,
    pub(super) private: bool,
    pub(super) commonest_word: Option<f64>,
    pub(super) start: Option<f64>,
    pub(super) without_privacy: Option<f64>,
}

/// The sentence of the first rule that applies.
pub(super) fn verdict<W: Fn() -> Option<String>>(found: &Found<'_, W>) -> Option<String> {
    one_word(found)
        .or_else(|| {
            near(
                found,
                found.commonest_word,
                "the commonest word, so nothing beyond it is shown",
            )
        })
        .or_else(|| {
            near(
                found,
                found.start,
                "the start, so this training is not shown to help",
            )
        })
        .or_else(|| reached(found))
        .or_else(|| outside(found.metrics))
}

fn one_word<W: Fn() -> Option<String>>(found: &Found<'_, W>) -> Option<String> {
    let share = found.metrics.commonest_prediction?.share;
    let word = || (found.word)().map_or("one word".to_owned(), |word| format!("`{word}`"));
    let cure = match found.private {
        true => "more rounds or less noise",
        false => "more rounds",
    };
    (share > ONE_WORD).then(|| {
        let percent = 100.0 * share;
        format!(
            "The model says {} in {percent:.0} % of the places: it learnt one word only, and needs {cure}.",
            word()
        )
    })
}

/// The width within which accuracies count as equal.
fn width(metrics: &Metrics) -> Option<f64> {
    metrics.top1_standard_error.map(|error| ERRORS * error)
}

fn near<W>(found: &Found<'_, W>, other: Option<f64>, what: &str) -> Option<String> {
    let above = found.metrics.top1 - other?;
    (above < width(found.metrics)?)
        .then(|| format!("The accuracy is less than two standard errors above that of {what}."))
}

fn reached<W>(found: &Found<'_, W>) -> Option<String> {
    let base = found.start.or(found.commonest_word)?;
    let gain = found.without_privacy? - base;
    let part = (found.metrics.top1 - base) / gain;
    (gain > width(found.metrics)? && part < REACHED).then(|| {
        let percent = 100.0 * part;
        format!("The training reached {percent:.0} % of its gain without privacy: more users or a larger epsilon would help most.")
    })
}

fn outside(metrics: &Metrics) -> Option<String> {
    let share = metrics.out_of_vocabulary as f64 / metrics.targets as f64;
    (share > OUTSIDE).then(|| {
        let percent = 100.0 * share;
        format!("{percent:.0} % of the words are outside the vocabulary: a larger one has more to win than less noise.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_run_directory::metrics::CommonestPrediction;

    /// A model of 16 % on 1,000 words with a standard error of 1 point, whose commonest prediction has a fifth of all.
    fn metrics() -> Metrics {
        Metrics {
            commonest_prediction: Some(CommonestPrediction { id: 3, share: 0.2 }),
            top1_standard_error: Some(0.01),
            targets: 1000,
            out_of_vocabulary: 150,
            ..crate::tests::metrics(0.16)
        }
    }

    /// The sentence with the commonest word at 5 %, the start at 10 % and the run without privacy at 18 %.
    fn said(metrics: &Metrics, change: impl Fn(&mut Found<'_, fn() -> Option<String>>)) -> String {
        let mut found = Found {
            metrics,
            word: (|| Some("let".to_owned())) as fn() -> Option<String>,
            private: true,
            commonest_word: Some(0.05),
            start: Some(0.10),
            without_privacy: Some(0.18),
        };
        change(&mut found);
        verdict(&found).unwrap_or_default()
    }

    #[test]
    fn a_good_model_has_no_sentence_and_neither_has_one_without_errors() {
        assert_eq!(said(&metrics(), |_| {}), "");
        let mut old = metrics();
        (old.top1, old.top1_standard_error, old.commonest_prediction) = (0.05, None, None);
        assert_eq!(said(&old, |_| {}), "");
    }

    #[test]
    fn a_model_of_one_word_is_named_with_its_word() {
        let mut one = metrics();
        let mut share = |share| {
            one.commonest_prediction = Some(CommonestPrediction { id: 3, share });
            one.clone()
        };
        let (most, all) = (share(0.9), share(0.97));
        assert_eq!(said(&most, |_| {}), "");
        let expected = "The model says `let` in 97 % of the places: it learnt one word only, and needs more rounds or less noise.";
        assert_eq!(said(&all, |_| {}), expected);
        let open = said(&all, |found| {
            (found.word, found.private) = (|| None, false);
        });
        let expected =
            "The model says one word in 97 % of the places: it learnt one word only, and needs more rounds.";
        assert_eq!(open, expected);
    }

    #[test]
    fn an_accuracy_within_two_standard_errors_is_named() {
        let near = |commonest, start| {
            said(&metrics(), |found| {
                (found.commonest_word, found.start) = (commonest, start);
            })
        };
        let words = "The accuracy is less than two standard errors above that of the commonest word, so nothing beyond it is shown.";
        assert_eq!(near(Some(0.141), None), words);
        assert_eq!(near(Some(0.2), Some(0.2)), words);
        let words = "The accuracy is less than two standard errors above that of the start, so this training is not shown to help.";
        assert_eq!(near(Some(0.05), Some(0.141)), words);
        assert_eq!(near(Some(0.05), Some(0.139)), "");
    }

    #[test]
    fn a_small_part_of_the_gain_without_privacy_is_named() {
        let of = |ceiling, start| {
            said(&metrics(), |found| {
                (found.without_privacy, found.start) = (Some(ceiling), start);
            })
        };
        // From 10 % the run gained 6 points.
        let words = "The training reached 40 % of its gain without privacy: more users or a larger epsilon would help most.";
        assert_eq!(of(0.25, Some(0.10)), words);
        assert_eq!(of(0.21, Some(0.10)), "");
        // From the commonest word it gained 11.
        assert_eq!(of(0.25, None), "");
        assert!(of(0.30, None).contains("reached 44 %"));
    }

    #[test]
    fn many_words_outside_the_vocabulary_are_named() {
        let mut small = metrics();
        small.out_of_vocabulary = 200;
        assert_eq!(said(&small, |_| {}), "");
        small.out_of_vocabulary = 240;
        let words =
            "24 % of the words are outside the vocabulary: a larger one has more to win than less noise.";
        assert_eq!(said(&small, |_| {}), words);
    }
}
