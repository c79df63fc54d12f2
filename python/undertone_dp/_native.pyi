import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeAlias, final, overload

from typing_extensions import disjoint_base

from undertone_dp._run import Run

__all__ = [
    "Accountant",
    "AccountingError",
    "Array",
    "BudgetExceeded",
    "Certified",
    "Errors",
    "Event",
    "ExampleLevelSampling",
    "FixedSizeUsers",
    "GridPld",
    "Guarantee",
    "Losses",
    "Mechanism",
    "MechanismError",
    "NoiseKey",
    "NoiseStream",
    "Participation",
    "ParticipationError",
    "PoissonUsers",
    "Released",
    "Repetitions",
    "Round",
    "Sampler",
    "Session",
    "SessionError",
    "ShuffledEpochs",
    "Strategy",
    "UndertoneError",
    "UserLevelSampling",
    "Workload",
    "__version__",
    "_accountant",
    "_answer",
    "_command",
    "_convolve",
    "_ln_normal_cdf",
    "_participation",
    "_plan",
    "_repetitions",
    "_self_convolution_bounds",
    "_self_convolve",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "group_privacy",
    "noise_multiplier",
    "optimize",
    "parameter",
    "rounds",
    "sampling_probability",
    "sensitivity_banded",
    "sensitivity_general",
    "sensitivity_toeplitz",
    "sensitivity_tree",
    "set_threads",
    "zcdp_epsilon",
    "zcdp_epsilon_of_gaussians",
    # Runs, data and sums.
    "AggregationError",
    "ClipReport",
    "ConfigError",
    "DataError",
    "ParamLayout",
    "RunError",
    "SecAggError",
    "Table",
    "_Corpus",
    "_corpus",
    "_epsilon_delta",
    "_export",
    "_publish",
    "_read_ledger",
    "_read_run",
    "_records",
    "_not_private",
    "_pictures",
    "_pretrain",
    "_report",
    "_secagg_parameters",
    "_secagg_sum",
    "_train",
    "_verify",
    "clip",
]

_Recipe: TypeAlias = Literal["auto", "pld", "rdp", "zcdp", "exact-gaussian", "moments-2016"]
_Adjacency: TypeAlias = Literal["add-or-remove-one", "replace-one", "zero-out"]
_Composition: TypeAlias = Event | list[tuple[Event, int]]

__version__: str

class UndertoneError(ValueError):
    """An input that Undertone refuses. `kind` names the reason in kebab-case."""
    kind: str

class AccountingError(UndertoneError):
    """A question about privacy that has no answer, or a quantity outside its domain.

    >>> import undertone_dp as udp
    >>> try:
    ...     udp.Event.Gaussian(noise_multiplier=-1.0)
    ... except udp.AccountingError as error:
    ...     print(error.kind, '|', error)
    out-of-range | noise_multiplier: expected a finite number > 0, got -1
    """
class MechanismError(UndertoneError):
    """A matrix, a stream or a saved state that cannot be used.

    >>> import undertone_dp as udp
    >>> try:
    ...     udp.Workload.momentum(1.5)
    ... except udp.MechanismError as error:
    ...     print(error.kind, '|', error)
    setting | momentum must be in [0, 1), got 1.5
    """

