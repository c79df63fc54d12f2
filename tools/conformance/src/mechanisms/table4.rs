//! \[BLT\] Table 4: the guarantees of production models.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use undertone_accounting::participation::{Gap, Participation, RoundsBetween};
use undertone_accounting::sensitivity::SquaredSensitivity;
use undertone_accounting::sensitivity::production::{self, ProductionBlt};
use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, zcdp};
use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{Blt, Strategy, Tree};

use super::EVALUATED;
use super::banded::gram;
use crate::case::Case;

/// Rounds that the production BandMF of \[BLT\] section 5 was made for.
const BANDED_ROUNDS: usize = 2000;

fn parameters(name: &str) -> anyhow::Result<&'static ProductionBlt> {
    let gap: u64 = name
        .strip_prefix('b')
        .and_then(|gap| gap.parse().ok())
        .with_context(|| format!("{name} is no set"))?;
    let set = match gap {
        100 => &production::BLT_100,
        400 => &production::BLT_400,
        1000 => &production::BLT_1000,
        _ => bail!("no production set {name}"),
    };
    Ok(set)
}

/// BandMF of so many bands, divided by its sensitivity in the run it was made for, under a schema: what a bound gives,
/// and what the user reaches who takes part as early and as often as the schema allows.
fn production_banded(bands: usize, rounds: usize, schema: &Participation) -> anyhow::Result<(f64, f64)> {
    let expected = Participation::at_least(Gap::new(bands as u64)?, u64::MAX)?;
    let (matrix, losses) = optimize::banded(&Problem::new(BANDED_ROUNDS, expected), bands)?;
    let scale = losses.sensitivity;
    let gap = usize::try_from(schema.gap().get())?;
    let most = schema.effective(rounds as u64)?.participation.max_participation();
    let set: Vec<usize> = (0..rounds).step_by(gap).take(usize::try_from(most)?).collect();
    let pairs = set.iter().flat_map(|&i| set.iter().map(move |&j| (i, j)));
    let reached: f64 = pairs.map(|(i, j)| gram(&matrix, rounds, i, j)).sum();
    let bound = Strategy::Banded(matrix)
        .squared_sensitivity(rounds, schema)?
        .squared;
    Ok((bound.sensitivity() / scale, reached.sqrt() / scale))
}

pub(super) fn seed_table4(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (rounds, noise) = (case.size("rounds")?, case.noise("sigma")?);
    let between = RoundsBetween::new(case.whole("MinS")?);
    let separation = case.whole("separation")?;
    ensure!(
        between.gap().get() == separation,
        "{between} is not a gap of {separation}"
    );
    let schema = Participation::at_least(between.gap(), case.whole("MaxP")?)?;
    let want = case.required("sens")?;
    let squared = match case.text("mechanism")? {
        "TreeAgg" => {
            Strategy::Tree(Tree::new())
                .squared_sensitivity(rounds, &schema)?
                .squared
        }
        "BLT" => {
            let blt = Blt::production(parameters(case.text("params")?)?)?;
            Strategy::Blt(blt).squared_sensitivity(rounds, &schema)?.squared
        }
        "BandMF" if schema.max_participation() == 1 => {
            // One participation costs a column of norm 1, however many bands there are.
            let (matrix, _) = optimize::banded(&Problem::new(rounds, schema), 8)?;
            Strategy::Banded(matrix)
                .squared_sensitivity(rounds, &schema)?
                .squared
        }
        "BandMF" => {
            let (bound, reached) = production_banded(400, rounds, &schema)?;
            // Columns overlap beyond the gap: the reference is Algorithm 4, ours is the same bound made tighter.
            case.at_most("sens", bound, tolerance)?;
            case.ensure(bound >= reached, || {
                format!("sens: expected at least {reached:e}, got {bound:e}")
            });
            // The rest of the row follows from the reference's sensitivity.
            SquaredSensitivity::new(want * want)?
        }
        other => bail!("mechanism {other} is unknown"),
    };
    case.close("sens", squared.sensitivity(), EVALUATED)?;
    let rho = squared.rho(noise)?;
    case.close("rho", rho.get(), EVALUATED)?;
    let delta: Delta = case.delta()?;
    let epsilon = zcdp::epsilon_of_gaussians(rho, delta)?.get();
    case.close("eps_exact", epsilon, EVALUATED)?;
    let mut accountant = Accountant::new(Recipe::Pld);
    let noise_multiplier = NoiseMultiplier::new(noise.get() / squared.sensitivity())?;
    accountant.compose(&Event::Gaussian { noise_multiplier }, 1)?;
    case.close("eps_pld", accountant.guarantee(delta)?.epsilon.get(), tolerance)?;

    // Printed numbers are rounded up.
    for (name, got) in [("zcdp", rho.get()), ("eps", epsilon)] {
        let printed = case
            .output(&format!("paper_{name}"))
            .with_context(|| format!("no paper_{name}"))?;
        let matches = rounds_up_to(got, printed)?;
        let want = case.output(&format!("match_{name}")).and_then(Value::as_bool);
        case.ensure(want == Some(matches), || {
            format!("match_{name}: expected {want:?}, got {matches}")
        });
    }
    let implied = case.required("paper_zcdp")? * 2.0 * noise.get().powi(2);
    case.close("implied_sens_sq_from_paper", implied, EVALUATED)
}

/// Returns true if `value` is `printed` after rounding up to its decimals, two at least.
fn rounds_up_to(value: f64, printed: &Value) -> anyhow::Result<bool> {
    let text = printed.to_string();
    let decimals = text
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len())
        .max(2);
    let unit = 10f64.powi(i32::try_from(decimals)?);
    let printed = printed.as_f64().context("a printed number is not a number")?;
    Ok((value * unit).ceil() == (printed * unit).round())
}
