//! Noise mechanisms: CPU seconds of optimising and certifying strategies, one thread.

use anyhow::bail;
use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::optimize::blt::BltOptimizer;
use undertone_mechanisms::optimize::{Kind, Problem, Sizes, banded, banded_toeplitz};
use undertone_mechanisms::{Blt, NormalisedBlt, Objective, Strategy, Workload};

use crate::bench::questions::{Arguments, Question, ask};

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ask(arguments, "loss", questions())
}

fn questions() -> Vec<Question> {
    vec![
        Question::new("blt-4-n2000", || blt((2000, 400, 5), Objective::MaxLoss, Some(4))),
        Question::new("blt-4-n2000-rms", || {
            blt((2000, 400, 5), Objective::RmsLoss, Some(4))
        }),
        Question::new("blt-by-gain-n2000", || {
            blt((2000, 400, 5), Objective::MaxLoss, None)
        }),
        Question::new("blt-4-n200000", || {
            blt((200_000, 1000, 20), Objective::MaxLoss, Some(4))
        }),
        Question::new("blt-4-n2052-momentum", momentum),
        Question::new("normalised-blt-2-n2052", || {
            normalised_blt((2052, 342, 6), Objective::MaxLoss, 2)
        }),
        Question::new("normalised-blt-4-n2052-rms", || {
            normalised_blt((2052, 342, 6), Objective::RmsLoss, 4)
        }),
        Question::new("certify-normalised-blt-n2052", certify),
        Question::new("band-toep-400-n2000", || {
            let problem = Problem::new(2000, schema(400, 5)?);
            Ok(banded_toeplitz(&problem, 400)?.1.rms_loss)
        }),
        Question::new("compare-n2052", compare),
        Question::new("band-mf-342-n2052", || {
            let problem = Problem::new(2052, schema(342, 6)?);
            Ok(banded(&problem, 342)?.1.rms_loss)
        })
        .slow(),
    ]
}

/// Every kind that `undertone mechanism compare` makes by itself, with its losses: the least of them.
fn compare() -> anyhow::Result<f64> {
    let problem = Problem::new(2052, schema(342, 6)?);
    let mut least = f64::INFINITY;
    for kind in Kind::ALL {
        if ![Kind::Banded, Kind::Dense].contains(&kind) {
            let made = kind.make(&problem, Sizes::default())?;
            least = least.min(problem.losses(&made.strategy)?.rms_loss);
        }
    }
    Ok(least)
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
