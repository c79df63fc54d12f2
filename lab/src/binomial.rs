//! `undertone-lab binomial`.

use anyhow::{Context, bail, ensure};
use serde_json::json;
use undertone_accounting::binomial::exact::ShiftedBinomial;
use undertone_accounting::binomial::theorem::{BinomialNoise, Sensitivities};
use undertone_accounting::{Delta, Epsilon};
use undertone_present::numbers::{number, upper_bound};

use crate::output::Output;
use undertone_present::table::facts;

/// Arguments of `undertone-lab binomial`.
#[derive(Debug, clap::Args)]
pub(crate) struct BinomialArgs {
    /// Set the number of coordinates of the released vector.
    #[arg(long, default_value_t = 1)]
    dimension: u64,
    /// Set the number of binomial trials per coordinate, of all clients together. With --epsilon, it is searched for.
    #[arg(long)]
    trials: Option<u64>,
    /// Set the success probability of a trial, in (0, 1).
    #[arg(long, default_value_t = 0.5, allow_negative_numbers = true)]
    success_probability: f64,
    /// Set the width of a quantisation step, in the unit of the sensitivities.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    quantum: f64,
    /// Set the L1 sensitivity of the quantised vector. In one dimension no other sensitivity is needed.
    #[arg(long, allow_negative_numbers = true)]
    l1: f64,
    /// Set the L2 sensitivity of the quantised vector.
    #[arg(long, allow_negative_numbers = true)]
    l2: Option<f64>,
    /// Set the max-norm sensitivity of the quantised vector.
    #[arg(long, allow_negative_numbers = true)]
    l_inf: Option<f64>,
    /// Set the delta of the guarantee (for example 1e-6).
    #[arg(long, allow_negative_numbers = true)]
    delta: f64,
    /// Find the smallest number of trials with this epsilon.
    #[arg(long, allow_negative_numbers = true, conflicts_with = "trials")]
    epsilon: Option<f64>,
}

pub(crate) fn run(args: &BinomialArgs, output: &Output) -> anyhow::Result<()> {
    let delta = Delta::new(args.delta)?;
    let moved = sensitivities(args)?;
    let noise = |trials| BinomialNoise::new(args.dimension, trials, args.success_probability, args.quantum);
    let trials = match (args.trials, args.epsilon) {
        (Some(trials), None) => trials,
        (None, Some(epsilon)) => noise(1)?.trials_for(&moved, Epsilon::new(epsilon)?, delta)?,
        _ => bail!("expected --trials, or --epsilon to find them"),
    };
    let noise = noise(trials)?;
    let exact = exact(args, trials, delta)?;
    // In one dimension the exact value stands alone where the theorem does not apply.
    let theorem = match noise.epsilon(&moved, delta) {
        Err(_) if exact.is_some() => None,
        other => Some(other?),
    };
    let error = noise.mean_squared_error();
    if output.json {
        return output.print_json(&json!({
            "question": "binomial",
            "trials": trials,
            "dimension": args.dimension,
            "success_probability": args.success_probability,
            "quantum": args.quantum,
            "sensitivities": { "l1": moved.l1(), "l2": moved.l2(), "l_inf": moved.l_inf() },
            "delta": delta,
            "epsilon_theorem": theorem,
            "epsilon_exact": exact,
            "mean_squared_error": error,
            "adjacency": ADJACENCY,
            "sampling_assumption": SAMPLING,
        }));
    }
    let mut rows = Vec::new();
    if let Some(epsilon) = exact {
        rows.push(("epsilon", format!("{} (exact)", upper_bound(epsilon.get()))));
    }
    rows.push((
        if exact.is_some() { "by theorem" } else { "epsilon" },
        match theorem {
            Some(epsilon) => format!(
                "{} (upper bound, Theorem 1 of [cpSGD])",
                upper_bound(epsilon.get())
            ),
            None => "does not apply: too little variance".to_owned(),
        },
    ));
    rows.push(("delta", upper_bound(delta.get())));
    rows.push(("adjacency", ADJACENCY.to_owned()));
    rows.push(("sampling", SAMPLING.to_owned()));
    let found = if args.trials.is_none() {
        " (found for the target)"
    } else {
        ""
    };
    rows.push(("trials", format!("{trials}{found}")));
    rows.push(("dimension", args.dimension.to_string()));
    rows.push(("mean squared error", number(error)));
    output.print(&format!(
        "Binomial noise on a quantised vector, one release\n\n{}",
        facts(rows)
    ))
}

const ADJACENCY: &str = "the one that the sensitivities are stated for";
const SAMPLING: &str = "none: every client takes part";

fn sensitivities(args: &BinomialArgs) -> anyhow::Result<Sensitivities> {
    if args.dimension == 1 {
        for (name, value) in [("--l2", args.l2), ("--l-inf", args.l_inf)] {
            ensure!(
                value.is_none_or(|value| value == args.l1),
                "{name}: expected {} as --l1, because all norms agree in one dimension",
                args.l1
            );
        }
        return Ok(Sensitivities::new(args.l1, args.l1, args.l1)?);
    }
    let needed = |name, value: Option<f64>| {
        value.with_context(|| format!("{name}: expected a value for {} dimensions", args.dimension))
    };
    Ok(Sensitivities::new(
        args.l1,
        needed("--l2", args.l2)?,
        needed("--l-inf", args.l_inf)?,
    )?)
}

/// The exact epsilon, in one dimension.
fn exact(args: &BinomialArgs, trials: u64, delta: Delta) -> anyhow::Result<Option<Epsilon>> {
    if args.dimension > 1 {
        return Ok(None);
    }
    // PRIVACY: a neighbour moves the integer by no more than this.
    let shift = (args.l1 / args.quantum).ceil();
    ensure!(
        shift <= 2f64.powi(53),
        "--l1 over --quantum: expected at most 2^53, got {shift}"
    );
    let mechanism = ShiftedBinomial::new(trials, args.success_probability, shift as u64)?;
    Ok(Some(mechanism.epsilon(delta)?))
}
