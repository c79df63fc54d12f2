//! `undertone data {import,stats,vocab,tokenizer,group,dedup,prose}`.

mod dedup;
mod export;
mod group;
mod private;
mod prose;
mod show;
mod source;
mod tokenizer;

use std::path::PathBuf;

use anyhow::Context;
use undertone_data::{Corpus, GitSource, ImportOptions, MAX_VOCABULARY_WORDS, WordCounts};
use undertone_vocabulary::record_path;

use crate::commands::NO_GROUP;
use crate::output::Output;
use dedup::DedupArgs;
use export::ExportArgs;
use group::GroupArgs;
use private::PrivateArgs;
use prose::ProseArgs;
use show::StageBar;
use source::{RuleArgs, SourceArgs, VocabularyArgs};
use tokenizer::TokenizerArgs;

/// Arguments of `undertone data`.
#[derive(Debug, clap::Args)]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DataCommand {
    /// Convert a source into one Parquet file with users, and replace the users by salted hashes.
    Import(ImportArgs),
    /// Describe a corpus: users, tokens, unknown words, examples per user, and the unigram accuracy to beat.
    Stats(StatsArgs),
    /// Build a vocabulary file from counted words, most frequent first, or with differential privacy.
    Vocab(VocabArgs),
    /// Train a sub-word tokenizer on public text, and write a Hugging Face tokenizer.json.
    Tokenizer(TokenizerArgs),
    /// Group a source of any size by user on disk: Parquet shards, an index of users, and a manifest.
    Group(GroupArgs),
    /// Remove near-duplicates of private text from a public corpus.
    Dedup(DedupArgs),
    /// Collect the prose of a folder of documents and Rust sources as public text.
    ///
    /// The packages that cargo has downloaded (`~/.cargo/registry/src`) hold millions of words. The command prints their licences.
    Prose(ProseArgs),
}

#[derive(Debug, clap::Args)]
struct ImportArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Read the log of this git repository: the author of a commit is the user, its message is the text.
    ///
    /// Git runs no program that the repository's configuration names.
    #[arg(long, value_name = "FOLDER", group = "which", help_heading = "Source")]
    git: Option<PathBuf>,
    /// Read the commits of the git log that are reachable from this commit.
    #[arg(long, default_value = "HEAD", value_name = "COMMIT", help_heading = "Source")]
    revision: String,
    /// Read the rows of a query over this SQLite file, which is opened read-only.
    #[arg(
        long,
        value_name = "FILE",
        group = "which",
        requires = "query",
        help_heading = "Source"
    )]
    sqlite: Option<PathBuf>,
    /// Take the rows of this statement, such as `select author as user_id, body as text from posts`.
    #[arg(long, value_name = "SQL", requires = "sqlite", help_heading = "Source")]
    query: Option<String>,
    #[command(flatten)]
    export: ExportArgs,
    /// Write this Parquet file.
    #[arg(long, short, alias = "out", value_name = "FILE", help_heading = NO_GROUP)]
    output: PathBuf,
    /// Replace the output file if it exists.
    #[arg(long, help_heading = NO_GROUP)]
    force: bool,
    /// Declare that the text is public. Otherwise a record, FILE.privacy.json, says that it was made from people's text.
    #[arg(long, help_heading = NO_GROUP)]
    public: bool,
    /// Salt the hashes of users with the contents of this file (default: fresh random bytes). Keep the file secret.
    ///
    /// The option is needed only if two imports must give a user the same hash.
    #[arg(long, value_name = "FILE", help_heading = NO_GROUP)]
    salt_file: Option<PathBuf>,
    /// Keep the user ids of a table instead of hashing them. The authors of a git log are always hashed.
    #[arg(long, help_heading = NO_GROUP)]
    keep_user_ids: bool,
    /// Take names that differ only in case, outer spaces, characters without width or Unicode's normal form for one user.
    #[arg(long, help_heading = NO_GROUP)]
    join_users: bool,
    /// Leave out the rows of this user, such as `[deleted]`. The option may be repeated.
    #[arg(long, value_name = "NAME", help_heading = NO_GROUP)]
    drop_user: Vec<String>,
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
        DataCommand::Import(args) => import(&args, output),
        DataCommand::Stats(args) => stats(&args, output),
        DataCommand::Vocab(args) => vocab(&args, output),
        DataCommand::Tokenizer(args) => args.run(output),
        DataCommand::Group(args) => args.run(output),
        DataCommand::Dedup(args) => args.run(output),
        DataCommand::Prose(args) => args.run(output),
    }
}

fn import(args: &ImportArgs, output: &Output) -> anyhow::Result<()> {
    let salt = match &args.salt_file {
        Some(path) => {
            std::fs::read(path).with_context(|| format!("cannot read the salt {}", path.display()))?
        }
        None => {
            let mut salt = vec![0_u8; 32];
            getrandom::fill(&mut salt)
                .context("cannot read random bytes for the salt from the operating system")?;
            salt
        }
    };
    let options = |split| ImportOptions {
        salt: &salt,
        keep_user_ids: args.keep_user_ids,
        join_users: args.join_users,
        drop_users: &args.drop_user,
        split,
        public: args.public,
        overwrite: args.force,
    };
    let bar = StageBar::new(output);
    let summary = if let Some(path) = &args.git {
        let log = GitSource {
            path: path.clone(),
            revision: args.revision.clone(),
        };
        undertone_data::import_git(&log, &args.output, &options(args.source.split()?), &bar)?
    } else if let (Some(path), Some(query)) = (&args.sqlite, &args.query) {
        let rows = args.source.query(path, query);
        undertone_data::import_sqlite(&rows, &args.output, &options(args.source.split()?), &bar)?
    } else if let Some(export) = args.export.source(args.source.user_column()) {
        undertone_data::import_export(&export, &args.output, &options(args.source.split()?), &bar)?
    } else {
        let (spec, base) = args.source.spec(None)?;
        undertone_data::import(&spec.source, &base, &args.output, &options(spec.split), &bar)?
    };
    bar.clear();
    output.show(&summary, || show::imported(&summary, &args.output))
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
