//! The selection as a whole: its noise, its threshold, its words and its record.

use std::path::Path;
use undertone_settings::CorpusSpec;

use undertone_mechanisms::KeyOrigin;
use undertone_vocabulary::{private_record_of, threshold};

use super::*;
use crate::progress::NoProgress;

fn delta(value: f64) -> Delta {
    Delta::new(value).unwrap()
}

fn settings(size: usize, noise_multiplier: f64, threshold_delta: f64) -> PrivateSelection {
    let noise_multiplier = NoiseMultiplier::new(noise_multiplier).unwrap();
    PrivateSelection::new(size, noise_multiplier, delta(threshold_delta)).unwrap()
}

/// Sums as they would come from text, in grid steps.
fn votes(sums: &[i64], max_words_per_user: u32) -> WordVotes {
    let words = (0..).zip(sums).map(|(i, &votes)| Candidate {
        word: format!("w{i:06}").into(),
        votes,
        count: 1,
    });
    WordVotes {
        words: words.collect(),
        total: sums.len() as u64,
        largest_counts: vec![1; sums.len()],
        users: 1,
        max_words_per_user,
    }
}

fn synthetic(max_words_per_user: u32) -> WordVotes {
    let spec: CorpusSpec = toml::from_str("source = { kind = \"synthetic\", users = 2000 }").unwrap();
    WordVotes::of_training_data(&spec, max_words_per_user, Path::new(""), &NoProgress).unwrap()
}

#[test]
fn noise_has_the_stated_standard_deviation() {
    let (n, z) = (40_000, 2.5);
    let votes = votes(&vec![1000 * UNIT as i64; n], 1);
    let key = NoiseKey::from_insecure_seed(3);
    let noisy = votes
        .noisy(
            &WordChoice::sampler(NoiseMultiplier::new(z).unwrap()).unwrap(),
            &key,
        )
        .unwrap();
    let scaled = noisy.iter().map(|&sum| (sum as f64 / UNIT as f64 - 1000.0) / z);
    let (sum, squares) = scaled.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    // Standard errors 0.005 and 0.0071; six of each is a false alarm of 4e-9 (and the seed is fixed).
    assert!((sum / n as f64).abs() < 0.03, "{sum}");
    assert!((squares / n as f64 - 1.0).abs() < 0.0425, "{squares}");
}

#[test]
#[ignore = "slow"]
fn words_of_one_user_alone_show_as_rarely_as_computed() {
    let tries = 4000;
    for (words, z, threshold_delta) in [(1_u32, 0.4, 0.02), (8, 2.0, 0.05), (40, 5.0, 0.3)] {
        let settings = settings(100, z, threshold_delta);
        let choice = WordChoice::new(words, settings.noise_multiplier, settings.threshold_delta).unwrap();
        let own = votes(&vec![threshold::weight(words); words as usize], words);
        let shown = (0..tries)
            .filter(|&seed| own.select(&settings, &NoiseKey::from_insecure_seed(seed)).is_ok())
            .count() as f64;
        let steps = z * UNIT as f64;
        let exact = threshold::delta(steps, words, choice.threshold());
        assert!(exact <= threshold_delta);
        // Six standard deviations of a binomial, on both sides, three times: a false alarm of 6e-9 (and the seeds are fixed).
        let margin = 6.0 * (tries as f64 * exact * (1.0 - exact)).sqrt();
        let expected = tries as f64 * exact;
        assert!(
            (shown - expected).abs() <= margin,
            "{words}: {shown} of {expected}"
        );
    }
}

#[test]
fn the_guarantee_is_the_gaussian_one_with_the_threshold_on_top() {
    let (epsilon, all) = (Epsilon::new(1.5).unwrap(), delta(1e-7));
    let threshold = delta(4e-8);
    let settings = PrivateSelection::calibrated(10, (epsilon, all), threshold).unwrap();
    let of = |adjacency| settings.guarantee(adjacency, all).unwrap();
    let guarantee = of(Adjacency::AddOrRemoveOne);
    assert_eq!(guarantee.delta, all);
    let exact = gaussian::epsilon(settings.noise_multiplier(), delta(6e-8))
        .unwrap()
        .get();
    assert!(guarantee.epsilon <= epsilon);
    assert!(
        (guarantee.epsilon.get() - exact).abs() < 1e-6,
        "{guarantee} {exact}"
    );
    assert!((exact - 1.5).abs() < 1e-6, "{exact}");
    assert_eq!(of(Adjacency::ZeroOut).epsilon, guarantee.epsilon);
    let half = NoiseMultiplier::new(0.5 * settings.noise_multiplier().get()).unwrap();
    let replaced = gaussian::epsilon(half, delta(6e-8)).unwrap().get();
    assert!((of(Adjacency::ReplaceOne).epsilon.get() - replaced).abs() < 1e-6);
}

