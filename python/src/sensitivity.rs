//! Participation schemas, sensitivities of strategy matrices under them, and plans of production runs.

use pyo3::prelude::*;
use undertone_accounting::participation::{Gap, Participation, Spacing};
use undertone_accounting::plan::ProductionSetting;
use undertone_accounting::sensitivity::banded::Banded;
use undertone_accounting::sensitivity::general::LowerTriangular;
use undertone_accounting::sensitivity::toeplitz::Toeplitz;
use undertone_accounting::sensitivity::{SquaredSensitivity, tree};
use undertone_accounting::{AccountingError, Delta, Epsilon, Rho};
use undertone_mechanisms::population_plan::{Goal, PopulationQuestion};

use crate::count;
use crate::error::{Answer, UndertoneError};

/// A participation schema: at most so many participations of one user, so far apart.
///
/// `gap` is the distance of two participations in rounds: 1 allows every round.
///
/// >>> import undertone_dp as udp
/// >>> schema = udp.Participation.at_least(gap=213, max_participation=8)
/// >>> schema.effective(930).max_participation
/// 5
#[pyclass(name = "Participation", module = "undertone_dp", frozen, eq, hash)]
#[derive(Debug, PartialEq)]
pub(crate) struct PyParticipation {
    pub(crate) inner: Participation,
}

impl std::hash::Hash for PyParticipation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.inner.gap().get(), self.inner.max_participation()).hash(state);
    }
}

#[pymethods]
impl PyParticipation {
    /// One participation in the whole run.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Participation.single().max_participation
    /// 1
    #[staticmethod]
    fn single() -> Self {
        let inner = Participation::single();
        Self { inner }
    }

    /// At most `max_participation` participations, any two at least `gap` rounds apart.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Participation.at_least(gap=2, max_participation=3)
    /// Participation.at_least(gap=2, max_participation=3)
    #[staticmethod]
    #[pyo3(signature = (*, gap, max_participation))]
    fn at_least(
        #[pyo3(from_py_with = count::gap)] gap: u64,
        #[pyo3(from_py_with = count::max_participation)] max_participation: u64,
    ) -> Answer<Self> {
        let inner = Participation::at_least(Gap::new(gap)?, max_participation)?;
        Ok(Self { inner })
    }

    /// At most `max_participation` participations, consecutive ones exactly `gap` rounds apart.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Participation.fixed_epochs(gap=10, max_participation=3).spacing
    /// 'exactly'
    #[staticmethod]
    #[pyo3(signature = (*, gap, max_participation))]
    fn fixed_epochs(
        #[pyo3(from_py_with = count::gap)] gap: u64,
        #[pyo3(from_py_with = count::max_participation)] max_participation: u64,
    ) -> Answer<Self> {
        let inner = Participation::fixed_epochs(Gap::new(gap)?, max_participation)?;
        Ok(Self { inner })
    }

    /// The schema with no more participations than fit into `rounds`.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Participation.at_least(gap=4, max_participation=9).effective(10).max_participation
    /// 3
    fn effective(&self, #[pyo3(from_py_with = count::rounds)] rounds: u64) -> Answer<Self> {
        let inner = self.inner.effective(rounds)?.participation;
        Ok(Self { inner })
    }

    /// Distance in rounds between two participations.
    #[getter]
    fn gap(&self) -> u64 {
        self.inner.gap().get()
    }

    /// The largest number of participations.
    #[getter]
    fn max_participation(&self) -> u64 {
        self.inner.max_participation()
    }

    /// `at-least` or `exactly`.
    #[getter]
    fn spacing(&self) -> &'static str {
        match self.inner.spacing() {
            Spacing::AtLeast => "at-least",
            Spacing::Exactly => "exactly",
        }
    }

    fn __repr__(&self) -> String {
        let make = match self.inner.spacing() {
            Spacing::AtLeast => "at_least",
            Spacing::Exactly => "fixed_epochs",
        };
        let (gap, max) = (self.gap(), self.max_participation());
        format!("Participation.{make}(gap={gap}, max_participation={max})")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (bool, u64, u64))> {
        let make = slf
            .py()
            .import("undertone_dp._native")?
            .getattr("_participation")?;
        let this = slf.get();
        let exactly = this.inner.spacing() == Spacing::Exactly;
        Ok((make, (exactly, this.gap(), this.max_participation())))
    }
}

/// A copy of a pickled schema.
#[pyfunction]
pub(crate) fn _participation(exactly: bool, gap: u64, max_participation: u64) -> Answer<PyParticipation> {
    if exactly {
        return PyParticipation::fixed_epochs(gap, max_participation);
    }
    PyParticipation::at_least(gap, max_participation)
}

/// The exact sensitivity with `True`, or where no exact method is known a proved bound with `False`.
fn exact_or_bound(
    exact: Result<SquaredSensitivity, AccountingError>,
    bound: impl FnOnce() -> Result<SquaredSensitivity, AccountingError>,
) -> Answer<(f64, bool)> {
    match exact {
        Ok(squared) => Ok((squared.sensitivity(), true)),
        Err(AccountingError::NoExactSensitivity { .. } | AccountingError::SensitivityTooLarge { .. }) => {
            Ok((bound()?.sensitivity(), false))
        }
        Err(error) => Err(error.into()),
    }
}

