//! The JSON of a `tokenizer.json`, with its model and its added tokens judged.

use std::fmt::Display;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::model::{self, Model};
use crate::error::quoted;

/// Maximum length in bytes of what a part inserts or looks for.
pub(crate) const MAX_INSERTED: usize = 64;
/// Maximum number of values in the file: the largest public tokenizers have about three million.
const MAX_VALUES: usize = 4_000_000;
/// Maximum number of added tokens and length of one in bytes.
const MAX_ADDED: usize = 100_000;
pub(super) const MAX_TOKEN_BYTES: usize = 2048;

/// The parts of a file, by key.
pub(crate) struct File(Map<String, Value>);

/// The parts that decide ids.
pub(super) struct Names {
    pub(super) model: Model,
    /// The texts of the added tokens, in their order.
    pub(super) added: Vec<String>,
}

/// An added token. All keys are needed, as in the library, which looks at most of them when it cuts text.
#[derive(Deserialize)]
#[expect(dead_code, reason = "the library reads the other keys")]
struct Added {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl File {
    /// Reads the contents of a file and judges model and added tokens. The error says what is wrong with them.
    pub(super) fn read(contents: &str) -> Result<(File, Names), String> {
        let values = values(contents);
        if values > MAX_VALUES {
            return Err(format!("expected at most {MAX_VALUES} values, got {values}"));
        }
        let mut file = File(serde_json::from_str(contents).map_err(expected)?);
        let version = file.part("version");
        if version != "1.0" && !version.is_null() {
            return Err(expected(format_args!("version {}", shown(version))));
        }
        let Some(Value::Object(model)) = file.0.get_mut("model") else {
            return Err(expected("no model"));
        };
        let model = model::screen(model)?;
        let added = added(file.part("added_tokens"))?;
        Ok((file, Names { model, added }))
    }

    /// A part, or null where the file has none.
    pub(crate) fn part(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// The parts that a library needs to turn text into ids, and ids into text where the decoder may be used.
    #[cfg(feature = "subwords")]
    pub(crate) fn into_tokenizer(mut self, with_decoder: bool) -> Value {
        let mut take = |key: &str| self.0.remove(key).unwrap_or(Value::Null);
        let added = match take("added_tokens") {
            Value::Null => Value::Array(Vec::new()),
            added => added,
        };
        serde_json::json!({
            "version": "1.0",
            "added_tokens": added,
            "normalizer": take("normalizer"),
            "pre_tokenizer": take("pre_tokenizer"),
            "decoder": Some(take("decoder")).filter(|_| with_decoder),
            "model": take("model"),
        })
    }
}

/// The refusal of a file that the library does not read either.
pub(crate) fn expected(got: impl Display) -> String {
    format!("expected a Hugging Face tokenizer.json, got {got}")
}

/// Number of values and keys, at most: what the tree of the file costs.
fn values(contents: &str) -> usize {
    let (mut values, mut inside, mut escaped) = (1, false, false);
    for byte in contents.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b',' | b'[' | b'{' | b':' if !inside => values += 1,
            _ => {}
        }
    }
    values
}

/// A value for a message, or its kind where it holds others.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => quoted(text),
        simple => simple.to_string(),
    }
}

/// The texts of the added tokens, judged.
fn added(added: &Value) -> Result<Vec<String>, String> {
    let added: &[Value] = match added {
        Value::Null => &[],
        Value::Array(added) => added,
        other => return Err(format!("added_tokens: expected an array, got {}", shown(other))),
    };
    if added.len() > MAX_ADDED {
        return Err(format!(
            "added_tokens: expected at most {MAX_ADDED}, got {}",
            added.len()
        ));
    }
    added.iter().map(added_token).collect()
}

fn added_token(token: &Value) -> Result<String, String> {
    match token.get("content").and_then(Value::as_str) {
        Some(content) if content.len() <= MAX_TOKEN_BYTES => Added::deserialize(token)
            .map(|token| token.content)
            .map_err(expected),
        Some(_) => Err(format!(
            "added_tokens: expected at most {MAX_TOKEN_BYTES} bytes each"
        )),
        None => Err("added_tokens: expected a content in each".to_owned()),
    }
}
