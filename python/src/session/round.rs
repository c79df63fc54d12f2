//! An open round, as Python sees it.

use pyo3::prelude::*;
use undertone_run::session as run;

use super::{Session, gpu, writable};
use crate::buffer::{Array, View, read, read_integers};
use crate::clip_report::ClipReport;
use pyo3::exceptions::{PyTypeError, PyValueError};

/// The first and the last-but-one place of a stretch of values.
type Span = (usize, usize);

/// An open round of a session: its users, and the sum of what they contribute.
///
/// A unit is the place of a user in `users`. With example-level sampling it is the place of an example in `examples`.
///
/// >>> import tempfile
/// >>> from array import array
/// >>> import undertone_dp as udp
/// >>> config = {"name": "s", "rounds": 1, "cohort": {"sampling_probability": 1.0},
/// ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
/// >>> round = next(udp.Session.create(tempfile.mkdtemp(), config, users=3, dim=2))
/// >>> round.index, list(round.users), round.examples
/// (0, [0, 1, 2], None)
#[pyclass(frozen, module = "undertone_dp")]
pub(crate) struct Round {
    session: Py<Session>,
    /// The index of the round, from 0.
    #[pyo3(get)]
    index: u64,
    /// The users of the round, ascending, as int64.
    #[pyo3(get)]
    users: Py<Array>,
    /// The sampled examples under example-level sampling, as pairs of a user and a place among its examples; else `None`.
    #[pyo3(get)]
    examples: Option<Vec<(usize, usize)>>,
}

impl Round {
    pub(super) fn new(
        py: Python<'_>,
        session: Py<Session>,
        index: u64,
        users: &[usize],
        examples: Option<&[(usize, usize)]>,
    ) -> PyResult<Self> {
        let users: Vec<i64> = users.iter().map(|&user| user as i64).collect();
        Ok(Self {
            session,
            index,
            users: Py::new(py, Array::of(&users))?,
            examples: examples.map(<[_]>::to_vec),
        })
    }

    /// Runs `work` on the round, while it is the open one.
    fn open<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&run::Session, &run::Round) -> undertone_run::Result<T> + Send,
    ) -> PyResult<T> {
        let index = self.index;
        self.session.get().shared(py, move |session| {
            let open = session.open_round().filter(|round| round.index() == index);
            work(session, open.ok_or(run::ROUND_CLOSED)?)
        })
    }
}

#[pymethods]
impl Round {
    /// Adds the update of a unit. It is copied first, and then bounded and added from the copy.
    ///
    /// `update` is contiguous float32 memory on the CPU. Whatever it holds, the sum moves by at most the clip norm: an update that is
    /// not finite counts as zero in a private session. `ParticipationError` for a unit that has contributed and for a place that the
    /// round does not have.
    fn add(&self, py: Python<'_>, unit: usize, update: &Bound<'_, PyAny>) -> PyResult<ClipReport> {
        let update: Vec<f32> = read(update, "update")?;
        let added = self.open(py, |_, round| round.add(unit, &update))?;
        Ok(ClipReport::of(added))
    }