@disjoint_base
class Event:
    """One release about the users, with the sampling scheme and the relation that it is stated for.

    The kinds of events are attributes of this class. Their fields are keyword arguments; they are checked at once, and an
    event never changes.

    >>> import undertone_dp as udp
    >>> event = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    >>> event.replace(noise_multiplier=2.0)
    Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=2.0)
    >>> udp.Event.from_json(event.to_json()) == event
    True
    """
    def to_json(self) -> str:
        """The event as JSON, with the keys of the command line's event files.

        >>> import undertone_dp as udp
        >>> udp.Event.Laplace(scale=2.0).to_json()
        '{"kind":"laplace","scale":2.0}'
        """
    @staticmethod
    def from_json(text: str) -> Event:
        """The event that `to_json` wrote.

        >>> import undertone_dp as udp
        >>> udp.Event.from_json('{"kind": "gaussian", "noise_multiplier": 2}')
        Event.Gaussian(noise_multiplier=2.0)
        """
    def replace(self, **changes: object) -> Self:
        """A copy with other values of some fields.

        >>> import undertone_dp as udp
        >>> udp.Event.Gaussian(noise_multiplier=1.0).replace(noise_multiplier=3)
        Event.Gaussian(noise_multiplier=3.0)
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Callable[[str], Event], tuple[str]]: ...

    @final
    class PoissonGaussian(Event):
        """Every user joins with `sampling_probability`, independently; the sum of the bounded updates gets Gaussian noise.

        `noise_multiplier` is the noise's standard deviation divided by the add-or-remove sensitivity.

        >>> import undertone_dp as udp
        >>> udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
        Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, sampling_probability: float, noise_multiplier: float) -> Self: ...
        @property
        def sampling_probability(self) -> float: ...
        @property
        def noise_multiplier(self) -> float: ...

    @final
    class Gaussian(Event):
        """Every user takes part; Gaussian noise.

        >>> import undertone_dp as udp
        >>> udp.Event.Gaussian(noise_multiplier=2.0)
        Event.Gaussian(noise_multiplier=2.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, noise_multiplier: float) -> Self: ...
        @property
        def noise_multiplier(self) -> float: ...

    @final
    class FixedSizeGaussian(Event):
        """A uniformly random cohort of `cohort_size` users, fresh each round; Gaussian noise. Relation: replace one user.

        `noise_multiplier` is the noise's standard deviation divided by the replace-one sensitivity.

        >>> import undertone_dp as udp
        >>> udp.Event.FixedSizeGaussian(population=1000, cohort_size=10, noise_multiplier=1.0)
        Event.FixedSizeGaussian(population=1000, cohort_size=10, noise_multiplier=1.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, population: int, cohort_size: int, noise_multiplier: float) -> Self: ...
        @property
        def population(self) -> int: ...
        @property
        def cohort_size(self) -> int: ...
        @property
        def noise_multiplier(self) -> float: ...

    @final
    class TruncatedPoissonGaussian(Event):
        """Poisson sampling whose cohort is cut to a uniformly random `max_cohort_size` of its users.

        >>> import undertone_dp as udp
        >>> udp.Event.TruncatedPoissonGaussian(population=10000, sampling_probability=0.01, max_cohort_size=120, noise_multiplier=1.0)
        Event.TruncatedPoissonGaussian(population=10000, sampling_probability=0.01, max_cohort_size=120, noise_multiplier=1.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, population: int, sampling_probability: float, max_cohort_size: int, noise_multiplier: float) -> Self: ...
        @property
        def population(self) -> int: ...
        @property
        def sampling_probability(self) -> float: ...
        @property
        def max_cohort_size(self) -> int: ...
        @property
        def noise_multiplier(self) -> float: ...

    @final
    class MixtureOfGaussians(Event):
        """A Gaussian moved by `sensitivities[i]` with probability `probabilities[i]`.

        >>> import undertone_dp as udp
        >>> udp.Event.MixtureOfGaussians(noise_multiplier=1.0, sensitivities=(0.0, 1.0), probabilities=(0.5, 0.5))
        Event.MixtureOfGaussians(noise_multiplier=1.0, sensitivities=(0.0, 1.0), probabilities=(0.5, 0.5))
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, noise_multiplier: float, sensitivities: Iterable[float], probabilities: Iterable[float]) -> Self: ...
        @property
        def noise_multiplier(self) -> float: ...
        @property
        def sensitivities(self) -> tuple[float, ...]: ...
        @property
        def probabilities(self) -> tuple[float, ...]: ...

    @final
    class ExampleLevelSampling(Event):
        """A user holds at most `group_size` examples, and each joins with `sampling_probability`. The guarantee is for the user.

        >>> import undertone_dp as udp
        >>> udp.Event.ExampleLevelSampling(group_size=4, sampling_probability=0.01, noise_multiplier=1.0)
        Event.ExampleLevelSampling(group_size=4, sampling_probability=0.01, noise_multiplier=1.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, group_size: int, sampling_probability: float, noise_multiplier: float) -> Self: ...
        @property
        def group_size(self) -> int: ...
        @property
        def sampling_probability(self) -> float: ...
        @property
        def noise_multiplier(self) -> float: ...

    @final
    class CorrelatedGaussian(Event):
        """Gaussian noise correlated over the rounds of a whole run, as one release. Relation: zero out one user.

        >>> import undertone_dp as udp
        >>> udp.Event.CorrelatedGaussian(sensitivity_squared=4.0, noise_multiplier=7.0)
        Event.CorrelatedGaussian(sensitivity_squared=4.0, noise_multiplier=7.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, sensitivity_squared: float, noise_multiplier: float) -> Self: ...
        @property
        def sensitivity_squared(self) -> float: ...
        @property
        def noise_multiplier(self) -> float: ...

    @final
    class Laplace(Event):
        """Laplace noise on a number; `scale` is divided by the sensitivity.

        >>> import undertone_dp as udp
        >>> udp.Event.Laplace(scale=2.0)
        Event.Laplace(scale=2.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, scale: float) -> Self: ...
        @property
        def scale(self) -> float: ...

    @final
    class DiscreteLaplace(Event):
        """Discrete Laplace noise on an integer, with probabilities proportional to `exp(-parameter |x|)`.

        >>> import undertone_dp as udp
        >>> udp.Event.DiscreteLaplace(parameter=0.5, sensitivity=1)
        Event.DiscreteLaplace(parameter=0.5, sensitivity=1)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, parameter: float, sensitivity: int) -> Self: ...
        @property
        def parameter(self) -> float: ...
        @property
        def sensitivity(self) -> int: ...

    @final
    class DiscreteGaussian(Event):
        """Discrete Gaussian noise on an integer, with probabilities proportional to `exp(-x^2 / (2 sigma^2))`.

        >>> import undertone_dp as udp
        >>> udp.Event.DiscreteGaussian(sigma=2.0, sensitivity=1)
        Event.DiscreteGaussian(sigma=2.0, sensitivity=1)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, sigma: float, sensitivity: int) -> Self: ...
        @property
        def sigma(self) -> float: ...
        @property
        def sensitivity(self) -> int: ...

    @final
    class RandomizedResponse(Event):
        """A user's answer among `num_buckets`, replaced by a uniform one with probability `noise_parameter`.

        Relation: replace one user, or zero out one user.

        >>> import undertone_dp as udp
        >>> udp.Event.RandomizedResponse(num_buckets=4, noise_parameter=0.25)
        Event.RandomizedResponse(num_buckets=4, noise_parameter=0.25)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, num_buckets: int, noise_parameter: float) -> Self: ...
        @property
        def num_buckets(self) -> int: ...
        @property
        def noise_parameter(self) -> float: ...

    @final
    class Binomial(Event):
        """Binomial noise on an integer that one user moves by at most `shift`.

        >>> import undertone_dp as udp
        >>> udp.Event.Binomial(trials=1000, success_probability=0.5, shift=1)
        Event.Binomial(trials=1000, success_probability=0.5, shift=1)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, trials: int, success_probability: float, shift: int) -> Self: ...
        @property
        def trials(self) -> int: ...
        @property
        def success_probability(self) -> float: ...
        @property
        def shift(self) -> int: ...

    @final
    class PoissonSampled(Event):
        """One of the discrete or Laplace events over a Poisson sample of the users.

        >>> import undertone_dp as udp
        >>> udp.Event.PoissonSampled(sampling_probability=0.1, event=udp.Event.Laplace(scale=2.0))
        Event.PoissonSampled(sampling_probability=0.1, event=Event.Laplace(scale=2.0))
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, sampling_probability: float, event: Event) -> Self: ...
        @property
        def sampling_probability(self) -> float: ...
        @property
        def event(self) -> Event: ...

    @final
    class DistributedDiscreteGaussian(Event):
        """Discrete Gaussian noise that each client adds before a secure sum. Relation: zero out one user.

        >>> import undertone_dp as udp
        >>> udp.Event.DistributedDiscreteGaussian(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, local_stddev=0.1, clients=100)
        Event.DistributedDiscreteGaussian(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, local_stddev=0.1, clients=100)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, clip_norm: float, granularity: float, dimension: int, conditional_beta: float, local_stddev: float, clients: int) -> Self: ...
        @property
        def clip_norm(self) -> float: ...
        @property
        def granularity(self) -> float: ...
        @property
        def dimension(self) -> int: ...
        @property
        def conditional_beta(self) -> float: ...
        @property
        def local_stddev(self) -> float: ...
        @property
        def clients(self) -> int: ...

    @final
    class Skellam(Event):
        """Skellam noise that the clients add before a secure sum. Relation: zero out one user.

        >>> import undertone_dp as udp
        >>> udp.Event.Skellam(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, central_stddev=1.0)
        Event.Skellam(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, central_stddev=1.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, clip_norm: float, granularity: float, dimension: int, conditional_beta: float, central_stddev: float) -> Self: ...
        @property
        def clip_norm(self) -> float: ...
        @property
        def granularity(self) -> float: ...
        @property
        def dimension(self) -> int: ...
        @property
        def conditional_beta(self) -> float: ...
        @property
        def central_stddev(self) -> float: ...

    @final
    class ZeroConcentrated(Event):
        """A release whose Renyi divergence of order `a` is at most `xi + rho a`.

        >>> import undertone_dp as udp
        >>> udp.Event.ZeroConcentrated(rho=0.5, xi=0.0)
        Event.ZeroConcentrated(rho=0.5, xi=0.0)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, rho: float, xi: float | None = None) -> Self: ...
        @property
        def rho(self) -> float: ...
        @property
        def xi(self) -> float: ...

    @final
    class BoundedRange(Event):
        """A release whose largest and smallest privacy loss differ by at most `epsilon`: the exponential mechanism.

        >>> import undertone_dp as udp
        >>> udp.Event.BoundedRange(epsilon=0.5)
        Event.BoundedRange(epsilon=0.5)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, epsilon: float) -> Self: ...
        @property
        def epsilon(self) -> float: ...

    @final
    class ApproximateDp(Event):
        """A release with an (epsilon, delta) statement; delta `None` is pure differential privacy.

        >>> import undertone_dp as udp
        >>> udp.Event.ApproximateDp(epsilon=0.5, delta=1e-06)
        Event.ApproximateDp(epsilon=0.5, delta=1e-06)
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, epsilon: float, delta: float | None = None) -> Self: ...
        @property
        def epsilon(self) -> float: ...
        @property
        def delta(self) -> float | None: ...

    @final
    class RepeatAndSelect(Event):
        """A mechanism that runs a random number of times and publishes only its best output.

        >>> import undertone_dp as udp
        >>> udp.Event.RepeatAndSelect(event=udp.Event.Gaussian(noise_multiplier=5.0), repetitions=udp.Repetitions.poisson(mean=3.0))
        Event.RepeatAndSelect(event=Event.Gaussian(noise_multiplier=5.0), repetitions=Repetitions.poisson(mean=3.0))
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls, *, event: Event, repetitions: Repetitions) -> Self: ...
        @property
        def event(self) -> Event: ...
        @property
        def repetitions(self) -> Repetitions: ...

    @final
    class NonPrivate(Event):
        """A release without noise. Nothing is guaranteed after it.

        >>> import undertone_dp as udp
        >>> udp.Event.NonPrivate()
        Event.NonPrivate()
        """
        __match_args__: ClassVar[tuple[str, ...]]
        def __new__(cls) -> Self: ...

