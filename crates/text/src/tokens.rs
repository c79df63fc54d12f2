//! Names and ids of the tokens of a `tokenizer.json`, without the library that cuts text by them.

pub(crate) mod file;
mod model;
#[cfg(all(test, feature = "subwords"))]
pub(crate) mod tests;

use std::collections::HashMap;

use crate::error::{Result, TextError, quoted};
use crate::limits::MAX_VOCABULARY_WORDS;
use crate::special::SpecialIds;
use file::{File, Names};
use model::Model;

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

/// The tokens of a file with the text of the file.
pub(crate) struct Tokens {
    contents: String,
    /// Text of each token, by id; empty where an id is not in use.
    tokens: Vec<Box<str>>,
    ids: HashMap<Box<str>, u32>,
    special: SpecialIds,
}

impl Tokens {
    /// `bos` and `eos` name the special tokens; without them, the usual names are looked for among the added tokens.
    pub(crate) fn parse(contents: String, bos: Option<&str>, eos: Option<&str>) -> Result<Tokens> {
        let (_, named) = Named::read(&contents)?;
        named.tokens(contents, bos, eos)
    }

    pub(crate) fn contents(&self) -> &str {
        &self.contents
    }

    pub(crate) fn special(&self) -> SpecialIds {
        self.special
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(|token| &**token)
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }
}

/// The tokens of a file before its special ones are known.
pub(crate) struct Named {
    ids: HashMap<Box<str>, u32>,
    /// The added tokens by id.
    added: HashMap<u32, Box<str>>,
    unk: Option<String>,
    needs_unk: bool,
}

impl Named {
    /// The parts of a file, and the tokens in it.
    pub(crate) fn read(contents: &str) -> Result<(File, Named)> {
        let (file, names) = File::read(contents).map_err(bad)?;
        Ok((file, Named::new(names)))
    }

    /// Gives ids to the added tokens as the library tokenizers 0.23 does: the id of the token in the model, or the next one from the
    /// number of the model's tokens. The ids that the file states are not looked at.
    ///
    /// Where the ids of a model have gaps, a new token may get an id that the model uses. It then hides the model's token.
    fn new(names: Names) -> Named {
        let Model {
            mut ids,
            unk,
            needs_unk,
        } = names.model;
        let mut next = ids.len() as u32;
        let mut added = HashMap::new();
        for token in names.added.into_iter().filter(|token| !token.is_empty()) {
            let id = *ids.entry(token.as_str().into()).or_insert_with(|| {
                next += 1;
                next - 1
            });
            added.insert(id, token.into());
        }
        Named {
            ids,
            added,
            unk,
            needs_unk,
        }
    }

    /// `true` if these are the ids of all tokens, and the texts of the added ones by id.
    #[cfg(feature = "subwords")]
    pub(crate) fn equals<'a>(
        &self,
        ids: &HashMap<String, u32>,
        added: impl ExactSizeIterator<Item = (u32, &'a str)>,
    ) -> bool {
        let mut both = ids.iter().map(|(token, id)| (self.ids.get(token.as_str()), id));
        ids.len() == self.ids.len()
            && both.all(|(ours, id)| ours == Some(id))
            && added.len() == self.added.len()
            && added
                .into_iter()
                .all(|(id, text)| self.added.get(&id).is_some_and(|ours| **ours == *text))
    }

    /// The tokens, once the special ones are found.
    pub(crate) fn tokens(self, contents: String, bos: Option<&str>, eos: Option<&str>) -> Result<Tokens> {
        let len = self.ids.values().max().map_or(0, |&id| id as usize + 1);
        if len > MAX_VOCABULARY_WORDS {
            return Err(bad(format!(
                "expected ids below {MAX_VOCABULARY_WORDS}, got {}",
                len as u64 - 1
            )));
        }
        let special = self.special(bos, eos)?;
        let mut tokens: Vec<Box<str>> = vec![Box::default(); len];
        for (token, &id) in &self.ids {
            tokens[id as usize] = token.clone();
        }
        for (id, token) in self.added {
            tokens[id as usize] = token;
        }
        Ok(Tokens {
            contents,
            tokens,
            ids: self.ids,
            special,
        })
    }

    fn special(&self, bos: Option<&str>, eos: Option<&str>) -> Result<SpecialIds> {
        let (bos, eos) = (self.end("bos", bos, &BOS)?, self.end("eos", eos, &EOS)?);
        let named = self.unk.as_ref().and_then(|name| self.ids.get(name.as_str()));
        let unk = named.copied().or_else(|| self.find(&UNK));
        if unk.is_none() && self.needs_unk {
            return Err(bad(
                "it has no token for unknown text, which a model of words needs".to_owned(),
            ));
        }
        Ok(SpecialIds {
            unk,
            bos,
            eos,
            first_word: None,
        })
    }

    /// The token that stands for an end of a text: the one that is given, or the first of `names` among the added ones.
    fn end(&self, key: &str, given: Option<&str>, names: &[&str]) -> Result<u32> {
        match given {
            Some(name) => self.ids.get(name).copied().ok_or_else(|| {
                bad(format!(
                    "it has no token {}, which data.vocabulary.{key} names",
                    quoted(name)
                ))
            }),
            None => self.find(names).ok_or_else(|| {
                let names = names.join(", ");
                bad(format!(
                    "none of its added tokens is {names}: name the one to use by --{key}, or in data.vocabulary.{key} of a run file"
                ))
            }),
        }
    }

    /// The id of the first of these names that an added token has.
    fn find(&self, names: &[&str]) -> Option<u32> {
        let id = |name: &&str| {
            self.ids
                .get(*name)
                .copied()
                .filter(|id| self.added.get(id).is_some_and(|token| **token == **name))
        };
        names.iter().find_map(id)
    }
}

pub(crate) fn bad(detail: String) -> TextError {
    TextError::BadTokenizer { detail }
}
