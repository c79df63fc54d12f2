//! Noise matrices, their optimisers, and the mechanism that unites a matrix with its guarantee.

use pyo3::prelude::*;
use undertone_accounting::{Delta, NoiseMultiplier};
use undertone_mechanisms::optimize::{Kind, Problem, Progress, Sizes};
use undertone_mechanisms::{self as mechanisms, History, Objective, StreamOptions};

use crate::count;
use crate::error::{Answer, wrong_type};
use crate::event::object;
use crate::failures::{setting, unreadable};
use crate::guarantee::PyGuarantee;
use crate::sensitivity::PyParticipation;
use crate::stream::{NoiseKey, NoiseStream};

/// Rounds up to here take a matrix whose sums are computed at once.
const MAX_ROUNDS: usize = 1 << 32;

/// The linear map from the sums of the rounds to the models that the server releases.
///
/// >>> import undertone_dp as udp
/// >>> udp.Workload.momentum(0.9)
/// Workload.momentum(0.9)
/// >>> udp.Workload.prefix_sum().with_learning_rates([1.0, 0.5]) == udp.Workload.prefix_sum()
/// False
#[pyclass(frozen, eq, module = "undertone_dp")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Workload(pub(crate) mechanisms::Workload);

#[pymethods]
impl Workload {
    /// Plain SGD with a constant learning rate.
    #[staticmethod]
    fn prefix_sum() -> Self {
        Self(mechanisms::Workload::prefix_sum())
    }

    /// SGD with heavy-ball momentum in [0, 1).
    #[staticmethod]
    fn momentum(momentum: f64) -> Answer<Self> {
        Ok(Self(mechanisms::Workload::momentum(momentum)?))
    }

    /// This workload with a learning rate for each round.
    fn with_learning_rates(&self, learning_rates: Vec<f64>) -> Answer<Self> {
        Ok(Self(self.0.clone().with_learning_rates(learning_rates)?))
    }

    fn __repr__(&self) -> Answer<String> {
        let json = serde_json::to_value(&self.0).map_err(|error| unreadable("description", &error))?;
        let momentum = json["momentum"].as_f64().unwrap_or(0.0);
        let base = if momentum == 0.0 {
            "Workload.prefix_sum()".to_owned()
        } else {
            format!("Workload.momentum({momentum:?})")
        };
        Ok(match &json["learning_rates"] {
            serde_json::Value::Null => base,
            serde_json::Value::Array(rates) if rates.len() > 8 => {
                format!("{base}.with_learning_rates(<{} numbers>)", rates.len())
            }
            rates => format!("{base}.with_learning_rates({rates})"),
        })
    }

    fn __reduce__(&self, py: Python<'_>) -> Answer<(Py<PyAny>, (String,))> {
        let json = serde_json::to_string(&self.0).map_err(|error| unreadable("description", &error))?;
        Ok((py.get_type::<Self>().getattr("from_json")?.unbind(), (json,)))
    }

    /// The workload as JSON.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(|error| unreadable("description", &error))
    }

    /// The workload that `to_json` wrote.
    #[staticmethod]
    fn from_json(text: &str) -> Answer<Self> {
        Ok(Self(
            serde_json::from_str(text).map_err(|error| unreadable("description", &error))?,
        ))
    }
}

/// A squared sensitivity, and whether it is exact or an upper bound.
///
/// >>> import undertone_dp as udp
/// >>> single = udp.Participation.single()
/// >>> udp.optimize("independent", rounds=9, participation=single).squared_sensitivity(9, single)
/// Certified(value=1.0, exact=True)
#[pyclass(frozen, eq, get_all, module = "undertone_dp")]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Certified {
    /// Squared L2 sensitivity per squared clip norm. The true value is never larger.
    value: f64,
    /// True if some schedule of participations attains it.
    exact: bool,
}

#[pymethods]
impl Certified {
    fn __repr__(&self) -> String {
        let exact = if self.exact { "True" } else { "False" };
        format!("Certified(value={:?}, exact={exact})", self.value)
    }
}

/// Standard deviation of the noise in the models, for standard deviation 1 in every entry of the fresh noise.
///
/// >>> import undertone_dp as udp
/// >>> udp.optimize("independent", rounds=9, participation=udp.Participation.single()).errors(9).max_error
/// 3.0
#[pyclass(frozen, eq, get_all, module = "undertone_dp")]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Errors {
    /// The largest error over the rounds.
    max_error: f64,
    /// The root mean square of the errors over the rounds.
    rms_error: f64,
}

#[pymethods]
impl Errors {
    fn __repr__(&self) -> String {
        format!(
            "Errors(max_error={:?}, rms_error={:?})",
            self.max_error, self.rms_error
        )
    }
}

