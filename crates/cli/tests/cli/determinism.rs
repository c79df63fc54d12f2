//! Equal seeds give equal bytes: at any number of threads, and after a kill in the middle.

use crate::support::{Folder, TINY, long, same_files, train_until_killed};

fn model(folder: &Folder, out: &str) -> Vec<u8> {
    folder.read(&format!("{out}/tiny/model.safetensors"))
}

#[test]
fn one_and_two_threads_give_the_same_model() {
    let folder = Folder::with(TINY);
    folder.succeed("train run.toml --out one --threads 1");
    folder.succeed("train run.toml --out two --threads 2");
    assert!(model(&folder, "one") == model(&folder, "two"));
    let ledger = |out: &str| folder.text(&format!("{out}/tiny/ledger.jsonl"));
    assert_eq!(ledger("one"), ledger("two"));
}

#[test]
fn another_seed_gives_another_model_and_no_seed_gives_fresh_noise() {
    let folder = Folder::with(TINY);
    folder.write("unseeded.toml", TINY.replace("seed = 3\n", ""));
    folder.succeed("train run.toml --out a");
    folder.succeed("train run.toml --out b --set seed=4");
    folder.succeed("train unseeded.toml --out c");
    folder.succeed("train unseeded.toml --out d");
    let models = ["a", "b", "c", "d"].map(|out| model(&folder, out));
    for (i, one) in models.iter().enumerate() {
        for other in &models[i + 1..] {
            assert!(one != other, "two models are the same");
        }
    }
}

#[test]
fn a_killed_run_resumes_to_the_same_bytes() {
    let folder = Folder::new();
    // Checkpoints every second round, evaluations every round: the kill comes after round 3 or later, between checkpoints.
    folder.write("run.toml", long(TINY));
    folder.succeed("train run.toml --out whole");

    train_until_killed(&folder, "cut");
    assert!(!folder.path("cut/tiny/model.safetensors").exists());

    folder.succeed("train run.toml --out cut --resume --threads 1");
    same_files(&folder, "whole", "cut");
}
