//! `undertone data {import,stats,vocab,tokenizer,group,dedup,prose}`.

#[cfg(feature = "tables")]
mod dedup;
#[cfg(feature = "tables")]
mod export;
#[cfg(feature = "tables")]
mod group;
#[cfg(feature = "tables")]
mod import;
mod private;
mod prose;
mod show;
mod source;
#[cfg(feature = "subwords")]
mod tokenizer;

use std::path::PathBuf;

use anyhow::Context;
use undertone_data::{Corpus, MAX_VOCABULARY_WORDS, WordCounts};
use undertone_vocabulary::record_path;

use crate::commands::NO_GROUP;
use crate::output::Output;
use private::PrivateArgs;
use prose::ProseArgs;
use show::StageBar;
use source::{RuleArgs, SourceArgs, VocabularyArgs};

/// Arguments of `undertone data`.
#[derive(Debug, clap::Args)]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DataCommand {
    /// Convert a source into one Parquet file with users, and replace the users by salted hashes.
    #[cfg(feature = "tables")]
    Import(import::ImportArgs),
    /// Describe a corpus: users, tokens, unknown words, examples per user, and the unigram accuracy to beat.
    Stats(StatsArgs),
    /// Build a vocabulary file from counted words, most frequent first, or with differential privacy.
    Vocab(VocabArgs),
    /// Train a sub-word tokenizer on public text, and write a Hugging Face tokenizer.json.
    #[cfg(feature = "subwords")]
    Tokenizer(tokenizer::TokenizerArgs),
    /// Group a source of any size by user on disk: Parquet shards, an index of users, and a manifest.
    #[cfg(feature = "tables")]
    Group(group::GroupArgs),
    /// Remove near-duplicates of private text from a public corpus.
    #[cfg(feature = "tables")]
    Dedup(dedup::DedupArgs),
    /// Collect the prose of a folder of documents and Rust sources as public text.
    ///
    /// The packages that cargo has downloaded (`~/.cargo/registry/src`) hold millions of words. The command prints their licences.
    Prose(ProseArgs),
}

#[derive(Debug, clap::Args)]
struct StatsArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    rule: RuleArgs,
    #[command(flatten)]
    vocabulary: VocabularyArgs,
    /// Keep the tokenised corpus in this folder, to speed up the next call (default: keep nothing).
    #[arg(long, value_name = "FOLDER", help_heading = NO_GROUP)]
    cache_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct VocabArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    rule: RuleArgs,
    /// Count all text of a public source. The source then needs no user column.
    #[arg(long, help_heading = NO_GROUP)]
    public: bool,
    /// Set the max number of words of the vocabulary.
    #[arg(long, default_value_t = 10_000, help_heading = NO_GROUP)]
    size: usize,
    /// Write this vocabulary file.
    #[arg(long, short, value_name = "FILE", help_heading = NO_GROUP)]
    output: PathBuf,
    /// Write the count of each word after a tab.
    #[arg(long, help_heading = NO_GROUP)]
    counts: bool,
    /// Replace the output file if it exists.
    #[arg(long, help_heading = NO_GROUP)]
    force: bool,
    #[command(flatten)]
    private: PrivateArgs,
}

/// Runs the sub-command.
pub(crate) fn run(args: DataArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        #[cfg(feature = "tables")]
        DataCommand::Import(args) => args.run(output),
        DataCommand::Stats(args) => stats(&args, output),
        DataCommand::Vocab(args) => vocab(&args, output),
        #[cfg(feature = "subwords")]
        DataCommand::Tokenizer(args) => args.run(output),
        #[cfg(feature = "tables")]
        DataCommand::Group(args) => args.run(output),
        #[cfg(feature = "tables")]
        DataCommand::Dedup(args) => args.run(output),
        DataCommand::Prose(args) => args.run(output),
    }
}

fn stats(args: &StatsArgs, output: &Output) -> anyhow::Result<()> {
    let (spec, base) = args.source.spec_by(&args.rule, Some(&args.vocabulary))?;
    let scratch;
    let cache = match &args.cache_dir {
        Some(folder) => folder,
        None => {
            scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
            &scratch.path().to_owned()
        }
    };
    let bar = StageBar::new(output);
    let corpus = Corpus::open(&spec, &base, cache, &bar)?;
    bar.clear();
    output.show(&show::Described::of(&corpus), || show::described(&corpus))
}

fn vocab(args: &VocabArgs, output: &Output) -> anyhow::Result<()> {
    anyhow::ensure!(
        (1..=MAX_VOCABULARY_WORDS).contains(&args.size),
        "--size: expected a number from 1 to {MAX_VOCABULARY_WORDS}, got {}",
        args.size
    );
    anyhow::ensure!(
        args.force || !args.output.exists(),
        "{} already exists; give --force to replace it",
        args.output.display()
    );
    let bar = StageBar::new(output);
    if args.private.private {
        let (spec, base) = args.source.spec_by(&args.rule, None)?;
        let to = (args.size, args.output.as_path(), args.force);
        let written = args.private.run(&spec, &base, to, &bar)?;
        bar.clear();
        for warning in written.warnings() {
            output.warn(&warning);
        }
        return output.show(&written, || written.table());
    }
    let record = record_path(&args.output);
    anyhow::ensure!(
        args.force || !record.exists(),
        "{} is a privacy record of a file with this name; give --force to replace or remove it",
        record.display()
    );
    let counts = if args.public {
        let (path, text) = args.source.public_text()?;
        WordCounts::of_public_corpus(&path, &text, &PathBuf::new(), args.rule.rule(), &bar)?
    } else {
        let (spec, base) = args.source.spec_by(&args.rule, None)?;
        WordCounts::of_training_data(&spec, &base, &bar)?
    };
    bar.clear();
    counts.write_vocab(&args.output, args.size, args.counts, args.force)?;
    let written = show::Vocabulary::of(&counts, args.size, &args.output);
    if !counts.provenance().is_private_safe() {
        // PRIVACY: the one place where words of the people leave without noise; nobody shall miss it.
        output.warn(
            "these words were counted on the users' text without noise, so the file reveals something about the users, and a record \
             beside it says so; for a private model, choose the words with --private, or count public text with --public",
        );
    }
    output.show(&written, || written.table())
}
