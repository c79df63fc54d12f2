//! Models whose tokenizer calls the ends of a text by unusual names, from a run to an export and back.

use crate::support::{Folder, contains, over};

const NAMES: [&str; 2] = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"];
const LLAMA: &str = "family = \"llama\"\nlayers = 1\nwidth = 16\nheads = 2\ninner = 20\ncontext = 16\n";
const GPT2: &str = "family = \"transformer\"\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 16\n";

/// A folder with a tokenizer of 300 ids under these names, and rows in its words.
fn folder(names: [&str; 2]) -> Folder {
    let folder = Folder::new();
    let text: String = (0..400)
        .map(|line| {
            format!(
                "the model reads bytes number {} and the words of user {}\n",
                line % 37,
                line % 11
            )
        })
        .collect();
    folder.write("public.txt", &text);
    folder.succeed("data tokenizer public.txt --public --size 300 --out tokenizer.json");
    let renamed = folder.text("tokenizer.json");
    folder.write(
        "tokenizer.json",
        renamed.replace("<bos>", names[0]).replace("<eos>", names[1]),
    );
    let rows: String = (0..300)
        .map(|row| {
            format!(
                "{{\"user_id\": {}, \"text\": \"words of user number {} are bytes\"}}\n",
                row % 60,
                row % 7
            )
        })
        .collect();
    folder.write("rows.jsonl", rows);
    folder
}

fn train(folder: &Folder, name: &str, model: &str, [bos, eos]: [&str; 2]) {
    let vocabulary =
        format!("kind = \"tokenizer\", path = \"tokenizer.json\", bos = \"{bos}\", eos = \"{eos}\"");
    let run = over(&format!(
        "{{ kind = \"jsonl\", path = \"rows.jsonl\" }}\nvocabulary = {{ {vocabulary} }}\nexamples = \"windows\"\nmax_example_tokens = 8"
    ));
    let run = run
        .replace("family = \"dplm\"\nembed = 8\nhidden = 12\n", model)
        .replace("name = \"tiny\"", &format!("name = \"{name}\""));
    folder.write("run.toml", run);
    folder.succeed("train run.toml");
}

#[test]
#[ignore = "slow"]
fn an_export_with_renamed_special_tokens_opens_and_generates_the_text_of_its_run() {
    let folder = folder(NAMES);
    let line = "data stats --jsonl rows.jsonl --tokenizer tokenizer.json --windows 8";
    folder.refuse(line, "name the one to use by --bos");
    folder.succeed(format!("{line} --bos {} --eos {}", NAMES[0], NAMES[1]));
    for (name, model, layouts) in [
        ("llama", LLAMA, &["huggingface", "undertone"][..]),
        ("gpt", GPT2, &["gpt2", "undertone"]),
    ] {
        train(&folder, name, model, NAMES);
        let generate = |path: &str| {
            let texts = folder.json(format!("generate {path} the --tokens 30 --samples 4 --seed 4"));
            texts["texts"].clone()
        };
        let expected = generate(&format!("runs/{name}"));
        for layout in layouts {
            let out = format!("{name}-{layout}");
            let written = folder.json(format!("export runs/{name} --layout {layout} --out {out}"));
            assert!(
                written["files"].to_string().contains("tokenizer_config.json"),
                "{written}"
            );
            assert_eq!(generate(&out), expected, "{out}");
            folder.succeed(format!(
                "export runs/{name} --layout {layout} --out {out} --force"
            ));
            // The numbers of config.json suffice, where the layout has one.
            std::fs::remove_file(folder.path(&format!("{out}/tokenizer_config.json"))).expect("a file");
            match *layout {
                "undertone" => folder.refuse(format!("generate {out} the"), "name the one to use by --bos"),
                _ => assert_eq!(generate(&out), expected, "{out}"),
            }
            let named = format!("{out} --bos {} --eos {}", NAMES[0], NAMES[1]);
            assert_eq!(generate(&named), expected, "{named}");
            folder.succeed(format!("predict {named} the"));
            folder.refuse(
                format!("predict {out} the --bos <no>  --eos <eos>"),
                "it has no token \"<no>\"",
            );
        }
        folder.refuse(
            format!("generate runs/{name} the --bos {}", NAMES[0]),
            "a run and a list of words have their own tokens",
        );
    }
}

#[test]
#[ignore = "slow"]
fn every_end_that_a_file_names_ends_a_text_and_files_that_disagree_are_named() {
    let folder = folder(NAMES);
    train(&folder, "llama", LLAMA, NAMES);
    folder.succeed("export runs/llama --layout huggingface --out hf");
    // A token of which no file says anything is an ordinary one, whose text appears.
    let generate =
        || folder.json("generate hf --tokens 40 --samples 40 --temperature 3 --seed 9")["texts"].clone();
    let ended = |texts: &serde_json::Value| {
        let texts = texts.as_array().expect("texts").iter();
        texts.filter(|text| text["ended"] == "end").count()
    };
    let before = ended(&generate());
    // Every added token may end a text: `<unk>` has the number 0.
    folder.write("hf/generation_config.json", "{\"eos_token_id\": [0, 1, 2]}");
    assert!(ended(&generate()) >= before);
    folder.write(
        "hf/tokenizer_config.json",
        "{\"eos_token\": {\"content\": \"<unk>\"}}",
    );
    let output = folder.run("predict hf the");
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    contains(
        &warning,
        "eos_token_id of config.json names \"<｜end▁of▁sentence｜>\"",
    );
    contains(&warning, "eos_token of tokenizer_config.json names \"<unk>\"");
    folder.write(
        "hf/config.json",
        folder
            .text("hf/config.json")
            .replace("\"eos_token_id\": 2", "\"eos_token_id\": \"two\""),
    );
    folder.refuse(
        "predict hf the",
        "eos_token_id: expected a number or a list of numbers",
    );
}
