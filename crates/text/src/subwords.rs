//! Sub-word tokens: a Hugging Face `tokenizer.json`.

mod screen;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokenizers::{ModelWrapper, Tokenizer};

use crate::error::{Result, TextError, quoted};
use crate::guard::caught;
use crate::special::SpecialIds;
use crate::vocab::MAX_VOCABULARY_WORDS;
use screen::screen;

/// Names under which tokenizers keep the start of a text, likeliest first; those of the end; those of unknown text.
const BOS: [&str; 6] = [
    "<bos>",
    "<s>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "[CLS]",
    "<|endoftext|>",
];
const EOS: [&str; 5] = ["<eos>", "</s>", "<|end_of_text|>", "[SEP]", "<|endoftext|>"];
const UNK: [&str; 2] = ["<unk>", "[UNK]"];

/// Maximum length in bytes of a text that is tokenised, as long as the tokenizer's parts may make it: the library needs about
/// a hundred times as much memory.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// A loaded tokenizer with the text of its file.
#[derive(Clone)]
pub(crate) struct Subwords(Arc<Loaded>);

struct Loaded {
    contents: String,
    tokenizer: Tokenizer,
    /// Text of each token, by id; empty where an id is not in use.
    tokens: Vec<Box<str>>,
    special: SpecialIds,
    /// Factor by which the tokenizer may lengthen a text.
    growth: usize,
    /// Says why the decoder was left out, if it was.
    refused_decoder: Option<String>,
}

impl Subwords {
    /// `bos` and `eos` name the special tokens; without them, the usual names are looked for among the added tokens.
    pub(crate) fn parse(contents: String, bos: Option<&str>, eos: Option<&str>) -> Result<Subwords> {
        let bad = |detail: String| TextError::BadTokenizer { detail };
        let screened = screen(&contents).map_err(bad)?;
        let parsed = caught(|| serde_json::from_value::<Tokenizer>(screened.tokenizer)).map_err(bad)?;
        let mut tokenizer =
            parsed.map_err(|error| bad(format!("expected a Hugging Face tokenizer.json, got {error}")))?;
        // PRIVACY and cleanliness: a user who writes "<eos>" has written five letters.
        tokenizer.set_encode_special_tokens(true);

        let vocab = tokenizer.get_vocab(true);
        let len = vocab.values().max().map_or(0, |&id| id as usize + 1);
        if len > MAX_VOCABULARY_WORDS {
            return Err(bad(format!(
                "expected ids below {MAX_VOCABULARY_WORDS}, got {}",
                len as u64 - 1
            )));
        }
        let mut tokens: Vec<Box<str>> = vec![Box::default(); len];
        for (token, id) in vocab {
            tokens[id as usize] = token.into();
        }
        let added = tokenizer.get_added_tokens_decoder();
        let find = |names: &[&str]| {
            let of = |name: &&str| added.iter().find(|(_, token)| token.content == *name);
            names.iter().find_map(of).map(|(&id, _)| id)
        };
        let special = |key: &str, given: Option<&str>, names: &[&str]| {
            match given {
            Some(name) => tokenizer.token_to_id(name).ok_or_else(|| {
                bad(format!(
                    "it has no token {}, which data.vocabulary.{key} names",
                    quoted(name)
                ))
            }),
            None => find(names).ok_or_else(|| {
                let names = names.join(", ");
                bad(format!(
                    "none of its added tokens is {names}: name the one to use by --{key}, or in data.vocabulary.{key} of a run file"
                ))
            }),
        }
        };
        let (bos, eos) = (special("bos", bos, &BOS)?, special("eos", eos, &EOS)?);
        let unk = match tokenizer.get_model() {
            ModelWrapper::BPE(bpe) => bpe.get_unk_token().as_deref(),
            ModelWrapper::WordPiece(words) => Some(&*words.unk_token),
            ModelWrapper::WordLevel(words) => Some(&*words.unk_token),
            ModelWrapper::Unigram(_) => None,
        };
        let unk = unk
            .and_then(|name| tokenizer.token_to_id(name))
            .or_else(|| find(&UNK));
        if let (None, ModelWrapper::WordPiece(_) | ModelWrapper::WordLevel(_)) = (unk, tokenizer.get_model())
        {
            return Err(bad(
                "it has no token for unknown text, which a model of words needs".to_owned(),
            ));
        }
        let special = SpecialIds {
            unk,
            bos,
            eos,
            first_word: None,
        };
        Ok(Subwords(Arc::new(Loaded {
            contents,
            tokenizer,
            tokens,
            special,
            growth: screened.growth,
            refused_decoder: screened.refused_decoder,
        })))
    }

    pub(crate) fn contents(&self) -> &str {
        &self.0.contents
    }

    pub(crate) fn special(&self) -> SpecialIds {
        self.0.special
    }

    pub(crate) fn len(&self) -> usize {
        self.0.tokens.len()
    }

    pub(crate) fn token(&self, id: u32) -> Option<&str> {
        self.0.tokens.get(id as usize).map(|token| &**token)
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.0.tokenizer.token_to_id(token)
    }

    /// Appends the ids of a text, without special ones.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let failed = |detail| TextError::Untokenisable { detail };
        let max = MAX_TEXT_BYTES / self.0.growth;
        if text.len() > max {
            return Err(failed(format!(
                "expected at most {max} bytes in a row, got {}: cut it into several rows",
                text.len()
            )));
        }
        let encoding = caught(|| self.0.tokenizer.encode_fast(text, false)).map_err(failed)?;
        let encoding = encoding.map_err(|error| failed(error.to_string()))?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// The text of ids, without special ones.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String> {
        let failed = |detail| TextError::Untokenisable { detail };
        if let Some(reason) = &self.0.refused_decoder {
            return Err(failed(reason.clone()));
        }
        let ids: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|&id| self.special().is_candidate(id, false) && (id as usize) < self.len())
            .collect();
        caught(|| self.0.tokenizer.decode(&ids, false))
            .map_err(failed)?
            .map_err(|error| failed(error.to_string()))
    }
}
