//! The number of runs of a repeat-and-select event.

use pyo3::prelude::*;
use undertone_accounting::rdp::repeat_and_select::Repetitions;

/// The distribution of the number of runs of which only the best output is published.
///
/// The number of runs itself must not be revealed.
///
/// >>> import undertone_dp as udp
/// >>> udp.Repetitions.truncated_negative_binomial(shape=1.0, mean=10.0)
/// Repetitions.truncated_negative_binomial(shape=1.0, mean=10.0)
#[pyclass(name = "Repetitions", module = "undertone_dp", frozen, eq)]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PyRepetitions {
    pub(crate) inner: Repetitions,
}

#[pymethods]
impl PyRepetitions {
    /// A Poisson number of runs. Where it is 0, something that depends on no data is published.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Repetitions.poisson(mean=3.0).mean
    /// 3.0
    #[staticmethod]
    #[pyo3(signature = (*, mean))]
    fn poisson(mean: f64) -> Self {
        let inner = Repetitions::Poisson { mean };
        Self { inner }
    }

    /// A negative binomial number of runs, given that it is at least 1. Shape 1 is geometric, shape 0 logarithmic.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Repetitions.truncated_negative_binomial(shape=0.0, mean=3.0).shape
    /// 0.0
    #[staticmethod]
    #[pyo3(signature = (*, shape, mean))]
    fn truncated_negative_binomial(shape: f64, mean: f64) -> Self {
        let inner = Repetitions::TruncatedNegativeBinomial { shape, mean };
        Self { inner }
    }

    /// Expected number of runs.
    #[getter]
    fn mean(&self) -> f64 {
        match self.inner {
            Repetitions::Poisson { mean } | Repetitions::TruncatedNegativeBinomial { mean, .. } => mean,
        }
    }

    /// Shape of the negative binomial distribution; `None` for a Poisson number.
    #[getter]
    fn shape(&self) -> Option<f64> {
        match self.inner {
            Repetitions::Poisson { .. } => None,
            Repetitions::TruncatedNegativeBinomial { shape, .. } => Some(shape),
        }
    }

    fn __repr__(&self) -> String {
        match self.inner {
            Repetitions::Poisson { mean } => format!("Repetitions.poisson(mean={mean:?})"),
            Repetitions::TruncatedNegativeBinomial { shape, mean } => {
                format!("Repetitions.truncated_negative_binomial(shape={shape:?}, mean={mean:?})")
            }
        }
    }

    fn __hash__(&self) -> u64 {
        // Adding 0 makes -0 and 0, which are equal, one.
        (self.mean() + 0.0).to_bits()
            ^ self
                .shape()
                .map_or(1, |shape| (shape + 0.0).to_bits().rotate_left(7))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, Made)> {
        let (py, this) = (slf.py(), slf.get());
        let make = py
            .import("undertone_dp._native")?
            .getattr("_repetitions")?
            .unbind();
        Ok((make, (this.mean(), this.shape())))
    }
}

/// Mean and shape, which make repetitions again.
type Made = (f64, Option<f64>);

/// A copy of pickled repetitions.
#[pyfunction]
pub(crate) fn _repetitions(mean: f64, shape: Option<f64>) -> PyRepetitions {
    shape.map_or_else(
        || PyRepetitions::poisson(mean),
        |shape| PyRepetitions::truncated_negative_binomial(shape, mean),
    )
}
