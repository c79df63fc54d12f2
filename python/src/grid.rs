//! Privacy losses on a grid, for programs that bring a loss distribution of their own.

use pyo3::prelude::*;
use undertone_accounting::gaussian;
use undertone_accounting::grid;

use crate::buffer::{Array, read, read_integers};
use crate::count;
use crate::error::Answer;

/// The distribution of a privacy loss at multiples of `step`, and the probability of an infinite loss.
///
/// `probabilities[i]` belongs to the loss `step * (lower + i)`. A pessimistic distribution stays an upper bound in every operation, another
/// one a lower bound, up to the rounding of 64-bit numbers. `Accountant` bounds that rounding too, so use it where it knows the event.
///
/// >>> import array, math, undertone_dp as udp
/// >>> loss = array.array("d", [math.log(3), -math.log(3)])
/// >>> once = udp.GridPld.rounded(1e-4, loss, array.array("d", [0.75, 0.25]))
/// >>> round(once.self_compose(3).epsilon(0.0), 3)
/// 3.296
#[pyclass(name = "GridPld", module = "undertone_dp", frozen)]
#[derive(Debug)]
pub(crate) struct PyGridPld {
    inner: grid::GridPld,
}

#[pymethods]
impl PyGridPld {
    #[new]
    #[pyo3(signature = (step, lower, probabilities, infinity = 0.0, pessimistic = true))]
    fn new(
        step: f64,
        lower: i64,
        probabilities: &Bound<'_, PyAny>,
        infinity: f64,
        pessimistic: bool,
    ) -> Answer<Self> {
        let probabilities = read::<f64>(probabilities, "probabilities")?;
        let inner = grid::GridPld::new(step, lower, probabilities, infinity, pessimistic)?;
        Ok(Self { inner })
    }

    /// Outcomes with these losses and probabilities, each loss rounded to the grid: up if `pessimistic`, else down.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> grid = udp.GridPld.rounded(1.0, array.array("d", [0.3, 1.2]), array.array("d", [0.5, 0.25]), infinity=0.25)
    /// >>> grid.lower, list(grid.probabilities)
    /// (1, [0.5, 0.25])
    #[staticmethod]
    #[pyo3(signature = (step, losses, probabilities, infinity = 0.0, pessimistic = true))]
    fn rounded(
        py: Python<'_>,
        step: f64,
        losses: &Bound<'_, PyAny>,
        probabilities: &Bound<'_, PyAny>,
        infinity: f64,
        pessimistic: bool,
    ) -> Answer<Self> {
        let losses = read::<f64>(losses, "losses")?;
        let probabilities = read::<f64>(probabilities, "probabilities")?;
        let inner =
            py.detach(|| grid::GridPld::rounded(step, &losses, &probabilities, infinity, pessimistic))?;
        Ok(Self { inner })
    }

    /// The distribution whose deltas connect the points `(step * epsilons[i], deltas[i])` of a convex curve from above.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> grid = udp.GridPld.connect_the_dots(0.1, [-1, 1], array.array("d", [0.1, 0.02]))
    /// >>> round(grid.delta(0.1), 12)
    /// 0.02
    #[staticmethod]
    fn connect_the_dots(
        py: Python<'_>,
        step: f64,
        epsilons: &Bound<'_, PyAny>,
        deltas: &Bound<'_, PyAny>,
    ) -> Answer<Self> {
        let epsilons = read_integers(epsilons, "epsilons")?;
        let deltas = read::<f64>(deltas, "deltas")?;
        let inner = py.detach(|| grid::GridPld::connect_the_dots(step, &epsilons, &deltas))?;
        Ok(Self { inner })
    }

    /// The loss of both releases together; tails of at most `tail / 2` on each side are cut off on the safe side.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> once = udp.GridPld(0.5, -1, array.array("d", [0.4, 0.0, 0.6]))
    /// >>> once.compose(once).lower
    /// -2
    #[pyo3(signature = (other, tail = 0.0))]
    fn compose(&self, py: Python<'_>, other: &Bound<'_, Self>, tail: f64) -> Answer<Self> {
        let other = &other.get().inner;
        let inner = py.detach(|| self.inner.compose(other, tail))?;
        Ok(Self { inner })
    }

