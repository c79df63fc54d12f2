//! The model of a tokenizer: tokens with ids, and how words are put together from them.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::file::{MAX_INSERTED, MAX_TOKEN_BYTES, expected, shown};
use crate::error::quoted;
use crate::limits::MAX_VOCABULARY_WORDS;

/// Maximum length of a word that WordPiece cuts, in characters: its time grows with the cube.
const MAX_WORD: u64 = 256;
/// Maximum number of distinct beginnings of Unigram's tokens: each is a node of a tree of some 350 bytes.
const MAX_NODES: usize = 1_500_000;

/// The tokens of a model with their ids, as added tokens find them.
pub(super) struct Model {
    pub(super) ids: HashMap<Box<str>, u32>,
    /// The token for unknown text, where the model names one.
    pub(super) unk: Option<String>,
    /// `true` for a model of words, which cannot do without such a token.
    pub(super) needs_unk: bool,
}

/// Checks a model and names its type, which old files leave out.
pub(super) fn screen(model: &mut Map<String, Value>) -> Result<Model, String> {
    let kind = match model.get("type").and_then(Value::as_str) {
        Some(kind) => kind.to_owned(),
        None if model.contains_key("merges") => "BPE".to_owned(),
        None if model.get("vocab").is_some_and(Value::is_array) => "Unigram".to_owned(),
        None if model.contains_key("max_input_chars_per_word") => "WordPiece".to_owned(),
        None => "WordLevel".to_owned(),
    };
    let screened = match &*kind {
        "BPE" => bpe(model)?,
        "WordPiece" => word_piece(model)?,
        "WordLevel" => word_level(model)?,
        "Unigram" => unigram(model)?,
        other => {
            return Err(format!(
                "model: {} is not one of the models that are accepted",
                quoted(other)
            ));
        }
    };
    model.insert("type".to_owned(), Value::String(kind));
    Ok(screened)
}

/// Tokens with their ids: a map, in which no id comes twice.
fn tokens(model: &Map<String, Value>) -> Result<HashMap<Box<str>, u32>, String> {
    let Some(Value::Object(vocab)) = model.get("vocab") else {
        return Err("model.vocab: expected tokens with ids".to_owned());
    };
    check_count(vocab.len())?;
    let mut ids = HashSet::with_capacity(vocab.len());
    let mut tokens = HashMap::with_capacity(vocab.len());
    for (token, id) in vocab {
        check_token(token)?;
        let known = id.as_u64().filter(|&id| id < MAX_VOCABULARY_WORDS as u64);
        let Some(id) = known else {
            return Err(format!(
                "model.vocab: expected ids below {MAX_VOCABULARY_WORDS}, got {} for {}",
                shown(id),
                quoted(token)
            ));
        };
        if !ids.insert(id) {
            return Err(format!("model.vocab: two tokens have the id {id}"));
        }
        tokens.insert(token.as_str().into(), id as u32);
    }
    Ok(tokens)
}

fn check_count(count: usize) -> Result<(), String> {
    match (1..=MAX_VOCABULARY_WORDS).contains(&count) {
        true => Ok(()),
        false => Err(format!(
            "model.vocab: expected between 1 and {MAX_VOCABULARY_WORDS} tokens, got {count}"
        )),
    }
}

fn check_token(token: &str) -> Result<(), String> {
    match token.len() <= MAX_TOKEN_BYTES {
        true => Ok(()),
        false => Err(format!(
            "model.vocab: expected tokens of at most {MAX_TOKEN_BYTES} bytes, got a token of {} bytes",
            token.len()
        )),
    }
}

/// An optional short text of the model.
fn affix<'a>(model: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match model.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) if text.len() <= MAX_INSERTED => Ok(text),
        Some(other) => Err(format!(
            "model.{key}: expected a text of at most {MAX_INSERTED} bytes, got {}",
            shown(other)
        )),
    }
}

