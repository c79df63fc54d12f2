//! Sessions: private training of any program's model, with a ledger that `undertone verify` checks.

mod config;
mod failure;
mod gpu;
mod round;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use undertone_run_directory::session_config::SessionConfig;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use undertone_accounting::{Adjacency, Delta, Epsilon, Guarantee, Recipe, Sampling};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_run::session as run;

use crate::buffer::{View, read, read_integers};
use crate::count;
use crate::error::{Answer, UndertoneError};
use crate::guarantee::PyGuarantee;
use crate::sensitivity::PyParticipation;
use crate::stream::check_process;

use failure::raised;
pub(crate) use round::{Released, Round};

/// Private training of a model of any program: the session draws the users of each round, bounds and sums their updates, adds the
/// noise, and keeps the ledger.
///
/// The program gives one update for each unit of a round, and takes the noised average. Clipping and noise are exact integers. The
/// ledger and what brings the noise back are durable before an average is given out, so a program that dies can go on with
/// `resume=True`. It has then spent exactly the rounds that the ledger has.
///
/// Save the model after every release: a session cannot give out an average twice.
///
/// Examples
/// --------
/// >>> import tempfile, array
/// >>> import undertone_dp as udp
/// >>> config = {"name": "mean", "rounds": 2, "cohort": {"users_per_round": 50},
/// ...           "clip": {"kind": "flat", "norm": 1.0}, "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
/// >>> out = tempfile.mkdtemp()
/// >>> session = udp.Session.create(out, config, users=1000, dim=3)
/// >>> average = array.array("f", bytes(12))
/// >>> for round in session:
/// ...     for unit, user in enumerate(round.users):
/// ...         report = round.add(unit, array.array("f", [3.0, 0.0, 4.0]))
/// ...     released = round.release(average)
/// >>> report.norm, report.clipped, released.round
/// (5.0, True, 1)
/// >>> run = session.finish({"parameters": average})
/// >>> print(session.planned)
/// (eps = 0.220, delta = 1e-5), add-or-remove one user, Poisson sampling, PLD upper bound
#[pyclass(frozen, module = "undertone_dp")]
pub(crate) struct Session {
    session: RwLock<run::Session>,
    /// The process that made the session.
    process: u32,
}

impl Session {
    /// Runs `work` with the interpreter released, beside others that only read.
    fn shared<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&run::Session) -> undertone_run::Result<T> + Send,
    ) -> PyResult<T> {
        check_process(self.process, "session")?;
        py.detach(|| work(&self.session.read().unwrap_or_else(PoisonError::into_inner)))
            .map_err(raised)
    }

    /// Runs `work` alone on the session, with the interpreter released, on the module's threads.
    fn alone<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut run::Session) -> undertone_run::Result<T> + Send,
    ) -> PyResult<T> {
        check_process(self.process, "session")?;
        py.detach(|| {
            // A panic leaves the session stopped: each step takes the head out before it begins.
            let mut session = self.session.write().unwrap_or_else(PoisonError::into_inner);
            let session = &mut *session;
            crate::threads::install(|| work(session))
        })
        .map_err(raised)
    }
}

