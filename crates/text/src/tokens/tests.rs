//! Ids that are read without the library, compared with those of the library. The tests of `subwords` compare their tokenizers, too.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use crate::vocab::Vocab;

/// Texts of tokens, the usual names of special tokens among them.
const POOL: [&str; 16] = [
    "",
    "a",
    "b",
    "ab",
    "é",
    "x y",
    "<s>",
    "</s>",
    "<unk>",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "<bos>",
    "<eos>",
    "A",
    "\u{1f600}",
];

/// A model whose tokens have these ids; those of Unigram have their places.
fn model(kind: &str, tokens: &[(&str, u32)], unk: Option<&str>) -> Value {
    let map: Map<String, Value> = tokens
        .iter()
        .map(|&(token, id)| (token.to_owned(), json!(id)))
        .collect();
    match kind {
        "BPE" => json!({ "type": kind, "vocab": map, "merges": [], "unk_token": unk }),
        "WordPiece" => json!({
            "type": kind, "vocab": map, "unk_token": unk, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100
        }),
        "WordLevel" => json!({ "type": kind, "vocab": map, "unk_token": unk }),
        _ => {
            let list: Vec<Value> = tokens.iter().map(|&(token, _)| json!([token, -1.0])).collect();
            json!({ "type": "Unigram", "vocab": list, "unk_id": 0 })
        }
    }
}

fn added(content: &str, id: u32, special: bool) -> Value {
    json!({
        "id": id, "content": content, "special": special, "normalized": !special,
        "single_word": false, "lstrip": false, "rstrip": false
    })
}

fn file(model: &Value, added: &[Value]) -> Vec<u8> {
    json!({ "version": "1.0", "added_tokens": added, "model": model })
        .to_string()
        .into_bytes()
}

/// Everything that a vocabulary says of its ids.
fn answers(vocab: &Vocab, names: &[&str]) -> impl PartialEq + std::fmt::Debug {
    let words: Vec<String> = (0..vocab.len() as u32 + 2)
        .map(|id| vocab.word(id).to_owned())
        .collect();
    let ids: Vec<Option<u32>> = words
        .iter()
        .map(String::as_str)
        .chain(names.iter().copied())
        .map(|name| vocab.id(name))
        .collect();
    let (file, digest) = (vocab.file_name(), vocab.digest());
    (
        vocab.len(),
        words,
        ids,
        vocab.special(),
        file,
        digest,
        vocab.text_ids(),
        vocab.words().len(),
        vocab.provenance(),
    )
}

/// Compares both ways to read a file, and the ids with those that the library itself gives. Returns `false` where both refuse it.
pub(crate) fn compare(file: &[u8], bos: Option<&str>, eos: Option<&str>) -> bool {
    let full = Vocab::from_tokenizer(file.to_vec(), bos, eos);
    let alone = Vocab::from_tokens(file.to_vec(), bos, eos);
    let (full, alone) = match (full, alone) {
        (Ok(full), Ok(alone)) => (full, alone),
        (Err(full), Err(alone)) => {
            assert_eq!(full, alone);
            return false;
        }
        (full, alone) => panic!("{full:?} with the library, {alone:?} alone"),
    };
    assert_eq!(answers(&full, &POOL), answers(&alone, &POOL));
    let refused = "the tokenizer cannot encode the text: only the ids of the tokenizer were read";
    let encoded = alone.encode("a", &mut String::new(), &mut Vec::new());
    assert_eq!(encoded.expect_err("no library").to_string(), refused);
    assert_eq!(alone.decode(&[0]).expect_err("no library").to_string(), refused);
    compare_with_library(file, &alone);
    true
}

fn compare_with_library(file: &[u8], vocab: &Vocab) {
    let mut file: Value = serde_json::from_slice(file).expect("JSON");
    // Parts that decide no ids, which this library may lack.
    for key in ["decoder", "post_processor", "truncation", "padding"] {
        file[key] = Value::Null;
    }
    let model = &mut file["model"];
    if model["type"].is_null() {
        model["type"] = json!("BPE");
    }
    let library: Tokenizer = serde_json::from_value(file).expect("a tokenizer");
    let ids = library.get_vocab(true);
    assert_eq!(vocab.len() as u32, ids.values().max().expect("ids") + 1);
    let unk = vocab.special().unk;
    for (token, &id) in &ids {
        assert_eq!(
            (vocab.id(token), library.token_to_id(token)),
            (Some(id), Some(id))
        );
    }
    let added = library.get_added_tokens_decoder();
    for id in 0..vocab.len() as u32 {
        // An added token hides that of the model.
        let content = added.get(&id).map(|token| token.content.clone());
        let content = content.or_else(|| library.id_to_token(id)).unwrap_or_default();
        assert_eq!(vocab.word(id), content);
    }
    let absent = "\u{0}absent";
    assert_eq!((vocab.id(absent), library.token_to_id(absent)), (unk, None));
}

