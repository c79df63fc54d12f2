//! Corpora through the public interface: grouping, splits, caps, cache, determinism, the synthetic population.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use undertone_accounting::{Delta, NoiseMultiplier};
use undertone_data::{
    Corpus, EosTargets, NoProgress, Partition, PrivateSelection, SpecialIds, Split, VocabProvenance,
    WordVotes,
};
use undertone_mechanisms::NoiseKey;

use crate::support::{Folder, spec, texts};

const IDS: SpecialIds = SpecialIds::WORDS;

fn cache_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

const MIXED: &str = r#"{"who": "b", "text": "One two three. Two words!", "when": 20, "part": "train"}
{"who": 7, "text": "seven eight", "when": 5, "part": "train"}

{"who": "b", "text": "early words", "when": 10, "part": "train"}
{"who": "c", "text": "word", "when": 10, "part": "train"}
{"who": "d", "text": null, "when": 10, "part": "test"}
{"who": "b", "text": "held out", "when": 30, "part": "test"}
{"who": "e", "text": "two more words", "when": "1970-01-01", "part": "validation"}
"#;

const JSONL: &str = r#"
source = { kind = "jsonl", path = "mixed.jsonl", user = "who", time = "when", split = "part" }
vocabulary = { kind = "file", path = "vocab.txt" }
"#;

fn mixed() -> Folder {
    let folder = Folder::new();
    folder.write("mixed.jsonl", MIXED);
    folder.write("vocab.txt", "two\nwords\none\nseven\n");
    folder
}

#[test]
fn groups_by_user_and_orders_by_time() {
    let folder = mixed();
    let corpus = folder.open(JSONL);
    let expected = [
        vec!["<unk> words <eos>", "one two <unk> <eos>", "two words <eos>"],
        vec!["seven <unk> <eos>"],
    ];
    assert_eq!(texts(&corpus, Split::Train), expected);
    assert_eq!(texts(&corpus, Split::Test), [["<unk> <unk> <eos>"]]);
    assert_eq!(texts(&corpus, Split::Validation), [["two <unk> words <eos>"]]);

    let train = corpus.partition(Split::Train);
    assert_eq!(
        (train.num_users(), train.num_examples(), train.total_tokens()),
        (2, 4, 13)
    );
    assert_eq!(train.user(0).num_tokens(), 10);
    assert_eq!(train.user(0).example(2), [3, 4, IDS.eos]);
    assert_eq!(train.user(1).tokens(), [6, 0, IDS.eos]);

    let stats = corpus.stats();
    assert_eq!((stats.rows, stats.users, stats.users_without_text), (7, 5, 2));
    assert_eq!((stats.train.words, stats.train.unknown_words), (9, 3));
    assert_eq!(stats.train.examples_per_user.max, 3);
    assert_eq!(corpus.vocab().provenance(), VocabProvenance::File);
}

#[test]
fn unigram_counts_unknown_words_as_wrong() {
    let folder = mixed();
    let corpus = folder.open(JSONL);
    // Training targets: EOS 4, UNK 3, "two" 2, "words" 2, "one" 1, "seven" 1. Test targets: UNK, UNK, EOS.
    for (split, with_eos, without_eos) in [
        (Split::Train, 4.0 / 13.0, 2.0 / 9.0),
        (Split::Test, 1.0 / 3.0, 0.0),
    ] {
        let accuracy = |targets| corpus.unigram_accuracy(split, targets).unwrap();
        assert_eq!(accuracy(EosTargets::Included), with_eos, "{split}");
        assert_eq!(accuracy(EosTargets::Excluded), without_eos, "{split}");
    }
    assert_eq!(corpus.commonest_target(EosTargets::Included), Some(IDS.eos));
    let word = corpus.commonest_target(EosTargets::Excluded).unwrap();
    assert_eq!(corpus.vocab().word(word), "two");
}

#[test]
fn time_split_sends_later_rows_to_test() {
    let folder = mixed();
    let split = "split = { kind = \"time\", test_after = 15, validation_users = 0.0 }";
    let corpus = folder.open(&format!("{JSONL}{split}"));
    assert_eq!(
        texts(&corpus, Split::Train).concat(),
        ["<unk> words <eos>", "seven <unk> <eos>", "two <unk> words <eos>"]
    );
    assert_eq!(
        texts(&corpus, Split::Test),
        [["one two <unk> <eos>", "two words <eos>", "<unk> <unk> <eos>"]]
    );
    assert_eq!(corpus.partition(Split::Validation).num_users(), 0);
    assert_eq!(
        corpus.unigram_accuracy(Split::Validation, EosTargets::Included),
        None
    );
}

