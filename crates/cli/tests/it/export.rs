//! A run's model for other programs, and back.

use serde_json::Value;

use crate::support::{Folder, TINY, contains, json};

/// A tiny private run of a transformer, and what it was trained from, on the sub-word tokens of `tokenizer.json`.
const MODEL: &str = "family = \"transformer\"\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 16\n";

fn run(name: &str, more: &str) -> String {
    TINY.replace("name = \"tiny\"", &format!("name = \"{name}\""))
        .replace("family = \"dplm\"\nembed = 8\nhidden = 12\n", MODEL)
        .replace("words = 60 }", "words = 60 }\nmax_sentence_tokens = 15")
        .replace("rounds = 6\n", &format!("rounds = 6\n{more}"))
}

/// Exports a run, starts the plain model from the export and evaluates it before any step; against the run itself.
fn check_round_trip(folder: &Folder, name: &str, layout: &str) {
    let (source, out) = (format!("runs/{name}"), format!("{name}-{layout}"));
    let written = folder.json(format!("export {source} --layout {layout} --out {out}"));
    assert_eq!(written["layout"], layout);
    for file in written["files"].as_array().expect("files") {
        let file = file.as_str().expect("a name");
        assert!(!folder.read(&format!("{out}/{file}")).is_empty(), "{file}");
    }
    // A pre-training whose one step has a vanishing learning rate measures what it started from.
    let initial = format!("initial_model = \"{out}/model.safetensors\"");
    let again = format!(
        "name = \"again-{out}\"\nsteps = 1\n{initial}\n[data]\n\
         source = {{ kind = \"synthetic\", users = 300, words = 60 }}\nmax_sentence_tokens = 15\n\
         [model]\n{MODEL}[training]\nbatch_size = 1\nlearning_rate = 1e-30\n"
    );
    folder.write("again.toml", again);
    folder.succeed("pretrain again.toml");
    let evaluated = |run: &str| folder.json(format!("eval {run}"));
    let (of_run, of_export) = (evaluated(&source), evaluated(&format!("runs/again-{out}")));
    let loss = |metrics: &Value| metrics["perplexity"].as_f64().expect("a number").ln();
    assert!(
        (loss(&of_run) - loss(&of_export)).abs() < 1e-6,
        "{of_run} {of_export}"
    );
    assert_eq!(of_run["targets"], of_export["targets"]);
}

#[test]
#[ignore = "slow"]
fn exports_come_back_as_initial_models_with_the_same_loss() {
    let folder = Folder::new();
    folder.write("plain.toml", run("plain", ""));
    folder.succeed("train plain.toml");
    let adapted = run("adapted", "initial_model = \"runs/plain/model.safetensors\"\n").replace(
        "context = 16\n",
        "context = 16\nlora = { rank = 3, alpha = 6.0 }\n",
    );
    folder.write("adapted.toml", adapted);
    folder.succeed("train adapted.toml");
    for name in ["plain", "adapted"] {
        for layout in ["gpt2", "undertone"] {
            check_round_trip(&folder, name, layout);
        }
    }
    let config = json(&folder.text("adapted-gpt2/config.json"));
    for (key, expected) in [
        ("n_layer", 2),
        ("n_head", 2),
        ("n_embd", 16),
        ("n_inner", 64),
        ("n_positions", 16),
        ("vocab_size", 63),
        ("bos_token_id", 1),
        ("eos_token_id", 2),
    ] {
        assert_eq!(config[key], expected, "{key}");
    }
    assert_eq!(config["activation_function"], "gelu_new");
    assert_eq!(
        folder.read("adapted-gpt2/vocab.txt"),
        folder.read("runs/adapted/vocab.txt")
    );
    // Heads of another width stand in no tensor; the file's own description tells, as the config.json beside it would.
    let other = run("other", "initial_model = \"adapted-gpt2/model.safetensors\"\n")
        .replace("heads = 2", "heads = 4");
    folder.write("other.toml", other);
    folder.refuse("train other.toml", "`model.heads`: expected 4, found 2");
}

#[test]
#[ignore = "slow"]
fn nothing_is_replaced_unasked_and_what_gpt2_cannot_say_is_refused() {
    let folder = Folder::new();
    folder.write("plain.toml", run("plain", ""));
    folder.succeed("train plain.toml");
    let export = "export runs/plain --layout gpt2 --out out";
    let table = folder.succeed(export);
    contains(&table, "model.safetensors, config.json, vocab.txt");
    let bytes = folder.read("out/model.safetensors");
    folder.refuse(export, "out already exists; give --force to replace it");
    folder.succeed(format!("{export} --force"));
    assert_eq!(folder.read("out/model.safetensors"), bytes);
    // A folder that is no export is nobody's to replace.
    std::fs::create_dir(folder.path("mine")).expect("a folder");
    folder.write("mine/notes.txt", "keep");
    folder.refuse(
        "export runs/plain --layout gpt2 --out mine --force",
        "expected a new folder, or one that holds nothing but an earlier export, got mine, which holds notes.txt",
    );
    assert_eq!(folder.read("mine/notes.txt"), b"keep");
    // A run directory has a model file of the same name, and its ledger is nobody's to delete.
    folder.refuse(
        "export runs/plain --layout gpt2 --out runs/plain --force",
        "one that holds nothing but an earlier export",
    );
    folder.succeed("verify runs/plain");
    std::fs::create_dir(folder.path("empty")).expect("a folder");
    folder.refuse(
        "export runs/plain --layout gpt2 --out empty --force",
        "expected a folder with a model to replace",
    );

    let rotary = run("rotary", "").replace("heads = 2\n", "heads = 2\npositions = \"rotary\"\n");
    folder.write("rotary.toml", rotary);
    folder.succeed("train rotary.toml");
    folder.refuse(
        "export runs/rotary --layout gpt2 --out rotary",
        "GPT-2's layout needs learned positions, but the model has rotary positions",
    );
    folder.succeed("export runs/rotary --layout undertone --out rotary");
    folder.write("lstm.toml", TINY);
    folder.succeed("train lstm.toml");
    folder.refuse(
        "export runs/tiny --layout gpt2 --out lstm",
        "`model.family` = \"transformer\", or else undertone, got gpt2 of \"dplm\"",
    );
    folder.refuse(
        "export nowhere --layout gpt2 --out lstm",
        "cannot read nowhere/config.toml",
    );
    assert!(!folder.path("lstm").exists());
    // Nothing unfinished stays behind.
    let left: Vec<_> = std::fs::read_dir(folder.path(""))
        .expect("the folder")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("a name"))
        .filter(|name| name.starts_with(".partial-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