@final
class Repetitions:
    """The distribution of the number of runs of which only the best output is published.

    The number of runs itself must not be revealed.

    >>> import undertone_dp as udp
    >>> udp.Repetitions.truncated_negative_binomial(shape=1.0, mean=10.0)
    Repetitions.truncated_negative_binomial(shape=1.0, mean=10.0)
    """
    @staticmethod
    def poisson(*, mean: float) -> Repetitions:
        """A Poisson number of runs. Where it is 0, something that depends on no data is published.

        >>> import undertone_dp as udp
        >>> udp.Repetitions.poisson(mean=3.0).mean
        3.0
        """
    @staticmethod
    def truncated_negative_binomial(*, shape: float, mean: float) -> Repetitions:
        """A negative binomial number of runs, given that it is at least 1. Shape 1 is geometric, shape 0 logarithmic.

        >>> import undertone_dp as udp
        >>> udp.Repetitions.truncated_negative_binomial(shape=0.0, mean=3.0).shape
        0.0
        """
    @property
    def mean(self) -> float:
        """Expected number of runs."""
    @property
    def shape(self) -> float | None:
        """Shape of the negative binomial distribution; `None` for a Poisson number."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Callable[[float, float | None], Repetitions], tuple[float, float | None]]: ...

@final
class GridPld:
    """The distribution of a privacy loss at multiples of `step`, and the probability of an infinite loss.

    `probabilities[i]` belongs to the loss `step * (lower + i)`. A pessimistic distribution stays an upper bound in every operation, another
    one a lower bound, up to the rounding of 64-bit numbers. `Accountant` bounds that rounding too, so use it where it knows the event.

    >>> import array, math, undertone_dp as udp
    >>> loss = array.array("d", [math.log(3), -math.log(3)])
    >>> once = udp.GridPld.rounded(1e-4, loss, array.array("d", [0.75, 0.25]))
    >>> round(once.self_compose(3).epsilon(0.0), 3)
    3.296
    """
    def __new__(
        cls, step: float, lower: int, probabilities: object, infinity: float = 0.0, pessimistic: bool = True
    ) -> Self: ...
    @staticmethod
    def rounded(
        step: float, losses: object, probabilities: object, infinity: float = 0.0, pessimistic: bool = True
    ) -> GridPld:
        """Outcomes with these losses and probabilities, each loss rounded to the grid: up if `pessimistic`, else down.

        >>> import array, undertone_dp as udp
        >>> grid = udp.GridPld.rounded(1.0, array.array("d", [0.3, 1.2]), array.array("d", [0.5, 0.25]), infinity=0.25)
        >>> grid.lower, list(grid.probabilities)
        (1, [0.5, 0.25])
        """
    @staticmethod
    def connect_the_dots(step: float, epsilons: object, deltas: object) -> GridPld:
        """The distribution whose deltas connect the points `(step * epsilons[i], deltas[i])` of a convex curve from above.

        >>> import array, undertone_dp as udp
        >>> grid = udp.GridPld.connect_the_dots(0.1, [-1, 1], array.array("d", [0.1, 0.02]))
        >>> round(grid.delta(0.1), 12)
        0.02
        """
    def compose(self, other: GridPld, tail: float = 0.0) -> GridPld:
        """The loss of both releases together; tails of at most `tail / 2` on each side are cut off on the safe side.

        >>> import array, undertone_dp as udp
        >>> once = udp.GridPld(0.5, -1, array.array("d", [0.4, 0.0, 0.6]))
        >>> once.compose(once).lower
        -2
        """
    def self_compose(self, times: int, tail: float = 0.0) -> GridPld:
        """The loss of `times` releases; tails of at most `tail / 2` on each side are cut off on the safe side.

        >>> import array, undertone_dp as udp
        >>> once = udp.GridPld(0.5, -1, array.array("d", [0.4, 0.0, 0.6]))
        >>> once.self_compose(100, 1e-12).epsilon(0.01) < 50
        True
        """
    def mixture(self, other: GridPld, weight: float) -> GridPld:
        """The loss of a mechanism that runs this one with probability `weight`, else `other`, and says which.

        >>> import array, undertone_dp as udp
        >>> first = udp.GridPld(0.5, 0, array.array("d", [1.0]))
        >>> second = udp.GridPld(0.5, 1, array.array("d", [1.0]))
        >>> list(first.mixture(second, 0.25).probabilities)
        [0.25, 0.75]
        """
    def delta(self, epsilon: float) -> float:
        """Delta at `epsilon`, which may be negative or infinite.

        >>> import array, undertone_dp as udp
        >>> udp.GridPld(0.5, 1, array.array("d", [0.75]), 0.25).delta(0.5)
        0.25
        """
    def deltas(self, epsilons: object) -> Array:
        """Delta at each epsilon.

        >>> import array, undertone_dp as udp
        >>> list(udp.GridPld(0.5, 1, array.array("d", [0.75]), 0.25).deltas(array.array("d", [0.5, 9.0])))
        [0.25, 0.25]
        """
    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at `delta`: minus infinity where every epsilon holds, infinity where none does.

        >>> import array, undertone_dp as udp
        >>> grid = udp.GridPld(0.5, 1, array.array("d", [0.75]), 0.25)
        >>> grid.epsilon(0.25), grid.epsilon(0.2), grid.epsilon(1.0)
        (0.5, inf, -inf)
        """
    def delta_of_composition(self, other: GridPld, epsilon: float) -> float:
        """Delta at `epsilon` of this release and `other` together, without their composition.

        >>> import array, undertone_dp as udp
        >>> grid = udp.GridPld(0.5, 1, array.array("d", [0.5]), 0.5)
        >>> grid.delta_of_composition(grid, 1.0)
        0.75
        """
    @property
    def step(self) -> float:
        """Distance of two neighbouring losses."""
    @property
    def lower(self) -> int:
        """The lowest loss, as a multiple of the step."""
    @property
    def probabilities(self) -> Array:
        """Probabilities of the finite losses, from the lowest on."""
    @property
    def infinity(self) -> float:
        """Probability of an infinite loss."""
    @property
    def pessimistic(self) -> bool:
        """True if deltas are upper bounds, false if they are lower bounds."""

def _convolve(first: object, second: object) -> Array: ...
def _self_convolve(values: object, times: int, first: int, last: int) -> Array: ...
def _self_convolution_bounds(
    values: object, times: int, tail: float, orders: list[float] | None
) -> tuple[int, int]: ...
def _ln_normal_cdf(places: object) -> Array: ...

@final
class Guarantee:
    """An (epsilon, delta) statement with everything needed to read it.

    `str()` rounds epsilon up, so that the printed statement is implied by the computed one.

    >>> import undertone_dp as udp
    >>> accountant = udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=4.0))
    >>> print(accountant.guarantee(1e-5))
    (eps = 0.927, delta = 1e-5), add-or-remove one user, full participation, exact Gaussian
    """
    @property
    def epsilon(self) -> float:
        """Bound on the privacy loss."""
    @property
    def delta(self) -> float:
        """Mass on which the bound may fail."""
    @property
    def adjacency(self) -> str:
        """The relation under which the statement holds."""
    @property
    def sampling(self) -> str:
        """The sampling scheme that the statement relies on."""
    @property
    def recipe(self) -> str:
        """The recipe that computed the statement."""
    @property
    def optimal_order(self) -> float | None:
        """The order at which the bound was taken; `None` where the recipe has no orders."""
    @property
    def order_at_edge(self) -> bool | None:
        """True if the order is the first or the last of the grid; `None` where the recipe has no orders."""
    def to_json(self) -> str:
        """The guarantee as JSON.

        >>> import undertone_dp as udp
        >>> stated = udp.Accountant("rdp").compose(udp.Event.Laplace(scale=2.0)).guarantee(1e-6)
        >>> udp.Guarantee.from_json(stated.to_json()) == stated
        True
        """
    @staticmethod
    def from_json(text: str) -> Guarantee:
        """The guarantee that `to_json` wrote.

        >>> import undertone_dp as udp
        >>> stated = udp.Accountant().compose(udp.Event.Laplace(scale=2.0)).guarantee(1e-6)
        >>> udp.Guarantee.from_json(stated.to_json()).recipe
        'pld'
        """
    def _repr_html_(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Callable[[str], Guarantee], tuple[str]]: ...