#[test]
fn csv_and_jsonl_give_the_same_corpus() {
    let folder = Folder::new();
    folder.write(
        "a.csv",
        "text;user_id\n\"Two words.\nOne two; three\";x\nseven two;y\n",
    );
    folder.write("a.jsonl",
        "{\"user_id\": \"x\", \"text\": \"Two words.\\nOne two; three\"}\n{\"text\": \"seven two\", \"user_id\": \"y\", \"more\": 1}\n",
    );
    folder.write("vocab.txt", "two\nwords\none\nseven\n");
    let rest = "vocabulary = { kind = \"file\", path = \"vocab.txt\" }\nsplit = { kind = \"held_out_users\", validation = 0.0, test = 0.0 }";
    let csv = folder.open(&format!(
        "source = {{ kind = \"csv\", path = \"a.csv\", delimiter = \";\" }}\n{rest}"
    ));
    let jsonl = folder.open(&format!(
        "source = {{ kind = \"jsonl\", path = \"a.jsonl\" }}\n{rest}"
    ));
    let expected = [
        vec!["two words <eos>", "one two <unk> <eos>"],
        vec!["seven two <eos>"],
    ];
    assert_eq!(texts(&csv, Split::Train), expected);
    assert_eq!(texts(&jsonl, Split::Train), expected);
    assert_ne!(csv.digest(), jsonl.digest());
}

/// The rows of a table in parts, one of them empty, are the table: in the order of the parts' names.
#[test]
fn a_folder_of_parts_is_one_table() {
    let folder = mixed();
    let whole = folder.open(JSONL);
    fs::create_dir_all(folder.path("parts/later")).unwrap();
    let rows: Vec<&str> = MIXED.split_inclusive('\n').collect();
    folder.write("parts/a-0.jsonl", rows[..2].concat());
    folder.write("parts/a-1.jsonl", "");
    folder.write("parts/later/0.jsonl", rows[2..].concat());
    folder.write("parts/_SUCCESS", "");
    let in_parts = JSONL.replace("mixed.jsonl", "parts");
    let parts = folder.open(&in_parts);
    for split in [Split::Train, Split::Validation, Split::Test] {
        assert_eq!(texts(&parts, split), texts(&whole, split));
    }
    assert_eq!(parts.stats().rows, whole.stats().rows);

    // Words are counted over the parts of a public corpus, each in the format of its name.
    fs::create_dir(folder.path("public")).unwrap();
    folder.write("public/a.txt", "two\ntwo words\n");
    folder.write("public/b.csv", "text\nseven\n");
    let public = JSONL.replace(
        "kind = \"file\", path = \"vocab.txt\"",
        "kind = \"public_corpus\", path = \"public\", size = 9",
    );
    let counted = folder.open(&public);
    let words: Vec<&str> = (3..counted.vocab().len() as u32)
        .map(|id| counted.vocab().word(id))
        .collect();
    assert_eq!(words, ["two", "seven", "words"]);
    fs::rename(folder.path("public/b.csv"), folder.path("public/b.txt")).unwrap();
    assert_ne!(folder.open(&public).digest(), counted.digest());

    // What counts is contents in their order.
    fs::rename(
        folder.path("parts/later/0.jsonl"),
        folder.path("parts/later/1.jsonl"),
    )
    .unwrap();
    assert_eq!(folder.open(&in_parts).digest(), parts.digest());
    folder.write("parts/z.jsonl", rows[1]);
    assert_ne!(folder.open(&in_parts).digest(), parts.digest());
}

