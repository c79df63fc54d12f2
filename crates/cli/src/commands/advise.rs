//! `undertone advise CONFIG`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, bail};
use undertone_present::numbers::{grouped, number, upper_bound};
use undertone_present::table::ruled;
use undertone_run::RunFile;
use undertone_run_directory::config::Override;
use undertone_studies::advise::doubling::{Doubled, DoublingStep};
use undertone_studies::advise::{Advice, AdviceRequest, Configured, GroupSize, Recommended, advise};

use super::train::{Progress, start_threads};
use crate::output::{Output, facts};

/// Arguments of `undertone advise`.
#[derive(Debug, clap::Args)]
pub(crate) struct AdviseArgs {
    /// Read corpus, model, initial parameters and rounds from this run file.
    config: PathBuf,
    /// Change a key of the run file, for example `--set rounds=50`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Set the expected number of gradients per step of either algorithm.
    ///
    /// The number must be --start-group times --start-cohort times a power of two.
    #[arg(long)]
    compute_budget: u64,
    /// Set the epsilon of the median and the training together (for example 4).
    #[arg(long)]
    epsilon: f64,
    /// Set the delta of the training (for example 1e-6).
    #[arg(long)]
    delta: f64,
    /// Set the number of steps (default: the rounds of the run file).
    #[arg(long)]
    rounds: Option<u64>,
    /// Spend this part of --epsilon on the private median of the users' numbers of examples.
    ///
    /// The median becomes the group size of example-level sampling. Each call spends it again. 0.1 is usual.
    #[arg(long, conflicts_with = "group_size", help_heading = "Example-level sampling")]
    median_epsilon: Option<f64>,
    /// Set the max of the private median. Choose it without looking at the users' data.
    #[arg(
        long,
        default_value_t = 65_536,
        conflicts_with = "group_size",
        help_heading = "Example-level sampling"
    )]
    largest_group: u32,
    /// Set the group size (max examples per user) from public knowledge, instead of a private median.
    #[arg(long, help_heading = "Example-level sampling")]
    group_size: Option<u32>,
    /// Measure gradients on the corpus and model of this run file instead, for example on public text.
    #[arg(long, value_name = "CONFIG", help_heading = "Measurement of gradients")]
    proxy: Option<PathBuf>,
    /// Set the number of users whose gradients are measured.
    #[arg(long, default_value = "128", help_heading = "Measurement of gradients")]
    probe_users: NonZeroUsize,
    /// Start the search with this group size (examples per user and step).
    #[arg(long, default_value_t = 1, help_heading = "User-level sampling")]
    start_group: u64,
    /// Start the search with this cohort size (users per step).
    #[arg(long, default_value_t = 32, help_heading = "User-level sampling")]
    start_cohort: u64,
    /// Seed all random draws, for studies only: the median is then not private.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the tokenised corpus in the cache of this folder, as training runs do.
    #[arg(long, default_value = "runs", value_name = "FOLDER")]
    out: PathBuf,
    /// Set the number of threads (default: one per core). The advice does not depend on it.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

impl AdviseArgs {
    /// The group size of example-level sampling. Nothing is spent unless it is asked for.
    fn group_size(&self) -> anyhow::Result<GroupSize> {
        match (self.group_size, self.median_epsilon) {
            (Some(group_size), _) => Ok(GroupSize::Given(group_size)),
            (None, Some(epsilon)) => Ok(GroupSize::PrivateMedian {
                epsilon,
                largest: self.largest_group,
            }),
            (None, None) => bail!(
                "expected --group-size NUMBER (max examples per user, from public knowledge; it spends nothing), or --median-epsilon \
                 EPSILON (for example 0.1; each call spends that part of --epsilon on a private median of the users' sizes)"
            ),
        }
    }
}

