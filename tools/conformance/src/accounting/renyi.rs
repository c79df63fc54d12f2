//! Renyi divergences, the accountants over them, and the moments accountant of 2016.

use anyhow::Context;
use undertone_accounting::rdp::repeat_and_select::Repetitions;
use undertone_accounting::{
    Accountant, Epsilon, Event, NoiseMultiplier, Recipe, Rho, SamplingProbability, rdp,
};

use super::EXACT;
use crate::case::{self, Case};

/// Highest ratio of our divergence at a fractional order to the quadrature's: the series of magnitudes is an
/// upper bound, loose below order 2 with large q.
const FRACTIONAL_EXCESS: f64 = 0.4;

pub(super) fn poisson(q: f64, z: f64) -> anyhow::Result<Event> {
    Ok(Event::PoissonGaussian {
        sampling_probability: SamplingProbability::new(q)?,
        noise_multiplier: NoiseMultiplier::new(z)?,
    })
}

pub(super) fn rdp_poisson_gaussian(case: &Case<'_>) -> anyhow::Result<()> {
    let event = poisson(case.number("q")?, case.number("sigma")?)?;
    if let Some(want) = case.output("rdp") {
        let (orders, want) = (case.numbers("orders")?, case::list(want)?);
        anyhow::ensure!(orders.len() == want.len(), "as many divergences as orders");
        let got = rdp::curve(&event, &orders)?;
        for ((order, got), want) in orders.into_iter().zip(got).zip(want) {
            let what = format!("rdp at order {order}");
            if want == f64::INFINITY {
                // The peer's series does not converge there in its thousand terms; ours must give a value.
                case.ensure(got.is_finite() && got > 0.0, || {
                    format!("{what}: expected a finite number > 0, got {got}")
                });
            } else {
                // The peer stops 30 nats below a sum next to 1 and rounds there: 2e-13 of ln A is its noise.
                case.near(&what, got, want, EXACT * want + 2e-13 / (order - 1.0));
            }
        }
    }
    if let Some(checks) = case.output("rdp_quadrature_check") {
        for (order, want) in checks.as_object().context("rdp_quadrature_check")? {
            let order: f64 = order.parse()?;
            let (got, want) = (rdp::curve(&event, &[order])?[0], case::number(want)?);
            // The quadrature was rounded to a double next to 1 before its logarithm.
            let noise = 4e-16 / (order - 1.0);
            let excess = if order.fract() == 0.0 {
                EXACT
            } else {
                FRACTIONAL_EXCESS
            };
            // PRIVACY: below the true divergence nothing is a bound.
            let (low, high) = (want * (1.0 - EXACT) - noise, want * (1.0 + excess) + noise);
            case.ensure(low <= got && got <= high, || {
                format!("divergence at order {order}: expected [{low:e}, {high:e}], got {got:e}")
            });
        }
    }
    Ok(())
}

pub(super) fn rdp_accountant(case: &Case<'_>) -> anyhow::Result<()> {
    let (event, steps) = if case.has_input("rho") {
        let rho = Rho::new(case.number("rho")?)?;
        (Event::ZeroConcentrated { rho, xi: 0.0 }, case.whole("count")?)
    } else if case.has_input("event") {
        (repeated(case)?, 1)
    } else {
        let event = poisson(case.number("q")?, case.number("noise_multiplier")?)?;
        (event, case.whole("steps")?)
    };
    let mut accountant = Accountant::new(Recipe::Rdp);
    accountant.compose(&event, steps)?;
    let got = accountant.guarantee(case.delta()?)?;
    let order = got.optimal_order.context("no optimal order")?.order;
    // The peer drops up to e^-30 of every step's A, which a million steps bring to the ninth digit.
    let dropped = steps as f64 * 1e-13;
    let want = case.required("epsilon")?;
    case.near(
        "epsilon",
        got.epsilon.get(),
        want,
        EXACT * want + dropped / (order - 1.0),
    );
    case.close("optimal_order", order, 0.0)?;
    for (epsilon, want) in case.outputs_at("delta_at_eps_")? {
        let what = format!("delta at epsilon {epsilon}");
        match accountant.delta_for(Epsilon::new(epsilon)?) {
            Ok(got) => {
                let (delta, order) = (got.delta.get(), got.optimal_order.map_or(2.0, |best| best.order));
                // Only a million steps bring what the peer drops to the ninth digit of delta.
                let tolerance = if steps < 1_000_000 { EXACT } else { EXACT + dropped } * want;
                // Below order 2 the peer has infinities where we have values, and so a larger delta.
                if !(order < 2.0 && delta <= want) {
                    case.near(&what, delta, want, tolerance);
                }
            }
            Err(_) => case.near(&what, 1.0, want, 0.0),
        }
    }
    Ok(())
}