/// A user is told by the number of sentences, which no vocabulary changes.
#[test]
fn held_out_users_stand_in_one_order_whatever_their_rows_and_the_words_are() {
    let folder = Folder::new();
    let part = |user: usize| ["train", "validation", "test"][user % 3];
    let row = |user: usize| {
        let text = "Good word. ".repeat(user + 1);
        let part = part(user);
        format!("{{\"user_id\": \"person {user}\", \"part\": \"{part}\", \"text\": \"{text}\"}}\n")
    };
    let rows: Vec<String> = (0..36).map(row).collect();
    folder.write("a.jsonl", rows.concat());
    folder.write("b.jsonl", rows.iter().rev().cloned().collect::<String>());
    folder.write("some.txt", "good\n");
    folder.write("more.txt", "other\nword\ngood\n");
    let sizes = |rows: &str, words: &str, split: Split| -> Vec<usize> {
        let corpus = folder.open(&format!(
            "source = {{ kind = \"jsonl\", path = \"{rows}\", split = \"part\" }}\n\
             vocabulary = {{ kind = \"file\", path = \"{words}\" }}\n"
        ));
        let users = corpus.partition(split);
        users.users().map(|user| user.num_examples()).collect()
    };
    for split in [Split::Validation, Split::Test] {
        let mut users: Vec<usize> = (0..36).filter(|&user| part(user) == split.name()).collect();
        users.sort_by_key(|user| Sha256::digest(format!("undertone evaluation 1\0person {user}")));
        let expected: Vec<usize> = users.into_iter().map(|user| user + 1).collect();
        assert!(!expected.is_sorted(), "{expected:?}");
        for (rows, words) in [
            ("a.jsonl", "some.txt"),
            ("b.jsonl", "some.txt"),
            ("a.jsonl", "more.txt"),
        ] {
            assert_eq!(sizes(rows, words, split), expected, "{rows} {words}");
        }
    }
    // Those of training stand in the order of their first rows.
    let train = sizes("a.jsonl", "some.txt", Split::Train);
    assert!(train.is_sorted() && train.len() == 12, "{train:?}");
    let back = sizes("b.jsonl", "some.txt", Split::Train);
    assert!(back.iter().rev().eq(&train), "{back:?}");
}

#[test]
fn caps_and_minima_shape_training_only() {
    let folder = Folder::new();
    let sentence = |number: usize| format!("word{number} again");
    let rows: Vec<String> = (0..10)
        .flat_map(|number| {
            let row = |user, part| {
                format!(
                    "{{\"user_id\": \"{user}\", \"part\": \"{part}\", \"text\": \"{}\"}}\n",
                    sentence(number)
                )
            };
            [row("heavy", "train"), row("held", "test")]
        })
        .chain(["{\"user_id\": \"light\", \"part\": \"train\", \"text\": \"only one here\"}\n".to_owned()])
        .collect();
    folder.write("a.jsonl", rows.concat());
    let base = "source = { kind = \"jsonl\", path = \"a.jsonl\", split = \"part\" }\nvocabulary = { kind = \"training_data\", size = 50 }\nmax_sentence_tokens = 3\n";
    let sizes = |corpus: &Corpus| {
        let of = |partition: Partition<'_>| {
            partition
                .users()
                .map(|user| user.num_examples())
                .collect::<Vec<_>>()
        };
        (
            of(corpus.partition(Split::Train)),
            of(corpus.partition(Split::Test)),
        )
    };

    let free = folder.open(base);
    assert_eq!(sizes(&free), (vec![10, 1], vec![10]));
    assert_eq!(free.vocab().provenance(), VocabProvenance::TrainingData);
    assert!(!free.vocab().provenance().is_private_safe());

    let capped = folder.open(&format!("{base}max_examples = 4\nmin_examples = 2"));
    assert_eq!(sizes(&capped), (vec![4], vec![10]));
    assert_eq!(texts(&capped, Split::Train)[0][3], "word3 again <eos>");
    let stats = capped.stats();
    assert_eq!(
        (
            stats.users_below_minimum,
            stats.examples_capped,
            stats.tokens_capped
        ),
        (1, 6, 18)
    );

    let by_tokens = folder.open(&format!("{base}max_tokens = 8"));
    assert_eq!(sizes(&by_tokens), (vec![2, 1], vec![10]));
    let minimum = folder.open(&format!("{base}min_tokens = 5"));
    assert_eq!(sizes(&minimum), (vec![10], vec![10]));

    let random = |seed: u64| {
        folder.open(&format!(
            "{base}max_examples = 4\nkeep = {{ kind = \"random\", seed = {seed} }}"
        ))
    };
    let draws: Vec<Vec<String>> = (0..6)
        .map(|seed| texts(&random(seed), Split::Train)[0].clone())
        .collect();
    assert!(
        draws.iter().all(|draw| draw.len() == 4 && draw.is_sorted()),
        "kept examples stay in order: {draws:?}"
    );
    assert!(
        draws.iter().any(|draw| *draw != draws[0]),
        "the choice depends on the seed"
    );
    assert_eq!(texts(&random(3), Split::Train)[0], draws[3]);
}