/// Errors times sensitivity, by which mechanisms compare at equal privacy.
///
/// >>> import undertone_dp as udp
/// >>> single = udp.Participation.single()
/// >>> udp.Mechanism("independent", rounds=9, participation=single, noise_multiplier=1.0).losses().max_loss
/// 3.0
#[pyclass(frozen, eq, get_all, module = "undertone_dp")]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Losses {
    /// L2 sensitivity per clip norm.
    sensitivity: f64,
    /// The largest error over the rounds, times the sensitivity.
    max_loss: f64,
    /// The root mean square of the errors, times the sensitivity.
    rms_loss: f64,
}

#[pymethods]
impl Losses {
    fn __repr__(&self) -> String {
        format!(
            "Losses(sensitivity={:?}, max_loss={:?}, rms_loss={:?})",
            self.sensitivity, self.max_loss, self.rms_loss
        )
    }
}

/// A noise matrix: each round's sum receives its row of the inverse matrix times fresh noise.
///
/// `optimize` finds one. `from_json` reads a stored one.
///
/// >>> import undertone_dp as udp
/// >>> schema = udp.Participation.at_least(gap=10, max_participation=3)
/// >>> tree = udp.optimize("tree", rounds=40, participation=schema)
/// >>> tree.kind, tree.squared_sensitivity(40, schema)
/// ('tree', Certified(value=26.0, exact=True))
#[pyclass(frozen, eq, module = "undertone_dp")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Strategy(pub(crate) mechanisms::Strategy);

#[pymethods]
impl Strategy {
    /// Kind of the matrix, as in its JSON.
    #[getter]
    fn kind(&self) -> Answer<String> {
        let json = serde_json::to_value(&self.0).map_err(|error| unreadable("description", &error))?;
        Ok(json["kind"].as_str().unwrap_or_default().to_owned())
    }

    /// Name in tables and plots.
    #[getter]
    fn name(&self) -> String {
        self.0.name()
    }

    /// Rounds that the matrix was made for; `None` if it goes on without end.
    #[getter]
    fn rounds(&self) -> Option<usize> {
        self.0.rounds()
    }

    /// Error of the models over `rounds` rounds.
    #[pyo3(signature = (rounds, workload=None))]
    fn errors(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = count::rounds)] rounds: usize,
        workload: Option<&Bound<'_, Workload>>,
    ) -> Answer<Errors> {
        let workload = workload_or_prefix_sum(workload);
        let errors = py.detach(|| self.0.errors(rounds, &workload))?;
        Ok(Errors {
            max_error: errors.max_error,
            rms_error: errors.rms_error,
        })
    }

    /// Squared sensitivity of the first `rounds` rounds under a participation schema.
    fn squared_sensitivity(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = count::rounds)] rounds: usize,
        participation: &Bound<'_, PyParticipation>,
    ) -> Answer<Certified> {
        let participation = participation.get().inner;
        let certified = py.detach(|| self.0.squared_sensitivity(rounds, &participation))?;
        Ok(Certified {
            value: certified.squared.get(),
            exact: certified.exact,
        })
    }

    /// The matrix as JSON, with every number.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(|error| unreadable("description", &error))
    }

    /// Your own lower-triangular matrix, by its rows: a list of lists, or an array of two dimensions.
    ///
    /// A row has all numbers up to the diagonal, and either nothing or zeros beyond it.
    ///
    /// >>> import undertone_dp as udp
    /// >>> mine = udp.Strategy.dense([[1, 0, 0], [0.5, 1, 0], [0.25, 0.5, 1]])
    /// >>> round(mine.squared_sensitivity(3, udp.Participation.single()).value, 6)
    /// 1.3125
    #[staticmethod]
    fn dense(rows: Vec<Vec<f64>>) -> PyResult<Self> {
        mechanisms::Described::of_rows(&rows)
            .map(Self)
            .map_err(|error| setting(error.to_string()))
    }

    /// The Toeplitz matrix with these coefficients, the diagonal's first, for any number of rounds.
    #[staticmethod]
    fn toeplitz(coefficients: Vec<f64>) -> Answer<Self> {
        let matrix = mechanisms::BandedToeplitz::new(coefficients)?;
        Ok(Self(mechanisms::Strategy::BandedToeplitz(matrix)))
    }

    /// The matrix that `to_json` wrote.
    #[staticmethod]
    fn from_json(text: &str) -> Answer<Self> {
        Ok(Self(
            serde_json::from_str(text).map_err(|error| unreadable("description", &error))?,
        ))
    }

    fn __reduce__(&self, py: Python<'_>) -> Answer<(Py<PyAny>, (String,))> {
        Ok((
            py.get_type::<Self>().getattr("from_json")?.unbind(),
            (self.to_json()?,),
        ))
    }

    fn __repr__(&self) -> String {
        let rounds = self.rounds().map(|rounds| format!(", rounds={rounds}"));
        format!("Strategy({}{})", self.name(), rounds.unwrap_or_default())
    }
}

