//! `undertone eval RUN`.

use std::path::PathBuf;
use undertone_text::EosTargets;

use clap::ValueEnum;
use undertone_present::numbers::share;
use undertone_run_directory::config::EvaluationSplit;

use super::stopped::{self, AtOnce, Stopped};
use super::train::{measures, threads};
use crate::output::{Output, facts};
use crate::signals;

/// Arguments of `undertone eval`.
#[derive(Debug, clap::Args)]
pub(crate) struct EvalArgs {
    /// Read the run from this directory.
    run: PathBuf,
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
    let (split, eos) = (EvaluationSplit::from(args.split), EosTargets::from(args.eos));
    let (base, threads) = (args.base.as_deref(), threads(args.threads));
    signals::end_in_order();
    let metrics =
        undertone_run::evaluate(&args.run, base, split, eos, threads, &AtOnce).map_err(|error| {
            match stopped::was_ended(&error) {
                true => {
                    let line = stopped::same_again(None);
                    Stopped(format!("stopped; nothing is kept. Start again with: {line}")).into()
                }
                false => anyhow::Error::from(error),
            }
        })?;
    if output.json {
        return output.print_json(&metrics);
    }
    let mut rows = vec![
        ("partition", split.name().to_owned()),
        ("top-1 accuracy", share(metrics.top1, metrics.top1_standard_error)),
        ("top-3", share(metrics.top3, metrics.top3_standard_error)),
        ("top-5", share(metrics.top5, metrics.top5_standard_error)),
    ];
    rows.extend(measures(&metrics));
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
    output.print(&facts(rows))
}