#[test]
fn cache_is_keyed_by_contents_and_settings() {
    let folder = mixed();
    let cache = folder.path("cache");
    let first = folder.open(JSONL);
    let again = folder.open(JSONL);
    assert_eq!(first.digest(), again.digest());
    assert_eq!(first.stats(), again.stats());
    assert_eq!(cache_files(&cache).len(), 1);

    let capped = folder.open(&format!("{JSONL}max_examples = 1"));
    assert_ne!(first.digest(), capped.digest());
    assert_eq!(cache_files(&cache).len(), 2);

    folder.write("vocab.txt", "two\nwords\n");
    assert_ne!(first.digest(), folder.open(JSONL).digest());
    folder.write("vocab.txt", "two\nwords\none\nseven\n");

    fs::rename(folder.path("mixed.jsonl"), folder.path("moved.jsonl")).unwrap();
    let moved = folder.open(&JSONL.replace("mixed", "moved"));
    assert_eq!(first.digest(), moved.digest());
    assert_eq!(moved.stats().source, "moved.jsonl");
    assert_eq!(cache_files(&cache).len(), 3);
}

#[test]
fn a_damaged_cache_is_rebuilt() {
    let folder = mixed();
    let expected = texts(&folder.open(JSONL), Split::Train);
    let path = cache_files(&folder.path("cache")).remove(0);
    let good = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), b"hello".to_vec(), good[..good.len() / 2].to_vec()];
    for position in (0..good.len()).step_by(7) {
        let mut bytes = good.clone();
        bytes[position] ^= 0x10;
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&path, bytes).unwrap();
        assert_eq!(texts(&folder.open(JSONL), Split::Train), expected);
        assert!(
            fs::read(&path).unwrap() == good,
            "the rebuilt cache has the same bytes"
        );
    }
}

#[test]
fn bytes_do_not_depend_on_the_number_of_threads() {
    let folder = Folder::new();
    let bytes = |name: &str, threads: usize, text: &str| {
        let cache = folder.path(&format!("{name}-{threads}"));
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| Corpus::open(&spec(text), folder.root(), &cache, &NoProgress))
            .unwrap();
        fs::read(cache_files(&cache).remove(0)).unwrap()
    };
    let synthetic = "source = { kind = \"synthetic\", users = 300, seed = 5 }";
    assert!(bytes("synthetic", 1, synthetic) == bytes("synthetic", 3, synthetic));

    let rows = |number: usize| {
        format!(
            "{{\"user_id\": {}, \"text\": \"w{} w{} w{}\"}}\n",
            number % 37,
            number % 11,
            number % 7,
            number % 3
        )
    };
    folder.write("many.jsonl", (0..2000).map(rows).collect::<String>());
    let counted = "source = { kind = \"jsonl\", path = \"many.jsonl\" }\nvocabulary = { kind = \"training_data\", size = 9 }\nmax_examples = 20\nkeep = { kind = \"random\" }";
    assert!(bytes("counted", 1, counted) == bytes("counted", 3, counted));
}

