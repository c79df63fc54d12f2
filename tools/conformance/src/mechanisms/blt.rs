//! Buffered linear Toeplitz matrices: parameters, coefficients, sensitivities, losses, optima.

use anyhow::{Context, ensure};
use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::optimize::blt::BltOptimizer;
use undertone_mechanisms::{Blt, NormalisedBlt, Strategy, output_scales};

use super::{EVALUATED, schema};
use crate::case::{self, Case};

/// Relative precision of a sum of squares or products in double precision.
const SUMMED: f64 = 1e-12;

fn of_inputs(case: &Case<'_>) -> anyhow::Result<Blt> {
    Ok(Blt::new(&case.numbers("theta")?, &case.numbers("omega")?)?)
}

pub(super) fn calc_output_scale(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (theta, theta_hat) = (case.numbers("theta")?, case.numbers("theta_hat")?);
    let (omega, omega_hat) = output_scales(&theta, &theta_hat)?;
    case.close_list("omega", &omega, tolerance)?;
    case.close_list("omega_hat", &omega_hat, tolerance)?;
    case.close("sum_omega", omega.iter().sum(), tolerance)?;
    let blt = Blt::new(&theta, &omega)?;
    case.close_list("coefs16", &blt.coefficients(16), tolerance)?;
    case.close_list("inv_coefs16", &blt.inverse_coefficients(16), tolerance)
}

pub(super) fn inverse_params(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let blt = of_inputs(case)?;
    let inverse = blt.inverse();
    case.close_list("theta_hat", &inverse.decays, tolerance)?;
    // Scales of nearly coincident decays are ill-conditioned: what counts is the sequence that they generate.
    case.close_vector("omega_hat", &inverse.output_scales, tolerance)?;
    let mut powers = inverse.output_scales.clone();
    let mut sequence = vec![1.0];
    for _ in 1..64 {
        sequence.push(powers.iter().sum());
        powers
            .iter_mut()
            .zip(&inverse.decays)
            .for_each(|(power, decay)| *power *= decay);
    }
    case.near_list(
        "sequence of the inverse",
        &sequence,
        &blt.inverse_coefficients(64),
        |_| SUMMED,
    );
    case.close("pillutla_score", blt.pillutla_score(), tolerance)?;
    let mut theta = case.numbers("theta")?;
    theta.sort_by(f64::total_cmp);
    let gaps = theta.windows(2).map(|pair| pair[1] - pair[0]);
    case.close("min_theta_gap", gaps.fold(f64::INFINITY, f64::min), tolerance)
}

pub(super) fn toeplitz_coefs(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (blt, rounds) = (of_inputs(case)?, case.size("n")?);
    let indices = case.numbers("indices")?;
    let indices = indices
        .into_iter()
        .map(case::whole)
        .collect::<anyhow::Result<Vec<u64>>>()?;
    for (name, series) in [
        ("c", blt.coefficients(rounds)),
        ("c_hat", blt.inverse_coefficients(rounds)),
    ] {
        let at = |&index: &u64| series.get(usize::try_from(index).ok()?).copied();
        let shown: Option<Vec<f64>> = indices.iter().map(at).collect();
        case.close_list(name, &shown.context("an index beyond n")?, tolerance)?;
        case.close(&format!("sum_{name}"), series.iter().sum(), tolerance)?;
        case.close(
            &format!("l2sq_{name}"),
            series.iter().map(|c| c * c).sum(),
            tolerance,
        )?;
    }
    Ok(())
}

pub(super) fn rational_init(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    for (name, recipe) in [("buf_decay_scale", 1.6), ("buf_decay_shift", -1.0)] {
        let got = case.number(name)?;
        ensure!(got == recipe, "{name}: the recipe has {recipe}, got {got}");
    }
    let free = Blt::rational(case.size("num_buffers")?)?;
    case.close_list("unclamped_theta", &free.decays(), tolerance)?;
    case.close_list("unclamped_omega", free.output_scales(), tolerance)?;
    // All decays multiplied so that the largest is the limit.
    let limit = case.number("max_buf_decay")? / free.decays().into_iter().fold(0.0, f64::max);
    let theta: Vec<f64> = free.decays().iter().map(|theta| theta * limit.min(1.0)).collect();
    let clamped = Blt::new(&theta, free.output_scales())?;
    case.close_list("theta", &clamped.decays(), tolerance)?;
    case.close_list("omega", clamped.output_scales(), tolerance)?;
    let (score, most) = (clamped.pillutla_score(), case.number("max_pillutla_score")?);
    case.ensure(score <= most, || {
        format!("score: expected at most {most:e}, got {score:e}")
    });
    Ok(())
}

pub(super) fn loss(case: &Case<'_>) -> anyhow::Result<()> {
    let strategy = Strategy::Blt(of_inputs(case)?);
    let cost = schema::cost(&strategy, case.size("n")?, &schema::of_inputs(case)?)?;
    case.ensure(cost.exact, || "the sensitivity is not exact".to_owned());
    schema::close(case, &cost, case.tolerance()?)
}

