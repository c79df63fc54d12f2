//! Noise mechanisms: CPU seconds of optimising and certifying strategies, one thread.

use anyhow::{Context, bail};
use serde_json::json;
use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::optimize::blt::BltOptimizer;
use undertone_mechanisms::optimize::{Problem, banded_toeplitz};
use undertone_mechanisms::{Blt, NormalisedBlt, Objective, Strategy, Workload};

use crate::usage::cpu_time;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Repeats of every question, after one that is discarded
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// One question only
    #[arg(long)]
    only: Option<String>,
}

/// What a question answers: a loss.
type Answer = Box<dyn Fn() -> anyhow::Result<f64>>;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut asked = 0;
    for (question, answer) in questions() {
        if arguments.only.as_ref().is_some_and(|only| only != question) {
            continue;
        }
        asked += 1;
        let loss = answer()?;
        let mut seconds = Vec::new();
        for _ in 0..arguments.repeats {
            let start = cpu_time().context("this system does not tell CPU time")?;
            let again = answer()?;
            let end = cpu_time().context("this system does not tell CPU time")?;
            if again != loss {
                bail!("{question}: {loss} at first, {again} later");
            }
            seconds.push(end.saturating_sub(start).as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let result = json!({
            "name": "undertone",
            "version": env!("CARGO_PKG_VERSION"),
            "question": question,
            "loss": loss,
            "cpu_s": seconds[seconds.len() / 2],
            "cpu_s_all": seconds,
        });
        println!("RESULT {result}");
    }
    if asked == 0 {
        bail!("--only: no question of this name");
    }
    Ok(())
}

fn questions() -> Vec<(&'static str, Answer)> {
    vec![
        (
            "blt-4-n2000",
            Box::new(|| blt((2000, 400, 5), Objective::MaxLoss, Some(4))),
        ),
        (
            "blt-4-n2000-rms",
            Box::new(|| blt((2000, 400, 5), Objective::RmsLoss, Some(4))),
        ),
        (
            "blt-by-gain-n2000",
            Box::new(|| blt((2000, 400, 5), Objective::MaxLoss, None)),
        ),
        (
            "blt-4-n200000",
            Box::new(|| blt((200_000, 1000, 20), Objective::MaxLoss, Some(4))),
        ),
        ("blt-4-n2052-momentum", Box::new(momentum)),
        (
            "normalised-blt-2-n2052",
            Box::new(|| normalised_blt((2052, 342, 6), Objective::MaxLoss, 2)),
        ),
        (
            "normalised-blt-4-n2052-rms",
            Box::new(|| normalised_blt((2052, 342, 6), Objective::RmsLoss, 4)),
        ),
        ("certify-normalised-blt-n2052", Box::new(certify)),
        (
            "band-toep-400-n2000",
            Box::new(|| {
                let problem = Problem::new(2000, schema(400, 5)?);
                Ok(banded_toeplitz(&problem, 400)?.1.rms_loss)
            }),
        ),
    ]
}

fn schema(gap: u64, most: u64) -> anyhow::Result<Participation> {
    Ok(Participation::at_least(Gap::new(gap)?, most)?)
}

/// Rounds, gap, participations.
type Run = (usize, u64, u64);

fn optimizer((rounds, gap, most): Run, objective: Objective) -> anyhow::Result<BltOptimizer> {
    Ok(BltOptimizer::new(rounds, schema(gap, most)?)?.objective(objective))
}

fn blt(run: Run, objective: Objective, buffers: Option<usize>) -> anyhow::Result<f64> {
    let optimizer = optimizer(run, objective)?;
    let optimizer = match buffers {
        Some(buffers) => optimizer.buffers(buffers)?,
        None => optimizer,
    };
    Ok(optimizer.optimize()?.best.losses.get(objective))
}

fn momentum() -> anyhow::Result<f64> {
    let optimizer = optimizer((2052, 342, 6), Objective::RmsLoss)?.buffers(4)?;
    let optimizer = optimizer.workload(Workload::momentum(0.9)?);
    Ok(optimizer.optimize()?.best.losses.rms_loss)
}

fn normalised_blt(run: Run, objective: Objective, buffers: usize) -> anyhow::Result<f64> {
    let optimizer = optimizer(run, objective)?.buffers(buffers)?;
    Ok(optimizer.optimize_normalised()?.best.losses.get(objective))
}

/// Sensitivity and errors of a given column-normalised BLT.
fn certify() -> anyhow::Result<f64> {
    let blt = Blt::new(
        &[0.9937254056561524, 0.7889499650960767],
        &[0.141086426173556, 0.32590300080917545],
    )?;
    let strategy = Strategy::NormalisedBlt(NormalisedBlt::new(blt, 2052)?);
    let certified = strategy.squared_sensitivity(2052, &schema(342, 6)?)?;
    if !certified.exact {
        bail!("the sensitivity is only a bound");
    }
    let errors = strategy.errors(2052, &Workload::prefix_sum())?;
    Ok(errors.losses(certified.squared).rms_loss)
}