/// Every merge joins two tokens to a third: the library reads beyond a buffer's end, or of characters' parts, where it does
/// not.
fn bpe(model: &Map<String, Value>) -> Result<Model, String> {
    let tokens = tokens(model)?;
    let prefix = affix(model, "continuing_subword_prefix")?;
    affix(model, "end_of_word_suffix")?;
    if model
        .get("dropout")
        .is_some_and(|dropout| !dropout.is_null() && dropout.as_f64() != Some(0.0))
    {
        return Err("model.dropout: expected none, because it makes tokens random".to_owned());
    }
    let Some(Value::Array(merges)) = model.get("merges") else {
        return Err("model.merges: expected a list of pairs".to_owned());
    };
    let mut joined = String::new();
    for (number, merge) in (1..).zip(merges) {
        let pair = match merge {
            Value::String(line) if line.starts_with("#version") => continue,
            Value::String(line) => line.split_once(' ').filter(|(_, second)| !second.contains(' ')),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(first), Value::String(second)] => Some((first.as_str(), second.as_str())),
                _ => None,
            },
            _ => None,
        };
        let Some((first, second)) = pair else {
            return Err(format!("model.merges: number {number} is no pair of tokens"));
        };
        joined.clear();
        joined.push_str(first);
        joined.push_str(second.strip_prefix(prefix).ok_or_else(|| {
            format!(
                "model.merges: number {number}: expected {} to begin with {}",
                quoted(second),
                quoted(prefix)
            )
        })?);
        for token in [first, second, &joined] {
            if !tokens.contains_key(token) {
                return Err(format!(
                    "model.merges: number {number} needs the token {}, which model.vocab lacks",
                    quoted(token)
                ));
            }
        }
    }
    let unk = model.get("unk_token").unwrap_or(&Value::Null);
    let unk = Option::<String>::deserialize(unk).map_err(expected)?;
    Ok(Model {
        ids: tokens,
        unk,
        needs_unk: false,
    })
}

fn word_piece(model: &Map<String, Value>) -> Result<Model, String> {
    let screened = word_level(model)?;
    affix(model, "continuing_subword_prefix")?;
    present(model, "continuing_subword_prefix")?;
    match present(model, "max_input_chars_per_word")? {
        length if length.as_u64().is_some_and(|length| length <= MAX_WORD) => Ok(screened),
        other => Err(format!(
            "model.max_input_chars_per_word: expected at most {MAX_WORD}, got {}",
            shown(other)
        )),
    }
}

fn word_level(model: &Map<String, Value>) -> Result<Model, String> {
    let ids = tokens(model)?;
    let unk = String::deserialize(present(model, "unk_token")?).map_err(expected)?;
    Ok(Model {
        ids,
        unk: Some(unk),
        needs_unk: true,
    })
}

/// A key that the model cannot do without.
fn present<'a>(model: &'a Map<String, Value>, key: &str) -> Result<&'a Value, String> {
    let found = model.get(key);
    found.ok_or_else(|| expected(format_args!("missing field `{key}`")))
}

fn unigram(model: &Map<String, Value>) -> Result<Model, String> {
    let Some(Value::Array(vocab)) = model.get("vocab") else {
        return Err("model.vocab: expected tokens with scores".to_owned());
    };
    check_count(vocab.len())?;
    let mut tokens = Vec::with_capacity(vocab.len());
    let mut ids = HashMap::with_capacity(vocab.len());
    for entry in vocab {
        let token = match entry.as_array().map(Vec::as_slice) {
            Some([Value::String(token), Value::Number(_)]) => token,
            _ => return Err("model.vocab: expected pairs of a token and a score".to_owned()),
        };
        check_token(token)?;
        tokens.push(token.as_bytes());
        ids.insert(token.as_str().into(), ids.len() as u32);
    }
    match model.get("unk_id") {
        None | Some(Value::Null) => {}
        Some(id) if id.as_u64().is_some_and(|id| id < vocab.len() as u64) => {}
        Some(id) => {
            return Err(format!(
                "model.unk_id: expected an id below {}, got {}",
                vocab.len(),
                shown(id)
            ));
        }
    }
    tokens.sort_unstable();
    let mut nodes = tokens.first().map_or(0, |token| token.len());
    for pair in tokens.windows(2) {
        if pair[0] == pair[1] {
            let token = String::from_utf8_lossy(pair[0]);
            return Err(format!("model.vocab: the token {} comes twice", quoted(&token)));
        }
        let shared = pair[0]
            .iter()
            .zip(pair[1])
            .take_while(|(one, other)| one == other)
            .count();
        nodes += pair[1].len() - shared;
    }
    match nodes <= MAX_NODES {
        true => Ok(Model {
            ids,
            unk: None,
            needs_unk: false,
        }),
        false => Err(format!(
            "model.vocab: expected tokens with at most {MAX_NODES} distinct beginnings, got {nodes}"
        )),
    }
}
