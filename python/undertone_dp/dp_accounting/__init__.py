"""Names, events and accountants of Google's `dp_accounting`, answered by Undertone.

A program changes its import to `from undertone_dp import dp_accounting`. It needs numpy.

>>> from undertone_dp import dp_accounting
>>> accountant = dp_accounting.pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0), 4)
>>> f"{accountant.get_epsilon(1e-6):.3f}"
'10.993'
"""

from undertone_dp.dp_accounting import (
    dp_event,
    dp_event_builder,
    gaussian_mechanism,
    mechanism_calibration,
    pld,
    privacy_accountant,
    rdp,
)
from undertone_dp.dp_accounting.dp_event import (
    ComposedDpEvent,
    DiscreteGaussianDpEvent,
    DiscreteLaplaceDpEvent,
    DpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    MixtureOfGaussiansDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PermuteAndFlipDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    RepeatAndSelectDpEvent,
    SampledWithoutReplacementDpEvent,
    SampledWithReplacementDpEvent,
    SelfComposedDpEvent,
    SingleEpochTreeAggregationDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    UnsupportedDpEvent,
    ZCDpEvent,
)
from undertone_dp.dp_accounting._install import install
from undertone_dp.dp_accounting.dp_event_builder import DpEventBuilder
from undertone_dp.dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian
from undertone_dp.dp_accounting.mechanism_calibration import (
    ExplicitBracketInterval,
    LowerEndpointAndGuess,
    calibrate_dp_mechanism,
)
from undertone_dp.dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant, UnsupportedEventError

__all__ = [name for name in dir() if not name.startswith("_")]
