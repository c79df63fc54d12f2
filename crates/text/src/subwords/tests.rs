//! Tokenizers that were made to harm, and honest ones of the kinds that are in use.

#![allow(clippy::needless_pass_by_value)] // `json!` makes values

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::tokens::tests::compare;
use crate::vocab::Vocab;

/// A tokenizer of few letters, with parts replaced.
fn tokenizer(changes: Value) -> Vec<u8> {
    let mut file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{
            "id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true
        }, {
            "id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true
        }],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": bpe(json!(["a b"])),
    });
    for (key, value) in changes.as_object().expect("changes") {
        file[key] = value.clone();
    }
    serde_json::to_vec(&file).expect("JSON")
}

fn bpe(merges: Value) -> Value {
    json!({
        "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
        "vocab": { "<s>": 0, "</s>": 1, "<unk>": 2, "a": 3, "b": 4, "ab": 5, "é": 6 },
        "merges": merges,
    })
}

/// Reads a file, and compares its ids with those that are read without the library. Alone they are read, too, where only a part that
/// cuts text is refused.
fn parse(file: Vec<u8>) -> Result<Vocab, String> {
    let alone = Vocab::from_tokens(file.clone(), None, None);
    match (Vocab::from_tokenizer(file.clone(), None, None), alone) {
        (Ok(vocab), _) => {
            assert!(compare(&file, None, None));
            Ok(vocab)
        }
        (Err(error), alone) => {
            let error = error.to_string();
            match alone {
                Ok(_) => assert!(
                    error.contains("r: normalizer") || error.contains("r: pre_tokenizer"),
                    "{error}"
                ),
                Err(alone) => assert_eq!(alone.to_string(), error),
            }
            Err(error)
        }
    }
}

fn ids(vocab: &Vocab, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    vocab.encode(text, &mut String::new(), &mut ids).expect("ids");
    ids
}

#[test]
fn hostile_tokenizers_end_in_an_error() {
    let fails = |changes: Value, part: &str| {
        let start = Instant::now();
        let message = parse(tokenizer(changes)).expect_err(part);
        assert!(message.contains(part), "{message:?} lacks {part:?}");
        assert!(message.starts_with("not a usable tokenizer: "), "{message}");
        assert!(message.lines().count() <= 3 && message.len() < 600, "{message}");
        assert!(start.elapsed() < Duration::from_secs(10));
    };
    let normalizer = |part: Value| json!({ "normalizer": part });
    let cut = |part: Value| json!({ "pre_tokenizer": part });
    // Panics of the library: a merge longer than any token, parts of characters, an empty cut, maps of characters.
    let merges = |merges: Value| json!({ "model": bpe(merges) });
    fails(
        merges(json!(["ab ab"])),
        "needs the token \"abab\", which model.vocab lacks",
    );
    fails(merges(json!([["a", "x"]])), "needs the token \"x\"");
    fails(merges(json!(["a"])), "number 1 is no pair of tokens");
    fails(merges(json!(["a b c"])), "number 1 is no pair of tokens");
    let mut prefixed = bpe(json!(["a é"]));
    prefixed["continuing_subword_prefix"] = json!("#");
    fails(json!({ "model": prefixed }), "expected \"é\" to begin with \"#\"");
    fails(
        cut(json!({ "type": "FixedLength", "length": 0 })),
        "\"FixedLength\" is not one of the parts",
    );
    let precompiled = json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA/w==" });
    fails(
        normalizer(precompiled.clone()),
        "\"Precompiled\" is not one of the parts",
    );
    fails(
        normalizer(json!({ "type": "Sequence", "normalizers": [precompiled] })),
        "\"Precompiled\" is not one of the parts",
    );
    // Memory: text that doubles forty times, and is put before.
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    let sequence =
        |part: &Value, count| json!({ "type": "Sequence", "normalizers": vec![part.clone(); count] });
    fails(normalizer(sequence(&double, 40)), "at most 64 times as long");
    let between = json!({ "type": "Replace", "pattern": { "Regex": "x*" }, "content": "aaaaaaaa" });
    fails(normalizer(sequence(&between, 3)), "at most 64 times as long");
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    fails(
        cut(json!({ "type": "Sequence", "pretokenizers": vec![bytes; 7] })),
        "at most 64 times as long",
    );
    fails(
        normalizer(json!({ "type": "Prepend", "prepend": "a".repeat(1 << 20) })),
        "expected at most 64 bytes, got 1048576",
    );
    fails(
        normalizer(sequence(&json!({ "type": "Lowercase" }), 33)),
        "at most 32 parts",
    );
    // Time: regular expressions that backtrack.
    let regex = |regex: &str| {
        cut(
            json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false }),
        )
    };
    fails(regex("(a*)*\\1b"), "without look-around");
    fails(regex("(?=a)b"), "without look-around");
    fails(regex("(\\p{L}{500}){500}"), "a smaller regular expression");
    fails(
        cut(json!({ "type": "Split", "pattern": { "String": "" }, "behavior": "Isolated", "invert": false })),
        "between 1 and 64 bytes",
    );
    // Models.
    let model = |key: &str, value: Value| {
        let mut model = bpe(json!([]));
        model[key] = value;
        json!({ "model": model })
    };
    fails(
        model("type", json!("Other")),
        "\"Other\" is not one of the models",
    );
    fails(model("dropout", json!(0.5)), "makes tokens random");
    fails(
        model("vocab", json!({ "<s>": 0, "</s>": 4_000_000_000_u32 })),
        "expected ids below 2000000",
    );
    fails(
        model("vocab", json!({ "<s>": 0, "</s>": 0 })),
        "two tokens have the id 0",
    );
    fails(
        model("vocab", json!({ "a".repeat(3000): 0 })),
        "tokens of at most 2048 bytes",
    );
    fails(model("vocab", json!(7)), "expected tokens with ids");
    let unigram =
        |vocab: Value, unk: u64| json!({ "model": { "type": "Unigram", "unk_id": unk, "vocab": vocab } });
    fails(
        unigram(json!([["a", -1.0]]), 7),
        "model.unk_id: expected an id below 1, got 7",
    );
    fails(
        unigram(json!([["a", -1.0], ["a", -2.0]]), 0),
        "the token \"a\" comes twice",
    );
    let long = json!({
        "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 1_000_000_000,
        "vocab": { "<unk>": 0 }
    });
    fails(json!({ "model": long }), "expected at most 256, got 1000000000");
    // Shapes.
    fails(
        json!({ "normalizer": { "kind": "NFC" } }),
        "expected a part with a type",
    );
    fails(
        json!({ "added_tokens": [{ "content": "a".repeat(3000) }] }),
        "at most 2048 bytes each",
    );
    fails(json!({ "model": null }), "no model");
    for bad in [&b"{"[..], b"[]", b"\xff", b"{}", &b"[".repeat(100_000)] {
        assert!(parse(bad.to_vec()).is_err());
    }
    let many = format!("{{\"x\": [{}0]}}", "0,".repeat(4_000_000));
    assert!(
        parse(many.into_bytes())
            .expect_err("too many")
            .contains("at most 4000000 values")
    );
}

