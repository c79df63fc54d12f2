//! Drafts and threads change the speed of a text alone.

use undertone_models::SequenceModel;

use super::*;

const PLAIN: Means = Means {
    threads: 1,
    drafts: false,
};

fn transformers() -> Vec<LanguageModel> {
    let families = [
        // A context that every text outgrows, and longer ones; one layer of keys for two of queries; gates; rotary positions.
        r#"{"family":"transformer","layers":2,"width":8,"heads":2,"context":6}"#,
        r#"{"family":"transformer","layers":2,"width":60,"heads":5,"context":64}"#,
        r#"{"family":"transformer","layers":1,"width":12,"heads":2,"context":30,"positions":"rotary","feed_forward":3}"#,
        r#"{"family":"llama","layers":2,"width":16,"heads":4,"key_heads":2,"inner":20,"context":24}"#,
    ];
    let mut models: Vec<LanguageModel> = families.into_iter().map(model).collect();
    // Adapters on the second of them.
    let base = model(families[1]);
    let mut spec: serde_json::Value = serde_json::from_str(families[1]).unwrap();
    spec["lora"] = serde_json::json!({ "rank": 2, "alpha": 3.0 });
    let spec: ModelSpec = serde_json::from_value(spec).unwrap();
    let file = base.model.write_params(&base.parameters, "a test").unwrap();
    let adapted: Box<dyn SequenceModel> = spec.load(base.vocab.len(), &file).unwrap().model;
    // Both factors differ from zero.
    let parameters = (0..adapted.layout().len())
        .map(|place| (place as f32).sin() / 3.0)
        .collect();
    models.push(LanguageModel {
        model: adapted,
        parameters,
        ..base
    });
    models
}

/// Texts with everything that is watched, and the number of tokens that drafts gave.
fn texts(model: &LanguageModel, prefixes: &[&str], options: &GenerateOptions) -> (String, usize) {
    let prefixes: Vec<String> = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
    let mut watched = vec![Vec::new(); prefixes.len() * options.samples];
    let texts = generate(model, &prefixes, options, &mut |number, text| {
        watched[number].push(text.to_owned());
    });
    let mut texts = match texts {
        Ok(texts) => texts,
        Err(error) => return (error.to_string(), 0),
    };
    let drafted = texts
        .iter_mut()
        .map(|text| std::mem::take(&mut text.drafted))
        .sum();
    (format!("{texts:?} {watched:?}"), drafted)
}

#[test]
#[ignore = "slow"]
fn drafts_and_threads_change_no_text() {
    let options = |temperature: f64, top_k: Option<usize>, top_p: f64| GenerateOptions {
        temperature,
        top_k,
        top_p,
        tokens: 40,
        samples: 3,
        seed: 4,
        ..GenerateOptions::default()
    };
    let endless = GenerateOptions {
        ignore_end: true,
        samples: 1,
        ..options(1.0, None, 1.0)
    };
    let stops = GenerateOptions {
        stop: vec!["sat on".to_owned(), "cat".to_owned()],
        ..endless.clone()
    };
    let cases = [
        options(0.0, None, 1.0),
        options(1.0, None, 1.0),
        options(0.6, Some(4), 1.0),
        options(1.0, None, 0.8),
        options(1.3, Some(6), 0.9),
        GenerateOptions {
            samples: 17,
            tokens: 5,
            ..options(1.0, None, 1.0)
        },
        GenerateOptions {
            tokens: 1,
            ..endless.clone()
        },
        endless,
        stops,
    ];
    for (number, model) in transformers().into_iter().enumerate() {
        let mut model = model.with_means(PLAIN);
        for options in &cases {
            let prefixes = ["the cat", ""];
            model = model.with_means(PLAIN);
            let (expected, none) = texts(&model, &prefixes, options);
            assert_eq!(none, 0);
            let mut drafted = [0, 0];
            for threads in [1, 2] {
                let means = Means {
                    threads,
                    drafts: true,
                };
                model = model.with_means(means);
                let (found, count) = texts(&model, &prefixes, options);
                assert_eq!(found, expected, "model {number}, {options:?}, {means:?}");
                drafted[threads - 1] = count;
            }
            assert_eq!(drafted[0], drafted[1]);
            let room = options.samples == 1 && options.tokens > 20 && options.stop.is_empty();
            assert!(!room || drafted[0] > 20, "drafts were right: {drafted:?}");
        }
    }
}

/// A token whose keys and values are not numbers spoils a pass that it was drafted for. It may end a text only where the text has it.
#[test]
#[ignore = "slow"]
fn drafts_of_a_token_without_finite_values_spoil_no_text() {
    let family = r#"{"family":"llama","layers":1,"width":12,"heads":2,"inner":8,"context":40}"#;
    let mut model = model(family);
    let id = model.vocab.id("mat").unwrap() as usize;
    model.parameters[id * 12] = f32::NAN;
    let mut ends = [0, 0];
    for seed in 0..40 {
        let options = GenerateOptions {
            tokens: 8,
            seed,
            ..GenerateOptions::default()
        };
        model = model.with_means(PLAIN);
        let (expected, _) = texts(&model, &["the"], &options);
        ends[usize::from(expected.contains("Generated"))] += 1;
        model = model.with_means(Means {
            threads: 2,
            drafts: true,
        });
        assert_eq!(texts(&model, &["the"], &options).0, expected, "seed {seed}");
    }
    assert!(
        ends.iter().all(|&count| count > 3),
        "texts with and without the token: {ends:?}"
    );
}

#[test]
fn small_models_use_one_thread_without_drafts_and_large_ones_all() {
    let of = |parameters: usize| Means::of(parameters);
    assert_eq!(of(0), PLAIN);
    assert_eq!(of((2 << 20) - 1), PLAIN);
    let all = rayon::current_num_threads();
    assert_eq!(of(2 << 20).threads, all.min(2));
    assert_eq!(
        of(124 << 20),
        Means {
            threads: all.min(124),
            drafts: true
        }
    );
}

#[test]
fn threads_change_no_prediction() {
    for mut model in transformers() {
        let mut predictions = Vec::new();
        for threads in [1, 2, 3] {
            model = model.with_means(Means {
                threads,
                drafts: true,
            });
            let mut predictor = Predictor::new(&model).unwrap();
            predictions
                .push(["", "the", "the cat", "to"].map(|text| predictor.next_words(text, "", 9).unwrap()));
        }
        assert_eq!(predictions[0], predictions[1]);
        assert_eq!(predictions[0], predictions[2]);
    }
}
