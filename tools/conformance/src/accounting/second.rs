//! The borders of the accountant: the families of `vectors/accounting-2.json`.

use anyhow::{Context, bail};
use serde_json::Value;
use undertone_accounting::rdp::repeat_and_select::Repetitions;
use undertone_accounting::{
    Accountant, AccountingError, Adjacency, Epsilon, Event, NoiseMultiplier, Recipe, calibrate,
};

use super::EXACT;
use super::renyi::poisson;
use crate::case::{self, Case};

/// Relative slack of bounds against a number of fourteen digits.
const LAST_DIGITS: f64 = 1e-12;
/// The largest distance of a lower from an upper bound, relatively.
const WIDTH: f64 = 1e-3;
/// The largest relative excess of a Renyi epsilon of the vectors over the pure one.
const RENYI_EXCESS: f64 = 0.01;

pub(super) fn bounded_losses(case: &Case<'_>) -> anyhow::Result<()> {
    let (lower, upper) = composed(case)?.bounds(case.delta()?)?;
    let (lower, upper) = (lower.get(), upper.get());
    let exact = case.required("epsilon")?;
    // Quadrature knows some of the numbers to fewer digits.
    let slack = if case.tolerance()? > EXACT {
        case.tolerance()?
    } else {
        LAST_DIGITS
    };
    case.ensure(
        lower <= exact * (1.0 + slack) && upper >= exact * (1.0 - slack),
        || format!("epsilon: expected {exact} between the bounds, got {lower} and {upper}"),
    );
    case.ensure(upper - lower <= WIDTH * exact, || {
        format!("width of the bounds: expected at most {WIDTH} of {exact}, got {lower} and {upper}")
    });
    if let Some(pure) = case.expected("pure_epsilon")? {
        case.ensure(upper <= pure * (1.0 + 2.0 * f64::EPSILON), || {
            format!("upper bound: expected at most the pure epsilon {pure}, got {upper}")
        });
    }
    Ok(())
}

/// The value that a calibration to epsilon 0 ends at, on the safe side.
pub(super) fn calibrate_zero(case: &Case<'_>) -> anyhow::Result<()> {
    let target = (Epsilon::new(0.0)?, case.delta()?);
    let (mechanism, wanted) = (case.text("mechanism")?, case.text("wanted")?);
    let close = |found: f64, larger_is_safe: bool| -> anyhow::Result<()> {
        let want = case.required(wanted)?;
        case.near(wanted, found, want, case.tolerance()? * want);
        let safe = if larger_is_safe {
            found >= want * (1.0 - EXACT)
        } else {
            found <= want * (1.0 + EXACT)
        };
        case.ensure(safe, || {
            format!("{wanted}: {found} lies on the wrong side of {want}")
        });
        Ok(())
    };
    match (mechanism, wanted) {
        ("gaussian", "rounds") => {
            let event = Event::Gaussian {
                noise_multiplier: case.noise("noise_multiplier")?,
            };
            close(
                calibrate::rounds_of(target, &event, Recipe::ExactGaussian)? as f64,
                false,
            )
        }
        ("gaussian", "noise_multiplier") => {
            let rounds = case.whole("rounds")?;
            let found =
                calibrate::noise_multiplier_of(target, rounds, Recipe::ExactGaussian, |noise_multiplier| {
                    Event::Gaussian { noise_multiplier }
                })?;
            close(found.get(), true)
        }
        ("laplace", "scale") => {
            let (range, rounds) = (
                calibrate::Range {
                    safe: 1e9,
                    risky: 1e-3,
                    whole: false,
                },
                case.whole("rounds")?,
            );
            let found = calibrate::parameter(target, range, Recipe::Pld, None, |scale| {
                Ok::<_, AccountingError>(vec![(Event::Laplace { scale }, rounds)])
            })?;
            close(found, true)
        }
        ("poisson-gaussian", "rounds") => {
            let (q, z) = (
                case.probability("sampling_probability")?,
                case.noise("noise_multiplier")?,
            );
            close(calibrate::rounds(target, q, z, Recipe::Pld)? as f64, false)
        }
        ("poisson-gaussian", "sampling_probability") => {
            let (z, rounds) = (case.noise("noise_multiplier")?, case.whole("rounds")?);
            close(
                calibrate::sampling_probability(target, z, rounds, Recipe::Pld)?.get(),
                false,
            )
        }
        ("poisson-gaussian", "noise_multiplier") => {
            let (q, rounds) = (case.probability("sampling_probability")?, case.whole("rounds")?);
            close(
                calibrate::noise_multiplier(target, q, rounds, Recipe::Pld)?.get(),
                true,
            )
        }
        other => bail!("calibration of {other:?} is unknown"),
    }
}

