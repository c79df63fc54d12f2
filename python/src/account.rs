//! The accountant, and questions about one release in closed form.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use undertone_accounting::{Accountant, Adjacency, Delta, Epsilon, Event, Recipe, rdp};

use crate::count;
use crate::error::{Answer, UndertoneError};
use crate::event::{PyEvent, object};
use crate::guarantee::PyGuarantee;
use crate::names;

/// The recipe and the relation that the caller wants. Without a recipe, the tightest one that covers all events is taken; without a
/// relation, the one of the first event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) recipe: Option<Recipe>,
    pub(crate) adjacency: Option<Adjacency>,
    orders: Option<Vec<f64>>,
}

impl Asked {
    pub(crate) fn new(recipe: &str, adjacency: Option<&str>, orders: Option<Vec<f64>>) -> PyResult<Self> {
        let recipe = names::recipe(recipe)?;
        if orders.is_some() && recipe != Some(Recipe::Rdp) {
            return Err(UndertoneError::new_err(
                "orders: expected the recipe 'rdp', whose orders they are",
            ));
        }
        let adjacency = names::adjacency(adjacency)?;
        Ok(Self {
            recipe,
            adjacency,
            orders,
        })
    }

    fn empty(&self, recipe: Recipe) -> Answer<Accountant> {
        let accountant = match (&self.orders, self.adjacency) {
            (Some(orders), None) => Accountant::with_orders(orders.clone())?,
            (Some(orders), Some(adjacency)) => {
                Accountant::with_orders(orders.clone())?.for_adjacency(adjacency)?
            }
            (None, Some(adjacency)) => Accountant::under(recipe, adjacency),
            (None, None) => Accountant::new(recipe),
        };
        Ok(accountant)
    }

    /// An accountant for these events.
    pub(crate) fn accountant(&self, events: &[(Event, u64)]) -> Answer<Accountant> {
        let best = || Recipe::best_for(events.iter().map(|(event, _)| event));
        let mut accountant = self.empty(self.recipe.unwrap_or_else(best))?;
        for (event, rounds) in events {
            accountant.compose(event, *rounds)?;
        }
        Ok(accountant)
    }
}

/// Composes events and states the guarantee of all of them together.
///
/// `recipe` is `auto` (the tightest that covers everything composed), `pld`, `rdp`, `zcdp`, `exact-gaussian` or
/// `moments-2016`. `adjacency` is `add-or-remove-one`, `replace-one`, `zero-out`, or `None` for the relation of the first
/// event. `orders` are Renyi orders for the recipe `rdp`.
///
/// The statements hold for adaptive composition, in any order of the releases.
///
/// >>> import undertone_dp as udp
/// >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
/// >>> accountant = udp.Accountant().compose(round, 1000)
/// >>> print(accountant.guarantee(1e-6))
/// (eps = 2.125, delta = 1e-6), add-or-remove one user, Poisson sampling, PLD upper bound
#[pyclass(name = "Accountant", module = "undertone_dp", frozen)]
#[derive(Debug)]
pub(crate) struct PyAccountant {
    asked: Asked,
    recipe_name: String,
    state: Mutex<Accountant>,
}

impl PyAccountant {
    fn lock(&self) -> MutexGuard<'_, Accountant> {
        // A panic leaves the accountant as it was: it changes only once nothing can fail any more.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy to compute on without the interpreter's lock.
    fn copy(&self) -> Accountant {
        self.lock().clone()
    }

    fn entries(&self) -> Vec<(Event, u64)> {
        entries(&self.lock())
    }
}

fn entries(accountant: &Accountant) -> Vec<(Event, u64)> {
    accountant
        .events()
        .map(|(event, rounds)| (event.clone(), rounds))
        .collect()
}

#[pymethods]
impl PyAccountant {
    #[new]
    #[pyo3(signature = (recipe = "auto", *, adjacency = None, orders = None))]
    fn new(recipe: &str, adjacency: Option<&str>, orders: Option<Vec<f64>>) -> Answer<Self> {
        let asked = Asked::new(recipe, adjacency, orders)?;
        let state = Mutex::new(asked.accountant(&[])?);
        let recipe_name = recipe.to_owned();
        Ok(Self {
            asked,
            recipe_name,
            state,
        })
    }