#[pymethods]
impl Session {
    /// Starts a session in a folder of `out` that has its name, or with `resume=True` goes on with the one that is there.
    ///
    /// `config` is a mapping with the keys of a run file, its text, or the path of a file: `name`, `rounds`, `cohort`, `clip`,
    /// `privacy`, and where they are wanted `user_update`, `estimator`, `participation`, `schedule`, `checkpoint` and `seed`.
    /// `users` is the number of users in the population, and `dim` the number of parameters. `layout` gives the shapes of the
    /// tensors by their names, in the order of an update. With example-level sampling `examples` holds the number of examples of
    /// each user. `unit_rng` stands above the key of that name: with `"caller"` the units draw from generators that the program keeps,
    /// and the privacy report says so.
    ///
    /// >>> import tempfile
    /// >>> import undertone_dp as udp
    /// >>> config = {"name": "epochs", "rounds": 40, "cohort": {"sampling": "shuffled_epochs", "users_per_round": 128},
    /// ...           "privacy": {"noise_multiplier": 3.0, "delta": 1e-5, "mechanism": {"kind": "blt", "buffers": 2}}}
    /// >>> session = udp.Session.create(tempfile.mkdtemp(), config, users=1218, dim=7, layout={"w": (2, 3), "b": (1,)})
    /// >>> session.participation
    /// Participation.fixed_epochs(gap=9, max_participation=5)
    #[staticmethod]
    #[pyo3(signature = (out, config, *, users, dim, layout=None, examples=None, resume=false, unit_rng=None))]
    #[expect(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn create(
        py: Python<'_>,
        out: PathBuf,
        config: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = count::users)] users: u64,
        #[pyo3(from_py_with = count::dim)] dim: usize,
        layout: Option<&Bound<'_, PyAny>>,
        examples: Option<&Bound<'_, PyAny>>,
        resume: bool,
        unit_rng: Option<&str>,
    ) -> Answer<Self> {
        let unit_rng = unit_rng.map(config::unit_rng).transpose()?;
        let tensors = config::tensors(dim, layout)?;
        let given = config::Given::read(config)?;
        let examples = examples.map(counts).transpose()?;
        let session = py
            .detach(|| {
                let mut config = SessionConfig::new(&given.text, &given.name, users, &tensors)?;
                config.unit_rng = unit_rng.unwrap_or(config.unit_rng);
                crate::threads::install(|| {
                    run::Session::create(&out, config, &given.base, examples.as_deref(), resume)
                })
            })
            .map_err(raised)?;
        Ok(Self {
            session: RwLock::new(session),
            process: std::process::id(),
        })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Opens the next round. `BudgetExceeded` where it would exceed the budget.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Round>> {
        let opened = slf.get().alone(slf.py(), |session| {
            let round = session.next_round()?;
            Ok(round.map(|round| {
                let examples = round.examples().map(<[_]>::to_vec);
                (round.index(), round.users().to_vec(), examples)
            }))
        })?;
        opened
            .map(|(index, users, examples)| {
                Round::new(slf.py(), slf.clone().unbind(), index, &users, examples.as_deref())
            })
            .transpose()
    }

    /// Writes the model, the report and the manifest, and removes what would tell who was sampled. Returns the finished `Run`.
    ///
    /// `tensors` holds exactly the tensors of the layout, or `"parameters"` where the session has none. An open round is dropped.
    fn finish<'py>(&self, py: Python<'py>, tensors: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let layout = self.shared(py, run::Session::layout)?;
        let mut given = BTreeMap::new();
        for item in tensors.call_method0("items")?.try_iter()? {
            let (name, tensor) = item?.extract::<(String, Bound<'_, PyAny>)>()?;
            given.insert(name, tensor);
        }
        let mut parameters = Vec::with_capacity(layout.len());
        for tensor in layout.tensors() {
            let name = &tensor.name;
            let found = given.remove(name).ok_or_else(|| {
                PyValueError::new_err(format!("tensors: expected the tensor {name:?}, got none"))
            })?;
            let values: Vec<f32> = read(&found, name)?;
            if values.len() != tensor.len() {
                return Err(PyValueError::new_err(format!(
                    "tensors: expected {} values of {name:?}, got {}",
                    tensor.len(),
                    values.len()
                )));
            }
            parameters.extend(values);
        }
        if let Some(name) = given.keys().next() {
            return Err(PyValueError::new_err(format!(
                "tensors: expected those of the layout, got {name:?} too: only what the session trained follows from its releases"
            )));
        }
        let folder = self.alone(py, |session| session.finish(&parameters))?;
        py.import("undertone_dp")?
            .getattr("Run")?
            .call_method1("open", (folder,))
    }

    /// Lets go of the folder without finishing. The session can then be resumed, in this process or another.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.alone(py, |session| {
            session.close();
            Ok(())
        })
    }

    /// The guarantee of all rounds, computed before the first; `None` where the session is not private.
    #[getter]
    fn planned(&self, py: Python<'_>) -> PyResult<Option<PyGuarantee>> {
        let planned = self.shared(py, |session| Ok(session.planned().cloned()))?;
        planned.as_ref().map(guarantee).transpose()
    }

    /// Epsilon of the closed rounds at the delta of the session; `None` where there is none.
    #[getter]
    fn epsilon(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.shared(py, run::Session::epsilon)
    }

    /// The participation schema that the guarantee rests on; `None` where it rests on sampling.
    #[getter]
    fn participation(&self, py: Python<'_>) -> PyResult<Option<PyParticipation>> {
        let inner = self.shared(py, |session| Ok(session.participation()))?;
        Ok(inner.map(|inner| PyParticipation { inner }))
    }

    /// Closed rounds.
    #[getter]
    fn round(&self, py: Python<'_>) -> PyResult<u64> {
        self.shared(py, |session| Ok(session.round()))
    }

    /// Rounds in all.
    #[getter]
    fn rounds(&self, py: Python<'_>) -> PyResult<u64> {
        self.shared(py, |session| Ok(session.rounds()))
    }

    /// Number of parameters.
    #[getter]
    fn dim(&self, py: Python<'_>) -> PyResult<usize> {
        self.shared(py, |session| Ok(session.dim()))
    }

    /// The number that sums are divided by; `None` where it is the number of contributions.
    #[getter]
    fn denominator(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.shared(py, |session| Ok(session.denominator()))
    }

    /// The origin of the random numbers of units: `"own"` where each has generators of its own, or `"caller"`.
    #[getter]
    fn unit_rng(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.shared(py, |session| Ok(config::name_of(session.unit_rng())))
    }

    /// The folder of the session.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<String> {
        self.shared(py, |session| Ok(session.path().display().to_string()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<Session in {:?}, {} of {} rounds>",
            self.path(py)?,
            self.round(py)?,
            self.rounds(py)?
        ))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a session is as secret as its noise; make it anew with resume=True",
        ))
    }
}