pub(super) fn approximate_dp(case: &Case<'_>) -> anyhow::Result<()> {
    let found = composed(case)?.guarantee(case.delta()?);
    if case.output("error").is_some() {
        let Err(AccountingError::DeltaBelowStated { stated, .. }) = found else {
            bail!("expected the error of a delta below the stated ones, got {found:?}");
        };
        return case.close("stated_deltas", stated, EXACT);
    }
    let (found, want) = (found?.epsilon.get(), case.required("epsilon")?);
    case.near("epsilon", found, want, case.tolerance()? * want);
    case.ensure(found >= want * (1.0 - EXACT), || {
        format!("epsilon: {found} is below {want}")
    });
    Ok(())
}

pub(super) fn truncated_huge(case: &Case<'_>) -> anyhow::Result<()> {
    let event = Event::TruncatedPoissonGaussian {
        population: case.whole("population")?,
        sampling_probability: case.probability("sampling_probability")?,
        max_cohort_size: case.whole("max_cohort_size")?,
        noise_multiplier: case.noise("noise_multiplier")?,
    };
    let mut accountant = Accountant::new(Recipe::Pld);
    accountant.compose(&event, case.whole("rounds")?)?;
    let found = accountant.guarantee(case.delta()?)?.epsilon.get();
    let (least, most) = (
        case.required("epsilon_at_least")?,
        case.required("epsilon_at_most")?,
    );
    case.ensure(found >= least && found <= most * (1.0 + WIDTH), || {
        format!("epsilon: expected a number from {least} to {most}, got {found}")
    });
    // A part of the source's bounds, not of the answer.
    let full = case.required("probability_of_a_full_cohort")?;
    case.ensure((0.0..=1.0).contains(&full), || {
        format!("probability_of_a_full_cohort: {full}")
    });
    Ok(())
}

/// The numbers behind the compatible layer of Python, whose own tests check the layer: there a parameter is relative to the sensitivity of
/// the relation.
pub(super) fn dp_accounting_layer(case: &Case<'_>) -> anyhow::Result<()> {
    let recipe = match case.text("accountant")? {
        "RdpAccountant" => Recipe::Rdp,
        "PLDAccountant" => Recipe::Pld,
        other => bail!("accountant {other} is unknown"),
    };
    let (adjacency, factor) = match case.text("relation")? {
        "ADD_OR_REMOVE_ONE" => (Adjacency::AddOrRemoveOne, 1.0),
        "REPLACE_ONE" => (Adjacency::ReplaceOne, 2.0),
        other => bail!("relation {other} is unknown"),
    };
    let mut accountant = Accountant::under(recipe, adjacency);
    let events = case
        .input("events")?
        .as_array()
        .context("`events` is not a list")?;
    for event in events {
        let (event, count) = layer_event(event, factor)?;
        accountant.compose(&event, count)?;
    }
    // That an accountant survives pickling is a matter of Python.
    case.output("pickles");
    if case.has_input("epsilon") {
        return case.close(
            "delta",
            accountant.delta_at(case.number("epsilon")?)?,
            case.tolerance()?,
        );
    }
    let epsilon = accountant.guarantee(case.delta()?)?.epsilon.get();
    let pure = accountant.pure_epsilon().map_or(f64::INFINITY, Epsilon::get);
    if let Some(theirs) = case.expected("epsilon")?
        && theirs > pure
    {
        // Their Renyi divergences may cost a little more than basic composition, which our answer never does.
        case.near("epsilon beside the pure one", pure, theirs, RENYI_EXCESS * pure);
        case.near("pure epsilon", epsilon, pure, case.tolerance()? * pure);
        return Ok(());
    }
    case.close("epsilon", epsilon, case.tolerance()?)
}

