//! Low-rank adapters from run file to report: trained alone, on a base that stays as it is.

use crate::support::{
    Folder, PUBLIC, TINY, cases, check_determinism, contains, number, train_until_killed, with_algorithm,
};
use safetensors::SafeTensors;

const MODEL: &str = "family = \"transformer\"\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 16\n";

/// Public text for the base: the population of the tiny run, and its words.
fn public() -> String {
    PUBLIC
        .replace("steps = 12", "steps = 30")
        .replace("every = 6", "every = 30")
        .replace(
            "users = 100, words = 60 }",
            "users = 300, words = 60 }\nmax_sentence_tokens = 15",
        )
        .replace(
            "family = \"cifg\"\ncells = 12\nembedding = 8\nprojection = 8\n",
            MODEL,
        )
}

const LORA: &str = "[model.lora]\nrank = 2\nalpha = 4.0\ntargets = [\"qkv\", \"down\"]\n";

/// The tiny run with adapters on the public model, by one of the three algorithms.
fn tiny(algorithm: &str) -> String {
    let text = TINY
        .replace(
            "family = \"dplm\"\nembed = 8\nhidden = 12\n",
            &format!("{MODEL}{LORA}"),
        )
        .replace("words = 60 }", "words = 60 }\nmax_sentence_tokens = 15")
        .replace(
            "rounds = 6\n",
            "rounds = 6\ninitial_model = \"runs/public/model.safetensors\"\n",
        );
    if algorithm == "fedavg" {
        return text;
    }
    let server = "[server]\noptimizer = { kind = \"adam\" }\nlearning_rate = 0.01\n\n[checkpoint]";
    let text = text
        .replace("learning_rate = 1.0\nmax_examples = 8\n", "group_size = 4\n")
        .replace("[checkpoint]", server);
    with_algorithm(&text, algorithm)
}

/// A folder with the public model in it.
fn world() -> Folder {
    let folder = Folder::new();
    folder.write("public.toml", public());
    folder.succeed("pretrain public.toml");
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
#[ignore = "slow"]
fn every_algorithm_trains_adapters_alone() {
    let folder = world();
    let before = tensors(&folder, "runs/public/model.safetensors");
    for algorithm in ["fedavg", "uls", "els"] {
        let out = format!("{algorithm}-runs");
        folder.write("run.toml", tiny(algorithm));
        let summary = folder.json(format!("train run.toml --out {out}"));
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
        contains(&statements, &said);
        let page = folder.text(&format!("{out}/tiny/privacy.md"));
        contains(&page, &format!("**Adapters.** {trained} trained parameters of "));
        let run = format!("{out}/tiny");
        let verified = folder.json(format!("verify {run}")).to_string();
        contains(&verified, &format!("{trained} trained parameters of "));
        let evaluated = folder.json(format!("eval {run} --split validation"));
        assert!(number(&evaluated["perplexity"]) < 60.0, "{evaluated}");
        folder.succeed(format!("personalize {run} --users 3"));
        folder.succeed(format!("report {run}"));
    }
}

/// One parameter of the base is as much the run's model as one of the adapters.
#[test]
#[ignore = "slow"]
fn verify_finds_another_base() {
    let folder = world();
    folder.write("run.toml", tiny("uls"));
    folder.succeed("train run.toml");
    let mut bytes = folder.read("runs/tiny/model.safetensors");
    let whole = bytes.clone();
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let file = SafeTensors::deserialize(&whole).expect("safetensors");
    let place =
        file.tensor("embedding").expect("a tensor").data().as_ptr() as usize - whole.as_ptr() as usize;
    assert!(place >= 8 + header);
    bytes[place] ^= 1;
    folder.write("runs/tiny/model.safetensors", &bytes);
    contains(
        &folder.disproved("runs/tiny"),
        "the ledger's last round ended with",
    );
}

#[test]
#[ignore = "slow"]
fn threads_and_resuming_change_nothing_and_another_base_is_refused() {
    let folder = world();
    check_determinism(&folder, &tiny("uls"));
    train_until_killed(&folder, "three");
    let other = public().replace("steps = 30", "steps = 31");
    folder.write("public.toml", other);
    std::fs::remove_dir_all(folder.path("runs/public")).expect("removing");
    folder.succeed("pretrain public.toml");
    let said = folder.fail("train run.toml --out three --resume");
    contains(&said, "belongs to a different model");
    contains(&said, "parameters of adapters to those of SHA-256");
}

#[test]
#[ignore = "slow"]
fn what_cannot_be_adapted_is_refused_by_key() {
    let folder = world();
    folder.write("run.toml", tiny("uls"));
    let transcript = r#"
        $ SET model.lora.rank=0
        `lora.rank`: expected from 1 to 16, the smaller side of `qkv`, got 0
        $ SET model.lora.rank=17
        `lora.rank`: expected from 1 to 16, the smaller side of `qkv`, got 17
        $ SET model.lora.alpha=-1.0
        `lora.alpha`: expected a finite number above 0, got -1
        $ SET model.lora.targets=[]
        `lora.targets`: expected different ones of `qkv`
        $ SET model.lora.targets=["embedding"]
        `model.lora.targets[0]`: expected one of "qkv" ... got "embedding"
        $ SET model.lora.dropout=0.1
        there is no key `model.lora.dropout`
        $ SET model.heads=4
        `model.heads`: expected 4, found 2
        "#;
    for (line, parts) in cases(&transcript.replace("SET", "train run.toml --out bad --set")) {
        folder.refuse(line, parts);
        assert!(!folder.path("bad/tiny").exists(), "{line} left a run behind");
    }
    let alone = tiny("uls").replace("initial_model = \"runs/public/model.safetensors\"\n", "");
    folder.write("alone.toml", alone);
    folder.refuse(
        "train alone.toml --out bad",
        "`initial_model` is missing: expected the trained model",
    );
    folder.write("lstm.toml", format!("{TINY}\n{LORA}"));
    folder.refuse(
        "train lstm.toml --out bad",
        "`model.lora` is a key of model.family = \"transformer\"",
    );

    // Adapters go on from adapters like them alone; a model without adapters starts from the sum.
    folder.succeed("train run.toml");
    let next = |lora: &str| {
        tiny("uls")
            .replace("name = \"tiny\"", "name = \"next\"")
            .replace("runs/public", "runs/tiny")
            .replace(LORA, lora)
    };
    folder.write("next.toml", next(LORA));
    folder.succeed("train next.toml --out next");
    folder.refuse(
        "train next.toml --out bad --set model.lora.rank=3",
        "runs/tiny/model.safetensors: `model.lora.rank`: expected 3, found 2",
    );
    folder.write("whole.toml", next(""));
    folder.succeed("train whole.toml --out whole --set rounds=1");
}
