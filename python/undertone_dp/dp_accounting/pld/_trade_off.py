"""The power of tests between two neighbours, from statements of epsilon and delta."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

_NORMAL = NormalDist()
_RATES = np.logspace(-12, math.log10(0.5), 500)
# The deltas of the first statements, and the number of statements up to which more are added between those that decide.
_DELTAS = np.logspace(-18, 0, 30)
_ENOUGH = 200
# Rates at which the distance of Gaussians is nearly the largest: each pass lowers it by less than this part.
_NEAR = 0.98
# Relative change of a pass after which there is no other.
_SLIGHT = 1e-4


def _chosen(name: str, given: Sequence[float] | None, default: np.ndarray, is_open: bool) -> list[float]:
    values = np.unique(np.asarray(default if given is None else given, dtype=float)).tolist()
    within = " strictly between 0 and 1" if is_open else ""
    if not values or not all(0 < value < 1 if is_open else 0 <= value <= 1 for value in values):
        raise ValueError(f"{name} must be probabilities{within}, got {values}")
    return values


def _gaussian_shift(power: float, misses: float, rate: float) -> float:
    """The distance of two Gaussians at which the best test has this power (`1 - misses`) at this rate of false alarms."""
    if misses <= 0:
        return math.inf
    found = _NORMAL.inv_cdf(power) if power < 0.5 else -_NORMAL.inv_cdf(misses)
    return found - _NORMAL.inv_cdf(rate)


class _Statements:
    """Statements by their epsilon, and the largest power that they leave to a test at each rate."""

    def __init__(self, rates: list[float], epsilons: Sequence[float], deltas: Sequence[float]) -> None:
        self.rates = np.array(rates)
        self.epsilons, self.deltas = np.array(epsilons), np.array(deltas)
        self.add(np.array([]), [])

    def add(self, epsilons: np.ndarray, deltas: Sequence[float]) -> None:
        self.epsilons, own = np.unique([*self.epsilons, *epsilons], return_index=True)
        self.deltas = np.array([*self.deltas, *deltas])[own]

    def largest_shift(self) -> tuple[float, np.ndarray]:
        """The largest distance of Gaussians over the rates, and the epsilons halfway to the neighbours of statements that decide it."""
        rates, deltas = self.rates[:, None], self.deltas
        # Each statement holds for both roles of the neighbours.
        with np.errstate(over="ignore"):
            by_alarms = np.exp(self.epsilons) * rates + deltas
        by_misses = np.exp(-self.epsilons) * (1 - rates - deltas)
        power = np.minimum(by_alarms, 1 - by_misses).min(axis=1).tolist()
        misses = np.maximum(1 - by_alarms, by_misses).max(axis=1).tolist()
        shifts = np.array([_gaussian_shift(*at) for at in zip(power, misses, self.rates.tolist(), strict=True)])
        near = shifts >= _NEAR * shifts.max()
        decide = np.union1d(by_alarms[near].argmin(axis=1), by_misses[near].argmax(axis=1))
        places = np.union1d(decide, decide + 1)
        places = places[(places > 0) & (places < self.epsilons.size)]
        return float(shifts.max()), 0.5 * (self.epsilons[places - 1] + self.epsilons[places])


def gdp_parameter(
    epsilon: Callable[[float], float],
    delta: Callable[[float], float],
    false_positive_rates: Sequence[float] | None,
    deltas: Sequence[float] | None,
) -> float:
    """The smallest `mu` such that telling two Gaussians `mu` standard deviations apart is no harder at any of the rates.

    Infinite if losses are infinite with a probability above the smallest rate.
    """
    rates = _chosen("false_positive_rates", false_positive_rates, _RATES, is_open=True)
    own_deltas = _chosen("deltas", deltas, _DELTAS, is_open=False)
    if epsilon(rates[0]) == math.inf:
        return math.inf
    pairs = [(epsilon(own), own) for own in own_deltas if own < 1] + [(epsilon(0.0), 0.0), (0.0, delta(0.0))]
    stated = {own: least for own, least in sorted(pairs, reverse=True) if own < math.inf}
    held = _Statements(rates, list(stated), list(stated.values()))
    shift, halfway = held.largest_shift()
    while deltas is None and held.epsilons.size + halfway.size <= _ENOUGH:
        held.add(halfway, [delta(middle) for middle in halfway.tolist()])
        before, (shift, halfway) = shift, held.largest_shift()
        if before - shift <= _SLIGHT * before:
            break
    return max(0.0, shift)


def true_positive_rates(
    false_positive_rates: float | Sequence[float], epsilons: np.ndarray, deltas: Sequence[np.ndarray]
) -> np.ndarray:
    """The largest true positive rates that statements leave: the deltas at `epsilons` of a pair, and of the pair with its roles exchanged."""
    rates = np.asarray(false_positive_rates, dtype=float)
    if not ((rates >= 0) & (rates <= 1)).all():
        raise ValueError(f"false_positive_rates must be probabilities, got {false_positive_rates}")

    def largest(rate: float, own: np.ndarray, exchanged: np.ndarray) -> float:
        with np.errstate(over="ignore"):
            by_alarms = own + (np.exp(epsilons) * rate if rate > 0 else 0.0)
        by_misses = 1 - np.exp(-epsilons) * np.maximum(0.0, 1 - rate - exchanged)
        return float(min(1.0, by_alarms.min(), by_misses.min()))

    one, other = deltas
    found = [max(largest(rate, one, other), largest(rate, other, one)) for rate in rates.ravel().tolist()]
    return np.array(found).reshape(rates.shape)
