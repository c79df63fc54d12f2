//! `undertone personalize RUN`.

use std::path::PathBuf;

use anyhow::Context;
use undertone_present::numbers::number;
use undertone_run::Observer;
use undertone_run::personalize::{self, Change, Personalization, PersonalizeOptions};
use undertone_run_directory::files::write_atomic;
use undertone_run_directory::metrics::accuracy;

use super::eval::{Eos, Split};
use super::train::{percent, threads};
use crate::output::{Output, facts};

/// Arguments of `undertone personalize`.
#[derive(Debug, clap::Args)]
pub(crate) struct PersonalizeArgs {
    /// Read the run from this directory.
    run: PathBuf,
    /// Personalise for the users of this partition.
    #[arg(long, value_enum, default_value = "test")]
    split: Split,
    /// Limit the number of users to the first ones in the order of evaluations (default: all).
    #[arg(long, value_name = "N")]
    users: Option<usize>,
    /// Set the number of passes over each user's training half.
    #[arg(long, default_value_t = 4, help_heading = "Local training")]
    epochs: usize,
    /// Set the learning rate of local SGD.
    #[arg(
        long,
        default_value_t = 0.02,
        allow_negative_numbers = true,
        help_heading = "Local training"
    )]
    learning_rate: f64,
    /// Set the number of examples per local batch.
    #[arg(long, default_value_t = 8, help_heading = "Local training")]
    batch_size: usize,
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
    /// Draw the distribution of the users' changes of loss into this SVG file.
    #[arg(long, value_name = "FILE", value_parser = super::svg_file)]
    svg: Option<PathBuf>,
}

/// Shows how many users are done.
struct Bar(indicatif::ProgressBar);

impl Observer for Bar {
    fn on_round_start(&self, _round: u64, users: usize) {
        self.0.set_length(users as u64);
    }

    fn on_user(&self) {
        self.0.inc(1);
    }
}

/// Personalises and shows what it did.
pub(crate) fn run(args: &PersonalizeArgs, output: &Output) -> anyhow::Result<()> {
    let options = PersonalizeOptions {
        split: args.split.into(),
        max_users: args.users,
        epochs: args.epochs,
        batch_size: args.batch_size,
        learning_rate: args.learning_rate,
        eos: args.eos.into(),
        threads: threads(args.threads),
    };
    let bar = Bar(output.bar(0, "personalising {bar:40} {pos}/{len} users, {eta} left"));
    let done = personalize::personalize(&args.run, args.base.as_deref(), &options, &bar)?;
    bar.0.finish_and_clear();
    if let Some(file) = &args.svg {
        let picture = undertone_report::personalization(&done)?;
        write_atomic(file, picture.svg.as_bytes()).context("--svg")?;
    }
    output.show(&done, || text(&done))
}

fn text(done: &Personalization) -> String {
    let nats = |value: f64| format!("{value:.4}");
    let mut users = format!("{} of {}", done.users, done.split);
    if done.too_small > 0 {
        users += &format!(", {} left out for too few examples", done.too_small);
    }
    if done.diverged > 0 {
        users += &format!(
            ", {} diverged and were measured with the run's model",
            done.diverged
        );
    }
    let mut rows = vec![
        ("users", users),
        (
            "local training",
            format!(
                "{} epochs, batches of {}, learning rate {}, first half of the examples",
                done.options.epochs, done.options.batch_size, done.options.learning_rate
            ),
        ),
        ("targets evaluated", done.targets.to_string()),
    ];
    rows.extend(of_change("loss, nats per token", &done.loss, nats));
    rows.extend(of_change(accuracy::KEYBOARD, &done.top1, percent));
    format!("{}\n{}\n{}", facts(rows), worse(done), done.note)
}

/// The advice where the training made the loss of the users worse on average.
fn worse(done: &Personalization) -> String {
    match done.loss.delta.mean > 0.0 {
        true => format!(
            "\nThe loss became worse on average. Try --learning-rate {}.\n",
            number(done.options.learning_rate / 4.0)
        ),
        false => String::new(),
    }
}

fn of_change(
    name: &'static str,
    change: &Change,
    show: impl Fn(f64) -> String,
) -> Vec<(&'static str, String)> {
    let spread = &change.delta;
    vec![
        (
            name,
            format!(
                "{} before, {} after (means over users)",
                show(change.before),
                show(change.after)
            ),
        ),
        (
            "  change",
            format!("mean {}, median {}", show(spread.mean), show(spread.median)),
        ),
        (
            "  percentiles 10, 25, 75, 90",
            format!(
                "{}, {}, {}, {}",
                show(spread.p10),
                show(spread.p25),
                show(spread.p75),
                show(spread.p90)
            ),
        ),
        (
            "  improved for",
            format!("{:.1} % of users", 100.0 * change.improved),
        ),
    ]
}