fn workload_or_prefix_sum(workload: Option<&Bound<'_, Workload>>) -> mechanisms::Workload {
    workload.map_or_else(mechanisms::Workload::prefix_sum, |workload| {
        workload.get().0.clone()
    })
}

/// A kind of matrix by its name in run files.
fn kind_of(name: &str) -> PyResult<Kind> {
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let message = format!("kind must be one of {}, got {name:?}", names.join(", "));
        setting(message)
    })
}

/// The matrix of a kind with the smallest loss for a run.
///
/// `kind` is a name of a run file: `independent`, `tree`, `tree-full`, `blt`, `normalised-blt`, `fhu`, `banded-toeplitz`,
/// `normalised-banded-toeplitz`, `banded`, `bisr`, `inverse-toeplitz`, `lambda`, `normalised-lambda`, `square-root`,
/// `normalised-square-root` or `dense`. `progress` is called with the steps taken and an estimate of the share of the way,
/// by the kind that takes more than moments: `banded`.
///
/// >>> import undertone_dp as udp
/// >>> schema = udp.Participation.fixed_epochs(gap=34, max_participation=6)
/// >>> loss = lambda kind: udp.Mechanism(kind, rounds=204, participation=schema, noise_multiplier=1.0).losses().rms_loss
/// >>> loss("blt") < 0.8 * loss("tree")
/// True
#[pyfunction]
#[pyo3(signature = (kind, *, rounds, participation, workload=None, objective="rms", buffers=None, bands=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn optimize(
    py: Python<'_>,
    kind: &str,
    #[pyo3(from_py_with = count::rounds)] rounds: usize,
    participation: &Bound<'_, PyParticipation>,
    workload: Option<&Bound<'_, Workload>>,
    objective: &str,
    #[pyo3(from_py_with = count::buffers)] buffers: Option<usize>,
    #[pyo3(from_py_with = count::bands)] bands: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> Answer<Strategy> {
    let kind = kind_of(kind)?;
    let objective = match objective {
        "rms" => Objective::RmsLoss,
        "max" => Objective::MaxLoss,
        other => {
            let message = format!("objective must be \"rms\" or \"max\", got {other:?}");
            return Err(setting(message).into());
        }
    };
    if rounds > MAX_ROUNDS {
        let message = format!("rounds must be at most {MAX_ROUNDS}, got {rounds}");
        return Err(setting(message).into());
    }
    let problem = Problem::new(rounds, participation.get().inner)
        .with_objective(objective)
        .with_workload(workload_or_prefix_sum(workload));
    let mut raised = None;
    let made = py.detach(|| {
        let mut watch = |step: Progress| {
            if let (Some(progress), None) = (&progress, &raised) {
                raised = Python::attach(|py| progress.call1(py, (step.steps, step.fraction)).err());
            }
        };
        kind.make_watched(&problem, Sizes { buffers, bands }, &mut watch)
    });
    match raised {
        Some(error) => Err(error.into()),
        None => Ok(Strategy(made?.strategy)),
    }
}

/// A noise matrix for a number of rounds, a participation schema and a noise multiplier.
///
/// One value gives the noise, its certified sensitivity, its losses and the event that an accountant composes: none can be
/// of another matrix than the others. The guarantee holds for every user who keeps to the schema, under the zero-out
/// relation. It assumes nothing about how users are sampled.
///
/// >>> import undertone_dp as udp
/// >>> schema = udp.Participation.at_least(gap=100, max_participation=2)
/// >>> blt = udp.Mechanism("blt", rounds=200, participation=schema, noise_multiplier=4.0)
/// >>> blt.guarantee(1e-6).epsilon < 5
/// True
#[pyclass(frozen, eq, module = "undertone_dp")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mechanism(pub(crate) mechanisms::Mechanism);