#[test]
fn words_are_ranked_cut_and_the_same_again_under_one_key() {
    let unit = UNIT as i64;
    let votes = votes(&[50 * unit, 900 * unit, 0, 400 * unit, 200 * unit, unit], 20);
    let key = NoiseKey::from_insecure_seed(1);
    let selected = votes.select(&settings(3, 1.0, 1e-9), &key).unwrap();
    let words: Vec<&str> = selected.vocab().words().collect();
    assert_eq!(words, ["w000001", "w000003", "w000004"]);
    assert_eq!(selected.coverage(), 0.5);
    assert_eq!(selected.vocab().provenance(), VocabProvenance::Private);
    assert!(!selected.vocab().provenance().is_private_safe());
    let again = votes.select(&settings(3, 1.0, 1e-9), &key).unwrap();
    assert_eq!(again.record(), selected.record());
    // Enough noise changes the order.
    let order = |seed| {
        let selected = votes
            .select(&settings(9, 500.0, 0.5), &NoiseKey::from_insecure_seed(seed))
            .ok()?;
        Some(selected.vocab().to_file_contents())
    };
    assert_eq!(order(5), order(5));
    assert!((0..20).any(|seed| order(seed) != order(seed + 1)));
}

#[test]
fn the_synthetic_vocabulary_is_covered() {
    let votes = synthetic(200);
    let (epsilon, all) = (Epsilon::new(2.0).unwrap(), delta(1e-6));
    let settings = PrivateSelection::calibrated(1000, (epsilon, all), delta(5e-7)).unwrap();
    let selected = votes.select(&settings, &NoiseKey::from_insecure_seed(1)).unwrap();
    let words = selected.vocab().words().len();
    let (private, best) = (selected.coverage(), votes.coverage_of_most_frequent(words));
    assert!(
        private <= best && private > best - 0.02,
        "{words}: {private} of {best}"
    );
    assert!(private > 0.5, "{private}");
}

#[test]
fn bad_settings_are_refused_by_name() {
    let check = |result: Result<PrivateSelection>, expected: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    let z = |value| NoiseMultiplier::new(value).unwrap();
    check(
        PrivateSelection::new(0, z(1.0), delta(0.1)),
        "size: expected at least 1, got 0",
    );
    check(
        PrivateSelection::new(1, z(1e6), delta(0.1)),
        "noise_multiplier: expected between 2^-30 and 2^18, got 1000000",
    );
    check(PrivateSelection::new(1, z(1e-10), delta(0.1)), "noise_multiplier");
    let epsilon = Epsilon::new(1.0).unwrap();
    check(
        PrivateSelection::calibrated(1, (epsilon, delta(1e-6)), delta(1e-6)),
        "delta: expected more than the threshold's own, 1e-6",
    );
    check(
        PrivateSelection::calibrated(1, (Epsilon::new(0.0).unwrap(), delta(1e-12)), delta(5e-13)),
        "noise_multiplier",
    );
}

#[test]
fn records_are_read_again_and_tampering_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.txt");
    let key = NoiseKey::from_insecure_seed(2);
    let selected = synthetic(50).select(&settings(100, 4.0, 1e-7), &key).unwrap();
    selected.write(&path, false).unwrap();
    assert!(selected.write(&path, false).is_err());
    selected.write(&path, true).unwrap();
    let record = private_record_of(&path).unwrap();
    assert_eq!(&record, selected.record());
    assert!(record.matches(&crate::vocabulary::read_words(&path).unwrap()));
    assert_eq!(record.key(), KeyOrigin::InsecureSeed);
    assert!(record.sampler_distance().unwrap().total_variation() < 1e-18);

    let file = record_path(&path);
    let text = std::fs::read_to_string(&file).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let check = |key: &str, value: serde_json::Value, expected: &str| {
        let mut json = json.clone();
        json[key] = value;
        std::fs::write(&file, json.to_string()).unwrap();
        let message = private_record_of(&path).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check("version", 2.into(), "version: expected 1, got 2");
    check("threshold", 0.0.into(), "threshold: expected one that");
    std::fs::write(&file, &text[..40]).unwrap();
    assert!(private_record_of(&path).is_err());
}
