use std::fs;

use tempfile::TempDir;

use super::minhash::jaccard;
use super::*;
use crate::progress::NoProgress;
use crate::random::Stream;

fn source(folder: &TempDir, name: &str, url: Option<&str>) -> DedupSource {
    DedupSource {
        path: folder.path().join(name).display().to_string(),
        text: "text".to_owned(),
        url: url.map(str::to_owned),
    }
}

/// A text of random words, and one in which some are replaced.
fn text_and_variant(stream: &mut Stream, replaced: usize) -> [String; 2] {
    let word = |stream: &mut Stream| format!("w{}", stream.below(5000));
    let words: Vec<String> = (0..60).map(|_| word(stream)).collect();
    let mut variant = words.clone();
    for _ in 0..replaced {
        let place = stream.below(60);
        variant[place] = word(stream);
    }
    [words.join(" "), variant.join(" ")]
}

#[test]
fn grams_and_similarities_match_those_by_hand() {
    assert_eq!(shingles("A b, c d e f!").len(), 2);
    assert_eq!(shingles("a b c d e"), shingles("A  B c (d) e."));
    assert_ne!(shingles("a b c d e"), shingles("e d c b a"));
    assert_eq!(shingles("a b").len(), 1);
    assert_ne!(shingles("a b"), shingles("a b c"));
    assert!(shingles(" ... ").is_empty());
    // Seven words have three grams; the two that the last word is not in are common: 2 of 4.
    assert!((jaccard(&shingles("a b c d e f g"), &shingles("a b c d e f h")) - 0.5).abs() < 1e-12);
    assert!(jaccard(&[], &[]) == 0.0);
}

#[test]
#[ignore = "slow"]
fn what_is_removed_is_what_brute_force_finds() {
    let folder = TempDir::new().unwrap();
    let mut stream = Stream::new("dedup", 1, 0);
    let pairs: Vec<[String; 2]> = (0..400).map(|i| text_and_variant(&mut stream, i % 6)).collect();
    let json = |text: &String| serde_json::json!({ "text": text, "n": text.len() }).to_string() + "\n";
    let private: String = pairs.iter().map(|[text, _]| json(text)).collect();
    let public: String = pairs.iter().map(|[_, variant]| json(variant)).collect();
    fs::write(folder.path().join("private.jsonl"), private).unwrap();
    fs::write(folder.path().join("public.jsonl"), &public).unwrap();
    let sets = |side: usize| -> Vec<Vec<u64>> { pairs.iter().map(|pair| shingles(&pair[side])).collect() };
    let (private_sets, public_sets) = (sets(0), sets(1));
    for threshold in [0.5, 0.8, 1.0] {
        let similar = |set: &Vec<u64>| private_sets.iter().any(|other| jaccard(set, other) >= threshold);
        let expected: String = public
            .split_inclusive('\n')
            .zip(&public_sets)
            .filter(|(_, set)| !similar(set))
            .map(|(line, _)| line)
            .collect();
        let output = folder.path().join("out.jsonl");
        // Bands of 2 miss a similarity of 0.5 with probability (1 - 0.25)^128, below 1e-15.
        let options = DedupOptions {
            threshold,
            bands: 128,
            rows_per_band: 2,
            overwrite: true,
            ..DedupOptions::default()
        };
        let (from, against) = (
            source(&folder, "public.jsonl", None),
            source(&folder, "private.jsonl", None),
        );
        let summary = dedup(&from, &against, &output, &options, &NoProgress).unwrap();
        assert!(
            fs::read_to_string(&output).unwrap() == expected,
            "threshold {threshold}"
        );
        assert_eq!(summary.kept, expected.lines().count() as u64);
        assert_eq!(
            (summary.rows, summary.private_rows, summary.passes),
            (400, 400, 1)
        );
    }
}

#[test]
fn misses_are_as_rare_as_the_formula_says() {
    let options = DedupOptions {
        bands: 4,
        rows_per_band: 3,
        ..DedupOptions::default()
    };
    let minhash = MinHash::new(options.bands, options.rows_per_band);
    let mut stream = Stream::new("misses", 1, 0);
    let (mut expected, mut variance, mut missed) = (0.0, 0.0, 0.0);
    for i in 0..4000 {
        let [text, variant] = text_and_variant(&mut stream, 1 + i % 6);
        let (one, other) = (shingles(&text), shingles(&variant));
        let miss = options.miss_probability(jaccard(&one, &other));
        let agree = minhash
            .bands(&one)
            .iter()
            .zip(minhash.bands(&other))
            .any(|(a, b)| *a == b);
        expected += miss;
        variance += miss * (1.0 - miss);
        missed += f64::from(u8::from(!agree));
    }
    // Six standard deviations: a false alarm of 2e-9 (and the seed is fixed).
    let sigma = f64::sqrt(variance);
    assert!(expected > 200.0, "{expected}");
    assert!(
        (missed - expected).abs() < 6.0 * sigma,
        "{missed} of {expected} +- {sigma}"
    );
}