@final
class Accountant:
    """Composes events and states the guarantee of all of them together.

    `recipe` is `auto` (the tightest that covers everything composed), `pld`, `rdp`, `zcdp`, `exact-gaussian` or
    `moments-2016`. `adjacency` is `add-or-remove-one`, `replace-one`, `zero-out`, or `None` for the relation of the first
    event. `orders` are Renyi orders for the recipe `rdp`.

    The statements hold for adaptive composition, in any order of the releases.

    >>> import undertone_dp as udp
    >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    >>> accountant = udp.Accountant().compose(round, 1000)
    >>> print(accountant.guarantee(1e-6))
    (eps = 2.125, delta = 1e-6), add-or-remove one user, Poisson sampling, PLD upper bound
    """
    def __new__(
        cls,
        recipe: _Recipe = "auto",
        *,
        adjacency: _Adjacency | None = None,
        orders: Sequence[float] | None = None,
    ) -> Self: ...
    def compose(self, event: Event, rounds: int = 1) -> Self:
        """Adds `rounds` releases of `event` and returns the accountant itself. On an error nothing has changed.

        >>> import undertone_dp as udp
        >>> accountant = udp.Accountant().compose(udp.Event.Laplace(scale=4.0), 3)
        >>> accountant.rounds
        3
        """
    def guarantee(self, delta: float) -> Guarantee:
        """The smallest epsilon that the recipe can state at `delta` for everything composed, with everything needed to read it.

        >>> import undertone_dp as udp
        >>> udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=4.0)).guarantee(1e-5).recipe
        'exact-gaussian'
        """
    def epsilon(self, delta: float) -> float:
        """The epsilon of `guarantee(delta)`.

        >>> import undertone_dp as udp
        >>> round(udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=4.0)).epsilon(1e-5), 4)
        0.9263
        """
    def delta(self, epsilon: float) -> float:
        """The smallest delta that the recipe can state at `epsilon`, which may be negative: trade-off curves ask for that.

        >>> import undertone_dp as udp
        >>> accountant = udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=1.0))
        >>> round(accountant.delta(1.0), 6), round(accountant.delta(-1.0), 6)
        (0.126937, 0.678818)
        """
    def lower_bound(self, delta: float) -> float:
        """The largest epsilon that is certainly spent at `delta`: no statement below it is true. Cohorts that are cut have none.

        >>> import undertone_dp as udp
        >>> accountant = udp.Accountant().compose(udp.Event.Laplace(scale=20.0), 50)
        >>> accountant.lower_bound(1e-6) <= accountant.epsilon(1e-6)
        True
        """
    def bounds(self, delta: float) -> tuple[float, float]:
        """The epsilon that is certainly spent and one that is certainly enough: `lower_bound` and `epsilon`, in one pass.

        >>> import undertone_dp as udp
        >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
        >>> spent, enough = udp.Accountant().compose(round, 1000).bounds(1e-6)
        >>> f"{spent:.4f} {enough:.4f}"
        '2.1245 2.1245'
        """
    def curve(self, orders: Sequence[float] | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Renyi orders and the divergence of everything composed at each of them; infinite where none is finite.

        >>> import undertone_dp as udp
        >>> udp.Accountant().compose(udp.Event.Gaussian(noise_multiplier=2.0)).curve([2.0, 8.0])
        ((2.0, 8.0), (0.25, 1.0))
        """
    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The largest true positive rate of any test, at this false positive rate, of a user's presence.

        >>> import undertone_dp as udp
        >>> accountant = udp.Accountant("pld").compose(udp.Event.Laplace(scale=1.0))
        >>> round(accountant.true_positive_rate(0.1), 3)
        0.272
        """
    def _pure_epsilon(self) -> float: ...
    @property
    def events(self) -> list[tuple[Event, int]]:
        """The distinct events composed so far, each with its number of rounds."""
    @property
    def rounds(self) -> int:
        """Releases composed so far."""
    @property
    def recipe(self) -> str:
        """The recipe that answers: for `auto`, the tightest that covers everything composed."""
    @property
    def adjacency(self) -> str | None:
        """The relation that was asked for; `None` for that of the first event."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __reduce__(self) -> tuple[Callable[..., Accountant], tuple[object, ...]]: ...

@final
class Participation:
    """A participation schema: at most so many participations of one user, so far apart.

    `gap` is the distance of two participations in rounds: 1 allows every round.

    >>> import undertone_dp as udp
    >>> schema = udp.Participation.at_least(gap=213, max_participation=8)
    >>> schema.effective(930).max_participation
    5
    """
    @staticmethod
    def single() -> Participation:
        """One participation in the whole run.

        >>> import undertone_dp as udp
        >>> udp.Participation.single().max_participation
        1
        """
    @staticmethod
    def at_least(*, gap: int, max_participation: int) -> Participation:
        """At most `max_participation` participations, any two at least `gap` rounds apart.

        >>> import undertone_dp as udp
        >>> udp.Participation.at_least(gap=2, max_participation=3)
        Participation.at_least(gap=2, max_participation=3)
        """
    @staticmethod
    def fixed_epochs(*, gap: int, max_participation: int) -> Participation:
        """At most `max_participation` participations, consecutive ones exactly `gap` rounds apart.

        >>> import undertone_dp as udp
        >>> udp.Participation.fixed_epochs(gap=10, max_participation=3).spacing
        'exactly'
        """
    def effective(self, rounds: int) -> Participation:
        """The schema with no more participations than fit into `rounds`.

        >>> import undertone_dp as udp
        >>> udp.Participation.at_least(gap=4, max_participation=9).effective(10).max_participation
        3
        """
    @property
    def gap(self) -> int:
        """Distance in rounds between two participations."""
    @property
    def max_participation(self) -> int:
        """The largest number of participations."""
    @property
    def spacing(self) -> str:
        """`at-least` or `exactly`."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Callable[[bool, int, int], Participation], tuple[bool, int, int]]: ...

def epsilon(
    event: Event,
    *,
    delta: float,
    rounds: int = 1,
    recipe: _Recipe = "auto",
    adjacency: _Adjacency | None = None,
) -> float:
    """The smallest epsilon at `delta` for `rounds` releases of `event`.

    >>> import undertone_dp as udp
    >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    >>> f"{udp.epsilon(round, delta=1e-6, rounds=1000):.4f}"
    '2.1245'
    """
def noise_multiplier(
    event: Event | Callable[[float], _Composition],
    *,
    epsilon: float,
    delta: float,
    rounds: int = 1,
    recipe: _Recipe = "auto",
    adjacency: _Adjacency | None = None,
) -> float:
    """The smallest noise multiplier with which `rounds` releases hold the target.

    `event` is an event, whose own noise multiplier is replaced, or a function from a noise multiplier to an event or to a
    list of (event, rounds).

    >>> import undertone_dp as udp
    >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    >>> z = udp.calibrate.noise_multiplier(round, epsilon=2.0, delta=1e-6, rounds=1000)
    >>> udp.epsilon(round.replace(noise_multiplier=z), delta=1e-6, rounds=1000) <= 2.0
    True
    """
def sampling_probability(
    event: Event | Callable[[float], _Composition],
    *,
    epsilon: float,
    delta: float,
    rounds: int = 1,
    recipe: _Recipe = "auto",
    adjacency: _Adjacency | None = None,
) -> float:
    """The largest sampling probability with which `rounds` releases hold the target.

    >>> import undertone_dp as udp
    >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    >>> q = udp.calibrate.sampling_probability(round, epsilon=2.0, delta=1e-6, rounds=1000)
    >>> udp.epsilon(round.replace(sampling_probability=q), delta=1e-6, rounds=1000) <= 2.0
    True
    """
def rounds(
    event: Event,
    *,
    epsilon: float,
    delta: float,
    recipe: _Recipe = "auto",
    adjacency: _Adjacency | None = None,
) -> int:
    """The largest number of releases of `event` that holds the target.

    >>> import undertone_dp as udp
    >>> round = udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    >>> udp.calibrate.rounds(round, epsilon=2.0, delta=1e-6)
    874
    """
def parameter(
    make: Callable[[float], _Composition],
    *,
    epsilon: float,
    delta: float,
    between: tuple[float, float],
    decreasing: bool,
    recipe: _Recipe = "auto",
    adjacency: _Adjacency | None = None,
    integer: bool = False,
) -> float:
    """The best value of any parameter: the one nearest to the risky end of `between` that holds the target.

    `make` returns an event or a list of (event, rounds) for a value; it may raise. `decreasing` says that epsilon falls when
    the value grows, so the largest value is the safe end. With `integer`, only whole numbers count.

    >>> import undertone_dp as udp
    >>> make = lambda z: [(udp.Event.Gaussian(noise_multiplier=z), 10), (udp.Event.Laplace(scale=50.0), 1)]
    >>> z = udp.calibrate.parameter(make, epsilon=1.0, delta=1e-6, between=(1.0, 100.0), decreasing=True)
    >>> udp.Accountant().compose(make(z)[0][0], 10).compose(make(z)[1][0]).epsilon(1e-6) <= 1.0
    True
    """
def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """The smallest epsilon at which one Gaussian release holds `delta`.

    >>> import undertone_dp as udp
    >>> round(udp.gaussian.epsilon(4.0, 1e-5), 4)
    0.9263
    """
def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """The smallest delta at which one Gaussian release holds `epsilon`, which may be negative.

    >>> import undertone_dp as udp
    >>> round(udp.gaussian.delta(1.0, 1.0), 6), round(udp.gaussian.delta(1.0, -1.0), 6)
    (0.126937, 0.678818)
    """
def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """The smallest noise multiplier at which one Gaussian release holds `(epsilon, delta)`.

    >>> import undertone_dp as udp
    >>> round(udp.gaussian.noise_multiplier(1.0, 1e-5), 4)
    3.7306
    """
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at `delta` of anything with this rho, by the improved conversion.

    >>> import undertone_dp as udp
    >>> udp.zcdp.epsilon(0.5, 1e-6) > udp.zcdp.epsilon_of_gaussians(0.5, 1e-6)
    True
    """
def zcdp_epsilon_of_gaussians(rho: float, delta: float) -> float:
    """Exact epsilon at `delta` of a composition of Gaussians whose rhos add up to `rho`; wrong for other mechanisms.

    >>> import undertone_dp as udp
    >>> udp.zcdp.epsilon_of_gaussians(0.5, 1e-6) == udp.gaussian.epsilon(1.0, 1e-6)
    True
    """
def group_privacy(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """The guarantee for a group of `size` records, from `(epsilon, delta)` for one record.

    It holds for every mechanism. Accounting for the whole user is tighter where the mechanism is known.

    >>> import undertone_dp as udp
    >>> epsilon, delta = udp.group(0.5, 1e-9, 4)
    >>> epsilon, f"{delta:.4e}"
    (2.0, '9.8487e-09')
    """
def sensitivity_tree(rounds: int, participation: Participation) -> tuple[float, bool]:
    """Sensitivity of one binary tree over `rounds`, and whether it is exact.

    >>> import undertone_dp as udp
    >>> udp.sensitivity.tree(8, udp.Participation.single())
    (2.0, True)
    """
def sensitivity_toeplitz(coefficients: Sequence[float], participation: Participation) -> tuple[float, bool]:
    """Sensitivity of a Toeplitz strategy matrix with these coefficients, one per round, and whether it is exact.

    >>> import undertone_dp as udp
    >>> udp.sensitivity.toeplitz([2.0, 0.0, 0.0], udp.Participation.single())
    (2.0, True)
    """
def sensitivity_banded(columns: Sequence[Sequence[float]], participation: Participation) -> tuple[float, bool]:
    """Sensitivity of a banded strategy matrix, given as `rounds` columns of `bands` entries, and whether it is exact.

    >>> import undertone_dp as udp
    >>> udp.sensitivity.banded([[3.0, 4.0], [3.0, 4.0], [3.0, 0.0]], udp.Participation.single())
    (5.0, True)
    """
def sensitivity_general(rows: Sequence[Sequence[float]], participation: Participation) -> tuple[float, bool]:
    """Sensitivity of a lower-triangular strategy matrix, given as rows, and whether it is exact.

    >>> import undertone_dp as udp
    >>> udp.sensitivity.general([[3.0, 0.0], [4.0, 1.0]], udp.Participation.single())
    (5.0, True)
    """
def _answer(words: list[str]) -> tuple[str, list[str]]: ...
def _command(words: list[str]) -> int: ...
def _repetitions(mean: float, shape: float | None) -> Repetitions: ...
def _accountant(
    recipe: str,
    adjacency: str | None,
    orders: Sequence[float] | None,
    events: Sequence[tuple[Event, int]],
) -> Accountant: ...
def _participation(exactly: bool, gap: int, max_participation: int) -> Participation: ...
def _plan(
    mechanism: str,
    *,
    population: int,
    rounds: int,
    report_goal: int,
    delta: float,
    epsilon: float | None,
    rho: float | None,
    max_participation: int | None,
    separation_share: float,
    noise_scale: float,
) -> str: ...

@final
class Array:
    """Numbers in one dimension, for numpy, torch, jax and every other reader of the buffer protocol or DLPack.

    `numpy.asarray(array)` and `torch.from_dlpack(array)` share its memory: nothing is copied. Without either, `list(array)`
    gives Python's numbers.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> array = next(iter(udp.PoissonUsers(5, 1.0, rounds=1)))
    >>> list(array), array.dtype
    ([0, 1, 2, 3, 4], 'int64')
    >>> memoryview(array).nbytes
    40
    """
    @property
    def dtype(self) -> Literal["float32", "float64", "int64"]:
        """Name of the numbers' type: `float32`, `float64` or `int64`."""
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def tolist(self) -> list[Any]:
        """The numbers as a list of Python's numbers."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Any: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class NoiseKey:
    """A secret from which noise or draws follow. Its bytes never come out again.

    Without a seed the operating system gives 32 bytes. A seed makes noise that anyone who knows the seed can subtract.

    >>> import undertone_dp as udp
    >>> udp.NoiseKey.insecure_seed(7).origin, udp.NoiseKey.random().origin
    ('insecure-seed', 'entropy')
    >>> udp.NoiseKey.random().id == udp.NoiseKey.random().id
    False
    """
    @staticmethod
    def random() -> NoiseKey:
        """A key from the operating system's entropy."""
    @staticmethod
    def insecure_seed(seed: int) -> NoiseKey:
        """A key that a seed determines: no secret. For studies and tests."""
    @staticmethod
    def from_bytes(bytes: bytes) -> NoiseKey:
        """A key of 32 bytes that were drawn elsewhere. For tests: nothing is known of their origin."""
    @property
    def id(self) -> str:
        """Name of the key that does not give it away: two keys never share it."""
    @property
    def origin(self) -> Literal["entropy", "insecure-seed"]:
        """`"entropy"` or `"insecure-seed"`."""
    def __reduce__(self) -> NoReturn: ...

@final
class NoiseStream:
    """Correlated noise in float32, row after row, for simulations and research.

    Adding these rows to float32 sums is not a release with a proved guarantee: low bits of such sums tell of their
    summands. Real training adds its noise to integers, in a run or a session.

    Rows are written in place into memory of numpy, torch or anything else on the CPU, on all threads, while other threads
    of Python run.

    >>> import undertone_dp as udp
    >>> from array import array
    >>> schema = udp.Participation.single()
    >>> blt = udp.Mechanism("blt", rounds=100, participation=schema, noise_multiplier=1.0)
    >>> stream = blt.noise(5, clip_norm=1.0, key=udp.NoiseKey.insecure_seed(1))
    >>> row = array("f", bytes(20))
    >>> stream.next_into(row)
    >>> stream.round, any(row)
    (1, True)
    """
    def next_into(self, out: object, *, add: bool = False) -> None:
        """Writes the noise of the next round into `out`, or adds it.

        `out` is contiguous, writable float32 memory on the CPU of `dim` numbers in any shape: numpy by the buffer protocol,
        torch by DLPack, and no copy is made. Anything else is a `TypeError` that names what is wrong.
        """
    def next(self) -> Array:
        """The noise of the next round, as an array of its own."""
    def correlate(self, row: object) -> None:
        """Turns `row`, standard normal numbers of the caller, into the noise of the next round, in place."""
    def restart(self) -> None:
        """Forgets all earlier noise: later rounds are those of a new stream with fresh noise."""
    @property
    def round(self) -> int:
        """Rounds made."""
    @property
    def kept_vectors(self) -> int:
        """Vectors of `dim` numbers that the stream keeps in memory."""
    @property
    def dim(self) -> int:
        """Numbers per row."""
    def save(self) -> bytes:
        """Everything that later rounds need, except the key. A state is as secret as the noise."""
    def load(self, state: bytes) -> None:
        """Continues where `save` was called. Any other mechanism, key or size refuses the state."""
    def __reduce__(self) -> NoReturn: ...

@final
class Workload:
    """The linear map from the sums of the rounds to the models that the server releases.

    >>> import undertone_dp as udp
    >>> udp.Workload.momentum(0.9)
    Workload.momentum(0.9)
    >>> udp.Workload.prefix_sum().with_learning_rates([1.0, 0.5]) == udp.Workload.prefix_sum()
    False
    """
    @staticmethod
    def prefix_sum() -> Workload:
        """Plain SGD with a constant learning rate."""
    @staticmethod
    def momentum(momentum: float) -> Workload:
        """SGD with heavy-ball momentum in [0, 1)."""
    def with_learning_rates(self, learning_rates: Sequence[float]) -> Workload:
        """This workload with a learning rate for each round."""
    def to_json(self) -> str:
        """The workload as JSON."""
    @staticmethod
    def from_json(text: str) -> Workload:
        """The workload that `to_json` wrote."""
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[[str], Workload], tuple[str]]: ...

