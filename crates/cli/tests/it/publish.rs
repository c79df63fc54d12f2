//! `undertone publish`: a stranger verifies the folder, and no private file has a part in it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Folder, PUBLIC, TINY, contains, ftrl, gradients, json, over};
use crate::verify::{document, rechained, sha256};

/// A run file without a seed: a seeded run is not published.
fn unseeded(text: &str) -> String {
    text.replace("seed = 3\n", "")
}

/// Example-level sampling whose number of examples the file gives.
fn declared(text: &str) -> String {
    text.replace("examples_per_round = 60", "sampling_probability = 0.01")
        .replace(
            "[clip]",
            "[estimator]\nkind = \"fixed_denominator\"\nexpected_weight = 20.0\n\n[clip]",
        )
}

/// Every file of a folder with its bytes.
fn content(folder: &Folder, name: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder.path(name)).expect("a folder");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let bytes = std::fs::read(entry.path()).expect("a file");
            (entry.file_name().into_string().expect("a name"), bytes)
        })
        .collect()
}

/// Publishes a run, verifies the copy on a machine that never saw the run, and removes each private file in turn.
#[track_caller]
pub(crate) fn check_publication(folder: &Folder, run: &str, names_users: bool) -> BTreeMap<String, Vec<u8>> {
    folder.succeed(format!("publish {run} published"));
    let published = content(folder, "published");
    let elsewhere = Folder::new();
    std::fs::create_dir(elsewhere.path("model")).expect("a folder");
    for (name, bytes) in &published {
        elsewhere.write(&format!("model/{name}"), bytes);
    }
    let shown = elsewhere.json("verify model");
    for check in shown["checks"].as_array().expect("checks") {
        assert_eq!(check["problems"], serde_json::json!([]), "{check}");
    }
    let here = folder.json(format!("verify {run}"));
    assert_eq!(shown["recomputed"], here["recomputed"]);
    let notes = shown["notes"].to_string();
    contains(&notes, "Noise and data ... Accuracy ... Attacks");
    assert_eq!(notes.contains("Participation:"), !names_users, "{notes}");

    let ledger = String::from_utf8_lossy(&published["ledger.public.jsonl"]).into_owned();
    for line in ledger.lines().filter(|line| !line.contains("\"end\"")) {
        let line: Value = json(line);
        assert_eq!(line.get("participation").is_some(), names_users, "{line}");
        for private in [
            "participants",
            "cohort_size",
            "examples",
            "noise_key",
            "survivors",
        ] {
            assert!(line.get(private).is_none(), "{private}: {line}");
        }
    }
    for private in ["ledger.jsonl", "metrics.jsonl", "report.html", "plots"] {
        assert!(!published.contains_key(private), "{private}");
    }

    // The private ledger is what the public one is made from. All others have no part in the folder.
    for private in ["metrics.jsonl", "report.html", "plots", ".base", ".lock"] {
        let path = folder.path(&format!("{run}/{private}"));
        match path.is_dir() {
            true => std::fs::remove_dir_all(&path).expect("removing"),
            false => drop(std::fs::remove_file(&path)),
        }
        std::fs::remove_dir_all(folder.path("published")).expect("removing");
        folder.succeed(format!("publish {run} published"));
        let mut again = content(folder, "published");
        if names_users {
            // Names of users are drawn anew in each publication, and the manifest has the digest of their ledger.
            for file in ["ledger.public.jsonl", "manifest.json"] {
                assert_ne!(again[file], published[file], "{file}");
                again.insert(file.to_owned(), published[file].clone());
            }
        }
        assert!(again == published, "{private}");
    }
    std::fs::remove_dir_all(folder.path(run)).expect("removing");
    folder.succeed("verify published");
    published
}

