//! `undertone advise CONFIG`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use undertone_present::numbers::{number, upper_bound};
use undertone_training::advise::doubling::{Doubled, DoublingStep};
use undertone_training::advise::{Advice, GroupSize, Question, Recommended, advise};
use undertone_training::config::{Override, RunFile};

use super::train::{Progress, start_threads};
use crate::output::{Output, facts};

/// Arguments of `undertone advise`.
#[derive(Debug, clap::Args)]
pub(crate) struct AdviseArgs {
    /// The run file: its corpus, model, initial parameters and rounds.
    config: PathBuf,
    /// Change a key of the run file.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Expected gradients a step, of either algorithm: the starting group size times the starting cohort size times a power
    /// of two.
    #[arg(long)]
    compute_budget: u64,
    /// Epsilon of everything private: the median and the training.
    #[arg(long)]
    epsilon: f64,
    /// Delta of the training.
    #[arg(long)]
    delta: f64,
    /// Steps, if not the run file's rounds.
    #[arg(long)]
    rounds: Option<u64>,
    /// Part of epsilon that the private median of the users' numbers of examples takes; the median is the group size of
    /// example-level sampling.
    #[arg(long, default_value_t = 0.1, conflicts_with = "group_size")]
    median_epsilon: f64,
    /// Largest group size that the median can be, chosen without looking at the users.
    #[arg(long, default_value_t = 65_536, conflicts_with = "group_size")]
    largest_group: u32,
    /// Group size of example-level sampling, from public knowledge, instead of a private median.
    #[arg(long)]
    group_size: Option<u32>,
    /// Measure gradients on the corpus and model of this run file instead, such as one of public text.
    #[arg(long, value_name = "CONFIG")]
    proxy: Option<PathBuf>,
    /// Users whose gradients are measured.
    #[arg(long, default_value = "128")]
    probe_users: NonZeroUsize,
    /// Group size of user-level sampling that doubling starts from.
    #[arg(long, default_value_t = 1)]
    start_group: u64,
    /// Cohort size of user-level sampling that doubling starts from.
    #[arg(long, default_value_t = 32)]
    start_cohort: u64,
    /// Fix all draws, for study: the median is not private then.
    #[arg(long)]
    seed: Option<u64>,
    /// Folder whose corpus cache is used, as that of runs.
    #[arg(long, default_value = "runs", value_name = "FOLDER")]
    out: PathBuf,
    /// Cores to use; all by default. The advice does not depend on it.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

pub(crate) fn run(args: &AdviseArgs, output: &Output) -> anyhow::Result<()> {
    let file = RunFile::read(&args.config, &args.set)?;
    let proxy = args
        .proxy
        .as_ref()
        .map(|proxy| RunFile::read(proxy, &[]))
        .transpose()?;
    let question = Question {
        compute_budget: args.compute_budget,
        rounds: args.rounds.unwrap_or(file.config.rounds),
        epsilon: args.epsilon,
        delta: args.delta,
        group_size: match args.group_size {
            Some(group_size) => GroupSize::Given(group_size),
            None => GroupSize::PrivateMedian {
                epsilon: args.median_epsilon,
                largest: args.largest_group,
            },
        },
        probe_users: args.probe_users.get(),
        start: (args.start_group, args.start_cohort),
        seed: args.seed,
        threads: start_threads(args.threads)?,
    };
    std::fs::create_dir_all(&args.out).with_context(|| format!("creating {}", args.out.display()))?;
    let progress = Progress::new(output);
    let advice = advise(&file, proxy.as_ref(), &question, &args.out, &progress);
    progress.clear();
    let advice = advice?;
    if output.json {
        return output.print_json(&advice);
    }
    output.print(&text(&advice))
}

fn text(advice: &Advice) -> String {
    let mut about = vec![
        (
            "target",
            format!(
                "epsilon {}, delta {:e}, {} steps",
                advice.epsilon, advice.delta, advice.rounds
            ),
        ),
        (
            "compute budget",
            format!("{} gradients a step", advice.compute_budget),
        ),
        (
            "corpus",
            format!("{} users, {} examples", advice.users, advice.examples),
        ),
    ];
    if let Some(median) = &advice.median {
        about.push((
            "median user size",
            format!(
                "{} (epsilon {}, delta 0; within {} users of the middle, 99 %)",
                advice.els.group_size,
                median.epsilon,
                upper_bound(median.rank_error)
            ),
        ));
    }
    let from = if advice.probed_proxy {
        "the proxy"
    } else {
        "this corpus"
    };
    let heading = format!(
        "Estimate-and-Double, L(G) of {} users of {from}",
        advice.probed_users
    );
    let (winner, times) = match advice.recommended {
        Recommended::Uls => ("ULS", 1.0 / advice.variance_ratio),
        Recommended::Els => ("ELS", advice.variance_ratio),
    };
    let privacy: String = advice.privacy.iter().map(|line| format!("\n- {line}")).collect();
    format!(
        "{}\n\n{heading}\n{}\n\n{}\n\nrecommended: {winner}, with {} times less predicted noise variance\n\nPrivacy of this \
         advice{privacy}",
        facts(about),
        turns(&advice.doubling.steps, advice),
        both(advice),
        number(times),
    )
}

/// Every turn of the loop, then where it ended.
fn turns(steps: &[DoublingStep], advice: &Advice) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "G",
        "M",
        "L(G)",
        "L(2G)",
        "tau_G",
        "sigma(M)",
        "sigma(2M)",
        "tau_M",
        "doubled",
    ]);
    let or_none = |value: Option<f64>| value.map_or_else(|| "too few users".to_owned(), number);
    for step in steps {
        table.add_row([
            step.group_size.to_string(),
            step.cohort_size.to_string(),
            number(step.norm),
            number(step.norm_doubled),
            number(step.tau_group),
            number(step.noise_multiplier),
            or_none(step.noise_multiplier_doubled),
            or_none(step.tau_cohort),
            match step.doubled {
                Doubled::GroupSize => "G",
                Doubled::CohortSize => "M",
            }
            .to_owned(),
        ]);
    }
    table.add_row([advice.uls.group_size.to_string(), advice.uls.batch.to_string()]);
    right(&mut table, 0);
    table.trim_fmt()
}

fn both(advice: &Advice) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "",
        "group_size",
        "examples or users a step",
        "sampling_probability",
        "noise_multiplier",
        "L (clip_norm to start from)",
        "noise a coordinate",
    ]);
    for (name, configured) in [("ELS", &advice.els), ("ULS", &advice.uls)] {
        table.add_row([
            name.to_owned(),
            configured.group_size.to_string(),
            configured.batch.to_string(),
            configured.sampling_probability.to_string(),
            // To all digits: less noise would break the guarantee.
            configured.noise_multiplier.to_string(),
            number(configured.gradient_norm),
            number(configured.noise_std),
        ]);
    }
    right(&mut table, 1);
    table.trim_fmt()
}

fn right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
