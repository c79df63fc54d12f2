mod drafts;

use std::collections::HashMap;
use std::path::Path;

use undertone_data::{VocabProvenance, WordRule};
use undertone_models::ModelSpec;

use super::*;
use undertone_run_directory::initial_model::Description;

const WORDS: [&str; 9] = ["the", "to", "of", "then", "cat", "catch", "sat", "on", "mat"];

fn model(family: &str) -> LanguageModel {
    let words = WORDS.map(Box::from).to_vec();
    let vocab = Vocab::new(words, VocabProvenance::File);
    let spec: ModelSpec = serde_json::from_str(family).unwrap();
    let model = spec.build(vocab.len()).unwrap();
    // Larger than the initial ones, so that words differ in probability.
    let parameters = model.initial_params(5).iter().map(|value| 4.0 * value).collect();
    LanguageModel {
        source: ModelSource::Export,
        vocab,
        ends: Vec::new(),
        notes: Vec::new(),
        examples: Examples::Sentences,
        model,
        parameters,
        means: None,
    }
}

fn families() -> [LanguageModel; 2] {
    [
        model(r#"{"family":"stackoverflow","embed":8,"hidden":16}"#),
        model(r#"{"family":"transformer","layers":2,"width":8,"heads":2,"context":6}"#),
    ]
}

/// The probabilities of all ids after ids, from one pass over all of them.
fn probabilities(model: &LanguageModel, ids: &[u32]) -> Vec<f64> {
    let mut decoder = model.decoder(1, false).unwrap();
    let mut logits = model.logits(1);
    extend(decoder.as_mut(), 0, ids, ids.len(), &mut logits).unwrap();
    let exponentials: Vec<f64> = logits[..model.ids()]
        .iter()
        .map(|&logit| f64::from(logit).exp())
        .collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.iter().map(|value| value / sum).collect()
}

/// A folder with a model over Chinese words, whose header names a rule or none.
fn exported(rule: WordRule) -> LanguageModel {
    let folder = tempfile::tempdir().unwrap();
    let vocab =
        undertone_vocabulary::parse_words(Path::new("vocab.txt"), "今天\n天气\n好\nit's\n".as_bytes());
    let vocab = vocab.unwrap().with_rule(rule);
    let spec: ModelSpec = serde_json::from_str(r#"{"family":"dplm","embed":4,"hidden":5}"#).unwrap();
    let model = spec.build(vocab.len()).unwrap();
    let header = Description::new(&spec, 7, &vocab, Vec::new()).to_json().unwrap();
    let bytes = model.write_params(&model.initial_params(1), &header).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    std::fs::write(folder.path().join("vocab.txt"), vocab.to_file_contents()).unwrap();
    LanguageModel::open(folder.path()).unwrap()
}

#[test]
fn a_model_reads_text_by_the_rule_in_its_header() {
    let unicode = exported(WordRule::Unicode);
    assert_eq!(unicode.context("好。今天天气，It’s").unwrap(), [1, 3, 4, 6]);
    assert_eq!(unicode.text(&[3, 4, 6, 5]).unwrap(), "今天天气 it's 好");
    let english = exported(WordRule::English);
    assert_eq!(english.context("好。今天天气，It’s").unwrap(), [1, 0]);
    assert_eq!(english.text(&[3, 4]).unwrap(), "今天 天气");
    // A word that is begun is spelled as the words are.
    let mut predictor = Predictor::new(&unicode).unwrap();
    let words = predictor.next_words("今天", "It’", 9).unwrap();
    assert_eq!(words.iter().map(|each| &*each.word).collect::<Vec<_>>(), ["it's"]);
}

#[test]
fn next_words_are_the_likeliest_words_with_their_probabilities() {
    for model in families() {
        let mut predictor = Predictor::new(&model).unwrap();
        for (text, ids) in [
            ("", &[1][..]),
            ("the cat", &[1, 3, 7]),
            ("The CAT sat", &[1, 3, 7, 9]),
            ("One. the", &[1, 0, 3]),
        ] {
            let expected = probabilities(&model, ids);
            let words = predictor.next_words(text, "", 20).unwrap();
            assert_eq!(words.len(), WORDS.len(), "special ids are no words");
            assert!(words.is_sorted_by(|a, b| a.probability >= b.probability));
            for word in &words {
                let id = model.vocab.id(&word.word).unwrap();
                assert!(
                    (word.probability - expected[id as usize]).abs() < 1e-5,
                    "{text}: {word:?}"
                );
            }
            assert_eq!(predictor.next_words(text, "", 2).unwrap(), words[..2]);
            assert!(predictor.next_words(text, "", 0).unwrap().is_empty());
        }
    }
}

#[test]
fn words_that_have_begun_go_on_as_they_began() {
    for model in families() {
        let mut predictor = Predictor::new(&model).unwrap();
        let all = predictor.next_words("the ", "", 20).unwrap();
        for (begun, expected) in [
            ("cat", vec!["cat", "catch"]),
            ("T", vec!["the", "to", "then"]),
            ("x", vec![]),
        ] {
            let found = predictor.next_words("the ", begun, 20).unwrap();
            let filtered: Vec<_> = all
                .iter()
                .filter(|word| word.word.starts_with(&begun.to_lowercase()))
                .cloned()
                .collect();
            assert_eq!(found, filtered);
            assert_eq!(found.len(), expected.len());
            assert!(found.iter().all(|word| expected.contains(&&*word.word)));
        }
    }
}

/// A predictor that has read much predicts as a new one does, also where the text outgrows the context of the model.
#[test]
fn a_text_may_grow_shrink_and_change() {
    for model in families() {
        let mut predictor = Predictor::new(&model).unwrap();
        for text in [
            "the",
            "the cat",
            "the cat sat on",
            "the cat sat",
            "to",
            "to of",
            "",
        ] {
            let expected = Predictor::new(&model).unwrap().next_words(text, "", 9).unwrap();
            let found = predictor.next_words(text, "", 9).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.word, expected.word);
                assert!((found.probability - expected.probability).abs() < 1e-6, "{text}");
            }
        }
        let long = "the cat sat on ".repeat(9);
        assert_eq!(predictor.next_words(&long, "", 3).unwrap().len(), 3);
    }
}

fn generated(model: &LanguageModel, prefixes: &[&str], options: &GenerateOptions) -> Vec<Generated> {
    let prefixes: Vec<String> = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
    generate(model, &prefixes, options, &mut |_, _| ()).unwrap()
}

#[test]
fn without_temperature_the_likeliest_word_comes_each_time() {
    for model in families() {
        let options = GenerateOptions {
            temperature: 0.0,
            tokens: 4,
            ignore_end: true,
            ..GenerateOptions::default()
        };
        let text = &generated(&model, &["the"], &options)[0];
        assert_eq!((text.tokens, text.ended), (4, Ended::Length));
        let mut so_far = "the".to_owned();
        let mut predictor = Predictor::new(&model).unwrap();
        for word in text.text.split_whitespace() {
            assert_eq!(predictor.next_words(&so_far, "", 1).unwrap()[0].word, word);
            so_far = format!("{so_far} {word}");
        }
        assert_eq!(format!("the{}", text.text), so_far);
        for same in [
            GenerateOptions {
                temperature: 1.0,
                top_k: Some(1),
                ..options.clone()
            },
            GenerateOptions {
                temperature: 1.0,
                top_p: 1e-9,
                ..options.clone()
            },
        ] {
            assert_eq!(generated(&model, &["the"], &same)[0], *text);
        }
    }
}

#[test]
fn a_seed_gives_the_same_texts_alone_and_among_others() {
    for model in families() {
        let options = GenerateOptions {
            tokens: 12,
            samples: 20,
            seed: 9,
            ..GenerateOptions::default()
        };
        let all = generated(&model, &["the", "cat sat"], &options);
        assert_eq!(all.len(), 40);
        assert_eq!(all, generated(&model, &["the", "cat sat"], &options));
        assert!(all[..20].iter().all(|text| text.prefix == "the"));
        let few = generated(
            &model,
            &["the"],
            &GenerateOptions {
                samples: 3,
                ..options.clone()
            },
        );
        assert_eq!(few, all[..3]);
        let other = generated(
            &model,
            &["the", "cat sat"],
            &GenerateOptions { seed: 10, ..options },
        );
        assert_ne!(all, other);
    }
}

/// The first word of 4,000 samples against its probability, by a chi-squared test with 9 degrees of freedom at most. The limit is exceeded
/// with probability below 1e-6 per case.
#[test]
fn words_are_drawn_with_the_probabilities_of_the_model() {
    const SAMPLES: usize = 4_000;
    for model in families() {
        for (temperature, top_k) in [(1.0, None), (0.5, None), (1.0, Some(4))] {
            let options = GenerateOptions {
                tokens: 1,
                samples: SAMPLES,
                temperature,
                top_k,
                ..GenerateOptions::default()
            };
            let mut counts: HashMap<String, usize> = HashMap::new();
            for text in generated(&model, &["the"], &options) {
                assert_eq!(text.ended == Ended::End, text.text.is_empty());
                *counts.entry(text.text.trim().to_owned()).or_default() += 1;
            }
            let mut weights: Vec<(String, f64)> = probabilities(&model, &[1, 3])
                .iter()
                .enumerate()
                .filter(|(id, _)| model.special().is_candidate(*id as u32, true))
                .map(|(id, weight)| {
                    (
                        model.vocab.word(id as u32).replace("<eos>", ""),
                        weight.powf(1.0 / temperature),
                    )
                })
                .collect();
            weights.sort_by(|a, b| b.1.total_cmp(&a.1));
            weights.truncate(top_k.unwrap_or(weights.len()));
            let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
            let mut statistic = 0.0;
            for (word, weight) in &weights {
                let expected = SAMPLES as f64 * weight / sum;
                let got = counts.remove(word).unwrap_or(0) as f64;
                statistic += (got - expected).powi(2) / expected.max(1.0);
            }
            assert!(counts.is_empty(), "words that cannot come: {counts:?}");
            assert!(statistic < 51.0, "{statistic}");
        }
    }
}

#[test]
fn texts_end_where_they_should() {
    for model in families() {
        let options = GenerateOptions {
            tokens: 200,
            samples: 30,
            ..GenerateOptions::default()
        };
        let ended = generated(&model, &[""], &options);
        assert!(
            ended
                .iter()
                .any(|text| text.ended == Ended::End && text.tokens < 200)
        );
        let endless = GenerateOptions {
            ignore_end: true,
            samples: 2,
            tokens: 40,
            ..options.clone()
        };
        for text in generated(&model, &[""], &endless) {
            assert_eq!((text.tokens, text.ended), (40, Ended::Length));
            assert_eq!(text.text.split_whitespace().count(), 40);
        }
        let stops = GenerateOptions {
            stop: vec!["sat".to_owned(), "cat".to_owned()],
            ..endless
        };
        let stopped = generated(&model, &["the"], &GenerateOptions { samples: 30, ..stops });
        assert!(stopped.iter().any(|text| text.ended == Ended::Stop));
        assert!(
            stopped
                .iter()
                .all(|text| !text.text.contains("sat") && !text.text.contains("cat"))
        );
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let model = &families()[0];
    let good = GenerateOptions::default;
    for (options, words) in [
        (
            GenerateOptions { tokens: 0, ..good() },
            "`--tokens`: expected at least 1, got 0",
        ),
        (GenerateOptions { samples: 0, ..good() }, "`--samples`"),
        (
            GenerateOptions {
                samples: 1_000_000_000,
                ..good()
            },
            "`--samples`: expected so few that all prefixes together have at most 1,000,000, got 1000000000",
        ),
        (
            GenerateOptions {
                samples: usize::MAX,
                tokens: usize::MAX,
                ..good()
            },
            "`--samples`",
        ),
        (
            GenerateOptions {
                tokens: 1_000_000_000,
                ..good()
            },
            "`--tokens`: expected so few that all samples together have at most 100,000,000, got 1000000000",
        ),
        (
            GenerateOptions {
                temperature: -1.0,
                ..good()
            },
            "`--temperature`",
        ),
        (
            GenerateOptions {
                temperature: f64::NAN,
                ..good()
            },
            "`--temperature`",
        ),
        (
            GenerateOptions {
                top_k: Some(0),
                ..good()
            },
            "`--top-k`",
        ),
        (GenerateOptions { top_p: 0.0, ..good() }, "`--top-p`"),
        (GenerateOptions { top_p: 1.5, ..good() }, "got 1.5"),
        (
            GenerateOptions {
                stop: vec![String::new()],
                ..good()
            },
            "`--stop`",
        ),
    ] {
        let error = generate(model, &[String::new()], &options, &mut |_, _| ()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}