/// `Gaussian(z)` repeated a negative binomial number of times.
fn repeated(case: &Case<'_>) -> anyhow::Result<Event> {
    let text = case.text("event")?;
    let z = text
        .strip_prefix("Gaussian(")
        .and_then(|rest| rest.strip_suffix(')'));
    let z = z.with_context(|| format!("expected Gaussian(z), got {text}"))?;
    Ok(Event::RepeatAndSelect {
        event: Box::new(Event::Gaussian {
            noise_multiplier: NoiseMultiplier::new(z.parse()?)?,
        }),
        repetitions: Repetitions::TruncatedNegativeBinomial {
            shape: case.number("shape")?,
            mean: case.number("mean")?,
        },
    })
}

pub(super) fn moments_accountant(case: &Case<'_>) -> anyhow::Result<()> {
    anyhow::ensure!(case.text("lambdas")? == "1..32", "the recipe has moments 1 to 32");
    let event = poisson(case.number("q")?, case.number("noise_multiplier")?)?;
    let delta = case.delta()?;
    let steps = case.numbers("steps")?;
    let outputs = |name: &str| -> anyhow::Result<Vec<f64>> {
        let values = case.output(name).with_context(|| format!("no output `{name}`"))?;
        let values = case::list(values)?;
        anyhow::ensure!(
            values.len() == steps.len(),
            "{name}: {} values for {} steps",
            values.len(),
            steps.len()
        );
        Ok(values)
    };
    let guarantee = |recipe, steps: f64| -> anyhow::Result<_> {
        let mut accountant = Accountant::new(recipe);
        accountant.compose(&event, case::whole(steps)?)?;
        Ok(accountant.guarantee(delta)?)
    };
    let (epsilons, moments) = (outputs("epsilon")?, outputs("optimal_lambda")?);
    for ((&steps, want), moment) in steps.iter().zip(epsilons).zip(moments) {
        let got = guarantee(Recipe::Moments2016, steps)?;
        case.near(
            &format!("epsilon after {steps} steps"),
            got.epsilon.get(),
            want,
            EXACT * want,
        );
        let order = got.optimal_order.context("no optimal moment")?.order;
        case.near(&format!("moment after {steps} steps"), order - 1.0, moment, 0.0);
    }
    if let Some(want) = case.output("epsilon_rdp_default_orders") {
        for (&steps, want) in steps.iter().zip(case::list(want)?) {
            let got = guarantee(Recipe::Rdp, steps)?.epsilon.get();
            case.near(
                "epsilon_rdp_default_orders",
                got,
                want,
                EXACT * want + steps * 1e-13,
            );
        }
    }
    Ok(())
}

pub(super) fn without_replacement(case: &Case<'_>) -> anyhow::Result<()> {
    let relation = case.text("neighboring")?;
    anyhow::ensure!(
        relation == "REPLACE_ONE",
        "fixed-size cohorts are stated for REPLACE_ONE, got {relation}"
    );
    let event = Event::FixedSizeGaussian {
        population: case.whole("n")?,
        cohort_size: case.whole("m")?,
        noise_multiplier: case.noise("noise_multiplier")?,
    };
    let mut accountant = Accountant::new(Recipe::Rdp);
    accountant.compose(&event, case.whole("steps")?)?;
    let got = accountant.guarantee(case.delta()?)?;
    case.close("epsilon", got.epsilon.get(), EXACT)?;
    let order = got.optimal_order.context("no optimal order")?.order;
    case.close("optimal_order", order, 0.0)
}