#[test]
#[ignore = "slow"]
fn a_stranger_verifies_each_kind_of_run() {
    let sampled = unseeded(TINY);
    let fixed = sampled.replace("\"poisson\"", "\"fixed_size\"");
    let tree = unseeded(&ftrl("kind = \"tree\""));
    let secure = format!("{tree}\n[aggregation]\nsum = \"secagg\"\nmin_clients = 15\n");
    for (text, names_users) in [
        (sampled, false),
        (fixed, false),
        (unseeded(&gradients("uls")), false),
        (unseeded(&declared(&gradients("els"))), false),
        (tree, true),
        (secure, true),
    ] {
        let folder = Folder::trained(text);
        check_publication(&folder, "runs/tiny", names_users);
    }
}

#[test]
#[ignore = "slow"]
fn private_words_and_a_public_start_are_published_with_their_statements() {
    let folder = Folder::new();
    let rows = (0..60).map(|user| format!("u{user},\"The cat sat on own{user} mat\"\n"));
    folder.write("crowd.csv", format!("user_id,text\n{}", rows.collect::<String>()));
    folder.succeed(
        "data vocab --csv crowd.csv --validation 0 --test 0 --private --target-epsilon 4 --delta 1e-4 -o words.txt",
    );
    let source =
        "{ kind = \"csv\", path = \"crowd.csv\" }\nvocabulary = { kind = \"private\", path = \"words.txt\" }";
    folder.write("run.toml", unseeded(&over(source)));
    folder.succeed("train run.toml");
    let published = check_publication(&folder, "runs/tiny", false);
    assert!(published.contains_key("vocab.txt.privacy.json"));

    let folder = Folder::new();
    folder.write("public.toml", PUBLIC);
    folder.succeed("pretrain public.toml");
    let start = "rounds = 6\ninitial_model = \"runs/public/model.safetensors\"\n";
    let model = "family = \"cifg\"\ncells = 12\nembedding = 8\nprojection = 8\n";
    let text = unseeded(TINY)
        .replace("rounds = 6\n", start)
        .replace("family = \"dplm\"\nembed = 8\nhidden = 12\n", model);
    folder.write("run.toml", text);
    folder.succeed("train run.toml");
    let published = check_publication(&folder, "runs/tiny", false);
    assert!(published.contains_key("initial_model.json"));
}

#[test]
#[ignore = "slow"]
fn a_changed_or_added_file_of_a_published_folder_is_named() {
    let folder = Folder::trained(unseeded(TINY));
    folder.succeed("publish runs/tiny published");
    folder.write("published/metrics.jsonl", "{}\n");
    contains(
        &folder.disproved("published"),
        "metrics.jsonl: no file of a release",
    );
    std::fs::remove_file(folder.path("published/metrics.jsonl")).expect("removing");
    let honest = content(&folder, "published");
    let restore = || {
        for (name, bytes) in &honest {
            folder.write(&format!("published/{name}"), bytes);
        }
    };
    let forge = |file: &str, words: &str, change: &dyn Fn(&str) -> String| {
        let name = format!("published/{file}");
        let changed = change(&folder.text(&name));
        folder.write(&name, &changed);
        let manifest = document(&folder.text("published/manifest.json"), |manifest| {
            manifest["files"][file] = sha256(changed.as_bytes()).into();
            if file == "ledger.public.jsonl" {
                let last = changed.lines().last().expect("a line");
                manifest["ledger_head"] = sha256(last.as_bytes()).into();
            }
        });
        folder.write("published/manifest.json", manifest);
        contains(&folder.disproved("published"), words);
        restore();
    };
    let ledger = "ledger.public.jsonl";
    for (key, value, words) in [
        (
            "noise_multiplier",
            9.0,
            "line 3, noise_multiplier: expected 1, got 9",
        ),
        ("noise_std", 9.0, "line 3, noise_std: expected"),
        ("sampling_probability", 0.01, "sampling_probability"),
    ] {
        forge(ledger, words, &|text| {
            rechained(text, 2, |line| line[key] = value.into())
        });
    }
    forge(ledger, "line 3: unknown field `cohort_size`", &|text| {
        rechained(text, 2, |line| line["cohort_size"] = 20.into())
    });
    forge("privacy.json", "privacy.json, observed.epsilon", &|text| {
        document(text, |report| report["observed"]["epsilon"] = 0.1.into())
    });
    forge("privacy.md", "privacy.md, line", &|text| {
        text.replace("Observed: (", "Observed: (0 ")
    });
    forge("config.toml", "expected to follow", &|text| {
        text.replace("noise_multiplier = 1.0", "noise_multiplier = 2.0")
    });
    folder.succeed("verify published");
}

