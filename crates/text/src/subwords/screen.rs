//! The screen of a `tokenizer.json`: it decides what is accepted before the library sees the file.
//!
//! A tokenizer is a program: its parts rewrite text, cut it by regular expressions and look it up. The library that runs it
//! trusts the file, so a file can make it panic, run out of memory or compute for ever. `tokens` judges model and added tokens. Only parts are let through whose cost
//! is bounded by the text's length, with values that the library handles. Post-processor, truncation and padding are left out:
//! they decide neither ids nor text. A decoder decides text alone, so one that is not accepted is an error where text is asked for.

mod pattern;

use serde_json::Value;

use crate::error::quoted;
use crate::tokens::file::{File, MAX_INSERTED, shown};

/// Maximum number of normalizers and pre-tokenizers together, and of decoders.
const MAX_PARTS: usize = 32;
/// Maximum factor by which all parts together may lengthen a text.
const MAX_GROWTH: usize = 64;
/// The judgement of the parts that cut, rewrite or join text.
pub(super) struct Screened {
    /// Factor by which a text may grow before it is cut.
    pub(super) growth: usize,
    /// Says what is wrong with the decoder, if it was left out.
    pub(super) refused_decoder: Option<String>,
}

/// Judges the parts of a file whose tokens are judged already. The error says what is wrong with them.
pub(super) fn screen(file: &File) -> Result<Screened, String> {
    let mut parts = Parts::new();
    let (normalizer, cut) = (file.part("normalizer"), file.part("pre_tokenizer"));
    parts.screen(normalizer, "normalizer", "normalizers", &Parts::normalizer)?;
    parts.screen(cut, "pre_tokenizer", "pretokenizers", &Parts::pre_tokenizer)?;
    let decoder = file.part("decoder");
    let screened = Parts::new().screen(decoder, "decoder", "decoders", &Parts::decoder);
    Ok(Screened {
        growth: parts.growth,
        refused_decoder: screened.err(),
    })
}

type Judge = dyn Fn(&mut Parts, &str, &Value) -> Result<bool, String>;

/// The parts seen so far, and what they make of a text's length.
struct Parts {
    left: usize,
    growth: usize,
}

impl Parts {
    fn new() -> Self {
        Self {
            left: MAX_PARTS,
            growth: 1,
        }
    }

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
