"""Parameters, searches and convolutions that the other modules share, under the names of `dp_accounting.pld.common`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from undertone_dp import _native


@dataclasses.dataclass
class DifferentialPrivacyParameters:
    """An (epsilon, delta) statement."""

    epsilon: float
    delta: float = 0

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be at least 0, got {self.epsilon}")
        if not 0 <= self.delta <= 1:
            raise ValueError(f"delta must be in [0, 1], got {self.delta}")


@dataclasses.dataclass
class BinarySearchParameters:
    """Where a search looks, and how exact it is. The upper bound may be infinite if a first guess is given."""

    lower_bound: float
    upper_bound: float
    initial_guess: float | None = None
    tolerance: float = 1e-7
    discrete: bool = False


def inverse_monotone_function(
    func: Callable[[float], float],
    value: float,
    search_parameters: BinarySearchParameters,
    increasing: bool = False,
) -> float | None:
    """The end of the arguments at which `func` is at most `value`, or `None` if there are none.

    For a function that falls, that is the smallest such argument; for one that rises, the largest.
    """
    lower, upper = search_parameters.lower_bound, search_parameters.upper_bound
    width = 1 if search_parameters.discrete else 0.25 * search_parameters.tolerance
    good, bad = (lower, upper) if increasing else (upper, lower)
    if math.isfinite(good) and not func(good) <= value:
        return None
    if search_parameters.initial_guess is not None and lower < search_parameters.initial_guess < upper:
        good, bad = _around(func, value, search_parameters, increasing)
        if not math.isfinite(good):
            return None
    if not (math.isfinite(good) and math.isfinite(bad)):
        if increasing and math.isfinite(good):
            raise ValueError("initial_guess: expected a number for a search without an upper bound, got None")
        return None
    while abs(good - bad) > width:
        middle = (good + bad) // 2 if search_parameters.discrete else good + 0.5 * (bad - good)
        if middle in (good, bad):
            break
        good, bad = (middle, bad) if func(middle) <= value else (good, middle)
    if not increasing and func(bad) <= value:
        return bad
    return good


def _around(
    func: Callable[[float], float], value: float, search: BinarySearchParameters, increasing: bool
) -> tuple[float, float]:
    """An argument at which `func` is at most `value`, and one beside it at which it is not."""
    lower, upper, guess = search.lower_bound, search.upper_bound, search.initial_guess
    assert guess is not None
    width, previous = max(abs(guess - lower), search.tolerance), lower
    while guess < upper and (func(guess) <= value) == increasing:
        previous, guess, width = guess, guess + width, 2 * width
        if search.discrete:
            guess = math.ceil(guess) if math.isfinite(guess) else guess
    guess = min(guess, upper)
    return (previous, guess) if increasing else (guess, previous)


def dictionary_to_list(input_dictionary: Mapping[int, float]) -> tuple[int, list[float]]:
    """The smallest key, and the values from it on, with zeros where a key is missing."""
    if not input_dictionary:
        return 0, []
    first, last = min(input_dictionary), max(input_dictionary)
    return first, [input_dictionary.get(key, 0) for key in range(first, last + 1)]


def list_to_dictionary(
    input_list: Sequence[float] | Any, offset: int, tail_mass_truncation: float = 0
) -> Mapping[int, float]:
    """The values that are not zero, by their place after `offset`, without tails of at most half of the given mass."""
    values = np.asarray(input_list, dtype=float)
    half = 0.5 * tail_mass_truncation
    first = int(np.searchsorted(np.cumsum(values), half, side="right"))
    last = len(values) - int(np.searchsorted(np.cumsum(values[::-1]), half, side="right"))
    return {index + offset: value for index, value in enumerate(values.tolist()) if first <= index < last and value}


def convolve_dictionary(
    dictionary1: Mapping[int, float], dictionary2: Mapping[int, float], tail_mass_truncation: float = 0
) -> Mapping[int, float]:
    """The convolution of two sequences, without tails of at most half of the given mass."""
    (first, values), (other, factors) = dictionary_to_list(dictionary1), dictionary_to_list(dictionary2)
    return list_to_dictionary(convolve(values, factors), first + other, tail_mass_truncation)


def convolve(values: Any, factors: Any) -> np.ndarray:
    """The convolution of two sequences of numbers that are not negative."""
    return np.asarray(_native._convolve(np.ascontiguousarray(values, float), np.ascontiguousarray(factors, float)))


def compute_self_convolve_bounds(
    input_list: Sequence[float] | Any,
    num_times: int,
    tail_mass_truncation: float = 0,
    orders: Sequence[float] | None = None,
) -> tuple[int, int]:
    """The places outside which the convolution has at most half of the given mass on each side, by Chernoff's bound."""
    values = np.ascontiguousarray(input_list, float)
    own = None if orders is None else [float(order) for order in orders]
    return _native._self_convolution_bounds(values, num_times, tail_mass_truncation, own)


def self_convolve(
    input_list: Sequence[float] | Any, num_times: int, tail_mass_truncation: float = 0
) -> tuple[int, list[float]]:
    """The first place and the values of the `num_times`-fold convolution. A cut tail is wrapped around, not lost."""
    first, last = compute_self_convolve_bounds(input_list, num_times, tail_mass_truncation)
    values = np.ascontiguousarray(input_list, float)
    return first, np.asarray(_native._self_convolve(values, num_times, first, last)).tolist()


def self_convolve_dictionary(
    input_dictionary: Mapping[int, float], num_times: int, tail_mass_truncation: float = 0
) -> Mapping[int, float]:
    """The `num_times`-fold convolution of a sequence with itself."""
    first, values = dictionary_to_list(input_dictionary)
    start, sums = self_convolve(values, num_times, tail_mass_truncation)
    return list_to_dictionary(sums, start + first * num_times)


def log_a_times_exp_b_plus_c(a: float, b: float, c: float) -> float:
    """The logarithm of `a e^b + c`, also where `e^b` overflows."""
    if a == 0:
        return math.log(c)
    if c == 0:
        return math.log(a) + b
    first, second = math.log(abs(a)) + b, math.log(abs(c))
    high, low = max(first, second), min(first, second)
    sign = 1 if (a > 0) == (c > 0) else -1
    return high + math.log1p(sign * math.exp(low - high))


def log_sinh(a: float) -> float:
    """The logarithm of `sinh(a)`, and 0 for 0, which the callers multiply by a sign of 0."""
    if a < 0:
        raise ValueError(f"a must be at least 0, got {a}")
    return a - math.log(2) + math.log(-math.expm1(-2 * a)) if a > 0 else 0.0


def asinh_exp(a: float, b: float) -> float:
    """The inverse hyperbolic sine of `b e^a`, also where `e^a` overflows."""
    if b == 0:
        return 0.0
    power = a + math.log(abs(b))
    size = math.asinh(math.exp(power)) if power <= 0 else power + math.log1p(math.sqrt(1 + math.exp(-2 * power)))
    return math.copysign(size, b)
