"""Privacy losses of mechanisms that add noise, under the names of `dp_accounting.pld.privacy_loss_mechanism`.

A loss is that of `mu_upper` against `mu_lower`, and falls as the output `x` grows. `ADD` compares the noise with noise that is moved up,
`REMOVE` noise that is moved down with the noise, `REPLACE` noise that is moved down with noise that is moved up. Noise is moved with
`sampling_prob`.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from undertone_dp import _native
from undertone_dp.dp_accounting.pld import common
from undertone_dp.dp_accounting.pld._monotone_loss import (
    AdditiveNoisePrivacyLoss,
    AdjacencyType,
    ConnectDotsBounds,
    MonotonePrivacyLoss,
    TailPrivacyLossDistribution,
    check_sampling_probability,
    least_noise,
    pointwise,
)
from undertone_dp.dp_accounting.pld._mixture_loss import MixtureGaussianPrivacyLoss

__all__ = [
    "AdditiveNoisePrivacyLoss",
    "AdjacencyType",
    "ConnectDotsBounds",
    "DiscreteGaussianPrivacyLoss",
    "DiscreteLaplacePrivacyLoss",
    "GaussianPrivacyLoss",
    "LaplacePrivacyLoss",
    "MixtureGaussianPrivacyLoss",
    "MonotonePrivacyLoss",
    "TailPrivacyLossDistribution",
]


# More outputs than this on each side take seconds, and hundreds of megabytes.
_MAX_TRUNCATION_BOUND = 1 << 21


def _no_replace(adjacency_type: AdjacencyType) -> None:
    if adjacency_type == AdjacencyType.REPLACE:
        raise NotImplementedError("REPLACE adjacency type is not supported for this noise")


def _amplified(epsilon: float, sampling_prob: float) -> float:
    """The epsilon of a release of which sampling makes one with `epsilon`."""
    check_sampling_probability(sampling_prob)
    return math.log1p(math.expm1(epsilon) / sampling_prob)


class LaplacePrivacyLoss(AdditiveNoisePrivacyLoss):
    """Laplace noise of scale `parameter`."""

    def __init__(
        self,
        parameter: float,
        sensitivity: float = 1,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> None:
        if not parameter > 0:
            raise ValueError(f"parameter must be positive, got {parameter}")
        _no_replace(adjacency_type)
        super().__init__(sensitivity, False, sampling_prob, adjacency_type)
        self._parameter = parameter
        self._max_loss = sensitivity / parameter

    @property
    def parameter(self) -> float:
        """The scale of the noise."""
        return self._parameter

    def privacy_loss_tail(self) -> TailPrivacyLossDistribution:
        first, last = self._moved(0.0), self._moved(self._sensitivity)
        masses = {
            self.privacy_loss(first): self.mu_upper_cdf(first),
            self.privacy_loss(last): 1 - self.mu_upper_cdf(last),
        }
        return TailPrivacyLossDistribution(first, last, masses)

    def connect_dots_bounds(self) -> ConnectDotsBounds:
        first, last = self._moved(0.0), self._moved(self._sensitivity)
        return ConnectDotsBounds(epsilon_upper=self.privacy_loss(first), epsilon_lower=self.privacy_loss(last))

    def noise_cdf(self, x: Any) -> Any:
        return pointwise(lambda x: np.exp(self._log_cdf(x)), x)

    def noise_log_cdf(self, x: Any) -> Any:
        return pointwise(self._log_cdf, x)

    def _log_cdf(self, x: np.ndarray) -> np.ndarray:
        size = -np.abs(x) / self._parameter - math.log(2)
        return np.where(x < 0, size, np.log1p(-np.exp(size)))

    def _full_loss(self, x: np.ndarray) -> np.ndarray:
        straight = (self._sensitivity - 2 * x) / self._parameter
        return np.clip(straight, -self._max_loss, self._max_loss)

    def _full_inverse(self, losses: np.ndarray) -> np.ndarray:
        x = 0.5 * (self._sensitivity - self._parameter * losses)
        return np.where(losses > self._max_loss, -np.inf, np.where(losses <= -self._max_loss, np.inf, x))

    @classmethod
    def from_privacy_guarantee(
        cls,
        privacy_parameters: common.DifferentialPrivacyParameters,
        sensitivity: float = 1,
        pessimistic_estimate: bool = True,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> LaplacePrivacyLoss:
        """The noise that holds `epsilon` without any delta."""
        parameter = sensitivity / _amplified(privacy_parameters.epsilon, sampling_prob)
        return cls(parameter, sensitivity, sampling_prob, adjacency_type)


class GaussianPrivacyLoss(AdditiveNoisePrivacyLoss):
    """Gaussian noise. Outputs of a total probability of at most `e^log_mass_truncation_bound` are cut off."""

    def __init__(
        self,
        standard_deviation: float,
        sensitivity: float = 1,
        pessimistic_estimate: bool = True,
        log_mass_truncation_bound: float = -50,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> None:
        if not standard_deviation > 0:
            raise ValueError(f"standard_deviation must be positive, got {standard_deviation}")
        if not log_mass_truncation_bound <= 0:
            raise ValueError(f"log_mass_truncation_bound must be at most 0, got {log_mass_truncation_bound}")
        super().__init__(sensitivity, False, sampling_prob, adjacency_type)
        self._standard_deviation = standard_deviation
        self._pessimistic_estimate = pessimistic_estimate
        self._log_mass_truncation_bound = log_mass_truncation_bound

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of the noise."""
        return self._standard_deviation

    def _ends(self) -> tuple[float, float]:
        half = 0.5 * math.exp(self._log_mass_truncation_bound)
        reach = -NormalDist(0, self._standard_deviation).inv_cdf(half)
        return self._moved(-reach), self._moved(self._sensitivity + reach)

    def privacy_loss_tail(self) -> TailPrivacyLossDistribution:
        first, last = self._ends()
        if not self._pessimistic_estimate:
            return TailPrivacyLossDistribution(first, last, {self.privacy_loss(first): self.mu_upper_cdf(first)})
        above = 1 - self.mu_upper_cdf(last)
        masses = {math.inf: self.mu_upper_cdf(first), self.privacy_loss(last): above}
        return TailPrivacyLossDistribution(first, last, masses)

    def connect_dots_bounds(self) -> ConnectDotsBounds:
        first, last = self._ends()
        return ConnectDotsBounds(epsilon_upper=self.privacy_loss(first), epsilon_lower=self.privacy_loss(last))

    def noise_cdf(self, x: Any) -> Any:
        return pointwise(lambda x: np.exp(self._log_cdf(x)), x)

    def noise_log_cdf(self, x: Any) -> Any:
        return pointwise(self._log_cdf, x)

    def _log_cdf(self, x: np.ndarray) -> np.ndarray:
        places = np.ascontiguousarray(x / self._standard_deviation).ravel()
        return np.asarray(_native._ln_normal_cdf(places)).reshape(np.shape(x))

    def _full_loss(self, x: np.ndarray) -> np.ndarray:
        s = self._sensitivity
        return s * (0.5 * s - x) / self._standard_deviation**2

    def _full_inverse(self, losses: np.ndarray) -> np.ndarray:
        return 0.5 * self._sensitivity - losses * self._standard_deviation**2 / self._sensitivity

    def _replaced_inverse(self, losses: np.ndarray) -> np.ndarray:
        # With `u = e^(-x s / v)` and `c = e^(-s s / 2 v)` the loss is that of `(1 - q + q c u) / (1 - q + q c / u)`, so
        # `sinh(ln u - loss / 2) = (1 - q) / (q c) sinh(loss / 2)`.
        q, s, v = self._sampling_prob, self._sensitivity, self._standard_deviation**2
        if q == 1:
            return -0.5 * losses * v / s
        shift = math.log1p(-q) - math.log(q) + 0.5 * s * s / v
        size = np.abs(losses)
        with np.errstate(divide="ignore", over="ignore"):
            power = shift + 0.5 * size + np.log(-0.5 * np.expm1(-size))
            asinh = np.where(
                power <= 0,
                np.arcsinh(np.exp(np.minimum(power, 0))),
                power + np.log1p(np.sqrt(1 + np.exp(-2 * np.maximum(power, 0)))),
            )
        return -(0.5 * losses + np.sign(losses) * asinh) * v / s

    @classmethod
    def from_privacy_guarantee(
        cls,
        privacy_parameters: common.DifferentialPrivacyParameters,
        sensitivity: float = 1,
        pessimistic_estimate: bool = True,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> GaussianPrivacyLoss:
        """The least noise that holds `epsilon` with `delta` in the direction of `adjacency_type`."""
        check_sampling_probability(sampling_prob)
        if not 0 < privacy_parameters.delta < 1:
            raise ValueError(f"delta must be strictly between 0 and 1, got {privacy_parameters.delta}")
        moved = 2 * sensitivity if adjacency_type == AdjacencyType.REPLACE else sensitivity
        epsilon, delta = privacy_parameters.epsilon, privacy_parameters.delta

        def make(noise: float) -> GaussianPrivacyLoss:
            return cls(noise, sensitivity, pessimistic_estimate, -50, sampling_prob, adjacency_type)

        make(1.0)
        # The noise of the release without sampling is enough.
        enough = _native.gaussian_noise_multiplier(epsilon, delta) * moved
        return make(least_noise(lambda noise: make(noise).get_delta_for_epsilon(epsilon) <= delta, enough))


class DiscreteLaplacePrivacyLoss(AdditiveNoisePrivacyLoss):
    """Discrete Laplace noise: the probability of an integer `x` is proportional to `e^(-parameter |x|)`."""

    def __init__(
        self,
        parameter: float,
        sensitivity: int = 1,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> None:
        if not parameter > 0:
            raise ValueError(f"parameter must be positive, got {parameter}")
        _no_replace(adjacency_type)
        super().__init__(sensitivity, True, sampling_prob, adjacency_type)
        self._parameter = parameter
        self._max_loss = sensitivity * parameter

    @property
    def parameter(self) -> float:
        """The rate at which the noise's probabilities fall."""
        return self._parameter

    def privacy_loss_tail(self) -> TailPrivacyLossDistribution:
        first, last = self._moved(1), self._moved(self._sensitivity - 1)
        masses = {
            self.privacy_loss(first - 1): self.mu_upper_cdf(first - 1),
            self.privacy_loss(last + 1): 1 - self.mu_upper_cdf(last),
        }
        return TailPrivacyLossDistribution(first, last, masses)

    def connect_dots_bounds(self) -> ConnectDotsBounds:
        return ConnectDotsBounds(lower_x=self._moved(0), upper_x=self._moved(self._sensitivity))

    def noise_cdf(self, x: Any) -> Any:
        return pointwise(lambda x: np.exp(self._log_cdf(x)), x)

    def noise_log_cdf(self, x: Any) -> Any:
        return pointwise(self._log_cdf, x)

    def _log_cdf(self, x: np.ndarray) -> np.ndarray:
        a, whole = self._parameter, np.floor(x)
        norm = a + math.log1p(math.exp(-a))
        below = a * np.minimum(whole + 1, 0) - norm
        above = np.log1p(-np.exp(-a * np.maximum(whole, 0) - norm))
        return np.where(whole < 0, below, above)

    def _full_loss(self, x: np.ndarray) -> np.ndarray:
        straight = (self._sensitivity - 2 * x) * self._parameter
        return np.clip(straight, -self._max_loss, self._max_loss)

    def _full_inverse(self, losses: np.ndarray) -> np.ndarray:
        x = np.floor(0.5 * (self._sensitivity - losses / self._parameter))
        return np.where(losses > self._max_loss, -np.inf, np.where(losses <= -self._max_loss, np.inf, x))

    @classmethod
    def from_privacy_guarantee(
        cls,
        privacy_parameters: common.DifferentialPrivacyParameters,
        sensitivity: int = 1,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> DiscreteLaplacePrivacyLoss:
        """The noise that holds `epsilon` without any delta."""
        if not (isinstance(sensitivity, int) and sensitivity > 0):
            raise ValueError(f"sensitivity must be a positive integer, got {sensitivity}")
        parameter = _amplified(privacy_parameters.epsilon, sampling_prob) / sensitivity
        return cls(parameter, sensitivity, sampling_prob, adjacency_type)


class DiscreteGaussianPrivacyLoss(AdditiveNoisePrivacyLoss):
    """Discrete Gaussian noise from `-truncation_bound` to `truncation_bound`, which by default leaves out at most 1e-30."""

    def __init__(
        self,
        sigma: float,
        sensitivity: int = 1,
        truncation_bound: int | None = None,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> None:
        if not sigma > 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        _no_replace(adjacency_type)
        super().__init__(sensitivity, True, sampling_prob, adjacency_type)
        if truncation_bound is None:
            # The tail beyond t standard deviations is at most `2 e^(-t t / 2)`.
            truncation_bound = math.ceil(math.sqrt(2 * math.log(2e30)) * sigma)
        if 2 * truncation_bound < sensitivity:
            raise ValueError(f"truncation_bound must be at least half the sensitivity {sensitivity}, got {truncation_bound}")
        if truncation_bound > _MAX_TRUNCATION_BOUND:
            raise ValueError(
                f"truncation_bound must be at most 2^21, got {truncation_bound}: take sigma below 1.7e5, or ask "
                "udp.Accountant('rdp')"
            )
        self._sigma = sigma
        self._truncation_bound = truncation_bound
        places = np.arange(-truncation_bound, truncation_bound + 1)
        weights = np.exp(-0.5 * (places / sigma) ** 2)
        self._places, self._probs = places, weights / weights.sum()
        self._cdf = np.concatenate([[0.0], np.cumsum(self._probs)])

    def standard_deviation(self) -> float:
        """The standard deviation of the truncated noise."""
        return math.sqrt(float(np.sum(self._probs * self._places**2)))

    def _ends(self) -> tuple[int, int]:
        reach = self._truncation_bound
        if self._sampling_prob < 1:
            return -reach, reach
        return self._moved(self._sensitivity - reach), self._moved(reach)

    def privacy_loss_tail(self) -> TailPrivacyLossDistribution:
        first, last = self._ends()
        is_certain = self._sampling_prob == 1 or self.adjacency_type == AdjacencyType.REMOVE
        # Under ADD with sampling, no output has an infinite loss.
        return TailPrivacyLossDistribution(first, last, {math.inf: self.mu_upper_cdf(first - 1) if is_certain else 0.0})

    def connect_dots_bounds(self) -> ConnectDotsBounds:
        first, last = self._ends()
        return ConnectDotsBounds(lower_x=first, upper_x=last)

    def noise_cdf(self, x: Any) -> Any:
        return pointwise(self._noise_cdf, x)

    def _noise_cdf(self, x: np.ndarray) -> np.ndarray:
        reach = self._truncation_bound
        places = np.clip(np.floor(x), -reach - 1, reach) + reach + 1
        return np.minimum(self._cdf[places.astype(int)], 1.0)

    def noise_log_cdf(self, x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return pointwise(lambda x: np.log(self._noise_cdf(x)), x)

    def _full_loss(self, x: np.ndarray) -> np.ndarray:
        s, reach = self._sensitivity, self._truncation_bound
        if ((x < -reach) | (x > reach + s)).any():
            raise ValueError(f"x must be an output of the mechanism, got {x}")
        inside = s * (0.5 * s - x) / self._sigma**2
        return np.where(x < s - reach, np.inf, np.where(x > reach, -np.inf, inside))

    def _full_inverse(self, losses: np.ndarray) -> np.ndarray:
        s, reach = self._sensitivity, self._truncation_bound
        x = np.floor(0.5 * s - losses * self._sigma**2 / s)
        return np.clip(x, s - reach - 1, reach)

    @classmethod
    def from_privacy_guarantee(
        cls,
        privacy_parameters: common.DifferentialPrivacyParameters,
        sensitivity: int = 1,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> DiscreteGaussianPrivacyLoss:
        """The least noise that holds `epsilon` with `delta` in both directions."""
        if not (isinstance(sensitivity, int) and sensitivity > 0):
            raise ValueError(f"sensitivity must be a positive integer, got {sensitivity}")
        check_sampling_probability(sampling_prob)
        epsilon, delta = privacy_parameters.epsilon, privacy_parameters.delta
        if not 0 < delta < 1:
            raise ValueError(f"delta must be strictly between 0 and 1, got {delta}")

        def holds(sigma: float) -> bool:
            # Noise that cannot reach half the sensitivity hides nothing. Removal is the direction with the larger delta.
            if sigma < sensitivity / 24:
                return False
            removed = cls(sigma, sensitivity, None, sampling_prob, AdjacencyType.REMOVE)
            return removed.get_delta_for_epsilon(epsilon) <= delta

        # Twice the continuous noise without sampling is enough.
        enough = 2 * sensitivity * _native.gaussian_noise_multiplier(epsilon, delta) + 1
        if not holds(enough):
            raise ValueError(f"sigma {enough} does not hold epsilon {epsilon} and delta {delta}")
        return cls(least_noise(holds, enough), sensitivity, None, sampling_prob, adjacency_type)