#[test]
fn an_added_token_has_the_id_of_the_model_or_the_next_one() {
    let check = |kind: &str, tokens: &[(&str, u32)], contents: &[&str], expected: &[&str]| {
        let added: Vec<Value> = contents.iter().map(|content| added(content, 77, true)).collect();
        let file = file(&model(kind, tokens, Some("a")), &added);
        assert!(compare(&file, Some("a"), Some("b")));
        let vocab = Vocab::from_tokens(file, Some("a"), Some("b")).unwrap();
        let words: Vec<&str> = (0..vocab.len() as u32).map(|id| vocab.word(id)).collect();
        assert_eq!(words, expected, "{kind}");
    };
    let tokens = [("a", 0), ("b", 1), ("ab", 2)];
    for kind in ["BPE", "WordPiece", "WordLevel", "Unigram"] {
        check(kind, &tokens, &[], &["a", "b", "ab"]);
        // One that the model has, one that is empty, one that comes twice.
        check(
            kind,
            &tokens,
            &["b", "", "<s>", "x", "<s>", "y"],
            &["a", "b", "ab", "<s>", "x", "y"],
        );
    }
    // The next id follows from the number of tokens, so in a gap it may be that of another one, which it hides.
    let gaps = [("a", 0), ("b", 1), ("ab", 3)];
    check("BPE", &gaps, &["x"], &["a", "b", "", "x"]);
    check("BPE", &gaps, &["x", "y"], &["a", "b", "", "x", "y"]);
    check("BPE", &gaps, &["x", "ab"], &["a", "b", "", "ab"]);
    check(
        "WordLevel",
        &[("a", 0), ("b", 5)],
        &["x"],
        &["a", "", "x", "", "", "b"],
    );
}

#[test]
fn files_that_lack_what_ids_need_are_refused_by_both() {
    let honest = model("WordLevel", &[("a", 0)], Some("a"));
    let ends = [added("<s>", 0, true), added("</s>", 0, true)];
    assert!(compare(&file(&honest, &ends), None, None));
    let refused = |model: &Value, added: &[Value], expected: &str| {
        let file = file(model, added);
        assert!(!compare(&file, None, None));
        let error = Vocab::from_tokens(file, None, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
    };
    refused(&honest, &ends[..1], "none of its added tokens is <eos>, </s>");
    refused(
        &model("WordLevel", &[("a", 0)], Some("b")),
        &ends,
        "it has no token for unknown text",
    );
    refused(
        &model("WordPiece", &[("a", 0)], None),
        &ends,
        "invalid type: null, expected a string",
    );
    refused(
        &json!({ "type": "WordLevel", "vocab": { "a": 0 } }),
        &ends,
        "missing field `unk_token`",
    );
    refused(
        &json!({ "type": "BPE", "vocab": { "a": 0 }, "merges": [], "unk_token": 7 }),
        &ends,
        "invalid type: integer `7`",
    );
    refused(
        &json!({ "type": "WordPiece", "vocab": { "a": 0 }, "unk_token": "a", "max_input_chars_per_word": 9 }),
        &ends,
        "missing field `continuing_subword_prefix`",
    );
    let mut incomplete = added("x", 1, false);
    incomplete["lstrip"] = json!(3);
    refused(
        &honest,
        &[incomplete.clone()],
        "invalid type: integer `3`, expected a boolean",
    );
    incomplete.as_object_mut().unwrap().remove("lstrip");
    refused(&honest, &[incomplete], "missing field `lstrip`");
}

prop_compose! {
    /// Some texts of the pool in any order, with distinct ids that may have gaps.
    fn named()(
        tokens in subsequence(&POOL[..], 1..12).prop_shuffle(),
        ids in subsequence((0..24).collect::<Vec<u32>>(), 12).prop_shuffle(),
        gaps in any::<bool>(),
    ) -> Vec<(&'static str, u32)> {
        let ids = ids.into_iter().zip(0..).map(|(id, place)| if gaps { id } else { place });
        tokens.into_iter().zip(ids).collect()
    }
}

/// Added tokens, in nine of ten lists those that the ends of a text need.
fn list() -> impl Strategy<Value = Vec<Value>> {
    let one = (select(&POOL[..]), 0_u32..30, any::<bool>())
        .prop_map(|(text, id, special)| added(text, id, special));
    let ends = prop::bool::weighted(0.9);
    (prop::collection::vec(one, 0..8), ends, 0_usize..8).prop_map(|(mut list, ends, place)| {
        for end in ["</s>", "<s>"].iter().filter(|_| ends) {
            list.insert(place.min(list.len()), added(end, 0, true));
        }
        list
    })
}

proptest! {
    /// Files of every kind of model: tokens that the model has already, that repeat, that are empty, and ids with gaps.
    #[test]
    fn both_ways_give_every_token_one_id_or_refuse(
        kind in select(&["BPE", "WordPiece", "WordLevel", "Unigram"][..]),
        tokens in named(),
        unk in prop::option::weighted(0.8, select(&POOL[..])),
        added in list(),
        (bos, eos) in (prop::option::weighted(0.2, select(&POOL[..])), prop::option::weighted(0.2, select(&POOL[..]))),
    ) {
        compare(&file(&model(kind, &tokens, unk), &added), bos, eos);
    }
}
