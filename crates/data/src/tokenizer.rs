//! Training sub-word tokenizers on public text.

mod pieces;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Tokenizer};

use crate::columns::Keys;
use crate::error::{DataError, Result, invalid, no_text};
use crate::file;
use crate::made_from::{self, people_of};
use crate::path::expand;
use crate::progress::{Progress, Stage};
use crate::source::read_texts;
use pieces::PieceCounts;
use undertone_settings::name_of_source;
use undertone_text::SpecialIds;
use undertone_vocabulary::{MadeFromPeople, not_private, parse_tokenizer};

/// The algorithm by which a tokenizer cuts words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TokenizerKind {
    /// Byte-pair encoding over bytes, as GPT-2: any text can be written, so nothing is unknown.
    Bpe,
    /// WordPiece over lower-cased characters, as BERT: words with a rare character are unknown.
    WordPiece,
}

impl fmt::Display for TokenizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenizerKind::Bpe => "byte-level BPE",
            TokenizerKind::WordPiece => "WordPiece",
        })
    }
}

/// The result of training a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerSummary {
    /// Algorithm by which the tokenizer cuts words.
    pub kind: TokenizerKind,
    /// Number of ids, the three special ones among them: at most what was asked for, fewer where the text has too few pairs.
    pub size: usize,
    /// Rows of text read.
    pub rows: u64,
    /// Words (pre-tokens) read.
    pub words: u64,
    /// Distinct words that the merges were chosen by.
    pub distinct_words: usize,
    /// Distinct words that were forgotten while counting, to hold the memory bound; all were rare.
    pub forgotten_words: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// `true` if a record beside the file says that it was made from people's text.
    pub not_private: bool,
}

/// The options that name the columns.
const KEYS: &Keys = &Keys {
    text: "--text",
    ..*Keys::SOURCE
};

/// The ids that every tokenizer of ours has beside merges: three special ones and 256 bytes.
const MIN_SIZE: usize = SpecialIds::NAMES.len() + 256;
const MAX_SIZE: usize = 1_000_000;

/// Trains a tokenizer of at most `size` ids on the texts of public files (`.parquet`, `.jsonl`, `.csv`, `.tsv` or plain text;
/// `text` names the column) and writes it as a Hugging Face `tokenizer.json`. Ids 0, 1, 2 are `<unk>`, `<bos>`, `<eos>`.
///
/// Memory is bounded: at most four million distinct words are counted at a time; beyond that the rarest are forgotten. Words
/// of more than 256 bytes do not count. The file's bytes do not depend on the number of threads.
///
/// # Guarantee
/// None: merges depend on the text without noise, so it has to be public, which `declared_public` says. Without it, or where the record of
/// a file says otherwise, a record beside the tokenizer says that it is not private.
///
/// # Errors
/// [`DataError::Setting`] for a size that does not hold the alphabet, [`DataError::NoText`] for sources
/// without a word, [`DataError::OutputExists`] unless overwriting is asked for, and whatever reading says.
///
/// # Source
/// Sennrich et al., *Neural machine translation of rare words with subword units* (ACL 2016); Radford et al., *Language
/// models are unsupervised multitask learners* (2019), section 2.2, for bytes; Schuster and Nakajima, *Japanese and Korean
/// voice search* (ICASSP 2012) for WordPiece, whose merges are chosen by frequency here.
pub fn train_tokenizer(
    (kind, size): (TokenizerKind, usize),
    (sources, declared_public): (&[String], bool),
    text: &str,
    (output, overwrite): (&Path, bool),
    progress: &dyn Progress,
) -> Result<TokenizerSummary> {
    if !(MIN_SIZE..=MAX_SIZE).contains(&size) {
        return Err(invalid(
            "size",
            format!("between {MIN_SIZE} (3 special ids and 256 characters) and {MAX_SIZE}"),
            size,
        ));
    }
    file::refuse_existing(output, overwrite)?;
    let mut tokenizer = unskilled(kind)?;
    let mut counts = PieceCounts::new(&tokenizer);
    let mut rows = 0;
    let mut people = Vec::new();
    for source in sources {
        let path = expand("SOURCE", source, Path::new(""))?;
        let recorded = not_private(&path)?;
        people.extend(
            people_of(recorded, declared_public, || name_of_source(source))
                .into_iter()
                .flatten(),
        );
        let before = rows;
        read_texts(&path, text, KEYS, &mut |batch, total| {
            counts.add(batch)?;
            rows += batch.len() as u64;
            progress.update(Stage::Counting, rows, total.map(|total| before + total));
            Ok(())
        })?;
    }
    let (words, forgotten_words) = (counts.total(), counts.forgotten());
    let counts = counts.finish();
    if counts.is_empty() {
        return Err(no_text(sources.join(", "), "text", rows));
    }
    progress.update(Stage::Merging, 0, None);
    let distinct_words = counts.len();
    train(kind, size, &mut tokenizer, &counts)?;
    let contents = tokenizer.to_string(true).map_err(failed)? + "\n";
    // What was written is what will be read.
    let vocab = parse_tokenizer(output, contents.into_bytes(), None, None)?;
    let private = !people.is_empty();
    // PRIVACY: the record comes first, so that the tokenizer never lies there as if it were public.
    if private {
        made_from::write_beside(output, &MadeFromPeople::words(&vocab, people))?;
    }
    file::write(output, vocab.to_file_contents().as_bytes(), overwrite)?;
    if !private {
        made_from::remove(output)?;
    }
    Ok(TokenizerSummary {
        not_private: private,
        kind,
        size: vocab.len(),
        rows,
        words,
        distinct_words,
        forgotten_words,
        sha256: vocab.digest(),
    })
}

