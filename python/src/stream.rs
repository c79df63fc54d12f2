//! Keys, and streams of correlated noise for research.

use std::sync::Mutex;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use undertone_coordinator::random::Randomness;
use undertone_mechanisms::{self as mechanisms, KeyOrigin};
use zeroize::Zeroizing;

use crate::buffer::{Array, View};
use crate::count;
use crate::error::Answer;

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A secret from which noise or draws follow. Its bytes never come out again.
///
/// Without a seed the operating system gives 32 bytes. A seed makes noise that anyone who knows the seed can subtract.
///
/// >>> import undertone_dp as udp
/// >>> udp.NoiseKey.insecure_seed(7).origin, udp.NoiseKey.random().origin
/// ('insecure-seed', 'entropy')
/// >>> udp.NoiseKey.random().id == udp.NoiseKey.random().id
/// False
#[pyclass(frozen, module = "undertone_dp")]
pub(crate) struct NoiseKey {
    secret: Secret,
    /// The process that made the key.
    process: u32,
}

enum Secret {
    Bytes(Zeroizing<[u8; 32]>),
    Seed(u64),
}

impl NoiseKey {
    /// A key from the operating system's entropy.
    pub(crate) fn from_system() -> PyResult<Self> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *bytes).map_err(|error| {
            PyRuntimeError::new_err(format!("the operating system gives no entropy: {error}"))
        })?;
        Ok(Self::of(Secret::Bytes(bytes)))
    }

    fn of(secret: Secret) -> Self {
        Self {
            secret,
            process: std::process::id(),
        }
    }

    /// The key of noise.
    pub(crate) fn noise(&self) -> mechanisms::NoiseKey {
        match &self.secret {
            Secret::Bytes(bytes) => mechanisms::NoiseKey::from_bytes(**bytes),
            Secret::Seed(seed) => mechanisms::NoiseKey::from_insecure_seed(*seed),
        }
    }

    /// The root of draws: with a seed, that of a run with the same seed.
    pub(crate) fn draws(&self) -> Randomness {
        match &self.secret {
            Secret::Bytes(bytes) => Randomness::from_entropy(**bytes),
            Secret::Seed(seed) => Randomness::seeded(*seed),
        }
    }

    /// Refuses to work in a child process: two processes with one key would draw one noise for two sums.
    pub(crate) fn check_process(&self) -> PyResult<()> {
        check_process(self.process, "key")
    }
}

/// Refuses a `what` that process `made` made, in any other process.
pub(crate) fn check_process(made: u32, what: &str) -> PyResult<()> {
    let here = std::process::id();
    if made == here {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "the {what} was made by process {made} and this is process {here}: two processes would draw one noise for two sums"
    )))
}

#[pymethods]
impl NoiseKey {
    /// A key from the operating system's entropy.
    #[staticmethod]
    fn random() -> PyResult<Self> {
        Self::from_system()
    }

    /// A key that a seed determines: no secret. For studies and tests.
    #[staticmethod]
    fn insecure_seed(#[pyo3(from_py_with = count::seed)] seed: u64) -> Self {
        Self::of(Secret::Seed(seed))
    }

    /// A key of 32 bytes that were drawn elsewhere. For tests: nothing is known of their origin.
    #[staticmethod]
    fn from_bytes(bytes: [u8; 32]) -> Self {
        Self::of(Secret::Bytes(Zeroizing::new(bytes)))
    }

    /// Name of the key that does not give it away: two keys never share it.
    #[getter]
    fn id(&self) -> Answer<String> {
        Ok(hexadecimal(&self.noise().id()?))
    }

    /// `"entropy"` or `"insecure-seed"`.
    #[getter]
    fn origin(&self) -> &'static str {
        match self.noise().origin() {
            KeyOrigin::Entropy => "entropy",
            KeyOrigin::InsecureSeed => "insecure-seed",
        }
    }

    fn __repr__(&self) -> String {
        format!("<NoiseKey of {}>", self.noise().origin())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a key is never written: it is the secret of the noise",
        ))
    }
}

/// Correlated noise in float32, row after row, for simulations and research.
///
/// Adding these rows to float32 sums is not a release with a proved guarantee: low bits of such sums tell of their
/// summands. Real training adds its noise to integers, in a run or a session.
///
/// Rows are written in place into memory of numpy, torch or anything else on the CPU, on all threads, while other threads
/// of Python run.
///
/// >>> import undertone_dp as udp
/// >>> from array import array
/// >>> schema = udp.Participation.single()
/// >>> blt = udp.Mechanism("blt", rounds=100, participation=schema, noise_multiplier=1.0)
/// >>> stream = blt.noise(5, clip_norm=1.0, key=udp.NoiseKey.insecure_seed(1))
/// >>> row = array("f", bytes(20))
/// >>> stream.next_into(row)
/// >>> stream.round, any(row)
/// (1, True)
#[pyclass(frozen, module = "undertone_dp")]
pub(crate) struct NoiseStream {
    stream: Mutex<mechanisms::NoiseStream>,
    dim: usize,
    process: u32,
}

