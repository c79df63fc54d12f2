//! Runs by example-level and user-level sampling: the same bytes whatever happens, and every change to them is found.

use serde_json::Value;

use crate::support::{Folder, TINY, same_files, train_until_killed};
use crate::verify::{document, rechained, sha256};

/// The tiny run by one of the two algorithms.
fn tiny(algorithm: &str) -> String {
    let text = TINY
        .replace(
            "batch_size = 4\nlearning_rate = 1.0\nmax_examples = 8\n",
            "group_size = 4\nbatch_size = 4\n",
        )
        .replace("algorithm = \"fedavg\"", &format!("algorithm = \"{algorithm}\""));
    match algorithm {
        "els" => text
            .replace("users_per_round = 20", "examples_per_round = 60")
            .replace("delta = 1e-4", "delta = 1e-4\naccountant = \"pld\""),
        _ => text,
    }
}

/// Makes the manifest fit the files, as a forger would.
fn remake_manifest(folder: &Folder, run: &str) {
    let text = String::from_utf8(folder.read(&format!("{run}/manifest.json"))).expect("text");
    let ledger = String::from_utf8(folder.read(&format!("{run}/ledger.jsonl"))).expect("text");
    let again = document(&text, |file| {
        for (name, digest) in file["files"].as_object_mut().expect("files") {
            *digest = sha256(&folder.read(&format!("{run}/{name}"))).into();
        }
        file["ledger_head"] = sha256(ledger.lines().last().expect("a line").as_bytes()).into();
    });
    folder.write(&format!("{run}/manifest.json"), again);
}

/// The digest that the ledger's first line follows, in a run without mechanism and private words.
fn genesis(folder: &Folder, run: &str) -> String {
    let mut bytes = b"undertone ledger\0".to_vec();
    for part in [
        folder.read(&format!("{run}/config.toml")),
        Vec::new(),
        folder.read(&format!("{run}/vocab.txt")),
    ] {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part);
    }
    sha256(&bytes)
}

