"""Privacy loss distributions, under the names of `dp_accounting.pld.privacy_loss_distribution`.

Their deltas are those of a grid. `udp.Accountant` knows most of these mechanisms, bounds the errors of rounding too, and is tighter.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import undertone_dp as udp
from undertone_dp.dp_accounting import privacy_accountant
from undertone_dp.dp_accounting.pld import _trade_off, common, pld_pmf, privacy_loss_mechanism
from undertone_dp.dp_accounting.pld.privacy_loss_mechanism import AdjacencyType

NeighborRel = privacy_accountant.NeighboringRelation
# The points of the largest grid that a mechanism makes: a second, and a third of a gigabyte.
_MAX_POINTS = 1 << 22


class PrivacyLossDistribution:
    """The losses when a record is removed and when it is added; one distribution serves for both if they are equal."""

    def __init__(self, pmf_remove: pld_pmf.PLDPmf, pmf_add: pld_pmf.PLDPmf | None = None) -> None:
        self._symmetric = pmf_add is None
        self._pmf_remove = pmf_remove
        self._pmf_add = pmf_remove if pmf_add is None else pmf_add

    @classmethod
    def create_from_rounded_probability(
        cls,
        rounded_probability_mass_function: Mapping[int, float],
        infinity_mass: float,
        value_discretization_interval: float,
        pessimistic_estimate: bool = True,
        rounded_probability_mass_function_add: Mapping[int, float] | None = None,
        infinity_mass_add: float | None = None,
        symmetric: bool = True,
    ) -> PrivacyLossDistribution:
        """The distribution with these probabilities by the loss as a multiple of the interval."""
        added = (rounded_probability_mass_function_add, infinity_mass_add)
        if symmetric and added != (None, None):
            raise ValueError("a symmetric distribution has no probabilities of its own for adding a record")
        if not symmetric and None in added:
            raise ValueError("an asymmetric distribution needs probabilities and an infinity mass for adding a record")
        interval, kind = value_discretization_interval, pessimistic_estimate
        remove = pld_pmf.create_pmf(rounded_probability_mass_function, interval, infinity_mass, kind)
        if rounded_probability_mass_function_add is None or infinity_mass_add is None:
            return cls(remove)
        add = pld_pmf.create_pmf(rounded_probability_mass_function_add, interval, infinity_mass_add, kind)
        return cls(remove, add)

    def _united(
        self, other: PrivacyLossDistribution, unite: Callable[[pld_pmf.PLDPmf, pld_pmf.PLDPmf], pld_pmf.PLDPmf]
    ) -> PrivacyLossDistribution:
        remove = unite(self._pmf_remove, other._pmf_remove)
        if self._symmetric and other._symmetric:
            return PrivacyLossDistribution(remove)
        return PrivacyLossDistribution(remove, unite(self._pmf_add, other._pmf_add))

    def _larger(self, value: Callable[[pld_pmf.PLDPmf], Any]) -> Any:
        largest = value(self._pmf_remove)
        if not self._symmetric:
            largest = np.maximum(largest, value(self._pmf_add))
        return float(largest) if np.ndim(largest) == 0 else largest

    def get_delta_for_epsilon(self, epsilon: float | Sequence[float]) -> float | np.ndarray:
        """Delta at one epsilon, or at each of several in ascending order."""
        return self._larger(lambda pmf: pmf.get_delta_for_epsilon(epsilon))

    def get_epsilon_for_delta(self, delta: float) -> float:
        """The smallest epsilon of at least 0 at `delta`; infinity if there is none."""
        return self._larger(lambda pmf: pmf.get_epsilon_for_delta(delta))

    def get_true_positive_rates(
        self, false_positive_rates: float | Sequence[float], deltas: Sequence[float] | None = None
    ) -> np.ndarray:
        """The largest true positive rate of any test at each false positive rate. `deltas` is accepted and changes nothing."""
        pmfs = (self._pmf_remove, self._pmf_add)
        grids = [pmf._grid() for pmf in pmfs]
        # Between two losses of the grid, delta is linear in `exp(epsilon)`: the statements at the losses decide.
        places = max(1, *(grid.lower + np.asarray(grid.probabilities).size for grid in grids))
        epsilons = np.arange(places) * self._pmf_remove._discretization
        deltas = [np.asarray(pmf.get_delta_for_epsilon(epsilons)) for pmf in pmfs]  # type: ignore[arg-type]
        return _trade_off.true_positive_rates(false_positive_rates, epsilons, deltas)

    def get_gdp_parameter_estimate(
        self, false_positive_rates: Sequence[float] | None = None, deltas: Sequence[float] | None = None
    ) -> float:
        """An estimate of the `mu` at which Gaussian differential privacy holds, as that of `PLDAccountant`."""
        delta = lambda epsilon: float(self.get_delta_for_epsilon(epsilon))  # noqa: E731
        return _trade_off.gdp_parameter(self.get_epsilon_for_delta, delta, false_positive_rates, deltas)

    def validate_composable(self, privacy_loss_distribution: PrivacyLossDistribution) -> None:
        """Refuses a distribution with another interval, or of another kind of bound."""
        self._pmf_remove.validate_composable(privacy_loss_distribution._pmf_remove)

    def compose(
        self, privacy_loss_distribution: PrivacyLossDistribution, tail_mass_truncation: float = 1e-15
    ) -> PrivacyLossDistribution:
        """The loss of both releases together."""
        return self._united(
            privacy_loss_distribution, lambda one, other: pld_pmf.compose_pmfs(one, other, tail_mass_truncation)
        )

    def get_delta_for_epsilon_for_composed_pld(
        self, privacy_loss_distribution: PrivacyLossDistribution, epsilon: float
    ) -> float:
        """Delta at `epsilon` of both releases together, without their composition."""
        other = privacy_loss_distribution
        remove = self._pmf_remove.get_delta_for_epsilon_for_composed_pld(other._pmf_remove, epsilon)
        return max(remove, self._pmf_add.get_delta_for_epsilon_for_composed_pld(other._pmf_add, epsilon))

    def self_compose(self, num_times: int, tail_mass_truncation: float = 1e-15) -> PrivacyLossDistribution:
        """The loss of `num_times` releases."""
        remove = self._pmf_remove.self_compose(num_times, tail_mass_truncation)
        if self._symmetric:
            return PrivacyLossDistribution(remove)
        return PrivacyLossDistribution(remove, self._pmf_add.self_compose(num_times, tail_mass_truncation))

    def compute_mixture(self, other: PrivacyLossDistribution, self_weight: float) -> PrivacyLossDistribution:
        """The loss of a mechanism that runs this release with probability `self_weight`, else `other`, and says which."""
        return self._united(other, lambda one, another: one.compute_mixture(another, self_weight))


def _rounded(
    losses: Any, probabilities: Any, interval: float, pessimistic: bool, infinity: float = 0.0
) -> pld_pmf.PLDPmf:
    """The probabilities of these losses, rounded to the grid."""
    own = np.ascontiguousarray(losses, float), np.ascontiguousarray(probabilities, float)
    sparse = pld_pmf._sparse(udp.GridPld.rounded(interval, *own, infinity, pessimistic))
    return sparse if sparse.size <= pld_pmf._MAX_SPARSE else sparse.to_dense_pmf()


def identity(
    value_discretization_interval: float = 1e-4, pessimistic_estimate: bool = True
) -> PrivacyLossDistribution:
    """The loss of nothing released."""
    return PrivacyLossDistribution(pld_pmf.create_pmf({0: 1}, value_discretization_interval, 0, pessimistic_estimate))


def from_two_probability_mass_functions(
    log_probability_mass_function_lower: Mapping[Any, float],
    log_probability_mass_function_upper: Mapping[Any, float],
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    log_mass_truncation_bound: float = -math.inf,
    symmetric: bool = True,
) -> PrivacyLossDistribution:
    """The loss of a mechanism with these log-probabilities of its outputs.

    Outputs below the bound on log-probabilities count as an infinite loss if pessimistic, else they are left out.
    """

    def losses(upper: Mapping[Any, float], lower: Mapping[Any, float]) -> pld_pmf.PLDPmf:
        kept = {key: log for key, log in upper.items() if log >= log_mass_truncation_bound and log > -math.inf}
        cut = sum(math.exp(log) for key, log in upper.items() if key not in kept)
        found = [log - lower.get(key, -math.inf) for key, log in kept.items()]
        masses = [math.exp(log) for log in kept.values()]
        infinity = cut if pessimistic_estimate else 0.0
        return _rounded(found, masses, value_discretization_interval, pessimistic_estimate, infinity)

    lower, upper = log_probability_mass_function_lower, log_probability_mass_function_upper
    return PrivacyLossDistribution(losses(upper, lower), None if symmetric else losses(lower, upper))


def create_from_cdf(
    cdf: Callable[[float], float],
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    tail_mass_truncation: float = 1e-15,
) -> PrivacyLossDistribution:
    """The loss with this distribution function, in both directions; tails of at most half of the given mass are cut off."""
    step, half = value_discretization_interval, 0.5 * tail_mass_truncation

    def check(place: int) -> None:
        if abs(place) > 1 << 27:
            raise ValueError(f"cdf: expected losses within 2^27 intervals of {step}, got {cdf(place * step)} at {place * step}")

    def first_place(holds: Callable[[float], bool]) -> int:
        """The first multiple of the interval at which `holds` is true; it stays true from there on."""
        low, high = -1, 1
        while not holds(high * step):
            low, high = high, 2 * high
            check(high)
        while holds(low * step):
            low, high = 2 * low, low
            check(low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle * step) else (middle, high)
        return high

    first = first_place(lambda loss: cdf(loss) > half) - 1
    last = max(first_place(lambda loss: 1 - cdf(loss) <= half), first + 1)
    places = np.arange(first, last + 1)
    below = np.array([float(cdf(place * step)) for place in places.tolist()])
    masses = np.diff(below)
    if pessimistic_estimate:
        masses[0] += below[0]
        probs, infinity = dict(zip(places[1:].tolist(), masses.tolist(), strict=True)), 1 - below[-1]
    else:
        masses[-1] += 1 - below[-1]
        probs, infinity = dict(zip(places[:-1].tolist(), masses.tolist(), strict=True)), 0.0
    return PrivacyLossDistribution.create_from_rounded_probability(probs, infinity, step, pessimistic_estimate)


def from_randomized_response(
    noise_parameter: float,
    num_buckets: int,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    neighboring_relation: Any = NeighborRel.REPLACE_ONE,
) -> PrivacyLossDistribution:
    """The loss of an answer that is uniform among the buckets with probability `noise_parameter`, else true."""
    if not 0 < noise_parameter < 1:
        raise ValueError(f"noise_parameter must be strictly between 0 and 1, got {noise_parameter}")
    if num_buckets < 2:
        raise ValueError(f"num_buckets must be at least 2, got {num_buckets}")
    other = noise_parameter / num_buckets
    truth = 1 - noise_parameter + other
    interval, kind = value_discretization_interval, pessimistic_estimate
    if neighboring_relation.name == "REPLACE_ONE":
        rise = math.log(truth / other)
        rest = max(0.0, 1 - truth - other)
        return PrivacyLossDistribution(_rounded([rise, -rise, 0.0], [truth, other, rest], interval, kind))
    if neighboring_relation.name != "REPLACE_SPECIAL":
        raise ValueError(f"neighboring_relation must be REPLACE_ONE or REPLACE_SPECIAL, got {neighboring_relation}")
    # A special record answers uniformly.
    uniform = 1 / num_buckets
    high, low = math.log(truth / uniform), math.log(other / uniform)
    remove = _rounded([high, low], [truth, 1 - truth], interval, kind)
    return PrivacyLossDistribution(remove, _rounded([-high, -low], [uniform, 1 - uniform], interval, kind))


def _interval(loss: privacy_loss_mechanism.MonotonePrivacyLoss, asked: float) -> float:
    """The interval asked for, or a wider one where the losses span more than `_MAX_POINTS` of it. Wider grids stay bounds."""
    bounds = loss.connect_dots_bounds()
    if bounds.epsilon_upper is None or bounds.epsilon_lower is None:
        # The grid of discrete outputs has a point for each of them.
        return asked
    span = bounds.epsilon_upper - bounds.epsilon_lower
    if not math.isfinite(span):
        raise ValueError(f"noise: expected some whose losses are numbers, got losses that span {span}; take more noise")
    least = span / _MAX_POINTS
    if least <= asked:
        return asked
    warnings.warn(
        f"value_discretization_interval: the losses span {span:.4g}, so the interval is {least:.4g} and not {asked:.4g}; the statements "
        "hold and are looser. PLDAccountant and udp.Accountant need no interval.",
        stacklevel=4,
    )
    return least


def _from_loss(
    loss: privacy_loss_mechanism.MonotonePrivacyLoss, pessimistic: bool, interval: float, use_connect_dots: bool
) -> pld_pmf.PLDPmf:
    if use_connect_dots and pessimistic:
        return _connected(loss, interval)
    tail = loss.privacy_loss_tail()
    losses = list(tail.tail_probability_mass_function)
    masses = list(tail.tail_probability_mass_function.values())
    first, last = tail.lower_x_truncation, tail.upper_x_truncation
    if loss._is_discrete:
        outputs = np.arange(first, last + 1)
        inside = _discrete_losses(loss, outputs)
        found = loss.mu_upper_cdf(outputs) - loss.mu_upper_cdf(outputs - 1) if len(outputs) else inside
    else:
        highest, lowest = loss.privacy_loss(first), loss.privacy_loss(last)
        places = np.arange(math.floor(lowest / interval), math.ceil(highest / interval) + 1)
        ends = np.clip(loss.inverse_privacy_losses(places * interval), first, last)
        # The losses from one multiple of the interval to the next; the middle is rounded to the right one.
        found = np.maximum(-np.diff(loss.mu_upper_cdf(ends)), 0.0)
        inside = (places[:-1] + 0.5) * interval
    return _rounded(np.concatenate([losses, inside]), np.concatenate([masses, found]), interval, pessimistic)


def _discrete_losses(loss: privacy_loss_mechanism.MonotonePrivacyLoss, outputs: np.ndarray) -> np.ndarray:
    if isinstance(loss, privacy_loss_mechanism.AdditiveNoisePrivacyLoss):
        return loss._losses(outputs.astype(float))
    return np.array([loss.privacy_loss(x) for x in outputs.tolist()])


def _connected(loss: privacy_loss_mechanism.MonotonePrivacyLoss, interval: float) -> pld_pmf.PLDPmf:
    bounds = loss.connect_dots_bounds()
    if bounds.lower_x is not None and bounds.upper_x is not None:
        losses = _discrete_losses(loss, np.arange(bounds.lower_x, bounds.upper_x + 1))
        places = losses[np.isfinite(losses)] / interval
        epsilons = np.unique(np.concatenate([np.floor(places), np.ceil(places)])).astype(np.int64)
    elif bounds.epsilon_lower is not None and bounds.epsilon_upper is not None:
        last = math.ceil(bounds.epsilon_upper / interval)
        epsilons = np.arange(math.floor(bounds.epsilon_lower / interval), last + 1)
    else:
        raise ValueError("connect_dots_bounds: expected bounds on epsilon or on x")
    deltas = np.minimum.accumulate(np.clip(loss.get_delta_for_epsilon(epsilons * interval), 0, 1))
    return pld_pmf.create_pmf_pessimistic_connect_dots(interval, epsilons, deltas)


def _two_sided(
    make: Callable[[AdjacencyType], privacy_loss_mechanism.MonotonePrivacyLoss],
    is_symmetric: bool,
    pessimistic: bool,
    interval: float,
    use_connect_dots: bool,
) -> PrivacyLossDistribution:
    made = [make(AdjacencyType.REMOVE)] if is_symmetric else [make(AdjacencyType.REMOVE), make(AdjacencyType.ADD)]
    # One interval for both directions: the losses of one are those of the other with another sign.
    interval = _interval(made[0], interval)
    return PrivacyLossDistribution(*(_from_loss(loss, pessimistic, interval, use_connect_dots) for loss in made))


def from_laplace_mechanism(
    parameter: float,
    sensitivity: float = 1,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = True,
) -> PrivacyLossDistribution:
    """The loss of Laplace noise of scale `parameter` on a Poisson sample."""
    return _two_sided(
        lambda adjacency: privacy_loss_mechanism.LaplacePrivacyLoss(parameter, sensitivity, sampling_prob, adjacency),
        sampling_prob == 1,
        pessimistic_estimate,
        value_discretization_interval,
        use_connect_dots,
    )


def from_gaussian_mechanism(
    standard_deviation: float,
    sensitivity: float = 1,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    log_mass_truncation_bound: float = -50,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = True,
    neighboring_relation: Any = NeighborRel.ADD_OR_REMOVE_ONE,
) -> PrivacyLossDistribution:
    """The loss of Gaussian noise on a Poisson sample."""
    is_replace = neighboring_relation.name == "REPLACE_ONE"

    def make(adjacency: AdjacencyType) -> privacy_loss_mechanism.GaussianPrivacyLoss:
        return privacy_loss_mechanism.GaussianPrivacyLoss(
            standard_deviation,
            sensitivity,
            pessimistic_estimate,
            log_mass_truncation_bound,
            sampling_prob,
            AdjacencyType.REPLACE if is_replace else adjacency,
        )

    is_symmetric = sampling_prob == 1 or is_replace
    return _two_sided(make, is_symmetric, pessimistic_estimate, value_discretization_interval, use_connect_dots)


def from_discrete_laplace_mechanism(
    parameter: float,
    sensitivity: int = 1,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = False,
) -> PrivacyLossDistribution:
    """The loss of discrete Laplace noise on a Poisson sample."""
    return _two_sided(
        lambda adjacency: privacy_loss_mechanism.DiscreteLaplacePrivacyLoss(
            parameter, sensitivity, sampling_prob, adjacency
        ),
        sampling_prob == 1,
        pessimistic_estimate,
        value_discretization_interval,
        use_connect_dots,
    )


def from_discrete_gaussian_mechanism(
    sigma: float,
    sensitivity: int = 1,
    truncation_bound: int | None = None,
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    sampling_prob: float = 1.0,
    use_connect_dots: bool = False,
) -> PrivacyLossDistribution:
    """The loss of discrete Gaussian noise, cut at `truncation_bound`, on a Poisson sample."""
    return _two_sided(
        lambda adjacency: privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(
            sigma, sensitivity, truncation_bound, sampling_prob, adjacency
        ),
        sampling_prob == 1,
        pessimistic_estimate,
        value_discretization_interval,
        use_connect_dots,
    )


def from_mixture_gaussian_mechanism(
    standard_deviation: float,
    sensitivities: Sequence[float],
    sampling_probs: Sequence[float],
    pessimistic_estimate: bool = True,
    value_discretization_interval: float = 1e-4,
    log_mass_truncation_bound: float = -50,
    use_connect_dots: bool = True,
) -> PrivacyLossDistribution:
    """The loss of Gaussian noise on a sum that one record moves by a random amount."""
    return _two_sided(
        lambda adjacency: privacy_loss_mechanism.MixtureGaussianPrivacyLoss(
            standard_deviation, sensitivities, sampling_probs, pessimistic_estimate, log_mass_truncation_bound, adjacency
        ),
        False,
        pessimistic_estimate,
        value_discretization_interval,
        use_connect_dots,
    )


def from_truncated_subsampled_gaussian_mechanism(
    dataset_size: int,
    sampling_probability: float,
    truncated_batch_size: int,
    noise_multiplier: float,
    value_discretization_interval: float = 1e-4,
    log_mass_truncation_bound: float = -50,
    use_connect_dots: bool = True,
    neighboring_relation: Any = NeighborRel.ADD_OR_REMOVE_ONE,
) -> PrivacyLossDistribution:
    """The loss of Gaussian noise on a Poisson sample of which at most `truncated_batch_size` records are kept.

    Saying whether the other records fill the batch makes it easier to tell data sets apart. If they do, the record takes the place of
    another one and moves the sum by up to 2. `udp.Event.TruncatedPoissonGaussian` has a tighter bound.
    """
    if dataset_size < 1 or truncated_batch_size < 1:
        raise ValueError(f"dataset_size and truncated_batch_size must be positive, got {dataset_size}, {truncated_batch_size}")
    if not 0 <= sampling_probability <= 1:
        raise ValueError(f"sampling_probability must be in [0, 1], got {sampling_probability}")
    q, others = sampling_probability, dataset_size - 1

    def part(sensitivity: float, joins: float, relation: Any) -> PrivacyLossDistribution:
        kind = (noise_multiplier, sensitivity, True, interval, log_mass_truncation_bound)
        return from_gaussian_mechanism(*kind, joins, use_connect_dots, relation)

    # One interval for both parts: the losses of twice the sensitivity span more.
    twice = (noise_multiplier, 2, True, log_mass_truncation_bound, 1.0, AdjacencyType.REPLACE)
    interval = _interval(privacy_loss_mechanism.GaussianPrivacyLoss(*twice), value_discretization_interval)

    counts = np.arange(max(0, truncated_batch_size), others + 1)
    weights = np.exp([_log_binomial_probability(others, int(count), q) for count in counts])
    is_full = float(weights.sum())
    if q == 0:
        return _as_dense(identity(value_discretization_interval))
    room = part(1, q, neighboring_relation)
    if is_full == 0:
        return _as_dense(room)
    joins = float(np.sum(weights * q * truncated_batch_size / (counts + 1))) / is_full
    full = part(2, joins, NeighborRel.REPLACE_ONE)
    return room.compute_mixture(full, max(0.0, 1 - is_full))


def _as_dense(pld: PrivacyLossDistribution) -> PrivacyLossDistribution:
    return PrivacyLossDistribution(pld._pmf_remove.to_dense_pmf(), None if pld._symmetric else pld._pmf_add.to_dense_pmf())


def _log_binomial_probability(trials: int, count: int, q: float) -> float:
    if q in (0, 1):
        return 0.0 if count == trials * q else -math.inf
    ways = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    return ways + count * math.log(q) + (trials - count) * math.log1p(-q)


def from_privacy_parameters(
    privacy_parameters: common.DifferentialPrivacyParameters, value_discretization_interval: float = 1e-4
) -> PrivacyLossDistribution:
    """The largest loss of anything with this (epsilon, delta) statement."""
    epsilon, delta = privacy_parameters.epsilon, privacy_parameters.delta
    truth = (1 - delta) / (1 + math.exp(-epsilon))
    masses = [truth, 1 - delta - truth]
    return PrivacyLossDistribution(_rounded([epsilon, -epsilon], masses, value_discretization_interval, True, delta))
