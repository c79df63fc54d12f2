//! Models of Llama's family from a folder of `transformers` to run, predictions, adapters and exports.

use serde_json::Value;

use crate::support::{Folder, TINY, json};

/// A model in the layout of Llama with grouped queries, whose tensors are drawn by a pre-training of one step.
const MODEL: &str = "family = \"llama\"\nlayers = 2\nwidth = 16\nheads = 4\nkey_heads = 2\nhead_width = 6\ninner = 20\ncontext = 16\n\
                     rotary_base = 500.0\nbiases = [\"qkv\"]\nrows = 70\n";

fn run(name: &str, start: &str, more: &str) -> String {
    TINY.replace("name = \"tiny\"", &format!("name = \"{name}\""))
        .replace(
            "family = \"dplm\"\nembed = 8\nhidden = 12\n",
            &format!("{MODEL}{more}"),
        )
        .replace("words = 60 }", "words = 60 }\nmax_sentence_tokens = 15")
        .replace("rounds = 6\n", &format!("rounds = 4\n{start}"))
        .replace("algorithm = \"fedavg\"", "algorithm = \"uls\"")
        .replace("learning_rate = 1.0\nmax_examples = 8\n", "group_size = 4\n")
        .replace(
            "[checkpoint]",
            "[server]\noptimizer = { kind = \"adam\" }\nlearning_rate = 0.01\n\n[checkpoint]",
        )
}

/// The predictions after a text.
fn predictions(folder: &Folder, from: &str) -> Vec<(String, f64)> {
    let found = folder.json(format!("predict {from} ba --top 20"));
    let entry = |entry: &Value| {
        let word = entry["word"].as_str().expect("a word").to_owned();
        (word, entry["probability"].as_f64().expect("a number"))
    };
    found.as_array().expect("a list").iter().map(entry).collect()
}

fn check_equal(folder: &Folder, a: &str, b: &str) {
    let (a, b) = (predictions(folder, a), predictions(folder, b));
    assert_eq!(a.len(), b.len());
    for ((word, a), (other, b)) in a.iter().zip(&b) {
        assert!(word == other && (a - b).abs() < 1e-6, "{word} {a} {other} {b}");
    }
}

#[test]
#[ignore = "slow"]
fn exports_open_and_start_runs_and_adapters_merge_into_them() {
    let folder = Folder::new();
    folder.write("base.toml", run("base", "", ""));
    folder.succeed("train base.toml");
    // One file and several, by their folder and by their index.
    folder.succeed("export runs/base --layout huggingface --out one");
    let several = folder.json("export runs/base --layout huggingface --out several --shard-bytes 4000");
    let files = several["files"].as_array().expect("files");
    assert!(files.len() > 5, "{several}");
    assert!(
        files.contains(&Value::from("model.safetensors.index.json")),
        "{several}"
    );
    let config = json(&folder.text("several/config.json"));
    assert_eq!(config["model_type"], "qwen2");
    for export in ["one", "several", "several/model.safetensors.index.json"] {
        check_equal(&folder, "runs/base", export);
    }
    let generated = |from: &str| {
        let line = format!("generate {from} ba --tokens 30 --temperature 0 --ignore-end");
        folder.json(line)["texts"].clone()
    };
    assert_eq!(generated("several"), generated("runs/base"));

    let lora = "lora = { rank = 2, alpha = 4.0 }\n";
    for (name, start) in [
        ("from-one", "one"),
        ("from-several", "several/model.safetensors.index.json"),
    ] {
        folder.write(
            "adapted.toml",
            run(name, &format!("initial_model = \"{start}\"\n"), lora),
        );
        folder.succeed("train adapted.toml");
    }
    assert_eq!(
        folder.read("runs/from-one/model.safetensors"),
        folder.read("runs/from-several/model.safetensors")
    );
    folder.succeed("verify runs/from-one");
    folder.succeed("export runs/from-one --layout huggingface --out merged");
    check_equal(&folder, "runs/from-one", "merged");
    assert_ne!(
        predictions(&folder, "runs/from-one"),
        predictions(&folder, "runs/base")
    );

    let adapters = folder.json("export runs/from-one --layout peft --out adapters");
    assert!(adapters.get("merged_lora_rank").is_none(), "{adapters}");
    let settings = json(&folder.text("adapters/adapter_config.json"));
    assert_eq!(
        (settings["r"].as_u64(), settings["lora_alpha"].as_f64()),
        (Some(2), Some(4.0))
    );
    assert_eq!(settings["target_modules"][0], "self_attn.q_proj");
    let file = folder.read("adapters/adapter_model.safetensors");
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("tensors");
    let name = "base_model.model.model.layers.1.mlp.gate_proj.lora_B.weight";
    assert_eq!(tensors.tensor(name).expect(name).shape(), [20, 2]);
    assert_eq!(tensors.len(), 2 * 7 * 2);

    // The adapters on their base, added and as the start of a run: nothing is learnt at this rate.
    let on_base = predictions(&folder, "one --adapters adapters");
    let of_run = predictions(&folder, "runs/from-one");
    let same = |one: &[(String, f64)]| {
        let pairs = one.iter().zip(&of_run);
        pairs.for_each(|((word, a), (other, b))| {
            assert!(word == other && (a - b).abs() < 1e-6, "{word} {a} {b}");
        });
        assert_eq!(one.len(), of_run.len());
    };
    same(&on_base);
    let begin = "initial_model = \"one\"\ninitial_adapters = \"adapters\"\n";
    for (name, more) in [("goes-on", lora), ("whole", "")] {
        let text = run(name, begin, more).replace("learning_rate = 0.01", "learning_rate = 1e-30");
        folder.write("on.toml", text);
        folder.succeed("train on.toml");
        same(&predictions(&folder, &format!("runs/{name}")));
        folder.succeed(format!("verify runs/{name}"));
    }
    // The training of the base, and those of the adapters, which name that of the base once more.
    let trained_on = folder.text("runs/goes-on/initial_model.json");
    assert_eq!(
        json(&trained_on).as_array().map(Vec::len),
        Some(3),
        "{trained_on}"
    );
    folder.refuses(
        "
        $ predict adapters ba
        adapters ... the model that these adapters were trained on, and their folder as --adapters
        $ predict runs/from-one ba --adapters adapters
        adapters: the adapters are for a transformer ... without adapters of its own
        $ predict one ba --adapters nowhere
        nowhere/adapter_config.json
        $ train on.toml --set name=\"x\" --set initial_model=\"runs/from-one/model.safetensors\" --set model.lora={rank=2,alpha=4.0}
        the model already has adapters of rank 2
        $ train on.toml --set name=\"x\" --set model.lora={rank=1,alpha=4.0}
        `lora.rank`: expected at least 2
        ",
    );
    folder.write(
        "alone.toml",
        run("alone", "initial_adapters = \"adapters\"\n", ""),
    );
    folder.refuse("train alone.toml", "`initial_model` is missing");

    folder.refuse(
        "export runs/from-one --layout gguf --out gguf",
        "qwen2 has heads that make up the width there",
    );
    let square = run("square", "", "").replace("head_width = 6", "head_width = 4");
    folder.write("square.toml", square);
    folder.succeed("train square.toml");
    folder.succeed("export runs/square --layout gguf --out gguf");
    let gguf = folder.read("gguf/model.gguf");
    assert!(gguf.starts_with(b"GGUF\x03\0\0\0"));
    assert_eq!(gguf.len() % 32, 0);
    // No row of this model has blocks of 32 values.
    let rounded = folder.json("export runs/square --layout gguf --tensor-type q8_0 --out rounded");
    assert_eq!(
        rounded["tensors"].as_object().map(serde_json::Map::len),
        Some(2),
        "{rounded}"
    );
    assert_eq!(rounded["tensors"]["F16"], 16, "{rounded}");
    assert!(folder.read("rounded/model.gguf").len() < gguf.len());
    folder.show(
        "export runs/square --layout gguf --tensor-type bf16 --out halves",
        "tensors ... 16 of type BF16",
    );
    folder.refuse(
        "export runs/square --layout huggingface --tensor-type f16 --out x",
        "`--tensor-type`: expected the layout gguf ... got F16 with huggingface",
    );
}