#[test]
#[ignore = "slow"]
fn synthetic_users_can_be_learned_from_but_not_perfectly() {
    let folder = Folder::new();
    let corpus = folder.open("source = { kind = \"synthetic\", users = 2000, seed = 11 }");
    assert_eq!(corpus.vocab().len(), 1003);
    assert_eq!(corpus.stats().validation.unknown_words, 0);
    let best = corpus.best_accuracy().unwrap();
    let unigram = corpus
        .unigram_accuracy(Split::Validation, EosTargets::Included)
        .unwrap();

    // A table of word pairs counted on the training partition: what little a model needs to learn to beat the unigram.
    let mut pairs: HashMap<(u32, u32), u64> = HashMap::new();
    let train = corpus.partition(Split::Train);
    assert!(train.total_tokens() < 2_000_000);
    for example in train.users().flat_map(|user| user.examples()) {
        let mut previous = IDS.bos;
        for &target in example {
            *pairs.entry((previous, target)).or_insert(0) += 1;
            previous = target;
        }
    }
    let mut likeliest: HashMap<u32, (u64, u32)> = HashMap::new();
    for (&(previous, target), &count) in &pairs {
        let entry = likeliest.entry(previous).or_insert((0, 0));
        *entry = (*entry).max((count, target));
    }
    let (mut hits, mut targets) = (0_u64, 0_u64);
    for example in corpus
        .partition(Split::Validation)
        .users()
        .flat_map(|user| user.examples())
    {
        let mut previous = IDS.bos;
        for &target in example {
            hits += u64::from(
                likeliest
                    .get(&previous)
                    .is_some_and(|&(_, guess)| guess == target),
            );
            targets += 1;
            previous = target;
        }
    }
    assert_eq!(targets, best.targets);
    let bigram = hits as f64 / targets as f64;
    assert!(bigram > 2.0 * unigram, "bigram {bigram}, unigram {unigram}");
    assert!(bigram < best.with_eos, "bigram {bigram}, best {}", best.with_eos);
    assert!(best.with_eos < best.personal_with_eos, "{best:?}");
    assert!(best.without_eos < best.personal_without_eos, "{best:?}");
    // The predictor's own expectation and what it reaches are means over the same targets. Targets of a user are
    // dependent; with about 200 users the standard deviation is below 0.01, and the seed is fixed.
    assert!((best.with_eos - best.expected_with_eos).abs() < 0.02, "{best:?}");
    assert!(best.with_eos < 0.6, "{best:?}");
}

#[test]
fn synthetic_words_are_most_frequent_first() {
    let folder = Folder::new();
    let corpus = folder.open("source = { kind = \"synthetic\", users = 1500, seed = 2 }");
    let mut counts = vec![0_u64; corpus.vocab().len()];
    let train = corpus.partition(Split::Train);
    train
        .users()
        .for_each(|user| user.tokens().iter().for_each(|&id| counts[id as usize] += 1));
    // Words are ranked on a sample of the process, so ranks agree in bulk: every tenth of them outweighs the next two.
    let tenths: Vec<u64> = counts[3..].chunks(100).map(|chunk| chunk.iter().sum()).collect();
    assert!(tenths.windows(2).all(|pair| pair[0] > pair[1]), "{tenths:?}");
}

#[test]
fn a_private_vocabulary_comes_with_its_record() {
    let folder = Folder::new();
    let rows = (0..50).map(|user| format!("u{user},\"The cat sat on own{user} mat\"\n"));
    folder.write("crowd.csv", format!("user_id,text\n{}", rows.collect::<String>()));
    let source = "source = { kind = \"csv\", path = \"crowd.csv\" }\n";
    let path = folder.path("words.txt");
    let choose = |threshold_delta: f64| {
        let (noise, delta) = (
            NoiseMultiplier::new(0.1).unwrap(),
            Delta::new(threshold_delta).unwrap(),
        );
        WordVotes::of_training_data(&spec(source), 6, folder.root(), &NoProgress)
            .unwrap()
            .select(
                &PrivateSelection::new(10, noise, delta).unwrap(),
                &NoiseKey::from_insecure_seed(1),
            )
            .unwrap()
    };
    choose(1e-9).write(&path, false).unwrap();
    let text = format!("{source}vocabulary = {{ kind = \"private\", path = \"words.txt\" }}");
    // The second time from the cache.
    for _ in 0..2 {
        let corpus = folder.open(&text);
        assert_eq!(corpus.vocab().provenance(), VocabProvenance::Private);
        let record = corpus.vocabulary_privacy().unwrap();
        assert!(record.matches(corpus.vocab()));
        assert_eq!(record.threshold_delta().get(), 1e-9);
    }
    // The same words at another price are another corpus, and words of unknown price are none.
    let first = folder.open(&text).digest().to_owned();
    let words = fs::read(&path).unwrap();
    choose(1e-8).write(&path, true).unwrap();
    assert_eq!(fs::read(&path).unwrap(), words);
    assert_ne!(folder.open(&text).digest(), first);
    fs::remove_file(undertone_vocabulary::record_path(&path)).unwrap();
    folder.fails(&text, "words.txt.privacy.json");
    let public = folder.open(&text.replace("private", "file"));
    assert!(public.vocabulary_privacy().is_none());
    assert_ne!(public.digest(), first);
}
