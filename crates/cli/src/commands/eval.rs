//! `undertone eval RUN...`.

mod measured;

use std::path::PathBuf;
use undertone_text::EosTargets;

use clap::ValueEnum;
use undertone_present::numbers::share;
use undertone_run::evaluate::Difference;
use undertone_run_directory::config::EvaluationSplit;
use undertone_run_directory::metrics::Metrics;

use super::train::{in_rows, measures};
use crate::output::{Output, facts};
use crate::signals;
use measured::{Against, Evaluated, evaluate};

/// Arguments of `undertone eval`.
#[derive(Debug, clap::Args)]
pub(crate) struct EvalArgs {
    /// Read the finished runs from these directories.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Compare each run with this one, user by user. Both need the same text, words and settings of `[data]`.
    #[arg(long, value_name = "RUN")]
    against: Option<PathBuf>,
    /// Measure on the users of this partition.
    #[arg(long, value_enum, default_value = "test")]
    split: Split,
    /// Include or exclude the end of a sentence as a target.
    #[arg(long, value_enum, default_value = "excluded")]
    eos: Eos,
    /// Resolve relative paths of the run's data settings in this folder.
    ///
    /// By default this is the folder in which the run resolved them. A copied run directory needs the option.
    #[arg(long, value_name = "FOLDER")]
    base: Option<PathBuf>,
    /// Set the number of threads (default: one per core).
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Split {
    /// Use the validation users.
    Validation,
    /// Use the test users.
    Test,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Eos {
    /// Measure words only.
    Excluded,
    /// Measure words and ends of sentences.
    Included,
}

impl From<Split> for EvaluationSplit {
    fn from(split: Split) -> Self {
        match split {
            Split::Validation => Self::Validation,
            Split::Test => Self::Test,
        }
    }
}

impl From<Eos> for EosTargets {
    fn from(eos: Eos) -> Self {
        match eos {
            Eos::Excluded => Self::Excluded,
            Eos::Included => Self::Included,
        }
    }
}

/// Evaluates and shows the measures.
pub(crate) fn run(args: &EvalArgs, output: &Output) -> anyhow::Result<()> {
    signals::end_in_order();
    let evaluated = evaluate(args, output)?;
    match (output.json, &evaluated[..]) {
        (true, [one]) => output.print_json(one),
        (true, all) => output.print_json(&all),
        (false, all) => {
            let shown: Vec<String> = all.iter().map(|one| shown(one, args)).collect();
            output.print(&shown.join("\n\n"))
        }
    }
}

/// The measures of a run, its rows, and its difference to another one.
fn shown(evaluated: &Evaluated, args: &EvalArgs) -> String {
    let mut rows = vec![
        ("run", evaluated.run.display().to_string()),
        ("partition", EvaluationSplit::from(args.split).name().to_owned()),
    ];
    rows.extend(of_model(&evaluated.metrics));
    rows.extend(evaluated.against.as_ref().map(compared).into_iter().flatten());
    format!("{}\n\n{}", facts(rows), in_rows(&evaluated.story))
}

/// The measures behind the accuracy in the rows.
fn of_model(metrics: &Metrics) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("top-3", share(metrics.top3, metrics.top3_standard_error)),
        ("top-5", share(metrics.top5, metrics.top5_standard_error)),
    ];
    rows.extend(measures(metrics));
    rows.extend(metrics.sample.as_deref().map(|sample| {
        let top1 = share(sample.top1, sample.top1_standard_error);
        let targets = sample.targets;
        (
            "as during the run",
            format!("top-1 {top1} on the first {targets} targets"),
        )
    }));
    if let Some(head) = &metrics.head_words {
        for (name, histogram) in [
            ("top-10 among 10 most frequent", &head.top10),
            ("top-10 among 50 most frequent", &head.top50),
            ("top-10 among 100 most frequent", &head.top100),
        ] {
            let fractions: Vec<String> = histogram
                .iter()
                .map(|&count| format!("{:.1}", 100.0 * count as f64 / metrics.targets.max(1) as f64))
                .collect();
            let fractions = fractions.join(" ");
            let shown = format!("{fractions} % of targets, for 0 to 10 such predictions");
            rows.push((name, shown));
        }
    }
    rows
}

/// The paired difference to another run.
fn compared(against: &Against) -> [(&'static str, String); 3] {
    let accuracy = with_error(&against.top1, 100.0, 2);
    let loss = with_error(&against.loss, 1.0, 4);
    [
        ("against", against.run.display().to_string()),
        (
            "difference of keyboard top-1",
            format!("{accuracy} points, paired over users"),
        ),
        (
            "difference of the loss",
            format!("{loss} nats per target; below zero is better"),
        ),
    ]
}

/// A difference with its standard error, in another unit and with so many digits.
fn with_error(of: &Difference, scale: f64, digits: usize) -> String {
    let difference = scale * of.difference;
    let error = of
        .standard_error
        .map(|error| format!(" ± {:.digits$}", scale * error));
    format!("{difference:+.digits$}{}", error.unwrap_or_default())
}
