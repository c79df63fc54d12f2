"""The parts that the privacy losses of all mechanisms share."""

from __future__ import annotations

import abc
import dataclasses
import enum
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


class AdjacencyType(enum.Enum):
    """The direction of a loss: the data set of `mu_lower` has one record more, one less, or another one."""

    ADD = "ADD"
    REMOVE = "REMOVE"
    REPLACE = "REPLACE"


@dataclasses.dataclass
class TailPrivacyLossDistribution:
    """The losses of outputs outside `[lower_x_truncation, upper_x_truncation]`, with their probabilities."""

    lower_x_truncation: float
    upper_x_truncation: float
    tail_probability_mass_function: Mapping[float, float]


@dataclasses.dataclass
class ConnectDotsBounds:
    """The range of epsilons to connect, or for discrete noise the range of outputs."""

    epsilon_upper: float | None = None
    epsilon_lower: float | None = None
    lower_x: int | None = None
    upper_x: int | None = None


def check_sampling_probability(sampling_prob: float) -> None:
    if not 0 < sampling_prob <= 1:
        raise ValueError(f"sampling_prob must be in (0, 1], got {sampling_prob}")


def least_noise(holds: Callable[[float], bool], enough: float) -> float:
    """The least noise within a relative 1e-8 that holds, where more noise up to `enough` holds in steps of one per cent.

    Delta need not fall as noise grows: with sampling, adding a record has a bounded loss at far too little noise.
    """
    high, low = enough, 0.99 * enough
    while low > 1e-4 * enough and holds(low):
        high, low = low, 0.99 * low
    while high - low > 1e-8 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def pointwise(function: Callable[[np.ndarray], np.ndarray], x: Any) -> Any:
    """The function's value at a number, or its values at each of several."""
    values = function(np.asarray(x, dtype=float))
    return float(values) if np.ndim(x) == 0 else values


class MonotonePrivacyLoss(metaclass=abc.ABCMeta):
    """A mechanism whose loss falls as its output grows."""

    def __init__(self, is_discrete: bool) -> None:
        self._is_discrete = is_discrete

    @abc.abstractmethod
    def mu_upper_cdf(self, x: Any) -> Any:
        """The probability under `mu_upper` of outputs up to `x`."""

    @abc.abstractmethod
    def mu_lower_log_cdf(self, x: Any) -> Any:
        """The logarithm of the probability under `mu_lower` of outputs up to `x`."""

    @abc.abstractmethod
    def privacy_loss_tail(self) -> TailPrivacyLossDistribution:
        """The losses of the outputs that a discretisation leaves out."""

    @abc.abstractmethod
    def connect_dots_bounds(self) -> ConnectDotsBounds:
        """The range that connect-the-dots covers."""

    @abc.abstractmethod
    def privacy_loss(self, x: float) -> float:
        """The loss of the output `x`."""

    @abc.abstractmethod
    def inverse_privacy_losses(self, privacy_losses: np.ndarray) -> np.ndarray:
        """For each loss the largest output with at least that loss; minus infinity if there is none."""

    def inverse_privacy_loss(self, privacy_loss: float) -> float:
        """The largest output with at least that loss; minus infinity if there is none."""
        return float(self.inverse_privacy_losses(np.array([float(privacy_loss)]))[0])

    def get_delta_for_epsilon(self, epsilon: Any) -> Any:
        """Delta at one epsilon, or at each of several: the outputs up to a certain one decide."""

        def delta(epsilons: np.ndarray) -> np.ndarray:
            last = np.atleast_1d(self.inverse_privacy_losses(np.atleast_1d(epsilons)))
            with np.errstate(over="ignore"):
                other = np.exp(np.atleast_1d(epsilons) + self.mu_lower_log_cdf(last))
            deltas = np.where(np.isneginf(last), 0.0, self.mu_upper_cdf(last) - other)
            return np.maximum(deltas, 0.0).reshape(np.shape(epsilons))

        return pointwise(delta, epsilon)


