"""Differential-privacy accounting: upper bounds on epsilon, with lower bounds beside them.

>>> import undertone_dp as udp
>>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
>>> spent, enough = udp.Accountant().compose(round, 1000).bounds(1e-6)
>>> print(f"{spent:.4f} to {enough:.4f}")
2.1245 to 2.1245
"""

from undertone_dp import calibrate, check, gaussian, secagg, sensitivity, zcdp
from undertone_dp._corpus import Corpus
from undertone_dp._native import (
    Accountant,
    AccountingError,
    Array,
    Certified,
    Errors,
    Event,
    ExampleLevelSampling,
    FixedSizeUsers,
    GridPld,
    Guarantee,
    Losses,
    Mechanism,
    MechanismError,
    NoiseKey,
    NoiseStream,
    Participation,
    PoissonUsers,
    Repetitions,
    Sampler,
    ShuffledEpochs,
    Strategy,
    UndertoneError,
    UserLevelSampling,
    Workload,
    __version__,
    epsilon,
    optimize,
    set_threads,
)
from undertone_dp._native import (
    BudgetExceeded,
    ParticipationError,
    Released,
    Round,
    Session,
    SessionError,
)
from undertone_dp._native import group_privacy as group
from undertone_dp._plan import plan

# Runs, data and sums.
from undertone_dp._native import (
    AggregationError,
    ClipReport,
    ConfigError,
    DataError,
    ParamLayout,
    RunError,
    SecAggError,
    Table,
    clip,
)
from undertone_dp._run import (
    Check,
    Picture,
    Progress,
    Run,
    RunGuarantee,
    Story,
    Verification,
    explain,
    pretrain,
    train,
)
from undertone_dp._settings_types import RunSettings

__all__ = [
    "Accountant",
    "AccountingError",
    "Array",
    "BudgetExceeded",
    "Certified",
    "Errors",
    "Event",
    "ExampleLevelSampling",
    "FixedSizeUsers",
    "GridPld",
    "Guarantee",
    "Losses",
    "Mechanism",
    "MechanismError",
    "NoiseKey",
    "NoiseStream",
    "Participation",
    "ParticipationError",
    "PoissonUsers",
    "Released",
    "Repetitions",
    "Round",
    "Sampler",
    "Session",
    "SessionError",
    "ShuffledEpochs",
    "Strategy",
    "UndertoneError",
    "UserLevelSampling",
    "Workload",
    "__version__",
    "calibrate",
    "check",
    "epsilon",
    "gaussian",
    "group",
    "optimize",
    "plan",
    "sensitivity",
    "set_threads",
    "zcdp",
    # Runs, data and sums.
    "AggregationError",
    "Check",
    "ClipReport",
    "ConfigError",
    "Corpus",
    "DataError",
    "ParamLayout",
    "Picture",
    "Progress",
    "Run",
    "RunError",
    "RunGuarantee",
    "RunSettings",
    "SecAggError",
    "Story",
    "Table",
    "Verification",
    "clip",
    "explain",
    "pretrain",
    "secagg",
    "train",
]
