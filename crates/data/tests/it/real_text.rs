//! Checks on real text, where `UNDERTONE_DATA` names a directory that holds it; without it they check nothing.

use std::path::PathBuf;

use tempfile::TempDir;
use undertone_data::{Corpus, NoProgress, Split, WordCounts, WordRule};
use undertone_settings::CorpusSpec;

fn data() -> Option<PathBuf> {
    std::env::var_os("UNDERTONE_DATA").map(PathBuf::from)
}

#[test]
fn the_small_commit_corpus_has_its_known_counts() {
    if data().is_none() {
        return;
    }
    let spec: CorpusSpec = toml::from_str(
        r#"
        source = { kind = "parquet", path = "$UNDERTONE_DATA/commits-small.parquet", time = "timestamp", split = "split" }
        vocabulary = { kind = "file", path = "$UNDERTONE_DATA/vocab-public-10k.txt" }
        "#,
    )
    .unwrap();
    let directory = TempDir::new().unwrap();
    let corpus = Corpus::open(&spec, directory.path(), directory.path(), &NoProgress).unwrap();
    let stats = corpus.stats();
    assert_eq!((stats.rows, stats.users), (21_526, 1500));
    assert_eq!(stats.vocabulary_words, 10_000);
    for split in Split::ALL {
        let partition = corpus.partition(split);
        assert!(partition.num_users() > 0);
        assert!(partition.users().all(|user| user.num_examples() > 0));
        let long = partition
            .users()
            .flat_map(|user| user.examples())
            .filter(|example| example.len() > 21)
            .count();
        assert_eq!(long, 0);
    }
    let unigram = stats.validation.unigram_without_eos.unwrap();
    assert!((0.03..0.08).contains(&unigram), "{unigram}");
}

#[test]
#[ignore = "slow"]
fn public_vocabulary_is_the_published_one() {
    let Some(data) = data() else { return };
    let directory = TempDir::new().unwrap();
    let counts = WordCounts::of_public_corpus(
        "$UNDERTONE_DATA/public-docs.parquet",
        "text",
        directory.path(),
        WordRule::English,
        &NoProgress,
    );
    let counts = counts.unwrap();
    // The published list leaves out the placeholder that stands for people's names.
    let ours: Vec<(&str, u64)> = counts.iter().filter(|(word, _)| *word != "someone").collect();
    let published = std::fs::read_to_string(data.join("vocab-public-10k.txt")).unwrap();
    let mut position = 0;
    let count_of = |word: &str| {
        ours.iter()
            .find(|(other, _)| *other == word)
            .map_or(0, |(_, count)| *count)
    };
    let mut last = u64::MAX;
    for word in published.lines().step_by(20) {
        // Words of equal count may stand in any order.
        let count = count_of(word);
        assert!(count > 0 && count <= last, "{word}");
        assert_eq!(count, ours[position].1, "{word}");
        last = count;
        position += 20;
    }
}
