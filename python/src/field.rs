//! Fields of events between Rust and Python.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyString, PyTuple};
use undertone_accounting::rdp::repeat_and_select::Repetitions;
use undertone_accounting::{Delta, Epsilon, Event, NoiseMultiplier, Rho, SamplingProbability};

use crate::count;
use crate::error::{Answer, wrong_type};
use crate::event::{PyEvent, object};
use crate::repetitions::PyRepetitions;

/// A field that Python gives and reads.
pub(crate) trait Field: Sized {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self>;
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// A number from a Python `float`, `int` or an object with `__float__`; never from text.
pub(crate) fn number(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    if value.is_instance_of::<PyString>() {
        return Err(wrong_type(name, "a number", value));
    }
    value.extract().map_err(|_| wrong_type(name, "a number", value))
}

impl Field for f64 {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
        Ok(number(name, value)?)
    }

    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyFloat::new(py, *self).into_any().unbind())
    }
}

impl Field for u64 {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
        Ok(count::read(name, value)?)
    }

    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.into_pyobject(py)?.into_any().unbind())
    }
}

impl Field for u32 {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
        Ok(count::read(name, value)?)
    }

    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        u64::from(*self).show(py)
    }
}

macro_rules! quantities {
    ($($name:ident),*) => { $(
        impl Field for $name {
            fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
                Ok($name::new(number(name, value)?)?)
            }

            fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.get().show(py)
            }
        }
    )* };
}
quantities!(Delta, Epsilon, NoiseMultiplier, Rho, SamplingProbability);

impl Field for Option<Delta> {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
        if value.is_none() {
            return Ok(None);
        }
        Delta::read(name, value).map(Some)
    }

    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.map_or_else(|| Ok(py.None()), |delta| delta.show(py))
    }
}

impl Field for Vec<f64> {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
        let items = value.try_iter().map_err(|_| wrong_type(name, "numbers", value))?;
        items.map(|item| Ok(number(name, &item?)?)).collect()
    }

    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(PyTuple::new(py, self)?.into_any().unbind())
    }
}

impl Field for Box<Event> {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
        let event = value
            .cast::<PyEvent>()
            .map_err(|_| wrong_type(name, "an Event", value))?;
        Ok(Box::new(event.get().inner.clone()))
    }

    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        object(py, (**self).clone())
    }
}

impl Field for Repetitions {
    fn read(name: &'static str, value: &Bound<'_, PyAny>) -> Answer<Self> {
        let given = value
            .cast::<PyRepetitions>()
            .map_err(|_| wrong_type(name, "a Repetitions", value))?;
        Ok(given.get().inner)
    }

    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, PyRepetitions { inner: *self })?.into_any())
    }
}
