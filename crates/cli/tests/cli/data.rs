//! `undertone data`: a git log becomes a corpus that trains, numbers are right, nothing is overwritten unasked.

use std::process::Command;

use serde_json::Value;

use crate::support::{Folder, TINY};

const POSTS: &str =
    "who,what\nann,\"The cat sat. The dog ran away.\"\nbob,The cat ran\nann,A third text of ann\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn stats_count_what_is_there() {
    let folder = Folder::new();
    folder.write("posts.csv", POSTS);
    let columns = [
        "--csv",
        "posts.csv",
        "--user-column",
        "who",
        "--text-column",
        "what",
    ];
    let split = ["--validation", "0", "--test", "0"];
    let stats = json(&folder.succeed(&[&["data", "stats", "--json"][..], &columns, &split].concat()));
    let train = &stats["stats"]["train"];
    // Sentences: the cat sat / the dog ran away / the cat ran / a third text of ann.
    assert_eq!(
        (&train["users"], &train["examples"], &train["words"]),
        (&json("2"), &json("4"), &json("15")),
        "{stats}"
    );
    let shown = folder.succeed(&[&["data", "stats"][..], &columns, &split].concat());
    assert!(shown.contains("training data (not private)"), "{shown}");
}

#[test]
fn vocabularies_are_ordered_and_never_overwritten_unasked() {
    let folder = Folder::new();
    folder.write("posts.csv", POSTS);
    let arguments = [
        "data",
        "vocab",
        "--csv",
        "posts.csv",
        "--user-column",
        "who",
        "--text-column",
        "what",
        "-o",
        "words.txt",
        "--size",
        "3",
    ];
    folder.succeed(&arguments);
    let words = String::from_utf8(folder.read("words.txt")).expect("UTF-8");
    assert_eq!(words.lines().next(), Some("the"), "{words}");
    assert_eq!(words.lines().count(), 3);
    assert!(folder.fail(&arguments).contains("words.txt"));
    folder.succeed(&[&arguments[..], &["--force"]].concat());
}

#[test]
fn a_git_log_is_imported_with_hashed_authors_and_trains() {
    let folder = Folder::new();
    let git = |arguments: &[&str]| {
        let status = Command::new("git")
            .args(["-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false"])
            .args(arguments)
            .current_dir(folder.path(""))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .envs([
                ("GIT_AUTHOR_DATE", "2024-01-01T00:00:00Z"),
                ("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z"),
            ])
            .stdout(std::process::Stdio::null())
            .status()
            .expect("running git");
        assert!(status.success(), "git {arguments:?}");
    };
    git(&["init", "-q", "repository"]);
    for (author, message) in [
        (
            "ann@example.org",
            "Fix the parser of dates. It read the month first.",
        ),
        ("bob@example.org", "Add a test of the parser"),
        ("cee@example.org", "Make the parser of dates faster"),
        ("ann@example.org", "Fix the test of the parser"),
    ] {
        let (name, email) = ("user.name=Somebody".to_owned(), format!("user.email={author}"));
        git(&[
            "-C",
            "repository",
            "-c",
            &name,
            "-c",
            &email,
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            message,
        ]);
    }
    folder.succeed(&["data", "import", "--git", "repository", "-o", "log.parquet"]);
    let bytes = folder.read("log.parquet");
    assert!(
        !String::from_utf8_lossy(&bytes).contains("example.org"),
        "an address was stored"
    );
    let stats = json(&folder.succeed(&[
        "data",
        "stats",
        "--parquet",
        "log.parquet",
        "--validation",
        "0",
        "--test",
        "0",
        "--json",
    ]));
    assert_eq!(stats["stats"]["train"]["users"], 3, "{stats}");

    let config = TINY
        .replace(
            "source = { kind = \"synthetic\", users = 300, words = 60 }",
            "source = { kind = \"git\", path = \"repository\", salt = \"fixed\" }\nvocabulary = { kind = \"training_data\", size = 20 }\n\
             split = { kind = \"held_out_users\", validation = 0.4, test = 0.0, seed = 2 }",
        )
        .replace("users_per_round = 20", "users_per_round = 1");
    folder.write("run.toml", config);
    let summary = json(&folder.succeed(&["train", "run.toml", "--json"]));
    assert!(
        summary["privacy"]["warnings"].to_string().contains("vocabulary"),
        "{summary}"
    );
    assert!(
        folder
            .fail(&["data", "stats", "--git", "nowhere"])
            .contains("nowhere")
    );
}

