"""The accountant by privacy loss distributions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from undertone_dp.dp_accounting import dp_event
from undertone_dp.dp_accounting._native_accountant import NativeAccountant, Relation, kind
from undertone_dp.dp_accounting.pld import _trade_off

NeighborRel = Relation


class PLDAccountant(NativeAccountant):
    """Undertone's loss distributions. `value_discretization_interval` is accepted and changes nothing."""

    def __init__(
        self,
        neighboring_relation: Any = Relation.ADD_OR_REMOVE_ONE,
        value_discretization_interval: float = 1e-4,
    ) -> None:
        super().__init__(neighboring_relation, "pld", None)

    def _refusal(self, event: dp_event.DpEvent) -> str | None:
        sampled: Any = event
        inner = sampled.event if kind(event) == "PoissonSampledDpEvent" else event
        is_replace = self.neighboring_relation.name == "REPLACE_ONE"
        if kind(inner) == "RandomizedResponseDpEvent" and self.neighboring_relation.name == "ADD_OR_REMOVE_ONE":
            return "neighboring_relation must be `REPLACE_ONE` or `REPLACE_SPECIAL` for randomised response."
        if is_replace and kind(inner) in ("LaplaceDpEvent", "DiscreteLaplaceDpEvent", "MixtureOfGaussiansDpEvent"):
            return f"neighboring_relation must be `ADD_OR_REMOVE_ONE` or `REPLACE_SPECIAL` for {kind(inner)}; udp.Accountant can."
        return None

    def get_epsilon_bounds(self, target_delta: float) -> tuple[float, float]:
        """The epsilon that is certainly spent at `target_delta`, and one that is certainly enough."""
        if self._is_non_private:
            raise ValueError("nothing bounds epsilon after a release without privacy")
        return self._accountant.bounds(target_delta)

    def get_true_positive_rates(
        self, false_positive_rates: float | Sequence[float], deltas: Sequence[float] | None = None
    ) -> np.ndarray:
        """The largest true positive rate of any test at each false positive rate. `deltas` is accepted and changes nothing."""
        if self._is_non_private:
            return np.ones(np.shape(false_positive_rates))
        rates = [self._accountant.true_positive_rate(float(rate)) for rate in np.atleast_1d(false_positive_rates)]
        return np.array(rates).reshape(np.shape(false_positive_rates))

    def get_gdp_parameter_estimate(
        self, false_positive_rates: Sequence[float] | None = None, deltas: Sequence[float] | None = None
    ) -> float:
        """An estimate of the `mu` at which Gaussian differential privacy holds.

        It is the smallest `mu` whose trade-off curve is an upper bound on the true positive rate at each of the
        `false_positive_rates`: by default 500 from 1e-12 to 0.5. The bounds come from the epsilons at `deltas`: by default
        as many as change the estimate. More deltas make it smaller, more rates make it larger. It is no guarantee,
        because the rates between those given are not looked at. Infinite if losses are infinite with a probability above
        the smallest rate.
        """
        if self._is_non_private:
            return math.inf
        return _trade_off.gdp_parameter(self.get_epsilon, self.get_delta, false_positive_rates, deltas)
