//! Events: one Python class per variant of Rust's `Event`, all below the class `Event`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use undertone_accounting::Event;

use crate::error::{Answer, UndertoneError};

/// One release about the users, with the sampling scheme and the relation that it is stated for.
///
/// The kinds of events are attributes of this class. Their fields are keyword arguments; they are checked at once, and an
/// event never changes.
///
/// >>> import undertone_dp as udp
/// >>> event = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
/// >>> event.replace(noise_multiplier=2.0)
/// Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=2.0)
/// >>> udp.Event.from_json(event.to_json()) == event
/// True
#[pyclass(name = "Event", module = "undertone_dp", frozen, subclass)]
#[derive(Debug)]
pub(crate) struct PyEvent {
    pub(crate) inner: Event,
}

/// The fields of an event as a tuple, in the order of its keyword arguments.
fn fields<'py>(event: &Bound<'py, PyEvent>) -> PyResult<Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>> {
    let names = event
        .get_type()
        .getattr("__match_args__")?
        .cast_into::<PyTuple>()?;
    let names = names.iter().map(|name| {
        let name = name.cast_into::<PyString>()?;
        let value = event.getattr(&name)?;
        Ok((name, value))
    });
    names.collect()
}

#[pymethods]
impl PyEvent {
    /// The event as JSON, with the keys of the command line's event files.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.Laplace(scale=2.0).to_json()
    /// '{"kind":"laplace","scale":2.0}'
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.inner).map_err(|error| UndertoneError::new_err(error.to_string()))
    }

    /// The event that `to_json` wrote.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.from_json('{"kind": "gaussian", "noise_multiplier": 2}')
    /// Event.Gaussian(noise_multiplier=2.0)
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> Answer<Py<PyAny>> {
        let event: Event =
            serde_json::from_str(text).map_err(|error| UndertoneError::new_err(format!("event: {error}")))?;
        event.validate()?;
        Ok(object(py, event)?)
    }

    /// A copy with other values of some fields.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.Gaussian(noise_multiplier=1.0).replace(noise_multiplier=3)
    /// Event.Gaussian(noise_multiplier=3.0)
    #[pyo3(signature = (**changes))]
    fn replace<'py>(
        slf: &Bound<'py, Self>,
        changes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let values = PyDict::new(slf.py());
        for (name, value) in fields(slf)? {
            values.set_item(name, value)?;
        }
        if let Some(changes) = changes {
            values.update(changes.as_mapping())?;
        }
        slf.get_type().call((), Some(&values))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let mut shown = Vec::new();
        for (name, value) in fields(slf)? {
            shown.push(format!("{name}={}", value.repr()?));
        }
        Ok(format!("Event.{}({})", slf.get_type().name()?, shown.join(", ")))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<PyEvent>()
            .is_ok_and(|other| other.get().inner == self.inner)
    }

    fn __hash__(slf: &Bound<'_, Self>) -> PyResult<isize> {
        let values: Vec<_> = fields(slf)?.into_iter().map(|(_, value)| value).collect();
        (slf.get_type(), PyTuple::new(slf.py(), values)?)
            .into_pyobject(slf.py())?
            .hash()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let read = slf.py().get_type::<Self>().getattr("from_json")?;
        Ok((read, (slf.get().to_json()?,)))
    }
}

/// The field that was given, or its default.
macro_rules! given {
    ($field:ident, $type:ty) => {
        match &$field {
            Some(value) => <$type>::read(stringify!($field), value)?,
            None => return Err(crate::error::missing(stringify!($field)).into()),
        }
    };
    ($field:ident, $type:ty, $default:expr) => {
        match &$field {
            Some(value) => <$type>::read(stringify!($field), value)?,
            None => $default,
        }
    };
}

macro_rules! events {
    ($( $(#[$doc:meta])* $name:ident ($($signature:tt)*) { $($field:ident : $type:ty $(= $default:expr)?),* } )*) => {
        $(
            $(#[$doc])*
            #[pyclass(module = "undertone_dp", frozen, extends = PyEvent)]
            #[derive(Debug)]
            pub(crate) struct $name;

            #[pymethods]
            impl $name {
                #[classattr]
                fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
                    const NAMES: &[&str] = &[$(stringify!($field)),*];
                    PyTuple::new(py, NAMES)
                }

                #[new]
                #[pyo3(signature = ($($signature)*))]
                fn new($($field: Option<Bound<'_, PyAny>>),*) -> Answer<PyClassInitializer<Self>> {
                    let inner = Event::$name { $($field: given!($field, $type $(, $default)?)),* };
                    inner.validate()?;
                    Ok(PyClassInitializer::from(PyEvent { inner }).add_subclass($name))
                }

                $(
                    #[getter]
                    fn $field(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
                        let event = slf.as_super().get();
                        match &event.inner {
                            Event::$name { $field, .. } => $field.show(slf.py()),
                            _ => Ok(slf.py().None()),
                        }
                    }
                )*
            }
        )*

        /// The event as an object of the class of its kind.
        pub(crate) fn object(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
            match event {
                $( Event::$name { .. } => {
                    let made = PyClassInitializer::from(PyEvent { inner: event }).add_subclass($name);
                    Ok(Py::new(py, made)?.into_any())
                } )*
                other => Err(UndertoneError::new_err(format!("event: no class for {other:?}"))),
            }
        }

        /// Adds the classes as attributes of `Event`.
        pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            module.add_class::<PyEvent>()?;
            let base = py.get_type::<PyEvent>();
            let add = |class: Bound<'_, PyType>, name: &str| {
                class.setattr("__qualname__", format!("Event.{name}"))?;
                base.setattr(name, class)
            };
            $( add(py.get_type::<$name>(), stringify!($name))?; )*
            Ok(())
        }
    };
}

mod kinds;
pub(crate) use kinds::{object, register};