/// Sixty people who say the same, and each a word of their own.
fn crowd() -> Folder {
    let folder = Folder::new();
    let rows = (0..60).map(|user| format!("u{user},\"The cat sat on own{user} mat\"\n"));
    folder.write("crowd.csv", format!("user_id,text\n{}", rows.collect::<String>()));
    folder
}

const PRIVATE: [&str; 17] = [
    "data",
    "vocab",
    "--csv",
    "crowd.csv",
    "--validation",
    "0",
    "--test",
    "0",
    "--private",
    "--target-epsilon",
    "4",
    "--delta",
    "1e-4",
    "--noise-seed",
    "3",
    "-o",
    "words.txt",
];

#[test]
fn private_vocabularies_hold_common_words_and_their_record() {
    let folder = crowd();
    let written = json(&folder.succeed(&[&PRIVATE[..], &["--json"]].concat()));
    let words = String::from_utf8(folder.read("words.txt")).expect("UTF-8");
    let mut sorted: Vec<&str> = words.lines().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, ["cat", "mat", "on", "sat", "the"], "{written}");
    let guarantee = &written["guarantee"];
    assert!(
        guarantee["epsilon"]
            .as_f64()
            .is_some_and(|epsilon| epsilon <= 4.0),
        "{written}"
    );
    assert_eq!(guarantee["delta"], 1e-4);
    let record = &written["record"];
    assert_eq!(record["threshold_delta"], 5e-5);
    assert_eq!(record["key"], "insecure-seed");
    assert_eq!(written["not_private"]["distinct_words"], 65);
    let file = String::from_utf8(folder.read("words.txt.privacy.json")).expect("UTF-8");
    assert_eq!(&json(&file), record);
    for exact in ["not_private", "distinct_words"] {
        assert!(!file.contains(exact), "exact counts stand in the record: {file}");
    }

    // Nothing is replaced unasked; the same seed gives the same bytes, and entropy another order or other words' noise.
    assert!(folder.fail(&PRIVATE).contains("words.txt"));
    let shown = folder.succeed(&[&PRIVATE[..], &["--force"]].concat());
    assert!(
        shown.contains("(eps = 4.000, delta = 1e-4), add-or-remove one user"),
        "{shown}"
    );
    assert!(shown.contains("exact counts, not private"), "{shown}");
    assert_eq!(folder.read("words.txt.privacy.json"), file.as_bytes());
    assert_eq!(folder.read("words.txt"), words.as_bytes());
    let fresh: Vec<&str> = PRIVATE
        .iter()
        .copied()
        .filter(|one| !["--noise-seed", "3"].contains(one))
        .collect();
    let fresh = json(&folder.succeed(&[&fresh[..], &["--force", "--json"]].concat()));
    assert_eq!(fresh["record"]["key"], "entropy");
}