@final
class Certified:
    """A squared sensitivity, and whether it is exact or an upper bound.

    >>> import undertone_dp as udp
    >>> single = udp.Participation.single()
    >>> udp.optimize("independent", rounds=9, participation=single).squared_sensitivity(9, single)
    Certified(value=1.0, exact=True)
    """
    @property
    def value(self) -> float:
        """Squared L2 sensitivity per squared clip norm. The true value is never larger."""
    @property
    def exact(self) -> bool:
        """True if some schedule of participations attains it."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class Errors:
    """Standard deviation of the noise in the models, for standard deviation 1 in every entry of the fresh noise.

    >>> import undertone_dp as udp
    >>> udp.optimize("independent", rounds=9, participation=udp.Participation.single()).errors(9).max_error
    3.0
    """
    @property
    def max_error(self) -> float:
        """The largest error over the rounds."""
    @property
    def rms_error(self) -> float:
        """The root mean square of the errors over the rounds."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class Losses:
    """Errors times sensitivity, by which mechanisms compare at equal privacy.

    >>> import undertone_dp as udp
    >>> single = udp.Participation.single()
    >>> udp.Mechanism("independent", rounds=9, participation=single, noise_multiplier=1.0).losses().max_loss
    3.0
    """
    @property
    def sensitivity(self) -> float:
        """L2 sensitivity per clip norm."""
    @property
    def max_loss(self) -> float:
        """The largest error over the rounds, times the sensitivity."""
    @property
    def rms_loss(self) -> float:
        """The root mean square of the errors, times the sensitivity."""
    def __eq__(self, other: object, /) -> bool: ...

_Kind: TypeAlias = Literal[
    "independent",
    "tree",
    "tree-full",
    "blt",
    "normalised-blt",
    "fhu",
    "banded-toeplitz",
    "normalised-banded-toeplitz",
    "banded",
    "bisr",
    "inverse-toeplitz",
    "lambda",
    "normalised-lambda",
    "square-root",
    "normalised-square-root",
    "dense",
]

