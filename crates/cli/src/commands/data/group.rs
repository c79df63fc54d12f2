//! `undertone data group`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use serde::Serialize;
use undertone_data::{GroupOptions, GroupedManifest, group};
use undertone_training::figures::grouped;

use super::show::StageBar;
use super::source::SourceArgs;
use crate::output::{Output, facts};

#[derive(Debug, clap::Args)]
pub(super) struct GroupArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// The folder to write.
    #[arg(long, short, alias = "out", value_name = "FOLDER")]
    output: PathBuf,
    /// Memory for rows and buffers, such as 512MB or 2GiB.
    #[arg(long, default_value = "512MB", value_parser = bytes, value_name = "SIZE")]
    memory: usize,
    /// Replace the folder if it exists.
    #[arg(long)]
    force: bool,
}

/// What was written, and how fast.
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
            memory: self.memory,
            split: spec.split.clone(),
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
        if output.json {
            return output.print_json(&written);
        }
        output.print(&written.table())
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
                format!("{}, {:.1} MB", manifest.shards.len(), bytes as f64 / 1e6),
            ),
            ("times", yes(manifest.has_time)),
            ("splits", yes(manifest.has_split)),
            (
                "speed",
                format!(
                    "{} rows a second",
                    grouped((manifest.rows as f64 / self.seconds.max(1e-9)) as u64)
                ),
            ),
        ])
    }
}

/// A number of bytes: `512MB`, `2GiB`, `1000000`.
pub(super) fn bytes(text: &str) -> anyhow::Result<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => bail!("expected a number of bytes such as 512MB or 2GiB, got \"{text}\""),
    };
    match number
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
    {
        Some(bytes) => Ok(bytes),
        None => bail!("expected a number of bytes such as 512MB or 2GiB, got \"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |text, expected| assert_eq!(bytes(text).ok(), expected, "{text}");
        check("512MB", Some(512_000_000));
        check("2 GiB", Some(2 << 30));
        check("1000", Some(1000));
        check("MB", None);
        check("1.5GB", None);
        check("-1", None);
        check("99999999999999999999GB", None);
    }
}
