//! Runs by example-level and user-level sampling: the same bytes whatever happens, and every change to them is found.

use serde_json::Value;

use crate::support::{Folder, TINY, check_determinism, contains, gradients, json, number};
use crate::verify::{document, rechained, sha256};

/// Makes the manifest fit the files, as a forger would.
fn remake_manifest(folder: &Folder, run: &str) {
    let text = folder.text(&format!("{run}/manifest.json"));
    let ledger = folder.text(&format!("{run}/ledger.jsonl"));
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

#[test]
#[ignore = "slow"]
fn threads_and_kills_change_nothing() {
    for algorithm in ["uls", "els"] {
        let server = "[server]\noptimizer = { kind = \"adafactor\" }\nlearning_rate = 0.01\n\n[checkpoint]";
        check_determinism(
            &Folder::new(),
            &gradients(algorithm).replace("[checkpoint]", server),
        );
    }
}

/// A forged group size is found in the ledger alone, and in the run file with everything after it made to fit.
#[test]
#[ignore = "slow"]
fn verify_finds_another_group_size() {
    for algorithm in ["uls", "els"] {
        let folder = Folder::trained(gradients(algorithm));
        folder.succeed("verify runs/tiny");
        let whole = folder.text("runs/tiny/ledger.jsonl");
        let forge = |words: &str, change: &dyn Fn(&mut Value)| {
            folder.write("runs/tiny/ledger.jsonl", rechained(&whole, 2, change));
            remake_manifest(&folder, "runs/tiny");
            contains(&folder.disproved("runs/tiny"), words);
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
        let config = folder.text("runs/tiny/config.toml");
        folder.write(
            "runs/tiny/config.toml",
            config.replace("group_size = 4", "group_size = 2"),
        );
        let genesis = genesis(&folder, "runs/tiny");
        let again = whole.replace("\"group_size\":4", "\"group_size\":2");
        let again = rechained(&again, 0, |line| line["previous_sha256"] = genesis.clone().into());
        folder.write("runs/tiny/ledger.jsonl", again);
        remake_manifest(&folder, "runs/tiny");
        let words = match algorithm {
            "els" => "privacy.json, observed.epsilon: expected",
            _ => "privacy.json, statements",
        };
        contains(&folder.disproved("runs/tiny"), words);
    }
}

#[test]
#[ignore = "slow"]
fn the_report_says_what_is_bounded() {
    let folder = Folder::trained(gradients("els"));
    let report: Value = json(&folder.text("runs/tiny/privacy.json"));
    let statements = report["statements"].to_string();
    contains(
        &statements,
        "each kept example takes part independently ... at most 4 per user are ever read ... \
         microbatches of 4, in single precision",
    );
    assert_eq!(report["observed"]["group_size"], 4);

    let shuffled = gradients("uls")
        .replace("sampling = \"poisson\"", "sampling = \"shuffled_epochs\"")
        .replace("name = \"tiny\"", "name = \"shuffled\"");
    folder.write(
        "shuffled.toml",
        format!("{shuffled}\n[privacy.mechanism]\nkind = \"independent\"\n"),
    );
    folder.succeed("train shuffled.toml --out runs");
    folder.succeed("verify runs/shuffled");
    let report: Value = json(&folder.text("runs/shuffled/privacy.json"));
    let statements = report["statements"].to_string();
    contains(&statements, "Nothing is amplified by sampling");
}

#[test]
#[ignore = "slow"]
fn personalisation_is_the_same_at_any_number_of_threads() {
    let folder = Folder::with(TINY);
    folder.succeed("train run.toml --out out");
    let with = |more: &str| folder.succeed(format!("personalize out/tiny --json --learning-rate 1.0 {more}"));
    let one = with("--threads 1 --svg one.svg");
    assert_eq!(one, with("--threads 2"));
    let done = json(&one);
    assert_eq!(
        (done["split"].as_str(), done["options"]["epochs"].as_u64()),
        (Some("test"), Some(4))
    );
    assert_eq!(
        done["users"].as_u64(),
        done["loss_deltas"].as_array().map(|deltas| deltas.len() as u64)
    );
    contains(&done["note"].to_string(), "outside the run's guarantee");
    contains(&folder.text("one.svg"), "change of their loss");
    let few = json(&with("--users 5"));
    assert!(number(&few["users"]) <= 5.0);
    folder.show(
        "personalize out/tiny --users 5",
        "learning rate 0.02 ... improved for ... stay with their users",
    );
    let worse = "The loss became worse on average. Try --learning-rate";
    folder.show("personalize out/tiny --learning-rate 20", &format!("{worse} 5"));
    let mean = number(&folder.json("personalize out/tiny")["loss"]["delta"]["mean"]);
    let shown = folder.succeed("personalize out/tiny");
    assert_eq!(shown.contains(worse), mean > 0.0, "{mean}: {shown}");

    folder.refuses(
        "
        $ personalize out/tiny --epochs 0
        `--epochs`: expected at least 1
        $ personalize out/tiny --users 0
        `--users`: expected at least 1
        $ personalize out/tiny --learning-rate -1
        `--learning-rate`: expected a finite number above 0, got -1
        $ personalize nowhere
        nowhere
        ",
    );
}
