//! Low-rank adapters from run file to report: trained alone, on a base that stays as it is.

use crate::support::{Folder, TINY, json, same_files, train_until_killed};
use safetensors::SafeTensors;

/// Public text for the base: the population of the tiny run, and its words.
const PUBLIC: &str = r#"
name = "public"
steps = 30

[data]
source = { kind = "synthetic", users = 300, words = 60 }
max_sentence_tokens = 15

[model]
family = "transformer"
layers = 2
width = 16
heads = 2
context = 16

[training]
batch_size = 32
optimizer = { kind = "adam" }
learning_rate = 0.01

[evaluation]
every = 30
max_tokens = 500
"#;

const LORA: &str = "[model.lora]\nrank = 2\nalpha = 4.0\ntargets = [\"qkv\", \"down\"]\n";

/// The tiny run with adapters on the public model, by one of the three algorithms.
fn tiny(algorithm: &str) -> String {
    let model = "family = \"transformer\"\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 16\n";
    let text = TINY
        .replace(
            "family = \"dplm\"\nembed = 8\nhidden = 12\n",
            &format!("{model}{LORA}"),
        )
        .replace("words = 60 }", "words = 60 }\nmax_sentence_tokens = 15")
        .replace(
            "rounds = 6\n",
            "rounds = 6\ninitial_model = \"runs/public/model.safetensors\"\n",
        );
    let text = match algorithm {
        "fedavg" => return text,
        other => text
            .replace("algorithm = \"fedavg\"", &format!("algorithm = \"{other}\""))
            .replace("learning_rate = 1.0\nmax_examples = 8\n", "group_size = 4\n"),
    };
    let server = "[server]\noptimizer = { kind = \"adam\" }\nlearning_rate = 0.01\n\n[checkpoint]";
    let text = text.replace("[checkpoint]", server);
    match algorithm {
        "els" => text
            .replace("users_per_round = 20", "examples_per_round = 60")
            .replace("delta = 1e-4", "delta = 1e-4\naccountant = \"pld\""),
        _ => text,
    }
}

/// A folder with the public model in it.
fn world() -> Folder {
    let folder = Folder::new();
    folder.write("public.toml", PUBLIC);
    folder.succeed(&["pretrain", "public.toml"]);
    folder
}

/// Name and bytes of every tensor of a file, in the order of their names.
fn tensors(folder: &Folder, file: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = folder.read(file);
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut tensors: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(name, tensor)| (name, tensor.data().to_vec()))
        .collect();
    tensors.sort();
    tensors
}

#[test]
fn every_algorithm_trains_adapters_alone() {
    let folder = world();
    let before = tensors(&folder, "runs/public/model.safetensors");
    for algorithm in ["fedavg", "uls", "els"] {
        let out = format!("{algorithm}-runs");
        folder.write("run.toml", tiny(algorithm));
        let summary = json(&folder.succeed(&["train", "run.toml", "--out", &out, "--json"]));
        let after = tensors(&folder, &format!("{out}/tiny/model.safetensors"));
        let (adapters, base): (Vec<_>, Vec<_>) = after
            .into_iter()
            .partition(|(name, _)| name.ends_with("_a") || name.ends_with("_b"));
        assert!(base == before, "{algorithm}: the base has changed");
        // Two matrices of two blocks, and noise on every one.
        assert_eq!(adapters.len(), 8, "{algorithm}");
        for (name, bytes) in &adapters {
            assert!(bytes.iter().any(|&byte| byte != 0), "{algorithm}: {name} is zero");
        }
        // 2 blocks of rank 2: inputs and outputs of both matrices.
        let trained = 2 * 2 * (16 + 48 + 64 + 16);
        let statements = summary["privacy"]["statements"].to_string();
        let said = format!("Adapters: {trained} trained parameters of ");
        assert!(statements.contains(&said), "{statements}");
        let page = String::from_utf8(folder.read(&format!("{out}/tiny/privacy.md"))).expect("text");
        assert!(
            page.contains(&format!("**Adapters.** {trained} trained parameters of ")),
            "{page}"
        );
        let run = format!("{out}/tiny");
        let verified = json(&folder.succeed(&["verify", &run, "--json"])).to_string();
        assert!(
            verified.contains(&format!("{trained} trained parameters of ")),
            "{verified}"
        );
        let evaluated = json(&folder.succeed(&["eval", &run, "--split", "validation", "--json"]));
        assert!(
            evaluated["perplexity"].as_f64().expect("a number") < 60.0,
            "{evaluated}"
        );
        folder.succeed(&["personalize", &run, "--users", "3"]);
        folder.succeed(&["report", &run]);
    }
}

