//! `undertone data dedup`.

use std::path::PathBuf;

use undertone_data::{ByteSize, DedupOptions, DedupSource, DedupSummary, dedup};
use undertone_present::numbers::grouped;

use super::show::StageBar;
use crate::output::{Output, facts};

#[derive(Debug, clap::Args)]
pub(super) struct DedupArgs {
    /// Read the public corpus from this Parquet, JSONL, CSV, TSV or plain text file.
    #[arg(value_name = "PUBLIC")]
    public: String,
    /// Remove from PUBLIC the near-duplicates of the private corpus in this file.
    #[arg(long, value_name = "FILE")]
    against: String,
    /// Write the kept rows to this file, in the format of PUBLIC.
    #[arg(long, short, alias = "out", value_name = "FILE")]
    output: PathBuf,
    /// Read the text of PUBLIC from this column.
    #[arg(long, alias = "text-column", default_value = "text", value_name = "NAME")]
    text: String,
    /// Read the text of the private corpus from this column.
    #[arg(long, default_value = "text", value_name = "NAME")]
    against_text: String,
    /// Read the URL of public documents from this column. Remove URLs of the private corpus, and those at --host.
    #[arg(long, value_name = "NAME")]
    url: Option<String>,
    /// Read the URL of private documents from this column.
    #[arg(long, requires = "url", value_name = "NAME")]
    against_url: Option<String>,
    /// Remove public documents at this host and its subdomains. The option may be repeated.
    #[arg(long, requires = "url", value_name = "HOST")]
    host: Vec<String>,
    /// Remove documents whose Jaccard similarity of word 5-grams is at least this number in (0, 1].
    #[arg(
        long,
        default_value_t = 0.8,
        value_name = "SIMILARITY",
        help_heading = "Comparison"
    )]
    threshold: f64,
    /// Set the number of bands of the hash that finds candidates. More bands miss fewer duplicates.
    #[arg(
        long,
        default_value_t = 32,
        value_name = "NUMBER",
        help_heading = "Comparison"
    )]
    bands: usize,
    /// Set the number of hash values per band. More values give fewer candidates.
    #[arg(long, default_value_t = 6, value_name = "NUMBER", help_heading = "Comparison")]
    rows_per_band: usize,
    /// Limit the memory for the part of the private corpus that is compared at a time, for example 512MB.
    #[arg(
        long,
        default_value = "1GiB",
        value_name = "SIZE",
        help_heading = "Comparison"
    )]
    memory: ByteSize,
    /// Replace the output file if it exists.
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
        output.warn(
            "the kept rows depend on the private text without noise, and a record beside the file says so: a model that is trained on \
             them is not public",
        );
        output.show(&summary, || self.table(&summary))
    }

    fn table(&self, summary: &DedupSummary) -> String {
        let fraction = 100.0 * summary.near_duplicates as f64 / summary.rows.max(1) as f64;
        facts([
            ("file", self.output.display().to_string()),
            ("public rows", grouped(summary.rows)),
            (
                "near-duplicates",
                format!("{} ({fraction:.2} %)", grouped(summary.near_duplicates)),
            ),
            ("removed by URL", grouped(summary.by_url)),
            ("kept", grouped(summary.kept)),
            ("private rows", grouped(summary.private_rows)),
            ("passes over the public corpus", grouped(summary.passes)),
            (
                "missed duplicates",
                format!(
                    "at the threshold, with probability {:.1e}",
                    summary.miss_probability
                ),
            ),
        ])
    }
}
