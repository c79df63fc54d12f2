//! The screen of a `tokenizer.json`: it decides what is accepted before the library sees the file.
//!
//! A tokenizer is a program: its parts rewrite text, cut it by regular expressions and look it up. The library that runs it
//! trusts the file, so a file can make it panic, run out of memory or compute for ever. Only parts are let through whose cost
//! is bounded by the text's length, with values that the library handles. Post-processor, truncation and padding are left out:
//! they decide neither ids nor text. A decoder decides text alone, so one that is not accepted is an error where text is asked for.

mod model;
mod pattern;

use serde_json::{Map, Value, json};

use crate::error::quoted;

/// Maximum number of normalizers and pre-tokenizers together, and of decoders.
const MAX_PARTS: usize = 32;
/// Maximum length in bytes of what a part inserts or looks for.
const MAX_INSERTED: usize = 64;
/// Maximum factor by which all parts together may lengthen a text.
const MAX_GROWTH: usize = 64;
/// Maximum number of values in the file: the largest public tokenizers have about three million.
const MAX_VALUES: usize = 4_000_000;
/// Maximum number of added tokens and length of one in bytes.
const MAX_ADDED: usize = 100_000;
const MAX_TOKEN_BYTES: usize = 2048;

/// A tokenizer that may be given to the library.
pub(super) struct Screened {
    /// The parts that decide ids.
    pub(super) tokenizer: Value,
    /// Factor by which a text may grow before it is cut.
    pub(super) growth: usize,
    /// Says what is wrong with the decoder, if it was left out.
    pub(super) refused_decoder: Option<String>,
}

/// Screens the contents of a file. The error says what is wrong with it.
pub(super) fn screen(contents: &str) -> Result<Screened, String> {
    let values = values(contents);
    if values > MAX_VALUES {
        return Err(format!("expected at most {MAX_VALUES} values, got {values}"));
    }
    let expected = |error| format!("expected a Hugging Face tokenizer.json, got {error}");
    let mut file: Map<String, Value> =
        serde_json::from_str(contents).map_err(|error| expected(error.to_string()))?;
    let mut take = |key: &str| file.remove(key).unwrap_or(Value::Null);
    let (version, model) = (take("version"), take("model"));
    if version != "1.0" && !version.is_null() {
        return Err(expected(format!("version {}", shown(&version))));
    }
    let Value::Object(mut model) = model else {
        return Err(expected("no model".to_owned()));
    };
    model::screen(&mut model)?;
    let mut parts = Parts {
        left: MAX_PARTS,
        growth: 1,
    };
    let (normalizer, cut, added) = (take("normalizer"), take("pre_tokenizer"), take("added_tokens"));
    parts.screen(&normalizer, "normalizer", "normalizers", &Parts::normalizer)?;
    parts.screen(&cut, "pre_tokenizer", "pretokenizers", &Parts::pre_tokenizer)?;
    let mut decoder = take("decoder");
    let mut parts_of_text = Parts {
        left: MAX_PARTS,
        growth: 1,
    };
    let screened = parts_of_text.screen(&decoder, "decoder", "decoders", &Parts::decoder);
    let refused_decoder = screened.err();
    if refused_decoder.is_some() {
        decoder = Value::Null;
    }
    let added = match added {
        Value::Null => Value::Array(Vec::new()),
        added => added,
    };
    check_added(&added)?;
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": cut,
        "decoder": decoder,
        "model": model,
    });
    Ok(Screened {
        tokenizer,
        growth: parts.growth,
        refused_decoder,
    })
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
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => quoted(text),
        simple => simple.to_string(),
    }
}

fn check_added(added: &Value) -> Result<(), String> {
    let Value::Array(added) = added else {
        return Err(format!("added_tokens: expected an array, got {}", shown(added)));
    };
    if added.len() > MAX_ADDED {
        return Err(format!(
            "added_tokens: expected at most {MAX_ADDED}, got {}",
            added.len()
        ));
    }
    for token in added {
        match token.get("content").and_then(Value::as_str) {
            Some(content) if content.len() <= MAX_TOKEN_BYTES => {}
            Some(_) => {
                return Err(format!(
                    "added_tokens: expected at most {MAX_TOKEN_BYTES} bytes each"
                ));
            }
            None => return Err("added_tokens: expected a content in each".to_owned()),
        }
    }
    Ok(())
}

