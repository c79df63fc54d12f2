//! `undertone data import`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use undertone_data::{GitSource, ImportOptions, ImportSummary};
use undertone_present::numbers::grouped;

use super::export::ExportArgs;
use super::show::{StageBar, names, noted};
use super::source::SourceArgs;
use crate::commands::NO_GROUP;
use crate::output::{Output, facts};

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
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

impl ImportArgs {
    /// Imports the source.
    pub(super) fn run(&self, output: &Output) -> anyhow::Result<()> {
        let salt = match &self.salt_file {
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
            keep_user_ids: self.keep_user_ids,
            join_users: self.join_users,
            drop_users: &self.drop_user,
            split,
            public: self.public,
            overwrite: self.force,
        };
        let bar = StageBar::new(output);
        let summary = if let Some(path) = &self.git {
            let log = GitSource {
                path: path.clone(),
                revision: self.revision.clone(),
            };
            undertone_data::import_git(&log, &self.output, &options(self.source.split()?), &bar)?
        } else if let (Some(path), Some(query)) = (&self.sqlite, &self.query) {
            let rows = self.source.query(path, query);
            undertone_data::import_sqlite(&rows, &self.output, &options(self.source.split()?), &bar)?
        } else if let Some(export) = self.export.source(self.source.user_column()) {
            undertone_data::import_export(&export, &self.output, &options(self.source.split()?), &bar)?
        } else {
            let (spec, base) = self.source.spec(None)?;
            undertone_data::import(&spec.source, &base, &self.output, &options(spec.split), &bar)?
        };
        bar.clear();
        output.show(&summary, || imported(&summary, &self.output))
    }
}

/// An import as text for readers.
fn imported(summary: &ImportSummary, path: &Path) -> String {
    let mut rows = vec![
        (
            "file",
            format!("{} ({:.1} MB)", path.display(), summary.bytes as f64 / 1e6),
        ),
        ("rows", grouped(summary.rows)),
        ("rows without text (left out)", grouped(summary.rows_without_text)),
        ("users", grouped(summary.users)),
        (
            "user ids",
            if summary.users_hashed {
                "salted hashes"
            } else {
                "unchanged, as in the source"
            }
            .to_owned(),
        ),
        (
            "time column",
            if summary.has_time { "timestamp" } else { "none" }.to_owned(),
        ),
    ];
    match summary.split_rows {
        Some([train, validation, test]) => {
            let [train, validation, test] = [train, validation, test].map(grouped);
            rows.push((
                "rows by split",
                format!("{train} train, {validation} validation, {test} test"),
            ));
        }
        None => rows.push(("split column", "none".to_owned())),
    }
    if summary.rows_dropped > 0 {
        rows.push(("rows of dropped users", grouped(summary.rows_dropped)));
    }
    rows.extend(names(&summary.names, summary.rows));
    rows.extend(noted(&summary.noted));
    if !summary.skipped.is_empty() {
        rows.push(("skipped", summary.skipped.join(", ")));
    }
    let note = "The users are pseudonymous, not anonymous: their text is unchanged.";
    format!("{}\n{note}", facts(rows))
}
