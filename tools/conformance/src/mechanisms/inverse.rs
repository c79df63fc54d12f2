//! Toeplitz matrices whose inverse is banded: BISR, BandInvMF, DP-lambda-CGD.

use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{InverseToeplitz, NormalisedInverseToeplitz, Strategy, Workload, toeplitz};

use super::{EVALUATED, schema};
use crate::case::Case;

pub(super) fn bisr(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rounds = case.size("n")?;
    let strategy = InverseToeplitz::square_root(case.size("bands")?)?;
    let shown = |coefficients: &[f64]| coefficients[..coefficients.len().min(16)].to_vec();
    case.close_list("c_hat", &shown(strategy.coefficients()), tolerance)?;
    let coefficients = strategy.strategy_coefficients(rounds)?;
    case.close_list("c_head", &shown(&coefficients), tolerance)?;
    let cost = schema::cost(
        &Strategy::InverseToeplitz(strategy),
        rounds,
        &schema::of_inputs(case)?,
    )?;
    if let Some(want) = case.output("c_monotone_nonneg") {
        let falls = coefficients.is_sorted_by(|a, b| a >= b) && coefficients.iter().all(|c| *c >= 0.0);
        case.ensure(want.as_bool() == Some(falls), || {
            format!("c_monotone_nonneg: expected {want}, got {falls}")
        });
        case.ensure(cost.exact || !falls, || {
            "falling coefficients without an exact sensitivity".to_owned()
        });
    }
    schema::close(case, &cost, tolerance)
}

pub(super) fn bisr_workload(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (decay, momentum) = (case.number("alpha_weight_decay")?, case.number("beta_momentum")?);
    let (rounds, bands) = (case.size("n")?, case.size("bands")?);
    // `a_i = sum_j decay^j momentum^(i - j)`, where a weight decay of 1 is none.
    let (mut sum, mut power) = (0.0, 1.0);
    let entry = |_| {
        sum = decay * sum + power;
        power *= momentum;
        sum
    };
    let workload: Vec<f64> = (0..rounds).map(entry).collect();
    let root = toeplitz::square_root(&workload, rounds)?;
    case.close_list("workload_head", &workload[..8], tolerance)?;
    case.close_list("sqrt_head", &root[..8], tolerance)?;
    let strategy = InverseToeplitz::square_root_of(&workload[..bands])?;
    case.close_list("c_hat", strategy.coefficients(), tolerance)
}

pub(super) fn dp_lambda_cgd(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rounds = case.size("n")?;
    let plain = InverseToeplitz::lambda(case.number("lam")?)?;
    let normalised = NormalisedInverseToeplitz::new(rounds, plain.clone())?;
    let cost = schema::cost(
        &Strategy::InverseToeplitz(plain),
        rounds,
        &schema::of_inputs(case)?,
    )?;
    schema::close(case, &cost, tolerance)?;
    let errors = Strategy::NormalisedInverseToeplitz(normalised).errors(rounds, &Workload::prefix_sum())?;
    case.close("colnorm_MaxError", errors.max_error, tolerance)?;
    case.close("colnorm_RmsError", errors.rms_error, tolerance)
}

pub(super) fn band_inv_mf_optimised(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (rounds, bands) = (case.size("n")?, case.size("bands")?);
    let (schema, objective) = (schema::of_inputs(case)?, schema::objective(case)?);
    let square_root = Strategy::InverseToeplitz(InverseToeplitz::square_root(bands)?);
    let root = schema::cost(&square_root, rounds, &schema)?.losses;
    case.close("bisr_MaxLoss", root.max_loss, EVALUATED)?;
    case.close("bisr_RmsLoss", root.rms_loss, EVALUATED)?;
    // The file's matrix, evaluated: the sensitivity is that of a falling majorant.
    if let Some(found) = case.output("c_hat") {
        let found = InverseToeplitz::new(crate::case::list(found)?)?;
        let cost = schema::cost(&Strategy::InverseToeplitz(found), rounds, &schema)?;
        case.close("sens_majorant", cost.losses.sensitivity, EVALUATED)?;
        schema::close(case, &cost, EVALUATED)?;
    }
    let problem = Problem::new(rounds, schema).with_objective(objective);
    let (_, losses) = optimize::inverse_toeplitz(&problem, bands)?;
    case.at_most(schema::loss_name(objective), losses.get(objective), tolerance)
}