@final
class Strategy:
    """A noise matrix: each round's sum receives its row of the inverse matrix times fresh noise.

    `optimize` finds one. `from_json` reads a stored one.

    >>> import undertone_dp as udp
    >>> schema = udp.Participation.at_least(gap=10, max_participation=3)
    >>> tree = udp.optimize("tree", rounds=40, participation=schema)
    >>> tree.kind, tree.squared_sensitivity(40, schema)
    ('tree', Certified(value=26.0, exact=True))
    """
    @property
    def kind(self) -> str:
        """Kind of the matrix, as in its JSON."""
    @property
    def name(self) -> str:
        """Name in tables and plots."""
    @property
    def rounds(self) -> int | None:
        """Rounds that the matrix was made for; `None` if it goes on without end."""
    def errors(self, rounds: int, workload: Workload | None = None) -> Errors:
        """Error of the models over `rounds` rounds."""
    def squared_sensitivity(self, rounds: int, participation: Participation) -> Certified:
        """Squared sensitivity of the first `rounds` rounds under a participation schema."""
    def to_json(self) -> str:
        """The matrix as JSON, with every number."""
    @staticmethod
    def dense(rows: Sequence[Sequence[float]]) -> Strategy:
        """Your own lower-triangular matrix, by its rows: a list of lists, or an array of two dimensions.

        A row has all numbers up to the diagonal, and either nothing or zeros beyond it.

        >>> import undertone_dp as udp
        >>> mine = udp.Strategy.dense([[1, 0, 0], [0.5, 1, 0], [0.25, 0.5, 1]])
        >>> round(mine.squared_sensitivity(3, udp.Participation.single()).value, 6)
        1.3125
        """
    @staticmethod
    def toeplitz(coefficients: Sequence[float]) -> Strategy:
        """The Toeplitz matrix with these coefficients, the diagonal's first, for any number of rounds."""
    @staticmethod
    def from_json(text: str) -> Strategy:
        """The matrix that `to_json` wrote."""
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[[str], Strategy], tuple[str]]: ...

@final
class Mechanism:
    """A noise matrix for a number of rounds, a participation schema and a noise multiplier.

    One value gives the noise, its certified sensitivity, its losses and the event that an accountant composes: none can be
    of another matrix than the others. The guarantee holds for every user who keeps to the schema, under the zero-out
    relation. It assumes nothing about how users are sampled.

    >>> import undertone_dp as udp
    >>> schema = udp.Participation.at_least(gap=100, max_participation=2)
    >>> blt = udp.Mechanism("blt", rounds=200, participation=schema, noise_multiplier=4.0)
    >>> blt.guarantee(1e-6).epsilon < 5
    True
    """
    def __new__(
        cls, strategy: Strategy | _Kind, *, rounds: int, participation: Participation, noise_multiplier: float
    ) -> Self: ...
    @property
    def strategy(self) -> Strategy:
        """The matrix."""
    @property
    def rounds(self) -> int:
        """Rounds that the guarantee covers."""
    @property
    def participation(self) -> Participation:
        """The schema that every user has to keep to."""
    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of every entry of the fresh noise, in clip norms."""
    @property
    def sensitivity(self) -> float:
        """L2 sensitivity per clip norm: never below the true value."""
    @property
    def sensitivity_is_exact(self) -> bool:
        """True if some schedule of participations attains the sensitivity."""
    @property
    def event(self) -> Event.CorrelatedGaussian:
        """The event of the whole run, in exact arithmetic."""
    @property
    def digest(self) -> str:
        """SHA-256 of the description, in hexadecimal."""
    def guarantee(self, delta: float) -> Guarantee:
        """The guarantee of the whole run at `delta`, exact for Gaussians, under the zero-out relation."""
    def losses(self, workload: Workload | None = None) -> Losses:
        """Errors of the models times the sensitivity."""
    def noise(
        self,
        dim: int,
        *,
        clip_norm: float,
        key: NoiseKey | None = None,
        history: Literal["keep", "remake"] | None = None,
        cumulative: bool = False,
    ) -> NoiseStream:
        """A stream of this mechanism's noise for vectors of `dim` numbers, for research.

        Without a key, the operating system gives one. `history` is `"keep"` or `"remake"`: more memory or more time, for
        matrices whose rounds look far back. With `cumulative`, rounds give the noise in the sum of all rounds so far.
        """
    def to_json(self) -> str:
        """The description as JSON: matrix, rounds, schema and noise multiplier."""
    @staticmethod
    def from_json(text: str) -> Mechanism:
        """The mechanism that `to_json` wrote; its sensitivity is computed again."""
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[[str], Mechanism], tuple[str]]: ...

@disjoint_base
class Sampler:
    """Draws of a run, round by round. Iterating gives one int64 array per round.

    A round is drawn once. The draws follow from the key, so `state_dict` holds the next round and the key's name. A sampler
    that is made anew with this key continues after `load_state_dict`. With `NoiseKey.insecure_seed(n)`, the draws are those of
    a run whose file has `seed = n`.

    Sampling amplifies privacy only while nobody learns who was drawn. Keep the draws as secret as the noise.

    >>> import undertone_dp as udp
    >>> isinstance(udp.PoissonUsers(9, 0.5, rounds=1), udp.Sampler)
    True
    """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Array: ...
    def __len__(self) -> int: ...
    @property
    def round(self) -> int:
        """Rounds drawn."""
    @property
    def rounds(self) -> int:
        """Rounds to draw in all."""
    @property
    def participation(self) -> Participation | None:
        """The participation schema that every user keeps to; `None` where users are drawn anew in each round."""
    def event(self, noise_multiplier: float) -> Event:
        """The event of one round whose sum of clipped contributions gets Gaussian noise of `noise_multiplier` clip norms.

        The clip norm bounds what the sampler draws: a user's contribution, or one example's under example-level sampling.
        """
    def state_dict(self) -> dict[str, Any]:
        """The next round and the name of the key."""
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues after the rounds of a state of this key."""
    def __reduce__(self) -> NoReturn: ...

@final
class PoissonUsers(Sampler):
    """Poisson sampling: every user joins every round independently with `probability`.

    >>> import undertone_dp as udp
    >>> sampler = udp.PoissonUsers(1000, 0.01, rounds=3, key=udp.NoiseKey.insecure_seed(1))
    >>> cohorts = [list(users) for users in sampler]
    >>> len(cohorts), cohorts[0] == sorted(cohorts[0])
    (3, True)
    >>> sampler.event(1.0)
    Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    """
    def __new__(cls, num_users: int, probability: float, *, rounds: int, key: NoiseKey | None = None) -> Self: ...

@final
class FixedSizeUsers(Sampler):
    """Cohorts of exactly `size` users, every subset equally likely, fresh in each round.

    >>> import undertone_dp as udp
    >>> sampler = udp.FixedSizeUsers(100, 7, rounds=2)
    >>> [len(users) for users in sampler]
    [7, 7]
    """
    def __new__(cls, num_users: int, size: int, *, rounds: int, key: NoiseKey | None = None) -> Self: ...

@final
class ShuffledEpochs(Sampler):
    """Shuffled epochs: one random order of all users, walked through in cohorts of at least `users_per_round`, again and again.

    A user's participations are exactly one epoch apart: `participation` states this schema.

    >>> import undertone_dp as udp
    >>> sampler = udp.ShuffledEpochs(1218, 128, rounds=40)
    >>> sampler.participation
    Participation.fixed_epochs(gap=9, max_participation=5)
    """
    def __new__(cls, num_users: int, users_per_round: int, *, rounds: int, key: NoiseKey | None = None) -> Self: ...

@final
class UserLevelSampling(Sampler):
    """User-level sampling: users join by Poisson sampling, each with at most `group_size` random examples of its own.

    `user_of_example` names the user of each example by a whole number. A round's array holds the numbers of examples, grouped
    by user. Clip what each user's examples give together: the event is that of users.

    >>> import undertone_dp as udp
    >>> owners = [0, 0, 0, 7, 7, 3]
    >>> sampler = udp.UserLevelSampling(owners, group_size=2, probability=1.0, rounds=1)
    >>> [owners[example] for example in next(sampler)]
    [0, 0, 3, 7, 7]
    """
    def __new__(
        cls, user_of_example: object, *, group_size: int, probability: float, rounds: int, key: NoiseKey | None = None
    ) -> Self: ...

@final
class ExampleLevelSampling(Sampler):
    """Example-level sampling: at most `group_size` examples per user are kept for the whole run, and each joins every round
    independently with `probability`.

    Clip each example by itself. The event promises privacy to users: one may hold several of a round's examples.

    >>> import undertone_dp as udp
    >>> sampler = udp.ExampleLevelSampling([0, 0, 0, 1], group_size=2, probability=1.0, rounds=2)
    >>> first, second = sampler
    >>> list(first) == list(second), len(first)
    (True, 3)
    """
    def __new__(
        cls, user_of_example: object, *, group_size: int, probability: float, rounds: int, key: NoiseKey | None = None
    ) -> Self: ...