/// A table of schemas: sensitivities, and losses where it has them. `n` is a column or an input.
pub(super) fn table(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let strategy = Strategy::Blt(of_inputs(case)?);
    let columns = case.output("columns").and_then(|columns| columns.as_array());
    let columns: Vec<&str> = columns
        .context("no columns")?
        .iter()
        .filter_map(|name| name.as_str())
        .collect();
    let rows = case
        .output("rows")
        .and_then(|rows| rows.as_array())
        .context("no rows")?;
    for (index, row) in rows.iter().enumerate() {
        let row = row.as_array().filter(|row| row.len() == columns.len());
        let row = row.with_context(|| format!("row {index} does not fit the columns"))?;
        let cell = |name: &str| {
            columns
                .iter()
                .position(|column| *column == name)
                .map(|at| &row[at])
        };
        let whole = |name: &str| -> anyhow::Result<u64> {
            case::whole(case::number(
                cell(name).with_context(|| format!("no column {name}"))?,
            )?)
        };
        let rounds = if cell("n").is_some() {
            whole("n")?
        } else {
            case.whole("n")?
        };
        let most = cell("max_par").context("no column max_par")?;
        let schema = schema::at_least(whole("min_sep")?, most)?;
        let effective = schema.effective(rounds)?.participation;
        let rounds = usize::try_from(rounds)?;
        let certified = strategy.squared_sensitivity(rounds, &schema)?;
        case.ensure(certified.exact, || {
            format!("row {index}: the sensitivity is not exact")
        });
        let squared = certified.squared;
        for (&name, want) in columns.iter().zip(row) {
            let errors = || strategy.errors(rounds, &undertone_mechanisms::Workload::prefix_sum());
            let got = match name {
                "n" | "min_sep" | "max_par" => continue,
                "effective_k" => effective.max_participation() as f64,
                "sens" => squared.sensitivity(),
                "MaxLoss" => errors()?.losses(squared).max_loss,
                "RmsLoss" => errors()?.losses(squared).rms_loss,
                _ => anyhow::bail!("column {name} is unknown"),
            };
            let want = case::number(want)?;
            case.near(&format!("row {index}, {name}"), got, want, tolerance * want.abs());
        }
    }
    Ok(())
}

pub(super) fn column_normalised(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (blt, rounds) = (of_inputs(case)?, case.size("n")?);
    let schema = Participation::at_least(Gap::new(case.whole("eval_min_sep")?)?, case.whole("eval_k")?)?;
    let single = Participation::single();
    let plain = Strategy::Blt(blt.clone());
    let normalised = Strategy::NormalisedBlt(NormalisedBlt::new(blt, rounds)?);
    for (name, strategy) in [("", &normalised), ("plain_", &plain)] {
        let cost = schema::cost(strategy, rounds, &single)?;
        case.close(&format!("{name}MaxLoss1"), cost.losses.max_loss, tolerance)?;
        case.close(&format!("{name}RmsLoss1"), cost.losses.rms_loss, tolerance)?;
    }
    let cost = schema::cost(&plain, rounds, &schema)?;
    case.close("plain_MaxLoss_k6", cost.losses.max_loss, tolerance)?;
    case.close("plain_RmsLoss_k6", cost.losses.rms_loss, tolerance)?;

    let cost = schema::cost(&normalised, rounds, &schema)?;
    case.close("MaxError", cost.errors.max_error, tolerance)?;
    case.close("RmsError", cost.errors.rms_error, tolerance)?;
    // Between what a set reaches and Algorithm 4; these matrices close the gap.
    for (lower, upper, got) in [
        (
            "sens_k6_best_arithmetic_lower",
            "sens_k6_alg4_upper",
            cost.losses.sensitivity,
        ),
        ("MaxLoss_k6_lower", "MaxLoss_k6_upper", cost.losses.max_loss),
        ("RmsLoss_k6_lower", "RmsLoss_k6_upper", cost.losses.rms_loss),
    ] {
        case.close(upper, got, tolerance)?;
        let least = case.required(lower)?;
        case.ensure(got >= least * (1.0 - tolerance), || {
            format!("{lower}: expected at least {least:e}, got {got:e}")
        });
    }
    Ok(())
}

pub(super) fn optimised(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (rounds, schema, objective) = (
        case.size("n")?,
        schema::of_inputs(case)?,
        schema::objective(case)?,
    );
    // The file's matrix, evaluated.
    let parameters = |name: &str| -> anyhow::Result<Vec<f64>> {
        case::list(case.output(name).with_context(|| format!("no output `{name}`"))?)
    };
    let known = Blt::new(&parameters("theta")?, &parameters("omega")?)?;
    case.close_vector("theta_hat", &known.inverse().decays, EVALUATED)?;
    let known = schema::cost(&Strategy::Blt(known), rounds, &schema)?;
    schema::close(case, &known, EVALUATED)?;

    let optimizer = BltOptimizer::new(rounds, schema)?
        .objective(objective)
        .buffers(case.size("nbuf")?)?;
    let best = optimizer.optimize()?.best;
    let found = schema::cost(&Strategy::Blt(best.strategy), rounds, &schema)?
        .losses
        .get(objective);
    case.near("best.losses", best.losses.get(objective), found, 1e-12 * found);
    case.at_most("best_loss", found, tolerance)?;
    // What each peer reached, as [MaxLoss, RmsLoss].
    if let Some(methods) = case.output("by_method") {
        for (method, losses) in methods.as_object().context("by_method")? {
            let losses = case::list(losses)?;
            ensure!(losses.len() == 2, "by_method.{method} has two losses");
            let index = usize::from(schema::loss_name(objective) == "RmsLoss");
            let limit = losses[index] * (1.0 + tolerance);
            case.ensure(found <= limit, || {
                format!("by_method.{method}: expected at most {limit:e}, got {found:e}")
            });
        }
    }
    Ok(())
}
