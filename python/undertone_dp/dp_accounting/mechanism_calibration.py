"""The value of a parameter at which an accountant reaches a target."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from undertone_dp.dp_accounting import dp_event, privacy_accountant

_MAX_DOUBLINGS = 30


class BracketInterval:
    """Where the value is searched."""


@dataclasses.dataclass
class ExplicitBracketInterval(BracketInterval):
    """Two ends with the value between them."""

    endpoint_1: float
    endpoint_2: float


@dataclasses.dataclass
class LowerEndpointAndGuess(BracketInterval):
    """A lower end and a guess; the distance doubles until the value lies between."""

    lower_endpoint: float
    initial_guess: float


class NoBracketIntervalFoundError(Exception):
    """No interval with the value was found."""


class NonEmptyAccountantError(Exception):
    """A fresh accountant that has composed something."""


def _search_for_explicit_bracket_interval(
    bracket_interval: LowerEndpointAndGuess, epsilon_gap: Callable[[float], float]
) -> ExplicitBracketInterval:
    lower, upper = bracket_interval.lower_endpoint, bracket_interval.initial_guess
    if not lower < upper:
        raise ValueError(f"lower_endpoint ({lower}) must be less than initial_guess ({upper}).")
    at_lower, width = epsilon_gap(lower), upper - lower
    for _ in range(_MAX_DOUBLINGS):
        at_upper = epsilon_gap(upper)
        if (at_lower > 0) != (at_upper > 0) or at_upper == 0:
            return ExplicitBracketInterval(lower, upper)
        lower, at_lower, width = upper, at_upper, 2 * width
        upper = lower + width
    raise NoBracketIntervalFoundError(f"no bracketing interval was found up to {upper}")


def _bisect(function: Callable[[float], float], first: float, second: float, tol: float, is_any_root: bool = True) -> float:
    """The end at which `function` is not positive, of an interval of length `tol` around a root. Any root is one, or the outermost."""
    if (function(first) > 0) == (function(second) > 0):
        raise ValueError("the values at the ends must have opposite signs")
    good, bad = (second, first) if function(first) > 0 else (first, second)
    while abs(good - bad) > tol:
        middle = good + 0.5 * (bad - good)
        if middle in (good, bad):
            break
        at_middle = function(middle)
        if at_middle == 0 and is_any_root:
            return middle
        good, bad = (good, middle) if at_middle > 0 else (middle, bad)
    return good


def calibrate_dp_mechanism(
    make_fresh_accountant: Callable[[], privacy_accountant.PrivacyAccountant],
    make_event_from_param: Callable[[Any], dp_event.DpEvent],
    target_epsilon: float,
    target_delta: float,
    bracket_interval: BracketInterval | None = None,
    discrete: bool = False,
    tol: float | None = None,
) -> float | int:
    """A value of the parameter at which epsilon is at most `target_epsilon`, within `tol` of one where it is not."""
    if not callable(make_fresh_accountant):
        raise TypeError(f"make_fresh_accountant must be callable, got {type(make_fresh_accountant)}.")
    if not callable(make_event_from_param):
        raise TypeError(f"make_event_from_param must be callable, got {type(make_event_from_param)}.")
    if not target_epsilon >= 0:
        raise ValueError(f"target_epsilon must be nonnegative, got {target_epsilon}.")
    if not 0 <= target_delta <= 1:
        raise ValueError(f"target_delta must be in range [0, 1], got {target_delta}.")
    if tol is None:
        tol = 0.5 if discrete else 1e-6
    if not tol > 0:
        raise ValueError(f"tol must be positive, got {tol}.")
    if bracket_interval is None:
        bracket_interval = LowerEndpointAndGuess(0, 1)

    def gap(value: float) -> float:
        accountant = make_fresh_accountant()
        if accountant.ledger != dp_event.NoOpDpEvent():
            raise NonEmptyAccountantError(f"make_fresh_accountant returned one with {accountant.ledger}")
        accountant.compose(make_event_from_param(round(value) if discrete else value))
        return accountant.get_epsilon(target_delta) - target_epsilon

    match bracket_interval:
        case LowerEndpointAndGuess():
            interval = _search_for_explicit_bracket_interval(bracket_interval, gap)
        case ExplicitBracketInterval():
            interval = bracket_interval
        case _:
            raise TypeError(f"Unrecognized bracket_interval type: {type(bracket_interval)}")
    first, second = interval.endpoint_1, interval.endpoint_2
    at_first, at_second = gap(first), gap(second)
    is_bracket = (at_first > 0) != (at_second > 0)
    # An epsilon of 0 holds on from some value, so that a value that has it may be far beyond.
    is_any_root = target_epsilon > 0
    for end, at in ((first, at_first), (second, at_second)):
        if at == 0 and (is_any_root or not is_bracket):
            return round(end) if discrete else float(end)
    if not is_bracket:
        raise ValueError(f"Bracket interval [{first}, {second}] did not bracket a solution: {at_first}, {at_second}.")
    if not discrete:
        return float(_bisect(gap, first, second, tol, is_any_root))
    good, bad = (second, first) if at_first > 0 else (first, second)
    good = math.floor(good) if good > bad else math.ceil(good)
    while abs(good - bad) > max(1, tol):
        middle = round(0.5 * (good + bad))
        if middle in (good, bad):
            break
        good, bad = (good, middle) if gap(middle) > 0 else (middle, bad)
    return round(good)
