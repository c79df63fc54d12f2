//! `undertone data vocab --private`: words chosen with a guarantee, and their record.

use serde_json::Value;

use crate::support::{Folder, contains, json, over};

/// Sixty people who say the same, and each a word of their own.
fn crowd() -> Folder {
    let folder = Folder::new();
    let rows = (0..60).map(|user| format!("u{user},\"The cat sat on own{user} mat\"\n"));
    folder.write("crowd.csv", format!("user_id,text\n{}", rows.collect::<String>()));
    folder
}

/// Private words are chosen with noise from the operating system. A common word has sixty votes of 0.4, the threshold is 6
/// and the noise 1.2, so that such a word fails with a probability below 1e-30.
const UNSEEDED: &str = "data vocab --csv crowd.csv --validation 0 --test 0 --private --target-epsilon 4 --delta 1e-4 \
                        -o words.txt";

fn seeded() -> String {
    format!("{UNSEEDED} --noise-seed 3")
}

/// The tiny run over the crowd's text, with a vocabulary of this kind.
fn with_words(kind: &str) -> String {
    over(&format!(
        "{{ kind = \"csv\", path = \"crowd.csv\" }}\nvocabulary = {{ kind = \"{kind}\", path = \"words.txt\" }}"
    ))
}

/// Noise from a known seed hides no word: the run warns, states no guarantee of both together, and keeps no budget for both.
#[test]
#[ignore = "slow"]
fn a_seeded_vocabulary_states_no_composed_figure() {
    let folder = crowd();
    folder.succeed(seeded());
    folder.write("run.toml", with_words("private").replace("seed = 3\n", ""));
    let summary = folder.json("train run.toml");
    let privacy = &summary["privacy"];
    assert!(privacy["observed"]["epsilon"].is_number(), "{privacy}");
    assert!(privacy.get("with_vocabulary").is_none(), "{privacy}");
    let warnings = privacy["warnings"].to_string();
    contains(&warnings, "private vocabulary came from a known seed");
    folder.succeed("verify runs/tiny");
    // The figure that would follow if the noise were secret.
    let claims = folder.read("runs/tiny/privacy.json");
    let mut forged: Value = serde_json::from_slice(&claims).expect("JSON");
    forged["with_vocabulary"] = forged["observed"].clone();
    folder.write("runs/tiny/privacy.json", forged.to_string());
    let output = folder.run("verify runs/tiny --json");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    contains(&shown, "privacy.json, with_vocabulary: expected nothing");
    folder.refuse(
        "train run.toml --out limited --set privacy.max_epsilon=100",
        "privacy.max_epsilon ... known seed",
    );
}

#[test]
fn private_vocabularies_hold_common_words_and_their_record() {
    let folder = crowd();
    let written = folder.json(seeded());
    let words = folder.text("words.txt");
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
    let file = folder.text("words.txt.privacy.json");
    assert_eq!(&json(&file), record);
    for exact in ["not_private", "distinct_words"] {
        assert!(!file.contains(exact), "exact counts stand in the record: {file}");
    }

    // Nothing is replaced unasked; the same seed gives the same bytes, and entropy another order or other words' noise.
    assert!(folder.fail(seeded()).contains("words.txt"));
    let shown = folder.succeed(seeded() + " --force");
    contains(&shown, "(eps = 4.000, delta = 1e-4), add-or-remove one user");
    contains(&shown, "Exact counts. They are not private");
    assert_eq!(folder.read("words.txt.privacy.json"), file.as_bytes());
    assert_eq!(folder.read("words.txt"), words.as_bytes());
    let fresh = folder.json(format!("{UNSEEDED} --force"));
    assert_eq!(fresh["record"]["key"], "entropy");
}