/// The numbers of examples of the users.
fn counts(examples: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let numbers = read_integers(examples, "examples")?;
    let count = |(user, number): (usize, i64)| {
        u32::try_from(number).map_err(|_| {
            PyValueError::new_err(format!(
                "examples: expected numbers from 0 to 4294967295, got {number} of user {user}"
            ))
        })
    };
    numbers.into_iter().enumerate().map(count).collect()
}

/// The guarantee of a record, whose names are those of the accountant.
fn guarantee(record: &GuaranteeRecord) -> PyResult<PyGuarantee> {
    const ADJACENCIES: [Adjacency; 3] = [
        Adjacency::AddOrRemoveOne,
        Adjacency::ReplaceOne,
        Adjacency::ZeroOut,
    ];
    const SAMPLINGS: [Sampling; 4] = [
        Sampling::Poisson,
        Sampling::FixedSize,
        Sampling::TruncatedPoisson,
        Sampling::FullParticipation,
    ];
    const RECIPES: [Recipe; 5] = [
        Recipe::Moments2016,
        Recipe::Rdp,
        Recipe::Pld,
        Recipe::Zcdp,
        Recipe::ExactGaussian,
    ];
    fn named<T: Copy + std::fmt::Display>(all: &[T], name: &str) -> PyResult<T> {
        let found = all.iter().find(|value| value.to_string() == name);
        let unknown = || UndertoneError::new_err(format!("the guarantee has the unknown name {name:?}"));
        found.copied().ok_or_else(unknown)
    }
    let outside = |error: undertone_accounting::AccountingError| UndertoneError::new_err(error.to_string());
    Ok(PyGuarantee {
        inner: Guarantee {
            epsilon: Epsilon::new(record.epsilon).map_err(outside)?,
            delta: Delta::new(record.delta).map_err(outside)?,
            adjacency: named(&ADJACENCIES, &record.adjacency)?,
            sampling: named(&SAMPLINGS, &record.sampling)?,
            recipe: named(&RECIPES, &record.recipe)?,
            optimal_order: None,
        },
    })
}

/// Adds the classes and the exceptions of sessions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    failure::register(module)?;
    module.add_class::<Session>()?;
    module.add_class::<Round>()?;
    module.add_class::<Released>()
}

/// The writable float32 memory of `out`.
fn writable(out: &Bound<'_, PyAny>) -> PyResult<View<f32>> {
    View::writable(out, "out")
}
