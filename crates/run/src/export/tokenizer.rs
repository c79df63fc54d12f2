//! A tokenizer as settings of a GGUF file.

use serde_json::Value as Json;
use undertone_data::Vocab;
use undertone_models::weights::gguf::Value;

/// Kinds of tokens in the format.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// The rules that cut a text into words that llama.cpp knows by name, with their regular expressions in a `tokenizer.json`.
const RULES: [(&str, &str); 2] = [
    (
        "llama-bpe",
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ),
    (
        "qwen2",
        concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    ),
];

/// The settings of a byte-level BPE over `rows` ids. Other tokenizers, and lists of words, give the settings of a model that reads and
/// writes ids alone: llama.cpp has no such tokenizer.
pub(super) fn settings(vocab: &Vocab, file: &[u8], rows: usize) -> Vec<(String, Value)> {
    let named = |settings: Vec<(&str, Value)>| {
        let full = settings.into_iter();
        full.map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
            .collect()
    };
    let Some(found) = ByteLevel::read(file, rows) else {
        return named(vec![("model", Value::Text("no_vocab".to_owned()))]);
    };
    let ids = vocab.special();
    let mut settings = vec![
        ("model", Value::Text("gpt2".to_owned())),
        ("pre", Value::Text(found.rule.to_owned())),
        ("tokens", Value::Texts(found.tokens)),
        ("token_type", Value::Numbers(found.kinds)),
        ("merges", Value::Texts(found.merges)),
        ("bos_token_id", Value::U32(ids.bos)),
        ("eos_token_id", Value::U32(ids.eos)),
        ("add_bos_token", Value::Bool(true)),
    ];
    settings.extend(ids.unk.map(|unk| ("unknown_token_id", Value::U32(unk))));
    named(settings)
}

/// A byte-level BPE whose cut into words has a name.
struct ByteLevel {
    /// The tokens by id.
    tokens: Vec<String>,
    kinds: Vec<i32>,
    merges: Vec<String>,
    rule: &'static str,
}

impl ByteLevel {
    /// `None` for any other tokenizer, and for a list of words.
    fn read(file: &[u8], rows: usize) -> Option<Self> {
        let json: Json = serde_json::from_slice(file).ok()?;
        let model = &json["model"];
        if model["type"] != "BPE"
            || model["byte_fallback"] == true
            || !json["normalizer"].is_null() && json["normalizer"]["type"] != "NFC"
        {
            return None;
        }
        let cut = &json["pre_tokenizer"];
        let parts = match cut["type"].as_str()? {
            "Sequence" => cut["pretokenizers"].as_array()?.iter().collect(),
            _ => vec![cut],
        };
        let bytes = parts.last().filter(|part| part["type"] == "ByteLevel")?;
        let rule = match parts[..] {
            [_] if bytes["use_regex"] != false && bytes["add_prefix_space"] != true => "gpt-2",
            [split, _] if split["type"] == "Split" => {
                let pattern = split["pattern"]["Regex"].as_str()?;
                RULES.iter().find(|(_, known)| *known == pattern)?.0
            }
            _ => return None,
        };
        let mut tokens: Vec<String> = (0..rows).map(|id| format!("[unused {id}]")).collect();
        let mut kinds = vec![UNUSED; rows];
        let mut set = |id: &Json, token: &str, kind: i32| {
            let id = usize::try_from(id.as_u64()?).ok()?;
            *tokens.get_mut(id)? = token.to_owned();
            *kinds.get_mut(id)? = kind;
            Some(())
        };
        for (token, id) in model["vocab"].as_object()? {
            set(id, token, NORMAL)?;
        }
        for added in json["added_tokens"].as_array().into_iter().flatten() {
            let kind = if added["special"] == true {
                CONTROL
            } else {
                USER_DEFINED
            };
            set(&added["id"], added["content"].as_str()?, kind)?;
        }
        let merge = |merge: &Json| match merge {
            Json::String(text) => Some(text.clone()),
            Json::Array(pair) => Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
            _ => None,
        };
        let merges = model["merges"]
            .as_array()?
            .iter()
            .map(merge)
            .collect::<Option<_>>()?;
        Some(Self {
            tokens,
            kinds,
            merges,
            rule,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(cut: &Json) -> Option<ByteLevel> {
        let file = json!({
            "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3}, "merges": [["a", "b"]]},
            "pre_tokenizer": cut,
            "added_tokens": [{"id": 0, "content": "<s>", "special": true}, {"id": 4, "content": "x", "special": false}],
        });
        ByteLevel::read(&serde_json::to_vec(&file).unwrap(), 6)
    }

    #[test]
    fn tokens_kinds_and_merges_are_those_of_the_file() {
        let found = read(&json!({"type": "ByteLevel", "add_prefix_space": false})).unwrap();
        assert_eq!(found.tokens, ["<s>", "a", "b", "ab", "x", "[unused 5]"]);
        let kinds = [CONTROL, NORMAL, NORMAL, NORMAL, USER_DEFINED, UNUSED];
        assert_eq!(
            (&found.kinds[..], &found.merges[..]),
            (&kinds[..], &["a b".to_owned()][..])
        );
        assert_eq!(found.rule, "gpt-2");
    }

    #[test]
    fn a_cut_without_a_name_and_other_tokenizers_have_no_settings() {
        let split = |pattern: &str| {
            json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
            ]})
        };
        let rule = |cut: &Json| read(cut).map(|found| found.rule);
        let llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        assert_eq!(rule(&split(llama)), Some("llama-bpe"));
        assert_eq!(rule(&split(&llama.replace("{1,3}", ""))), Some("qwen2"));
        assert_eq!(rule(&split("[a-z]+")), None);
        assert_eq!(
            rule(&json!({"type": "ByteLevel", "add_prefix_space": true})),
            None
        );
        assert_eq!(rule(&json!({"type": "Whitespace"})), None);
        assert!(ByteLevel::read(b"the\nwords\n", 5).is_none());
    }
}