#[test]
#[ignore = "slow"]
fn private_vocabularies_are_used_with_their_record_only() {
    let folder = crowd();
    folder.succeed(UNSEEDED);
    let stats = "data stats --csv crowd.csv --vocab words.txt --validation 0 --test 0";
    let shown = folder.json(stats);
    assert_eq!(shown["stats"]["vocabulary_provenance"], "private", "{shown}");
    assert_eq!(shown["vocabulary_is_private_safe"], false);
    // Other words than those of the record.
    let words = folder.read("words.txt");
    folder.write("words.txt", [&words[..], b"more\n"].concat());
    folder.refuse(stats, "other words");
    folder.write("words.txt", &words);
    // Words with a record are never taken for public ones.
    folder.write("run.toml", with_words("file"));
    folder.refuse(
        "data stats --config run.toml",
        "data.vocabulary.kind: expected \"private\"",
    );
    // A run that uses them states what both cost together.
    folder.write("run.toml", with_words("private"));
    let summary = folder.json("train run.toml");
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
    folder.succeed("verify runs/tiny");
    // Which is recomputed, not believed.
    let claims = folder.read("runs/tiny/privacy.json");
    let mut forged: Value = serde_json::from_slice(&claims).expect("JSON");
    forged["with_vocabulary"]["epsilon"] = figure("observed", "epsilon").into();
    folder.write("runs/tiny/privacy.json", forged.to_string());
    let output = folder.run("verify runs/tiny --json");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    contains(&shown, "with_vocabulary.epsilon: expected");
    folder.write("runs/tiny/privacy.json", claims);
    let record = folder.read("runs/tiny/vocab.txt.privacy.json");
    std::fs::remove_file(folder.path("runs/tiny/vocab.txt.privacy.json")).expect("removing");
    folder.fail("verify runs/tiny");
    folder.write("runs/tiny/vocab.txt.privacy.json", record);
    folder.succeed("verify runs/tiny");
    // A budget is for both together: one that all rounds alone would keep ends the run before its last.
    let budget = (figure("with_vocabulary", "epsilon") + figure("observed", "epsilon")) / 2.0;
    let limited = folder.succeed(format!(
        "train run.toml --json --out limited --set privacy.max_epsilon={budget}"
    ));
    let limited = json(&limited);
    assert!(
        limited["rounds"].as_u64() < summary["rounds"].as_u64(),
        "{limited}"
    );
    let why = limited["stopped_early"].as_str().expect("a reason");
    contains(why, "on the private choice of its words");
    assert!(
        limited["privacy"]["with_vocabulary"]["epsilon"]
            .as_f64()
            .is_some_and(|epsilon| epsilon <= budget),
        "{limited}"
    );
    folder.succeed("verify limited/tiny");
    // And a list without noise takes the record away only when asked to.
    let plain = "data vocab --csv crowd.csv -o words.txt";
    std::fs::remove_file(folder.path("words.txt")).expect("removing the words");
    folder.refuse(plain, "words.txt.privacy.json");
    folder.succeed(format!("{plain} --force"));
    let record = json(&folder.text("words.txt.privacy.json"));
    assert_eq!(record["guarantee"], "not private", "{record}");
    folder.succeed(format!("{plain} --public --force"));
    assert!(!folder.path("words.txt.privacy.json").exists());
}

#[test]
fn bad_requests_for_private_vocabularies_name_the_key() {
    let folder = crowd();
    let transcript = "
        $ VOCAB --target-epsilon 1
        --delta
        $ VOCAB --delta 1e-6
        --target-epsilon or --noise-multiplier
        $ VOCAB --delta 1 --target-epsilon 1
        --delta: delta: expected a number in (0, 1)
        $ VOCAB --delta 0 --target-epsilon 1
        --delta
        $ VOCAB --delta 1e-6 --target-epsilon=-1
        --target-epsilon: epsilon
        $ VOCAB --delta 1e-6 --target-epsilon=nan
        --target-epsilon: epsilon
        $ VOCAB --delta 1e-6 --noise-multiplier 0
        --noise-multiplier: noise_multiplier
        $ VOCAB --delta 1e-6 --noise-multiplier 1 --target-epsilon 1
        cannot be used with
        $ VOCAB --delta 1e-6 --target-epsilon 1 --threshold-delta 1e-6
        delta: expected more than the threshold's own
        $ VOCAB --delta 1e-6 --target-epsilon 1 --threshold-delta 1
        --threshold-delta
        $ VOCAB --delta 1e-6 --target-epsilon 1 --max-words-per-user 0
        max_words_per_user: expected between 1
        $ VOCAB --delta 1e-6 --target-epsilon 1 --size 0
        --size
        $ VOCAB --delta 1e-6 --target-epsilon 1 --public
        --public
        $ VOCAB --delta 1e-6 --target-epsilon 1 --counts
        --counts
        ";
    let vocab = "data vocab --csv crowd.csv -o words.txt --private";
    folder.refuses(&transcript.replace("VOCAB", vocab));
    // Sixty people cannot be hidden so well and show words, too.
    folder.refuse(
        format!("{vocab} --delta 1e-9 --target-epsilon 0.1"),
        "no word's noisy sum passed",
    );
    assert!(!folder.path("words.txt").exists());
    folder.write("nobody.csv", "user_id,text\n");
    folder.refuse(
        "data vocab --csv nobody.csv -o words.txt --private --delta 1e-6 --target-epsilon 1",
        "nobody.csv holds no rows",
    );
}
