//! Likelihoods of texts and of candidates under the initial model of a run.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use undertone_run_directory::config::RunConfig;

use undertone_data::{Vocab, VocabProvenance};
use undertone_run::RunFile;
use undertone_run::likelihood::Likelihood;

const RUN: &str = r#"
name = "tiny"
seed = 3
rounds = 1
data = { source = { kind = "synthetic", users = 30, words = 9 } }
model = { family = "dplm", embed = 5, hidden = 7 }
cohort = { sampling = "poisson", users_per_round = 3 }
user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 1.0 }
"#;

fn tiny() -> Likelihood {
    let config = RunConfig::parse(RUN, "tiny.toml".as_ref(), &[]).unwrap();
    Likelihood::initial(&RunFile::new(config, "."), &vocab(9)).unwrap()
}

fn vocab(words: usize) -> Vocab {
    let words = (0..words).map(|word| format!("w{word}").into()).collect();
    Vocab::new(words, VocabProvenance::File)
}

/// The probabilities of all continuations of a text add up to one. Examples of different lengths have the likelihoods that they have
/// alone, in any order.
#[test]
fn likelihoods_are_probabilities() {
    let tiny = tiny();
    let after: Vec<Vec<u32>> = (0..12).map(|word| vec![4, 6, word]).collect();
    let examples: Vec<&[u32]> = after.iter().map(Vec::as_slice).collect();
    let found = tiny.of_examples(&examples).unwrap();
    let total: f64 = found.iter().map(|tokens| tokens[2].exp()).sum();
    assert!((total - 1.0).abs() < 1e-5, "{total}");
    let mixed: Vec<&[u32]> = vec![&[5][..], &[4, 6, 7], &[3, 3], &[8, 4, 3, 2]];
    let together = tiny.of_examples(&mixed).unwrap();
    for (example, tokens) in mixed.iter().zip(&together) {
        let alone = tiny.of_examples(&[*example]).unwrap();
        assert_eq!((alone[0].len(), tokens.len()), (example.len(), example.len()));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
        assert!(alone[0].iter().zip(tokens).all(near), "{alone:?} {tokens:?}");
    }
}

/// Each candidate has the likelihood of its text after the prefix, at its place in the order, at any number of threads.
#[test]
fn candidates_are_scored_as_their_texts() {
    let tiny = tiny();
    let places = [vec![3, 5, 8], vec![4, 9], vec![10, 3, 6, 7, 11, 5, 4]];
    let prefix = [6, 7];
    let scores = tiny.of_candidates(&prefix, &places, 1).unwrap();
    assert_eq!(scores.len(), 3 * 2 * 7);
    assert_eq!(scores, tiny.of_candidates(&prefix, &places, 3).unwrap());
    for (index, &score) in scores.iter().enumerate() {
        let text = [
            6,
            7,
            places[0][index / 14],
            places[1][index / 7 % 2],
            places[2][index % 7],
        ];
        let tokens = tiny.of_examples(&[&text]).unwrap();
        let expected: f64 = tokens[0][2..].iter().sum();
        assert!(
            (score - expected).abs() < 1e-5,
            "{text:?}: {score}, expected {expected}"
        );
    }
}

#[test]
fn unusable_candidates_and_references_are_refused_by_name() {
    let tiny = tiny();
    for places in [&[][..], &[vec![3], vec![]], &[vec![3; 5000], vec![3; 5000]]] {
        let error = tiny.of_candidates(&[6], places, 1).unwrap_err().to_string();
        assert!(
            error.contains("`candidates`: expected at least one word per place"),
            "{error}"
        );
    }
    let config = RunConfig::parse(RUN, "tiny.toml".as_ref(), &[]).unwrap();
    let missing = Path::new("nowhere/model.safetensors");
    let error = Likelihood::of_file(&config.task.model, missing, &vocab(9))
        .unwrap_err()
        .to_string();
    assert!(error.contains("nowhere"), "{error}");
}
