//! Exceptions of sessions: the errors of a run, by what a caller does about them.

use pyo3::prelude::*;
use undertone_coordinator::CoordinatorError;
use undertone_run::RunError;
use undertone_run_directory::error::DirectoryError;

use crate::error::{Failure, UndertoneError, with_kind};
use crate::run_error::of_run;

pyo3::create_exception!(
    undertone_dp,
    SessionError,
    UndertoneError,
    "A step of a session that its state does not admit, or a folder that is not that of the session.\n\n\
     >>> import tempfile, undertone_dp as udp\n\
     >>> config = {\"name\": \"s\", \"rounds\": 1, \"cohort\": {\"users_per_round\": 2}, \"privacy\": {\"noise_multiplier\": 2.0}}\n\
     >>> session = udp.Session.create(tempfile.mkdtemp(), config, users=9, dim=1)\n\
     >>> try:\n\
     ...     session.finish({\"parameters\": memoryview(bytes(4)).cast(\"f\")})\n\
     ... except udp.SessionError as error:\n\
     ...     print(error)\n\
     the session has no closed round, so there is nothing to finish\n"
);
pyo3::create_exception!(
    undertone_dp,
    BudgetExceeded,
    SessionError,
    "A round that would raise epsilon above the budget of the session. Nothing of it was drawn.\n\n\
     >>> import tempfile, undertone_dp as udp\n\
     >>> config = {\"name\": \"s\", \"rounds\": 9, \"cohort\": {\"users_per_round\": 2},\n\
     ...           \"privacy\": {\"noise_multiplier\": 2.0, \"delta\": 1e-5, \"max_epsilon\": 0.1}}\n\
     >>> try:\n\
     ...     udp.Session.create(tempfile.mkdtemp(), config, users=9, dim=1)\n\
     ... except udp.BudgetExceeded as error:\n\
     ...     print(error.kind)\n\
     budget-exceeded\n"
);
pyo3::create_exception!(
    undertone_dp,
    ParticipationError,
    SessionError,
    "A contribution that the round does not take, or a cohort that breaks the declared schema.\n\n\
     >>> import tempfile, undertone_dp as udp\n\
     >>> config = {\"name\": \"s\", \"rounds\": 1, \"cohort\": {\"sampling_probability\": 1.0},\n\
     ...           \"privacy\": {\"noise_multiplier\": 2.0}}\n\
     >>> round = next(iter(udp.Session.create(tempfile.mkdtemp(), config, users=9, dim=1)))\n\
     >>> try:\n\
     ...     round.add(9, memoryview(bytes(4)).cast(\"f\"))\n\
     ... except udp.ParticipationError as error:\n\
     ...     print(error)\n\
     round 0, unit 9: expected a unit from 0 to 8\n"
);

/// The exception of an error of a run: of the session, or of what it was given.
pub(crate) fn raised(error: impl Into<RunError>) -> PyErr {
    let error = error.into();
    let message = error.to_string();
    match error {
        RunError::Unit { .. } | RunError::Stranger { .. } => {
            with_kind(ParticipationError::new_err(message), &error)
        }
        RunError::Coordinator(
            error @ (CoordinatorError::Participation(_) | CoordinatorError::TooFewEligible { .. }),
        ) => with_kind(ParticipationError::new_err(message), &error),
        RunError::Coordinator(error @ CoordinatorError::BudgetExceeded { .. }) => {
            with_kind(BudgetExceeded::new_err(message), &error)
        }
        RunError::Coordinator(CoordinatorError::Mechanism(error)) => Failure::from(error).into(),
        RunError::Coordinator(
            CoordinatorError::Accounting(_)
            | CoordinatorError::ConfigValue { .. }
            | CoordinatorError::ConfigMissing { .. }
            | CoordinatorError::ConfigCombination { .. }
            | CoordinatorError::ConfigConflict { .. },
        )
        | RunError::Data(_)
        | RunError::Directory(
            DirectoryError::Io { .. }
            | DirectoryError::Vocabulary(_)
            | DirectoryError::ConfigSyntax { .. }
            | DirectoryError::Config { .. }
            | DirectoryError::Override { .. },
        ) => of_run(&error),
        RunError::Directory(error) => with_kind(SessionError::new_err(message), &error),
        RunError::Coordinator(error) => with_kind(SessionError::new_err(message), &error),
        error => with_kind(SessionError::new_err(message), &error),
    }
}

/// Adds the exceptions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("SessionError", py.get_type::<SessionError>())?;
    module.add("BudgetExceeded", py.get_type::<BudgetExceeded>())?;
    module.add("ParticipationError", py.get_type::<ParticipationError>())
}
