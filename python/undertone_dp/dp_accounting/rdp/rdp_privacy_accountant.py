"""The accountant by Renyi divergences."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import undertone_dp as udp
from undertone_dp.dp_accounting import dp_event
from undertone_dp.dp_accounting._native_accountant import NativeAccountant, Relation, effective_noise, exchanged, kind

NeighborRel = Relation


def _checked(orders: Sequence[float], rdp: Sequence[float]) -> list[tuple[float, float]]:
    pairs = list(zip(np.atleast_1d(orders).tolist(), np.atleast_1d(rdp).tolist(), strict=True))
    for order, divergence in pairs:
        if not order >= 1:
            raise ValueError(f"Renyi divergence order must be at least 1, got {order}.")
        if not divergence >= 0:
            raise ValueError(f"Renyi divergence must be at least 0, got {divergence}.")
    return pairs


def _log1m_exp(x: float) -> float:
    return math.log(-math.expm1(x)) if x < 0 else -math.inf


def _best(pairs: list[tuple[float, float]], value: Callable[[float, float], float]) -> tuple[float, float]:
    return min(((value(order, divergence), order) for order, divergence in pairs), key=lambda found: found[0])


def compute_epsilon(orders: Sequence[float], rdp: Sequence[float], delta: float) -> tuple[float, float]:
    """The smallest epsilon at `delta` over the orders, and its order (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    if delta < 0:
        raise ValueError(f"Delta cannot be negative, got {delta}.")
    pairs = _checked(orders, rdp)

    def epsilon(order: float, divergence: float) -> float:
        if delta >= 1 or delta**2 + math.expm1(-divergence) > 0:
            return 0.0
        if divergence == math.inf or (delta == 0 and order < math.inf):
            return math.inf if divergence > 0 else 0.0
        if order == math.inf:
            return divergence
        if order < 1.01:
            return math.inf
        return max(0.0, divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))

    return _best(pairs, epsilon)


def compute_delta(orders: Sequence[float], rdp: Sequence[float], epsilon: float) -> tuple[float, float]:
    """The smallest delta at `epsilon` over the orders, and its order."""
    if epsilon < 0:
        raise ValueError(f"Epsilon cannot be negative, got {epsilon}.")
    pairs = _checked(orders, rdp)

    def delta(order: float, divergence: float) -> float:
        variation = 0.5 * _log1m_exp(-divergence) if divergence > 0 else -math.inf
        if epsilon == math.inf:
            return 0.0
        if order == math.inf:
            tail = 0.0 if divergence > epsilon else -math.inf
        elif order < 1.01 or divergence == math.inf:
            tail = 0.0
        else:
            tail = (order - 1) * (divergence - epsilon + math.log1p(-1 / order)) - math.log(order)
        return math.exp(min(variation, tail, 0.0))

    return _best(pairs, delta)