pub(crate) fn run(args: &AdviseArgs, output: &Output) -> anyhow::Result<()> {
    let group_size = args.group_size()?;
    let file = RunFile::read(&args.config, &args.set)?;
    let proxy = args
        .proxy
        .as_ref()
        .map(|proxy| RunFile::read(proxy, &[]))
        .transpose()?;
    let request = AdviceRequest {
        compute_budget: args.compute_budget,
        rounds: args.rounds.unwrap_or(file.config.task.rounds),
        epsilon: args.epsilon,
        delta: args.delta,
        group_size,
        probe_users: args.probe_users.get(),
        start: (args.start_group, args.start_cohort),
        seed: args.seed,
        threads: start_threads(args.threads)?,
    };
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;
    let progress = Progress::new(output, "round");
    let advice = advise(&file, proxy.as_ref(), &request, &args.out, &progress);
    progress.clear();
    let advice = advice?;
    output.show(&advice, || text(&advice))
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
            format!("{} gradients per step", advice.compute_budget),
        ),
        (
            "corpus",
            format!(
                "{} users, {} examples",
                grouped(advice.users),
                grouped(advice.examples)
            ),
        ),
    ];
    if let Some(median) = &advice.median {
        about.push((
            "median user size",
            format!(
                "{} (epsilon {}, delta 0; within {} users of the true median in 99 % of cases)",
                advice.els.group_size,
                number(median.epsilon),
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
        "Estimate-and-Double with {} users of {from}: G is the group size, M the cohort size, L(G) the median gradient norm",
        advice.probed_users
    );
    let (winner, times) = match advice.recommended {
        Recommended::Uls => ("ULS (user-level sampling)", 1.0 / advice.variance_ratio),
        Recommended::Els => ("ELS (example-level sampling)", advice.variance_ratio),
    };
    let privacy: String = advice.privacy.iter().map(|line| format!("\n- {line}")).collect();
    format!(
        "{}\n\n{heading}\n{}\n\n{}\n\nrecommended: {winner}; its predicted noise variance is {} times smaller\n\nPrivacy of \
         this advice:{privacy}\n\nKeys of the run file for the recommendation:\n\n{}",
        facts(about),
        turns(&advice.doubling.steps, advice),
        both(advice),
        number(times),
        keys(advice),
    )
}

/// Noise to six significant digits, rounded up: less of it would break the guarantee.
fn noise(multiplier: f64) -> f64 {
    let unit = 10_f64.powi(5 - multiplier.log10().floor() as i32);
    let up = (multiplier * unit).ceil() / unit;
    if up < multiplier { multiplier } else { up }
}

/// The recommendation as TOML.
fn keys(advice: &Advice) -> String {
    let (algorithm, unit, of): (_, _, &Configured) = match advice.recommended {
        Recommended::Uls => ("uls", "users", &advice.uls),
        Recommended::Els => ("els", "examples", &advice.els),
    };
    format!(
        "rounds = {}\n\n[cohort]\nsampling = \"poisson\"\n{unit}_per_round = {}\n\n[user_update]\nalgorithm = \
         \"{algorithm}\"\ngroup_size = {}\n\n[clip]\nkind = \"flat\"\nnorm = {}\n\n[privacy]\nnoise_multiplier = {:?}\ndelta = \
         {:e}\naccountant = \"pld\"",
        advice.rounds,
        of.batch,
        of.group_size,
        number(of.gradient_norm),
        noise(of.noise_multiplier),
        advice.delta,
    )
}

/// Every turn of the loop, then where it ended.
fn turns(steps: &[DoublingStep], advice: &Advice) -> String {
    let header = [
        "G",
        "M",
        "L(G)",
        "L(2G)",
        "tau_G",
        "sigma(M)",
        "sigma(2M)",
        "tau_M",
        "doubled",
    ];
    let or_none = |value: Option<f64>| value.map_or_else(|| "too few users".to_owned(), number);
    let rows = steps.iter().map(|step| {
        vec![
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
        ]
    });
    let end = vec![advice.uls.group_size.to_string(), advice.uls.batch.to_string()];
    ruled(header, rows.chain([end]), 0)
}

fn both(advice: &Advice) -> String {
    let header = [
        "",
        "group_size",
        "examples or users per step",
        "sampling_probability",
        "noise_multiplier",
        "gradient norm (initial clip_norm)",
        "noise std per coordinate",
    ];
    let rows = [("ELS", &advice.els), ("ULS", &advice.uls)].map(|(name, configured)| {
        vec![
            name.to_owned(),
            configured.group_size.to_string(),
            configured.batch.to_string(),
            number(configured.sampling_probability),
            noise(configured.noise_multiplier).to_string(),
            number(configured.gradient_norm),
            number(configured.noise_std),
        ]
    });
    ruled(header, rows, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_rounded_up_to_six_digits() {
        for (multiplier, expected) in [
            (0.126_248_304_771, 0.126_249),
            (1.0, 1.0),
            (12.345_61, 12.3457),
            (9.999_999_1, 10.0),
            (123_456.7, 123_457.0),
        ] {
            assert_eq!(noise(multiplier), expected, "{multiplier}");
        }
        assert!((1..2000).all(|step| noise(1.0 + f64::from(step) / 777.0) >= 1.0 + f64::from(step) / 777.0));
    }
}
