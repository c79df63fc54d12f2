//! A guarantee.

use pyo3::prelude::*;
use undertone_accounting::Guarantee;

use crate::error::UndertoneError;
use crate::names::name;

/// An (epsilon, delta) statement with everything needed to read it.
///
/// `str()` rounds epsilon up, so that the printed statement is implied by the computed one.
///
/// >>> import undertone_dp as udp
/// >>> accountant = udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=4.0))
/// >>> print(accountant.guarantee(1e-5))
/// (eps = 0.927, delta = 1e-5), add-or-remove one user, full participation, exact Gaussian
#[pyclass(name = "Guarantee", module = "undertone_dp", frozen, eq)]
#[derive(Debug, PartialEq)]
pub(crate) struct PyGuarantee {
    pub(crate) inner: Guarantee,
}

#[pymethods]
impl PyGuarantee {
    /// Bound on the privacy loss.
    #[getter]
    fn epsilon(&self) -> f64 {
        self.inner.epsilon.get()
    }

    /// Mass on which the bound may fail.
    #[getter]
    fn delta(&self) -> f64 {
        self.inner.delta.get()
    }

    /// The relation under which the statement holds.
    #[getter]
    fn adjacency(&self) -> PyResult<String> {
        name(self.inner.adjacency)
    }

    /// The sampling scheme that the statement relies on.
    #[getter]
    fn sampling(&self) -> PyResult<String> {
        name(self.inner.sampling)
    }

    /// The recipe that computed the statement.
    #[getter]
    fn recipe(&self) -> PyResult<String> {
        name(self.inner.recipe)
    }

    /// The order at which the bound was taken; `None` where the recipe has no orders.
    #[getter]
    fn optimal_order(&self) -> Option<f64> {
        self.inner.optimal_order.map(|optimal| optimal.order)
    }

    /// True if the order is the first or the last of the grid; `None` where the recipe has no orders.
    #[getter]
    fn order_at_edge(&self) -> Option<bool> {
        self.inner.optimal_order.map(|optimal| optimal.at_edge)
    }

    /// The guarantee as JSON.
    ///
    /// >>> import undertone_dp as udp
    /// >>> stated = udp.Accountant("rdp").compose(udp.Event.Laplace(scale=2.0)).guarantee(1e-6)
    /// >>> udp.Guarantee.from_json(stated.to_json()) == stated
    /// True
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.inner).map_err(|error| UndertoneError::new_err(error.to_string()))
    }

    /// The guarantee that `to_json` wrote.
    ///
    /// >>> import undertone_dp as udp
    /// >>> stated = udp.Accountant().compose(udp.Event.Laplace(scale=2.0)).guarantee(1e-6)
    /// >>> udp.Guarantee.from_json(stated.to_json()).recipe
    /// 'pld'
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        let inner = serde_json::from_str(text)
            .map_err(|error| UndertoneError::new_err(format!("guarantee: {error}")))?;
        Ok(Self { inner })
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("Guarantee.from_json('{}')", self.to_json()?))
    }

    fn _repr_html_(&self) -> String {
        format!("<code>{}</code>", self.inner)
    }

    fn __hash__(&self) -> u64 {
        (self.epsilon() + 0.0).to_bits() ^ self.delta().to_bits().rotate_left(13)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let read = slf.py().get_type::<Self>().getattr("from_json")?;
        Ok((read, (slf.get().to_json()?,)))
    }
}
