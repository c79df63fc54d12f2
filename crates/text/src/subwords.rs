//! Sub-word tokens: a Hugging Face `tokenizer.json`.

mod screen;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokenizers::Tokenizer;

use crate::error::{Result, TextError};
use crate::guard::caught;
use crate::tokens::{Named, Tokens, bad, file};
use screen::screen;

/// Maximum length in bytes of a text that is tokenised, as long as the tokenizer's parts may make it: the library needs about
/// a hundred times as much memory.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// The library with a tokenizer.
#[derive(Clone)]
pub(crate) struct Subwords(Arc<Loaded>);

struct Loaded {
    tokenizer: Tokenizer,
    /// Factor by which the tokenizer may lengthen a text.
    growth: usize,
    /// Says why the decoder was left out, if it was.
    refused_decoder: Option<String>,
}

impl Subwords {
    /// The tokens of a file, and the library that cuts text by them; `bos` and `eos` are those of [`Tokens::parse`].
    pub(crate) fn parse(
        contents: String,
        bos: Option<&str>,
        eos: Option<&str>,
    ) -> Result<(Tokens, Subwords)> {
        let (file, named) = Named::read(&contents)?;
        let screened = screen(&file).map_err(bad)?;
        let file = file.into_tokenizer(screened.refused_decoder.is_none());
        let parsed = caught(|| serde_json::from_value::<Tokenizer>(file)).map_err(bad)?;
        let mut tokenizer = parsed.map_err(|error| bad(file::expected(error)))?;
        // PRIVACY and cleanliness: a user who writes "<eos>" has written five letters.
        tokenizer.set_encode_special_tokens(true);
        if !agree(&named, &tokenizer) {
            let reason = "expected the ids that follow from its model and added tokens, got others from the library that cuts text";
            return Err(bad(reason.to_owned()));
        }
        let tokens = named.tokens(contents, bos, eos)?;
        let loaded = Loaded {
            tokenizer,
            growth: screened.growth,
            refused_decoder: screened.refused_decoder,
        };
        Ok((tokens, Subwords(Arc::new(loaded))))
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
    pub(crate) fn decode(&self, tokens: &Tokens, ids: &[u32]) -> Result<String> {
        let failed = |detail| TextError::Untokenisable { detail };
        if let Some(reason) = &self.0.refused_decoder {
            return Err(failed(reason.clone()));
        }
        let ids: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|&id| tokens.special().is_candidate(id, false) && (id as usize) < tokens.len())
            .collect();
        caught(|| self.0.tokenizer.decode(&ids, false))
            .map_err(failed)?
            .map_err(|error| failed(error.to_string()))
    }
}

/// `true` if the library gives every token the id that follows from the file.
fn agree(named: &Named, tokenizer: &Tokenizer) -> bool {
    let added = tokenizer.get_added_tokens_decoder();
    let added = added.iter().map(|(&id, token)| (id, token.content.as_str()));
    named.equals(&tokenizer.get_vocab(true), added)
}