class AdditiveNoisePrivacyLoss(MonotonePrivacyLoss, metaclass=abc.ABCMeta):
    """Noise that is added to a number which one record changes by up to `sensitivity`."""

    def __init__(
        self,
        sensitivity: float,
        is_discrete: bool,
        sampling_prob: float = 1.0,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> None:
        if not sensitivity > 0:
            raise ValueError(f"sensitivity must be positive, got {sensitivity}")
        if is_discrete and not isinstance(sensitivity, (int, np.integer)):
            raise ValueError(f"sensitivity must be an integer, got {sensitivity}")
        check_sampling_probability(sampling_prob)
        super().__init__(is_discrete)
        self._sensitivity = sensitivity
        self._sampling_prob = sampling_prob
        self.adjacency_type = adjacency_type

    @abc.abstractmethod
    def noise_cdf(self, x: Any) -> Any:
        """The probability of noise up to `x`."""

    @abc.abstractmethod
    def noise_log_cdf(self, x: Any) -> Any:
        """The logarithm of the probability of noise up to `x`."""

    @abc.abstractmethod
    def _full_loss(self, x: np.ndarray) -> np.ndarray:
        """The loss of the noise against noise moved up, without sampling."""

    @abc.abstractmethod
    def _full_inverse(self, losses: np.ndarray) -> np.ndarray:
        """The largest output with at least that loss, of the noise against noise moved up, without sampling."""

    def _replaced_inverse(self, losses: np.ndarray) -> np.ndarray:
        raise NotImplementedError("REPLACE adjacency type is not supported for this noise")

    def _moved(self, x: Any) -> Any:
        """An output of the comparison with noise moved up, as one of this comparison."""
        return x if self.adjacency_type == AdjacencyType.ADD else x - self._sensitivity

    def mu_upper_cdf(self, x: Any) -> Any:
        if self.adjacency_type == AdjacencyType.ADD:
            return self.noise_cdf(x)
        q, s = self._sampling_prob, self._sensitivity
        return pointwise(lambda x: (1 - q) * self.noise_cdf(x) + q * self.noise_cdf(x + s), x)

    def mu_lower_log_cdf(self, x: Any) -> Any:
        if self.adjacency_type == AdjacencyType.REMOVE:
            return self.noise_log_cdf(x)
        q, s = self._sampling_prob, self._sensitivity
        if q == 1:
            return pointwise(lambda x: self.noise_log_cdf(x - s), x)
        stay, join = math.log1p(-q), math.log(q)
        return pointwise(lambda x: np.logaddexp(stay + self.noise_log_cdf(x), join + self.noise_log_cdf(x - s)), x)

    def privacy_loss(self, x: float) -> float:
        return float(self._losses(np.array([float(x)]))[0])

    def _losses(self, x: np.ndarray) -> np.ndarray:
        if self._is_discrete and (x != np.floor(x)).any():
            raise ValueError(f"x must be a whole number, got {x}")
        # Losses of noise moved down against the noise, and of the noise against noise moved up.
        match self.adjacency_type:
            case AdjacencyType.ADD:
                return -self._sampled(-self._full_loss(x))
            case AdjacencyType.REMOVE:
                return self._sampled(self._full_loss(x + self._sensitivity))
            case AdjacencyType.REPLACE:
                down, up = self._full_loss(x + self._sensitivity), -self._full_loss(x)
                return self._sampled(down) - self._sampled(up)

    def _sampled(self, losses: np.ndarray) -> np.ndarray:
        """`ln(1 - q + q e^loss)`."""
        q = self._sampling_prob
        if q == 1:
            return losses
        return np.logaddexp(math.log1p(-q), math.log(q) + losses)

    def inverse_privacy_losses(self, privacy_losses: np.ndarray) -> np.ndarray:
        losses = np.asarray(privacy_losses, dtype=float)
        if self.adjacency_type == AdjacencyType.REPLACE:
            return self._replaced_inverse(losses)
        is_add = self.adjacency_type == AdjacencyType.ADD
        q = self._sampling_prob
        if q == 1:
            return self._moved(self._full_inverse(losses))
        signed = -losses if is_add else losses
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # `ln(1 + (e^loss - 1) / q)`, which no sampling goes below.
            full = np.where(signed < 30, np.log1p(np.expm1(np.minimum(signed, 30)) / q), signed - math.log(q))
        is_below = signed <= math.log1p(-q)
        full = np.where(is_below, 0.0, full)
        x = self._moved(self._full_inverse(-full if is_add else full))
        return np.where(is_below, -np.inf if is_add else np.inf, x)
