//! Laplace, discrete Laplace, discrete Gaussian, randomised response.

use undertone_accounting::{Accountant, Delta, Event, Recipe, discrete};

use super::EXACT;
use super::poisson::adjacency;
use super::reference::Grid;
use crate::case::Case;

/// Probability left out of an exact sum: e^-120 is far below any delta here.
const LOG_TAIL: f64 = -120.0;

/// Outputs `eps_at_DELTA` and `delta_at_EPSILON` of `count` releases.
fn composed(
    case: &Case<'_>,
    event: &Event,
    accountant: Accountant,
    grid: impl Fn(Grid) -> Grid,
) -> anyhow::Result<()> {
    let (mut accountant, count) = (accountant, case.whole("count")?);
    accountant.compose(event, count)?;
    let grid = grid(Grid::new(case.number("vdi")?, count));
    for (delta, reference) in case.outputs_at("eps_at_")? {
        let delta = Delta::new(delta)?;
        let what = format!("epsilon at delta {delta}");
        grid.epsilon(case, &what, &accountant, delta, reference)?;
    }
    for (epsilon, reference) in case.outputs_at("delta_at_")? {
        grid.delta(case, &accountant, epsilon, reference)?;
    }
    Ok(())
}

pub(super) fn laplace(case: &Case<'_>) -> anyhow::Result<()> {
    let sensitivity = case.number("sensitivity")?;
    let event = Event::Laplace {
        scale: case.number("scale")? / sensitivity,
    };
    composed(case, &event, Accountant::new(Recipe::Pld), |grid| grid)
}

pub(super) fn discrete_laplace(case: &Case<'_>) -> anyhow::Result<()> {
    let event = Event::DiscreteLaplace {
        parameter: case.number("parameter")?,
        sensitivity: case.whole("sensitivity")?,
    };
    composed(case, &event, Accountant::new(Recipe::Pld), |grid| grid)
}

pub(super) fn discrete_gaussian(case: &Case<'_>) -> anyhow::Result<()> {
    let (sigma, sensitivity) = (case.number("sigma")?, case.whole("sensitivity")?);
    if !case.has_input("count") {
        let outcomes = discrete::gaussian::outcomes(sigma, sensitivity, LOG_TAIL)?;
        return case.close("delta", outcomes.delta(case.epsilon()?), EXACT);
    }
    let event = Event::DiscreteGaussian { sigma, sensitivity };
    let sampled = Event::PoissonSampled {
        sampling_probability: case.probability("q")?,
        event: Box::new(event),
    };
    // The peer rounds every loss of this mechanism up instead of splitting it.
    composed(case, &sampled, Accountant::new(Recipe::Pld), Grid::rounded_up)
}

pub(super) fn randomized_response(case: &Case<'_>) -> anyhow::Result<()> {
    let event = Event::RandomizedResponse {
        num_buckets: case.whole("num_buckets")?,
        noise_parameter: case.number("noise_parameter")?,
    };
    let relation = adjacency(case.text("neighboring")?)?;
    composed(case, &event, Accountant::under(Recipe::Pld, relation), |grid| {
        grid
    })
}
