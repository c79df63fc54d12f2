//! `predict` and `generate` over every form in which a model is kept.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Folder, TINY, json, long, number, train_until_killed};

const TRANSFORMER: &str = "family = \"transformer\"\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 16\n";

fn transformer() -> String {
    TINY.replace("family = \"dplm\"\nembed = 8\nhidden = 12\n", TRANSFORMER)
        .replace("words = 60 }", "words = 60 }\nmax_sentence_tokens = 15")
}

/// The predictions of a command, which must be words with falling probabilities.
fn predictions(document: &Value) -> Vec<(String, f64)> {
    let all: Vec<(String, f64)> = document
        .as_array()
        .expect("a list")
        .iter()
        .map(|each| {
            (
                each["word"].as_str().expect("a word").to_owned(),
                number(&each["probability"]),
            )
        })
        .collect();
    assert!(all.is_sorted_by(|a, b| a.1 >= b.1), "{all:?}");
    assert!(
        all.iter()
            .all(|(word, probability)| !word.is_empty() && (0.0..=1.0).contains(probability))
    );
    all
}

#[test]
#[ignore = "slow"]
fn a_run_predicts_and_generates() {
    let folder = Folder::trained(TINY);
    let vocabulary = folder.text("runs/tiny/vocab.txt");
    let word = vocabulary.lines().next().expect("a word");
    let all = predictions(&folder.json(format!("predict runs/tiny {word} --top 1000")));
    assert_eq!(
        all.len(),
        vocabulary.lines().count(),
        "every word, and no special id"
    );
    let sum: f64 = all.iter().map(|(_, probability)| probability).sum();
    assert!(
        sum > 0.3 && sum < 1.0,
        "the end of a sentence and unknown words have the rest: {sum}"
    );
    let five = predictions(&folder.json(format!("predict runs/tiny {word}")));
    assert_eq!(five, all[..5]);
    folder.show(
        format!("predict runs/tiny {word} --top 2"),
        &format!("{} ... %", all[0].0),
    );
    let made = folder.json("generate runs/tiny --tokens 9 --samples 3 --seed 4 --ignore-end");
    assert_eq!(made["texts"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&made["tokens"], &made["options"]["seed"]),
        (&Value::from(27), &Value::from(4))
    );
    let again = folder.json("generate runs/tiny --tokens 9 --samples 3 --seed 4 --ignore-end");
    assert_eq!(made["texts"], again["texts"]);
    for text in made["texts"].as_array().expect("a list") {
        assert_eq!(text["ended"], "length");
        let words: Vec<&str> = text["text"].as_str().expect("text").split_whitespace().collect();
        assert!(
            words.len() == 9
                && words
                    .iter()
                    .all(|word| vocabulary.lines().any(|known| known == *word))
        );
    }
    // Without --json the texts stand one below the other.
    let shown = folder.succeed("generate runs/tiny one two --tokens 2 --seed 1 --ignore-end");
    assert_eq!(shown.matches('…').count(), 2);
    assert!(shown.starts_with("one ") && shown.contains("\ntwo "), "{shown}");
}

#[test]
#[ignore = "slow"]
fn standard_input_gives_a_prefix_per_line() {
    let folder = Folder::trained(TINY);
    let lines = |json: bool| {
        let line = format!("predict runs/tiny --top 3{}", if json { " --json" } else { "" });
        let mut child = folder
            .command(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(b"ba be\n\nthe")
            .expect("writing");
        let output = child.wait_with_output().expect("waiting");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let document = json(&lines(true));
    let prefixes: Vec<&Value> = document
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| &line["prefix"])
        .collect();
    assert_eq!(prefixes, ["ba be", "", "the"]);
    for line in document.as_array().expect("a list") {
        assert_eq!(predictions(&line["predictions"]).len(), 3);
    }
    assert_eq!(lines(false).lines().filter(|line| line.contains('→')).count(), 3);
}

/// A transformer's run, both of its exports, and the file of each predict the same.
#[test]
#[ignore = "slow"]
fn exported_models_predict_what_their_run_predicts() {
    let folder = Folder::trained(transformer());
    let of_run = predictions(&folder.json("predict runs/tiny ba --top 7"));
    for layout in ["gpt2", "undertone"] {
        folder.succeed(format!("export runs/tiny --layout {layout} --out {layout}"));
        for path in [layout.to_owned(), format!("{layout}/model.safetensors")] {
            let found = predictions(&folder.json(format!("predict {path} ba --top 7")));
            for (found, expected) in found.iter().zip(&of_run) {
                assert_eq!(found.0, expected.0);
                assert!((found.1 - expected.1).abs() < 1e-6);
            }
        }
    }
    // 40 tokens are more than the context of 16.
    let made = folder.json("generate gpt2 ba --tokens 40 --temperature 0 --ignore-end");
    assert_eq!(made["tokens"], 40);
}

#[test]
#[ignore = "slow"]
fn a_run_that_was_cut_off_gives_the_model_of_its_checkpoint() {
    let folder = Folder::with(long(TINY));
    train_until_killed(&folder, "cut");
    let early = predictions(&folder.json("predict cut/tiny ba --top 4"));
    assert_eq!(early.len(), 4);
    folder.succeed("train run.toml --out cut --resume");
    let late = predictions(&folder.json("predict cut/tiny ba --top 4"));
    assert_ne!(early, late);
}

#[test]
#[ignore = "slow"]
fn what_is_no_model_is_refused() {
    let folder = Folder::trained(TINY);
    folder.write("other.txt", "text");
    std::fs::create_dir(folder.path("empty")).expect("a folder");
    std::fs::create_dir(folder.path("broken")).expect("a folder");
    folder.write("broken/model.safetensors", "nonsense");
    folder.refuses(
        "
        $ predict nowhere the
        nowhere holds no model ... config.toml or model.safetensors
        $ predict empty the
        empty holds no model
        $ predict other.txt the
        other.txt holds no model ... model.safetensors
        $ predict broken the
        broken/model.safetensors ... safetensors
        $ predict runs/tiny the --top 0
        1..=1000
        $ generate runs/tiny --temperature -1
        `--temperature`: expected a finite number that is at least 0, got -1
        $ generate runs/tiny --top-p 2
        `--top-p`
        $ generate runs/tiny --tokens 0
        `--tokens`: expected at least 1, got 0
        ",
    );
    // A run without its first checkpoint has no model yet.
    std::fs::remove_file(folder.path("runs/tiny/model.safetensors")).expect("a model");
    folder.refuse("generate runs/tiny", "model.safetensors or a checkpoint");
}
