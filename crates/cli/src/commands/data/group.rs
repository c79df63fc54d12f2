//! `undertone data group`.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use undertone_data::{ByteSize, GroupOptions, GroupedManifest, group};
use undertone_present::numbers::grouped;

use super::show::StageBar;
use super::source::SourceArgs;
use crate::commands::NO_GROUP;
use crate::output::{Output, facts};

#[derive(Debug, clap::Args)]
pub(super) struct GroupArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Write this folder.
    #[arg(long, short, alias = "out", value_name = "FOLDER", help_heading = NO_GROUP)]
    output: PathBuf,
    /// Limit the memory for rows and buffers, for example 512MB or 2GiB.
    #[arg(long, default_value = "512MB", value_name = "SIZE", help_heading = NO_GROUP)]
    memory: ByteSize,
    /// Declare that the text is public. Otherwise a record in the folder says that it was made from people's text.
    #[arg(long, help_heading = NO_GROUP)]
    public: bool,
    /// Replace the output folder if it exists.
    #[arg(long, help_heading = NO_GROUP)]
    force: bool,
}

/// The written folder, and the speed of writing it.
#[derive(Serialize)]
struct Written<'a> {
    folder: PathBuf,
    seconds: f64,
    #[serde(flatten)]
    manifest: &'a GroupedManifest,
}

impl GroupArgs {
    pub(super) fn run(&self, output: &Output) -> anyhow::Result<()> {
        let (spec, base) = self.source.spec(None)?;
        let options = GroupOptions {
            memory: self.memory.0,
            split: spec.split.clone(),
            public: self.public,
            overwrite: self.force,
        };
        let bar = StageBar::new(output);
        let started = Instant::now();
        let manifest = group(&spec.source, &base, &self.output, &options, &bar)?;
        bar.clear();
        let written = Written {
            folder: self.output.clone(),
            seconds: started.elapsed().as_secs_f64(),
            manifest: &manifest,
        };
        output.show(&written, || written.table())
    }
}

impl Written<'_> {
    fn table(&self) -> String {
        let manifest = self.manifest;
        let bytes: u64 = manifest.shards.iter().map(|shard| shard.bytes).sum();
        let yes = |has: bool| if has { "yes" } else { "no" }.to_owned();
        facts([
            ("folder", self.folder.display().to_string()),
            ("rows", grouped(manifest.rows)),
            ("users", grouped(manifest.users)),
            ("largest user", format!("{} rows", grouped(manifest.largest_user))),
            (
                "shards",
                format!("{}, {}", manifest.shards.len(), ByteSize(bytes as usize)),
            ),
            ("time column", yes(manifest.has_time)),
            ("split column", yes(manifest.has_split)),
            (
                "speed",
                format!(
                    "{} rows per second",
                    grouped((manifest.rows as f64 / self.seconds.max(1e-9)) as u64)
                ),
            ),
        ])
    }
}
