"""Descriptions of releases, under the names of `dp_accounting.dp_event`."""

from __future__ import annotations

import dataclasses
import sys
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

_event = dataclasses.dataclass(frozen=True, slots=True)


@runtime_checkable
class DpEventNamedTuple(Protocol):
    """A named tuple that stands for an event, for programs that store plain tuples."""

    module_name: str
    class_name: str


_tuples: dict[type, Any] = {}


def _names(event: DpEvent) -> tuple[str, ...]:
    if dataclasses.is_dataclass(event):
        return tuple(field.name for field in dataclasses.fields(event))
    return tuple(field.name for field in getattr(event, "__attrs_attrs__", ()))


def _to_tuple(value: Any) -> Any:
    if isinstance(value, DpEvent):
        return value.to_named_tuple()
    if isinstance(value, list):
        return [_to_tuple(item) for item in value]
    return value


def _from_tuple(value: Any) -> Any:
    if isinstance(value, tuple) and isinstance(value, DpEventNamedTuple):
        return DpEvent.from_named_tuple(value)
    if isinstance(value, list):
        return [_from_tuple(item) for item in value]
    return value


class DpEvent:
    """One release, or several."""

    __slots__ = ("__weakref__",)

    def to_named_tuple(self) -> Any:
        """The event as a named tuple with the names of its module and its class."""
        kind = type(self)
        if kind not in _tuples:
            names = ("module_name", "class_name", *_names(self))
            _tuples[kind] = namedtuple(f"_{kind.__name__}NamedTupleWrapper", names)  # noqa: PYI024
        values = (_to_tuple(getattr(self, name)) for name in _names(self))
        return _tuples[kind](kind.__module__, kind.__name__, *values)

    @classmethod
    def from_named_tuple(cls, obj: Any) -> DpEvent:
        """The event that `to_named_tuple` stands for. Its module must be loaded already."""
        kind = getattr(sys.modules.get(obj.module_name), obj.class_name, None)
        if not (isinstance(kind, type) and issubclass(kind, DpEvent)):
            raise ValueError(f"expected an event class of a loaded module, got {obj.module_name}.{obj.class_name}")
        return kind(*(_from_tuple(value) for value in obj[2:]))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


@_event
class NoOpDpEvent(DpEvent):
    """Nothing is released."""


@_event
class NonPrivateDpEvent(DpEvent):
    """A release without privacy."""


@_event
class UnsupportedDpEvent(DpEvent):
    """A release that no accountant supports."""


@_event
class RandomizedResponseDpEvent(DpEvent):
    """Randomised response among `num_buckets`, uniform with probability `noise_parameter`."""

    noise_parameter: float
    num_buckets: int


@_event
class GaussianDpEvent(DpEvent):
    """Gaussian noise; its standard deviation divided by the sensitivity."""

    noise_multiplier: float


@_event
class LaplaceDpEvent(DpEvent):
    """Laplace noise; its scale divided by the sensitivity."""

    noise_multiplier: float


@_event
class DiscreteLaplaceDpEvent(DpEvent):
    """Discrete Laplace noise on an integer."""

    noise_parameter: float
    sensitivity: int


@_event
class DiscreteGaussianDpEvent(DpEvent):
    """Discrete Gaussian noise on an integer, or on `dimension` of them with an L2 sensitivity."""

    sigma: float
    sensitivity: float = 1.0
    dimension: int | None = None


@_event
class EpsilonDeltaDpEvent(DpEvent):
    """A release with an (epsilon, delta) statement."""

    epsilon: float
    delta: float


@_event
class ExponentialMechanismDpEvent(DpEvent):
    """The exponential mechanism that is epsilon-differentially private."""

    epsilon: float


@_event
class PermuteAndFlipDpEvent(DpEvent):
    """The permute-and-flip mechanism that is epsilon-differentially private."""

    epsilon: float


@_event
class SelfComposedDpEvent(DpEvent):
    """`count` releases of one event."""

    event: DpEvent
    count: int


@_event
class ComposedDpEvent(DpEvent):
    """Several releases."""

    events: list[DpEvent]


@_event
class PoissonSampledDpEvent(DpEvent):
    """A release about a Poisson sample."""

    sampling_probability: float
    event: DpEvent


@_event
class SampledWithReplacementDpEvent(DpEvent):
    """A release about a sample with replacement."""

    source_dataset_size: int
    sample_size: int
    event: DpEvent


@_event
class SampledWithoutReplacementDpEvent(DpEvent):
    """A release about a sample of fixed size without replacement."""

    source_dataset_size: int
    sample_size: int
    event: DpEvent


@_event
class SingleEpochTreeAggregationDpEvent(DpEvent):
    """Binary trees over rounds, of which each user joins one at most."""

    noise_multiplier: float
    step_counts: int | list[int]


@_event
class RepeatAndSelectDpEvent(DpEvent):
    """The best of a random number of runs. An infinite shape is a Poisson number."""

    event: DpEvent
    mean: float
    shape: float


@_event
class MixtureOfGaussiansDpEvent(DpEvent):
    """A Gaussian moved by a random amount."""

    standard_deviation: float
    sensitivities: Sequence[float]
    sampling_probs: Sequence[float]


@_event
class ZCDpEvent(DpEvent):
    """A release with Renyi divergences of at most `xi + rho order`."""

    rho: float
    xi: float = 0.0


@_event
class TruncatedSubsampledGaussianDpEvent(DpEvent):
    """A Gaussian over a Poisson sample that is cut to a maximum size."""

    dataset_size: int
    sampling_probability: float
    truncated_batch_size: int
    noise_multiplier: float
