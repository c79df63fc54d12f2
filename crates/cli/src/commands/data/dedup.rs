//! `undertone data dedup`.

use std::path::PathBuf;

use undertone_data::{ByteSize, DedupOptions, DedupSource, DedupSummary, dedup};
use undertone_present::numbers::grouped;

use super::show::StageBar;
use crate::output::{Output, facts};

#[derive(Debug, clap::Args)]
pub(super) struct DedupArgs {
    /// The public corpus: a Parquet, JSONL, CSV, TSV or plain text file.
    #[arg(value_name = "PUBLIC")]
    public: String,
    /// The private corpus whose near-duplicates are removed.
    #[arg(long, value_name = "FILE")]
    against: String,
    /// The file to write: the rows that are kept, in the format of PUBLIC.
    #[arg(long, short, alias = "out", value_name = "FILE")]
    output: PathBuf,
    /// Column with the text of PUBLIC.
    #[arg(long, alias = "text-column", default_value = "text", value_name = "NAME")]
    text: String,
    /// Column with the text of the private corpus.
    #[arg(long, default_value = "text", value_name = "NAME")]
    against_text: String,
    /// Column with each public document's URL: documents at URLs of the private corpus, or at --host, are removed.
    #[arg(long, value_name = "NAME")]
    url: Option<String>,
    /// Column with each private document's URL.
    #[arg(long, requires = "url", value_name = "NAME")]
    against_url: Option<String>,
    /// Remove what is at this host, or below it; may be repeated.
    #[arg(long, requires = "url", value_name = "HOST")]
    host: Vec<String>,
    /// Jaccard similarity of word 5-grams from which on a document is removed.
    #[arg(long, default_value_t = 0.8, value_name = "SHARE")]
    threshold: f64,
    /// Bands of the hash that finds candidates: more find more.
    #[arg(long, default_value_t = 32, value_name = "NUMBER")]
    bands: usize,
    /// Minima in a band: more give fewer candidates.
    #[arg(long, default_value_t = 6, value_name = "NUMBER")]
    rows_per_band: usize,
    /// Memory for the part of the private corpus that is compared at a time.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    memory: ByteSize,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
}

impl DedupArgs {
    pub(super) fn run(&self, output: &Output) -> anyhow::Result<()> {
        let source = |path: &String, text: &String, url: &Option<String>| DedupSource {
            path: path.clone(),
            text: text.clone(),
            url: url.clone(),
        };
        let options = DedupOptions {
            threshold: self.threshold,
            bands: self.bands,
            rows_per_band: self.rows_per_band,
            memory: self.memory.0,
            hosts: self.host.clone(),
            overwrite: self.force,
        };
        let bar = StageBar::new(output);
        let summary = dedup(
            &source(&self.public, &self.text, &self.url),
            &source(&self.against, &self.against_text, &self.against_url),
            &self.output,
            &options,
            &bar,
        )?;
        bar.clear();
        if output.json {
            return output.print_json(&summary);
        }
        output.print(&self.table(&summary))
    }

    fn table(&self, summary: &DedupSummary) -> String {
        let share = 100.0 * summary.near_duplicates as f64 / summary.rows.max(1) as f64;
        facts([
            ("file", self.output.display().to_string()),
            ("public rows", grouped(summary.rows)),
            (
                "near-duplicates",
                format!("{} ({share:.2} %)", grouped(summary.near_duplicates)),
            ),
            ("removed by URL", grouped(summary.by_url)),
            ("kept", grouped(summary.kept)),
            ("private rows", grouped(summary.private_rows)),
            ("passes over the public corpus", grouped(summary.passes)),
            (
                "missed at the threshold",
                format!("with probability {:.1e}", summary.miss_probability),
            ),
        ])
    }
}