def optimize(
    kind: _Kind,
    *,
    rounds: int,
    participation: Participation,
    workload: Workload | None = None,
    objective: Literal["max", "rms"] = "rms",
    buffers: int | None = None,
    bands: int | None = None,
    progress: Callable[[int, float], object] | None = None,
) -> Strategy:
    """The matrix of a kind with the smallest loss for a run.

    `kind` is a name of a run file: `independent`, `tree`, `tree-full`, `blt`, `normalised-blt`, `fhu`, `banded-toeplitz`,
    `normalised-banded-toeplitz`, `banded`, `bisr`, `inverse-toeplitz`, `lambda`, `normalised-lambda`, `square-root`,
    `normalised-square-root` or `dense`. `progress` is called with the steps taken and an estimate of the share of the way,
    by the kind that takes more than moments: `banded`.

    >>> import undertone_dp as udp
    >>> schema = udp.Participation.fixed_epochs(gap=34, max_participation=6)
    >>> loss = lambda kind: udp.Mechanism(kind, rounds=204, participation=schema, noise_multiplier=1.0).losses().rms_loss
    >>> loss("blt") < 0.8 * loss("tree")
    True
    """
def set_threads(threads: int) -> None:
    """Sets the number of threads that the package computes on; the number of cores by default.

    Results do not depend on it.

    Examples
    --------
    >>> import undertone_dp as udp
    >>> udp.set_threads(1)
    >>> udp.set_threads(0)
    Traceback (most recent call last):
    ValueError: threads must be at least 1, got 0
    """

# Runs, data and sums.

class RunError(UndertoneError):
    """A run that cannot be started, continued, read or finished.

    >>> import undertone_dp as udp
    >>> issubclass(udp.RunError, udp.UndertoneError)
    True
    """
class ConfigError(UndertoneError):
    """A setting of a run that is unknown, missing or outside its range. The message names its key.

    >>> import undertone_dp as udp
    >>> try:
    ...     udp.train({'name': None})
    ... except udp.ConfigError as error:
    ...     print(error.kind, '|', error)
    config-value | configuration key `name`: expected a value (leave the key out for its default), got null
    """
class DataError(UndertoneError):
    """Text that no corpus can be made from. The message names file and line, or the row of a table.

    >>> import undertone_dp as udp
    >>> try:
    ...     udp.Corpus.from_table({'user': [None], 'text': ['two words']}, user='user', text='text',
    ...                           vocabulary={'kind': 'training_data', 'size': 9})
    ... except udp.DataError as error:
    ...     print(error.kind, '|', error)
    bad-value | table, row 1: column "user": expected a value, got null
    """
class AggregationError(UndertoneError):
    """An update or a layout that cannot be summed.

    >>> import undertone_dp as udp
    >>> try:
    ...     udp.ParamLayout({'w': (3, 0)})
    ... except udp.AggregationError as error:
    ...     print(error.kind)
    empty-tensor
    """
class SecAggError(UndertoneError):
    """A secure sum that is not possible with these clients or settings.

    >>> import undertone_dp as udp
    >>> try:
    ...     udp.secagg.parameters(1)
    ... except udp.SecAggError as error:
    ...     print(error.kind, '|', error)
    setting | the number of clients must be 2 to 2^20, got 1
    """