    /// Adds `rounds` releases of `event` and returns the accountant itself. On an error nothing has changed.
    ///
    /// >>> import undertone_dp as udp
    /// >>> accountant = udp.Accountant().compose(udp.Event.Laplace(scale=4.0), 3)
    /// >>> accountant.rounds
    /// 3
    #[pyo3(signature = (event, rounds = 1))]
    fn compose(
        slf: Py<Self>,
        py: Python<'_>,
        event: &Bound<'_, PyEvent>,
        #[pyo3(from_py_with = count::rounds)] rounds: u64,
    ) -> Answer<Py<Self>> {
        let event = &event.get().inner;
        {
            let this = slf.get();
            let mut state = this.lock();
            if let Err(error) = state.compose(event, rounds) {
                if this.asked.recipe.is_some() {
                    return Err(error.into());
                }
                // A wider recipe may cover the event as well.
                let mut events = entries(&state);
                events.push((event.clone(), rounds));
                *state = py.detach(|| this.asked.accountant(&events))?;
            }
        }
        Ok(slf)
    }

    /// The smallest epsilon that the recipe can state at `delta` for everything composed, with everything needed to read it.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=4.0)).guarantee(1e-5).recipe
    /// 'exact-gaussian'
    fn guarantee(&self, py: Python<'_>, delta: f64) -> Answer<PyGuarantee> {
        let (delta, state) = (Delta::new(delta)?, self.copy());
        let inner = py.detach(|| state.guarantee(delta))?;
        Ok(PyGuarantee { inner })
    }

    /// The epsilon of `guarantee(delta)`.
    ///
    /// >>> import undertone_dp as udp
    /// >>> round(udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=4.0)).epsilon(1e-5), 4)
    /// 0.9263
    fn epsilon(&self, py: Python<'_>, delta: f64) -> Answer<f64> {
        Ok(self.guarantee(py, delta)?.inner.epsilon.get())
    }

    /// The smallest delta that the recipe can state at `epsilon`, which may be negative: trade-off curves ask for that.
    ///
    /// >>> import undertone_dp as udp
    /// >>> accountant = udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=1.0))
    /// >>> round(accountant.delta(1.0), 6), round(accountant.delta(-1.0), 6)
    /// (0.126937, 0.678818)
    fn delta(&self, py: Python<'_>, epsilon: f64) -> Answer<f64> {
        let state = self.copy();
        py.detach(|| {
            if epsilon < 0.0 {
                return Ok(state.delta_at(epsilon)?);
            }
            Ok(state.delta_for(Epsilon::new(epsilon)?)?.delta.get())
        })
    }

    /// The largest epsilon that is certainly spent at `delta`: no statement below it is true. Cohorts that are cut have none.
    ///
    /// >>> import undertone_dp as udp
    /// >>> accountant = udp.Accountant().compose(udp.Event.Laplace(scale=20.0), 50)
    /// >>> accountant.lower_bound(1e-6) <= accountant.epsilon(1e-6)
    /// True
    fn lower_bound(&self, py: Python<'_>, delta: f64) -> Answer<f64> {
        let (delta, state) = (Delta::new(delta)?, self.copy());
        Ok(py.detach(|| state.lower_bound(delta))?.get())
    }

    /// The epsilon that is certainly spent and one that is certainly enough: `lower_bound` and `epsilon`, in one pass.
    ///
    /// >>> import undertone_dp as udp
    /// >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    /// >>> spent, enough = udp.Accountant().compose(round, 1000).bounds(1e-6)
    /// >>> f"{spent:.4f} {enough:.4f}"
    /// '2.1245 2.1245'
    fn bounds(&self, py: Python<'_>, delta: f64) -> Answer<(f64, f64)> {
        let (delta, state) = (Delta::new(delta)?, self.copy());
        let (lower, upper) = py.detach(|| state.bounds(delta))?;
        Ok((lower.get(), upper.get()))
    }