/// One parameter of the base is as much the run's model as one of the adapters.
#[test]
fn verify_finds_another_base() {
    let folder = world();
    folder.write("run.toml", tiny("uls"));
    folder.succeed(&["train", "run.toml"]);
    let mut bytes = folder.read("runs/tiny/model.safetensors");
    let whole = bytes.clone();
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let file = SafeTensors::deserialize(&whole).expect("safetensors");
    let place =
        file.tensor("embedding").expect("a tensor").data().as_ptr() as usize - whole.as_ptr() as usize;
    assert!(place >= 8 + header);
    bytes[place] ^= 1;
    folder.write("runs/tiny/model.safetensors", &bytes);
    let output = folder.run(&["verify", "runs/tiny", "--json"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("the ledger's last round ended with"), "{said}");
}

#[test]
fn threads_and_resuming_change_nothing_and_another_base_is_refused() {
    let folder = world();
    let config = tiny("uls")
        .replace("every = 2\nmax_tokens", "every = 1\nmax_tokens")
        .replace("rounds = 6", "rounds = 30");
    folder.write("run.toml", config);
    folder.succeed(&["train", "run.toml", "--out", "one", "--threads", "1"]);
    folder.succeed(&["train", "run.toml", "--out", "two", "--threads", "2"]);
    same_files(&folder, "one", "two");
    train_until_killed(&folder, "cut");
    folder.succeed(&["train", "run.toml", "--out", "cut", "--resume"]);
    same_files(&folder, "one", "cut");
    train_until_killed(&folder, "three");
    let other = PUBLIC.replace("steps = 30", "steps = 31");
    folder.write("public.toml", other);
    std::fs::remove_dir_all(folder.path("runs/public")).expect("removing");
    folder.succeed(&["pretrain", "public.toml"]);
    let said = folder.fail(&["train", "run.toml", "--out", "three", "--resume"]);
    assert!(said.contains("belongs to a different model"), "{said}");
    assert!(
        said.contains("parameters of adapters to those of SHA-256"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_adapted_is_refused_by_key() {
    let folder = world();
    folder.write("run.toml", tiny("uls"));
    let check = |set: &[&str], expected: &str| {
        let sets: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        let said = folder.fail(&[&["train", "run.toml", "--out", "bad"][..], &sets].concat());
        assert!(said.contains(expected), "{set:?}: {said}");
        assert!(!folder.path("bad/tiny").exists(), "{set:?} left a run behind");
    };
    check(
        &["model.lora.rank=0"],
        "`lora.rank`: expected from 1 to 16, the smaller side of `qkv`, got 0",
    );
    check(
        &["model.lora.rank=17"],
        "`lora.rank`: expected from 1 to 16, the smaller side of `qkv`, got 17",
    );
    check(
        &["model.lora.alpha=-1.0"],
        "`lora.alpha`: expected a finite number above 0, got -1",
    );
    check(
        &["model.lora.targets=[]"],
        "`lora.targets`: expected different ones of `qkv`",
    );
    check(
        &["model.lora.targets=[\"embedding\"]"],
        "unknown variant `embedding`",
    );
    check(&["model.lora.dropout=0.1"], "unknown field `dropout`");
    check(&["model.heads=4"], "`model.heads`: expected 4, found 2");
    let alone = tiny("uls").replace("initial_model = \"runs/public/model.safetensors\"\n", "");
    folder.write("alone.toml", alone);
    let said = folder.fail(&["train", "alone.toml", "--out", "bad"]);
    assert!(
        said.contains("`initial_model` is missing: expected the trained model"),
        "{said}"
    );
    folder.write(
        "lstm.toml",
        format!("{TINY}\n{LORA}").replace("[model.lora]", "[model.lora]"),
    );
    let said = folder.fail(&["train", "lstm.toml", "--out", "bad"]);
    assert!(said.contains("unknown field `lora`"), "{said}");

    // Adapters go on from adapters like them alone; a model without adapters starts from the sum.
    folder.succeed(&["train", "run.toml"]);
    let next = |lora: &str| {
        tiny("uls")
            .replace("name = \"tiny\"", "name = \"next\"")
            .replace("runs/public", "runs/tiny")
            .replace(LORA, lora)
    };
    folder.write("next.toml", next(LORA));
    folder.succeed(&["train", "next.toml", "--out", "next"]);
    let said = folder.fail(&["train", "next.toml", "--out", "bad", "--set", "model.lora.rank=3"]);
    assert!(
        said.contains("runs/tiny/model.safetensors: `model.lora.rank`: expected 3, found 2"),
        "{said}"
    );
    folder.write("whole.toml", next(""));
    folder.succeed(&["train", "whole.toml", "--out", "whole", "--set", "rounds=1"]);
}
