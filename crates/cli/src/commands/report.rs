//! `undertone report RUN`.

use std::path::PathBuf;

use crate::browser;
use crate::output::{Output, facts};

/// Arguments of `undertone report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Read the run from this directory. The run need not be finished.
    run: PathBuf,
    /// Write `registry.json`, the record of the run for a public registry of deployments. This TOML file states what no run can know.
    #[arg(long, value_name = "FACTS")]
    registry: Option<PathBuf>,
    /// Open the page in a browser.
    #[arg(long, conflicts_with = "registry")]
    open: bool,
}

/// The document that `--json` prints.
#[derive(serde::Serialize)]
struct Report<'a> {
    run: &'a str,
    model: &'a str,
    rounds: usize,
    planned_rounds: u64,
    evaluation: Option<&'a undertone_run_directory::metrics::EvaluationRecord>,
    privacy: Option<&'a undertone_coordinator::record::PrivacyReport>,
    report: PathBuf,
}

/// Makes the report of a run again and shows its summary.
pub(crate) fn run(args: ReportArgs, output: &Output) -> anyhow::Result<()> {
    let ReportArgs { run, registry, open } = args;
    if let Some(facts_file) = registry {
        let record = undertone_report::registry(&run, &facts_file)?;
        return output.show(&record, || {
            let file = run.join(undertone_report::REGISTRY_FILE);
            let mut rows = record.summary();
            rows.push(("record", file.display().to_string()));
            facts(rows)
        });
    }
    let data = undertone_run_directory::read::read(&run)?;
    undertone_report::write(&run)?;
    let page = run.join("report.html");
    if open {
        browser::open(&page, output);
    }
    if output.json {
        return output.print_json(&Report {
            run: &data.start.run,
            model: &data.start.model,
            rounds: data.rounds.len(),
            planned_rounds: data.start.rounds,
            evaluation: data.evaluations.last(),
            privacy: data.privacy.as_ref(),
            report: page,
        });
    }
    let mut rows = undertone_report::summary(&data);
    let warnings = data.privacy.iter().flat_map(|privacy| &privacy.warnings);
    rows.extend(warnings.map(|warning| ("warning", warning.clone())));
    rows.push(("report", page.display().to_string()));
    output.print(&facts(rows))
}
