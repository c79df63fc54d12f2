//! Workloads of server optimizers: momentum and learning rates.

use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::production::BLT_400;
use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{BandedToeplitz, Blt, IdentityMatrix, Strategy, Workload};

use super::EVALUATED;
use crate::case::Case;

pub(super) fn workload_momentum_lr(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rounds = case.size("n")?;
    let workload =
        Workload::momentum(case.number("momentum")?)?.with_learning_rates(case.numbers("learning_rates")?)?;
    let row = |t: usize| -> anyhow::Result<Vec<f64>> {
        let mut row = workload.row(t)?;
        row.resize(rounds, 0.0);
        Ok(row)
    };
    case.close_list("A_row5", &row(5)?, EVALUATED)?;
    case.close_list("A_last_row", &row(rounds - 1)?, EVALUATED)?;

    let single = Participation::single();
    let identity = Strategy::Independent(IdentityMatrix).errors(rounds, &workload)?;
    case.close("identity_RmsError", identity.rms_error, EVALUATED)?;
    let fhu = Strategy::BandedToeplitz(BandedToeplitz::fhu(rounds)?);
    let sensitivity = fhu.squared_sensitivity(rounds, &single)?.squared.sensitivity();
    case.close("fhu_sens1", sensitivity, EVALUATED)?;
    case.close(
        "fhu_RmsError",
        fhu.errors(rounds, &workload)?.rms_error,
        EVALUATED,
    )?;
    let blt = Strategy::Blt(Blt::production(&BLT_400)?).errors(rounds, &workload)?;
    case.close("blt_b400_RmsError", blt.rms_error, EVALUATED)?;
    case.close("blt_b400_MaxError", blt.max_error, EVALUATED)?;

    // One participation is a convex problem: nobody can be below the optimum.
    let (_, losses) = optimize::dense(&Problem::new(rounds, single).with_workload(workload))?;
    case.close("dense_optimal_RmsLoss1", losses.rms_loss, tolerance)
}