fn layer_event(event: &Value, factor: f64) -> anyhow::Result<(Event, u64)> {
    let fields = event.as_array().context("an event is not a list")?;
    let field = |index: usize| fields.get(index).context("an event lacks a field");
    let number = |index: usize| case::number(field(index)?);
    let count = |index: usize| {
        fields
            .get(index)
            .map_or(Ok(1), |count| case::whole(case::number(count)?))
    };
    let inner = || anyhow::Ok(layer_event(field(1)?, factor)?.0);
    Ok(match field(0)?.as_str() {
        Some("LaplaceDpEvent") => (
            Event::Laplace {
                scale: factor * number(1)?,
            },
            count(2)?,
        ),
        Some("GaussianDpEvent") => {
            let noise_multiplier = NoiseMultiplier::new(factor * number(1)?)?;
            (Event::Gaussian { noise_multiplier }, count(2)?)
        }
        Some("PoissonSampledDpEvent") => {
            let (inner, _) = layer_event(field(2)?, factor)?;
            let Event::Gaussian { noise_multiplier } = inner else {
                bail!("{inner:?} is not sampled here")
            };
            (poisson(number(1)?, noise_multiplier.get())?, count(3)?)
        }
        Some("RepeatAndSelectDpEvent") => {
            let (mean, shape) = (number(2)?, number(3)?);
            let event = Box::new(inner()?);
            let repetitions = Repetitions::TruncatedNegativeBinomial { shape, mean };
            (Event::RepeatAndSelect { event, repetitions }, 1)
        }
        other => bail!("event {other:?} is unknown"),
    })
}

/// The check of batches is a part of Python, whose own tests run it.
pub(super) fn check_draws(case: &Case<'_>) -> anyhow::Result<()> {
    case.output("severity");
    let findings = case
        .output("findings")
        .and_then(Value::as_array)
        .context("no list `findings`")?;
    case.ensure(findings.iter().all(Value::is_string), || {
        "findings: expected names of rules".to_owned()
    });
    Ok(())
}

fn composed(case: &Case<'_>) -> anyhow::Result<Accountant> {
    let mut accountant = Accountant::new(Recipe::Pld);
    let events = case
        .input("events")?
        .as_array()
        .context("`events` is not a list")?;
    for event in events {
        let count = case::whole(case::number(&event["count"])?)?;
        accountant.compose(&serde_json::from_value(event["event"].clone())?, count)?;
    }
    Ok(accountant)
}

/// A stated delta of a Gaussian: not below the exact one by more than the last digit of a number.
pub(super) fn not_below(case: &Case<'_>, delta: f64) -> anyhow::Result<()> {
    if let Some(exact) = case.expected("delta")? {
        case.ensure(delta >= exact * (1.0 - 4e-16), || {
            format!("delta: expected at least {exact:e}, got {delta:e}")
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;
    use crate::case::testing;

    fn file() -> Value {
        serde_json::from_str(include_str!("../../../../vectors/accounting-2.json")).unwrap()
    }

    #[test]
    #[ignore = "slow"]
    fn the_vectors_of_the_borders_pass() {
        let file = file();
        let cases = file.as_array().unwrap().len();
        assert_eq!(
            testing::verdict(&file, check),
            format!("{cases} passed, 0 failed")
        );
    }

    #[test]
    fn each_family_has_all_its_cases_and_outputs() {
        let expected = [
            ("approximate_dp", 8, 11),
            ("bounded_losses", 15, 28),
            ("calibrate_zero", 8, 8),
            ("check_draws", 5, 10),
            ("dp_accounting_layer", 10, 12),
            ("gaussian", 6, 12),
            ("truncated_huge", 4, 12),
        ];
        assert_eq!(testing::counts(&file()), expected);
    }

    #[test]
    fn a_number_on_the_wrong_side_fails() {
        let fails = |family: &str, key: &str, value: Value| {
            let file = Value::Array(vec![testing::changed(&file(), family, "outputs", key, value)]);
            assert_eq!(
                testing::verdict(&file, check),
                "0 passed, 1 failed",
                "{family} {key}"
            );
        };
        fails("bounded_losses", "epsilon", 36.363_637.into());
        fails("bounded_losses", "pure_epsilon", 36.363_63.into());
        fails("calibrate_zero", "rounds", 7.into());
        fails("approximate_dp", "epsilon", 0.100_001.into());
        fails("truncated_huge", "epsilon_at_most", 1.0.into());
        fails("gaussian", "delta", 7.478_298_460_9e-29.into());
        fails("dp_accounting_layer", "epsilon", 5.0.into());
    }
}