#[test]
#[ignore = "slow"]
fn a_run_that_its_guarantee_does_not_cover_is_not_published() {
    let refused = |text: &str, words: &str| {
        let folder = Folder::trained(text);
        folder.refuse("publish runs/tiny published", words);
        assert!(!folder.path("published").exists());
        let left = std::fs::read_dir(folder.path("")).expect("a folder");
        let names: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
        assert!(
            names
                .iter()
                .all(|name| !name.to_string_lossy().starts_with(".partial")),
            "{names:?}"
        );
    };
    refused(TINY, "config.toml, seed ... subtract the noise");
    let sampled = unseeded(TINY);
    refused(
        &sampled.replace("[privacy]\nnoise_multiplier = 1.0\ndelta = 1e-4\n", ""),
        "expected a run that adds noise",
    );
    refused(
        &unseeded(&gradients("els")),
        "counted on the text ... cohort.sampling_probability and estimator.expected_weight",
    );
    let folder = Folder::trained(sampled);
    folder.refuse("publish runs published", "manifest.json ... has not ended");
    folder.write("runs/tiny/vocab.txt", "changed\n");
    folder.refuse(
        "publish runs/tiny published",
        "vocab.txt: changed since the run ended",
    );
}

/// The words that a page may not use of a result, and the condition of a lower bound.
#[test]
#[ignore = "slow"]
fn no_page_promises_more_than_was_computed() {
    let folder = Folder::trained(unseeded(TINY));
    folder.write("facts.toml", crate::registry::FACTS);
    let mut pages = vec![folder.succeed("publish runs/tiny published --json")];
    pages.push(folder.succeed("verify published --json"));
    pages.push(folder.succeed("verify runs/tiny --json"));
    pages.push(folder.succeed("report runs/tiny --registry facts.toml --json"));
    for file in ["privacy.md", "privacy.json", "registry.json", "report.html"] {
        pages.push(folder.text(&format!("runs/tiny/{file}")));
    }
    for page in pages {
        check_words(&page);
        let lower = page.to_lowercase();
        let names_gaps = [" not ", "no file "].iter().any(|word| lower.contains(word));
        assert!(names_gaps, "nothing is said of what was not tested: {page}");
    }
    contains(
        &folder.text("runs/tiny/privacy.md"),
        "## Checklist ... not tested ... recomputed by",
    );
    // The rows of the run are for its operator.
    assert!(folder.text("runs/tiny/report.html").contains("keyboard top-1"));
    let mut outside = vec![folder.text("runs/tiny/registry.json")];
    for entry in std::fs::read_dir(folder.path("published")).expect("a folder") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a file");
        outside.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for text in outside {
        assert!(!text.contains("top-1") && !text.contains("top1"), "{text}");
    }
}

fn check_words(page: &str) {
    let lower = page.to_lowercase();
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    for word in ["safe", "proven private", "provably private", "guaranteed private"] {
        for (at, _) in lower.match_indices(word) {
            let before = lower[..at].chars().next_back();
            let after = lower[at + word.len()..].chars().next();
            // The format of the model's file is called safetensors.
            assert!(is_letter(before) || is_letter(after), "{word}: {page}");
        }
    }
    for sentence in lower
        .split(['.', '\n'])
        .filter(|text| text.contains("lower bound"))
    {
        assert!(
            sentence.contains("confidence"),
            "a bound without its confidence: {sentence}"
        );
    }
}

#[test]
#[should_panic(expected = "safe")]
fn the_test_of_words_can_fail() {
    check_words("The model is safe.");
}

#[test]
#[should_panic(expected = "a bound without its confidence")]
fn the_test_of_bounds_can_fail() {
    check_words("Epsilon has a lower bound of 0.4.");
}
