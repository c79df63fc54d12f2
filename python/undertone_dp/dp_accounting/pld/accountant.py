"""The least noise for a target, and advanced composition, under the names of `dp_accounting.pld.accountant`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import undertone_dp as udp
from undertone_dp.dp_accounting.pld import common, privacy_loss_distribution


def get_smallest_parameter(
    privacy_parameters: common.DifferentialPrivacyParameters,
    num_queries: int,
    privacy_loss_distribution_constructor: Callable[[float], privacy_loss_distribution.PrivacyLossDistribution],
    search_parameters: common.BinarySearchParameters,
) -> float | None:
    """The smallest parameter at which `num_queries` releases hold the statement; delta must fall as it grows."""

    def delta(parameter: float) -> float:
        once = privacy_loss_distribution_constructor(parameter)
        return float(once.self_compose(num_queries).get_delta_for_epsilon(privacy_parameters.epsilon))

    return common.inverse_monotone_function(delta, privacy_parameters.delta, search_parameters)


def _least(make: Callable[[float], udp.Event], rounds: int, target: Any, largest: float, smallest: float) -> float:
    """The least noise, by the search of Undertone; all noise from `largest` on holds the target."""
    return udp.calibrate.parameter(
        lambda noise: [(make(noise), rounds)],
        epsilon=target.epsilon,
        delta=target.delta,
        # The last digit of a loss distribution may miss the target where a closed form meets it.
        between=(smallest, 2 * largest),
        decreasing=True,
        recipe="pld",
    )


def get_smallest_laplace_noise(
    privacy_parameters: common.DifferentialPrivacyParameters, num_queries: int = 1, sensitivity: float = 1
) -> float:
    """The least scale of Laplace noise."""
    if privacy_parameters.epsilon == 0 and privacy_parameters.delta == 0:
        raise ValueError("no noise holds epsilon 0 and delta 0")
    # Without a delta, epsilons add up.
    largest = num_queries / privacy_parameters.epsilon if privacy_parameters.epsilon > 0 else math.inf
    if privacy_parameters.delta == 0:
        return sensitivity * largest
    # One release with total variation `1 - e^(-1 / (2 b))` of at most `delta / num_queries` holds at epsilon 0.
    largest = min(largest, -0.5 / math.log1p(-privacy_parameters.delta / num_queries))
    least = _least(lambda scale: udp.Event.Laplace(scale=scale), num_queries, privacy_parameters, largest, 1e-4 * largest)
    return sensitivity * least


def get_smallest_discrete_laplace_noise(
    privacy_parameters: common.DifferentialPrivacyParameters, num_queries: int = 1, sensitivity: int = 1
) -> float:
    """The largest parameter of discrete Laplace noise: the least noise."""
    if not privacy_parameters.epsilon > 0:
        raise ValueError(f"epsilon must be positive, got {privacy_parameters.epsilon}")
    largest = num_queries * sensitivity / privacy_parameters.epsilon
    if privacy_parameters.delta == 0:
        return 1 / largest

    def make(scale: float) -> udp.Event:
        return udp.Event.DiscreteLaplace(parameter=1 / scale, sensitivity=sensitivity)

    return 1 / _least(make, num_queries, privacy_parameters, largest, 1e-3 * largest)


def get_smallest_gaussian_noise(
    privacy_parameters: common.DifferentialPrivacyParameters, num_queries: int = 1, sensitivity: float = 1
) -> float:
    """The least standard deviation of Gaussian noise."""
    once = udp.gaussian.noise_multiplier(privacy_parameters.epsilon, privacy_parameters.delta)
    return sensitivity * math.sqrt(num_queries) * once


def get_smallest_subsampled_gaussian_noise(
    privacy_parameters: common.DifferentialPrivacyParameters,
    num_queries: int = 1,
    sensitivity: float = 1,
    sampling_prob: float = 1.0,
) -> float:
    """The least standard deviation of Gaussian noise on Poisson samples."""
    if sampling_prob == 1:
        return get_smallest_gaussian_noise(privacy_parameters, num_queries, sensitivity)
    largest = get_smallest_gaussian_noise(privacy_parameters, num_queries)

    def make(z: float) -> udp.Event:
        return udp.Event.PoissonGaussian(sampling_probability=sampling_prob, noise_multiplier=z)

    return sensitivity * _least(make, num_queries, privacy_parameters, largest, 1e-3 * largest)


def advanced_composition(
    privacy_parameters: common.DifferentialPrivacyParameters, num_queries: int, total_delta: float
) -> float | None:
    """The total epsilon of `num_queries` releases at `total_delta`, or `None` if none holds (Kairouz, Oh, Viswanath 2015)."""
    epsilon, delta = privacy_parameters.epsilon, privacy_parameters.delta
    # The releases are `(epsilon, 0)` except with this probability.
    aside = -math.expm1(num_queries * math.log1p(-delta)) if delta < 1 else 1.0
    if total_delta < aside:
        return None
    # With i false answers of a randomised response, the loss is `(k - 2 i) epsilon`.
    log_odds = math.log1p(math.exp(epsilon)) if epsilon < 700 else epsilon
    for lies in range(num_queries // 2, -1, -1):
        reached = (num_queries - 2 * lies) * epsilon
        terms = (
            math.exp(_log_binomial(num_queries, below) + (num_queries - below) * epsilon - num_queries * log_odds)
            * -math.expm1((reached - (num_queries - 2 * below) * epsilon))
            for below in range(lies)
        )
        if 1 - (1 - aside) * (1 - sum(terms)) <= total_delta * (1 + 1e-12):
            return reached
    return None


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def get_smallest_epsilon_from_advanced_composition(
    total_privacy_parameters: common.DifferentialPrivacyParameters, num_queries: int, delta: float = 0
) -> float | None:
    """The largest epsilon of each release, with `delta`, at which all of them hold the total; `None` if there is none."""
    total = total_privacy_parameters

    def composed(epsilon: float) -> float:
        found = advanced_composition(common.DifferentialPrivacyParameters(epsilon, delta), num_queries, total.delta)
        return math.inf if found is None else found

    search = common.BinarySearchParameters(0, total.epsilon, tolerance=1e-7)
    return common.inverse_monotone_function(composed, total.epsilon, search, increasing=True)
