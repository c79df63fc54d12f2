//! Calibration: from a target guarantee to the parameter that reaches it.

use pyo3::prelude::*;
use undertone_accounting::calibrate::{self, Range};
use undertone_accounting::{
    AccountingError, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability,
};

use crate::account::Asked;
use crate::count;
use crate::error::{Answer, refusal, wrong_type};
use crate::event::{PyEvent, object};

/// The range in which noise multipliers are searched.
const NOISE: (f64, f64) = (1e-6, 1e12);
/// The range in which sampling probabilities are searched.
const PROBABILITY: (f64, f64) = (1e-15, 1.0);
/// The largest number of rounds searched.
const MAX_ROUNDS: u64 = 1 << 52;

/// Events with their rounds from what a callback returned: an event, or a list of (event, rounds).
fn composition(stated: &Bound<'_, PyAny>, rounds: u64) -> PyResult<Vec<(Event, u64)>> {
    if let Ok(event) = stated.cast::<PyEvent>() {
        return Ok(vec![(event.get().inner.clone(), rounds)]);
    }
    let pairs: Vec<(Bound<'_, PyEvent>, u64)> = stated
        .extract()
        .map_err(|_| wrong_type("event", "an Event or a list of (Event, rounds)", stated))?;
    let pairs = pairs.into_iter();
    Ok(pairs
        .map(|(event, count)| (event.get().inner.clone(), count.saturating_mul(rounds)))
        .collect())
}

/// The search over what `make` states, with the interpreter's lock held while the callback runs.
fn search(
    py: Python<'_>,
    make: impl Fn(Python<'_>, f64) -> Answer<Vec<(Event, u64)>> + Sync,
    target: (Epsilon, Delta),
    range: Range,
    asked: &Asked,
) -> Answer<f64> {
    let at_safe = make(py, range.safe)?;
    let best = || Recipe::best_for(at_safe.iter().map(|(event, _)| event));
    let recipe = asked.recipe.unwrap_or_else(best);
    py.detach(|| {
        calibrate::parameter(target, range, recipe, asked.adjacency, |value| {
            Python::attach(|py| {
                py.check_signals()?;
                make(py, value)
            })
        })
    })
}

/// A field of a given event, replaced by the value.
fn with_field(event: &Event, name: &'static str, value: f64) -> Answer<Event> {
    let mut event = event.clone();
    let replaced = match (&mut event, name) {
        (
            Event::PoissonGaussian { noise_multiplier, .. }
            | Event::Gaussian { noise_multiplier }
            | Event::FixedSizeGaussian { noise_multiplier, .. }
            | Event::TruncatedPoissonGaussian { noise_multiplier, .. }
            | Event::MixtureOfGaussians { noise_multiplier, .. }
            | Event::ExampleLevelSampling { noise_multiplier, .. }
            | Event::CorrelatedGaussian { noise_multiplier, .. },
            "noise_multiplier",
        ) => {
            *noise_multiplier = NoiseMultiplier::new(value)?;
            true
        }
        (
            Event::PoissonGaussian {
                sampling_probability, ..
            }
            | Event::TruncatedPoissonGaussian {
                sampling_probability, ..
            }
            | Event::ExampleLevelSampling {
                sampling_probability, ..
            }
            | Event::PoissonSampled {
                sampling_probability, ..
            },
            "sampling_probability",
        ) => {
            *sampling_probability = SamplingProbability::new(value)?;
            true
        }
        _ => false,
    };
    if replaced {
        return Ok(event);
    }
    let shown = Python::attach(|py| Ok::<_, PyErr>(object(py, event)?.bind(py).repr()?.to_string()))?;
    let message = format!(
        "event: expected one with the field {name}, got {shown}; udp.calibrate.parameter searches any field of any event"
    );
    Err(refusal("unsupported-event", message))
}

fn at_least_one(rounds: u64) -> Answer<()> {
    if rounds > 0 {
        return Ok(());
    }
    Err(AccountingError::OutOfRange {
        quantity: "rounds",
        expected: "at least 1",
        got: 0.0,
    }
    .into())
}

/// The smallest noise multiplier with which `rounds` releases hold the target.
///
/// `event` is an event, whose own noise multiplier is replaced, or a function from a noise multiplier to an event or to a
/// list of (event, rounds).
///
/// >>> import undertone_dp as udp
/// >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
/// >>> z = udp.calibrate.noise_multiplier(round, epsilon=2.0, delta=1e-6, rounds=1000)
/// >>> udp.epsilon(round.replace(noise_multiplier=z), delta=1e-6, rounds=1000) <= 2.0
/// True
#[pyfunction]
#[pyo3(signature = (event, *, epsilon, delta, rounds = 1, recipe = "auto", adjacency = None))]
pub(crate) fn noise_multiplier(
    py: Python<'_>,
    event: &Bound<'_, PyAny>,
    epsilon: f64,
    delta: f64,
    #[pyo3(from_py_with = count::rounds)] rounds: u64,
    recipe: &str,
    adjacency: Option<&str>,
) -> Answer<f64> {
    let asked = Asked::new(recipe, adjacency, None)?;
    let target = (Epsilon::new(epsilon)?, Delta::new(delta)?);
    at_least_one(rounds)?;
    if let (Ok(given), None) = (event.cast::<PyEvent>(), asked.adjacency) {
        let given = &given.get().inner;
        with_field(given, "noise_multiplier", 1.0)?;
        let best = || Recipe::best_for([given]);
        let recipe = asked.recipe.unwrap_or_else(best);
        let found = py.detach(|| {
            calibrate::noise_multiplier_of(target, rounds, recipe, |z| {
                with_field(given, "noise_multiplier", z.get()).unwrap_or(Event::NonPrivate)
            })
        })?;
        return Ok(found.get());
    }
    let range = Range {
        safe: NOISE.1,
        risky: NOISE.0,
        whole: false,
    };
    field(py, event, "noise_multiplier", target, rounds, range, &asked)
}

/// The largest sampling probability with which `rounds` releases hold the target.
///
/// >>> import undertone_dp as udp
/// >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
/// >>> q = udp.calibrate.sampling_probability(round, epsilon=2.0, delta=1e-6, rounds=1000)
/// >>> udp.epsilon(round.replace(sampling_probability=q), delta=1e-6, rounds=1000) <= 2.0
/// True
#[pyfunction]
#[pyo3(signature = (event, *, epsilon, delta, rounds = 1, recipe = "auto", adjacency = None))]
pub(crate) fn sampling_probability(
    py: Python<'_>,
    event: &Bound<'_, PyAny>,
    epsilon: f64,
    delta: f64,
    #[pyo3(from_py_with = count::rounds)] rounds: u64,
    recipe: &str,
    adjacency: Option<&str>,
) -> Answer<f64> {
    let asked = Asked::new(recipe, adjacency, None)?;
    let target = (Epsilon::new(epsilon)?, Delta::new(delta)?);
    at_least_one(rounds)?;
    if let (Ok(given), None) = (event.cast::<PyEvent>(), asked.adjacency)
        && let Event::PoissonGaussian { noise_multiplier, .. } = given.get().inner
    {
        let recipe = asked.recipe.unwrap_or(Recipe::Pld);
        let found =
            py.detach(|| calibrate::sampling_probability(target, noise_multiplier, rounds, recipe))?;
        return Ok(found.get());
    }
    let range = Range {
        safe: PROBABILITY.0,
        risky: PROBABILITY.1,
        whole: false,
    };
    field(py, event, "sampling_probability", target, rounds, range, &asked)
}

/// The search for a field of an event, or for the argument of a callback.
fn field(
    py: Python<'_>,
    event: &Bound<'_, PyAny>,
    name: &'static str,
    target: (Epsilon, Delta),
    rounds: u64,
    range: Range,
    asked: &Asked,
) -> Answer<f64> {
    if let Ok(given) = event.cast::<PyEvent>() {
        let given = &given.get().inner;
        let make = |_: Python<'_>, value: f64| Ok(vec![(with_field(given, name, value)?, rounds)]);
        return search(py, make, target, range, asked);
    }
    if !event.is_callable() {
        return Err(wrong_type("event", "an Event or a function that returns one", event).into());
    }
    let call = event.clone().unbind();
    let make = |py: Python<'_>, value: f64| Ok(composition(call.bind(py).call1((value,))?.as_any(), rounds)?);
    search(py, make, target, range, asked)
}

/// The largest number of releases of `event` that holds the target.
///
/// >>> import undertone_dp as udp
/// >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
/// >>> udp.calibrate.rounds(round, epsilon=2.0, delta=1e-6)
/// 874
#[pyfunction]
#[pyo3(signature = (event, *, epsilon, delta, recipe = "auto", adjacency = None))]
pub(crate) fn rounds(
    py: Python<'_>,
    event: &Bound<'_, PyEvent>,
    epsilon: f64,
    delta: f64,
    recipe: &str,
    adjacency: Option<&str>,
) -> Answer<u64> {
    let asked = Asked::new(recipe, adjacency, None)?;
    let target = (Epsilon::new(epsilon)?, Delta::new(delta)?);
    let given = &event.get().inner;
    let found = if asked.adjacency.is_none() {
        let recipe = asked.recipe.unwrap_or_else(|| Recipe::best_for([given]));
        py.detach(|| calibrate::rounds_of(target, given, recipe))?
    } else {
        let range = Range {
            safe: 1.0,
            risky: MAX_ROUNDS as f64,
            whole: true,
        };
        let make = |_: Python<'_>, value: f64| Ok(vec![(given.clone(), value as u64)]);
        search(py, make, target, range, &asked)? as u64
    };
    if found < MAX_ROUNDS {
        return Ok(found);
    }
    // As the command line: the largest number that is searched is no largest number that holds.
    let message = format!("rounds: even {MAX_ROUNDS} of them, the most that are searched, hold the target");
    Err(refusal("too-many-rounds", message))
}

/// The best value of any parameter: the one nearest to the risky end of `between` that holds the target.
///
/// `make` returns an event or a list of (event, rounds) for a value; it may raise. `decreasing` says that epsilon falls when
/// the value grows, so the largest value is the safe end. With `integer`, only whole numbers count.
///
/// >>> import undertone_dp as udp
/// >>> make = lambda z: [(udp.Event.Gaussian(noise_multiplier=z), 10), (udp.Event.Laplace(scale=50.0), 1)]
/// >>> z = udp.calibrate.parameter(make, epsilon=1.0, delta=1e-6, between=(1.0, 100.0), decreasing=True)
/// >>> udp.Accountant().compose(make(z)[0][0], 10).compose(make(z)[1][0]).epsilon(1e-6) <= 1.0
/// True
#[pyfunction]
#[pyo3(signature = (make, *, epsilon, delta, between, decreasing, recipe = "auto", adjacency = None, integer = false))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn parameter(
    py: Python<'_>,
    make: Py<PyAny>,
    epsilon: f64,
    delta: f64,
    between: (f64, f64),
    decreasing: bool,
    recipe: &str,
    adjacency: Option<&str>,
    integer: bool,
) -> Answer<f64> {
    let asked = Asked::new(recipe, adjacency, None)?;
    let target = (Epsilon::new(epsilon)?, Delta::new(delta)?);
    let (low, high) = (between.0.min(between.1), between.0.max(between.1));
    let (safe, risky) = if decreasing { (high, low) } else { (low, high) };
    let range = Range {
        safe,
        risky,
        whole: integer,
    };
    let make = |py: Python<'_>, value: f64| Ok(composition(make.bind(py).call1((value,))?.as_any(), 1)?);
    search(py, make, target, range, &asked)
}