impl NoiseStream {
    pub(crate) fn new(stream: mechanisms::NoiseStream, dim: usize) -> Self {
        Self {
            stream: Mutex::new(stream),
            dim,
            process: std::process::id(),
        }
    }

    /// Runs `work` on the stream with the interpreter released, on the module's threads.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut mechanisms::NoiseStream) -> mechanisms::Result<T> + Send,
    ) -> Answer<T> {
        check_process(self.process, "noise stream")?;
        py.detach(|| -> Answer<T> {
            let mut stream = self.stream.lock().map_err(|_| {
                PyRuntimeError::new_err(
                    "an earlier round of the noise stream failed half way: load a saved state",
                )
            })?;
            let stream = &mut *stream;
            Ok(crate::threads::install(|| work(stream))?)
        })
    }
}

#[pymethods]
impl NoiseStream {
    /// Writes the noise of the next round into `out`, or adds it.
    ///
    /// `out` is contiguous, writable float32 memory on the CPU of `dim` numbers in any shape: numpy by the buffer protocol,
    /// torch by DLPack, and no copy is made. Anything else is a `TypeError` that names what is wrong.
    #[pyo3(signature = (out, *, add=false))]
    fn next_into(&self, py: Python<'_>, out: &Bound<'_, PyAny>, add: bool) -> Answer<()> {
        let mut out = View::<f32>::writable(out, "out")?;
        self.with(py, move |stream| {
            if add {
                stream.add_next(out.as_mut())
            } else {
                stream.next(out.as_mut())
            }
        })
    }

    /// The noise of the next round, as an array of its own.
    fn next(&self, py: Python<'_>) -> Answer<Array> {
        let dim = self.dim;
        self.with(py, |stream| {
            Array::filled(dim, |row: &mut [f32]| stream.next(row))
        })
    }

    /// Turns `row`, standard normal numbers of the caller, into the noise of the next round, in place.
    fn correlate(&self, py: Python<'_>, row: &Bound<'_, PyAny>) -> Answer<()> {
        let mut row = View::<f32>::writable(row, "row")?;
        self.with(py, move |stream| stream.correlate(row.as_mut()))
    }

    /// Forgets all earlier noise: later rounds are those of a new stream with fresh noise.
    fn restart(&self, py: Python<'_>) -> Answer<()> {
        self.with(py, |stream| {
            stream.restart();
            Ok(())
        })
    }

    /// Rounds made.
    #[getter]
    fn round(&self, py: Python<'_>) -> Answer<usize> {
        self.with(py, |stream| Ok(stream.round()))
    }

    /// Vectors of `dim` numbers that the stream keeps in memory.
    #[getter]
    fn kept_vectors(&self, py: Python<'_>) -> Answer<usize> {
        self.with(py, |stream| Ok(stream.kept_vectors()))
    }

    /// Numbers per row.
    #[getter]
    fn dim(&self) -> usize {
        self.dim
    }

    /// Everything that later rounds need, except the key. A state is as secret as the noise.
    fn save<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyBytes>> {
        let mut state = Zeroizing::new(Vec::new());
        self.with(py, |stream| stream.save(&mut *state))?;
        Ok(PyBytes::new(py, &state))
    }

    /// Continues where `save` was called. Any other mechanism, key or size refuses the state.
    fn load(&self, py: Python<'_>, state: &[u8]) -> Answer<()> {
        self.stream.clear_poison();
        self.with(py, |stream| stream.load(&mut &*state))
    }

    fn __repr__(&self, py: Python<'_>) -> Answer<String> {
        Ok(format!(
            "<NoiseStream of {} numbers, round {}>",
            self.dim,
            self.round(py)?
        ))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a state is as secret as the noise; use save()",
        ))
    }
}

/// Adds the classes and functions of streams, their memory and their threads.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::failures::register(module)?;
    module.add_class::<Array>()?;
    module.add_class::<NoiseKey>()?;
    module.add_class::<NoiseStream>()?;
    module.add_function(wrap_pyfunction!(crate::threads::set_threads, module)?)
}