    /// Renyi orders and the divergence of everything composed at each of them; infinite where none is finite.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=2.0)).curve([2.0, 8.0])
    /// ((2.0, 8.0), (0.25, 1.0))
    #[pyo3(signature = (orders = None))]
    fn curve<'py>(
        &self,
        py: Python<'py>,
        orders: Option<Vec<f64>>,
    ) -> Answer<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
        let (orders, state) = (orders.unwrap_or_else(rdp::default_orders), self.copy());
        let curve = py.detach(|| state.curve(&orders))?;
        Ok((PyTuple::new(py, orders)?, PyTuple::new(py, curve)?))
    }

    /// The largest true positive rate of any test, at this false positive rate, of a user's presence.
    ///
    /// >>> import undertone_dp as udp
    /// >>> accountant = udp.Accountant("pld").compose(udp.Event.Laplace(scale=1.0))
    /// >>> round(accountant.true_positive_rate(0.1), 3)
    /// 0.272
    fn true_positive_rate(&self, py: Python<'_>, false_positive_rate: f64) -> Answer<f64> {
        let state = self.copy();
        Ok(py.detach(|| state.true_positive_rate(false_positive_rate))?)
    }

    /// The epsilon that holds without any delta; infinite where an event has none, or states a delta of its own.
    fn _pure_epsilon(&self) -> f64 {
        let state = self.lock();
        let states_delta = |event: &Event| matches!(event, Event::ApproximateDp { delta: Some(_), .. });
        if state.events().any(|(event, _)| states_delta(event)) {
            return f64::INFINITY;
        }
        state.pure_epsilon().map_or(f64::INFINITY, Epsilon::get)
    }

    /// The distinct events composed so far, each with its number of rounds.
    #[getter]
    fn events(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, u64)>> {
        let entries = self.entries().into_iter();
        entries
            .map(|(event, rounds)| Ok((object(py, event)?, rounds)))
            .collect()
    }

    /// Releases composed so far.
    #[getter]
    fn rounds(&self) -> u64 {
        self.lock().rounds()
    }

    /// The recipe that answers: for `auto`, the tightest that covers everything composed.
    #[getter]
    fn recipe(&self) -> PyResult<String> {
        names::name(self.lock().recipe())
    }

    /// The relation that was asked for; `None` for that of the first event.
    #[getter]
    fn adjacency(&self) -> PyResult<Option<String>> {
        self.asked.adjacency.map(names::name).transpose()
    }

    fn __copy__(&self) -> Self {
        Self {
            asked: self.asked.clone(),
            recipe_name: self.recipe_name.clone(),
            state: Mutex::new(self.copy()),
        }
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.__copy__()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| {
            let other = other.get();
            self.asked == other.asked && self.entries() == other.entries()
        })
    }

    #[classattr]
    const __hash__: Option<Py<PyAny>> = None;

    fn __repr__(&self) -> PyResult<String> {
        let adjacency = self.adjacency()?.map(|name| format!(", adjacency='{name}'"));
        let orders = self
            .asked
            .orders
            .as_ref()
            .map(|orders| format!(", orders={orders:?}"));
        Ok(format!(
            "Accountant('{}'{}{})",
            self.recipe_name,
            adjacency.unwrap_or_default(),
            orders.unwrap_or_default()
        ))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), slf.get());
        let make = py.import("undertone_dp._native")?.getattr("_accountant")?;
        let state = (
            this.recipe_name.as_str(),
            this.adjacency()?,
            this.asked.orders.clone(),
            this.events(py)?,
        );
        Ok((make, state.into_pyobject(py)?))
    }
}

/// A copy of a pickled accountant.
#[pyfunction]
pub(crate) fn _accountant(
    recipe: &str,
    adjacency: Option<&str>,
    orders: Option<Vec<f64>>,
    events: Vec<(Bound<'_, PyEvent>, u64)>,
) -> Answer<PyAccountant> {
    let made = PyAccountant::new(recipe, adjacency, orders)?;
    let events: Vec<_> = events
        .into_iter()
        .map(|(event, rounds)| (event.get().inner.clone(), rounds))
        .collect();
    *made.lock() = made.asked.accountant(&events)?;
    Ok(made)
}

/// The smallest epsilon at `delta` for `rounds` releases of `event`.
///
/// >>> import undertone_dp as udp
/// >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
/// >>> f"{udp.epsilon(round, delta=1e-6, rounds=1000):.4f}"
/// '2.1245'
#[pyfunction]
#[pyo3(signature = (event, *, delta, rounds = 1, recipe = "auto", adjacency = None))]
pub(crate) fn epsilon(
    py: Python<'_>,
    event: &Bound<'_, PyEvent>,
    delta: f64,
    #[pyo3(from_py_with = count::rounds)] rounds: u64,
    recipe: &str,
    adjacency: Option<&str>,
) -> Answer<f64> {
    let asked = Asked::new(recipe, adjacency, None)?;
    let (delta, events) = (Delta::new(delta)?, [(event.get().inner.clone(), rounds)]);
    py.detach(|| Ok(asked.accountant(&events)?.guarantee(delta)?.epsilon.get()))
}
