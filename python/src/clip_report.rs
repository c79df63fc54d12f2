//! The outcome of clipping or adding one update.

use pyo3::prelude::*;
use undertone_aggregation::Added;

/// The outcome of clipping or adding one update. PRIVACY: it is an exact statistic of a user.
///
/// >>> import tempfile
/// >>> from array import array
/// >>> import undertone_dp as udp
/// >>> config = {"name": "s", "rounds": 1, "cohort": {"sampling_probability": 1.0},
/// ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
/// >>> round = next(udp.Session.create(tempfile.mkdtemp(), config, users=3, dim=2))
/// >>> round.add(2, array("f", [float("nan"), 1.0]))
/// ClipReport(norm=0.0, clipped=False, discarded=True)
#[pyclass(frozen, eq, get_all, module = "undertone_dp")]
#[derive(PartialEq)]
pub(crate) struct ClipReport {
    /// The L2 norm before clipping; 0 for an update that was discarded.
    norm: f64,
    /// True if the update was shortened to the clip norm.
    clipped: bool,
    /// True if the update was not finite and counts as zero.
    discarded: bool,
}

impl ClipReport {
    pub(crate) fn of(added: Added) -> Self {
        let report = added.report();
        Self {
            norm: report.norm,
            clipped: report.clipped,
            discarded: added == Added::Discarded,
        }
    }
}

#[pymethods]
impl ClipReport {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let norm = self.norm.into_pyobject(py)?.repr()?;
        let truth = |value: bool| if value { "True" } else { "False" };
        let (clipped, discarded) = (truth(self.clipped), truth(self.discarded));
        Ok(format!(
            "ClipReport(norm={norm}, clipped={clipped}, discarded={discarded})"
        ))
    }
}