/// Sensitivity of one binary tree over `rounds`, and whether it is exact.
///
/// >>> import undertone_dp as udp
/// >>> udp.sensitivity.tree(8, udp.Participation.single())
/// (2.0, True)
#[pyfunction]
pub(crate) fn sensitivity_tree(
    py: Python<'_>,
    #[pyo3(from_py_with = count::rounds)] rounds: u64,
    participation: &Bound<'_, PyParticipation>,
) -> Answer<(f64, bool)> {
    let schema = &participation.get().inner;
    py.detach(|| {
        let exact = tree::squared_sensitivity(rounds, schema).map(|tree| tree.squared_sensitivity);
        exact_or_bound(exact, || tree::squared_sensitivity_bound(rounds, schema))
    })
}

/// Sensitivity of a Toeplitz strategy matrix with these coefficients, one per round, and whether it is exact.
///
/// >>> import undertone_dp as udp
/// >>> udp.sensitivity.toeplitz([2.0, 0.0, 0.0], udp.Participation.single())
/// (2.0, True)
#[pyfunction]
pub(crate) fn sensitivity_toeplitz(
    py: Python<'_>,
    coefficients: Vec<f64>,
    participation: &Bound<'_, PyParticipation>,
) -> Answer<(f64, bool)> {
    let (matrix, schema) = (Toeplitz::new(coefficients)?, &participation.get().inner);
    py.detach(|| {
        exact_or_bound(matrix.squared_sensitivity(schema), || {
            matrix.squared_sensitivity_bound(schema)
        })
    })
}

/// Sensitivity of a banded strategy matrix, given as `rounds` columns of `bands` entries, and whether it is exact.
///
/// >>> import undertone_dp as udp
/// >>> udp.sensitivity.banded([[3.0, 4.0], [3.0, 4.0], [3.0, 0.0]], udp.Participation.single())
/// (5.0, True)
#[pyfunction]
pub(crate) fn sensitivity_banded(
    py: Python<'_>,
    columns: Vec<Vec<f64>>,
    participation: &Bound<'_, PyParticipation>,
) -> Answer<(f64, bool)> {
    let bands = columns.first().map_or(0, Vec::len);
    let (rounds, columns) = (columns.len(), same_length(columns, bands, "columns")?);
    let (matrix, schema) = (Banded::new(rounds, bands, &columns)?, &participation.get().inner);
    py.detach(|| {
        exact_or_bound(matrix.squared_sensitivity(schema), || {
            matrix.squared_sensitivity_bound(schema)
        })
    })
}

/// Sensitivity of a lower-triangular strategy matrix, given as rows, and whether it is exact.
///
/// >>> import undertone_dp as udp
/// >>> udp.sensitivity.general([[3.0, 0.0], [4.0, 1.0]], udp.Participation.single())
/// (5.0, True)
#[pyfunction]
pub(crate) fn sensitivity_general(
    py: Python<'_>,
    rows: Vec<Vec<f64>>,
    participation: &Bound<'_, PyParticipation>,
) -> Answer<(f64, bool)> {
    let (rounds, schema) = (rows.len(), &participation.get().inner);
    let matrix = LowerTriangular::new(rounds, &same_length(rows, rounds, "rows")?)?;
    py.detach(|| {
        exact_or_bound(matrix.squared_sensitivity(schema), || {
            matrix.squared_sensitivity_bound(schema)
        })
    })
}

/// All numbers of lists that have `length` numbers each.
fn same_length(lists: Vec<Vec<f64>>, length: usize, name: &'static str) -> Answer<Vec<f64>> {
    if let Some(odd) = lists.iter().find(|list| list.len() != length) {
        return Err(AccountingError::Size {
            quantity: name,
            expected: format!("{length} numbers in each"),
            got: odd.len() as u64,
        }
        .into());
    }
    Ok(lists.into_iter().flatten().collect())
}

/// Feasible runs over report goals for one production mechanism, as JSON.
#[pyfunction]
#[pyo3(signature = (mechanism, *, population, rounds, report_goal, delta, epsilon, rho, max_participation, separation_share, noise_scale))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn _plan(
    py: Python<'_>,
    mechanism: &str,
    #[pyo3(from_py_with = count::population)] population: u64,
    #[pyo3(from_py_with = count::rounds)] rounds: u64,
    #[pyo3(from_py_with = count::report_goal)] report_goal: u64,
    delta: f64,
    epsilon: Option<f64>,
    rho: Option<f64>,
    #[pyo3(from_py_with = count::max_participation)] max_participation: Option<u64>,
    separation_share: f64,
    noise_scale: f64,
) -> Answer<String> {
    let known = ProductionSetting::ALL.map(ProductionSetting::name).join(", ");
    let setting = ProductionSetting::by_name(mechanism).ok_or_else(|| {
        UndertoneError::new_err(format!("mechanism: expected one of {known}, got '{mechanism}'"))
    })?;
    let goal = match (epsilon, rho) {
        (Some(epsilon), None) => Goal::Epsilon(Epsilon::new(epsilon)?),
        (None, Some(rho)) => Goal::Rho(Rho::new(rho)?),
        _ => {
            return Err(UndertoneError::new_err("target: expected either epsilon or rho").into());
        }
    };
    let question = PopulationQuestion::new(population, rounds, Delta::new(delta)?, goal)?
        .with_separation_share(separation_share)?
        .with_noise_scale(noise_scale)?;
    let question = match max_participation {
        Some(max) => question.with_max_participation(max)?,
        None => question,
    };
    let options = py.detach(|| -> Answer<_> {
        let mut options = question.over_report_goals(setting, report_goal)?;
        options.push(question.option(setting, report_goal)?);
        Ok(options)
    })?;
    serde_json::to_string(&options).map_err(|error| UndertoneError::new_err(error.to_string()).into())
}