#[test]
fn private_vocabularies_are_used_with_their_record_only() {
    let folder = crowd();
    folder.succeed(&PRIVATE);
    let stats = [
        "data",
        "stats",
        "--csv",
        "crowd.csv",
        "--vocab",
        "words.txt",
        "--validation",
        "0",
        "--test",
        "0",
        "--json",
    ];
    let shown = json(&folder.succeed(&stats));
    assert_eq!(shown["stats"]["vocabulary_provenance"], "private", "{shown}");
    assert_eq!(shown["vocabulary_is_private_safe"], false);
    // Other words than those of the record.
    let words = folder.read("words.txt");
    folder.write("words.txt", [&words[..], b"more\n"].concat());
    assert!(folder.fail(&stats).contains("other words"));
    folder.write("words.txt", &words);
    // Words with a record are never taken for public ones.
    folder.write(
        "run.toml",
        TINY.replace(
            "source = { kind = \"synthetic\", users = 300, words = 60 }",
            "source = { kind = \"csv\", path = \"crowd.csv\" }\nvocabulary = { kind = \"file\", path = \"words.txt\" }",
        ),
    );
    let refused = folder.fail(&["data", "stats", "--config", "run.toml"]);
    assert!(
        refused.contains("data.vocabulary.kind: expected \"private\""),
        "{refused}"
    );
    // A run that uses them states what both cost together.
    folder.write(
        "run.toml",
        TINY.replace(
            "source = { kind = \"synthetic\", users = 300, words = 60 }",
            "source = { kind = \"csv\", path = \"crowd.csv\" }\nvocabulary = { kind = \"private\", path = \"words.txt\" }",
        ),
    );
    let summary = json(&folder.succeed(&["train", "run.toml", "--json"]));
    let privacy = &summary["privacy"];
    let figure = |name: &str, what: &str| privacy[name][what].as_f64().expect("a number");
    assert!(
        figure("with_vocabulary", "epsilon") > figure("observed", "epsilon"),
        "{privacy}"
    );
    assert!(
        figure("with_vocabulary", "delta") >= 2.0 * figure("observed", "delta"),
        "{privacy}"
    );
    folder.succeed(&["verify", "runs/tiny"]);
    // Which is recomputed, not believed.
    let claims = folder.read("runs/tiny/privacy.json");
    let mut forged: Value = serde_json::from_slice(&claims).expect("JSON");
    forged["with_vocabulary"]["epsilon"] = figure("observed", "epsilon").into();
    folder.write("runs/tiny/privacy.json", forged.to_string());
    let output = folder.run(&["verify", "runs/tiny", "--json"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        shown.contains("with_vocabulary.epsilon: the ledger gives"),
        "{shown}"
    );
    folder.write("runs/tiny/privacy.json", claims);
    let record = folder.read("runs/tiny/vocab.txt.privacy.json");
    std::fs::remove_file(folder.path("runs/tiny/vocab.txt.privacy.json")).expect("removing");
    folder.fail(&["verify", "runs/tiny"]);
    folder.write("runs/tiny/vocab.txt.privacy.json", record);
    folder.succeed(&["verify", "runs/tiny"]);
    // A budget is for both together: one that all rounds alone would keep ends the run before its last.
    let budget = (figure("with_vocabulary", "epsilon") + figure("observed", "epsilon")) / 2.0;
    let limited = folder.succeed(&[
        "train",
        "run.toml",
        "--json",
        "--out",
        "limited",
        "--set",
        &format!("privacy.max_epsilon={budget}"),
    ]);
    let limited = json(&limited);
    assert!(
        limited["rounds"].as_u64() < summary["rounds"].as_u64(),
        "{limited}"
    );
    let why = limited["stopped_early"].as_str().expect("a reason");
    assert!(why.contains("by the private choice of its words"), "{why}");
    assert!(
        limited["privacy"]["with_vocabulary"]["epsilon"]
            .as_f64()
            .is_some_and(|epsilon| epsilon <= budget),
        "{limited}"
    );
    folder.succeed(&["verify", "limited/tiny"]);
    // And a list without noise takes the record away only when asked to.
    let plain = ["data", "vocab", "--csv", "crowd.csv", "-o", "words.txt"];
    std::fs::remove_file(folder.path("words.txt")).expect("removing the words");
    assert!(folder.fail(&plain).contains("words.txt.privacy.json"));
    folder.succeed(&[&plain[..], &["--force"]].concat());
    assert!(!folder.path("words.txt.privacy.json").exists());
}

#[test]
fn bad_requests_for_private_vocabularies_name_the_key() {
    let folder = crowd();
    let base = [
        "data",
        "vocab",
        "--csv",
        "crowd.csv",
        "-o",
        "words.txt",
        "--private",
    ];
    let check = |arguments: &str, expected: &str| {
        let arguments: Vec<&str> = base.iter().copied().chain(arguments.split_whitespace()).collect();
        let message = folder.fail(&arguments);
        assert!(message.contains(expected), "{message} lacks {expected}");
    };
    check("--target-epsilon 1", "--delta");
    check("--delta 1e-6", "--target-epsilon and --noise-multiplier");
    check(
        "--delta 1 --target-epsilon 1",
        "--delta: delta: expected a number in (0, 1)",
    );
    check("--delta 0 --target-epsilon 1", "--delta");
    check("--delta 1e-6 --target-epsilon=-1", "--target-epsilon: epsilon");
    check("--delta 1e-6 --target-epsilon=nan", "--target-epsilon: epsilon");
    check(
        "--delta 1e-6 --noise-multiplier 0",
        "--noise-multiplier: noise_multiplier",
    );
    check(
        "--delta 1e-6 --noise-multiplier 1 --target-epsilon 1",
        "cannot be used with",
    );
    check(
        "--delta 1e-6 --target-epsilon 1 --threshold-delta 1e-6",
        "delta: expected more than the threshold's own",
    );
    check(
        "--delta 1e-6 --target-epsilon 1 --threshold-delta 1",
        "--threshold-delta",
    );
    check(
        "--delta 1e-6 --target-epsilon 1 --max-words-per-user 0",
        "max_words_per_user: expected between 1",
    );
    check("--delta 1e-6 --target-epsilon 1 --size 0", "--size");
    check("--delta 1e-6 --target-epsilon 1 --public", "--public");
    check("--delta 1e-6 --target-epsilon 1 --counts", "--counts");
    // Sixty people cannot be hidden so well and show words, too.
    check("--delta 1e-9 --target-epsilon 0.1", "no word's noisy sum passed");
    assert!(!folder.path("words.txt").exists());
    folder.write("nobody.csv", "user_id,text\n");
    let nobody = folder.fail(&[
        "data",
        "vocab",
        "--csv",
        "nobody.csv",
        "-o",
        "words.txt",
        "--private",
        "--delta",
        "1e-6",
        "--target-epsilon",
        "1",
    ]);
    assert!(nobody.contains("nobody.csv holds no rows"), "{nobody}");
}

#[test]
fn a_tokenizer_is_trained_used_and_kept_by_a_run() {
    let folder = Folder::new();
    let text: String = (0..400)
        .map(|i| {
            format!(
                "the model reads bytes number {} and the words of user {}\n",
                i % 37,
                i % 11
            )
        })
        .collect();
    folder.write("public.txt", &text);
    let arguments = [
        "data",
        "tokenizer",
        "public.txt",
        "--size",
        "300",
        "--out",
        "tokenizer.json",
        "--json",
    ];
    let summary: Value = serde_json::from_str(&folder.succeed(&arguments)).expect("JSON");
    assert_eq!(summary["size"], 300);
    assert_eq!(summary["rows"], 400);
    assert!(folder.fail(&arguments).contains("tokenizer.json exists"));
    let small = [
        "data",
        "tokenizer",
        "public.txt",
        "--size",
        "100",
        "--out",
        "small.json",
    ];
    assert!(folder.fail(&small).contains("size: expected between 259"));

    let rows: String = (0..300)
        .map(|i| {
            format!(
                "{{\"user_id\": {}, \"text\": \"words of user number {} are bytes\"}}\n",
                i % 60,
                i % 7
            )
        })
        .collect();
    folder.write("rows.jsonl", &rows);
    let stats = [
        "data",
        "stats",
        "--jsonl",
        "rows.jsonl",
        "--tokenizer",
        "tokenizer.json",
        "--windows",
        "8",
        "--json",
    ];
    let stats: Value = serde_json::from_str(&folder.succeed(&stats)).expect("JSON");
    assert_eq!(stats["stats"]["train"]["unknown_words"], 0);
    assert!(
        stats["stats"]["tokens_per_word"]
            .as_f64()
            .is_some_and(|tokens| tokens >= 1.0),
        "{stats}"
    );

    let run = TINY.replace(
        "source = { kind = \"synthetic\", users = 300, words = 60 }",
        "source = { kind = \"jsonl\", path = \"rows.jsonl\" }\nvocabulary = { kind = \"tokenizer\", path = \"tokenizer.json\" }\n\
         examples = \"windows\"\nmax_example_tokens = 8",
    );
    folder.write("run.toml", &run);
    folder.succeed(&["train", "run.toml"]);
    assert_eq!(
        folder.read("runs/tiny/tokenizer.json"),
        folder.read("tokenizer.json")
    );
    assert!(!folder.path("runs/tiny/vocab.txt").exists());
    folder.succeed(&["verify", "runs/tiny"]);
    folder.succeed(&["eval", "runs/tiny"]);

    // Another tokenizer of the same size: same shapes, other meanings.
    folder.write("other.txt", text.replace("the", "our").repeat(2));
    let other = [
        "data",
        "tokenizer",
        "other.txt",
        "--size",
        "300",
        "--out",
        "tokenizer.json",
        "--force",
    ];
    folder.succeed(&other);
    let error = folder.fail(&["eval", "runs/tiny"]);
    assert!(error.contains("no longer has the vocabulary of"), "{error}");
    assert!(error.contains("expected SHA-256"), "{error}");
    let initial = run.replace(
        "name = \"tiny\"",
        "name = \"next\"\ninitial_model = \"runs/tiny/model.safetensors\"",
    );
    folder.write("next.toml", &initial);
    let error = folder.fail(&["train", "next.toml"]);
    assert!(
        error.contains("has another vocabulary: expected SHA-256"),
        "{error}"
    );
    folder.write("tokenizer.json", "the\nto\n");
    let error = folder.fail(&["train", "next.toml"]);
    assert!(
        error.contains("tokenizer.json is not a usable tokenizer: expected a Hugging Face tokenizer.json"),
        "{error}"
    );
}

#[test]
fn grouped_text_is_a_source_with_the_same_corpus() {
    let folder = Folder::new();
    let rows: String = (0..500)
        .map(|i| {
            format!(
                "{{\"user_id\": \"u{}\", \"text\": \"text number {i} of many\", \"t\": {}}}\n",
                i * 7 % 90,
                1000 - i
            )
        })
        .collect();
    folder.write("rows.jsonl", &rows);
    let group = [
        "data",
        "group",
        "--jsonl",
        "rows.jsonl",
        "--time-column",
        "t",
        "--out",
        "grouped",
        "--json",
    ];
    let written: Value = serde_json::from_str(&folder.succeed(&group)).expect("JSON");
    assert_eq!((&written["rows"], &written["users"]), (&500.into(), &90.into()));
    assert!(folder.fail(&group).contains("grouped exists"));
    let stats = |source: &[&str]| -> Value {
        let arguments = [&["data", "stats"], source, &["--json"]].concat();
        let mut stats: Value = serde_json::from_str(&folder.succeed(&arguments)).expect("JSON");
        stats["stats"]["source"].take();
        stats["stats"].take()
    };
    let table = stats(&["--jsonl", "rows.jsonl", "--time-column", "t"]);
    assert_eq!(table, stats(&["--grouped", "grouped"]));
    assert_eq!(
        table,
        stats(&["--grouped", "grouped", "--time-column", "timestamp"])
    );
    let error = folder.fail(&["data", "stats", "--grouped", "grouped", "--split-column", "split"]);
    assert!(
        error.contains("data.source.split: expected false, because grouped was grouped without it"),
        "{error}"
    );
    let error = folder.fail(&[
        "data",
        "group",
        "--jsonl",
        "rows.jsonl",
        "--out",
        "other",
        "--memory",
        "1kB",
    ]);
    assert!(
        error.contains("memory: expected at least 16777216 bytes, got 1000"),
        "{error}"
    );
    let error = folder.fail(&["data", "stats", "--grouped", "."]);
    assert!(
        error.contains("cannot read the manifest of grouped text"),
        "{error}"
    );
}

#[test]
fn near_duplicates_of_private_text_leave_a_public_corpus() {
    let folder = Folder::new();
    folder.write(
        "private.jsonl",
        "{\"text\": \"the very same long sentence of somebody, written once\"}\n",
    );
    folder.write(
        "public.jsonl",
        "{\"text\": \"something else\"}\n{\"text\": \"The very same long sentence of somebody written once!\"}\n",
    );
    let arguments = [
        "data",
        "dedup",
        "public.jsonl",
        "--against",
        "private.jsonl",
        "--out",
        "kept.jsonl",
        "--json",
    ];
    let summary = json(&folder.succeed(&arguments));
    assert_eq!(
        (&summary["rows"], &summary["near_duplicates"]),
        (&2.into(), &1.into())
    );
    assert_eq!(folder.read("kept.jsonl"), b"{\"text\": \"something else\"}\n");
    assert!(folder.fail(&arguments).contains("kept.jsonl exists"));
    let column = [
        "data",
        "dedup",
        "public.jsonl",
        "--against",
        "private.jsonl",
        "--out",
        "o",
        "--text",
        "body",
    ];
    assert!(folder.fail(&column).contains("public.jsonl, line 1: \"body\""));
}