    /// The loss of `times` releases; tails of at most `tail / 2` on each side are cut off on the safe side.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> once = udp.GridPld(0.5, -1, array.array("d", [0.4, 0.0, 0.6]))
    /// >>> once.self_compose(100, 1e-12).epsilon(0.01) < 50
    /// True
    #[pyo3(signature = (times, tail = 0.0))]
    fn self_compose(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = count::times)] times: u64,
        tail: f64,
    ) -> Answer<Self> {
        let inner = py.detach(|| self.inner.self_compose(times, tail))?;
        Ok(Self { inner })
    }

    /// The loss of a mechanism that runs this one with probability `weight`, else `other`, and says which.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> first = udp.GridPld(0.5, 0, array.array("d", [1.0]))
    /// >>> second = udp.GridPld(0.5, 1, array.array("d", [1.0]))
    /// >>> list(first.mixture(second, 0.25).probabilities)
    /// [0.25, 0.75]
    fn mixture(&self, other: &Bound<'_, Self>, weight: f64) -> Answer<Self> {
        let inner = self.inner.mixture(&other.get().inner, weight)?;
        Ok(Self { inner })
    }

    /// Delta at `epsilon`, which may be negative or infinite.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> udp.GridPld(0.5, 1, array.array("d", [0.75]), 0.25).delta(0.5)
    /// 0.25
    fn delta(&self, epsilon: f64) -> f64 {
        self.inner.delta(epsilon)
    }

    /// Delta at each epsilon.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> list(udp.GridPld(0.5, 1, array.array("d", [0.75]), 0.25).deltas(array.array("d", [0.5, 9.0])))
    /// [0.25, 0.25]
    fn deltas(&self, py: Python<'_>, epsilons: &Bound<'_, PyAny>) -> Answer<Array> {
        let epsilons = read::<f64>(epsilons, "epsilons")?;
        Ok(Array::of(&py.detach(|| self.inner.deltas(&epsilons))))
    }

    /// The smallest epsilon at `delta`: minus infinity where every epsilon holds, infinity where none does.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> grid = udp.GridPld(0.5, 1, array.array("d", [0.75]), 0.25)
    /// >>> grid.epsilon(0.25), grid.epsilon(0.2), grid.epsilon(1.0)
    /// (0.5, inf, -inf)
    fn epsilon(&self, py: Python<'_>, delta: f64) -> f64 {
        py.detach(|| self.inner.epsilon(delta))
    }

    /// Delta at `epsilon` of this release and `other` together, without their composition.
    ///
    /// >>> import array, undertone_dp as udp
    /// >>> grid = udp.GridPld(0.5, 1, array.array("d", [0.5]), 0.5)
    /// >>> grid.delta_of_composition(grid, 1.0)
    /// 0.75
    fn delta_of_composition(&self, py: Python<'_>, other: &Bound<'_, Self>, epsilon: f64) -> Answer<f64> {
        let other = &other.get().inner;
        Ok(py.detach(|| self.inner.delta_of_composition(other, epsilon))?)
    }

    /// Distance of two neighbouring losses.
    #[getter]
    fn step(&self) -> f64 {
        self.inner.step()
    }

    /// The lowest loss, as a multiple of the step.
    #[getter]
    fn lower(&self) -> i64 {
        self.inner.lower()
    }

    /// Probabilities of the finite losses, from the lowest on.
    #[getter]
    fn probabilities(&self) -> Array {
        Array::of(self.inner.probabilities())
    }

    /// Probability of an infinite loss.
    #[getter]
    fn infinity(&self) -> f64 {
        self.inner.infinity()
    }

    /// True if deltas are upper bounds, false if they are lower bounds.
    #[getter]
    fn pessimistic(&self) -> bool {
        self.inner.is_pessimistic()
    }

    fn __repr__(&self) -> String {
        let (points, inner) = (self.inner.probabilities().len(), &self.inner);
        let kind = if inner.is_pessimistic() {
            "pessimistic"
        } else {
            "optimistic"
        };
        format!(
            "<GridPld of {points} points from {} by {}, {kind}>",
            inner.lower(),
            inner.step()
        )
    }
}

/// The convolution of two sequences of numbers that are not negative.
#[pyfunction]
pub(crate) fn _convolve(
    py: Python<'_>,
    first: &Bound<'_, PyAny>,
    second: &Bound<'_, PyAny>,
) -> Answer<Array> {
    let (first, second) = (read::<f64>(first, "first")?, read::<f64>(second, "second")?);
    Ok(Array::of(&py.detach(|| grid::convolve(&first, &second))))
}

/// The `times`-fold convolution of a sequence with itself from place `first` to place `last`; what lies outside is wrapped around.
#[pyfunction]
pub(crate) fn _self_convolve(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = count::times)] times: u64,
    first: u64,
    last: u64,
) -> Answer<Array> {
    let values = read::<f64>(values, "values")?;
    let sums = py.detach(|| grid::self_convolve(&values, times, first as usize, last as usize));
    Ok(Array::of(&sums))
}

/// The places outside which at most `tail / 2` of a `times`-fold convolution lies on each side.
#[pyfunction]
pub(crate) fn _self_convolution_bounds(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = count::times)] times: u64,
    tail: f64,
    orders: Option<Vec<f64>>,
) -> Answer<(u64, u64)> {
    let values = read::<f64>(values, "values")?;
    Ok(py.detach(|| grid::self_convolution_bounds(&values, times, tail, orders.as_deref())))
}

/// The logarithm of the standard normal distribution function at each place.
#[pyfunction]
pub(crate) fn _ln_normal_cdf(py: Python<'_>, places: &Bound<'_, PyAny>) -> Answer<Array> {
    let places = read::<f64>(places, "places")?;
    let logs: Vec<f64> = py.detach(|| places.iter().map(|place| gaussian::ln_cdf(*place)).collect());
    Ok(Array::of(&logs))
}

/// Adds the names of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGridPld>()?;
    module.add_function(wrap_pyfunction!(_convolve, module)?)?;
    module.add_function(wrap_pyfunction!(_self_convolve, module)?)?;
    module.add_function(wrap_pyfunction!(_self_convolution_bounds, module)?)?;
    module.add_function(wrap_pyfunction!(_ln_normal_cdf, module)?)
}