#[test]
#[ignore = "slow"]
fn another_model_and_another_layout_are_refused_by_name() {
    let folder = Folder::new();
    folder.write("base.toml", run("base", "", ""));
    folder.succeed("train base.toml");
    folder.succeed("export runs/base --layout huggingface --out start");
    let refused = |change: (&str, &str), message: &str| {
        let text = run("next", "initial_model = \"start\"\n", "").replace(change.0, change.1);
        folder.write("next.toml", text);
        folder.refuse("train next.toml", message);
    };
    refused(
        ("key_heads = 2", "key_heads = 4"),
        "`model.key_heads`: expected 2, which the config.json beside the weights says, got 4",
    );
    refused(
        ("rotary_base = 500.0", "rotary_base = 10000.0"),
        "`model.rotary_base`: expected 500, which the config.json beside the weights says, got 10000",
    );
    refused(("biases = [\"qkv\"]\n", ""), "`model.biases`: expected [\"qkv\"]");
    refused(("rows = 70\n", ""), "`model.rows`: expected 70");
    refused(
        ("rows = 70\n", "rows = 12\n"),
        "`rows` must be at least 63, got 12",
    );
    refused(
        ("context = 16", "context = 32"),
        "`model.context`: expected at most 16",
    );
    // What the file of a run does not show is compared by its description.
    let text = run("next", "initial_model = \"runs/base/model.safetensors\"\n", "");
    folder.write(
        "next.toml",
        text.replace("rotary_base = 500.0", "rotary_base = 900.0"),
    );
    folder.refuse("train next.toml", "`model.rotary_base`: expected 900, found 500");

    for (layout, message) in [
        (
            "gpt2",
            "gpt2 for a run with `model.family` = \"transformer\", or else undertone, got gpt2 of \"llama\"",
        ),
        (
            "peft",
            "peft for a run with the table [model.lora], got peft of a run without adapters",
        ),
    ] {
        folder.refuse(format!("export runs/base --layout {layout} --out out"), message);
    }
    // Damaged folders are refused by file and key.
    let config = folder.text("start/config.json");
    for (from, to, message) in [
        (
            "\"qwen2\"",
            "\"gemma3\"",
            "config.json: `model_type` in config.json: expected one of",
        ),
        (
            "\"silu\"",
            "\"relu\"",
            "`hidden_act` in config.json: expected \"silu\" or \"gelu_pytorch_tanh\", got \"relu\"",
        ),
        ("{", "[", "expected a JSON object"),
    ] {
        folder.write("start/config.json", config.replacen(from, to, 1));
        folder.refuse("predict start ba", message);
    }
    folder.write("start/config.json", config);
    folder.write(
        "start/model.safetensors.index.json",
        "{\"weight_map\": {\"x\": \"../x.safetensors\"}}",
    );
    folder.refuse(
        "predict start/model.safetensors.index.json ba",
        "names of files NAME.safetensors in the same folder",
    );
}