    /// Adds the updates of several units, one after the other in one buffer. Where one is refused, those before it have been added.
    fn add_many(
        &self,
        py: Python<'_>,
        units: &Bound<'_, PyAny>,
        updates: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<ClipReport>> {
        let units = read_integers(units, "units")?;
        let updates: Vec<f32> = read(updates, "updates")?;
        let dim = self.session.get().shared(py, |session| Ok(session.dim()))?;
        let expected = units.len().saturating_mul(dim);
        if updates.len() != expected {
            return Err(PyValueError::new_err(format!(
                "updates: expected {expected} values, {dim} for each of {} units, got {}",
                units.len(),
                updates.len()
            )));
        }
        let added = self.open(py, |_, round| {
            let one = |(unit, update): (&i64, &[f32])| {
                // No round has a unit of this number.
                let unit = usize::try_from(*unit).unwrap_or(usize::MAX);
                round.add(unit, update)
            };
            units
                .iter()
                .zip(updates.chunks(dim))
                .map(one)
                .collect::<Result<Vec<_>, _>>()
        })?;
        Ok(added.into_iter().map(ClipReport::of).collect())
    }

    /// The places of at most `group_size` of the `available` examples of a user of the round, with user-level sampling.
    fn choose(&self, py: Python<'_>, user: usize, available: usize) -> PyResult<Array> {
        let places = self.open(py, |session, _| session.choose(user, available))?;
        let places: Vec<i64> = places.into_iter().map(|place| place as i64).collect();
        Ok(Array::of(&places))
    }

    /// Closes the round and writes its noised average to `out`, contiguous writable float32 memory on the CPU.
    ///
    /// The ledger and the entropy of the noise are durable before. A unit without an update counts as zero. After an error `out` is
    /// untouched.
    fn release(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<Released> {
        let mut out = writable(out)?;
        let index = self.index;
        let released = self
            .session
            .get()
            .alone(py, move |session| match session.open_round() {
                Some(round) if round.index() == index => session.release(out.as_mut()),
                _ => Err(run::ROUND_CLOSED),
            })?;
        Ok(Released {
            round: released.round,
            sha256: released.sha256,
            clip_norm: released.clip_norm,
            noise_std: released.noise_std,
            norm: released.norm,
        })
    }

    /// The first and the last-but-one place of each span of values that are bounded together, group after group; `None` without
    /// clipping, because a GPU adds only what it bounds.
    fn _gpu_groups(&self, py: Python<'_>) -> PyResult<Option<Vec<Vec<Span>>>> {
        let groups = self.open(py, |_, round| Ok(round.gpu_groups()))?;
        let places =
            |spans: Vec<std::ops::Range<usize>>| spans.iter().map(|span| (span.start, span.end)).collect();
        Ok(groups.map(|groups| groups.into_iter().map(places).collect()))
    }

    /// True if this unit needs `_audit` after `_add_on_gpu`.
    fn _audits(&self, py: Python<'_>, unit: usize) -> PyResult<bool> {
        self.open(py, |_, round| Ok(round.audits(unit)))
    }

    /// Announces a unit that a GPU has measured, before its norms are there. A unit that has contributed is refused here.
    fn _announce(&self, py: Python<'_>, unit: usize) -> PyResult<()> {
        self.open(py, |_, round| round.announce(unit))
    }

    /// Takes the norms of a unit that a GPU measured, five int64 numbers for each group, and gives for each group the factor and
    /// the number of halvings by which the GPU adds the unit. After an error the GPU must add nothing.
    fn _add_on_gpu(
        &self,
        py: Python<'_>,
        unit: usize,
        norms: &Bound<'_, PyAny>,
    ) -> PyResult<(ClipReport, Vec<(u32, u32)>)> {
        let norms = gpu::limbs(norms)?;
        let factor = self.open(py, |_, round| round.add_on_gpu(unit, &norms))?;
        Ok((ClipReport::of(factor.added()), factor.groups()))
    }

    /// Computes the norms of the audited unit again, from its update: float32 memory on the CPU, which nobody writes meanwhile.
    fn _audit(&self, py: Python<'_>, update: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut update = View::<f32>::writable(update, "update")?;
        self.open(py, move |_, round| round.audit(update.as_mut()))
    }

    /// Takes the next part of the sum that a GPU computed of its units: int64 memory on the CPU, from place `first` on.
    fn _merge_gpu(&self, py: Python<'_>, first: usize, part: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut part = View::<i64>::writable(part, "part")?;
        self.open(py, move |_, round| {
            crate::threads::install(|| round.merge_gpu(first, part.as_mut()))
        })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let users = self.users.bind(py).len()?;
        Ok(match &self.examples {
            Some(examples) => format!(
                "<Round {} of {} examples of {users} users>",
                self.index,
                examples.len()
            ),
            None => format!("<Round {} of {users} users>", self.index),
        })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a round belongs to the session that opened it",
        ))
    }
}

/// A noised average that was given out.
///
/// >>> import tempfile
/// >>> from array import array
/// >>> import undertone_dp as udp
/// >>> config = {"name": "s", "rounds": 1, "cohort": {"sampling_probability": 1.0},
/// ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
/// >>> round = next(udp.Session.create(tempfile.mkdtemp(), config, users=3, dim=2))
/// >>> released = round.release(array("f", [0.0, 0.0]))
/// >>> released.round, released.noise_std, len(released.sha256)
/// (0, 0.6666666666666666, 64)
#[pyclass(frozen, eq, get_all, module = "undertone_dp")]
#[derive(PartialEq)]
pub(crate) struct Released {
    /// The round.
    round: u64,
    /// SHA-256 of the values as little-endian bytes, as the ledger states it.
    sha256: String,
    /// Max L2 norm of one contribution to the sum of the round; `None` without clipping. It changes where adaptive clipping restarts.
    clip_norm: Option<f64>,
    /// Standard deviation of the noise on each value before any division by the clip norm; of correlated noise, of its fresh part.
    noise_std: f64,
    /// The L2 norm of the values.
    norm: f64,
}

#[pymethods]
impl Released {
    fn __repr__(&self) -> String {
        format!("<Released: round {}, norm {}>", self.round, self.norm)
    }
}