#[test]
fn honest_tokenizers_are_read_as_before() {
    let vocab = parse(tokenizer(json!({}))).expect("a tokenizer");
    assert_eq!(ids(&vocab, "ab a b é x"), [5, 3, 4, 6, 2]);
    // As on the Hub: a model without a type, look-ahead in the cut, a post-processor that adds tokens.
    let mut model = bpe(json!([["a", "b"]]));
    model.as_object_mut().expect("a model").remove("type");
    let gpt = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    let changes = json!({
        "model": model,
        "pre_tokenizer": { "type": "Split", "pattern": { "Regex": gpt }, "behavior": "Removed", "invert": true },
        "post_processor": { "type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {} },
        "decoder": { "type": "Nonsense" },
        "truncation": { "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0 },
    });
    assert_eq!(
        ids(&parse(tokenizer(changes)).expect("a tokenizer"), "abab"),
        [5, 5]
    );
    let llama = json!({ "normalizer": { "type": "Sequence", "normalizers": [
        { "type": "Prepend", "prepend": "a" }, { "type": "Replace", "pattern": { "String": "é" }, "content": "b" }
    ]}});
    assert_eq!(ids(&parse(tokenizer(llama)).expect("a tokenizer"), "éa"), [5, 3]);
    let unigram = json!({
        "model": { "type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0], ["a", -1.0], ["ab", -1.5]] }
    });
    assert_eq!(
        ids(&parse(tokenizer(unigram)).expect("a tokenizer"), "ab a"),
        [4, 3]
    );
    let words = json!({ "model": { "type": "WordLevel", "unk_token": "<s>", "vocab": { "<s>": 0, "</s>": 1, "ab": 2 } } });
    assert_eq!(
        ids(&parse(tokenizer(words)).expect("a tokenizer"), "ab ba"),
        [2, 0]
    );
}

#[test]
fn a_text_that_would_grow_too_long_is_an_error() {
    let grows =
        json!({ "normalizer": { "type": "Replace", "pattern": { "String": "a" }, "content": "bbbbbbbb" } });
    let vocab = parse(tokenizer(grows)).expect("a tokenizer");
    assert_eq!(ids(&vocab, "a").len(), 8);
    let long = "a".repeat((1 << 20) + 1);
    let error = vocab.encode(&long, &mut String::new(), &mut Vec::new());
    let error = error.expect_err("too long").to_string();
    assert!(
        error.contains("expected at most 1048576 bytes in a row, got 1048577"),
        "{error}"
    );
}

/// A tokenizer whose vocabulary holds these tokens after the special ones, with a decoder.
fn with_decoder(tokens: &[&str], decoder: Value) -> Vocab {
    let vocab: serde_json::Map<String, Value> = ["<s>", "</s>", "<unk>"]
        .iter()
        .chain(tokens)
        .zip(0..)
        .map(|(token, id)| ((*token).to_owned(), json!(id)))
        .collect();
    let model = json!({ "type": "WordLevel", "unk_token": "<unk>", "vocab": vocab });
    parse(tokenizer(json!({ "model": model, "decoder": decoder }))).expect("a tokenizer")
}

#[test]
fn each_kind_of_decoder_joins_its_tokens() {
    let all = [3, 4, 5, 0, 6];
    let llama = json!({ "type": "Sequence", "decoders": [
        { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
        { "type": "ByteFallback" }, { "type": "Fuse" },
        { "type": "Strip", "content": " ", "start": 1, "stop": 0 }
    ]});
    let byte_level =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let metaspace =
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    let word_piece = json!({ "type": "WordPiece", "prefix": "##", "cleanup": true });
    let suffix = json!({ "type": "BPEDecoder", "suffix": "</w>" });
    for (decoder, tokens, text) in [
        (llama, ["▁the", "<0xC3>", "<0xA9>", "▁end"], "theé end"),
        (byte_level, ["Ġthe", "Ã", "©", "Ġend"], " theé end"),
        (metaspace, ["▁the", "m", "e", "▁end"], "theme end"),
        (word_piece, ["the", "##m", "##e", "."], "theme."),
        (suffix, ["the", "m", "e</w>", "end"], "theme end"),
    ] {
        let vocab = with_decoder(&tokens, decoder);
        assert_eq!(vocab.decode(&all).expect("text"), text, "{tokens:?}");
    }
}

#[test]
fn a_decoder_that_is_not_accepted_is_an_error_where_text_is_asked_for() {
    let long = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "b".repeat(65) });
    let many: Vec<Value> = (0..40).map(|_| json!({ "type": "Fuse" })).collect();
    for (decoder, expected) in [
        (
            json!({ "type": "CTC" }),
            "decoder: \"CTC\" is not one of the parts that are accepted",
        ),
        (json!({ "type": 3 }), "decoder: expected a part with a type"),
        (
            long,
            "decoder \"Replace\": content: expected at most 64 bytes, got 65",
        ),
        (
            json!({ "type": "Sequence", "decoders": many }),
            "decoder: expected at most 32 parts",
        ),
        (
            json!({ "type": "Sequence" }),
            "decoder: expected decoders in a sequence",
        ),
    ] {
        let vocab = with_decoder(&["a"], decoder);
        assert_eq!(ids(&vocab, "a"), [3]);
        let error = vocab.decode(&[3]).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    // The library subtracts beyond the first letter; its panic is an error here.
    let vocab = with_decoder(
        &["a"],
        json!({ "type": "Strip", "content": "a", "start": 0, "stop": 3 }),
    );
    vocab.decode(&[3]).expect_err("refused");
}

/// Comparisons with another program, which is started first.
mod by_hand {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Case {
        text: String,
        ids: Vec<u32>,
    }

    /// `TOKENIZERS` is the folder that `lab/peers/readers/tokenizers.py` wrote.
    #[test]
    #[ignore = "by hand"]
    fn ids_equal_those_of_the_python_package() {
        let folder = std::env::var("TOKENIZERS").expect("TOKENIZERS is set");
        let (mut kinds, mut equal, mut refused) = (0, 0, Vec::new());
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let file = std::fs::read(path.join("tokenizer.json")).expect("a tokenizer");
            let cases = std::fs::read(path.join("texts.json")).expect("texts");
            let cases: Vec<Case> = serde_json::from_slice(&cases).expect("cases");
            kinds += 1;
            let vocab = match Vocab::from_tokenizer(file, Some("<s>"), Some("</s>")) {
                Ok(vocab) => vocab,
                Err(error) => {
                    refused.push(format!("{}: {error}", path.display()));
                    continue;
                }
            };
            for Case { text, ids: expected } in cases {
                assert_eq!(ids(&vocab, &text), expected, "{}: {text:?}", path.display());
                equal += 1;
            }
        }
        println!("{kinds} kinds, {equal} texts with equal ids, refused: {refused:#?}");
        assert!(equal > 0, "no text was compared");
    }
}
