//! A tokenizer as settings of a GGUF file.

use serde_json::Value as Json;
use undertone_data::Vocab;
use undertone_models::weights::gguf::Value;

/// Kinds of tokens in the format.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// The rules that cut a text into words, which llama.cpp knows by name, and a part of their regular expressions that no other has.
const RULES: [(&str, &str); 2] = [("llama-bpe", "\\p{N}{1,3}"), ("qwen2", "\\p{N}|")];

/// The settings of a byte-level BPE over `rows` ids. Other tokenizers, and lists of words, give the settings of a model that reads and
/// writes ids alone: llama.cpp has no such tokenizer.
pub(super) fn settings(vocab: &Vocab, file: &[u8], rows: usize) -> Vec<(String, Value)> {
    let named = |settings: Vec<(&str, Value)>| {
        let full = settings.into_iter();
        full.map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
            .collect()
    };
    let Some((tokens, kinds, merges, rule)) = byte_level(file, rows) else {
        return named(vec![("model", Value::Text("no_vocab".to_owned()))]);
    };
    let ids = vocab.special();
    let mut settings = vec![
        ("model", Value::Text("gpt2".to_owned())),
        ("pre", Value::Text(rule.to_owned())),
        ("tokens", Value::Texts(tokens)),
        ("token_type", Value::Numbers(kinds)),
        ("merges", Value::Texts(merges)),
        ("bos_token_id", Value::U32(ids.bos)),
        ("eos_token_id", Value::U32(ids.eos)),
        ("add_bos_token", Value::Bool(true)),
    ];
    settings.extend(ids.unk.map(|unk| ("unknown_token_id", Value::U32(unk))));
    named(settings)
}

/// Tokens by id, their kinds, the merges and the rule; `None` for anything but a byte-level BPE whose rule has a name.
fn byte_level(file: &[u8], rows: usize) -> Option<(Vec<String>, Vec<i32>, Vec<String>, &'static str)> {
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
            RULES.iter().find(|(_, part)| pattern.contains(part))?.0
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
    Some((tokens, kinds, merges, rule))
}