type Judge = dyn Fn(&mut Parts, &str, &Value) -> Result<bool, String>;

/// The parts seen so far, and what they make of a text's length.
struct Parts {
    left: usize,
    growth: usize,
}

impl Parts {
    /// Walks a part, or a sequence of parts under the key `inner`. `judge` knows the kinds.
    fn screen(&mut self, part: &Value, outer: &str, inner: &str, judge: &Judge) -> Result<(), String> {
        if part.is_null() {
            return Ok(());
        }
        let Some(kind) = part.get("type").and_then(Value::as_str) else {
            return Err(format!(
                "{outer}: expected a part with a type, got {}",
                shown(part)
            ));
        };
        if kind == "Sequence" {
            let Some(Value::Array(parts)) = part.get(inner) else {
                return Err(format!("{outer}: expected {inner} in a sequence"));
            };
            for part in parts {
                self.screen(part, outer, inner, judge)?;
            }
            return Ok(());
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| format!("{outer}: expected at most {MAX_PARTS} parts"))?;
        match judge(self, kind, part).map_err(|error| format!("{outer} {}: {error}", quoted(kind)))? {
            true => Ok(()),
            false => Err(format!(
                "{outer}: {} is not one of the parts that are accepted",
                quoted(kind)
            )),
        }
    }

    fn grow(&mut self, factor: usize) -> Result<bool, String> {
        self.growth = self.growth.saturating_mul(factor.max(1));
        match self.growth <= MAX_GROWTH {
            true => Ok(true),
            false => Err(format!(
                "expected parts that make a text at most {MAX_GROWTH} times as long"
            )),
        }
    }

    fn normalizer(&mut self, kind: &str, part: &Value) -> Result<bool, String> {
        match kind {
            "NFC" | "NFD" | "NFKC" | "NFKD" | "Nmt" | "Lowercase" | "Strip" | "StripAccents" => Ok(true),
            // Spaces around Chinese characters; two letters for a byte.
            "BertNormalizer" | "ByteLevel" => self.grow(2),
            "Prepend" => bounded(part, "prepend").map(|_| true),
            "Replace" => {
                let content = bounded(part, "content")?;
                let min = match pattern::of(part)? {
                    pattern::Pattern::Literal(text) => text.len(),
                    // It may match between any two letters.
                    pattern::Pattern::Regex => return self.grow(1 + content.len()),
                };
                self.grow(content.len().div_ceil(min))
            }
            _ => Ok(false),
        }
    }

    fn decoder(&mut self, kind: &str, part: &Value) -> Result<bool, String> {
        match kind {
            "ByteLevel" | "ByteFallback" | "Fuse" | "Strip" => Ok(true),
            "Metaspace" => bounded(part, "replacement").map(|_| true),
            "WordPiece" => bounded(part, "prefix").map(|_| true),
            "BPEDecoder" => bounded(part, "suffix").map(|_| true),
            "Replace" => self.normalizer(kind, part),
            _ => Ok(false),
        }
    }

    fn pre_tokenizer(&mut self, kind: &str, part: &Value) -> Result<bool, String> {
        match kind {
            "Whitespace" | "WhitespaceSplit" | "BertPreTokenizer" | "Punctuation" | "Digits"
            | "CharDelimiterSplit" => Ok(true),
            "ByteLevel" => self.grow(2),
            "Metaspace" => {
                let replacement = bounded(part, "replacement")?;
                self.grow(replacement.len())
            }
            "Split" => pattern::of(part).map(|_| true),
            _ => Ok(false),
        }
    }
}

/// A short text of a part.
fn bounded<'a>(part: &'a Value, key: &str) -> Result<&'a str, String> {
    match part.get(key).and_then(Value::as_str) {
        Some(text) if text.len() <= MAX_INSERTED => Ok(text),
        Some(text) => Err(format!(
            "{key}: expected at most {MAX_INSERTED} bytes, got {}",
            text.len()
        )),
        None => Err(format!("{key}: expected a text")),
    }
}