@final
class ParamLayout:
    """The names, shapes and places of tensors in a flat update. Each tensor is a group of its own for clipping per tensor.

    >>> import undertone_dp as udp
    >>> layout = udp.ParamLayout({"w": (2, 3), "b": (3,)})
    >>> len(layout), layout.tensors
    (9, {'w': (2, 3), 'b': (3,)})
    """
    def __new__(cls, tensors: Mapping[str, tuple[int, ...]]) -> Self: ...
    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors by their names, in the order of the update."""
    def range(self, name: str) -> range:
        """The first and the last-but-one place of a tensor in the update.

        >>> import undertone_dp as udp
        >>> udp.ParamLayout({"w": (2, 3), "b": (3,)}).range("b")
        range(6, 9)
        """
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

class SessionError(UndertoneError):
    """A step of a session that its state does not admit, or a folder that is not that of the session.

    >>> import tempfile, undertone_dp as udp
    >>> config = {"name": "s", "rounds": 1, "cohort": {"users_per_round": 2}, "privacy": {"noise_multiplier": 2.0}}
    >>> session = udp.Session.create(tempfile.mkdtemp(), config, users=9, dim=1)
    >>> try:
    ...     session.finish({"parameters": memoryview(bytes(4)).cast("f")})
    ... except udp.SessionError as error:
    ...     print(error)
    the session has no closed round, so there is nothing to finish
    """
class BudgetExceeded(SessionError):
    """A round that would raise epsilon above the budget of the session. Nothing of it was drawn.

    >>> import tempfile, undertone_dp as udp
    >>> config = {"name": "s", "rounds": 9, "cohort": {"users_per_round": 2},
    ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5, "max_epsilon": 0.1}}
    >>> try:
    ...     udp.Session.create(tempfile.mkdtemp(), config, users=9, dim=1)
    ... except udp.BudgetExceeded as error:
    ...     print(error.kind)
    budget-exceeded
    """
class ParticipationError(SessionError):
    """A contribution that the round does not take, or a cohort that breaks the declared schema.

    >>> import tempfile, undertone_dp as udp
    >>> config = {"name": "s", "rounds": 1, "cohort": {"sampling_probability": 1.0},
    ...           "privacy": {"noise_multiplier": 2.0}}
    >>> round = next(iter(udp.Session.create(tempfile.mkdtemp(), config, users=9, dim=1)))
    >>> try:
    ...     round.add(9, memoryview(bytes(4)).cast("f"))
    ... except udp.ParticipationError as error:
    ...     print(error)
    round 0, unit 9: expected a unit from 0 to 8
    """

@final
class Session:
    """Private training of a model of any program: the session draws the users of each round, bounds and sums their updates, adds the
    noise, and keeps the ledger.

    The program gives one update for each unit of a round, and takes the noised average. Clipping and noise are exact integers. The
    ledger and what brings the noise back are durable before an average is given out, so a program that dies can go on with
    `resume=True`. It has then spent exactly the rounds that the ledger has.

    Save the model after every release: a session cannot give out an average twice.

    Examples
    --------
    >>> import tempfile, array
    >>> import undertone_dp as udp
    >>> config = {"name": "mean", "rounds": 2, "cohort": {"users_per_round": 50},
    ...           "clip": {"kind": "flat", "norm": 1.0}, "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
    >>> out = tempfile.mkdtemp()
    >>> session = udp.Session.create(out, config, users=1000, dim=3)
    >>> average = array.array("f", bytes(12))
    >>> for round in session:
    ...     for unit, user in enumerate(round.users):
    ...         report = round.add(unit, array.array("f", [3.0, 0.0, 4.0]))
    ...     released = round.release(average)
    >>> report.norm, report.clipped, released.round
    (5.0, True, 1)
    >>> run = session.finish({"parameters": average})
    >>> print(session.planned)
    (eps = 0.220, delta = 1e-5), add-or-remove one user, Poisson sampling, PLD upper bound
    """
    @staticmethod
    def create(
        out: str | os.PathLike[str],
        config: Mapping[str, Any] | str | os.PathLike[str],
        *,
        users: int,
        dim: int,
        layout: Mapping[str, Sequence[int]] | None = None,
        examples: object | None = None,
        resume: bool = False,
        unit_rng: Literal["own", "caller"] | None = None,
    ) -> Session:
        """Starts a session in a folder of `out` that has its name, or with `resume=True` goes on with the one that is there.

        `config` is a mapping with the keys of a run file, its text, or the path of a file: `name`, `rounds`, `cohort`, `clip`,
        `privacy`, and where they are wanted `user_update`, `estimator`, `participation`, `schedule`, `checkpoint` and `seed`.
        `users` is the number of users in the population, and `dim` the number of parameters. `layout` gives the shapes of the
        tensors by their names, in the order of an update. With example-level sampling `examples` holds the number of examples of
        each user. `unit_rng` stands above the key of that name: with `"caller"` the units draw from generators that the program keeps,
        and the privacy report says so.

        >>> import tempfile
        >>> import undertone_dp as udp
        >>> config = {"name": "epochs", "rounds": 40, "cohort": {"sampling": "shuffled_epochs", "users_per_round": 128},
        ...           "privacy": {"noise_multiplier": 3.0, "delta": 1e-5, "mechanism": {"kind": "blt", "buffers": 2}}}
        >>> session = udp.Session.create(tempfile.mkdtemp(), config, users=1218, dim=7, layout={"w": (2, 3), "b": (1,)})
        >>> session.participation
        Participation.fixed_epochs(gap=9, max_participation=5)
        """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Round: ...
    def finish(self, tensors: Mapping[str, Any]) -> Run:
        """Writes the model, the report and the manifest, and removes what would tell who was sampled. Returns the finished `Run`.

        `tensors` holds exactly the tensors of the layout, or `"parameters"` where the session has none. An open round is dropped.
        """
    def close(self) -> None:
        """Lets go of the folder without finishing. The session can then be resumed, in this process or another."""
    @property
    def planned(self) -> Guarantee | None:
        """The guarantee of all rounds, computed before the first; `None` where the session is not private."""
    @property
    def epsilon(self) -> float | None:
        """Epsilon of the closed rounds at the delta of the session; `None` where there is none."""
    @property
    def participation(self) -> Participation | None:
        """The participation schema that the guarantee rests on; `None` where it rests on sampling."""
    @property
    def round(self) -> int:
        """Closed rounds."""
    @property
    def rounds(self) -> int:
        """Rounds in all."""
    @property
    def dim(self) -> int:
        """Number of parameters."""
    @property
    def denominator(self) -> float | None:
        """The number that sums are divided by; `None` where it is the number of contributions."""
    @property
    def unit_rng(self) -> Literal["own", "caller"]:
        """The origin of the random numbers of units: `"own"` where each has generators of its own, or `"caller"`."""
    @property
    def path(self) -> str:
        """The folder of the session."""
    def __reduce__(self) -> NoReturn: ...

@final
class Round:
    """An open round of a session: its users, and the sum of what they contribute.

    A unit is the place of a user in `users`. With example-level sampling it is the place of an example in `examples`.

    >>> import tempfile
    >>> from array import array
    >>> import undertone_dp as udp
    >>> config = {"name": "s", "rounds": 1, "cohort": {"sampling_probability": 1.0},
    ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
    >>> round = next(udp.Session.create(tempfile.mkdtemp(), config, users=3, dim=2))
    >>> round.index, list(round.users), round.examples
    (0, [0, 1, 2], None)
    """
    @property
    def index(self) -> int:
        """The index of the round, from 0."""
    @property
    def users(self) -> Array:
        """The users of the round, ascending, as int64."""
    @property
    def examples(self) -> list[tuple[int, int]] | None:
        """The sampled examples under example-level sampling, as pairs of a user and a place among its examples; else `None`."""
    def add(self, unit: int, update: object) -> ClipReport:
        """Adds the update of a unit. It is copied first, and then bounded and added from the copy.

        `update` is contiguous float32 memory on the CPU. Whatever it holds, the sum moves by at most the clip norm: an update that is
        not finite counts as zero in a private session. `ParticipationError` for a unit that has contributed and for a place that the
        round does not have.
        """
    def add_many(self, units: object, updates: object) -> list[ClipReport]:
        """Adds the updates of several units, one after the other in one buffer. Where one is refused, those before it have been added."""
    def choose(self, user: int, available: int) -> Array:
        """The places of at most `group_size` of the `available` examples of a user of the round, with user-level sampling."""
    def release(self, out: object) -> Released:
        """Closes the round and writes its noised average to `out`, contiguous writable float32 memory on the CPU.

        The ledger and the entropy of the noise are durable before. A unit without an update counts as zero. After an error `out` is
        untouched.
        """
    def _gpu_groups(self) -> list[list[tuple[int, int]]] | None: ...
    def _audits(self, unit: int) -> bool: ...
    def _announce(self, unit: int) -> None: ...
    def _add_on_gpu(self, unit: int, norms: object) -> tuple[ClipReport, list[tuple[int, int]]]: ...
    def _audit(self, update: object) -> None: ...
    def _merge_gpu(self, first: int, part: object) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@final
class ClipReport:
    """The outcome of clipping or adding one update. PRIVACY: it is an exact statistic of a user.

    >>> import tempfile
    >>> from array import array
    >>> import undertone_dp as udp
    >>> config = {"name": "s", "rounds": 1, "cohort": {"sampling_probability": 1.0},
    ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
    >>> round = next(udp.Session.create(tempfile.mkdtemp(), config, users=3, dim=2))
    >>> round.add(2, array("f", [float("nan"), 1.0]))
    ClipReport(norm=0.0, clipped=False, discarded=True)
    """
    @property
    def norm(self) -> float:
        """The L2 norm before clipping; 0 for an update that was discarded."""
    @property
    def clipped(self) -> bool:
        """True if the update was shortened to the clip norm."""
    @property
    def discarded(self) -> bool:
        """True if the update was not finite and counts as zero."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Released:
    """A noised average that was given out.

    >>> import tempfile
    >>> from array import array
    >>> import undertone_dp as udp
    >>> config = {"name": "s", "rounds": 1, "cohort": {"sampling_probability": 1.0},
    ...           "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}}
    >>> round = next(udp.Session.create(tempfile.mkdtemp(), config, users=3, dim=2))
    >>> released = round.release(array("f", [0.0, 0.0]))
    >>> released.round, released.noise_std, len(released.sha256)
    (0, 0.6666666666666666, 64)
    """
    @property
    def round(self) -> int:
        """The round."""
    @property
    def sha256(self) -> str:
        """SHA-256 of the values as little-endian bytes, as the ledger states it."""
    @property
    def clip_norm(self) -> float | None:
        """Max L2 norm of one contribution to the sum of the round; `None` without clipping. It changes where adaptive clipping restarts."""
    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each value before any division by the clip norm; of correlated noise, of its fresh part."""
    @property
    def norm(self) -> float:
        """The L2 norm of the values."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

def clip(update: object, norm: float, layout: ParamLayout | None = None) -> ClipReport:
    """Shortens an update in place to an L2 norm of at most `norm`: the whole update, or with a layout each tensor to `norm / sqrt(tensors)`.

    `update` is a contiguous, writable float32 buffer. The result is computed on a copy and then written back. A sum must not rest on it:
    another thread can change the buffer afterwards.

    >>> import array
    >>> import undertone_dp as udp
    >>> update = array.array("f", [3.0, 4.0])
    >>> udp.clip(update, 2.5)
    ClipReport(norm=5.0, clipped=True, discarded=False)
    >>> [round(value, 3) for value in update]
    [1.5, 2.0]
    """

@final
class Table:
    """Columns of equal length, for every library that reads Arrow.

    `polars.DataFrame(table)` and `pyarrow.table(table)` share its memory. Without either, `column` gives Python's values.

    >>> import undertone_dp as udp
    >>> table = udp.Table.of({"user": ["ann", "bob"], "number": [1, None]})
    >>> len(table), table.columns, table.column("number")
    (2, ['user', 'number'], [1, None])
    """
    @staticmethod
    def of(columns: dict[str, list[Any]]) -> Table:
        """The table of these columns: equally long lists of strings, integers, floats or truth values; `None` is a missing value.

        >>> import undertone_dp as udp
        >>> udp.Table.of({"text": ["two words"]}).columns
        ['text']
        """
    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
    def column(self, name: str) -> list[Any]:
        """The values of a column as a list.

        >>> import undertone_dp as udp
        >>> udp.Table.of({"x": [1.5, 2.5]}).column("x")
        [1.5, 2.5]
        """
    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`; it needs pandas and pyarrow."""
    def to_polars(self) -> Any:
        """The table as a `polars.DataFrame`; it needs polars."""
    def __len__(self) -> int: ...
    def _repr_html_(self) -> str: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any: ...

@final
class _Corpus:
    @property
    def users(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def digest(self) -> str: ...
    def stats(self) -> str: ...
    def settings(self) -> str: ...

def _corpus(table: object, settings: str, base: str | os.PathLike[str]) -> _Corpus: ...
def _records(text: str) -> Table: ...
def _train(
    form: str,
    config: str,
    overrides: str,
    out: str | os.PathLike[str],
    threads: int | None,
    resume: bool,
    corpus: _Corpus | None,
    on_event: Callable[[Any, str], object] | None,
) -> str: ...
def _read_run(path: str | os.PathLike[str]) -> str: ...
def _read_ledger(path: str | os.PathLike[str]) -> str: ...
def _verify(path: str | os.PathLike[str]) -> str: ...
def _not_private() -> str: ...
def _pretrain(
    config: str,
    base: str | os.PathLike[str],
    out: str | os.PathLike[str],
    threads: int | None,
    resume: bool,
    on_event: Callable[[Any, str], object] | None,
) -> str: ...
def _pictures(path: str | os.PathLike[str]) -> list[tuple[str, str]]: ...
def _report(path: str | os.PathLike[str]) -> str: ...
def _export(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], layout: str, overwrite: bool
) -> tuple[str, list[str]]: ...
def _publish(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> str: ...
def _epsilon_delta(epsilon: float, delta: float) -> str: ...
def _secagg_sum(
    vectors: Mapping[int, object],
    *,
    bits: int = 32,
    neighbours: int | None = None,
    threshold: int | None = None,
    dropped: Iterable[int] | None = None,
) -> Array: ...
def _secagg_parameters(
    clients: int, drop_out_rate: float, corrupt_rate: float, active: bool
) -> tuple[int, int, float, float]: ...