/// The output of `verify`, on one line.
fn verified(folder: &Folder, run: &str) -> (bool, String) {
    let output = folder.run(&["verify", run]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    // Tables wrap lines.
    (
        output.status.success(),
        shown.split_whitespace().collect::<Vec<_>>().join(" "),
    )
}

#[test]
fn threads_and_kills_change_nothing() {
    for algorithm in ["uls", "els"] {
        let folder = Folder::new();
        let config = tiny(algorithm)
            .replace("every = 2\nmax_tokens", "every = 1\nmax_tokens")
            .replace("rounds = 6", "rounds = 30")
            .replace(
                "[checkpoint]",
                "[server]\noptimizer = { kind = \"adafactor\" }\nlearning_rate = 0.01\n\n[checkpoint]",
            );
        folder.write("run.toml", &config);
        folder.succeed(&["train", "run.toml", "--out", "one", "--threads", "1"]);
        folder.succeed(&["train", "run.toml", "--out", "two", "--threads", "2"]);
        same_files(&folder, "one", "two");
        train_until_killed(&folder, "cut");
        folder.succeed(&["train", "run.toml", "--out", "cut", "--resume", "--threads", "1"]);
        same_files(&folder, "one", "cut");
        folder.succeed(&["verify", "cut/tiny"]);
    }
}

/// In the ledger alone, and in the run file with everything after it made to fit.
#[test]
fn verify_finds_another_group_size() {
    for algorithm in ["uls", "els"] {
        let folder = Folder::new();
        folder.write("run.toml", tiny(algorithm));
        folder.succeed(&["train", "run.toml", "--out", "runs"]);
        folder.succeed(&["verify", "runs/tiny"]);
        let whole = String::from_utf8(folder.read("runs/tiny/ledger.jsonl")).expect("text");
        let forge = |words: &str, change: &dyn Fn(&mut Value)| {
            folder.write("runs/tiny/ledger.jsonl", rechained(&whole, 2, change));
            remake_manifest(&folder, "runs/tiny");
            let (holds, said) = verified(&folder, "runs/tiny");
            assert!(!holds && said.contains(words), "{algorithm}: {said}");
        };
        forge("line 3, group_size: expected 4, got 2", &|line| {
            line["group_size"] = 2.into();
        });
        forge("line 3, group_size: expected 4, got no value", &|line| {
            line.as_object_mut().expect("a line").remove("group_size");
        });
        forge("line 3, examples: expected from", &|line| {
            line["examples"] = 100_000.into();
        });
        forge("line 3, examples: expected from", &|line| {
            line["examples"] = 0.into();
        });
        // The most thorough forger changes the run file too, and makes everything after it fit.
        let config = String::from_utf8(folder.read("runs/tiny/config.toml")).expect("text");
        folder.write(
            "runs/tiny/config.toml",
            config.replace("group_size = 4", "group_size = 2"),
        );
        let genesis = genesis(&folder, "runs/tiny");
        let again = whole.replace("\"group_size\":4", "\"group_size\":2");
        let again = rechained(&again, 0, |line| line["previous_sha256"] = genesis.clone().into());
        folder.write("runs/tiny/ledger.jsonl", again);
        remake_manifest(&folder, "runs/tiny");
        let (holds, said) = verified(&folder, "runs/tiny");
        assert!(!holds, "{said}");
        match algorithm {
            "els" => assert!(
                said.contains("privacy.json, observed.epsilon: expected"),
                "{said}"
            ),
            _ => assert!(said.contains("privacy.json, statements"), "{said}"),
        }
    }
}

#[test]
fn the_report_says_what_is_bounded() {
    let folder = Folder::new();
    folder.write("run.toml", tiny("els"));
    folder.succeed(&["train", "run.toml", "--out", "runs"]);
    let report: Value = serde_json::from_slice(&folder.read("runs/tiny/privacy.json")).expect("JSON");
    let statements = report["statements"].to_string();
    assert!(
        statements.contains("each kept example takes part independently"),
        "{statements}"
    );
    assert!(
        statements.contains("at most 4 a user are ever read"),
        "{statements}"
    );
    assert!(
        statements.contains("microbatches of 4, in single precision"),
        "{statements}"
    );
    assert_eq!(report["observed"]["group_size"], 4);

    let shuffled = tiny("uls")
        .replace("sampling = \"poisson\"", "sampling = \"shuffled_epochs\"")
        .replace("name = \"tiny\"", "name = \"shuffled\"");
    folder.write(
        "shuffled.toml",
        format!("{shuffled}\n[privacy.mechanism]\nkind = \"independent\"\n"),
    );
    folder.succeed(&["train", "shuffled.toml", "--out", "runs"]);
    folder.succeed(&["verify", "runs/shuffled"]);
    let report: Value = serde_json::from_slice(&folder.read("runs/shuffled/privacy.json")).expect("JSON");
    let statements = report["statements"].to_string();
    assert!(
        statements.contains("Nothing is amplified by sampling"),
        "{statements}"
    );
}

#[test]
fn personalisation_is_the_same_at_any_number_of_threads() {
    let folder = Folder::new();
    folder.write("run.toml", TINY);
    folder.succeed(&["train", "run.toml", "--out", "out"]);
    let with = |more: &[&str]| {
        folder.succeed(
            &[
                &["personalize", "out/tiny", "--json", "--learning-rate", "1.0"],
                more,
            ]
            .concat(),
        )
    };
    let one = with(&["--threads", "1", "--svg", "one.svg"]);
    assert_eq!(one, with(&["--threads", "2"]));
    let done: Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!(
        (done["split"].as_str(), done["options"]["epochs"].as_u64()),
        (Some("test"), Some(4))
    );
    assert_eq!(
        done["users"].as_u64(),
        done["loss_deltas"].as_array().map(|deltas| deltas.len() as u64)
    );
    assert!(
        done["note"]
            .as_str()
            .expect("a note")
            .contains("outside the run's guarantee")
    );
    assert!(
        String::from_utf8(folder.read("one.svg"))
            .expect("text")
            .contains("change of their loss")
    );
    let few: Value = serde_json::from_str(&with(&["--users", "5"])).expect("JSON");
    assert!(few["users"].as_u64().expect("a number") <= 5);
    let table = folder.succeed(&["personalize", "out/tiny", "--users", "5"]);
    assert!(
        table.contains("improved for") && table.contains("stay with their users"),
        "{table}"
    );

    let refused = |arguments: &[&str], words: &str| {
        let said = folder.fail(&[&["personalize"], arguments].concat());
        assert!(said.contains(words), "{arguments:?}: {said}");
    };
    refused(&["out/tiny", "--epochs", "0"], "`--epochs`: expected at least 1");
    refused(&["out/tiny", "--users", "0"], "`--users`: expected at least 1");
    refused(
        &["out/tiny", "--learning-rate", "-1"],
        "`--learning-rate`: expected a finite number above 0, got -1",
    );
    refused(&["nowhere"], "nowhere");
}