#[pymethods]
impl Mechanism {
    #[new]
    #[pyo3(signature = (strategy, *, rounds, participation, noise_multiplier))]
    fn new(
        py: Python<'_>,
        strategy: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = count::rounds)] rounds: usize,
        participation: &Bound<'_, PyParticipation>,
        noise_multiplier: f64,
    ) -> Answer<Self> {
        let schema = participation.get().inner;
        let noise_multiplier = NoiseMultiplier::new(noise_multiplier)?;
        let strategy = if let Ok(strategy) = strategy.cast::<Strategy>() {
            strategy.get().0.clone()
        } else if let Ok(kind) = strategy.extract::<String>() {
            optimize(py, &kind, rounds, participation, None, "rms", None, None, None)?.0
        } else {
            return Err(wrong_type("strategy", "a Strategy or the name of a kind", strategy).into());
        };
        let made = py.detach(|| mechanisms::Mechanism::new(strategy, rounds, schema, noise_multiplier));
        Ok(Self(made?))
    }

    /// The matrix.
    #[getter]
    fn strategy(&self) -> Strategy {
        Strategy(self.0.strategy().clone())
    }

    /// Rounds that the guarantee covers.
    #[getter]
    fn rounds(&self) -> usize {
        self.0.rounds()
    }

    /// The schema that every user has to keep to.
    #[getter]
    fn participation(&self) -> PyParticipation {
        PyParticipation {
            inner: self.0.participation(),
        }
    }

    /// Standard deviation of every entry of the fresh noise, in clip norms.
    #[getter]
    fn noise_multiplier(&self) -> f64 {
        self.0.noise_multiplier().get()
    }

    /// L2 sensitivity per clip norm: never below the true value.
    #[getter]
    fn sensitivity(&self) -> f64 {
        self.0.sensitivity().squared.sensitivity()
    }

    /// True if some schedule of participations attains the sensitivity.
    #[getter]
    fn sensitivity_is_exact(&self) -> bool {
        self.0.sensitivity().exact
    }

    /// The event of the whole run, in exact arithmetic.
    #[getter]
    fn event(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        object(py, self.0.event())
    }

    /// SHA-256 of the description, in hexadecimal.
    #[getter]
    fn digest(&self) -> Answer<String> {
        Ok(crate::stream::hexadecimal(&self.0.digest()?))
    }

    /// The guarantee of the whole run at `delta`, exact for Gaussians, under the zero-out relation.
    fn guarantee(&self, delta: f64) -> Answer<PyGuarantee> {
        let inner = self.0.guarantee(Delta::new(delta)?)?;
        Ok(PyGuarantee { inner })
    }

    /// Errors of the models times the sensitivity.
    #[pyo3(signature = (workload=None))]
    fn losses(&self, py: Python<'_>, workload: Option<&Bound<'_, Workload>>) -> Answer<Losses> {
        let workload = workload_or_prefix_sum(workload);
        let losses = py.detach(|| self.0.losses(&workload))?;
        Ok(Losses {
            sensitivity: losses.sensitivity,
            max_loss: losses.max_loss,
            rms_loss: losses.rms_loss,
        })
    }

    /// A stream of this mechanism's noise for vectors of `dim` numbers, for research.
    ///
    /// Without a key, the operating system gives one. `history` is `"keep"` or `"remake"`: more memory or more time, for
    /// matrices whose rounds look far back. With `cumulative`, rounds give the noise in the sum of all rounds so far.
    #[pyo3(signature = (dim, *, clip_norm, key=None, history=None, cumulative=false))]
    fn noise(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = count::dim)] dim: usize,
        clip_norm: f64,
        key: Option<&Bound<'_, NoiseKey>>,
        history: Option<&str>,
        cumulative: bool,
    ) -> Answer<NoiseStream> {
        let history = match history {
            None => None,
            Some("keep") => Some(History::Keep),
            Some("remake") => Some(History::Remake),
            Some(other) => {
                let message = format!("history must be \"keep\" or \"remake\", got {other:?}");
                return Err(setting(message).into());
            }
        };
        let key = match key {
            Some(key) => key.get().noise(),
            None => NoiseKey::from_system()?.noise(),
        };
        let options = StreamOptions {
            history,
            look_ahead: None,
            cumulative,
        };
        let stream = py.detach(|| self.0.stream(dim, clip_norm, key, options));
        Ok(NoiseStream::new(stream?, dim))
    }

    /// The description as JSON: matrix, rounds, schema and noise multiplier.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(|error| unreadable("description", &error))
    }

    /// The mechanism that `to_json` wrote; its sensitivity is computed again.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> Answer<Self> {
        let read = py.detach(|| serde_json::from_str(text));
        Ok(Self(read.map_err(|error| unreadable("description", &error))?))
    }

    fn __reduce__(&self, py: Python<'_>) -> Answer<(Py<PyAny>, (String,))> {
        Ok((
            py.get_type::<Self>().getattr("from_json")?.unbind(),
            (self.to_json()?,),
        ))
    }

    fn __repr__(&self) -> String {
        format!(
            "Mechanism({}, rounds={}, sensitivity={:?}, noise_multiplier={:?})",
            self.0.strategy().name(),
            self.rounds(),
            self.sensitivity(),
            self.noise_multiplier()
        )
    }
}

/// Adds the classes and functions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Workload>()?;
    module.add_class::<Certified>()?;
    module.add_class::<Errors>()?;
    module.add_class::<Losses>()?;
    module.add_class::<Strategy>()?;
    module.add_class::<Mechanism>()?;
    module.add_function(wrap_pyfunction!(optimize, module)?)
}