#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
fn failed(error: tokenizers::Error) -> DataError {
    DataError::TokenizerTraining {
        detail: error.to_string(),
    }
}

fn specials() -> Vec<AddedToken> {
    SpecialIds::NAMES
        .map(|name| AddedToken::from(name, true))
        .to_vec()
}

/// A tokenizer that cuts text into words, without a model yet.
fn unskilled(kind: TokenizerKind) -> Result<Tokenizer> {
    let mut tokenizer = Tokenizer::new(BPE::default());
    match kind {
        TokenizerKind::Bpe => {
            let bytes = ByteLevel::default().add_prefix_space(false);
            tokenizer
                .with_pre_tokenizer(Some(bytes))
                .with_decoder(Some(bytes));
        }
        TokenizerKind::WordPiece => {
            tokenizer
                .with_normalizer(Some(BertNormalizer::default()))
                .map_err(failed)?
                .with_pre_tokenizer(Some(BertPreTokenizer))
                .with_decoder(Some(WordPieceDecoder::default()));
        }
    }
    let [_, bos, eos] = SpecialIds::NAMES;
    let ends = (SpecialIds::WORDS.bos, SpecialIds::WORDS.eos);
    let template = TemplateProcessing::builder()
        .try_single(format!("{bos} $A {eos}"))
        .map_err(|error| failed(error.into()))?
        .special_tokens(vec![(bos, ends.0), (eos, ends.1)])
        .build();
    let template = template.map_err(|error| failed(error.to_string().into()))?;
    tokenizer.with_post_processor(Some(template));
    Ok(tokenizer)
}

/// Chooses the merges and gives them to the tokenizer.
fn train(
    kind: TokenizerKind,
    size: usize,
    tokenizer: &mut Tokenizer,
    counts: &[(Box<str>, u64)],
) -> Result<()> {
    let builder = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(size)
        .min_frequency(2);
    let mut model = BPE::default();
    let words = counts.iter().map(|(word, count)| ((**word).into(), *count));
    match kind {
        TokenizerKind::Bpe => {
            let trainer = builder
                .special_tokens(specials())
                .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
                .build();
            trainer.do_train(&words.collect(), &mut model).map_err(failed)?;
            tokenizer.with_model(model);
        }
        TokenizerKind::WordPiece => {
            // The trainer numbers `##x` in the order of a hash map; named beforehand, all have their place.
            let alphabet = pieces::alphabet(counts, (size - SpecialIds::NAMES.len()) / 4);
            let first = specials().into_iter().chain(
                alphabet
                    .iter()
                    .map(|letter| AddedToken::from(letter.as_str(), false)),
            );
            let trainer = builder
                .special_tokens(first.collect())
                // No other characters.
                .limit_alphabet(0)
                .continuing_subword_prefix("##".to_owned())
                .build();
            trainer.do_train(&words.collect(), &mut model).map_err(failed)?;
            let [unk, ..] = SpecialIds::NAMES;
            let mut model = WordPiece::from_bpe(&model);
            model.unk_token = unk.to_owned();
            tokenizer.with_model(model);
        }
    }
    tokenizer.add_special_tokens(specials()).map_err(failed)?;
    Ok(())
}
