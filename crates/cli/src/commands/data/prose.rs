//! `undertone data prose`.

use std::path::PathBuf;

use undertone_data::{ProseSummary, prose};
use undertone_present::numbers::grouped;

use super::show::StageBar;
use crate::output::{Output, facts};

#[derive(Debug, clap::Args)]
pub(super) struct ProseArgs {
    /// Read the documents (.md, .rst, .txt) and the doc comments of Rust sources (.rs) below this folder.
    ///
    /// The text must be public, and its licence must allow the use.
    folder: PathBuf,
    /// Write this file of JSON objects, one per line, with the fields user_id (the path) and text.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Replace the output file if it exists.
    #[arg(long)]
    force: bool,
}

impl ProseArgs {
    pub(super) fn run(&self, output: &Output) -> anyhow::Result<()> {
        let bar = StageBar::new(output);
        let summary = prose(&self.folder, &self.output, self.force, &bar)?;
        bar.clear();
        output.show(&summary, || self.table(&summary))
    }

    fn table(&self, summary: &ProseSummary) -> String {
        let mut rows = vec![
            ("file", self.output.display().to_string()),
            ("documents", grouped(summary.documents)),
            ("words", grouped(summary.words)),
            (
                "paragraphs",
                format!(
                    "{}; {} repeated ones are left out",
                    grouped(summary.paragraphs),
                    grouped(summary.repeated)
                ),
            ),
        ];
        if summary.left_out > 0 {
            let left_out = grouped(summary.left_out);
            rows.push((
                "left out",
                format!("{left_out} files that are not UTF-8 or larger than 4 MiB"),
            ));
        }
        let mut licences: Vec<_> = summary.licences.iter().collect();
        licences.sort_by_key(|&(_, packages)| std::cmp::Reverse(packages));
        rows.extend(
            licences
                .into_iter()
                .enumerate()
                .map(|(index, (licence, packages))| {
                    let licence = match licence.as_str() {
                        "" => "not stated in Cargo.toml",
                        licence => licence,
                    };
                    let name = if index == 0 { "licences" } else { "" };
                    (name, format!("{} packages: {licence}", grouped(*packages)))
                }),
        );
        facts(rows)
    }
}
