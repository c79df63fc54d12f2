//! `undertone data vocab --private`: words chosen with a guarantee, and their record.

use serde_json::Value;

use crate::support::{Folder, TINY, json};

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

/// Private words are chosen with noise from the operating system. A common word has sixty votes of 0.4, the threshold is 6
/// and the noise 1.2, so that such a word fails with a probability below 1e-30.
fn unseeded() -> Vec<&'static str> {
    let seed = ["--noise-seed", "3"];
    PRIVATE
        .iter()
        .copied()
        .filter(|one| !seed.contains(one))
        .collect()
}

/// The tiny run over the crowd's text, with its private words.
fn with_words() -> String {
    TINY.replace(
        "source = { kind = \"synthetic\", users = 300, words = 60 }",
        "source = { kind = \"csv\", path = \"crowd.csv\" }\nvocabulary = { kind = \"private\", path = \"words.txt\" }",
    )
}

/// Noise from a known seed hides no word: the run warns, states no guarantee of both together, and keeps no budget for both.
#[test]
fn a_seeded_vocabulary_states_no_composed_figure() {
    let folder = crowd();
    folder.succeed(&PRIVATE);
    folder.write("run.toml", with_words().replace("seed = 3\n", ""));
    let summary = json(&folder.succeed(&["train", "run.toml", "--json"]));
    let privacy = &summary["privacy"];
    assert!(privacy["observed"]["epsilon"].is_number(), "{privacy}");
    assert!(privacy.get("with_vocabulary").is_none(), "{privacy}");
    let warnings = privacy["warnings"].to_string();
    assert!(
        warnings.contains("private vocabulary came from a known seed"),
        "{warnings}"
    );
    folder.succeed(&["verify", "runs/tiny"]);
    // The figure that would follow if the noise were secret.
    let claims = folder.read("runs/tiny/privacy.json");
    let mut forged: Value = serde_json::from_slice(&claims).expect("JSON");
    forged["with_vocabulary"] = forged["observed"].clone();
    folder.write("runs/tiny/privacy.json", forged.to_string());
    let output = folder.run(&["verify", "runs/tiny", "--json"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        shown.contains("privacy.json, with_vocabulary: expected nothing"),
        "{shown}"
    );
    let limited = folder.fail(&[
        "train",
        "run.toml",
        "--out",
        "limited",
        "--set",
        "privacy.max_epsilon=100",
    ]);
    assert!(
        limited.contains("privacy.max_epsilon") && limited.contains("known seed"),
        "{limited}"
    );
}

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
    assert!(shown.contains("Exact counts. They are not private"), "{shown}");
    assert_eq!(folder.read("words.txt.privacy.json"), file.as_bytes());
    assert_eq!(folder.read("words.txt"), words.as_bytes());
    let fresh = json(&folder.succeed(&[&unseeded()[..], &["--force", "--json"]].concat()));
    assert_eq!(fresh["record"]["key"], "entropy");
}

#[test]
fn private_vocabularies_are_used_with_their_record_only() {
    let folder = crowd();
    folder.succeed(&unseeded());
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
    folder.write("run.toml", with_words());
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
    assert!(shown.contains("with_vocabulary.epsilon: expected"), "{shown}");
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
    assert!(why.contains("on the private choice of its words"), "{why}");
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
    check("--delta 1e-6", "--target-epsilon or --noise-multiplier");
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
