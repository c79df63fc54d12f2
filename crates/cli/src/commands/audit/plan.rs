//! `undertone audit plan`.

use anyhow::{Context, ensure};
use serde::Serialize;
use undertone_accounting::audit::planning::{PowerAnalysis, ReachableBound};
use undertone_accounting::audit::{Significance, planning};
use undertone_accounting::{Delta, Epsilon};
use undertone_present::numbers::number;
use undertone_run_directory::config::MAX_CANARIES;

use crate::output::{Output, facts};

/// Arguments of `undertone audit plan`.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// Set the epsilon of the claim (for example 4).
    #[arg(long, allow_negative_numbers = true)]
    epsilon: f64,
    /// Set the delta of the claim (for example 1e-5).
    #[arg(long, allow_negative_numbers = true)]
    delta: f64,
    /// Set the number of canaries.
    #[arg(long, default_value_t = 1000)]
    canaries: u64,
    /// Set the confidence of the bounds.
    #[arg(long, default_value_t = 0.95, allow_negative_numbers = true)]
    confidence: f64,
}

#[derive(Debug, Serialize)]
struct Shown {
    confidence: f64,
    power: f64,
    #[serde(flatten)]
    plan: PowerAnalysis,
    assumption: &'static str,
}

pub(super) fn run(args: &PlanArgs, output: &Output) -> anyhow::Result<()> {
    let epsilon = Epsilon::new(args.epsilon).context("--epsilon")?;
    let delta = Delta::new(args.delta).context("--delta")?;
    let significance = Significance::new(1.0 - args.confidence).with_context(|| {
        format!(
            "--confidence: expected a number in [0.5, 1), got {}",
            args.confidence
        )
    })?;
    ensure!(
        (10..=MAX_CANARIES).contains(&args.canaries),
        "--canaries: expected a number in [10, {MAX_CANARIES}], got {}",
        args.canaries
    );
    let shown = Shown {
        confidence: args.confidence,
        power: planning::POWER,
        plan: PowerAnalysis::new(args.canaries, epsilon, delta, significance)?,
        assumption: "scores of all iterates with an exactly Gaussian trade-off; Poisson sampling and the final model alone show less",
    };
    output.show(&shown, || text(&shown))
}

fn text(shown: &Shown) -> String {
    let plan = &shown.plan;
    let confidence = format!("{} %", number(100.0 * shown.confidence));
    let reach = |reach: &ReachableBound| {
        format!(
            "epsilon {} to expect from {} of {} guesses right; {} if all were",
            number(reach.epsilon),
            reach.correct,
            reach.guesses,
            number(reach.most)
        )
    };
    let rows = [
        (
            "claim",
            format!("epsilon {} at delta {}", number(plan.epsilon), number(plan.delta)),
        ),
        ("canaries", plan.canaries.to_string()),
        ("confidence", confidence),
        ("any mechanism", reach(&plan.any)),
        ("Gaussian trade-off", reach(&plan.fdp)),
        (
            "Gaussian scores",
            format!("epsilon {} to expect as the lower limit", number(plan.gaussian)),
        ),
        (
            "smallest error",
            format!(
                "noise of {} of the stated standard deviation is found with a probability of {} %",
                number(plan.smallest_ratio),
                number(100.0 * shown.power)
            ),
        ),
        ("assumption", shown.assumption.to_owned()),
    ];
    facts(rows)
        + "\n\nA bound below the claim never confirms the claim. Fix the number of guesses before the run: a number that is chosen \
           after looking at the scores voids the bound."
}
