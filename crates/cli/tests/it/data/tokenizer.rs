//! `undertone data tokenizer`: sub-word tokens from training to run.

use crate::support::{Folder, contains, over};

#[test]
#[ignore = "slow"]
fn a_tokenizer_is_trained_used_and_kept_by_a_run() {
    let folder = Folder::new();
    let text: String = (0..400)
        .map(|i| {
            format!(
                "the model reads bytes number {} and the words of user {}\n",
                i % 37,
                i % 11
            )
        })
        .collect();
    folder.write("public.txt", &text);
    let line = "data tokenizer public.txt --public --size 300 --out tokenizer.json";
    let summary = folder.json(line);
    assert_eq!(summary["size"], 300);
    assert_eq!(summary["rows"], 400);
    folder.refuse(line, "tokenizer.json already exists");
    folder.refuse(
        "data tokenizer public.txt --size 100 --out small.json",
        "size: expected between 259",
    );
    assert!(!folder.path("tokenizer.json.privacy.json").exists());
    let undeclared = folder.json("data tokenizer public.txt --size 300 --out undeclared.json");
    assert_eq!(undeclared["not_private"], true);
    assert_eq!(undeclared["sha256"], summary["sha256"]);
    assert!(
        folder
            .text("undeclared.json.privacy.json")
            .contains("\"not private\"")
    );

    let rows: String = (0..300)
        .map(|i| {
            format!(
                "{{\"user_id\": {}, \"text\": \"words of user number {} are bytes\"}}\n",
                i % 60,
                i % 7
            )
        })
        .collect();
    folder.write("rows.jsonl", &rows);
    let stats = folder.json("data stats --jsonl rows.jsonl --tokenizer tokenizer.json --windows 8");
    assert_eq!(stats["stats"]["train"]["unknown_words"], 0);
    assert!(
        stats["stats"]["tokens_per_word"]
            .as_f64()
            .is_some_and(|tokens| tokens >= 1.0),
        "{stats}"
    );

    let run = over(
        "{ kind = \"jsonl\", path = \"rows.jsonl\" }\nvocabulary = { kind = \"tokenizer\", path = \"tokenizer.json\" }\n\
         examples = \"windows\"\nmax_example_tokens = 8",
    );
    folder.write("run.toml", &run);
    folder.succeed("train run.toml");
    assert_eq!(
        folder.read("runs/tiny/tokenizer.json"),
        folder.read("tokenizer.json")
    );
    assert!(!folder.path("runs/tiny/vocab.txt").exists());
    folder.succeed("verify runs/tiny");
    folder.succeed("eval runs/tiny");

    // Tokens become text by the tokenizer's decoder: words of letters alone, which the corpus has between spaces.
    let predicted = folder.json("predict runs/tiny the --top 5");
    let words = predicted.as_array().expect("a list");
    assert!(!words.is_empty());
    for entry in words {
        let word = entry["word"].as_str().expect("a word");
        assert!(
            word.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{predicted}"
        );
    }
    let generated = folder.json("generate runs/tiny the --tokens 30 --seed 4");
    let generated = generated.to_string();
    assert!(!generated.contains('\u{120}'), "{generated}");

    // Another tokenizer of the same size: same shapes, other meanings.
    folder.write("other.txt", text.replace("the", "our").repeat(2));
    folder.succeed("data tokenizer other.txt --size 300 --out tokenizer.json --force");
    let error = folder.fail("eval runs/tiny");
    contains(&error, "the vocabulary of the corpus differs from");
    contains(&error, "expected SHA-256");
    let initial = run.replace(
        "name = \"tiny\"",
        "name = \"next\"\ninitial_model = \"runs/tiny/model.safetensors\"",
    );
    folder.write("next.toml", &initial);
    folder.refuse("train next.toml", "has a different vocabulary: expected SHA-256");
    folder.write("tokenizer.json", "the\nto\n");
    folder.refuse(
        "train next.toml",
        "tokenizer.json is not a usable tokenizer: expected a Hugging Face tokenizer.json",
    );
}