class RdpAccountant(NativeAccountant):
    """Undertone's Renyi divergences at `orders`, which are those of the original package by default."""

    def __init__(
        self,
        orders: Sequence[float] | None = None,
        neighboring_relation: Any = Relation.ADD_OR_REMOVE_ONE,
    ) -> None:
        default = udp.Accountant("rdp").curve()[0]
        self._orders = np.array(default if orders is None else orders, dtype=float)
        if self._orders.size == 0 or not (self._orders >= 1).all():
            raise ValueError(f"orders must be numbers of at least 1, got {self._orders.tolist()}.")
        usable = [order for order in self._orders.tolist() if 1 < order < math.inf]
        super().__init__(neighboring_relation, "rdp", usable or None)

    def _refusal(self, event: dp_event.DpEvent) -> str | None:
        relation = self.neighboring_relation.name
        if kind(event) == "SingleEpochTreeAggregationDpEvent" and relation != "REPLACE_SPECIAL":
            return "neighboring_relation must be REPLACE_SPECIAL for tree aggregation; udp.Accountant can replace a record"
        sampled = ("PoissonSampledDpEvent", "MixtureOfGaussiansDpEvent", "TruncatedSubsampledGaussianDpEvent")
        if kind(event) in sampled and relation == "REPLACE_ONE":
            return "neighboring_relation must not be REPLACE_ONE for Poisson sampling; udp.Accountant can by loss distributions"
        return None

    @property
    def orders(self) -> np.ndarray:
        """The orders."""
        return self._orders.copy()

    @property
    def rdp(self) -> np.ndarray:
        """The divergence of everything composed at each order; infinite where none is known."""
        return self._rdp.copy()

    @property
    def _rdp(self) -> np.ndarray:
        orders = self._orders
        if self._is_non_private:
            return np.full(orders.shape, np.inf)
        if self._accountant.rounds == 0:
            return np.zeros(orders.shape)
        inside = (orders > 1) & np.isfinite(orders)
        # Divergences grow with the order: one at a larger order bounds the one at order 1.
        curve = self._accountant.curve(np.where(inside, orders, 1 + 1e-9).tolist())[1]
        return np.where(np.isposinf(orders), self._pure_epsilon(), curve)

    @property
    def _has_statement(self) -> bool:
        """True if an event is an (epsilon, delta) statement, which has no divergences."""
        return any("ApproximateDp" in repr(event) for event, _ in self._accountant.events)

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """The smallest epsilon at `target_delta`, and its order."""
        if self._is_non_private:
            return math.inf, math.inf
        if self._has_statement:
            epsilon = super().get_epsilon(target_delta)
            if not 0 < target_delta < 1 or epsilon == math.inf:
                return epsilon, math.nan
            return epsilon, self._accountant.guarantee(target_delta).optimal_order or math.nan
        return compute_epsilon(self._orders.tolist(), self._rdp.tolist(), target_delta)

    def get_epsilon(self, target_delta: float) -> float:
        """The smallest epsilon at `target_delta` over the orders."""
        return self.get_epsilon_and_optimal_order(target_delta)[0]

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """The smallest delta at `target_epsilon`, which may be negative, and its order."""
        if self._is_non_private:
            return 1, math.inf
        if self._has_statement:
            return super().get_delta(target_epsilon), math.nan
        if target_epsilon < 0:
            delta, order = compute_delta(self._orders.tolist(), self._rdp.tolist(), -target_epsilon)
            return exchanged(target_epsilon, delta), order
        return compute_delta(self._orders.tolist(), self._rdp.tolist(), target_epsilon)

    def get_delta(self, target_epsilon: float) -> float:
        """The smallest delta at `target_epsilon` over the orders."""
        return self.get_delta_and_optimal_order(target_epsilon)[0]


def _effective_gaussian_noise_multiplier(event: Any) -> Any:
    z = effective_noise(event)
    if z is not None:
        return z
    parts = event.events if kind(event) == "ComposedDpEvent" else [event.event] if hasattr(event, "event") else []
    return next((_effective_gaussian_noise_multiplier(part) for part in parts if effective_noise(part) is None), event)


def _truncated_negative_binomial_mean(gamma: float, shape: float) -> float:
    """Expected number of runs: Papernot and Steinke (2022), Definition 1."""
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma must be in (0, 1], got {gamma}.")
    if gamma == 1 or shape == 1:
        return 1 / gamma
    log_gamma = math.log1p(gamma - 1) if gamma > 0.5 else math.log(gamma)
    odds = (1 - gamma) / gamma
    return odds / -log_gamma if shape == 0 else shape * odds / -math.expm1(shape * log_gamma)


def _gamma_truncated_negative_binomial(shape: float, mean: float) -> float:
    """The gamma of an expected number of runs."""
    if not mean >= 1:
        raise ValueError(f"mean must be at least 1, got {mean}.")
    low, high = -700.0, 0.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if _truncated_negative_binomial_mean(math.exp(middle), shape) > mean:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _compute_randomized_response_rdp(
    noise_parameter: float, num_buckets: int, orders: Sequence[float], neighboring_relation: Any
) -> Any:
    alphas = np.atleast_1d(np.array(orders, dtype=float))
    if not (alphas > 1).all():
        raise ValueError(f"Renyi divergence order alpha must be > 1, got {alphas.tolist()}.")
    event = dp_event.RandomizedResponseDpEvent(noise_parameter, num_buckets)
    return RdpAccountant(alphas.tolist(), neighboring_relation).compose(event).rdp


def _compute_rdp_poisson_subsampled_gaussian(q: float, noise_multiplier: float, orders: Sequence[float]) -> Any:
    if not 0 <= q <= 1:
        raise ValueError(f"Sampling rate must be in [0, 1], got {q}.")
    if not noise_multiplier >= 0:
        raise ValueError(f"Noise multiplier must be non-negative, got {noise_multiplier}.")
    event = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(noise_multiplier))
    return RdpAccountant(np.atleast_1d(orders).tolist()).compose(event).rdp.reshape(np.shape(orders))


def _compute_log_a(q: float, noise_multiplier: float, alpha: float) -> float:
    return (alpha - 1) * float(_compute_rdp_poisson_subsampled_gaussian(q, noise_multiplier, [alpha])[0])


_compute_log_a_frac = _compute_log_a
