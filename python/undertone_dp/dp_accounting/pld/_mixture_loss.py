"""Gaussian noise that is moved by a random amount."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from undertone_dp import _native
from undertone_dp.dp_accounting.pld._monotone_loss import (
    AdjacencyType,
    ConnectDotsBounds,
    MonotonePrivacyLoss,
    TailPrivacyLossDistribution,
    pointwise,
)


class MixtureGaussianPrivacyLoss(MonotonePrivacyLoss):
    """Gaussian noise moved by `sensitivities[i]` with probability `sampling_probs[i]`, against the noise alone."""

    def __init__(
        self,
        standard_deviation: float,
        sensitivities: Sequence[float],
        sampling_probs: Sequence[float],
        pessimistic_estimate: bool = True,
        log_mass_truncation_bound: float = -50,
        adjacency_type: AdjacencyType = AdjacencyType.REMOVE,
    ) -> None:
        moves, probs = np.array(sensitivities, dtype=float), np.array(sampling_probs, dtype=float)
        if not standard_deviation > 0:
            raise ValueError(f"standard_deviation must be positive, got {standard_deviation}")
        if not log_mass_truncation_bound <= 0:
            raise ValueError(f"log_mass_truncation_bound must be at most 0, got {log_mass_truncation_bound}")
        if moves.shape != probs.shape or moves.ndim != 1:
            raise ValueError(f"expected as many sensitivities as sampling_probs, got {moves.shape} and {probs.shape}")
        if not (moves >= 0).all():
            raise ValueError(f"sensitivities must be at least 0, got {moves.tolist()}")
        if not ((probs >= 0) & (probs <= 1)).all() or not math.isclose(probs.sum(), 1, abs_tol=1e-9):
            raise ValueError(f"sampling_probs must be probabilities that add up to 1, got {probs.tolist()}")
        if not (moves[probs > 0] > 0).any():
            raise ValueError(f"at least one sensitivity must be positive, got {moves.tolist()}")
        super().__init__(False)
        self._standard_deviation = standard_deviation
        self._sensitivities, self._sampling_probs = moves[probs > 0], probs[probs > 0]
        self._pessimistic_estimate = pessimistic_estimate
        self._log_mass_truncation_bound = log_mass_truncation_bound
        self.adjacency_type = adjacency_type

    def _refuse_replace(self) -> None:
        if self.adjacency_type == AdjacencyType.REPLACE:
            raise ValueError("REPLACE adjacency type is not supported for mixtures of Gaussians")

    def _precompute_privacy_loss_constants(self) -> tuple[np.ndarray, np.ndarray]:
        """Slopes and constants of the exponents: the loss is plus or minus `ln sum e^(slope x + constant)`."""
        self._refuse_replace()
        variance = self._standard_deviation**2
        constants = np.log(self._sampling_probs) - 0.5 * self._sensitivities**2 / variance
        sign = 1 if self.adjacency_type == AdjacencyType.ADD else -1
        return sign * self._sensitivities / variance, constants

    def noise_log_cdf(self, x: Any) -> Any:
        """The logarithm of the probability of noise up to `x`."""

        def log_cdf(x: np.ndarray) -> np.ndarray:
            places = np.ascontiguousarray(x / self._standard_deviation).ravel()
            return np.asarray(_native._ln_normal_cdf(places)).reshape(np.shape(x))

        return pointwise(log_cdf, x)

    def noise_cdf(self, x: Any) -> Any:
        """The probability of noise up to `x`."""
        return pointwise(lambda x: np.exp(self.noise_log_cdf(x)), x)

    def mu_upper_cdf(self, x: Any) -> Any:
        self._refuse_replace()
        if self.adjacency_type == AdjacencyType.ADD:
            return self.noise_cdf(x)
        parts = list(zip(self._sensitivities, self._sampling_probs, strict=True))
        return pointwise(lambda x: sum(p * self.noise_cdf(x + s) for s, p in parts), x)

    def mu_lower_log_cdf(self, x: Any) -> Any:
        self._refuse_replace()
        if self.adjacency_type == AdjacencyType.REMOVE:
            return self.noise_log_cdf(x)
        parts = list(zip(self._sensitivities, np.log(self._sampling_probs), strict=True))
        return pointwise(lambda x: np.logaddexp.reduce([log + self.noise_log_cdf(x - s) for s, log in parts]), x)

    def privacy_loss(self, x: float) -> float:
        slopes, constants = self._precompute_privacy_loss_constants()
        sign = -1 if self.adjacency_type == AdjacencyType.ADD else 1
        return sign * float(np.logaddexp.reduce(slopes * x + constants))

    def privacy_loss_for_single_gaussian(self, x: Any, sensitivity: Any = 1.0) -> Any:
        """The loss if the noise were always moved by `sensitivity`."""
        self._refuse_replace()
        s = np.asarray(sensitivity, dtype=float)
        half = 0.5 * s if self.adjacency_type == AdjacencyType.ADD else -0.5 * s
        return s * (half - x) / self._standard_deviation**2

    def inverse_privacy_loss_for_single_gaussian(self, privacy_loss: Any, sensitivity: Any = 1.0) -> Any:
        """The output with this loss if the noise were always moved by `sensitivity`."""
        self._refuse_replace()
        s = np.asarray(sensitivity, dtype=float)
        half = 0.5 * s if self.adjacency_type == AdjacencyType.ADD else -0.5 * s
        return half - np.asarray(privacy_loss) * self._standard_deviation**2 / s

    def inverse_privacy_loss(self, privacy_loss: float, precision: float = 1e-6) -> float:
        """The largest output with at least that loss, as exact as 64-bit numbers are, whatever `precision` is."""
        return float(self.inverse_privacy_losses(np.array([float(privacy_loss)]))[0])

    def inverse_privacy_losses(self, privacy_losses: np.ndarray, precision: float = 1e-6) -> np.ndarray:
        """For each loss the largest output with at least that loss, as exact as 64-bit numbers are."""
        slopes, constants = self._precompute_privacy_loss_constants()
        losses = np.asarray(privacy_losses, dtype=float)
        is_add = self.adjacency_type == AdjacencyType.ADD
        goal = -losses if is_add else losses
        fixed = slopes == 0
        # The part that moves must reach `ln(e^goal - p)`, where `p` is the probability of no move.
        still = float(np.logaddexp.reduce(constants[fixed])) if fixed.any() else -math.inf
        is_below = goal <= still
        goal = np.where(is_below, 0.0, goal)
        if still > -math.inf:
            rest = np.minimum(still - goal, -1e-300)
            goal = np.where(is_below, 0.0, goal + np.log(-np.expm1(rest)))
        x = _solved(np.abs(slopes[~fixed]), constants[~fixed], goal)
        x = x if is_add else -x
        return np.where(is_below, -np.inf if is_add else np.inf, x)

    def privacy_loss_tail(self, precision: float = 1e-4) -> TailPrivacyLossDistribution:
        self._refuse_replace()
        half = 0.5 * math.exp(self._log_mass_truncation_bound)
        reach = -NormalDist(0, self._standard_deviation).inv_cdf(half)
        first, last = self._quantile(half, reach, precision), reach
        if not self._pessimistic_estimate:
            return TailPrivacyLossDistribution(first, last, {self.privacy_loss(first): self.mu_upper_cdf(first)})
        masses = {math.inf: self.mu_upper_cdf(first), self.privacy_loss(last): 1 - self.mu_upper_cdf(last)}
        return TailPrivacyLossDistribution(first, last, masses)

    def _quantile(self, mass: float, reach: float, precision: float) -> float:
        """An output with at most `mass` below it, within `precision` of the largest one; noise alone goes down to `-reach`."""
        low = -reach
        if self.adjacency_type == AdjacencyType.REMOVE:
            low, high = -reach - float(self._sensitivities.max()), -reach - float(self._sensitivities.min())
            while high - low > precision:
                middle = 0.5 * (low + high)
                low, high = (middle, high) if self.mu_upper_cdf(middle) <= mass else (low, middle)
        # The last bit of the quantile may be off.
        gap = 1e-16 * self._standard_deviation
        while self.mu_upper_cdf(low) > mass:
            low, gap = low - gap, 2 * gap
        return low

    def connect_dots_bounds(self) -> ConnectDotsBounds:
        tail = self.privacy_loss_tail()
        return ConnectDotsBounds(
            epsilon_upper=self.privacy_loss(tail.lower_x_truncation),
            epsilon_lower=self.privacy_loss(tail.upper_x_truncation),
        )


def _solved(slopes: np.ndarray, constants: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """The root of `ln sum e^(slope x + constant) = goal` for positive slopes, by Newton from above, where the curve is convex."""
    x = np.min((goals[..., None] - constants) / slopes, axis=-1)
    for _ in range(100):
        exponents = x[..., None] * slopes + constants
        total = np.logaddexp.reduce(exponents, axis=-1)
        slope = np.sum(np.exp(exponents - total[..., None]) * slopes, axis=-1)
        step = (total - goals) / slope
        x = x - step
        if not (np.abs(step) > 1e-13 * (1 + np.abs(x))).any():
            break
    return x