#[test]
fn parts_of_the_private_corpus_find_what_the_whole_finds() {
    let mut stream = Stream::new("parts", 1, 0);
    let pairs: Vec<[String; 2]> = (0..100).map(|i| text_and_variant(&mut stream, i % 4)).collect();
    let minhash = MinHash::new(32, 6);
    let holds = |blocks: &[PrivateBlock], text: &str| {
        let set = shingles(text);
        blocks
            .iter()
            .any(|block| block.holds_similar(&set, &minhash.bands(&set), 0.8))
    };
    let blocks = |size: usize| -> Vec<PrivateBlock> {
        pairs
            .chunks(size)
            .map(|chunk| {
                let mut block = PrivateBlock::default();
                // A copy is kept once and found as well.
                for [text, _] in chunk.iter().chain(chunk) {
                    let set = shingles(text);
                    block.push(&set, &minhash.bands(&set));
                }
                block.seal();
                block
            })
            .collect()
    };
    let (whole, parts) = (blocks(100), blocks(7));
    for [text, variant] in &pairs {
        assert!(holds(&whole, text) && holds(&parts, text));
        assert_eq!(holds(&whole, variant), holds(&parts, variant));
    }
}

#[test]
fn every_format_keeps_its_rows_and_urls_count() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "private.csv",
        "text,link\nthe secret text that somebody wrote,https://a.test/1\n",
    );
    write(
        "public.csv",
        "link,text\nhttp://b.test/2,\"The secret text, that somebody wrote!\"\nhttps://www.a.test/1/,\"other, text\"\n\
         http://c.test/,third text\nhttp://d.c.test/,fourth \"\"text\n",
    );
    let options = DedupOptions {
        hosts: vec!["C.test".to_owned()],
        overwrite: true,
        ..DedupOptions::default()
    };
    let output = folder.path().join("out");
    let run = |public: DedupSource, private: DedupSource, options: &DedupOptions| {
        dedup(&public, &private, &output, options, &NoProgress)
    };
    let (public, private) = (
        source(&folder, "public.csv", Some("link")),
        source(&folder, "private.csv", Some("link")),
    );
    let summary = run(public.clone(), private.clone(), &options).unwrap();
    assert_eq!((summary.near_duplicates, summary.by_url, summary.kept), (1, 3, 0));
    let fewer = DedupOptions {
        hosts: Vec::new(),
        ..options.clone()
    };
    let summary = run(public.clone(), private.clone(), &fewer).unwrap();
    assert_eq!((summary.near_duplicates, summary.by_url, summary.kept), (1, 1, 2));
    let written = fs::read_to_string(&output).unwrap();
    assert!(
        written.starts_with("link,text\nhttp://c.test/,third text\n"),
        "{written}"
    );

    write(
        "public.txt",
        "one line\n\nThe secret text that somebody wrote\nlast",
    );
    let plain = DedupSource {
        url: None,
        ..private.clone()
    };
    let summary = run(source(&folder, "public.txt", None), plain.clone(), &fewer).unwrap();
    assert_eq!((summary.rows, summary.kept), (4, 3));
    assert_eq!(fs::read_to_string(&output).unwrap(), "one line\n\nlast");

    let error = |public: DedupSource, private: DedupSource, options: &DedupOptions| {
        run(public, private, options).unwrap_err().to_string()
    };
    let bad = DedupOptions {
        threshold: f64::NAN,
        ..options.clone()
    };
    assert!(
        error(public.clone(), private.clone(), &bad)
            .contains("threshold: expected a number in (0, 1], got NaN")
    );
    let bad = DedupOptions {
        overwrite: false,
        ..fewer.clone()
    };
    assert!(error(public.clone(), private.clone(), &bad).contains("exists"));
    let none = source(&folder, "public.csv", None);
    assert!(
        error(none, private, &options)
            .contains("url is missing: expected the name of the URL column of the public corpus")
    );
    assert!(error(public, plain, &fewer).contains("URLs to remove"));
}
