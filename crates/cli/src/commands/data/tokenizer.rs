//! `undertone data tokenizer`.

use std::path::PathBuf;

use clap::ValueEnum;
use undertone_data::{TokenizerKind, TokenizerSummary, train_tokenizer};
use undertone_present::numbers::grouped;

use super::show::StageBar;
use crate::output::{Output, facts};

#[derive(Debug, clap::Args)]
pub(super) struct TokenizerArgs {
    /// Read text from these Parquet, JSONL, CSV, TSV or plain text files.
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Read the text from this column.
    #[arg(long, alias = "text-column", default_value = "text", value_name = "NAME")]
    text: String,
    /// Choose how words are cut into tokens.
    #[arg(long, value_enum, default_value_t = Kind::Bpe)]
    kind: Kind,
    /// Set the number of token ids, including the three special ids and the alphabet.
    #[arg(long, default_value_t = 8000, value_name = "NUMBER")]
    size: usize,
    /// Write the tokenizer to this file (tokenizer.json).
    #[arg(long, short, alias = "out", value_name = "FILE")]
    output: PathBuf,
    /// Declare that the text is public. Otherwise a record, FILE.privacy.json, says that the tokenizer is not private.
    #[arg(long)]
    public: bool,
    /// Replace the output file if it exists.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Use byte-level byte-pair encoding. No text is unknown.
    Bpe,
    /// Use WordPiece over lower-case characters.
    Wordpiece,
}

impl TokenizerArgs {
    pub(super) fn run(&self, output: &Output) -> anyhow::Result<()> {
        let kind = match self.kind {
            Kind::Bpe => TokenizerKind::Bpe,
            Kind::Wordpiece => TokenizerKind::WordPiece,
        };
        let bar = StageBar::new(output);
        let summary = train_tokenizer(
            (kind, self.size),
            (&self.sources, self.public),
            &self.text,
            (&self.output, self.force),
            &bar,
        )?;
        bar.clear();
        if summary.not_private {
            output.warn(
                "the tokens were chosen by counts of text without noise, and a record beside the file says that they are not private; \
                 for a private model, train the tokenizer on public text with --public",
            );
        }
        output.show(&summary, || self.table(&summary))
    }

    fn table(&self, summary: &TokenizerSummary) -> String {
        let mut rows = vec![
            ("file", self.output.display().to_string()),
            (
                "tokenizer",
                format!("{}, {} ids", summary.kind, grouped(summary.size as u64)),
            ),
            ("sha256", summary.sha256[..16].to_owned()),
            ("rows read", grouped(summary.rows)),
            (
                "words",
                format!(
                    "{}, {} of them distinct",
                    grouped(summary.words),
                    grouped(summary.distinct_words as u64)
                ),
            ),
        ];
        if summary.forgotten_words > 0 {
            rows.push((
                "not counted",
                format!(
                    "{} rare words, to stay within the memory limit",
                    grouped(summary.forgotten_words)
                ),
            ));
        }
        facts(rows)
    }
}
